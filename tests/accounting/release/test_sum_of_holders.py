"""Releases of several holders add up to one of all their records; claims stay apart."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import opendp_sim as sim
import opendp_sim.prelude
from opendp_sim.accounting.release.release import Release, noise_of_sum, sum_of
from opendp_sim.core.claims import Noise, Stable
from opendp_sim.core.errors import ReleaseError
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import RealRows, Rows
from opendp_sim.postprocessing._impl.noise_quantiles import reach
from tests.cases.linear import _release as linear_release
from tests.postprocessing.test_noise_quantiles import FAMILIES, FAR, law, released

REAL = RealRows(width=3, labels=("a", "b"), lower=(-1.0,), upper=(1.0,))
RACE = {"repetitions": 5, "buckets": 8, "family": {"p_stable_l2": {"width": 0.5}}, "seed": 11}
RACE |= {"per_label": True, "count_weight": 2}
RHO = {"measure": "zcdp", "total": [0.5], "unit": {"add_remove": 1, "of": "row"}}


def of(draw: int, count: int, noise: Noise | None, **changed: object) -> Release:
    """Return a release of ``count`` records, with the noise of one draw where there is any."""
    stages = bind_steps(
        REAL, Symmetric(), [lookup("quantize")(bits=6), lookup("race_sketch")(**RACE | changed)]
    )
    claim = stages[-1].claim
    assert isinstance(claim, Stable)
    assert claim.accumulate is not None
    rng = np.random.default_rng(draw)
    rows = Rows(rng.integers(-32, 33, (count, 3)).astype(float), rng.integers(0, 2, count))
    cells = np.zeros(claim.output.size, dtype=np.int64)  # type: ignore[attr-defined]
    claim.accumulate(rows, cells)
    drawn = 0 if noise is None else np.rint(rng.normal(0, noise.scale, cells.shape)).astype(int)
    return Release.of_sketch(
        stages, cells + drawn, noise, {"public": True} if noise is None else RHO
    )


GAUSS, ROUNDED = Noise("discrete_gaussian", 3.0), Noise("rounded_gaussian", 4.0)
LINEAR = linear_release()
LAPLACE = Noise("discrete_laplace", 2.0)


def test_exact_tables_add_up_to_the_table_of_all_records() -> None:
    first, second = of(1, 30, None), of(2, 50, None)
    total = first + second
    for name, cells in total.arrays.items():
        assert np.array_equal(cells, first.arrays[name] + second.arrays[name])
    queries = np.array([[0.1, 0.2, 0.3]])
    apart = [one.density(queries)["density"] for one in (first, second)]
    assert np.allclose(total.density(queries)["density"], apart[0] + apart[1])
    assert total.density(queries)["noise_error"].max() == 0


@pytest.mark.parametrize("one", [GAUSS, ROUNDED, LAPLACE])
@pytest.mark.parametrize("other", [GAUSS, ROUNDED, LAPLACE])
def test_noise_of_a_sum_has_at_least_both_variances(one: Noise, other: Noise) -> None:
    total = of(1, 30, one) + of(2, 50, other)
    noise = total.released.noise
    assert noise is not None
    both = np.hypot(one.deviation, other.deviation)
    assert both * (1 - 1e-12) <= noise.deviation <= both * 1.02
    assert noise.step == one.step + other.step


@pytest.mark.parametrize("confidence", [0.05, 0.3, 0.5, 0.69, 0.8, 0.9, 0.95, 0.99, 0.999])
def test_one_cell_of_a_sum_is_held_as_often_as_it_says(confidence: float) -> None:
    for families in itertools.combinations_with_replacement(FAMILIES, 2):
        for scales in itertools.product((0.05, 0.5, 1.0, 4.0, 20.0), repeat=2):
            laws = [law(*pair) for pair in zip(families, scales, strict=True)]
            total = np.convolve(*laws, mode="same")
            noises = [Noise(*pair) for pair in zip(families, scales, strict=True)]  # type: ignore[arg-type]
            joint = noise_of_sum(*noises)
            assert joint is not None
            release = released(joint.family, joint.scale)[0]
            far = reach(release, confidence) * release.deviation + 0.5  # half a step more
            held = total[np.abs(FAR) <= far + 1e-9].sum()
            assert held >= confidence - 1e-12, (families, scales, held)


def test_claims_stay_apart_and_survive_the_file(tmp_path: Path) -> None:
    parts = [of(seed, 30, GAUSS) for seed in (1, 2, 3)]
    left, right = sum(parts), parts[0] + (parts[1] + parts[2])
    assert [holder["privacy"] for holder in left.header["privacy"]["holders"]] == [RHO] * 3
    assert left.header["privacy"] == right.header["privacy"]
    again = Release.load(left.save(tmp_path / "all.npz"))
    assert again.header["noise"] == left.header["noise"]
    assert "holder 3: rho 0.5" in again.claim
    assert "losses add up" in again._repr_html_()
    assert "holder 3" in repr(again)
    (again + of(4, 10, GAUSS)).density(np.zeros((1, 3)))


@pytest.mark.parametrize(
    "privacy",
    [
        {"claim": 5},
        {"measure": "zcdp", "total": "x"},
        {"total": [None], "measure": "zcdp", "unit": {"of": "row"}},
        {"holders": 4},
        {"holders": []},
        {"holders": [{"privacy": 4}]},
        {"holders": [{"privacy": {"claim": 5}, "noise": None, "arrays": {}}]},
    ],
)
def test_a_file_with_an_edited_claim_is_refused_when_it_is_read(
    tmp_path: Path, privacy: dict[str, object]
) -> None:
    one = of(1, 30, GAUSS)
    path = Release({**one.header, "privacy": privacy}, one.arrays).save(tmp_path / "r.npz")
    with pytest.raises(ReleaseError) as refused:
        Release.load(path)
    assert refused.value.code == "OS701"


def test_a_public_holder_adds_no_noise_and_says_so() -> None:
    total = of(1, 30, GAUSS) + of(2, 50, None)
    assert total.released.noise == GAUSS
    assert "public data" in total.claim


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (lambda: of(2, 30, GAUSS, seed=12), "steps"),
        (lambda: of(2, 30, GAUSS, buckets=9), "steps"),
        (lambda: of(1, 30, GAUSS), "made apart"),
        (lambda: of(1, 30, GAUSS) + of(2, 30, GAUSS), "made apart"),
        (lambda: of(2, 30, Noise("discrete_gaussian", 3.0, ((1, 2),))), "weights"),
        (lambda: LINEAR, "source"),
    ],
)
def test_what_does_not_add_up_is_refused(other: Callable[[], Release], expected: str) -> None:
    with pytest.raises(ReleaseError, match=expected) as refused:
        of(1, 30, GAUSS) + other()
    assert refused.value.code == "OS702"


def test_a_file_without_a_later_parameter_adds_to_one_that_has_its_default() -> None:
    """An earlier version's file does not name parameters that came later; their defaults are its meaning."""
    first, second = of(1, 30, GAUSS), of(2, 50, GAUSS)
    earlier, wanted = Release(copy.deepcopy(first.header), first.arrays), first + second
    del earlier.header["steps"][0]["quantize"]["bounds"]
    for total in (earlier + second, second + earlier):
        for name, cells in total.arrays.items():
            assert np.array_equal(cells, wanted.arrays[name])


def test_sums_beyond_int64_and_changed_arrays_are_refused() -> None:
    first, second = of(1, 30, GAUSS), of(2, 30, GAUSS)
    name = next(iter(first.arrays))
    for release, far in ((first, 2**62), (second, 2**62)):
        release.arrays[name][...] = -far  # type: ignore[index]
    with pytest.raises(ReleaseError, match=r"2\*\*63"):
        sum_of(first, second)
    cut = Release(second.header, {n: cells[..., :-1] for n, cells in second.arrays.items()})
    with pytest.raises(ReleaseError) as refused:
        sum_of(first, cut)
    assert refused.value.code == "OS701"


def test_other_objects_and_models_are_refused() -> None:
    for other in (1, 0.0, "", None):
        with pytest.raises(TypeError):
            other + of(1, 30, GAUSS)  # type: ignore[operator]
        with pytest.raises(TypeError):
            of(1, 30, GAUSS) + other  # type: ignore[operator]
    with pytest.raises(ReleaseError, match="sum over records"):
        LINEAR + LINEAR


def test_holders_of_one_recipe_answer_as_one(tmp_path: Path) -> None:
    plan = sim.density({"x": (0, 1), "y": (0, 1)}, bandwidth=0.2, epsilon=50.0)
    rng = np.random.default_rng(7)
    tables = [{"x": rng.random(n), "y": rng.random(n)} for n in (3000, 2000)]
    one, other = (plan.apply(table, into=tmp_path / f"{len(table['x'])}") for table in tables)
    total = one + other
    asked = np.array([[0.5, 0.5], [0.1, 0.9]])
    answers = total.density(asked, confidence=0.999999)
    rows = np.vstack([np.column_stack([t["x"], t["y"]]) for t in tables])
    for place, query in enumerate(asked):
        exact = np.exp(-((rows - query) ** 2).sum(axis=1) / (2 * 0.2**2)).sum()
        assert answers["lower"][place] <= exact <= answers["upper"][place]
