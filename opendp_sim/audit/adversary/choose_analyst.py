"""Choose the analyst with the largest expected excess over the claim.

What a conversation costs along its tape proves nothing here; it only chooses the analyst, before any
dataset is drawn from. The claim holds for every analyst. Many small losses show less than one of their
sum: their noise adds up to nearly a normal law, and an event has to be likely to be counted.
"""

from __future__ import annotations

import contextlib
import math
import types
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import special

from opendp_sim.audit.adversary.analyst import Driver
from opendp_sim.audit.generators.copies import on_its_own
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.compare_tapes import Claim, claim_of, look
from opendp_sim.audit.instrument.patch_rng import tapped
from opendp_sim.audit.instrument.python_queryable import asked_directly
from opendp_sim.audit.instrument.tape import OutOfTimeError, Tape, TapeEndError
from opendp_sim.audit.subject import Subject
from opendp_sim.audit.trace.explanations import share_of
from opendp_sim.audit.work import work_seconds

_SECONDS, _OVER, _LIKELY = 1.5, 1.05, 0.1
"""Nominal seconds of all pricing; what of the claim an event exceeds; and how likely it has to be."""


def costliest_analyst(
    subject: Subject,
    driver: Driver,
    d_in: Any,
    functions: list[types.FunctionType],
    pairs: Iterable[Pair],
    rng: np.random.Generator,
) -> Driver:
    """Return the driver with the largest excess for its length."""
    claimed = None if subject.privacy_map is None else subject.privacy_map(d_in)
    claim = None if claimed is None else claim_of(subject.measure, claimed)
    if not driver.others or claim is None or subject.outer is None:
        return driver
    tape, pairs = Tape(subject.outer, rng), list(pairs)
    tape.end = work_seconds() + _SECONDS
    best = 0.0, driver
    with tapped(tape, functions), contextlib.suppress(OutOfTimeError):
        for number, one in enumerate((driver, *driver.others)):
            run = _run(tape, subject.outer, one)
            worth = max((_worth(tape, run, pair, claim) for pair in pairs), default=0.0)
            if number:
                place = f".others[{number - 1}]"
                one = replace(one, options=driver.options, place=place)  # noqa: PLW2901
            best = max(best, (worth, one), key=lambda found: found[0])
    return best[1]


def _run(tape: Tape, outer: Any, driver: Driver) -> Callable[[Any], Any]:
    """Return the conversation as a function of the dataset."""

    def end() -> None:
        tape.ended = True

    direct = asked_directly(outer, driver, end)
    return on_its_own(direct or (lambda data: driver(outer(data))))


def _worth(tape: Tape, run: Callable[[Any], Any], pair: Pair, claim: Claim) -> float:
    """Return an event's excess over the claim per square root of draws."""
    try:
        view = look(tape, run, pair, claim)
    except TapeEndError:
        return 0.0
    shares = [share_of(a, b, claim) for a, b in zip(view.draws, view.other, strict=False)]
    shown = _shown([claim[1] * share for share in shares]) / claim[1]
    over = min(view.loss, shown if claim[0] == "epsilon" else view.loss) - _OVER
    return over / math.sqrt(len(shares)) if shares and math.isfinite(over) else 0.0


def _shown(losses: list[float]) -> float:
    """Return the log-ratio of an event of probability one tenth."""
    apart = math.sqrt(sum(loss * loss for loss in losses) / 2)
    return math.log(_LIKELY) - float(special.log_ndtr(special.ndtri(_LIKELY) - apart))
