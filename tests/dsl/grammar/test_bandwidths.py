"""A Gaussian bandwidth means one kernel on every door."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from ruamel.yaml import YAML

import opendp_sim as sim
from opendp_sim.core.mechanism import REGISTRY, Option
from opendp_sim.dsl import plan_file, program
from opendp_sim.dsl.grammar.bandwidths import GAUSSIAN, shown_step, written_program
from opendp_sim.dsl.grammar.reader import draft_of
from opendp_sim.dsl.plan.advice import advice
from opendp_sim.sklearn import DPKernelDensity

WIDTHS = st.floats(1e-6, 1e6)
BOX = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
ROWS = np.array([[0.25, 0.5], [0.5, 0.5], [0.75, 0.25]])


def steps(g: float, t: float, other: float) -> dict[str, list[Any]]:
    """Every place of a Gaussian bandwidth, and others beside it."""
    terms = [[0.5, {"gaussian": {"bandwidth": g}}], [0.5, {"exponential": {"bandwidth": other}}]]
    return {
        "one": [
            {
                "fourier_sketch": {
                    "frequencies": 9,
                    "seed": 1,
                    "kernel": {"gaussian": {"bandwidth": g}},
                }
            }
        ],
        "sum": [
            {
                "fourier_sketch": {
                    "frequencies": 9,
                    "seed": 1,
                    "kernel": {"weighted": {"terms": terms}},
                }
            }
        ],
        "cells": [{"gauss_transform_sketch": {"bandwidth": t}}],
        "waves": [
            {"fourier_features": {"frequencies": 9, "seed": 1, "bandwidth": t}},
            "moments_sketch",
        ],
        "tails": [
            {
                "exponential_sum": {
                    "bandwidth": other,
                    "seed": 1,
                    "structure": {"gauss_transform": {}},
                }
            }
        ],
    }


def spec(version: int, flow: dict[str, list[Any]], kernel: Any = "cosine") -> dict[str, Any]:
    votes = {"ind_knn": {"rho": 0.5, "queries": 5, "size": 100, "kernel": kernel}}
    grid = [{"select": {"features": ["x", "y"]}}, {"quantize": {"bits": 8}}]
    columns = {name: {"dtype": "float64", "bounds": list(ends)} for name, ends in BOX.items()}
    noisy = {"noise": "gaussian", "spend": "10%"}
    stages = {name: {"from": "grid", "steps": of, "release": noisy} for name, of in flow.items()}
    return {
        "spec": f"opendp_sim/{version}",
        "name": "doors",
        "data": {"records": {"source": {"memory": "records"}, "columns": columns}},
        "privacy": {
            "unit": {"add_remove": 1, "of": "row"},
            "measure": "zcdp",
            "budget": {"epsilon": 1.0, "delta": 1e-6},
        },
        "flow": {
            "grid": {"from": "records", "steps": grid},
            "votes": {"from": "grid", "release": {"mechanism": votes}},
            **stages,
        },
        "outputs": {f"of_{n}": {"from": n, "save": f"{n}.npz"} for n in ("votes", *flow)},
    }


def hash_of(body: dict[str, Any]) -> str:
    draft = draft_of(body)
    assert not draft.notes.findings
    return draft.program.hash


@given(g=WIDTHS)
def test_a_program_comes_back_from_its_text(g: float) -> None:
    """Whichever language it was written in: in language 2 if a float gives its bandwidth exactly."""
    flow = {"cells": [{"gauss_transform_sketch": {"bandwidth": g, "order": 2}}]}
    body = spec(1, {})
    body["flow"] |= {
        "cells": {"from": "grid", "steps": flow["cells"], "release": {"noise": "gaussian"}}
    }
    for version in (1, 2):
        program = draft_of({**body, "spec": f"opendp_sim/{version}"}).program
        text = written_program(program.plain())
        assert draft_of(text).program.hash == program.hash
        assert text["spec"] == "opendp_sim/2" or version == 1


@pytest.mark.few(2)
@pytest.mark.parametrize("h", [0.05, 0.1, 0.3, 1.0, 2.5, 28.28, 15_000.0])
def test_a_plan_is_written_with_the_bandwidth_that_was_asked(h: float) -> None:
    text = sim.density({"x": (0.0, 1e5)}, bandwidth=h).plan.to_yaml()
    assert "spec: opendp_sim/2" in text
    assert f"bandwidth: {h}" in text


def test_every_bandwidth_of_the_catalogue_is_declared() -> None:
    """A new mechanism with a bandwidth has to choose: of a Gaussian, or one of these."""
    others = {"exponential", "laplacian", "rational", "student", "exponential_sum"}

    def kinds(cls: type[Any]) -> set[type[Any]]:
        return set(cls.__subclasses__()).union(*(kinds(each) for each in cls.__subclasses__()))

    known = {
        c.key
        for c in {*kinds(Option), *REGISTRY.values()}
        if "bandwidth" in c.model_fields and hasattr(c, "key")
    }
    assert known == GAUSSIAN | others


def test_the_details_show_what_was_written() -> None:
    plan = draft_of(spec(2, {}, {"rbf": {"bandwidth": 0.3}})).program
    ((_, inner),) = plan.stage("votes").release.plain()["mechanism"].items()
    assert shown_step({"ind_knn": inner})["ind_knn"]["kernel"] == {"rbf": {"bandwidth": 0.3}}


def test_a_refusal_quotes_the_bandwidth_as_written() -> None:
    for bad in (-0.5, 0, "wide", float("nan")):
        flow = {"cells": [{"gauss_transform_sketch": {"bandwidth": bad}}]}
        (finding,) = draft_of(spec(2, flow)).notes.findings
        assert str(bad) in finding.label


class Real:
    """An object that is a number to ``float`` and to a field of floats."""

    def __init__(self, value: float) -> None:
        self._value = value

    def __float__(self) -> float:
        return self._value


NUMBERS = [Fraction(3, 10), Decimal("0.3"), Real(0.3), np.float64(0.3), np.array(0.3)]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda one: type(one).__name__)
def test_every_number_is_converted(number: Any) -> None:
    """An object of another type was once taken for ``h sqrt(2)``."""
    expected = hash_of(spec(2, steps(0.3, 0.3, 1.0), {"rbf": {"bandwidth": 0.3}}))
    assert hash_of(spec(2, steps(number, number, 1.0), {"rbf": {"bandwidth": number}})) == expected


@pytest.mark.parametrize(
    "bad", [True, "0.3", b"0.3", 1j, [0.3], Real(-1.0), Fraction(10**400), None]
)
def test_no_other_value_is_a_bandwidth(bad: Any) -> None:
    findings = draft_of(spec(2, {"cells": [{"gauss_transform_sketch": {"bandwidth": bad}}]})).notes
    assert [one.code for one in findings.findings] == ["OS101"]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("flow", ["one", "sum", "cells", "waves", "tails", "votes"])
@pytest.mark.parametrize(
    "bad", [math.inf, Real(math.inf), 1.5e308], ids=["inf", "object", "1.5e308"]
)
def test_an_infinite_bandwidth_is_refused_before_a_charge(
    version: int, flow: str, bad: Any
) -> None:
    """Once planned, and charged by a run that failed: the canonical JSON has no infinite number."""
    kernel = {"rbf": {"bandwidth": bad}} if flow == "votes" else "cosine"
    those = steps(bad, bad, bad).get(flow)
    findings = draft_of(
        spec(version, {} if those is None else {flow: those}, kernel)
    ).notes.findings
    if bad == 1.5e308 and (version == 1 or flow == "tails"):
        return  # a float, of which no kernel is refused here
    assert {one.code for one in findings} == {"OS101"}
    assert bad != 1.5e308 or all("1.5e+308" in one.label for one in findings)


@pytest.mark.few(7)
@pytest.mark.parametrize("former", [0.1, *np.linspace(0.3, 0.4, 20).tolist()])
def test_the_advised_bandwidth_is_the_same_program(tmp_path: Path, former: float) -> None:
    text = sim.density(BOX, bandwidth=7.0).plan.to_yaml()
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(
        text.replace("opendp_sim/2", "opendp_sim/1").replace("th: 7.0", f"th: {former!r}")
    )
    (told,) = [one for one in advice(plan_file(old)) if "opendp_sim/1" in one]
    asked = re.search(rf"{former!r} becomes (\S+)", told)
    if asked is None:
        assert "no h that is the same program" in told
        return
    new.write_text(text.replace("th: 7.0", f"th: {asked[1]}"))
    assert plan_file(new).program.hash == plan_file(old).program.hash


@pytest.mark.parametrize("measure", ["gdp", "pure"])
@pytest.mark.parametrize(
    ("width", "high", "bandwidth"),
    [
        (2, 1.0, 1e-200),
        (4, 1.0, 1e-200),
        (3, 1e200, 1.0),
        (4, 1e200, 1.0),
        (4, 1.0, 1.5e308),
        (4, 1.0, 10**400),
        (1, 1.0, {"c0": 10**400}),
    ],
)
def test_far_bandwidths_are_refused_by_a_code(
    measure: str, width: int, high: float, bandwidth: Any
) -> None:
    columns = {f"c{at}": (0.0, high) for at in range(width)}
    budget = {"measure": measure} | ({"delta": 0.0} if measure == "pure" else {})
    with pytest.raises(sim.SimError):
        sim.density(columns, bandwidth=bandwidth, size=10, **budget)


@pytest.mark.parametrize(
    "bandwidth", [1.5e308, 10**400, math.inf, 1e-200], ids=["1.5e308", "10**400", "inf", "1e-200"]
)
def test_an_estimator_refuses_far_bandwidths_by_a_code(bandwidth: Any) -> None:
    estimator = DPKernelDensity(epsilon=1.0, bounds=(0, 1), bandwidth=bandwidth)
    with pytest.raises(sim.SimError):
        estimator.fit(ROWS)


def _stated(key: str, params: Any) -> Any:
    """A program with one sketch, as its parameters are written in a Builder's mapping."""
    made = program("twice").data("rows", source={"memory": "rows"}, columns=_BOX)
    made.privacy(unit={"add_remove": 1, "of": "row"}, measure="pure", budget={"epsilon": 1.0})
    made.stage(
        "grid", "rows", steps=[{"select": {"features": ["x", "y"]}}, {"quantize": {"bits": 8}}]
    )
    made.stage("noisy", "grid", steps=[{key: params}], release={"noise": "laplace"})
    return made.output("o", "noisy", save="o.npz").build().hash


_BOX = {name: {"dtype": "float64", "bounds": list(ends)} for name, ends in BOX.items()}


@pytest.mark.parametrize("place", ["one", "sum", "cells", "tails"])
def test_the_form_of_a_record_is_converted_once(place: str) -> None:
    """Once ``{key: record.spec()}`` was a kernel wider by sqrt(2) than the record's."""
    (step,) = steps(0.1, 0.3, 0.7)[place]
    ((key, params),) = step.items()
    record = REGISTRY[key].from_spec(params)
    asked = _stated(key, record.spec())
    assert asked == _stated(key, {**record.spec()})
    made = program("twice").data("rows", source={"memory": "rows"}, columns=_BOX)
    made.privacy(unit={"add_remove": 1, "of": "row"}, measure="pure", budget={"epsilon": 1.0})
    made.stage(
        "grid", "rows", steps=[{"select": {"features": ["x", "y"]}}, {"quantize": {"bits": 8}}]
    )
    made.stage("noisy", "grid", steps=[record], release={"noise": "laplace"})
    plan = made.output("o", "noisy", save="o.npz").plan()
    assert plan.program.hash == asked
    assert sim.plan(plan.to_yaml()).program.hash == asked
    # JSON keeps numbers, not what they are: a record's form goes by the record, a program's by its word.
    read = json.loads(json.dumps(record.spec()))
    assert _stated(key, REGISTRY[key].from_spec(read).spec()) == asked
    whole = json.loads(plan.program.canonical)
    assert sim.plan(whole).program.hash == asked


def test_a_former_spec_in_python_gets_one_notice() -> None:
    text = sim.density(BOX, bandwidth=0.1).plan.to_yaml().replace("opendp_sim/2", "opendp_sim/1")
    for spec_ in (text, YAML(typ="safe").load(text)):
        assert [one for one in advice(sim.plan(spec_)) if "divide by sqrt(2)" in one]
    made = sim.density(BOX, bandwidth=0.1).plan
    assert not [one for one in advice(made) if "divide by sqrt(2)" in one]
