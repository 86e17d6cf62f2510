"""Gradients on a device: the integers of the CPU, whatever rows, classes and weights."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.device import device_named, using_device
from opendp_sim.core.device.stand_in import StandIn
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.measurements.linear._impl import descent
from opendp_sim.measurements.linear._impl.descent import DeviceGradients, gradient, whole_weights
from opendp_sim.measurements.linear._impl.scaled import GRID_SIDE, ScaledRows
from opendp_sim.measurements.linear.linear_model import LinearModel

DOMAIN = GridRows(width=6, labels=("a", "b"), unit=1 / 64, lower=(-64,), upper=(64,))
SCALED = ScaledRows(DOMAIN, by_length=True)


def some(count: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    draws = np.random.default_rng(count + classes)
    values = draws.integers(-64, 65, (count, 6)).astype(np.float64)
    values[: count // 3] = draws.choice([-64.0, 0.0, 64.0], (count // 3, 6))
    return SCALED(values), draws.integers(0, classes, count)


def weights(classes: int) -> list[tuple[np.ndarray, int]]:
    draws = np.random.default_rng(classes)
    drawn = [draws.normal(0, size, (7, classes)) for size in (0.0, 1e-3, 0.5, 40.0, 1e5)]
    drawn.append(np.where(np.arange(classes) == 0, 3.0, 0.0) * np.ones((7, 1)))
    return [whole_weights(each, SCALED.norm_squared) for each in drawn]


@pytest.mark.parametrize("kind", ["stand-in", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(("count", "classes"), [(0, 2), (1, 2), (900, 2), (700, 3), (400, 11)])
def test_a_gradient_on_a_device_is_the_cpus(
    kind: str, count: int, classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descent, "_PIECE", 2**11)  # several parts
    device = StandIn() if kind == "stand-in" else device_named(kind)
    rows, labels = some(count, classes)
    sums = DeviceGradients(device, rows, labels, classes)
    with warnings.catch_warnings(action="error"):
        for whole, f in weights(classes):
            found = sums(whole, f)
            assert found.dtype == np.int64
            assert np.array_equal(found, gradient(rows, labels, whole, f))
    assert sums._device is device
    assert len(sums._parts) == -(-count // sums._step)


class Erring(StandIn):
    """Raises, or makes one product too large, from the ``after``-th on."""

    def __init__(self, after: int, error: type[Exception] | None) -> None:
        super().__init__()
        self.after, self.error = after, error

    def products(self, left: Any, right: Any) -> Any:
        found = super().products(left, right)
        self.after -= 1
        if self.after < 0:
            if self.error is not None:
                raise self.error
            found[0, 0] += GRID_SIDE
        return found


@pytest.mark.parametrize("after", [0, 2, 3])
@pytest.mark.parametrize("error", [None, RuntimeError, MemoryError])
def test_a_device_that_fails_hands_over_to_the_cpu(
    after: int, error: type[Exception] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, labels = some(300, 3)
    sums = DeviceGradients(Erring(after, error), rows, labels, 3)
    whole, f = weights(3)[2]
    wanted = gradient(rows, labels, whole, f)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(4):
            assert np.array_equal(sums(whole, f), wanted)
    assert [w.category for w in seen] == ([] if error is MemoryError else [RuntimeWarning])
    assert sums._device is None


def test_rows_are_overwritten_when_a_fit_is_over() -> None:
    rows, labels = some(300, 3)
    sums = DeviceGradients(StandIn(), rows, labels, 3)
    ((kept, marks),) = sums._parts
    assert kept.any()
    del sums
    assert not kept.any()
    assert not marks.any()


def test_a_fit_uses_the_device_in_use() -> None:
    class Counting(StandIn):
        asked = 0

        def products(self, left: Any, right: Any) -> Any:
            self.asked += 1
            return super().products(left, right)

    device = Counting()
    device.proved = True
    claim = LinearModel(rho=1.0, steps=5).bind(DOMAIN, Symmetric())
    draws = np.random.default_rng(1)
    data = Rows(draws.integers(-64, 65, (200, 6)).astype(np.float64), draws.integers(0, 2, 200))
    with using_device(device):
        claim.function(data)
    assert device.asked == 10
