"""Rows in a device's memory: the records that the CPU finds, with its scores, or the CPU itself."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.device import device_named, using_device
from opendp_sim.core.device.stand_in import StandIn
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.measurements.knn._impl.features import Lens
from opendp_sim.measurements.knn._impl.pool import Pool
from opendp_sim.measurements.knn._impl.predictor import Predictor
from opendp_sim.measurements.knn._impl.resident import ResidentRows, _inside, _reaching

GRID = GridRows(width=5, labels=("a", "b"), unit=1 / 64, lower=(-64,), upper=(64,))
WIDE = GridRows(width=5, labels=("a", "b"), unit=1 / 2**20, lower=(-(2**20),), upper=(2**20,))


def rows(count: int, domain: GridRows, seed: int) -> np.ndarray:
    draws = np.random.default_rng(seed)
    values = draws.integers(domain.lower[0], domain.upper[0] + 1, (count, 5)).astype(np.float64)
    values[: count // 4] = values[:1]  # many ties
    values[-1:] = 0.0
    values[-2:-1] = domain.upper[0]
    return values


def pool(domain: GridRows, device: Any, *, normalise: bool, size: int = 400) -> Pool:
    lens = Lens.plain(domain, normalise=normalise)
    made = Pool(lens, lens.dtype("test"), None, device)
    for count, seed in ((size, 1), (0, 2), (30, 3)):
        labels = np.zeros(count, dtype=np.int64)
        made.add(rows(count, domain, seed), labels, np.arange(count) + 1000 * seed)
    made.remove(np.arange(1000, 1050))
    return made


def found(made: Pool, queries: np.ndarray, limits: list[int], *, angular: bool) -> list[Any]:
    norms = np.square(queries).sum(axis=1).astype(np.int64)
    several = np.array(limits)
    return [
        (near.tolist(), scores.tolist())
        for near, scores in made.near(queries, norms, several, angular=angular)
    ]


CARDS = ["stand-in", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", CARDS)
@pytest.mark.parametrize("angular", [False, True])
@pytest.mark.parametrize(
    ("domain", "normalise", "held"),
    [(GRID, True, np.float16), (GRID, False, np.float16), (WIDE, False, np.float64)],
)
def test_a_device_finds_what_the_cpu_finds(
    kind: str, angular: bool, domain: GridRows, normalise: bool, held: type
) -> None:
    device = device_named(StandIn(room=2**14) if kind == "stand-in" else kind)
    there, here = (pool(domain, d, normalise=normalise) for d in (device, None))
    queries = here.lens.see_queries(rows(40, domain, 9), here.dtype)
    resident = there._resident
    assert isinstance(resident, ResidentRows)
    assert resident._kind is held
    scores = [
        s for _, scores in found(here, queries, [-(2**60)] * 40, angular=angular) for s in scores
    ]
    middle, far = int(np.median(scores)), 2**60
    limits = [middle, far, -far, int(max(scores)), int(min(scores)), *[middle] * 35]
    with warnings.catch_warnings(action="error"):
        assert found(there, queries, limits, angular=angular) == found(
            here, queries, limits, angular=angular
        )
        assert found(there, queries[:1], limits[:1], angular=angular) == found(
            here, queries[:1], limits[:1], angular=angular
        )
        assert found(there, queries[:0], [], angular=angular) == []
    assert there._resident is resident
    assert resident.size == 430  # -1 once it failed


@pytest.mark.parametrize("error", [MemoryError, RuntimeError])
def test_rows_that_do_not_fit_stay_on_the_cpu(error: type[Exception]) -> None:
    class Full(StandIn):
        def put(self, array: Any) -> Any:
            raise error

    there, here = (pool(GRID, d, normalise=True) for d in (Full(), None))
    queries = here.lens.see_queries(rows(4, GRID, 9), here.dtype)
    assert there._resident is None
    assert found(there, queries, [0] * 4, angular=True) == found(
        here, queries, [0] * 4, angular=True
    )


class Wrong(StandIn):
    """Makes one product one too large, from its ``after``-th on."""

    after = 0

    def products(self, left: Any, right: Any) -> Any:
        out = super().products(left, right)
        self.after -= 1
        if self.after < 0:
            out[:, :] += 1
        return out


def test_a_device_that_errs_is_not_asked_again() -> None:
    wrong = Wrong()
    there, here = (pool(GRID, d, normalise=True) for d in (wrong, None))
    queries = here.lens.see_queries(rows(4, GRID, 9), here.dtype)
    wanted = found(here, queries, [0] * 4, angular=True)
    with pytest.warns(RuntimeWarning, match="OS904"):
        assert found(there, queries, [0] * 4, angular=True) == wanted
    with warnings.catch_warnings(action="error"):
        assert found(there, queries, [0] * 4, angular=True) == wanted


def test_a_full_device_is_asked_again_later() -> None:
    class Busy(StandIn):
        busy = False

        def products(self, left: Any, right: Any) -> Any:
            if self.busy:
                raise MemoryError
            return super().products(left, right)

    busy = Busy()
    there, here = (pool(GRID, d, normalise=True) for d in (busy, None))
    queries = here.lens.see_queries(rows(4, GRID, 9), here.dtype)
    wanted = found(here, queries, [0] * 4, angular=True)
    for busy.busy in (True, False):
        with warnings.catch_warnings(action="error"):
            assert found(there, queries, [0] * 4, angular=True) == wanted
    assert there._resident is not None


def test_rows_are_overwritten_when_the_pool_goes() -> None:
    there = pool(GRID, StandIn(), normalise=True)
    assert there._resident is not None
    (kept,) = there._resident._parts
    assert kept.any()
    del there
    assert not kept.any()


def test_a_predictor_keeps_the_device_of_its_making() -> None:
    class Counting(StandIn):
        asked = 0

        def products(self, left: Any, right: Any) -> Any:
            self.asked += 1
            return super().products(left, right)

    device = Counting()
    device.proved = True
    setting = lookup("ind_knn")(rho=1.0, queries=10, size=200, threshold=0.5, centre=False)
    data = Rows(rows(200, GRID, 1), np.arange(200) % 2)
    with using_device(device):
        predictor = Predictor(setting, GRID, data)
    before = device.asked
    answers = predictor.predict(Rows(rows(3, GRID, 5)))
    assert device.asked == before + 1
    assert len(answers.labels) == 3


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (1, 1), (1, 7), (3, 8), (5, 33)])
@pytest.mark.parametrize("kind", CARDS)
def test_places_that_reach_a_bound_come_in_order(
    kind: str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opendp_sim.measurements.knn._impl.resident._MANY", 0)
    device = StandIn() if kind == "stand-in" else device_named(kind)
    assert device is not None
    draws = np.random.default_rng(shape[1])
    products = draws.integers(-2, 3, shape).astype(np.float32)
    for bounds in (np.full(shape[0], 9), np.full(shape[0], -9), np.arange(shape[0]) % 3):
        wanted = np.flatnonzero(products >= bounds[:, None])
        with device:
            sides = device.put(products), device.put(bounds.astype(np.float32))
            found = device.get(_reaching(device.xp, *sides))
        assert np.array_equal(found, wanted)
        every = np.arange(products.size).reshape(shape)
        assert np.array_equal(_inside(found, every), np.isin(every, wanted))
