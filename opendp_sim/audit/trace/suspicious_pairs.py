"""Choose the pairs that the distribution layer races first.

Odd and costly pairs of a scan along tapes, the simplest ones, and vectors whose cells move against
each other. Nothing here proves anything: layer L3 draws releases of them, and bets decide.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from opendp_sim.audit.generators.domain_filter import quiet_member
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.generators.spaces import metric_name
from opendp_sim.audit.statistics.sampling import differ
from opendp_sim.audit.trace.context import Tracer
from opendp_sim.audit.trace.scan import Found

_LARGEST_BLOCK, _LEVELS, _GIVEN, _PRICES, _SIMPLE, _FIRST_CORNERS, _MOST = 64, 4, 4, 4, 4, 24, 20
"""Cells of a vector, numbers of the code, given pairs, prices, simple pairs, corners, and all pairs."""


def suspicious_pairs(tracer: Tracer) -> tuple[Pair, ...]:
    """Return members' costliest, opposed, simplest and odd pairs, once each."""
    known, member = dict[tuple[str, str], Pair](), quiet_member(tracer.subject.input_domain)
    for pair in _all(tracer):
        key = repr(pair.left), repr(pair.right)
        if key[::-1] not in known and member(pair.left) and member(pair.right):
            known.setdefault(key, pair)
    return tuple(known.values())[:_MOST]


def _all(tracer: Tracer) -> Iterator[Pair]:
    best, odd = tracer.seen.best, list(tracer.seen.odd.values())
    yield from (min(some, key=_length).pair for some in odd)
    yield from (found.pair for found in best[:3])
    yield from tracer.given[:_GIVEN]
    yield from _opposed(tracer)
    yield from _simplest(tracer)
    for some in odd:
        small = sorted(some, key=_length)
        yield from (found.pair for found in small[:2])
        yield from (found.pair for found in sorted(some, key=lambda f: -f.loss)[:1])
        yield from (found.pair for found in sorted(some, key=_fewer)[:1])
    yield from (found.pair for found in sorted(best[:100], key=_length)[:4])
    levels_of = {round(f.loss, 3): f for f in sorted(best, key=_length, reverse=True) if f.loss > 1}
    yield from (found.pair for found in sorted(levels_of.values(), key=_length)[:_PRICES])


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


def _opposed(tracer: Tracer) -> Iterator[Pair]:
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
    for level in (0, *(int(c) for c in whole[:_LEVELS])):
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
