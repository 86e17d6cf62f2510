"""The frozen corpus: of each family some on every run, one seed of the cheap ones in `long`, everything in `deep`."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import opendp_sim.prelude  # noqa: F401 - fills the registry
from benchmarks._audit_rows import recorded
from opendp_sim.audit import audit
from opendp_sim.audit.findings import Effort
from opendp_sim.core.claims import Interactive, Private, Stable
from opendp_sim.core.mechanism import REGISTRY
from tests._tiers import some, tiered
from tests.audit.growing import refuted
from tests.audit.twins.entries import Twin, collect
from tests.cases import cases

TWINS, CONTROLS = collect(Path(__file__).parents[1] / "twins")
CHEAP = replace(
    Effort.of("quick"),
    name="ci",
    stability_seconds=0.2,
    stability_trials=1000,
    structure_pairs=12,
    noise_runs=150,
    seconds=0.4,
)
"""Sound mechanisms use up their time: two fifths of a second for the whole curve, in the suite of every push."""
NO_WITNESS = replace(Effort.of("quick"), witness_seconds=0.0, seconds=88.0, total=math.inf)
"""What users get, but for the plain event of a refutation, which ``test_opaque.py`` and others look at.

L3 ends when it refutes, so sixteen times the seconds cost nothing, but make a slow machine find the same.
"""
FEW_SHAPES = replace(NO_WITNESS, structure_pairs=4)
"""Half of the time of an audit that ends in L1, L2 or L4 goes to shapes that tell nothing apart."""
_SHAPES, _ONLY_SAMPLED = "L0 structure", "L3 distribution"
_RECORD = recorded().get("twins", {})


def _sampled(twin: Twin, record: Mapping[str, Any] = _RECORD) -> bool:
    """Whether the recorded audits needed many releases: slow, and seen at most seeds but not at each.

    A twin without a record runs, if in `long`: else a sound mechanism could be entered as a broken one.
    """
    return _ONLY_SAMPLED in record.get(twin.name, {}).get("layers", {})


def _budget(twin: Twin) -> Effort:
    """All shapes for a twin that they gave away at any seed, and for one without a record."""
    layers = _RECORD.get(twin.name, {}).get("layers", {_SHAPES: 1})
    return NO_WITNESS if _SHAPES in layers else FEW_SHAPES


def _of_each_family() -> set[str]:
    """The cheapest of every family and the cheapest that each set of layers refutes, first of those on record."""
    groups: dict[Any, list[Twin]] = {}
    for twin in (t for t in TWINS if not _sampled(t)):
        layers = _RECORD.get(twin.name, {}).get("layers", {})
        groups.setdefault(twin.family, []).append(twin)
        groups.setdefault(frozenset(layers), []).append(twin)
    cost = lambda twin: _RECORD.get(twin.name, {}).get("seconds_median", math.inf)  # noqa: E731
    return {twin.name for group in groups.values() for twin in sorted(group, key=cost)[:1]}


EVERY_RUN = _of_each_family()


def _surely_sampled() -> list[Twin]:
    """Of each family, the cheapest of those that were caught at every seed, in at most a second."""
    sure = [
        twin
        for twin in sorted(TWINS, key=lambda t: _RECORD.get(t.name, {}).get("seconds_median", 0.0))
        if (row := _RECORD.get(twin.name))
        and row["layers"] == {_ONLY_SAMPLED: row["seeds"]}
        and row["seconds_median"] <= 1
    ]
    return list({twin.family: twin for twin in reversed(sure)}.values())


@pytest.mark.audit
@pytest.mark.parametrize(
    "twin",
    tiered((t for t in TWINS if not _sampled(t)), lambda twin: twin.name in EVERY_RUN),
    ids=lambda t: t.name,
)
def test_twin_is_refuted(twin: Twin):
    report = refuted(twin.make(), twin.d_in, _budget(twin), seed=1, **twin.options)
    assert report.verdict == "refuted", str(report)
    assert report.replay
    assert report.evidence.pair is not None


@pytest.mark.audit
@pytest.mark.parametrize(
    "twin",
    tiered(_surely_sampled(), lambda twin: _RECORD[twin.name]["seconds_median"] <= 0.1),
    ids=lambda t: t.name,
)
def test_sampled_twin_is_refuted(twin: Twin):
    report = refuted(twin.make(), twin.d_in, NO_WITNESS, seed=1, **twin.options)
    assert report.verdict == "refuted", str(report)


def test_a_twin_without_a_record_runs():
    new = Twin(name="race_sketch/entered_today", make=int, why="nothing is: it is sound")
    assert new.name not in _RECORD
    assert not _sampled(new)
    assert _sampled(new, {new.name: {"layers": {_ONLY_SAMPLED: 3, "L1 stability": 17}}})
    assert {twin.family for twin in TWINS if not _sampled(twin)} == {
        name.partition("/")[0] for name in EVERY_RUN
    }


def test_a_sound_mechanism_entered_as_a_twin_fails():
    """The test of a twin is one that fails: shown here on the cheapest control."""
    control = next(c for c in CONTROLS if c.name == "sensitivity/monotone_at_one")
    assert audit(control.make(), control.d_in, CHEAP, seed=1).verdict != "refuted"


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("twin", TWINS, ids=lambda t: t.name)
def test_every_twin_is_refuted_deep(twin: Twin, seed: int):
    assert refuted(twin.make(), twin.d_in, "deep", seed=seed, **twin.options).verdict == "refuted"


@pytest.mark.few(4)
@pytest.mark.audit
@pytest.mark.parametrize("control", some(CONTROLS[2::5], 5), ids=lambda c: c.name)
def test_sound_mechanism_is_not_refuted(control):
    """False-alarm rate 1e-6 each."""
    report = audit(control.make(), control.d_in, CHEAP, seed=2, beta=1e-6, **control.options)
    assert report.verdict == "not refuted", str(report)
    assert any(layer.power for layer in report.layers)


@pytest.mark.deep
@pytest.mark.parametrize("control", CONTROLS, ids=lambda c: c.name)
def test_sound_mechanism_is_not_refuted_deep(control):
    """False-alarm rate 1e-6 each."""
    assert (
        audit(control.make(), control.d_in, "deep", beta=1e-6, **control.options).verdict
        == "not refuted"
    )


def test_every_mechanism_that_claims_something_brings_six_twins():
    """From the registry and its cases: row maps, sketches, releases and services; queries claim nothing."""
    brought = Counter(twin.family for twin in TWINS)
    claiming = [
        key.partition("/")[0]
        for key, case in cases().items()
        if isinstance(case.claim(), (Stable, Private, Interactive))
    ]
    assert {"gaussian", "peel", "ind_knn", "race_sketch"} <= set(claiming) <= set(REGISTRY)
    assert {key: brought[key] for key in claiming if brought[key] < 6} == {}


def test_every_family_of_stand_ins_has_six_twins():
    brought = Counter(twin.family for twin in TWINS)
    stand_ins = ("race", "knn", "noise", "composition", "classic")
    assert {name: brought[name] for name in stand_ins if brought[name] < 6} == {}
    assert sum(c.family == "opendp" for c in CONTROLS) >= 24


def test_corpus_refuses_a_doubled_name(tmp_path: Path):
    line = "from tests.audit.twins.entries import Twin\nTWINS = [Twin(name='a/b', make=int, why='x')] * 2\n"
    (tmp_path / "twins_x.py").write_text(line)
    with pytest.raises(ValueError, match="a/b"):
        collect(tmp_path)


@pytest.mark.long
def test_auditor_needs_no_heavy_package():
    code = (
        "import sys, opendp_sim.audit; "
        "heavy = {'torch', 'tensorflow', 'jax', 'sklearn', 'dp_accounting'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
