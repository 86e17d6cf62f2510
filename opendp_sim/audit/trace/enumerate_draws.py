"""Refute by enumerated draws of an opaque function (step R4)."""

from __future__ import annotations

import contextlib
import math
from typing import Any

from opendp_sim.audit.findings import Evidence
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.tape import OutOfTimeError
from opendp_sim.audit.statistics.score_bets import lean_bets, valued
from opendp_sim.audit.trace.bets import CALCULATED, allowed
from opendp_sim.audit.trace.context import Tracer
from opendp_sim.audit.trace.draw_tree import (
    MOST_RUNS,
    Tree,
    agrees,
    clean_tapes,
    tree_hockey_stick,
    tree_of,
    values_of,
)
from opendp_sim.audit.trace.scan import Found, equal_runs
from opendp_sim.audit.work import work_seconds

_FAR = 10
"""Other paths may draw less than the one that was seen: a tree is given up at so many times its bound."""


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
    return math.prod(values_of(draw) for draw in found.view.draws) > _FAR * MOST_RUNS


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
                and agrees(first, tracer.obj, side.left, event)
                and agrees(second, tracer.obj, side.right, event)
            ):
                continue
            evidence = _tree_evidence(
                tracer, side, (first, second), float(epsilon), float(delta), attained, event
            )
            if evidence.extra["how"] != "calculated":
                return evidence
            tracer.price(evidence)
    return None


def _likeliest(tree: Tree, event: frozenset[str]) -> str:
    """Return the likeliest outcome of the event, or of all."""
    inside = [o for o in tree.masses if o in event and tree.masses[o] > 0]
    return max(inside or tree.masses, key=lambda o: tree.masses[o])


def _tree_evidence(
    tracer: Tracer,
    pair: Pair,
    trees: tuple[Tree, Tree],
    epsilon: float,
    delta: float,
    attained: float,
    event: frozenset[str],
) -> Evidence:
    table = dict.fromkeys(event, 1.0)
    won = None
    with contextlib.suppress(OutOfTimeError):  # what is calculated is priced without draws
        won = lean_bets(
            valued(tracer.obj, table),
            pair,
            lambda rows: rows[:, 0],
            tracer.curve,
            min(0.8, max(0.1, tracer.left())),
            tracer.risk(0.03),
            first=400,
        )
    how, confidence = "calculated", CALCULATED
    extra: dict[str, Any] = {"epsilon": epsilon, "delta": delta}
    if won is not None:
        how = "calculated and drawn"
        risk = math.exp(-won.wealth.peak)
        confidence = f"calculated, and 1 - {risk:.1g} (betting on releases of the object)"
        extra |= {"log_wealth": won.wealth.peak, "rounds": won.wealth.rounds}
    p, q = (math.fsum(t.masses.get(o, 0.0) for o in event) for t in trees)
    outcomes = [_likeliest(tree, event) for tree in trees]
    return Evidence(
        "event",
        "every value of every draw was followed: an event is likelier than the claim allows",
        allowed(tracer, epsilon, delta),
        f"{p:.6g} on the left, {q:.6g} on the right: delta {attained:.6g} at epsilon {epsilon:.4g}",
        pair,
        (outcomes[0], outcomes[1]),
        confidence,
        {"how": how, **extra},
    )
