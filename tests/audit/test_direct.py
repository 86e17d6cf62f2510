"""A function that was given as a ``partial`` is called directly: a release costs a twentieth of OpenDP's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.patch_rng import tapped
from opendp_sim.audit.instrument.tape import Tape
from opendp_sim.audit.state.reachable import arguments_of, functions_of
from opendp_sim.audit.trace.scan import direct_function
from opendp_sim.core import dp

ROWS = dp.vector_domain(dp.atom_domain(T=int))


def noisy(rows: list[int], scale: float = 1.0) -> float:
    return len(rows) + float(np.random.default_rng().laplace(0.0, scale))


def _direct(function: Callable[[Any], Any], outer: Any = None) -> Any:
    made = dp.m.make_user_measurement(
        ROWS, dp.symmetric_distance(), dp.max_divergence(), function, lambda d: d
    )
    functions, tape = functions_of(made), Tape(made, np.random.default_rng(0))
    space: Any = SimpleNamespace(draw=lambda _: Pair([1], [1, 2], 1))
    given = arguments_of(made if outer is None else outer)
    with tapped(tape, functions):
        return direct_function(tape, made, functions, space, tape.rng, given)


def test_what_differs_from_the_object_is_not_called_directly() -> None:
    other = dp.m.make_user_measurement(
        ROWS, dp.symmetric_distance(), dp.max_divergence(), partial(noisy, scale=2.0), lambda d: d
    )
    assert _direct(partial(noisy, scale=9.0), other) is None
    assert _direct(lambda rows: noisy(rows, 9.0)) is not None
