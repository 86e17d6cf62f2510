"""Search pairs under undisclosed noise.

Fast draws rank the pairs, bets decide. The draws that rank are numpy's imitation of OpenDP's integer
noise, so they prove nothing; the bets that follow are on new draws of the object, or of its function
with OpenDP's own noise.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from opendp_sim.audit.findings import Evidence
from opendp_sim.audit.generators.domain_filter import quiet_member
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.generators.spaces import metric_name
from opendp_sim.audit.statistics.sampling import differ
from opendp_sim.audit.trace.bets import bet_freely, bet_on_table, strength
from opendp_sim.audit.trace.context import Tracer
from opendp_sim.audit.trace.output_sample import Glance
from opendp_sim.audit.trace.scan import Found
from opendp_sim.audit.work import work_seconds

_LARGEST_BLOCK, _LEVELS, _GIVEN, _PRICES = 64, 4, 4, 4
_ROUNDS = ((0.6, 8), (0.5, 4), (0.6, 3))
"""Seconds of each round, and how many pairs are kept."""
_SHORTEST, _WORTH, _CLEAR = 0.02, 0.7, 2.5
_ALIKE, _SURE, _SIMPLE = 1.5, 5.0, 4
"""Worth from which a pair gets more seconds, and from which the race ends; how many of the simplest
pairs race."""
_MORE_SECONDS, _LEAD = 2.5, 1.0
"""Seconds; and standard errors that a pair which costs more than the claim along its tape is ahead."""
_SLOW, _SHARE = 3e-3, 0.08
"""Seconds of a run from which there are no draws to spare for a race; and the share of what is left that
each of the given pairs gets then."""
_DEAR = "the costliest pairs along their tapes break the claim"
_GIVEN_WORDS = "a pair that was given breaks the claim"
_FIRST_CORNERS = 24
"""The simplest kinds of records are among so many corners."""


@dataclass
class _Case:
    """A pair in the race, and what was drawn of it."""

    name: str
    pair: Pair
    seen: Glance = field(default_factory=Glance)
    worth: float = 0.0
    lead: float = 0.0
    """What its price along its tape is worth while little of it was drawn."""


def hidden_step(tracer: Tracer) -> Evidence | None:
    """Race odd and costly pairs, and bet on the best three."""
    if tracer.stateful or not (tracer.hidden or _draws(tracer)):
        return None
    ranked = _ranked(tracer)
    if ranked and ranked[0].worth > _ALIKE:
        tracer.extend(_MORE_SECONDS)
    for case in ranked[:3]:
        if tracer.left() < 0.4:
            break
        if case.worth > _WORTH:
            seconds = (0.85 if case.worth > _CLEAR else 0.7) * tracer.left()
            evidence = bet_on_table(tracer, case.pair, case.name, seconds, 0.06, 20_000, case.seen)
        else:
            evidence = bet_freely(tracer, case.pair, case.name, min(0.4, tracer.left()), 0.04)
        if evidence is not None:
            return evidence
    return None


def _ranked(tracer: Tracer) -> list[_Case]:
    """Return the cases by strength, after several rounds of draws."""
    over = {id(found.pair) for found in tracer.seen.best if found.loss > 1 + 1e-9}
    racing = [_Case(name, pair, lead=_LEAD * (id(pair) in over)) for name, pair in cases(tracer)]
    if tracer.seconds_a_run > _SLOW:
        return _slowly(tracer, over)
    for total, keep in _ROUNDS:
        end = work_seconds() + min(1.5 * total, 0.3 * tracer.left())
        each = max(_SHORTEST, total / max(len(racing), 1))
        for number, case in enumerate(racing):
            if work_seconds() > end and number:
                break
            case.worth = strength(tracer, case.pair, each, case.seen)
        racing = sorted(racing, key=lambda case: -case.worth - case.lead)[:keep]
        if any(case.worth > _SURE for case in racing):
            break
    return sorted(racing, key=lambda case: -case.worth)


def _slowly(tracer: Tracer, over: set[int]) -> list[_Case]:
    """Return the costliest pair, or the best excessive user's pair."""
    given = [_Case(_GIVEN_WORDS, pair) for pair in tracer.given if id(pair) in over][:_GIVEN]
    dear = given or [_Case(_DEAR, found.pair) for found in tracer.seen.best[:1]]
    if len(dear) > 1:
        for case in dear:
            case.worth = strength(tracer, case.pair, _SHARE * tracer.left(), case.seen)
        dear = [max(dear, key=lambda case: case.worth)]
    for case in dear:
        case.worth = _CLEAR * 1.01
    return dear


def _draws(tracer: Tracer) -> bool:
    """Say whether there is anything to race."""
    return bool(tracer.seen.best) and any(f.view.draws for f in tracer.seen.best[:20])


def cases(tracer: Tracer, levels: int = _LEVELS) -> Iterator[tuple[str, Pair]]:
    """Yield members' opposed blocks, odd pairs and costliest pairs, once each."""
    known, member = set(), quiet_member(tracer.subject.input_domain)
    for name, pair in _all(tracer, levels):
        key = repr(pair.left), repr(pair.right)
        if key not in known and (key[1], key[0]) not in known:
            known.add(key)
            if member(pair.left) and member(pair.right):
                yield name, pair


def _all(tracer: Tracer, levels: int) -> Iterator[tuple[str, Pair]]:
    for name, odd in tracer.seen.odd.items():  # first: a slow run leaves no time for all cases
        yield name, min(odd, key=_length).pair
    together = "answers that move together are likelier than the claim allows"
    for pair in tracer.given[:_GIVEN]:
        yield _GIVEN_WORDS, pair
    for pair in _opposed(tracer, levels):
        yield together, pair
    for pair in _simplest(tracer):
        yield "the simplest pairs break the claim", pair
    for name, odd in tracer.seen.odd.items():
        small = sorted(odd, key=_length)
        yield from ((name, found.pair) for found in small[:4])
        for spot in tracer.rng.integers(0, len(small), 4) if len(small) > 4 else ():
            yield name, small[int(spot)].pair
        yield from ((name, found.pair) for found in sorted(odd, key=lambda f: -f.loss)[:2])
        yield from ((name, found.pair) for found in sorted(odd, key=_fewer)[:2])
    best = tracer.seen.best
    yield from ((_DEAR, found.pair) for found in best[:10:2])
    yield from ((_DEAR, found.pair) for found in sorted(best[:100], key=_length)[:6])
    levels_of = {round(f.loss, 3): f for f in sorted(best, key=_length, reverse=True) if f.loss > 1}
    between = sorted(levels_of.values(), key=_length)[:_PRICES]
    yield from ((_DEAR, found.pair) for found in between)


def _simplest(tracer: Tracer) -> Iterator[Pair]:
    """Yield the simplest pairs of one or two records.

    An argmax, a vote or a cut shows nothing along a tape on these, so the scan does not bring them.
    """
    corners = list(itertools.islice(tracer.space.corners(tracer.rng), _FIRST_CORNERS))
    lists = [pair for pair in corners if isinstance(pair.left, list)]
    bare = [p for p in lists if not p.left and p.right]
    if not bare:  # the number of records is public: all alike, and one of them is changed
        changed = [p for p in lists if len(p.left) == len(p.right) and differ(p.left, p.right)]
        yield from [p for p in changed if all(r == p.left[0] for r in p.left)][:_SIMPLE]
    yield from bare[:_SIMPLE]
    kinds = [p.right[0] for p in bare[:_SIMPLE] if len(p.right) == tracer.d_in]
    bases = [[kind] for kind in kinds[:2]] + [list(kinds)] * (len(kinds) > 1)
    for base in bases:
        for more in base[:2]:
            yield Pair(base, [*base, *[more] * tracer.d_in], tracer.d_in)


def _fewer(found: Found) -> tuple[int, int]:
    """Return a sort key by the difference in draws."""
    return len(found.view.other) - len(found.view.draws), _length(found)


def _length(found: Found) -> int:
    return len(repr(found.pair.left)) + len(repr(found.pair.right))


def _opposed(tracer: Tracer, levels: int) -> Iterator[Pair]:
    """Yield vectors with opposed shifts."""
    metric, left = tracer.subject.input_metric, tracer.top.left
    if metric is None or metric_name(metric) != "LInfDistance" or not isinstance(left, list):
        return
    if not 2 <= len(left) <= _LARGEST_BLOCK:
        return
    member = quiet_member(tracer.subject.input_domain)
    monotone = "monotonic" in str(metric)
    kind = type(left[0])
    whole = sorted(c for c in tracer.mined.numbers if c == int(c) and 2 <= abs(c) < 1000)
    for level in (0, *(int(c) for c in whole[:levels])):
        blocks = _blocks(len(left), tracer.d_in, monotone=monotone)
        for first, second in blocks if level == 0 else blocks[:2]:
            pair = Pair(
                [kind(level + v) for v in first], [kind(level + v) for v in second], tracer.d_in
            )
            if member(pair.left) and member(pair.right):
                yield pair


def _blocks(n: int, d: Any, *, monotone: bool) -> list[tuple[list[Any], list[Any]]]:
    h = n // 2
    if monotone:
        return [([0] * n, [d] * n), ([0] * n, [0] * h + [d] * (n - h))]
    return [
        ([0] * h + [d] * (n - h), [d] * h + [0] * (n - h)),
        (([0, d] * n)[:n], ([d, 0] * n)[:n]),
        ([0] * (n - 1) + [d], [d] * (n - 1) + [0]),
        ([0] + [d] * (n - 1), [d] + [0] * (n - 1)),
        ([0] * n, [d] * n),
    ]
