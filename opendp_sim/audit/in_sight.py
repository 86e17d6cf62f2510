"""What of a calculated loss stands where the output was seen to show its noise, far values included.

A program may change what it shows of rare noise: it clamps, or gives the noise other tails. Nothing of
that is on a few recorded tapes, and it may be all that the claim rests on. So the noise is forced to
values from the middle to far outside on both sides, and what lies beyond them counts against the
finding (``trace.md``).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from opendp_sim.audit.clock import cpu_seconds
from opendp_sim.audit.exact import Shift
from opendp_sim.audit.losses import claim_ratio
from opendp_sim.audit.tape import Draw, Mode, TapeEndError
from opendp_sim.audit.tracer import Tracer
from opendp_sim.audit.views import numbers

__all__ = ["places_of", "ratio_in_sight", "shows"]

_NORMAL, _LAPLACE = 9.0, 40.0
"""Scales up to which noise is forced: beyond them lie 2.3e-19 and 4.3e-18 of it."""
_STEP, _COARSE, _NEAR = 0.25, 1.0, 9.0
"""How far forced values are apart, in scales, up to nine of them and beyond."""
_LATEST, _MEAN, _TAPES = 8.0, 3.0, 60
"""Normal noise: the last place at which an event begins; the largest mean of the left under the law that
a Renyi divergence weighs with; recorded tapes on which the output must show the noise too."""
_SECONDS, _SPARSE = 0.8, 6
"""CPU seconds for it, about, and of how many places one is tried at least where runs are slow."""
_ALPHAS = 1 + np.geomspace(1e-2, 299, 60)


def places_of(*, normal: bool) -> NDArray[np.float64]:
    """Return the scales at which noise is forced, in order."""
    near = np.arange(_STEP, _NEAR + _STEP / 2, _STEP)
    reach = _NEAR if normal else _LAPLACE
    far = np.arange(_NEAR + _COARSE, reach + _COARSE / 2, _COARSE)
    half = np.concatenate([near, far])
    return np.concatenate([-half[::-1], [0.0], half])


def shows(tracer: Tracer, shift: Shift, sides: tuple[tuple[Any, tuple[Draw, ...]], ...]) -> bool:
    """Say whether the output shows the noisy values wherever they were forced to, and on further tapes.

    Args:
        tracer: the function under its tape.
        shift: where the values stand in the output.
        sides: either dataset with its draws.
    """
    end, places = cpu_seconds() + 2 * _SECONDS, places_of(normal=shift.law.gaussian)
    cells = sum(np.size(draw.argument) for _, draws in sides[:1] for draw in draws)
    runs = len(places) * (len(_PATTERNS) if cells > 1 else 1) + _TAPES
    every = math.ceil(2 * runs * tracer.seconds_a_run / _SECONDS)
    every = min(max(1, every), _SPARSE)  # of a slow function fewer
    try:
        for number, (data, draws) in enumerate(sides):
            for values in _tried(draws, places, every, tracer.rng):
                late = cpu_seconds() > end
                if late or not _shown(tracer, shift, number, data, draws, values):
                    return False
    except (ValueError, TypeError, ArithmeticError):  # values of a form that cannot be made
        return False
    return True


def _tried(
    draws: tuple[Draw, ...], places: NDArray[np.float64], every: int, rng: np.random.Generator
) -> list[Any]:
    """Return the noisy values of the runs to come; ``None`` where they are drawn."""
    cells = sum(np.size(draw.argument) for draw in draws)
    out: list[Any] = []
    for number, place in enumerate(places[::every]):
        patterns = _PATTERNS if cells > 1 else _PATTERNS[:1]
        out += [_forced(draws, one(place, places, cells, number, rng)) for one in patterns]
    return out + [None] * (_TAPES // every)


def _together(
    place: float, _: NDArray[np.float64], cells: int, __: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return one place for all cells, up in some and down in others."""
    return np.asarray(place * (rng.choice([-1.0, 1.0], cells) if cells > 1 else np.ones(cells)))


def _one_far(
    place: float, _: NDArray[np.float64], cells: int, number: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return common noise, and one cell after the other at the place."""
    out = rng.normal(0.0, 1.0, cells)
    out[(number + int(rng.integers(2))) % cells] = place
    return out


def _apart(
    _: float, places: NDArray[np.float64], cells: int, __: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return a place of its own for every cell, in half of them one that noise often has."""
    far, common = rng.choice(places, cells), rng.normal(0.0, 1.0, cells)
    return np.where(rng.random(cells) < rng.random(), far, common)


_PATTERNS = _together, _one_far, _apart


def _forced(draws: tuple[Draw, ...], places: NDArray[np.float64]) -> list[Any]:
    """Return noisy values so many scales from their arguments, one place a cell."""
    out: list[Any] = []
    done = 0
    for draw in draws:
        law = draw.law or draw.free
        assert law is not None  # noqa: S101 - a shift has none without
        at = np.asarray(draw.argument, dtype=float)
        values = at + law.scale * places[done : done + at.size].reshape(at.shape)
        done += at.size
        values = np.rint(values) if law.whole else values
        out.append(_like(draw.value, values))
    return out


def _like(value: Any, numbers_: NDArray[np.float64]) -> Any:
    """Return numbers in the form of a value: an array, a list, or one number of its type."""
    if isinstance(value, np.ndarray):
        return numbers_.reshape(value.shape).astype(value.dtype)
    if isinstance(value, (list, tuple)):
        kind = type(value[0]) if value else float
        return type(value)(kind(v) for v in numbers_.ravel().tolist())
    return type(value)(numbers_.ravel().tolist()[0])


def _shown(
    tracer: Tracer, shift: Shift, side: int, data: Any, draws: tuple[Draw, ...], values: Any
) -> bool:
    """Say whether one run has the same draws, and its output their values where they are expected."""
    tape, decoded = tracer.tape, shift.decoded
    try:
        mode: Mode = "record" if values is None else "force"
        out, seen = tape.run(tracer.function, data, mode, values)
    except TapeEndError:  # it asks for more where the noise is far out
        return False
    cells = numbers(out)
    if (
        cells is None
        or len(cells) != decoded.width
        or [d.told for d in seen] != [d.told for d in draws]
    ):
        return False
    noisy = [v for draw in seen for v in numbers(draw.value) or []]
    if len(noisy) != len(decoded.cells):
        return False
    for cell, factor, offset, value in zip(
        decoded.cells, decoded.factors, decoded.offsets[side], noisy, strict=True
    ):
        wanted = factor * (value + offset)
        room = 1e-9 * (abs(factor) * (abs(value) + abs(offset)) + abs(cells[cell])) + 1e-300
        if not abs(cells[cell] - wanted) <= room:
            return False
    return True


def ratio_in_sight(shift: Shift, measure: Any, claimed: Any) -> float:
    """Return a lower bound of attained over claimed loss from events within the places that are forced.

    What lies beyond them is counted for the right and against the left.
    """
    law = shift.law
    with np.errstate(all="ignore"):
        size = claim_ratio(law, shift.moved, measure, claimed)
        scales = law.scales(shift.moved.size)[shift.moved != 0]
    if not law.gaussian or not (scales > 0).all():
        return size
    by = float(np.sqrt(((shift.moved[shift.moved != 0] / scales) ** 2).sum()))
    if isinstance(claimed, tuple):  # the event begins so far out that nothing of it was seen
        return 0.0 if float(claimed[0]) / by - by / 2 > _LATEST else size
    kind = str(measure.type)
    if kind.startswith("MaxDivergence"):
        return _pure(by) / float(claimed) if claimed > 0 else size
    if kind.startswith("RenyiDivergence"):
        wanted = np.array([float(claimed(float(a))) for a in _ALPHAS])
        return float(np.max(_renyi(by) / np.maximum(wanted, 1e-300)))
    return size


def _pure(by: float) -> float:
    """Return the largest log ratio of events "beyond t" with t within sight, of a normal shift."""
    t = np.linspace(-_LATEST, _LATEST, 641)
    beyond = 2 * float(stats.norm.sf(_NORMAL))
    p, q = stats.norm.sf(t - min(by, _LATEST)) - beyond, stats.norm.sf(t) + beyond
    good = p > 0
    return float(np.log(p[good] / q[good]).max())


def _renyi(by: float) -> NDArray[np.float64]:
    """Return lower bounds of the divergences of orders ``_ALPHAS`` of a normal shift, within sight.

    The divergence weighs outputs by a normal law around alpha shifts; where that is far outside, the two
    outcomes of one event bound it (data processing).
    """
    exact = np.where(_ALPHAS * by <= _MEAN, _ALPHAS * by**2 / 2 * (1 - 1e-6), 0.0)
    t = np.linspace(-_LATEST, _LATEST, 161)[:, None]
    beyond = 2 * float(stats.norm.sf(_NORMAL))
    p = np.maximum(stats.norm.sf(t - min(by, _LATEST)) - beyond, 1e-300)
    q = stats.norm.sf(t) + beyond
    one = (_ALPHAS * np.log(p) - (_ALPHAS - 1) * np.log(q)) / (_ALPHAS - 1)
    return np.asarray(np.maximum(exact, one.max(axis=0)))
