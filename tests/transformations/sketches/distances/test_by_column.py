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
from opendp_sim.transformations.sketches.distances._impl.axes import by_column


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 200, 500])
@pytest.mark.parametrize("width", [1, 3, 70])
def test_parts_are_the_queries_turned_around(count: int, width: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "_QUERIES", 200)
    values = np.random.default_rng(count).normal(size=(count, 2 * width))[:, ::2]
    kept = values.copy()
    found, ends = [np.empty((width, 0))], [0]
    for part, columns in by_column(values):
        found.append(columns.copy())
        ends.append(part.stop)
        assert part.start == ends[-2]
        assert columns.shape == (width, part.stop - part.start)
        columns[:] = np.nan
    assert ends[-1] == count
    assert np.concatenate(found, axis=1).T.tolist() == kept.tolist() == values.tolist()


def test_what_is_held_is_bounded_however_many_queries_and_columns() -> None:
    for count, width in ((10**6, 2), (50_000, 64), (1000, 3000)):
        values = np.broadcast_to(np.zeros((1, 1)), (count, width))
        _, columns = next(by_column(values))
        assert columns.base.nbytes <= 8 * (2**20 + 64 * width + 8 * width)


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


@pytest.mark.parametrize("thresholds", [5, 63, 4096])
def test_the_interpolation_is_that_of_the_counts_of_signs(thresholds: int) -> None:
    """Lemma 2 of ``threshold_sketch.md``, one query and column at a time."""
    space = GridRows(width=2, unit=0.25, lower=(-5, 0), upper=(20, 63), l2=1e3)
    claim: Any = lookup("threshold_sketch")(thresholds=thresholds).bind(space, Symmetric())
    reader = claim.capabilities["distance_sums"]
    g = np.random.default_rng(4)
    arrays = claim.output.split(g.integers(-99, 100, claim.output.size))
    size = float(reader.counted(arrays).sizes[0])
    asked = np.concatenate([g.uniform(-9, 70, (60, 2)), [[-5, 0], [20, 63], [19.999999, 62.5]]])
    found = reader.reading(arrays, None, 0.1).at(asked)
    for at, query in enumerate(asked):
        total = 0.0
        for j, (low, high) in enumerate(((-5, 20), (0, 63))):
            signs = np.asarray(arrays["signs"])[0, reader.offsets[j] : reader.offsets[j + 1]]
            span, count = high - low, len(signs)
            level = [
                size * span / 2 + span / (2 * count) * float(signs[:i].sum() - signs[i:].sum())
                for i in range(count + 1)
            ]
            near = min(max(query[j], low), high)
            total += np.interp((near - low) * count / span, np.arange(count + 1), level)
            total += size * abs(query[j] - near)
        assert found.values[0, at] == pytest.approx(0.25 * total, rel=1e-10, abs=1e-6)
