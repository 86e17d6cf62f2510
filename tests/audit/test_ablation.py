"""Every part that the nightly ablation switches off is there, and is there again afterwards."""

from __future__ import annotations

import json

import pytest

from benchmarks import audit_ablation


@pytest.mark.parametrize("name", audit_ablation.PARTS)
def test_a_part_is_off_inside_the_context_only(name: str) -> None:
    part = audit_ablation.PARTS[name]
    places = [audit_ablation._owner(place) for place in part.places]
    before = [getattr(owner, name) for owner, name in places]
    with audit_ablation.without(part):
        assert all(getattr(owner, name) is part.instead for owner, name in places)
    assert [getattr(owner, name) for owner, name in places] == before
    assert audit_ablation.lines_of(part) > 0


def test_recorded_programs_are_of_the_corpus() -> None:
    known = set(audit_ablation.known_programs())
    recorded = json.loads(audit_ablation.NEEDED.read_text("utf-8"))
    assert set(recorded) <= set(audit_ablation.PARTS)
    assert {entry["program"] for entry in recorded.values()} - {""} <= known
    found = {"program": "momentum", "looked": 0}, {"program": "", "looked": 7}
    text = audit_ablation.table(dict(zip(("step loss", "first calls"), found, strict=True)))
    assert "| step loss | trace/pipeline.py, " in text
    assert text.splitlines()[-1].endswith("| idle: none of 7 programs |")
