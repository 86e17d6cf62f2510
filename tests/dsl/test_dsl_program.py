"""The typed form: YAML and Python agree, hashes mean programs, typing and accounting judgements."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

import opendp_sim.prelude  # noqa: F401
from opendp_sim.accounting.measures.second_opinion import (
    gaussian_rho,
    laplace_epsilon,
    pure_to_zcdp,
    zcdp_to_epsilon,
)
from opendp_sim.core.errors import InternalError, SimError
from opendp_sim.core.mechanism import REGISTRY
from opendp_sim.dsl import Refused, draft_of, plan_file, plan_of, program
from opendp_sim.dsl.text.diagnostic import Notes
from opendp_sim.dsl.text.yaml_document import parse, plain_scalar
from opendp_sim.transformations.row_maps.quantize import Quantize
from opendp_sim.transformations.row_maps.select import Select
from tests._golden import FOLDER
from tests._small import write_small

SMALL = FOLDER / "small.yaml"
COLUMNS = {
    "x": {"dtype": "array[f64, 3]", "bounds": [0.0, 1.0]},
    "kind": {"dtype": "category", "keys": ["a", "b"]},
}


def _builder(**changes):
    given = {
        "unit": {"add_remove": 1, "of": "row"},
        "measure": "zcdp",
        "budget": {"epsilon": 1.0, "delta": 1e-6},
        "release": {"noise": "gaussian", "spend": 1.0},
        "source": {"npz": "points.npz"},
        "columns": COLUMNS,
        "repetitions": 100,
    } | changes
    race = {
        "repetitions": given["repetitions"],
        "buckets": 16,
        "seed": 7,
        "per_label": True,
        "family": {"p_stable_l2": {"width": 0.5}},
        "count_weight": 0,
    }
    return (
        program("small", folder=changes.get("folder", "."))
        .data(
            "points",
            source=given["source"],
            columns=given["columns"],
            ledger={"file": "points.ledger", "limit": {"epsilon": 3.0, "delta": 1e-5}},
        )
        .privacy(unit=given["unit"], measure=given["measure"], budget=given["budget"])
        .stage("vectors", "points", steps=[Select(features="x", label="kind"), Quantize(bits=10)])
        .stage(
            "sketch",
            "vectors",
            steps=[{"race_sketch": race}],
            expect={"stability": 1, "sensitivity": {"l1": 100, "l2": 10, "linf": 1}},
        )
        .stage("noisy", "sketch", release=given["release"])
        .output(
            "density",
            "noisy",
            post=[{"density": {"estimator": "mean"}}],
            query={"npz": "queries.npz"},
            save="out/density.csv",
        )
        .output("release", "noisy", save="out/release.npz")
    )


def _plan(**changes):
    return _builder(**changes).plan()


# --- one typed form -------------------------------------------------------------------------------


def test_yaml_and_python_have_one_hash():
    from_yaml = plan_file(SMALL).program
    assert _builder().build().hash == from_yaml.hash
    assert _builder().build() == from_yaml


def test_what_means_the_same_hashes_the_same_and_nothing_else_does():
    text = SMALL.read_text()
    base = plan_file(SMALL).program.hash

    def hashed(*changes):
        changed = text
        for old, new in changes:
            assert old in changed
            changed = changed.replace(old, new)
        notes = Notes()
        return draft_of(parse(changed, "x", notes).data, notes=notes).program.hash

    assert hashed(("seed: 7, per_label: true", "per_label: true, seed: 7")) == base
    assert hashed(("epsilon: 1.0, delta: 1.0e-6", "epsilon: 1, delta: 0.000001")) == base
    assert hashed(("spend: 100%", "spend: 1")) == base
    assert hashed(('"${width}"', "0.5")) == base
    assert hashed(("seed: 7", "seed: 8")) != base
    assert hashed(("epsilon: 1.0, delta: 1.0e-6", "epsilon: 1.5, delta: 1.0e-6")) != base
    assert hashed(("default: 0.5", "default: 0.6")) != base
    assert hashed(("bounds: [0.0, 1.0]", "bounds: [0.0, 2.0]")) != base


def test_parameters_from_the_command_line_are_typed_and_ranged():
    plan = plan_file(SMALL, {"width": "2"})
    assert dict(plan.program.values) == {"width": 2.0}
    for value in ("two", "99", "nan"):
        with pytest.raises(Refused) as caught:
            plan_file(SMALL, {"width": value})
        assert caught.value.code == "OS308"
    with pytest.raises(Refused) as caught:
        plan_file(SMALL, {"wdith": "1"})
    assert "width" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("off", "off"),
        ("true", True),
        ("~", None),
        ("012", 12),
        ("0o17", 15),
        ("0x1F", 31),
        ("1e-6", 1e-6),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        (".inf", np.inf),
        ("2026-01-01", "2026-01-01"),
        ("+7", 7),
        ("1.", 1.0),
        ("NULL", None),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text, value):
    found = plain_scalar(text)
    assert found == value
    assert type(found) is type(value)


# --- losses ---------------------------------------------------------------------------------------


def test_a_solved_release_meets_its_budget_and_barely():
    plan = _plan()
    epsilon, delta = plan.claim
    assert delta == 1e-6
    assert 1 - 1e-9 < epsilon <= 1.0
    scale = plan.releases["noisy"].bound.record.scale
    assert plan.total[0] == pytest.approx(100 / (2 * scale**2), rel=1e-12)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("measure", "budget", "noise", "scale"),
    [
        ("pure", {"epsilon": 2.0}, "laplace", 50.0),
        ("zcdp", {"rho": 0.5}, "gaussian", 10.0),
        ("zcdp", {"rho": 0.5}, "laplace", 100.0),
        ("approx", {"epsilon": 2.0, "delta": 1e-6}, "laplace", 50.0),
        ("approx_zcdp", {"rho": 0.5, "delta": 1e-6}, "gaussian", 10.0),
    ],
)
def test_scales_in_every_measure(measure, budget, noise, scale):
    plan = _plan(measure=measure, budget=budget, release={"noise": noise})
    assert plan.releases["noisy"].bound.record.scale == pytest.approx(scale, rel=1e-6)


def test_both_bounds_of_a_budget_hold():
    loose = _plan(budget={"epsilon": 1.0, "delta": 1e-6, "rho": 0.5})
    tight = _plan(budget={"epsilon": 1.0, "delta": 1e-6, "rho": 0.001})
    assert loose.total == _plan().total
    assert tight.total[0] == pytest.approx(0.001)
    assert tight.total[0] <= 0.001


def _two(first, second, **changes):
    return (
        _builder(release=first, **changes)
        .stage("again", "sketch", release=second)
        .output("other", "again", save="out/other.npz")
    )


def test_several_releases_share_the_budget():
    first, second = {"noise": "gaussian", "spend": "1/3"}, {"noise": "laplace", "spend": "2/3"}
    plan = _two(first, second).plan()
    losses = [release.loss[0] for release in plan.releases.values()]
    assert losses[1] == pytest.approx(2 * losses[0], rel=1e-6)
    assert plan.total[0] == pytest.approx(sum(losses))
    assert plan.claim[0] <= 1.0


@pytest.mark.few(1)
@pytest.mark.parametrize("measure", ["zcdp", "approx_zcdp", "approx"])
def test_thirds_fit_whatever_the_rounding(measure):
    third = {"noise": "gaussian", "spend": "1/3"}
    builder = _two(third, third, measure=measure)
    builder.stage("last", "sketch", release=third).output("l", "last", save="out/l.npz")
    plan = builder.plan()
    stated = plan.claim or plan.total
    assert 1 - 1e-9 < stated[0] <= 1.0
    assert stated[1] <= 1e-6


def test_shares_that_exceed_the_budget_or_are_not_stated_are_refused():
    with pytest.raises(Refused) as caught:
        _two({"noise": "gaussian", "spend": "60%"}, {"noise": "gaussian", "spend": "50%"}).plan()
    assert caught.value.code == "OS401"
    with pytest.raises(Refused) as caught:
        _two({"noise": "gaussian"}, {"noise": "gaussian"}).plan()
    assert caught.value.code == "OS305"


def test_a_given_scale_counts_beside_a_share():
    with pytest.raises(Refused) as caught:
        _two({"noise": "gaussian", "spend": "100%"}, {"noise": "gaussian", "scale": 1000.0}).plan()
    assert caught.value.code == "OS401"
    plan = _two(
        {"noise": "gaussian", "spend": "90%"}, {"noise": "gaussian", "scale": 1000.0}
    ).plan()
    assert plan.claim[0] <= 1.0


def test_a_disagreement_of_the_two_computations_stops_everything(monkeypatch, tmp_path):
    from opendp_sim.dsl.plan import losses

    spec = write_small(tmp_path)
    for wrong in (1.001, 0.999):
        monkeypatch.setattr(
            losses, "gaussian_rho", lambda *a, w=wrong: gaussian_rho(*a) * Fraction(w)
        )
        with pytest.raises(InternalError) as caught:
            plan_file(spec)
        assert caught.value.code == "OS901"
    assert not (tmp_path / "points.ledger").exists()


def test_a_map_that_forgets_a_row_is_caught_by_the_types(monkeypatch, tmp_path):
    """The broken twin: a bridge whose sketch map is a tenth of the sensitivity must not pass the plan."""
    from opendp_sim.core import claims

    spec = write_small(tmp_path)
    honest = claims.Sensitivity.bound

    def small(self, norm, d_in):
        value = honest(self, norm, d_in)
        return value / 10 if norm == "l2" else value

    monkeypatch.setattr(claims.Sensitivity, "bound", small)
    with pytest.raises(InternalError) as caught:
        plan_file(spec)
    assert caught.value.code == "OS901"


def test_a_person_is_bounded_to_k_rows():
    columns = COLUMNS | {"user": {"dtype": "int64", "role": "privacy_id"}}
    builder = (
        program("persons")
        .data("points", source={"npz": "p.npz"}, columns=columns)
        .privacy(unit={"add_remove": 1, "of": "user"}, measure="pure", budget={"epsilon": 1.0})
        .stage(
            "sketch",
            "points",
            steps=[
                {"bound_contributions": {"max_rows": 3}},
                {"select": {"features": "x"}},
                {"quantize": {"bits": 8}},
                {
                    "race_sketch": {
                        "repetitions": 10,
                        "buckets": 8,
                        "seed": 1,
                        "count_weight": 0,
                        "family": {"p_stable_l2": {"width": 1.0}},
                    }
                },
            ],
            expect={"stability": 3, "sensitivity": {"l1": 30}},
        )
        .stage("noisy", "sketch", release={"noise": "laplace"})
        .output("out", "noisy", save="o.npz")
    )
    plan = builder.plan()
    assert plan.types["sketch"].stability == 3
    assert plan.releases["noisy"].bound.record.scale == pytest.approx(30.0)
    assert plan.releases["noisy"].maps == (
        ("bound_contributions", 3),
        ("select", 3),
        ("quantize", 3),
        ("race_sketch", 30),
    )


# --- the second opinion ---------------------------------------------------------------------------


def test_exact_formulas():
    assert laplace_epsilon(406, 2, 7.0) == Fraction(812, 7)
    assert gaussian_rho(436, 3, 4.0) == Fraction(436 * 9, 32)
    assert pure_to_zcdp(Fraction(1, 3)) == Fraction(1, 18)
    assert zcdp_to_epsilon(0.0, 1e-6) == 0.0


def test_every_mechanism_is_known_to_the_reader():
    from opendp_sim.dsl.grammar.parse_steps import read_record

    for key, mechanism in REGISTRY.items():
        notes = Notes()
        assert read_record(mechanism, {"no_such_parameter": 1}, ("steps", 0, key), notes) is None
        assert any(finding.code == "OS303" for finding in notes.findings), key


def test_plans_of_broken_programs_never_account(monkeypatch):
    draft = _builder(repetitions=0).draft()
    monkeypatch.setattr("opendp_sim.dsl.plan.plan.account", lambda *_: pytest.fail("accounted"))
    with pytest.raises(SimError):
        plan_of(draft)


def test_the_order_of_columns_is_part_of_the_program(tmp_path):
    """It says what the numbers of a plain array are: two orders, two hashes; and it survives sorted JSON."""
    spec = write_small(tmp_path)
    first = plan_file(spec).program
    text = spec.read_text()
    line = next(
        each for each in text.splitlines(keepends=True) if each.strip().startswith("x: {dtype")
    )
    after = next(
        each for each in text.splitlines(keepends=True) if each.strip().startswith("kind: {")
    )
    spec.write_text(text.replace(line, "").replace(after, after + line))
    other = plan_file(spec).program
    assert [c.name for c in first.data[0].records.columns] == ["x", "kind"]
    assert [c.name for c in other.data[0].records.columns] == ["kind", "x"]
    assert other.hash != first.hash
    for one in (first, other):
        again = draft_of(json.loads(one.canonical)).program  # sorted by name on its way
        assert again.data[0].records == one.data[0].records
        assert again.hash == one.hash
    spec.write_text(text.replace("    columns:\n", "    order: [x, y]\n    columns:\n", 1))
    with pytest.raises(Refused, match="list of all columns"):
        plan_file(spec)
