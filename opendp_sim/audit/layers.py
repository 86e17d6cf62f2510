"""Order the layers of an audit, and pass their arguments.

The risk of a false alarm is bounded over everything together. L1, L4 and the replay are exact and spend
none. L0, the coupling test of L1, L2 and L3 get fixed shares of beta that add up to it; inside a
layer, L3's wealth needs no further split (one supermartingale), the others divide by their tests.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from opendp_sim.audit.checks.distribution import distribution_layer, enumeration_layer
from opendp_sim.audit.checks.noise import noise_layer
from opendp_sim.audit.checks.stability import StabilitySearch
from opendp_sim.audit.checks.structure import structure_layer
from opendp_sim.audit.findings import Effort, LayerResult
from opendp_sim.audit.generators.domain_filter import MemberPairs
from opendp_sim.audit.generators.neighbours import Pair, PairSpace
from opendp_sim.audit.instrument.reset_state import Kept
from opendp_sim.audit.outputs.encoding import Raised, outcome
from opendp_sim.audit.seeds.constants import Mined
from opendp_sim.audit.subject import Subject
from opendp_sim.audit.trace.context import Tracer
from opendp_sim.audit.trace.layer import trace_layer, traced_distribution
from opendp_sim.audit.trace.suspicious_pairs import suspicious_pairs
from opendp_sim.audit.work import work_seconds

SHARES = {"structure": 0.05, "coupling": 0.05, "noise": 0.2, "trace": 0.3, "distribution": 0.4}
"""How beta is divided; they add up to one."""
_FIRST_LOOK = 0.08
"""Part of L1's seconds that it gets before L2, and the most seconds that can be."""
_LONGEST_FIRST_LOOK = 1.0
_ASKED = 4
_FIRST_CALLS = 0.2
"""Part of L3's seconds that first calls get, where later ones differ."""
_FIRST = "LT first calls"
_IF_PUBLIC = "if what its code keeps before any call is public, which is put back before each"


def tracer_of(case: LayerInput, functions: list[types.FunctionType], found: Mined) -> Tracer:
    """Return what records the noise of a function while it runs."""
    share = case.beta * SHARES["trace"]
    return Tracer(
        case.subject,
        case.space,
        case.d_in,
        case.budget,
        case.rng,
        share,
        case.given,
        functions,
        found,
    )


@dataclass(frozen=True)
class LayerInput:
    """What the layers are given."""

    subject: Subject
    space: PairSpace
    fast: PairSpace
    """The same for L0 and L1, which ask for membership only where a pair matters."""
    members: MemberPairs
    """The same without the user's pairs."""
    d_in: Any
    budget: Effort
    rng: np.random.Generator
    beta: float
    given: tuple[Pair, ...]
    pmf: Any
    composed: bool
    events: Any
    output_distance: Any
    tracer: Tracer | None = None
    kept: Kept | None = None
    """What its functions kept before any run."""


def layers_of(case: LayerInput) -> Iterable[LayerResult]:
    """Yield the layers in order; each is run only when asked for."""
    begin = work_seconds()
    subject, space, spend, rng = case.subject, case.space, case.budget, case.rng
    risk = {layer: case.beta * share for layer, share in SHARES.items()}
    yield structure_layer(
        subject, case.fast, case.members, spend, rng, risk["structure"], composed=case.composed
    )
    # Exact, and done in milliseconds: whatever it shows needs no trace.
    yield enumeration_layer(subject, space, spend, rng, case.pmf)
    if case.tracer is not None:
        risk["distribution"] /= 2
        case.tracer.begin = work_seconds()
        yield trace_layer(case.tracer)
        yield from _first_calls(case, risk["distribution"])
    else:  # nothing was drawn for it, so its part of the risk is free
        risk["distribution"] += risk["trace"]
    search = StabilitySearch(
        subject, case.fast, case.d_in, spend, rng, risk["coupling"], case.output_distance
    )
    # Gross faults of the noise are common and seen at once: only a short look comes before them.
    first = min(_FIRST_LOOK * spend.stability_seconds, _LONGEST_FIRST_LOOK)
    found = search.look(first)
    noise = None
    if found.status == "not refuted":
        noise = noise_layer(subject, space, spend, rng, risk["noise"], _worth(found))
        if noise.status != "refuted":
            found = search.look(spend.stability_seconds - first)
    yield found
    hint = _worth(found)
    yield noise or noise_layer(subject, space, spend, rng, risk["noise"], hint)
    hints = (*case.given, hint) if hint is not None else case.given
    if subject.traced:  # what is released is no noisy version of what a transcript hides
        subject = replace(subject, core=None, noise=None)
    rest = spend.left(work_seconds() - begin)
    if case.tracer is not None:
        yield traced_distribution(case.tracer, rest, risk["distribution"], hints, case.events)
        return
    yield distribution_layer(
        subject, space, case.d_in, rest, rng, risk["distribution"], hints, case.events
    )


def _first_calls(case: LayerInput, beta: float) -> Iterator[LayerResult]:
    """Bet on first calls, with the state restored before each.

    Nothing is looked at where runs change nothing, and where the object answers once only or repeats
    itself (its noise may have been drawn before). What is found is priced where the state may be secret.
    """
    kept = case.kept
    if kept is None or not kept.changed() or _used_up(case):
        return
    public = kept.public
    with kept.lent():
        found = _bets_on_first(case, kept, beta)
    if found is None or kept.unknown or found.evidence is None:
        return
    told = found.evidence
    detail = f"on a first call, with what its code keeps as it was: {told.detail}"
    told = replace(told, detail=detail, extra={**told.extra, "first": True})
    if public:
        yield replace(found, layer=_FIRST, evidence=told)
        return
    told = replace(told, confidence=f"{told.confidence}, {_IF_PUBLIC}")
    facts = {**found.facts, "priced": told}
    yield replace(found, layer=_FIRST, status="not refuted", evidence=None, facts=facts)


def _bets_on_first(case: LayerInput, kept: Kept, beta: float) -> LayerResult | None:
    """Bet on first calls, if not all noise is put back."""
    if not kept.fresh(case.subject.run, case.space.draw(case.rng).left):
        return None
    subject = replace(case.subject, run=kept.first(case.subject.run), outer=None)
    spend = replace(case.budget, seconds=_FIRST_CALLS * case.budget.seconds)
    seen = () if case.tracer is None else suspicious_pairs(case.tracer)[:4]
    return distribution_layer(
        subject, case.space, case.d_in, spend, case.rng, beta, (*case.given, *seen), case.events
    )


def _used_up(case: LayerInput) -> bool:
    """Return whether a used object raises on every dataset."""
    drawn = (case.space.draw(case.rng).left for _ in range(_ASKED))
    return all(isinstance(outcome(case.subject.run, data), Raised) for data in drawn)


def _worth(found: LayerResult) -> Pair | None:
    """Return the pair that L1 liked best, if anything moved there."""
    pair: Pair | None = found.facts.get("pair")
    return pair if found.facts.get("largest_ratio") else None
