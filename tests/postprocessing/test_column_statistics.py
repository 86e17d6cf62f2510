"""``totals`` and ``quantiles``: right without noise, ends that cover, names, refusals.

Noise of coverage tests has fixed seeds, so they cannot raise a false alarm.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import pytest

from opendp_sim.core.claims import Noise
from opendp_sim.core.errors import ParameterError, ReleaseError
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.released import Released
from opendp_sim.domains.rows import GridRows, Rows
from tests.transformations.sketches.distances._distance_tools import Made, some_rows

TREES: list[tuple[str, dict[str, Any]]] = [
    ("threshold_sketch", {"thresholds": 5}),
    ("moment_tree", {"levels": 2}),
    ("distance_tree", {"levels": 2}),
    ("distance_tree", {"levels": 3, "consistent": True}),
]
SHARES = (0.001, 0.25, 0.5, 0.9, 0.999)
LINE = GridRows(width=1, unit=0.5, lower=(-3,), upper=(12,))
TWO = GridRows(width=2, labels=("a", "b"), unit=0.5, lower=(-3, 0), upper=(12, 40))


def least(values: np.ndarray, share: float) -> float:
    """The least value with at least this share of the records at or below it."""
    ordered = np.sort(values)
    ranks = np.arange(1, len(ordered) + 1)
    return float(ordered[np.argmax(ranks >= share * len(ordered) - 1e-9)])


def asked(made: Made, noise: Any, deviation: float, key: str, **parameters: Any) -> Any:
    """Answer with normal noise of a given generator on every cell, rounded."""
    cells = made.cells + np.rint(noise.normal(0, deviation, made.cells.size)).astype(np.int64)
    output: Any = made.output
    law = Noise("discrete_gaussian", deviation)
    about = Released(output, made.claim.capabilities, law, made.domain)
    return lookup(key)(**parameters).bind(about, Symmetric()).function(output.split(cells), None)


@pytest.mark.parametrize(("key", "params"), TREES, ids=str)
def test_quantiles_of_every_small_table_are_between_their_ends(key: str, params: Any) -> None:
    """Cells are coarser than the grid, so ends without noise are what Lemma 2 claims of cells."""
    for count in (1, 2, 3):
        for values in combinations_with_replacement((-3.0, -2.0, 4.0, 5.0, 11.0, 12.0), count):
            data = np.array(values)
            found = Made(LINE, Rows(data[:, None], None), key, **params).ask(
                None, key="quantiles", shares=SHARES
            )
            true = np.array([least(data, share) for share in SHARES]) * LINE.unit
            assert (found["lower"][:, 0] <= true).all(), values
            assert (true <= found["upper"][:, 0]).all(), values
            assert (found["lower"] <= found["quantile"]).all()
            assert (found["quantile"] <= found["upper"]).all()
            assert not found["rank_error"].any()


def test_a_tree_as_fine_as_the_grid_has_exact_quantiles() -> None:
    rows = some_rows(TWO, 301)
    made = Made(TWO, rows, "distance_tree", levels=6, consistent=True, per_label=True)
    found = made.ask(None, key="quantiles", shares=SHARES)
    assert found["column"].tolist() == [0] * 5 + [1] * 5
    for place, (column, share) in enumerate(product(range(2), SHARES)):
        for label in range(2):
            true = least(rows.values[rows.labels == label, column], share) * TWO.unit
            ends = [found[name][place, label] for name in ("lower", "quantile", "upper")]
            assert ends == [true] * 3


@pytest.mark.few(1)
@pytest.mark.parametrize(("key", "params"), TREES[::-1], ids=str)
def test_ends_of_quantiles_cover(key: str, params: Any) -> None:
    """95 % intervals hold the quantile in 93 % of 150 releases of each table or more."""
    draws = np.random.default_rng(3)
    tables = [
        draws.integers(-3, 13, 200).astype(float),
        np.repeat([-3.0, 12.0], 60),
        np.full(40, 5.0),
        np.array([7.0]),
    ]
    for data in tables:
        made = Made(LINE, Rows(data[:, None], None), key, **params)
        true = np.array([least(data, share) for share in SHARES]) * LINE.unit
        found = [asked(made, draws, 9.0, "quantiles", shares=SHARES) for _ in range(150)]
        inside = [(a["lower"][:, 0] <= true) & (true <= a["upper"][:, 0]) for a in found]
        assert np.mean(inside, axis=0).min() >= 0.93


def test_the_rank_is_off_by_as_much_as_is_stated() -> None:
    """``rank_error`` bounds the deviation of the noise in a rank, and the plan bounds both."""
    draws = np.random.default_rng(8)
    data = np.sort(draws.integers(-3, 13, 4000).astype(float))
    made = Made(LINE, Rows(data[:, None], None), "distance_tree", levels=4, consistent=True)
    about, _ = made.release()
    about = replace(about, noise=Noise("discrete_gaussian", 30.0))
    bound = lookup("quantiles")(shares=(0.5,)).bind(about, Symmetric())
    stated, off = [], []
    below, above = (np.array([-3.0]), np.array([4.0])), (np.array([5.0]), np.array([12.0]))
    offer = made.claim.capabilities["interval_counts"]
    for at in range(400):
        cells = made.cells + np.rint(draws.normal(0, 30, made.cells.size)).astype(np.int64)
        arrays = made.output.split(cells)  # type: ignore[attr-defined]
        if at < 9:
            stated.append(bound.function(arrays, None)["rank_error"][0, 0])
        counts = [offer.count(arrays, 0, *ends).values[0, 0] for ends in (below, above)]
        off.append((counts[0] - counts[1]) / 2 - ((data <= 4).sum() - (data > 4).sum()) / 2)
    assert np.std(off) <= 1.1 * max(stated)
    assert max(stated) <= bound.expected["noise_error"]


def test_totals_without_noise_are_exact() -> None:
    rows = some_rows(TWO, 99)
    found = Made(TWO, rows, "moments_sketch", per_label=True).ask(None, key="totals")
    assert found["column"].tolist() == [0, 1]
    for label in range(2):
        own = rows.values[rows.labels == label] * TWO.unit
        assert (found["count"][:, label] == len(own)).all()
        assert np.allclose(found["sum"][:, label], own.sum(axis=0), rtol=1e-12)
        for name in ("mean", "lower", "upper"):
            assert np.allclose(found[name][:, label], own.mean(axis=0), rtol=1e-12)
    assert not any(found[name].any() for name in ("count_error", "sum_error", "noise_error"))


@pytest.mark.parametrize("squares", [True, False])
def test_totals_cover_and_state_their_errors(squares: bool) -> None:
    """300 releases of tables that count 5, 40 and 800: deviations within 15 %, 90 % ends in 86 %."""
    draws = np.random.default_rng(2)
    for size in (5, 40, 800):
        rows = some_rows(TWO, size, labels=False)
        plain = replace(TWO, labels=None)
        made = Made(plain, rows, "moments_sketch", squares=squares)
        deviation = made.scale(rho=0.05)
        found = [asked(made, draws, deviation, "totals", confidence=0.9) for _ in range(300)]
        means = rows.values.mean(axis=0) * TWO.unit
        inside = [(a["lower"][:, 0] <= means) & (means <= a["upper"][:, 0]) for a in found]
        assert np.mean(inside, axis=0).min() >= 0.86
        for name, true in (("count", size), ("sum", means * size)):
            off = np.array([a[name][:, 0] - true for a in found])
            stated = found[0][f"{name}_error"][:, 0]
            assert np.allclose(np.sqrt(np.square(off).mean(axis=0)), stated, rtol=0.15)
        low, high = np.array([-3, 0]) * TWO.unit, np.array([12, 40]) * TWO.unit
        for a in found:
            for name in ("lower", "mean", "upper"):
                assert (low <= a[name][:, 0]).all()
                assert (a[name][:, 0] <= high).all()
            assert all(np.isfinite(column).all() for column in a.values())


@pytest.mark.parametrize("key", ["totals", "quantiles"])
def test_an_empty_table_has_answers(key: str) -> None:
    sketch = "moments_sketch" if key == "totals" else "distance_tree"
    params: dict[str, Any] = {} if key == "totals" else {"levels": 3}
    made = Made(LINE, Rows(np.zeros((0, 1)), None), sketch, **params)
    for found in (made.ask(None, key=key), asked(made, np.random.default_rng(1), 5.0, key)):
        assert all(np.isfinite(column).all() for column in found.values())


def test_what_cannot_be_asked_is_refused() -> None:
    tree, _ = Made(LINE, some_rows(LINE, 5), "distance_tree", levels=3).release()
    for shares in ((0.0,), (1.0,), (), (0.5, -1.0), (float("nan"),)):
        with pytest.raises(ParameterError, match=r"OS101 quantiles.shares"):
            lookup("quantiles")(shares=shares).bind(tree, Symmetric())
    with pytest.raises(ReleaseError, match=r"OS702 totals.*moments_sketch"):
        lookup("totals")().bind(tree, Symmetric())
