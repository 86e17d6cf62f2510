"""Queries column by column: the same numbers, whoever else is asked with them, and left as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import opendp_sim.prelude  # noqa: F401 - all mechanisms
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.transformations.sketches.distances._impl import axes as module

READERS = {
    "threshold_sketch": {"thresholds": 7},
    "moment_tree": {"levels": 4},
    "distance_tree": {"levels": 4},
}


@pytest.mark.parametrize("unlike", [False, True], ids=["alike", "unlike"])
@pytest.mark.parametrize("key", sorted(READERS))
def test_an_answer_does_not_depend_on_who_else_asks(
    key: str, unlike: bool, monkeypatch: Any
) -> None:
    lower, upper = ((-5, 0, 3), (20, 63, 9)) if unlike else ((-5,), (20,))
    space = GridRows(width=3, unit=0.5, lower=lower, upper=upper, l2=1e3)
    claim: Any = lookup(key)(**READERS[key]).bind(space, Symmetric())
    g = np.random.default_rng(3)
    arrays = claim.output.split(g.integers(-50, 10**4, claim.output.size))
    reading = claim.capabilities["distance_sums"].reading(arrays, None, 0.1)
    asked = np.concatenate([g.uniform(-15, 70, (90, 3)), g.integers(-6, 22, (90, 3))])
    kept = asked.copy()
    whole = reading.at(Rows(asked))
    assert asked.tobytes() == kept.tobytes()
    monkeypatch.setattr(module, "_QUERIES", 50)
    apart = reading.at(Rows(asked[::-1].copy()))
    for at in range(0, len(asked), 7):
        one = reading.at(asked[at : at + 1])
        for name in ("values", "variance", "with_count", "missed"):
            told = np.ravel(getattr(one, name))[-1]
            among = np.broadcast_to(getattr(whole, name), (1, len(asked)))[0]
            back = np.broadcast_to(getattr(apart, name), (1, len(asked)))[0][::-1]
            assert told == among[at] == back[at]
