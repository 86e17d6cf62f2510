"""The line in two stages: residuals row by row, sensitivity, the map, every neighbour, and accuracy."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from opendp_sim.accounting.release.release import Release
from opendp_sim.core.claims import Stage
from opendp_sim.core.errors import ParameterError, SimError
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.domains.standard import LEVELS, Standard
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.dsl.run.execute import apply
from opendp_sim.dsl.verification.verify import verify
from opendp_sim.measurements.linear._impl.whitening import moments
from opendp_sim.measurements.linear.linear_regression import (
    LinearRegression,
    TwoStages,
    residual_gradient,
    scaled_rows,
    whole_line,
)
from opendp_sim.postprocessing.regress import Regress

RNG = np.random.default_rng(20261127)
MANY = GridRows(width=6, lower=(-500,), upper=(500,))
SMALL = GridRows(width=2, lower=(-2, 0), upper=(2, 2))
MEMBERS = np.array(list(product(range(-2, 3), range(3))), dtype=np.float64)
"""Every row that the domain has."""


def stages(domain: GridRows, rho: float = 0.5, steps: int = 4, clip: float = 0.4) -> TwoStages:
    return TwoStages(Standard(domain, 1.5), domain.width, rho, steps, clip)


def lines(bound: int, width: int) -> list[np.ndarray]:
    """Public weights: usual ones, and the largest that may be."""
    most = np.full(width, 1e30) * RNG.choice([-1, 1], width)
    usual = [RNG.normal(size=width) * size for size in (0.1, 1.0, 50.0)]
    none = np.resize([np.nan, np.inf, -np.inf], width)
    return [whole_line(line, bound) for line in (*usual, none, most)]


def test_residuals_are_exact_and_clipped_for_the_largest_weights():
    two = stages(MANY)
    rows = scaled_rows(two.standard, RNG.integers(-500, 501, (400, 6)).astype(np.float64))
    for weights in lines(two.standard.norm_squared, 6):
        exact, longest = np.zeros(6, dtype=object), 0
        for row in rows.astype(int).tolist():
            fitted = sum(int(w) * x for w, x in zip(weights, row[:6], strict=True)) >> 24
            left = max(-two.largest, min(two.largest, row[6] - fitted))
            longest = max(longest, abs(left))
            exact += np.array([x * left for x in row[:6]], dtype=object)
        found = residual_gradient(rows, 6, weights, two.largest)
        assert found.tolist() == exact.tolist()
        assert longest == two.largest


def test_no_member_of_the_domain_adds_more_than_the_bound():
    """Every row, beside every kind of public line: the moments' and the gradients' squared norms."""
    two, worst = stages(SMALL), 0.0
    rows = scaled_rows(two.standard, MEMBERS)
    for row in rows:
        square = int((moments(row[None]).astype(object) ** 2).sum())
        assert square <= two.moments_square
    for weights in lines(two.standard.norm_squared, 2) * 5:
        for row in rows:
            one = residual_gradient(row[None], 2, weights, two.largest).astype(object)
            worst = max(worst, int((one**2).sum()) / two.gradient_square)
    assert 0.8 < worst <= 1  # the search comes near


def test_neighbours_show_no_more_than_the_loss_along_public_transcripts():
    """Every member of the domain added, alone and three at once, to crowds of none and of thirty."""
    two, worst = stages(SMALL, rho=0.5, steps=3), 0.0
    crowd = MEMBERS[RNG.integers(0, len(MEMBERS), 30)]
    for place, (size, copies) in product(range(len(MEMBERS)), product((0, 30), (1, 3))):
        notes: list[list[np.ndarray]] = []
        added = np.repeat(MEMBERS[place : place + 1], copies, axis=0)
        for values in (crowd[:size], np.concatenate([added, crowd[:size]])):
            held: list[np.ndarray] = []
            notes.append(held)

            def told(
                cells: np.ndarray, scale: float, held: list = held, at: int = place
            ) -> np.ndarray:
                held.append(cells / scale)
                draw = np.random.default_rng(at + 100 * len(held))
                # Whatever was released: noise as drawn, or the sums of many records.
                size = scale if at % 2 else 2.0**35
                return np.rint(draw.normal(0, size, cells.shape)).astype(np.int64)

            two.run(scaled_rows(two.standard, values), told)
        apart = np.linalg.norm(np.concatenate(notes[0]) - np.concatenate(notes[1])) / copies
        worst = max(worst, float(apart))
        assert apart <= np.sqrt(2 * two.rho) * (1 + 1e-9)
    assert worst > 0.6


def test_the_map_is_opendps_composition():
    for steps in (1, 4, 100):
        claim = LinearRegression(rho=0.37, steps=steps).bind(MANY, Symmetric())
        two = stages(MANY, 0.37, steps)
        for d_in in (1, 2, 7):
            exact = sum(square * d_in**2 / (2 * Fraction(s) ** 2) for square, s in two.releases)
            stated = claim.privacy_map(d_in)
            assert exact <= Fraction(stated) <= exact * (1 + Fraction(1, 2**45))
            assert 0.37 * d_in**2 * (1 - 1e-9) < stated <= 0.37 * d_in**2
            assert Fraction(2 * stated) >= claim.mu_squared * d_in**2
        assert claim.privacy_map(0) == 0.0


@pytest.mark.parametrize("rho", [1e-22, 1e-3, 1e6])
def test_no_records_and_extreme_losses(rho: float):
    for domain in (MANY, GridRows(width=1, lower=(-70,), upper=(70,))):
        for values in (np.zeros((0, domain.width)), np.full((3, domain.width), 70.0)):
            claim = LinearRegression(rho=rho).bind(domain, Symmetric())
            found = claim.function(Rows(values))
            assert found.dtype == np.int64
            assert found.shape == (domain.width,)


def table(count: int) -> np.ndarray:
    x = RNG.integers(-500, 501, (count, 5))
    y = 0.4 * x[:, 0] - 0.3 * x[:, 1] + 50 + RNG.normal(0, 30, count)
    return np.column_stack([x, np.clip(np.rint(y), -500, 500)]).astype(np.float64)


def released(domain: GridRows, values: np.ndarray, rho: float, **given: object) -> Release:
    model = lookup("linear_regression")(rho=rho, **given)
    claim = model.bind(domain, Symmetric())
    flat = claim.function(Rows(values))
    return Release.of_sketch((Stage(model, domain, Symmetric(), claim),), flat, None, {"rho": rho})


@pytest.mark.parametrize("target", [None, 0, 2])
def test_it_is_near_to_least_squares_at_a_good_budget(target: int | None):
    """rho 50, 4,000 rows: the noise of all steps adds less than .01 to the mean square but in 1e-12 of runs.

    Slopes along directions of little variance may move: a step there costs what it is worth.
    """
    values = table(4000)
    of = released(MANY, values, 50.0, target=target, clip=2.0)
    post = Regress(answer="coefficients").bind(of.released, Symmetric())
    found = post.function(of.arrays, None)["coefficient"]
    column = 5 if target is None else target
    rows = Standard(MANY, 1.5)(values) / LEVELS  # as shortened: they weigh less, in both
    inputs = np.delete(rows, column + 1, axis=1)
    best = np.linalg.lstsq(inputs, rows[:, column + 1], rcond=None)[0]
    apart = inputs @ (np.concatenate([[found[0] / 500], found[1:]]) - best)
    assert np.square(apart).mean() < 0.01
    prediction = Regress().bind(of.released, Symmetric())
    answer = prediction.function(of.arrays, of.queries(Rows(values[:50])))["prediction"]
    line = found[0] + np.delete(values[:50], column, axis=1) @ found[1:]
    assert answer == pytest.approx(np.clip(line, -500, 500))


def test_another_target_than_the_released_one_is_refused():
    of = released(MANY, table(50), 1.0, target=2)
    assert Regress(target=2).bind(of.released, Symmetric())
    for target in (1, 6):
        with pytest.raises(ParameterError, match="OS102"):
            Regress(target=target).bind(of.released, Symmetric())
    with pytest.raises(SimError) as refused:
        LinearRegression(rho=1.0, target=6).bind(MANY, Symmetric())
    assert refused.value.code == "OS102"


SPEC = """
spec: opendp_sim/2
name: line
data:
  t:
    source: {csv: t.csv}
    columns: {x: {dtype: float64, bounds: [0, 1]}, y: {dtype: float64, bounds: [0, 9]}}
    ingest: enforce
privacy: {unit: {add_remove: 1, of: row}, measure: gdp, budget: {epsilon: 2.0, delta: 1.0e-6}}
flow:
  line:
    from: t
    steps: [select: {features: [x, y]}, rescale: {scale: range}, quantize: {bits: 12}]
    release: {mechanism: {linear_regression: {}}, spend: 100%}
outputs:
  saved: {from: line, save: line.npz}
  slopes: {from: line, post: [regress: {answer: coefficients}], save: slopes.csv}
"""


def test_a_program_is_planned_run_verified_and_asked(tmp_path: Path):
    x = RNG.uniform(0, 1, 3000)
    (tmp_path / "t.csv").write_text(
        "x,y\n" + "\n".join(f"{a:.4f},{1 + 5 * a:.4f}" for a in x), "utf-8"
    )
    (tmp_path / "line.yaml").write_text(SPEC, "utf-8")
    done = apply(plan_file(tmp_path / "line.yaml"), into=tmp_path)
    for certificate in done.certificates.values():
        verify(certificate)
    release = Release.load(done.files["saved"])
    assert release.ops == ("regress",)
    slopes = np.asarray(release.regress(answer="coefficients")["coefficient"])
    assert slopes == pytest.approx([1, 5], abs=0.7)  # 0.05 is usual
