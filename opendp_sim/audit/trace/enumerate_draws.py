"""Follow every value of every draw of an opaque function (step R4)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from opendp_sim.audit.findings import Evidence
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.compare_tapes import clean_tapes
from opendp_sim.audit.instrument.tape import Draw, Tape, TapeEndError
from opendp_sim.audit.statistics.score_bets import symbol, text_of, valued
from opendp_sim.audit.trace.bets import CALCULATED, agrees, allowed, confirmed, verdict_run
from opendp_sim.audit.trace.context import Tracer
from opendp_sim.audit.trace.scan import Found, equal_runs
from opendp_sim.audit.work import work_seconds

_TAIL = 1e-13
"""Mass of a draw's values that are left out."""
_MOST_RUNS, _MOST_DRAWS = 60_000, 6
_CONFIRMED = 0.8
"""Seconds for draws that confirm what was calculated."""
_FAR = 10
"""Other paths may draw less than the one that was seen: a tree is given up at so many times its bound."""


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
        if runs > _MOST_RUNS or work_seconds() - begin > seconds:
            return None
        try:
            out, _ = tape.run(function, data, "force", forced)
        except TapeEndError:
            wanted = tape.draws[-1] if len(tape.draws) == len(forced) + 1 else None
            branches = None if wanted is None else _branches(wanted)
            if branches is None or len(todo) + len(branches[0]) > _MOST_RUNS:
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


def _values_of(draw: Draw) -> int:
    """Return the number of values of a draw, however large."""
    if draw.options is not None:
        return len(draw.options)
    law = draw.law
    known = law is not None and law.whole and not law.vector
    return len(law.window(_TAIL)) if known and law is not None else _MOST_RUNS + 1


def tree_hockey_stick(left: Tree, right: Tree, epsilon: float) -> tuple[float, frozenset[str]]:
    """Return a lower bound on delta at epsilon, and its event."""
    factor = math.exp(min(epsilon, 700.0))
    event = [o for o, p in left.masses.items() if p > factor * right.masses.get(o, 0.0)]
    p = math.fsum(left.masses[o] for o in event) * (1 - 1e-9)
    q = (math.fsum(right.masses.get(o, 0.0) for o in event) + right.rest) * (1 + 1e-9)
    return p - factor * q, frozenset(event)


def _agrees(tree: Tree, obj: Callable[[Any], Any], data: Any, event: frozenset[str]) -> bool:
    """Return whether real releases confirm a tree's event probability."""
    p = min(1.0, math.fsum(tree.masses.get(o, 0.0) for o in event))
    return agrees(lambda: symbol(obj, data) in event, p, min(1.0, p + tree.rest))


def tree_step(tracer: Tracer) -> Evidence | None:
    """Enumerate the draws on a few small pairs, if few."""
    if tracer.hidden or tracer.stateful:
        return None
    end = work_seconds() + min(1.2, tracer.left() - 1.0)
    fruitless = 0
    for pair in _tree_pairs(tracer):
        if work_seconds() > end or fruitless > 3:
            break
        trees = []
        for data in (pair.left, pair.right):
            tree = tree_of(tracer.tape, tracer.function, data, 0.25)
            if tree is None:
                break
            trees.append(tree)
        if len(trees) < 2:
            fruitless += 1
            continue
        evidence = _of_trees(tracer, pair, trees[0], trees[1])
        if evidence is not None:
            return evidence
    return None


def _tree_pairs(tracer: Tracer) -> list[Pair]:
    best = [found for found in tracer.seen.best if not _too_many(found)]
    out = [found.pair for found in best[:4]]
    small = sorted(best, key=lambda f: (len(f.view.draws), -f.loss, len(repr(f.pair.left))))
    out += [found.pair for found in small[:6]]
    for everything in tracer.seen.odd.values():
        odd = [found for found in everything if not _too_many(found)]
        out += [f.pair for f in sorted(odd, key=lambda f: len(repr(f.pair.left)))[:4]]
        out += [f.pair for f in sorted(odd, key=lambda f: -f.loss)[:2]]
    return list({(repr(p.left), repr(p.right)): p for p in out}.values())


def _too_many(found: Found) -> bool:
    """Return whether a path has too many values to enumerate."""
    return math.prod(_values_of(draw) for draw in found.view.draws) > _FAR * _MOST_RUNS


def _of_trees(tracer: Tracer, pair: Pair, left: Tree, right: Tree) -> Evidence | None:
    for first, second, side in ((left, right, pair), (right, left, pair.flipped())):
        for epsilon, delta in zip(tracer.curve.grid, tracer.curve.deltas, strict=True):
            attained, event = tree_hockey_stick(first, second, float(epsilon))
            if not attained > float(delta) * (1 + 1e-6) + 1e-10:
                continue
            if not (
                clean_tapes(tracer.tape, tracer.function, side)
                and equal_runs(tracer.tape, tracer.obj, tracer.function, side.left)
                and equal_runs(tracer.tape, tracer.obj, tracer.function, side.right)
                and _agrees(first, tracer.obj, side.left, event)
                and _agrees(second, tracer.obj, side.right, event)
            ):
                continue
            price = _price(
                tracer, side, (first, second), float(epsilon), float(delta), attained, event
            )
            run, words = verdict_run(tracer)
            looks = [(valued(run, dict.fromkeys(event, 1.0)), words, _CONFIRMED)]
            evidence = confirmed(tracer, price, lambda rows: rows[:, 0], looks)
            if evidence is not None:
                return evidence
    return None


def _likeliest(tree: Tree, event: frozenset[str]) -> str:
    """Return the likeliest outcome of the event, or of all."""
    inside = [o for o in tree.masses if o in event and tree.masses[o] > 0]
    return max(inside or tree.masses, key=lambda o: tree.masses[o])


def _price(
    tracer: Tracer,
    pair: Pair,
    trees: tuple[Tree, Tree],
    epsilon: float,
    delta: float,
    attained: float,
    event: frozenset[str],
) -> Evidence:
    p, q = (math.fsum(t.masses.get(o, 0.0) for o in event) for t in trees)
    outcomes = [_likeliest(tree, event) for tree in trees]
    return Evidence(
        "event",
        "every value of every draw was followed: an event is likelier than the claim allows",
        allowed(tracer, epsilon, delta),
        f"{p:.6g} on the left, {q:.6g} on the right: delta {attained:.6g} at epsilon {epsilon:.4g}",
        pair,
        (outcomes[0], outcomes[1]),
        CALCULATED,
        {"how": "calculated", "epsilon": epsilon, "delta": delta},
    )
