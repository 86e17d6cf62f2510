"""Enumerate an opaque function's draws for exact probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.compare_tapes import alike
from opendp_sim.audit.instrument.tape import Draw, Tape, TapeEndError
from opendp_sim.audit.statistics.score_bets import symbol, text_of
from opendp_sim.audit.work import work_seconds

_TAIL = 1e-13
MOST_RUNS, _MOST_DRAWS = 60_000, 6
_RISK, _GUARD_RUNS, _FEWEST_RUNS, _GUARD_SECONDS = 1e-7, 400, 120, 0.4
"""The guard's level, its releases, and how few are enough of a slow object, after so many seconds."""

_TAPES, _FEWEST, _CHECKED, _TAPE_SECONDS = 200, 12, 2, 0.3
"""Tapes that are forced again before a calculation: most, fewest, those on which noise is asked at far
arguments, and seconds."""


@dataclass(frozen=True)
class Tree:
    """Hold exact probabilities of whole outputs, and the rest's mass."""

    masses: dict[str, float]
    rest: float


def tree_of(tape: Tape, function: Callable[[Any], Any], data: Any, seconds: float) -> Tree | None:
    """Follow every value of every draw, or return None."""
    begin, masses = work_seconds(), dict[str, float]()
    rest, runs = 0.0, 0
    todo: list[tuple[list[Any], float]] = [([], 1.0)]
    while todo:
        forced, mass = todo.pop()
        if mass < _TAIL or len(forced) > _MOST_DRAWS:
            rest += mass
            continue
        runs += 1
        if runs > MOST_RUNS or work_seconds() - begin > seconds:
            return None
        try:
            out, _ = tape.run(function, data, "force", forced)
        except TapeEndError:
            wanted = tape.draws[-1] if len(tape.draws) == len(forced) + 1 else None
            branches = None if wanted is None else _branches(wanted)
            if branches is None or len(todo) + len(branches[0]) > MOST_RUNS:
                return None
            todo += [([*forced, value], mass * share) for value, share in branches[0]]
            rest += mass * branches[1]
            continue
        name = text_of(out)
        masses[name] = masses.get(name, 0.0) + mass
    return Tree(masses, rest)


def _branches(draw: Draw) -> tuple[list[tuple[Any, float]], float] | None:
    """Return a draw's values, probabilities and missing mass, or None."""
    if draw.options is not None:
        shares = np.exp(np.asarray(draw.argument, dtype=float))
        return list(zip(draw.options, (shares / shares.sum()).tolist(), strict=True)), 0.0
    law, at = draw.law, draw.argument
    if law is None or not law.whole or law.vector or type(at) is not int or abs(at) > 2**30:
        return None
    window = law.window(_TAIL)
    if len(window) > 4000:
        return None
    shares = law.masses(window)
    return [(at + z, float(p)) for z, p in zip(window, shares, strict=True)], 2 * _TAIL


def values_of(draw: Draw) -> int:
    """Return the number of values of a draw, however large."""
    if draw.options is not None:
        return len(draw.options)
    law = draw.law
    known = law is not None and law.whole and not law.vector
    return len(law.window(_TAIL)) if known and law is not None else MOST_RUNS + 1


def tree_hockey_stick(left: Tree, right: Tree, epsilon: float) -> tuple[float, frozenset[str]]:
    """Return a lower bound on delta at epsilon, and its event."""
    factor = math.exp(min(epsilon, 700.0))
    event = [o for o, p in left.masses.items() if p > factor * right.masses.get(o, 0.0)]
    p = math.fsum(left.masses[o] for o in event) * (1 - 1e-9)
    q = (math.fsum(right.masses.get(o, 0.0) for o in event) + right.rest) * (1 + 1e-9)
    return p - factor * q, frozenset(event)


def agrees(
    tree: Tree, obj: Callable[[Any], Any], data: Any, event: frozenset[str], runs: int = _GUARD_RUNS
) -> bool:
    """Return whether real releases confirm a tree's event probability."""
    seen = guard_runs(lambda: symbol(obj, data) in event, runs)
    hits, runs = sum(seen), len(seen)
    p = min(1.0, math.fsum(tree.masses.get(o, 0.0) for o in event))
    spread = min(
        stats.binom.cdf(hits, runs, min(1.0, p + tree.rest)), stats.binom.sf(hits - 1, runs, p)
    )
    return bool(spread >= _RISK)


def guard_runs(one: Callable[[], Any], most: int = _GUARD_RUNS) -> list[Any]:
    """Return many releases' results, fewer of a slow object."""
    begin, out = work_seconds(), list[Any]()
    while len(out) < most:
        if len(out) >= _FEWEST_RUNS and work_seconds() - begin > _GUARD_SECONDS:
            break
        out.append(one())
    return out


def clean_tapes(tape: Tape, function: Callable[[Any], Any], pair: Pair) -> int:
    """Return the number of consistent tapes, or 0.

    On either side; 0 after any inconsistency. Equal tapes must give equal outputs, by equal draws of
    equal arguments; and native noise must stand around its argument. What draws beside the tape and
    shows in a share of the runs shows here.
    """
    begin, tapes = work_seconds(), 0
    tape.crooked = False
    while tapes < _TAPES and (tapes < _FEWEST or work_seconds() - begin < _TAPE_SECONDS):
        tape.checking = tapes < _CHECKED
        try:
            same = all(same_again(tape, function, data) for data in (pair.left, pair.right))
        except TapeEndError:
            return 0
        finally:
            tape.checking = False
        if not same or tape.crooked or tape.unseen:
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
