"""Compare the tapes of two neighbours.

Structure, losses, categorical weights. The left runs along one path, the right is forced to the same
noisy values. Everything here is a fact about these runs; ``layer.md`` says which facts prove
something.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.tape import Draw, Tape, TapeEndError
from opendp_sim.audit.outputs.encoding import Raised, unordered
from opendp_sim.audit.work import work_seconds

_CELLS = 256
_TAPES = 12
_REPLAYED, _FEWEST, _REPLAY_SECONDS = 200, 12, 0.3
"""Tapes that are forced again before a calculation: most and fewest, and nominal seconds."""
_PLAIN = frozenset({int, float})
Claim = tuple[str, float, float]
"""The unit, how much of it, and the delta beside it: what prices are compared to."""


@dataclass
class View:
    """Describe a pair by its tapes, left draws forced on the right."""

    loss: float = 0.0
    """Along the path, in units of the claim."""
    finding: str = ""
    """A structural fact, or nothing."""
    draws: tuple[Draw, ...] = ()
    other: tuple[Draw, ...] = ()
    """Draws of the right side."""
    moved: bool = False
    """Whether the outputs differ at equal values."""

    @property
    def foreign(self) -> bool:
        """Whether some draw has no known law."""
        return any(draw.law is None and draw.options is None for draw in self.draws)


def numbers(value: Any) -> list[float] | None:
    """Return the numbers of an output in order of keys, or None."""
    out: list[float] = []
    if (
        type(value) in {list, tuple}
        and 0 < len(value) <= _CELLS
        and _PLAIN.issuperset(map(type, value))
    ):
        try:
            return list(map(float, value))
        except OverflowError:
            return None

    def take(part: Any) -> bool:
        if isinstance(part, (bool, int, float, np.number, np.bool_)):
            out.append(float(part))
        elif isinstance(part, np.ndarray) and part.dtype != object and part.size <= _CELLS:
            out.extend(part.astype(float).ravel().tolist())
        elif isinstance(part, Mapping):
            return all(take(v) for _, v in sorted(part.items(), key=repr))
        elif isinstance(part, (list, tuple)):
            return len(part) <= _CELLS and all(take(v) for v in part)
        else:
            return isinstance(part, str)
        return True

    try:
        return out if take(value) and 0 < len(out) <= _CELLS else None
    except (OverflowError, ValueError, TypeError):
        return None


def alike(first: Any, second: Any) -> bool:
    """Return whether two outputs are equal by text, NaN too."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return repr(np.asarray(first).tolist()) == repr(np.asarray(second).tolist())
    return repr(unordered(first)) == repr(unordered(second))


def claim_of(measure: Any, d_out: Any) -> Claim | None:
    """Return the claim's unit, size and delta, None for a curve."""
    kind, value, delta = str(measure.type), d_out, 0.0
    if isinstance(value, tuple) and value:
        delta = float(value[-1]) if isinstance(value[-1], (int, float)) else 0.0
        value = value[0]
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return ("rho" if "ZeroConcentrated" in kind else "epsilon"), max(float(value), 1e-12), delta


def look(tape: Tape, function: Callable[[Any], Any], pair: Pair, claim: Claim) -> View:
    """Run the left without noise, and force its values on the right."""
    view = View()
    try:
        first, view.draws = _run(tape, function, pair.left, "zero")
    except TapeEndError:
        first, view.draws = _run(tape, function, pair.left, "record")
    try:
        values = [draw.value for draw in view.draws]
        second, view.other = _run(tape, function, pair.right, "force", values)
    except TapeEndError:
        view.finding = "the number of draws depends on the data"
        view.other = view.draws  # as many at least: how many more is not known
        return view
    view.moved = not alike(first, second)
    view.finding = _structure(view, first, second)
    if not view.finding.startswith(("the draws", "the number")):
        view.loss = _loss(view, claim)
        if view.foreign and view.moved:
            stretch = _stretch(tape, function, pair.left, first, view.draws)
            view.loss += _moved_by(view, first, second, claim, stretch)
    return view


def _run(
    tape: Tape, function: Any, data: Any, mode: Any, forced: Any = None
) -> tuple[Any, tuple[Draw, ...]]:
    out, draws = tape.run(function, data, mode, forced)
    return out, tuple(draws)


def _structure(view: View, first: Any, second: Any) -> str:
    if len(view.draws) != len(view.other):
        return "the number of draws depends on the data"
    seeds = [d.seeded for d in view.draws], [d.seeded for d in view.other]
    if seeds[0] != seeds[1]:
        return "the draws are seeded from the data"
    kinds = [d.what for d in view.draws], [d.what for d in view.other]
    if kinds[0] != kinds[1]:
        return "the draws' parameters depend on the data"
    if any(isinstance(v, Raised) for v in (first, second)) and view.moved:
        return "an exception depends on the data"
    if not view.draws and view.moved:
        return "an output without noise depends on the data"
    if view.moved and not view.foreign:
        return "the output depends on the data beyond the noisy values"
    return "the generator is seeded" if any(seeds[0]) else ""


def _loss(view: View, claim: Claim) -> float:
    """Add up what the draws cost at equal values."""
    total = 0.0
    for a, b in zip(view.draws, view.other, strict=True):
        if (a.law or a.free) is not None:
            epsilon, rho = _priced(a, b, claim[2])
        elif a.options is not None and b.options is not None:
            if np.shape(a.argument) != np.shape(b.argument):
                return math.inf
            epsilon = _weights_worth(a.argument, b.argument, claim)
            rho = epsilon * epsilon / 8
        else:
            continue
        total += rho if claim[0] == "rho" else epsilon
    return total / claim[1]


def _moved_by(view: View, first: Any, second: Any, claim: Claim, stretch: float) -> float:
    """Return an ordering score for outputs that move under unknown noise."""
    a, b = numbers(first), numbers(second)
    if a is None or b is None or len(a) != len(b):
        return 0.5
    with np.errstate(all="ignore"):
        gap = np.nan_to_num(np.abs(np.subtract(a, b)), nan=1e6, posinf=1e6)
    laws = [law for law in (d.free or d.hint for d in view.draws) if law is not None]
    law = min(laws, key=lambda law: law.scale, default=None)
    if law is None:
        return float(min(gap.sum(), 1e6)) / 1e3
    epsilon, rho = law.loss(gap / stretch, np.zeros_like(gap), claim[2])
    return min(rho if claim[0] == "rho" else epsilon, 1e6) / claim[1]


def _stretch(tape: Tape, function: Any, data: Any, out: Any, draws: tuple[Draw, ...]) -> float:
    """Return the factor of a function on its standard noise, or 1."""
    if len({d.what for d in draws}) != 1 or ".standard_" not in draws[0].what:
        return 1.0
    try:
        moved, _ = _run(tape, function, data, "force", [d.value + 1 for d in draws])
    except TapeEndError:
        return 1.0
    a, b = numbers(out), numbers(moved)
    most = max(map(abs, np.subtract(a, b))) if a and b and len(a) == len(b) else 0.0
    return float(most) if 0 < most < math.inf else 1.0


def _priced(a: Draw, b: Draw, delta: float) -> tuple[float, float]:
    law = a.law or a.free
    try:
        return law.loss(a.argument, b.argument, delta) if law is not None else (0.0, 0.0)
    except (TypeError, ValueError, OverflowError):
        return math.inf, math.inf


def _weights_worth(first: Any, second: Any, claim: Claim) -> float:
    """Return a categorical draw's loss by its hockey-stick divergence."""
    peak = float(np.abs(first - second).max())
    if claim[0] != "epsilon" or peak <= claim[1]:
        return peak
    p, q, factor = np.exp(first), np.exp(second), math.exp(min(claim[1], 50.0))
    over = max(np.maximum(p - factor * q, 0).sum(), np.maximum(q - factor * p, 0).sum())
    return claim[1] * (1 + float(over)) if over > 1e-9 else claim[1]


# --- whether equal tapes give equal runs --------------------------------------------------


def clean_tapes(tape: Tape, function: Callable[[Any], Any], pair: Pair) -> int:
    """Return the number of consistent tapes, or 0.

    On either side; 0 after any inconsistency. Equal tapes must give equal outputs, by equal draws of
    equal arguments. What draws beside the tape and shows in a share of the runs shows here.
    """
    begin, tapes = work_seconds(), 0
    while tapes < _REPLAYED and (tapes < _FEWEST or work_seconds() - begin < _REPLAY_SECONDS):
        try:
            same = all(same_again(tape, function, data) for data in (pair.left, pair.right))
        except TapeEndError:
            return 0
        if not same or tape.unseen:
            return 0
        tapes += 1
    return tapes


def same_again(tape: Tape, function: Callable[[Any], Any], data: Any) -> bool:
    """Return whether a forced tape reproduces draws and output."""
    out, draws = tape.run(function, data, "record")
    try:
        again, second = tape.run(function, data, "force", [d.value for d in draws])
    except TapeEndError:  # it asks for more than it did before
        return False
    return alike(out, again) and [d.told for d in draws] == [d.told for d in second]


# --- outputs that show the noisy values -------------------------------------------------


@dataclass(frozen=True)
class Decoded:
    """Describe the cell of each noisy value in the output.

    ``output[cell] == factor * value + offset``.
    """

    cells: tuple[int, ...]
    factors: tuple[float, ...]
    width: int
    offsets: tuple[tuple[float, ...], tuple[float, ...]]
    """Of the left and of the right; zeros where the draw itself knows its argument."""


def decode(tape: Tape, function: Callable[[Any], Any], pair: Pair) -> Decoded | None:
    """Locate the noisy values in outputs of fresh and forced tapes."""
    sides: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
    native = True
    for data in (pair.left, pair.right):
        rows: list[tuple[list[float], list[float]]] = []
        for _ in range(_TAPES):
            try:
                out, draws = tape.run(function, data, "record")
                again, _ = tape.run(function, data, "force", [d.value for d in draws])
            except TapeEndError:
                return None
            shown, values = numbers(out), _values(list(draws))
            native = native and all(d.law is not None for d in draws)
            if shown is None or values is None or not alike(out, again):
                return None
            rows.append((shown, values))
        if len({(len(a), len(b)) for a, b in rows}) != 1:
            return None
        sides.append((np.array([a for a, _ in rows]), np.array([b for _, b in rows])))
    (first, mine), (second, others) = sides
    if first.shape != second.shape or mine.shape != others.shape:
        return None
    found: list[tuple[int, float, float, float]] = []
    for j in range(mine.shape[1]):
        taken = {one[0] for one in found}
        spot = _place(first, mine[:, j], second, others[:, j], taken, native=native)
        if spot is None:
            return None
        found.append(spot)
    cells, factors, left, right = zip(*found, strict=True) if found else ((), (), (), ())
    return Decoded(cells, factors, first.shape[1], (left, right))


def _values(draws: list[Draw]) -> list[float] | None:
    out: list[float] = []
    for draw in draws:
        if draw.law is None and draw.free is None:
            return None
        part = numbers(draw.value)
        if part is None and not (isinstance(draw.value, list) and not draw.value):
            return None
        out += part or []
    return out


def _place(
    shown: Any, value: Any, shown_right: Any, value_right: Any, taken: set[int], *, native: bool
) -> tuple[int, float, float, float] | None:
    """Return the cell of a noisy value, with factor and offset."""
    for data in (value, value_right):
        if not np.isfinite(data).all() or len(set(data.tolist())) < 3:
            return None
    for i in range(shown.shape[1]):
        a, b = shown[:, i], shown_right[:, i]
        if i in taken or not (np.isfinite(a).all() and np.isfinite(b).all()):
            continue
        if np.array_equal(a, value) and np.array_equal(b, value_right):
            return i, 1.0, 0.0, 0.0
        spread = float(np.ptp(value))
        factor = float((a[np.argmax(value)] - a[np.argmin(value)]) / spread)
        if not factor:
            continue
        rest, rest_right = a - factor * value, b - factor * value_right
        room = 1e-9 * (abs(factor) * spread + float(np.abs(a).max()))
        if float(np.ptp(rest)) > room or float(np.ptp(rest_right)) > room:
            continue
        if native:  # what is fixed beside the value is beside the noise: the same on both sides
            if abs(float(rest.mean())) > room or abs(float(rest_right.mean())) > room:
                continue
            return i, factor, 0.0, 0.0
        return i, factor, float(rest.mean()) / factor, float(rest_right.mean()) / factor
    return None
