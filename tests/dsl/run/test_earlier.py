"""What an earlier run left where a run will write is told, and is of the same program only if it says so."""

from __future__ import annotations

import opendp_sim as sim
from opendp_sim.dsl.run.overwrite import Earlier, earlier_of
from tests._small import write_small


def test_an_earlier_run_is_known_by_its_certificate(tmp_path):
    plan = sim.plan(write_small(tmp_path))
    assert earlier_of(plan, None) == Earlier()
    sim.apply(plan)
    assert earlier_of(plan, None) == Earlier(("density", "release"), same=True)
    assert earlier_of(plan, str(tmp_path / "elsewhere")) == Earlier()
    other = sim.plan(write_small(tmp_path, ("bits: 10", "bits: 9")))
    assert earlier_of(other, None) == Earlier(("density", "release"), same=False)
    for file in (tmp_path / "out").glob("*.certificate.json"):
        file.write_text("{")
    assert earlier_of(plan, None) == Earlier(("density", "release"), same=False)
