"""A vector comes to our callbacks as an array by one copy, and as a list where OpenDP is not what we know."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest

import opendp_sim.prelude  # noqa: F401 - all mechanisms
from opendp_sim.core import bridge
from opendp_sim.core.bridge import build, entry_for_arrays, plain_measurement
from opendp_sim.core.claims import Private
from opendp_sim.domains.metrics import VectorNorm
from opendp_sim.domains.sketch import IntVector
from tests.cases import cases

dp.enable_features("contrib")

EDGES = [0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1]
SIZES = [0, 1, 2, 7, 255, 256, 4097, 100_003]
VECTORS = [EDGES, *(np.arange(size, dtype=np.int64) - size // 2 for size in SIZES)]


def _on_old_route(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "_ENTRY", None)


def _spy(function: Any = None) -> tuple[Any, list[Any]]:
    """Return a measurement of ours and the list that its arguments are put in."""
    seen: list[Any] = []

    def release(data: Any) -> Any:
        seen.append(data)
        return function(data) if function is not None else len(seen)

    claim = Private(
        measure="max_divergence",
        privacy_map=lambda _d_in: 0.0,
        function=release,
        output=IntVector(),
    )
    return build(claim, "spy", IntVector(), VectorNorm("l1")), seen


@pytest.mark.few(5)
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"cells_{len(vector)}")
def test_both_routes_hand_over_the_same_numbers(vector: Any, monkeypatch: Any) -> None:
    new, arrays = _spy()
    _on_old_route(monkeypatch)
    old, lists = _spy()
    for data in (vector, list(map(int, vector)), np.repeat(np.asarray(vector), 2)[::2]):
        assert new(data) == old(data)
    for array, a_list in zip(arrays, lists, strict=True):
        assert isinstance(a_list, list)
        assert (array.dtype, array.shape) == (np.int64, (len(vector),))
        assert array.tolist() == a_list == list(map(int, vector))
        assert array.flags.writeable
        assert array.flags.owndata


def test_what_was_handed_over_is_ours_to_keep_and_to_change() -> None:
    release, seen = _spy()
    for turn in range(20):
        release(np.full(5_000, turn, dtype=np.int64))
        seen[turn][0] = -turn
    gc.collect(1)
    assert [int(array.sum()) for array in seen] == [4_999 * turn - turn for turn in range(20)]


def test_others_callbacks_and_our_own_readings_get_what_opendp_gives() -> None:
    space = IntVector().native(), dp.l1_distance(T="i64")
    got: list[Any] = []
    theirs = plain_measurement(*space, dp.max_divergence(), got.append, lambda _d_in: 0.0)
    inner = space >> dp.m.then_laplace(0.0)
    release, seen = _spy(lambda _data: (got.append(inner([1, 2, 3])), theirs([4, 5]))[0])
    release([7, 8])
    theirs([9])
    assert got == [[1, 2, 3], [4, 5], [9]]
    assert all(isinstance(each, list) for each in got)
    assert isinstance(seen[0], np.ndarray)


def test_a_failure_leaves_the_next_call_as_it_was() -> None:
    def fail(_data: Any) -> Any:
        raise ValueError("77.25")

    release, seen = _spy(fail)
    theirs = (IntVector().native(), dp.l1_distance(T="i64")) >> dp.m.then_laplace(0.0)
    for _ in range(3):
        with pytest.raises(dp.OpenDPException, match="OS902") as caught:
            release([1, 2])
        assert "77.25" not in str(caught.value)
        assert theirs([5]) == [5]
    assert len(seen) == 3


def test_threads_do_not_mix_their_vectors() -> None:
    release, seen = _spy()
    space = IntVector().native(), dp.l1_distance(T="i64")
    theirs = space >> dp.m.then_laplace(0.0)
    wrong: list[Any] = []

    def work(cells: int) -> None:
        for _ in range(50):
            release(np.full(cells, cells, dtype=np.int64))
            if theirs([cells]) != [cells]:
                wrong.append(cells)

    threads = [threading.Thread(target=work, args=(cells,)) for cells in (1, 1_000, 30_000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert all(isinstance(each, np.ndarray) and (each == len(each)).all() for each in seen)


def test_the_function_lives_as_long_as_the_measurement() -> None:
    release, seen = _spy()
    del release.__opendp_dict__
    chain = dp.c.make_composition([release, release])
    del release
    gc.collect(1)
    assert chain([1, 2, 3]) == [1, 2]
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        (None, bridge.CallbackFnPtr),
        (lambda c_arg, userdata: None, None),
        (lambda c_arg: None, bridge.CallbackFnPtr),
        (lambda c_arg, userdata, more: None, bridge.CallbackFnPtr),
        (print, bridge.CallbackFnPtr),
    ],
    ids=["no_entry", "no_kind", "fewer", "more", "native"],
)
def test_an_opendp_that_is_not_what_we_know_keeps_the_old_route(entry: Any, kind: Any) -> None:
    assert entry_for_arrays(entry, kind) is None


def test_this_opendp_is_what_we_know() -> None:
    assert bridge._ENTRY is not None


def _vector_cases() -> dict[str, Any]:
    found = {}
    for key, case in cases().items():
        claim = case.claim() if case.domain.native() is not None else None
        if isinstance(claim, Private) and claim.native is None and claim.core is not None:
            found[key] = case
    return found


@pytest.mark.parametrize("key", sorted(_vector_cases()))
def test_a_mechanism_computes_the_same_from_both(key: str, monkeypatch: Any) -> None:
    """The part without noise, and the kind of what is released."""
    case = _vector_cases()[key]

    def result() -> tuple[Any, ...]:
        claim, cores = case.claim(), []

        def release(data: Any) -> Any:
            cores.append(claim.core(data))
            return claim.function(data)

        made = build(replace(claim, function=release), key, case.domain, case.metric)
        released = made(np.arange(case.domain.size or 12, dtype=np.int64))
        return np.asarray(cores[0]).tolist(), type(released), getattr(released, "dtype", None)

    by_array = result()
    _on_old_route(monkeypatch)
    assert result() == by_array
