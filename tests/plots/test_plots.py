"""Pictures: their data, what they refuse, that colour-blind readers can tell them apart, and how they look.

``GOLDEN=write pytest tests/plots`` draws the pictures in ``tests/golden/plots`` again.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import opendp_sim as sim
from opendp_sim import plots
from opendp_sim.accounting.budget import Limit
from opendp_sim.accounting.composition import Charge
from opendp_sim.accounting.ledger.ledger import Ledger, Terms
from opendp_sim.cli import app
from opendp_sim.cli.plot import plot_command
from opendp_sim.plots.canvas import label
from opendp_sim.plots.choose import PLOT_KINDS, display_of
from opendp_sim.plots.curves import ErrorDisplay, PrivacyDisplay
from opendp_sim.plots.evidence import AuditDisplay
from opendp_sim.plots.items import TopDisplay
from opendp_sim.plots.maps import ClassMapDisplay, DensityDisplay
from opendp_sim.plots.spending import BudgetDisplay
from tests._golden import FOLDER
from tests.report.audits import audit_file, report

pytest.importorskip("matplotlib")
GOLDEN = FOLDER / "plots"
HOSTILE = "$\\frac{$ <script>\x1b--></svg>"


def answers(x, y=None):
    """A density that is a bump, with noise of 1: what a release would answer, without one."""
    mesh = np.meshgrid(x, x if y is None else y)
    value = 8 * np.exp(-8 * ((mesh[0] - 0.4) ** 2 + (0 if y is None else (mesh[1] - 0.5) ** 2)))
    flat = value[0] if y is None else value.reshape(-1)
    return {
        "density": flat,
        "lower": flat - 2,
        "upper": flat + 2,
        "noise_error": np.ones_like(flat),
    }


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    path = tmp_path_factory.mktemp("ledger") / "people.ledger"
    with Ledger.open(path, Terms("zcdp", "row", Limit(rho=1.0))) as opened:
        for i, rho in enumerate((0.1, 0.3, 0.2)):
            opened.charge(Charge("zcdp", (rho,)), {"name": f"run {i}"})
    return path


def pictures(ledger):
    x, y = np.linspace(0, 1, 40), np.linspace(0, 1, 30)
    winner = (np.add.outer(y, x) > 1).astype(int)
    sure = np.abs(np.add.outer(y, x) - 1) > 0.2
    return {
        "error": ErrorDisplay(
            [0.5, 1.0, 2.0], {"out: noise_error": [8, 4, 2], "out: rmse": [9, 6, 5]}, 1.0
        ),
        "privacy": PrivacyDisplay("gdp", (0.5,), exact=True),
        "slice": DensityDisplay(("age",), x, None, answers(x), 0.95),
        "map": DensityDisplay(("age", "income"), x, y, answers(x, y), 0.95),
        "classes": ClassMapDisplay(("age", "income"), x, y, ("a", "b"), winner, sure),
        "ranks": TopDisplay(["r4c3", "r4c4", "r7c3"], ranked=True),
        "counts": TopDisplay(["r4c3", "r4c4"], [12.0, 7.5]),
        "budget": BudgetDisplay.from_ledger(ledger),
        "audit": AuditDisplay.from_report(report(refuted=True)),
    }


def test_every_picture_looks_as_it_did(ledger, tmp_path):
    """Within 6 of 255 grey levels (root mean square), which other versions' letters keep to."""
    compare = pytest.importorskip("matplotlib.testing.compare")
    for name, display in pictures(ledger).items():
        target = (
            GOLDEN / f"{name}.png"
            if os.environ.get("GOLDEN") == "write"
            else tmp_path / f"{name}.png"
        )
        target.parent.mkdir(exist_ok=True)
        display.save(target, dpi=50)
        kept = tmp_path / f"{name}-kept.png"
        kept.write_bytes((GOLDEN / f"{name}.png").read_bytes())
        assert compare.compare_images(str(kept), str(target), tol=6) is None, name


def test_an_image_test_would_see_another_picture(ledger, tmp_path):
    compare = pytest.importorskip("matplotlib.testing.compare")
    other = ErrorDisplay(
        [0.5, 1.0, 2.0], {"out: noise_error": [2, 4, 8], "out: rmse": [9, 6, 5]}, 1.0
    )
    other.save(tmp_path / "other.png", dpi=50)
    kept = tmp_path / "kept.png"
    kept.write_bytes((GOLDEN / "error.png").read_bytes())
    assert compare.compare_images(str(kept), str(tmp_path / "other.png"), tol=6) is not None


def test_a_burn_down_is_the_ledger_s_own_sum(ledger):
    display = BudgetDisplay.from_ledger(ledger)
    assert display.spent == pytest.approx([0.0, 0.1, 0.4, 0.6])
    assert display.entries == [0, 1, 2, 3]
    assert display.names[1:] == ["run 0", "run 1", "run 2"]


def test_an_attacker_s_curve_is_between_guessing_and_certainty():
    display = PrivacyDisplay("gdp", (0.5,))
    assert all(rate < power <= 1 for rate, power in zip(display.rates, display.power, strict=True))
    assert display.epsilons == sorted(display.epsilons)
    assert not display.exact
    assert PrivacyDisplay("gdp", (0.5,), exact=True).exact
    assert PrivacyDisplay("pure", (1.0,)).epsilons == [1.0] * 11
    assert PrivacyDisplay("approx", (1.0, 1e-6)).deltas == [1e-6]
    zcdp = PrivacyDisplay("approx_zcdp", (0.1, 1e-8))
    assert min(zcdp.deltas) > 1e-8


def test_errors_of_a_plan_are_those_of_the_plan():
    fit = sim.density({"x": (0, 1)}, bandwidth=0.2, epsilon=1.0)
    drawn = ErrorDisplay.from_plan(fit.plan).errors  # a release: the errors of its questions
    assert list(drawn) == ["density of release: noise_error"]
    with pytest.raises(sim.SimError, match="OS101"):
        ErrorDisplay.from_plan(sim.top("item", k=3).plan)  # votes have no curve
    spec = Path(__file__).parents[2] / "specs" / "digit-means.yaml"
    plan = sim.plan(spec)
    display = ErrorDisplay.from_plan(plan, [])
    own = plan.errors([1.0])
    assert display.epsilon == [display.chosen] == [1.0]
    for name, drawn in display.errors.items():  # of means: for 100 records
        assert name.endswith("of the sum")
        assert list(drawn) == [value / 100 for value in own.errors[name]]


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A release of two classes that lie apart, with little noise beside their size."""
    generator = np.random.default_rng(0)
    low, high = generator.normal(0.3, 0.05, (2000, 2)), generator.normal(0.7, 0.05, (2000, 2))
    x, y = np.clip(np.vstack([low, high]), 0, 1).T
    kinds = np.array(["low"] * 2000 + ["high"] * 2000)
    fit = sim.classes(
        {"x": (0, 1), "y": (0, 1)}, label="k", keys=["low", "high"], bandwidth=0.15, epsilon=4.0
    )
    folder = tmp_path_factory.mktemp("released")
    return folder, fit.apply({"x": x, "y": y, "k": kinds}, into=folder)


def test_a_long_unit_is_wrapped_and_not_cut() -> None:
    unit = "squared units of the columns, for means of 100 records"
    shown = ErrorDisplay([1.0, 2.0], {"a: noise_error of the sum": [1, 2]}, None, unit).plot()
    text = shown.ax_.get_ylabel()
    assert " ".join(text.split()) == f"expected error, in {unit}"
    assert max(map(len, text.splitlines())) <= 32
    (told,) = shown.ax_.get_legend().get_texts()
    assert told.get_text() == "a: noise of a mean of 100 records"


@pytest.mark.long
def test_a_map_in_one_unit_of_length_and_in_factors(released):
    _, release = released
    plain = DensityDisplay.from_release(release, "x", "y", points=9).plot()
    assert plain.ax_.get_aspect() == "auto"
    assert "Log" not in type(plain.ax_.collections[0].norm).__name__
    map_ = DensityDisplay.from_release(release, "x", "y", points=9, log=True, equal=True).plot()
    assert map_.ax_.get_aspect() == 1.0
    assert type(map_.ax_.collections[0].norm).__name__ == "LogNorm"
    assert np.array_equal(map_.density, plain.density)
    map_.density[:] = -1.0  # nothing is told from noise: no factor has a meaning
    assert "Log" not in type(map_.plot().ax_.collections[0].norm).__name__


@pytest.mark.long
def test_maps_of_a_release_show_where_its_classes_are(released, tmp_path):
    folder, release = released
    display = ClassMapDisplay.from_release(release, "x", "y", points=21)
    assert display.labels[display.winner[6, 6]] == "low"
    assert display.labels[display.winner[14, 14]] == "high"
    assert display.sure[6, 6]
    assert display.sure[14, 14]
    assert not display.sure.all()
    dense = DensityDisplay.from_release(release, "x", "y", label="low", points=21)
    assert np.unravel_index(dense.density.argmax(), (21, 21)) == pytest.approx((6, 6), abs=1.5)
    assert dense.held == {}
    middle = DensityDisplay.from_release(release, "x", points=5).plot()
    assert middle.ax_.get_title() == "cut at y = 0.5"
    slice_ = DensityDisplay.from_release(release, "x", at={"y": 0.3}, points=11)
    assert slice_.held == {"y": 0.3}
    assert (slice_.lower < slice_.density).all()
    assert slice_.density.argmax() == pytest.approx(3, abs=1)
    file, target = str(next(folder.glob("*.npz"))), str(tmp_path / "x.svg")
    for more, said in (([], ""), (["--at", "y=0.3"], ", in place of the one that was there")):
        result = CliRunner().invoke(
            app, ["plot", file, "--column", "x", "-o", target, "--force", *more]
        )
        assert result.exit_code == 0, result.output
        assert " ".join(result.stdout.split()).endswith(f"x.svg{said}")
    assert "<svg" in (tmp_path / "x.svg").read_text()
    for more, code in ((["--at", "y"], 2), (["--at", "z=1", "--column", "x"], 1), ([], 1)):
        result = CliRunner().invoke(app, ["plot", file, "-o", target, "--force", *more])
        assert result.exit_code == code
        assert more or "it has x, y" in " ".join(result.stderr.split())
    for wrong in ({"x": "z"}, {"x": "x", "label": "middle"}, {"x": "k"}):
        with pytest.raises(sim.SimError, match="OS102"):
            DensityDisplay.from_release(release, **wrong)


def test_text_of_others_is_text(tmp_path, ledger):
    """Formulas, tags and control characters in names are drawn, not obeyed."""
    x = np.linspace(0, 1, 5)
    for number, display in enumerate(
        (
            TopDisplay([HOSTILE]),
            ErrorDisplay([1.0, 2.0], {HOSTILE: [1, 2]}, None),
            DensityDisplay((HOSTILE,), x, None, answers(x), 0.9),
            ClassMapDisplay(
                (HOSTILE, HOSTILE), x, x, (HOSTILE,), np.zeros(25, int), np.ones(25, bool)
            ),
            AuditDisplay.from_report(report(text=HOSTILE)),
        )
    ):
        display.save(tmp_path / f"{number}.svg")
        text = (tmp_path / f"{number}.svg").read_text(encoding="utf-8")
        assert "<script>" not in text
        assert "\x1b" not in text
        assert text.count("</svg>") == 1
    assert label("$a$") == r"\$a\$"


def test_files_are_the_same_every_time(tmp_path):
    for name in ("a.svg", "b.svg"):
        TopDisplay(["x", "y"]).save(tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert "<svg" in TopDisplay(["x"])._repr_svg_()
    with pytest.raises(sim.SimError, match="OS609"):
        TopDisplay(["x"]).save(tmp_path / "a.exe")


def test_what_cannot_be_drawn_is_refused(tmp_path):
    for items, counts in (([], None), (["a"], [1.0, 2.0])):
        with pytest.raises(sim.SimError, match="OS602"):
            TopDisplay(items, counts)
    with pytest.raises(sim.SimError, match="OS101"):
        display_of(tmp_path / "x.yaml", "eror")
    with pytest.raises(sim.SimError, match="OS701"):
        display_of(tmp_path / "x.npz")
    assert isinstance(display_of(audit_file(tmp_path / "audit.json")), AuditDisplay)
    (tmp_path / "top.json").write_text('["a", "b"]')
    assert display_of(tmp_path / "top.json").items == ["a", "b"]
    assert all(kind in str(plot_command.__annotations__["kind"]) for kind in PLOT_KINDS)


def test_the_package_offers_every_picture():
    assert [getattr(plots, name).__name__ for name in dir(plots)] == dir(plots)
    with pytest.raises(AttributeError, match="ErrorDisplay"):
        plots.PieDisplay  # noqa: B018
