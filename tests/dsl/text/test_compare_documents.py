"""Certificates and plans of another processor, whose exponentials end in other digits."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import opendp_sim as sim
from opendp_sim.cli import app
from opendp_sim.core.errors import ReleaseError
from opendp_sim.dsl.plan.document import load_plan, save_plan
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.dsl.text.compare_documents import ROOM, differences, same, told_differences
from opendp_sim.dsl.verification import verify as verification
from opendp_sim.dsl.verification.verify import verify
from opendp_sim.measurements.selection._impl import gaussian_tail
from tests._small import write_small

SPEC = """\
spec: opendp_sim/1
name: votes
data:
  votes:
    source: {csv: votes.csv}
    columns:
      person: {dtype: int64, role: privacy_id}
      item: {dtype: category, keys: [a, b, c, d]}
    ledger: {file: votes.ledger, limit: {epsilon: 5.0, delta: 1.0e-4}, measure: approx}
privacy:
  unit: {add_remove: 1, of: person}
  measure: approx
  budget: {epsilon: 3.0, delta: 1.0e-5}
flow:
  counts:
    from: votes
    steps:
      - vote_counts: {item: item}
  best:
    from: counts
    release: {mechanism: {stable_top_k: {k_max: 2, scale: 3.0, delta: 1.0e-6, accounting: curve}}}
outputs:
  chosen: {from: best, save: out/best.json}
"""


@pytest.fixture
def spec(tmp_path):
    lines = [f"{person},{'abcd'[person % 4]}" for person in range(40)]
    (tmp_path / "votes.csv").write_text("\n".join(["person,item", *lines, ""]))
    path = tmp_path / "votes.yaml"
    path.write_text(SPEC)
    return path


@pytest.fixture
def elsewhere(monkeypatch):
    """Calculate as a processor does whose exponentials are one float larger; and here again."""

    def here(ulps):
        other = SimpleNamespace(**{name: getattr(np, name) for name in dir(np) if name[0] != "_"})
        other.exp = lambda x: np.exp(x) * (1 + ulps * 2.0**-52)
        monkeypatch.setattr(gaussian_tail, "np", other)
        gaussian_tail.tail_of.cache_clear()

    yield here
    gaussian_tail.tail_of.cache_clear()


def test_a_certificate_and_a_plan_of_another_processor_are_taken(spec, elsewhere):
    document = spec.with_name("votes.plan")
    elsewhere(5)
    there = plan_file(spec)
    save_plan(there, document)
    elsewhere(0)
    here = load_plan(document)
    assert here.charge.plain() != there.charge.plain()
    assert here.releases["best"].loss == pytest.approx(there.releases["best"].loss, rel=ROOM)
    elsewhere(5)
    done = sim.apply(spec)
    elsewhere(0)
    checked, _ = verify(next(iter(done.certificates.values())), spec)
    assert any("every type, map, scale, loss" in text for text in checked)
    assert any("of the ledger's limit, as stated" in text for text in checked)


def _moved(value, factor):
    if isinstance(value, dict):
        return {key: _moved(member, factor) for key, member in value.items()}
    if isinstance(value, list):
        return [_moved(member, factor) for member in value]
    return value * factor if isinstance(value, float) else value


@pytest.mark.few(1)
@pytest.mark.parametrize(("factor", "taken"), [(1 + 2.0**-45, True), (1 + 2.0**-36, False)])
def test_every_number_of_a_certificate_may_end_in_other_digits(spec, monkeypatch, factor, taken):
    done = sim.apply(spec)
    certificate = next(iter(done.certificates.values()))
    derived = verification.derived_statement
    monkeypatch.setattr(
        verification,
        "derived_statement",
        lambda *given: _moved(json.loads(json.dumps(derived(*given))), factor),
    )
    if taken:
        verify(certificate, spec)
    else:
        with pytest.raises(ReleaseError, match="OS701"):
            verify(certificate, spec)


@pytest.mark.parametrize(
    ("ours", "theirs", "wanted"),
    [
        (0.1 + 0.2, 0.3, True),
        (1.0, 1.0 + 2.0**-38, False),
        (1e300, 1e300 * (1 + 2.0**-41), True),
        (0.0, 1e-300, False),
        (-1.0, 1.0, False),
        (math.inf, math.inf, True),
        (math.inf, 1e308, False),
        (math.nan, math.nan, False),
        (1, 1.0 + 2.0**-45, False),
        ({"a": [0.1 + 0.2, "x"]}, {"a": [0.3, "x"]}, True),
        ({"a": 1.0}, {"a": 1.0, "b": 1.0}, False),
        ([1.0], [1.0, 1.0], False),
        ("0.30000000000000004", "0.3", False),
        ((0.1 + 0.2).hex(), (0.3).hex(), True),
        ((0.1).hex(), (0.3).hex(), False),
        ("0x1.9p+9999", "0x1.8p+9999", False),
        (10**20, 10**20 + 1, False),
    ],
)
def test_same(ours, theirs, wanted):
    assert same(ours, theirs) is wanted
    assert same(theirs, ours) is wanted


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        ({"a": 1}, {"a": 1}, ""),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, "`a.b[1]` differs"),
        ({"a": 1, "b": 2}, {"a": 1}, "`b` (only in the spec) differs"),
        ({"a": 1}, {"a": 1, "c": 2}, "`c` (only in the certificate) differs"),
        ({"a": 1}, {"a": True}, "`a` differs"),
        (dict.fromkeys("abcdefg", 1), dict.fromkeys("abcdefg", 2), "`d`, `e` and more differ"),
    ],
)
def test_fields_that_differ_are_named(ours, theirs, told):
    said = told_differences(ours, theirs)
    assert said.endswith(told)
    assert bool(said) == bool(list(differences(ours, theirs)))


def test_a_plan_document_names_the_part_that_was_edited(tmp_path):
    spec = write_small(tmp_path)
    document = tmp_path / "small.plan"
    assert CliRunner().invoke(app, ["plan", str(spec), "-o", str(document)]).exit_code == 0
    spec.write_text(spec.read_text().replace("epsilon: 1.0", "epsilon: 3.25"))
    shown = CliRunner().invoke(app, ["apply", str(document)])
    said = " ".join((shown.stdout + shown.stderr).split())
    assert shown.exit_code == 1
    assert "a spec that was edited since: " in said
    assert "`privacy.budget.epsilon`" in said
