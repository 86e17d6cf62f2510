"""Run the steps of layer LT in order, each on the scan."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from opendp_sim.audit.findings import Evidence
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.compare_tapes import View, clean_tapes, decode, look, numbers
from opendp_sim.audit.instrument.tape import Draw, TapeEndError
from opendp_sim.audit.statistics.sampling import differ
from opendp_sim.audit.statistics.score_bets import lean_bets
from opendp_sim.audit.trace.bets import CALCULATED, confirmed, drawn, verdict_run
from opendp_sim.audit.trace.closed_form import Shift, closed_form, fits, shift_of
from opendp_sim.audit.trace.context import Tracer
from opendp_sim.audit.trace.enumerate_draws import tree_step
from opendp_sim.audit.trace.one_draw import level_step, support_step
from opendp_sim.audit.trace.repeated_calls import repeated_step
from opendp_sim.audit.trace.scan import Found
from opendp_sim.audit.work import work_seconds

_SHRINK, _KEEP, _PLENTY = 0.4, 0.97, 4.0
_CONFIRMED = 3.0
"""Seconds for draws that confirm what was calculated: a slow run needs them more than L3 does."""
_ONE, _ALL, _NEARLY = 0.4, 0.5, 0.9
"""Parts of the seconds left that one pair, and all of them, may take: runs on large datasets are slow;
and the part of the largest loss that a small pair must have."""


# --- the loss along the tape --------------------------------------------------------------


def loss_step(tracer: Tracer) -> Evidence | None:
    """Refute the costliest pairs by closed forms or bets."""
    over = [found for found in tracer.seen.best if found.loss > 1 + 1e-9]
    stop = max(0.8, (1 - _ALL) * tracer.left()) if tracer.seen.odd else 0.8
    for found in _varied(over, _plenty(tracer)):
        if tracer.left() < stop:
            break
        with tracer.within(_ONE):
            evidence = _priced(tracer, found)
            if evidence is not None:
                return evidence
    return None


def _plenty(tracer: Tracer) -> float:
    """Return the loss beyond which refutation gets no faster."""
    return _PLENTY * max(1.0, 1 / tracer.claim[1])


def _varied(over: list[Found], plenty: float) -> list[Found]:
    """Return varied findings."""

    def length(f: Found) -> int:
        return len(repr(f.pair.left)) + len(repr(f.pair.right))

    small = sorted(over, key=lambda f: (length(f), -f.loss))
    much = min(plenty, _NEARLY * over[0].loss) if over else 0.0
    out = [f for f in small if f.loss >= much][:1]
    for more in (small[:1], [f for f in over if not f.view.finding][:1]):
        out += [found for found in more if found not in out]
    return out


def _priced(tracer: Tracer, found: Found) -> Evidence | None:
    pair, view = shrunk(tracer, found.pair, flip=_costlier_flipped(tracer, found.pair))
    decoded = None if tracer.hidden else decode(tracer.tape, tracer.function, pair)
    shift = None if decoded is None else shift_of(view.draws, view.other, decoded)
    where = _places(view.draws, view.other)
    detail = f"at equal noisy values the loss is {view.loss:.4g} times the claim{where}"
    if shift is not None and _steady(tracer, pair, view):
        closed = closed_form(shift, tracer.subject.measure, tracer.claimed)
        if closed is not None and clean_tapes(tracer.tape, tracer.function, pair):
            tracer.extend(_CONFIRMED)
            evidence = _calculated(tracer, pair, shift, detail, closed)
            if evidence is not None:
                return evidence
        run, words = verdict_run(tracer)
        won = lean_bets(
            partial(_row, run, shift),
            pair,
            shift.score,
            tracer.curve,
            min(2.5, tracer.left()),
            tracer.risk(0.04),
        )
        return None if won is None else drawn(detail, won, tracer, words)
    return None  # what is hidden only lowers the loss: the race of L3 sees it


def _costlier_flipped(tracer: Tracer, pair: Pair) -> bool:
    """Say whether the pair costs more when its right is run first."""
    losses = []
    for side in (pair, pair.flipped()):
        try:
            losses.append(look(tracer.tape, tracer.function, side, tracer.claim).loss)
        except TapeEndError:
            losses.append(-1.0)
    return losses[1] > losses[0]


def shrunk(tracer: Tracer, pair: Pair, *, flip: bool = False) -> tuple[Pair, View]:
    """Return the smallest pair with the same finding, without draws."""

    def side(of: Pair) -> Pair:
        return of.flipped() if flip else of

    view, plenty = look(tracer.tape, tracer.function, side(pair), tracer.claim), _plenty(tracer)
    end, better = work_seconds() + _SHRINK, pair.genome is not None
    while better and work_seconds() < end:
        better = False
        for small in tracer.space.simpler(pair):
            if work_seconds() > end:
                break
            if not differ(small.left, small.right):
                continue
            try:
                seen = look(tracer.tape, tracer.function, side(small), tracer.claim)
            except Exception:  # noqa: BLE001, S112 - a smaller dataset that cannot be run
                continue
            kept = seen.loss - 1 >= _KEEP * (min(view.loss, plenty) - 1)
            if seen.finding == view.finding and kept:
                pair, view, better = small, seen, True
                break
    return side(pair), view


def _places(draws: tuple[Draw, ...], other: tuple[Draw, ...]) -> str:
    """Return the costliest draw with its arguments and source line."""
    best = None
    for number, (a, b) in enumerate(zip(draws, other, strict=False), 1):
        law = a.law or a.free
        if law is None or repr(a.argument) == repr(b.argument):
            continue
        cost = (
            law.loss(a.argument, b.argument)[0]
            if np.shape(a.argument) == np.shape(b.argument)
            else math.inf
        )
        if best is None or cost > best[0]:
            shown = f"{_short(a.argument)} on the left, {_short(b.argument)} on the right"
            best = cost, f" (draw {number}: {a.what}, of {shown}, {a.site})"
    return "" if best is None else best[1]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _steady(tracer: Tracer, pair: Pair, view: View, tapes: int = 10) -> bool:
    """Return whether arguments and laws agree on every tape."""
    for data, draws in ((pair.left, view.draws), (pair.right, view.other)):
        told = [d.told for d in draws]
        for _ in range(tapes):
            try:
                _, again = tracer.tape.run(tracer.function, data, "record")
            except TapeEndError:
                return False
            if [d.told for d in again] != told:
                return False
    return True


def _row(run: Callable[[Any], Any], shift: Shift, data: Any) -> list[float]:
    out = numbers(run(data))
    return (
        out if out is not None and len(out) == shift.decoded.width else [0.0] * shift.decoded.width
    )


def _calculated(
    tracer: Tracer, pair: Pair, shift: Shift, detail: str, closed: tuple[Any, Any]
) -> Evidence | None:
    """Record a closed form as priced, or as finding with bets."""
    if not fits(shift, pair, tracer.obj, tracer.rng):
        return None
    claimed = tracer.curve.text if callable(closed[0]) else closed[0]
    price = Evidence(
        "loss", detail, claimed, closed[1], pair, None, CALCULATED, {"how": "calculated"}
    )
    run, words = verdict_run(tracer)
    looks = (
        (partial(_row, tracer.obj, shift), "releases of the object", 0.5),
        (partial(_row, run, shift), words, _CONFIRMED),
    )
    return confirmed(tracer, price, shift.score, looks)


STEPS: tuple[Callable[[Tracer], Evidence | None], ...] = (
    repeated_step,
    loss_step,
    tree_step,
    level_step,
    support_step,
)
"""What is tried, in this order. ``layer.md`` lists the parts of beta that each of them takes."""
