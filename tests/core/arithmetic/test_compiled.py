"""Compiled kernels give the bits of the numpy code, and are not there where nothing is gained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.arithmetic import compiled as fast
from opendp_sim.core.arithmetic.grid import count_ids
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, Rows
from tests._tiers import some

GRID = GridRows(width=3, labels=("a", "b"), unit=0.1, lower=(-50, 0, -9), upper=(50, 70, 9))
RNG = np.random.default_rng(3)
ROWS = Rows(np.rint(RNG.uniform((-50, 0, -9), (50, 70, 9), (700, 3))), RNG.integers(0, 2, 700))
FAMILY = {"p_stable_l2": {"width": 2.0}}
KERNEL = {"gaussian": {"bandwidth": 2.0}}
SKETCHES: dict[str, dict[str, Any]] = {
    "race_sketch": {"repetitions": 7, "buckets": 32, "family": FAMILY, "seed": 1},
    "fourier_sketch": {"frequencies": 9, "kernel": KERNEL, "seed": 2, "features": "random"},
    "threshold_sketch": {"thresholds": 23},
    "distance_tree": {"levels": 5},
    "moment_tree": {"levels": 5},
}


def compiling(monkeypatch: pytest.MonkeyPatch, worth: int) -> list[int]:
    """Start both kernels anew, compiled after ``worth`` cells; return what is filled by each compilation."""
    made: list[int] = []

    def compiled(loop: Any, signature: str) -> Any:
        made.append(1)
        return real(loop, signature)

    real = fast._compiled
    monkeypatch.setattr(fast, "_compiled", compiled)
    monkeypatch.setattr(fast, "_WORTH", worth)
    for kernel in (fast.COUNTED, fast.TALLIED, fast.INTERPOLATED):
        for name, value in {"_done": 0, "_tried": False, "_made": None}.items():
            monkeypatch.setattr(kernel, name, value)
    return made


def built(key: str, *, per_label: bool) -> np.ndarray[Any, Any]:
    claim: Any = lookup(key)(**SKETCHES[key], per_label=per_label).bind(GRID, Symmetric())
    out = np.zeros(claim.output.size, dtype=np.int64)
    claim.accumulate(ROWS, out)
    return out


@pytest.mark.few(1)
@pytest.mark.parametrize("per_label", some([True, False], 2))
@pytest.mark.parametrize("key", SKETCHES)
def test_sketches_are_the_same_bits(
    key: str, per_label: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    made = compiling(monkeypatch, 2**62)
    plain = built(key, per_label=per_label)
    assert not made
    made = compiling(monkeypatch, 0)
    assert np.array_equal(built(key, per_label=per_label), plain)
    assert made == [1]


@pytest.mark.long
def test_sums_of_distances_are_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the box, on its ends and far beyond them."""
    pytest.importorskip("numba")
    claim: Any = lookup("threshold_sketch")(thresholds=23, per_label=True).bind(GRID, Symmetric())
    arrays = claim.output.split(RNG.integers(-(10**6), 10**6, claim.output.size))
    reading = claim.capabilities["distance_sums"].reading(arrays, None, 0.1)
    inside = RNG.uniform((-50, 0, -9), (50, 70, 9), (300, 3))
    ends = np.array([(-50, 0, -9), (50, 70, 9), (-50, 70, 0)], dtype=float)
    for queries in (inside, ends, np.concatenate([inside, RNG.normal(0, 200, (300, 3))])):
        found = []
        for worth in (2**62, 0):
            made = compiling(monkeypatch, worth)
            one = reading.at(queries.copy())
            found.append((one.values, np.broadcast_to(one.variance, len(queries))))
            assert len(made) == (worth == 0)
        for plain, compiled in zip(*found, strict=True):
            assert np.array_equal(plain, compiled)


@pytest.mark.parametrize("error", [ImportError("no numba"), RuntimeError("needs another numpy")])
def test_without_numba_the_numpy_code_runs(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(_: str) -> Any:
        raise error

    plain = built("race_sketch", per_label=True)
    made = compiling(monkeypatch, 0)
    monkeypatch.setattr(fast, "import_module", absent)
    assert np.array_equal(built("race_sketch", per_label=True), plain)
    assert np.array_equal(built("race_sketch", per_label=True), plain)
    assert made == [1]  # it is tried once


@pytest.mark.few(1)
@pytest.mark.parametrize("alone", [False, True])
def test_ids_that_are_no_cells_are_counted_and_touch_nothing(
    alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    compiling(monkeypatch, 0)
    run: Any = fast.TALLIED.after(1)
    out = np.zeros((1, 1 if alone else 2, 4), dtype=np.int64)
    ids = np.array([[0, 3, 4, 2**62, -1, 2, 2]])
    labels = np.zeros(0, np.int64) if alone else np.array([0, 1, 0, 0, 0, 2, -1])
    assert run(ids, labels, out) == (3 if alone else 5)
    assert out.tolist() == ([[[1, 0, 2, 1]]] if alone else [[[1, 0, 0, 0], [0, 0, 0, 1]]])
    with pytest.raises(IndexError):
        count_ids(ids, None if alone else labels, out)


def test_tables_of_another_shape_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    compiling(monkeypatch, 0)
    out, ids = np.zeros((2, 1, 4), dtype=np.int64), np.zeros((3, 5), dtype=np.int64)
    with pytest.raises(IndexError):
        count_ids(ids, None, out)
    for labels in (np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(6, np.int64)):
        with pytest.raises(IndexError):
            count_ids(ids[:2], labels, out)
    assert not out.any()
    count_ids(ids[:2, :0], np.zeros(0, np.int64), out)
    assert not out.any()
