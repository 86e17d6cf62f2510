"""Calculated verdicts: closed forms of traced noise, and the whole tree of an opaque function's draws.

Nothing here samples, except for the guard: releases of the object itself must fit the law that the
calculation uses. The logic, and what is assumed, is in ``layer.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from opendp_sim.audit.claims.curves import gaussian_delta
from opendp_sim.audit.claims.losses import claim_ratio
from opendp_sim.audit.claims.noise_laws import NoiseLaw
from opendp_sim.audit.clock import cpu_seconds
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.compare_tapes import Decoded, numbers
from opendp_sim.audit.instrument.tape import Draw, Mode, TapeEndError
from opendp_sim.audit.trace.context import Tracer
from opendp_sim.audit.trace.draw_tree import blurred, guard_runs

_RISK = 1e-7
ROUNDING = {True: 1e-9, False: 1e-6}
"""How far a calculated loss must exceed the claim: whole numbers, floats."""


@dataclass(frozen=True)
class Shift:
    """Noise of one family whose arguments differ by ``shift``, shown by the output at known cells."""

    law: NoiseLaw
    first: Any
    second: Any
    whole: bool
    decoded: Decoded

    @property
    def moved(self) -> Any:
        """Arguments of the right minus those of the left."""
        return self.second - self.first

    def score(self, rows: Any) -> Any:
        """Return log p(left) - log p(right) of rows of output numbers."""
        if rows.shape[1] < self.decoded.width:
            return np.zeros(len(rows))
        values = rows[:, list(self.decoded.cells)] / np.array(self.decoded.factors)
        return self.law.llr(np.clip(values, -1e15, 1e15) - self.first, self.moved)


def shift_of(draws: tuple[Draw, ...], other: tuple[Draw, ...], decoded: Decoded) -> Shift | None:
    """Return the shift of a pair; ``None`` for several families or unknown ones."""
    laws = [draw.law or draw.free for draw in draws]
    if (
        not draws
        or any(law is None for law in laws)
        or len({(law.family, law.whole) for law in laws if law}) != 1
    ):
        return None
    parts = [np.ravel(np.asarray(d.argument, dtype=float)) for d in draws]
    others = [np.ravel(np.asarray(d.argument, dtype=float)) for d in other]
    if [p.size for p in parts] != [p.size for p in others]:
        return None
    scales = np.concatenate(
        [np.full(p.size, law.scale) for p, law in zip(parts, laws, strict=True) if law]
    )
    first, second = np.concatenate(parts), np.concatenate(others)
    if first.size != len(decoded.cells):
        return None
    first, second = first + decoded.offsets[0], second + decoded.offsets[1]
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        return None
    law = laws[0]
    assert law is not None  # noqa: S101 - said above
    return Shift(NoiseLaw(law.noise.family, scales), first, second, law.whole, decoded)


def closed_form(
    shift: Shift, measure: Any, claimed: Any, tapes: float = math.inf
) -> tuple[Any, Any] | None:
    """Return (claimed, attained) where the exact loss of the shift exceeds the claim.

    With a number of clean tapes it must do so beside paths that they may not have shown (``blurred``).
    """
    moved = shift.moved
    if not moved.any():
        return None
    if isinstance(claimed, tuple):
        if "MaxDivergence" not in str(getattr(measure, "inner_measure", measure).type):
            return None  # beside a delta a rho says nothing of one epsilon
        return _delta_of_one_cell(shift, claimed, tapes)
    with np.errstate(over="ignore"):
        size = claim_ratio(shift.law, moved, measure, claimed)
    if str(measure.type).startswith("MaxDivergence") and claimed > 0:
        left = math.log(blurred(math.exp(min(size * claimed, 700.0)), 1.0, tapes)) / claimed
    else:
        left = blurred(size, 0.0, tapes)
    if not min(size, left) > 1 + ROUNDING[shift.whole]:
        return None
    return claimed, f"{size:.6g} times the claim"


def _delta_of_one_cell(
    shift: Shift, claimed: tuple[Any, ...], tapes: float
) -> tuple[Any, Any] | None:
    """The hockey-stick of one whole cell, summed; cells that do not move say nothing.

    Of float noise it is a closed form: of all cells together where it is normal, else of the one that
    moved most, to which the others can only add.
    """
    spots = np.flatnonzero(shift.moved)
    if (
        len(claimed) != 2
        or isinstance(claimed[0], tuple)
        or not (spots.size == 1 or not shift.whole)
    ):
        return None
    epsilon = float(claimed[0])
    if not shift.whole:
        sizes = np.abs(shift.moved) / np.broadcast_to(shift.law.scale, shift.moved.shape)
        if shift.law.gaussian:
            attained = gaussian_delta(float(np.sqrt((sizes * sizes).sum())), epsilon)
        else:
            attained = max(0.0, -math.expm1((epsilon - float(sizes.max())) / 2))
        return _beyond(attained, claimed, tapes, 1e-5)
    scale, by = float(shift.law.scale[spots[0]]), int(shift.moved[spots[0]])
    if abs(by) > 10**6 or scale > 10**5:
        return None
    reach = int(40 * scale) + abs(by) + 2
    z = np.arange(-reach, reach + 1, dtype=float)
    logs = [
        -(y**2) / (2 * scale**2) if shift.law.gaussian else -np.abs(y) / scale for y in (z, z - by)
    ]
    norm = math.log(
        float(
            np.exp(-(z**2) / (2 * scale**2)).sum()
            if shift.law.gaussian
            else np.exp(-np.abs(z) / scale).sum()
        )
    )
    p, q = (np.exp(log - norm) for log in logs)
    attained = float(np.maximum(p - math.exp(min(epsilon, 700.0)) * q, 0).sum())
    return _beyond(attained, claimed, tapes, 1e-6)


def _beyond(
    attained: float, claimed: tuple[Any, ...], tapes: float, rounding: float
) -> tuple[Any, Any] | None:
    """Return claim and attained delta where the one exceeds the other beside paths that were not met."""
    if blurred(attained, 0.0, tapes) <= float(claimed[1]) * (1 + rounding) + 1e-12:
        return None
    return claimed, f"delta {attained:.6g} at epsilon {float(claimed[0]):.6g}"


def fits(shift: Shift, pair: Pair, obj: Callable[[Any], Any], rng: np.random.Generator) -> bool:
    """The guard: real releases minus the traced arguments follow the traced law, cell by cell."""
    for data, arguments in ((pair.left, shift.first), (pair.right, shift.second)):
        rows = guard_runs(partial(_numbers_of, obj, data))
        if any(row is None or len(row) != shift.decoded.width for row in rows):
            return False
        cells = np.array(rows)[:, list(shift.decoded.cells)] / np.array(shift.decoded.factors)
        residuals = cells - arguments
        scales = shift.law.scales(residuals.shape[1])
        for j in list(range(residuals.shape[1]))[:8]:
            if stats.ks_2samp(residuals[:, j], _reference(shift, scales[j], rng)).pvalue < _RISK:
                return False
    return True


def _numbers_of(obj: Callable[[Any], Any], data: Any) -> list[float] | None:
    try:
        return numbers(obj(data))
    except Exception:  # noqa: BLE001
        return None


def _reference(shift: Shift, scale: float, rng: np.random.Generator) -> Any:
    from opendp_sim.audit.instrument.native_laws import Law  # noqa: PLC0415

    family = shift.law.family.removeprefix("discrete_")
    return Law(family, float(scale), shift.whole, vector=False).reference(rng)


# --------------------------------------------------------------------------------------------------
# What of a calculated loss stands where the output was seen to show its noise, far values included.
#
# A program may change what it shows of rare noise: it clamps, or gives the noise other tails. Nothing of
# that is on a few recorded tapes, and it may be all that the claim rests on. So the noise is forced to
# values from the middle to far outside on both sides, and what lies beyond them counts against the
# finding (``layer.md``).

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
