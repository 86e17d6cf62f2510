"""Broken twins of interactive releases that nobody says how to ask: found by the default driver alone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import opendp.prelude as dp

from opendp_sim.core.bridge import build, plain_measurement
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows
from opendp_sim.measurements.knn._impl import class_means as _knn_means, predictor as _knn_predictor
from opendp_sim.measurements.knn._impl.privacy_filter import IndividualFilter
from opendp_sim.measurements.knn._impl.vote import Near, Outcome, vote
from opendp_sim.measurements.knn._impl.vote_noise import Stock, add_rounded_gaussian
from opendp_sim.measurements.knn.hybrid_knn import HybridKnn
from opendp_sim.measurements.knn.ind_knn import IndKnn
from opendp_sim.measurements.knn.private_knn import PrivateKnn
from tests.audit.twins.entries import Control, Twin
from tests.audit.twins.stand_ins import LINE, SYMMETRIC

dp.enable_features("contrib", "honest-but-curious")
GRID = GridRows(width=2, labels=(0, 1), lower=(-9,), upper=(9,))
IND = IndKnn(rho=0.5, queries=20, size=20)
HYBRID = HybridKnn(rho=0.5, queries=20, size=20)
PRIVATE = PrivateKnn(epsilon=1.0, delta=1e-2, queries=16, neighbours=1, rate=0.2, centre=False)


def service(setting: Any, *patches: Callable[[], Any]) -> dp.Measurement:
    """The real mechanism with some of its code replaced while it starts and while it answers."""
    claim = setting.bind(GRID, Symmetric())

    def start(data: Any) -> Any:
        with broken(*patches):
            ask = claim.start(data)

        def asked(message: Any) -> Any:
            with broken(*patches):
                return ask(message)

        return asked

    return build(replace(claim, start=start), setting.key, GRID, Symmetric())


@contextmanager
def broken(*patches: Callable[[], Any]) -> Any:
    with ExitStack() as stack:
        for make in patches:
            stack.enter_context(make())
        yield


def exact_count(near: Near, classes: int, scales: Any, purses: Any, draw: Any, *rest: Any) -> Any:
    def half(cells: Any, scale: float) -> Any:
        return cells if len(cells) == 1 else draw(cells, scale)

    return vote(near, classes, scales, purses, half, *rest)


def refilled(near: Near, classes: int, scales: Any, purses: Any, *rest: Any) -> Outcome:
    return vote(near, classes, scales, IndividualFilter(purses.rho, 99), *rest)


def voting(changed: Any) -> Callable[[], Any]:
    return lambda: patch.object(_knn_predictor, "vote", changed)


def means_without_noise() -> Any:
    return patch.object(_knn_means, "add_rounded_gaussian", lambda cells, _: cells)


def noiseless_when_empty() -> Any:
    def quiet(_: Any, cells: Any, scale: float) -> Any:
        return add_rounded_gaussian(cells, scale) if cells.any() else cells

    return patch.object(Stock, "noisy", quiet)


def one_noise() -> Callable[[], Any]:
    kept: dict[Any, Any] = {}

    def stale(stock: Any, cells: Any, scale: float) -> Any:
        key = id(stock), len(cells)
        if key not in kept:
            kept[key] = stock, add_rounded_gaussian(np.zeros_like(cells), scale)
        return cells + kept[key][1]

    return lambda: patch.object(Stock, "noisy", stale)


# --- compositions ---------------------------------------------------------------------------------


def adaptive(accounted: float, asked: float = 1.0) -> dp.Measurement:
    """OpenDP's adaptive composition of two halves of ``asked``, with a map that says ``accounted``."""
    real = dp.c.make_adaptive_composition(
        LINE, SYMMETRIC, dp.max_divergence(), 1, [asked / 2, asked / 2]
    )
    return plain_measurement(LINE, SYMMETRIC, dp.max_divergence(), real, lambda d: accounted * d)


def sequential(accounted: float) -> dp.Measurement:
    real = dp.c.make_adaptive_composition(
        LINE, SYMMETRIC, dp.zero_concentrated_divergence(), 1, [0.25, 0.25]
    )
    return plain_measurement(
        LINE, SYMMETRIC, dp.zero_concentrated_divergence(), real, lambda d: accounted * d * d
    )


TWINS = [
    Twin(
        name="ind_knn/asked_exact_count",
        why="the number of neighbours is used without noise",
        make=lambda: service(IND, voting(exact_count)),
    ),
    Twin(
        name="ind_knn/asked_refilled",
        why="a fresh purse for every query",
        make=lambda: service(IND, voting(refilled)),
    ),
    Twin(
        name="hybrid_knn/asked_means_without_noise",
        why="the class means are released exactly",
        make=lambda: service(HYBRID, means_without_noise),
    ),
    Twin(
        name="private_knn/asked_silent_when_empty",
        why="no noise on an empty sample",
        make=lambda: service(PRIVATE, noiseless_when_empty),
    ),
    Twin(
        name="composition/asked_counts_one_of_two",
        why="two answers at a half each, one is accounted",
        make=lambda: adaptive(0.5),
    ),
]
CONTROLS = [
    Control(name="ind_knn/asked", make=lambda: service(IND)),
    Control(name="hybrid_knn/asked", make=lambda: service(HYBRID)),
    Control(name="private_knn/asked", make=lambda: service(PRIVATE)),
    Control(name="composition/asked", make=lambda: adaptive(1.0)),
    Control(name="composition/asked_zcdp", make=lambda: sequential(0.5)),
    Control(
        name="composition/asked_odometer",
        make=lambda: dp.c.make_fully_adaptive_composition(
            LINE, SYMMETRIC, output_measure=dp.max_divergence()
        ),
    ),
]
