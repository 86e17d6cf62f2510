"""Pairs that a price does not decide: hidden noise, odd structure. Fast draws rank them, bets decide.

The draws that rank are numpy's imitation of OpenDP's integer noise, so they prove nothing; the bets that
follow are on new draws of the object, or of its function with OpenDP's own noise.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from opendp_sim.audit.clock import cpu_seconds
from opendp_sim.audit.findings import Evidence
from opendp_sim.audit.generators.domain_filter import quiet_member
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.generators.spaces import metric_name
from opendp_sim.audit.instrument.compare_tapes import View, alike, look, numbers
from opendp_sim.audit.instrument.tape import Mode, TapeEndError
from opendp_sim.audit.statistics.sampling import differ
from opendp_sim.audit.statistics.score_bets import text_of
from opendp_sim.audit.trace.bets import bet_freely, bet_on_table, strength
from opendp_sim.audit.trace.context import Tracer
from opendp_sim.audit.trace.output_sample import Glance
from opendp_sim.audit.trace.scan import Found

# --------------------------------------------------------------------------------------------------
# Pairs at a bar: as many equal records as the code names, and one more, of their kind or of another.
#
# A noisy comparison tells most where a count stands at its threshold. One more record of the same kind
# moves all counts, which the threshold's own noise hides; one that moves some and leaves the others shows
# them against each other.

FIRST_CORNERS = 24
"""The simplest kinds of records are among so many corners."""
_LARGEST_BAR, _MOST_BARS, _KINDS, _SECONDS = 200, 24, 2, 0.48
"""Sizes named by the code that are tried, how many of them, and of how many kinds of records; seconds."""
_SPLIT_BARS, _OTHERS, _SPLIT_PAIRS, _FEWEST, _BARS_SHARE = 8, 12, 4, 4, 0.2
"""The same of pairs that move some cells only: sizes, kinds of the one more, and pairs; least cells, and
the part of them that is left behind at least."""
_MANY = 64
"""Records of a kind that surely move what any of them moves."""
_ABOUT = (-16, -10, 2, 6)
"""Records more or less at which a bar is looked for."""


def at_bars(tracer: Tracer) -> Iterator[tuple[bool, Pair]]:
    """One record more at each size that the code names: noisy comparisons tell most at their bar.

    With each, whether the answer without noise changes there. Only pairs that cost more than the claim
    along their tapes: where the sum is within it, no output of
    the path tells more (``layer.md``). Noise that the function adds itself has no such sum.
    """
    sizes = [n for n in tracer.mined.sizes if n <= _LARGEST_BAR][:_MOST_BARS]
    end = cpu_seconds() + _SECONDS
    for n, kind in itertools.product(sizes, _kinds(tracer)):
        pair = Pair([kind] * n, [kind] * (n + tracer.d_in), tracer.d_in)
        if cpu_seconds() > end:
            return
        view = _look(tracer, pair)
        if view is not None and (view.loss > 1 or view.finding or view.foreign):
            yield _is_bar(tracer, kind, n), pair


def split_at_bars(tracer: Tracer) -> list[Pair]:
    """Return pairs at a bar whose one more record moves some noisy numbers and not the others.

    Of every size and kind the one that is split most evenly, if it costs more than the claim; first
    those at whose size the answer without noise changes.
    """
    kinds, end = [k for k in _kinds(tracer) if _whole(k)], cpu_seconds() + _SECONDS / 2
    if not kinds:
        return []
    others, found = _others(tracer), list[tuple[bool, float, Pair]]()
    for n, kind in itertools.product(_named(tracer)[:_SPLIT_BARS], kinds):
        best: tuple[float, Pair] | None = None
        for other in others:
            if cpu_seconds() > end:
                break
            pair = Pair([kind] * n, [kind] * n + [other] * tracer.d_in, tracer.d_in)
            view = _look(tracer, pair)
            share = 0.0 if view is None or not view.loss > 1 else _evenness(view)
            if share >= _BARS_SHARE and (best is None or share > best[0]):
                best = share, pair
        if best is not None:
            found.append((_is_bar(tracer, kind, n), *best))
    return [pair for *_, pair in sorted(found, key=lambda f: (not f[0], -f[1]))[:_SPLIT_PAIRS]]


def _is_bar(tracer: Tracer, kind: Any, n: int) -> bool:
    """Say whether the answer on one tape changes about this size, and stays beyond it on a side.

    The tape has no noise, where it can be set; else the answer to some fewer records may change already.
    """
    sizes = [max(n + by, 0) for by in _ABOUT]
    forced: list[Any] | None = None
    outs = []
    for size in sizes:
        try:
            mode: Mode = "zero" if forced is None else "force"
            out, draws = tracer.tape.run(tracer.function, [kind] * size, mode, forced)
        except TapeEndError:
            return False
        if forced is None and any(d.law is None for d in draws):
            forced = [d.value for d in draws]
        outs.append(out)
    far, near, above, beyond = outs
    still = (sizes[0] < sizes[1] and alike(far, near)) or alike(above, beyond)
    return still and not alike(near, above)


def _named(tracer: Tracer) -> list[int]:
    """Return the whole numbers of the code that may be sizes."""
    return sorted(int(c) for c in tracer.mined.numbers if c == int(c) and 2 <= c <= _LARGEST_BAR)


def _others(tracer: Tracer) -> list[int]:
    """Return records that may move a part: halves of ranges that the code names, their ends, any."""
    named = _named(tracer)
    wanted = [v for n in reversed(named) for v in (n // 2, n)]
    drawn = [tracer.space.draw(tracer.rng).right for _ in range(2 * _OTHERS)]
    some = [r for data in drawn if isinstance(data, list) for r in data[:1] if _whole(r)]
    member = quiet_member(tracer.subject.input_domain)
    far = [v for v in some if abs(v) > _LARGEST_BAR][: _OTHERS // 2]
    every = dict.fromkeys([*wanted[: _OTHERS - len(far)], *far])
    return [v for v in every if member([v])]


def _whole(value: Any) -> bool:
    return type(value) is int


def _evenness(view: View) -> float:
    """Return the part of a path's hidden numbers that does not move as most of them do."""
    moves: list[float] = []
    for a, b in zip(view.draws, view.other, strict=False):
        first, second = (np.ravel(np.asarray(d.argument, dtype=object)) for d in (a, b))
        if a.argument is None or a.options is not None or len(first) != len(second):
            continue
        moves += [float(y > x) - float(y < x) for x, y in zip(first, second, strict=True)]
    if len(moves) < _FEWEST:
        return 0.0
    return 1 - max(map(moves.count, (-1.0, 0.0, 1.0))) / len(moves)


def _look(tracer: Tracer, pair: Pair) -> View | None:
    with contextlib.suppress(TapeEndError):
        return look(tracer.tape, tracer.function, pair, tracer.claim)
    return None


def _kinds(tracer: Tracer) -> list[Any]:
    """Return the simplest record and, of numbers, the largest: what counts ``v > c`` sees no zero.

    Of texts the simplest of which many move something: code may read none that is simpler.
    """
    corners = itertools.islice(tracer.space.corners(tracer.rng), FIRST_CORNERS)
    kinds = [p.right[0] for p in corners if isinstance(p.left, list) and not p.left and p.right]
    finite = [k for k in kinds if isinstance(k, (int, float)) and math.isfinite(k)]
    largest = [max(finite)] if finite and len(finite) == len(kinds) else []
    if any(isinstance(kind, str) for kind in kinds):
        moving = (k for k in kinds if _moves(tracer, k))
        kinds = [*itertools.islice(moving, _KINDS), *kinds]
    return list(dict.fromkeys([*kinds[:1], *largest, *kinds[1:]]))[:_KINDS]


def _moves(tracer: Tracer, kind: Any) -> bool:
    """Say whether many records of a kind, against none, move anything on one tape."""
    view = _look(tracer, Pair([], [kind] * _MANY, _MANY))
    return view is not None and (view.moved or view.loss > 0 or bool(view.finding))


# --------------------------------------------------------------------------------------------------
# Pairs whose outputs lie furthest apart on the same draws, where no draw has a law that prices it.
#
# A program that turns a uniform number into its release (an inverse transform, a choice by cumulated
# weights) hides no argument in its draws, so that nothing is priced. But its draws are the same whatever
# the dataset is. So some tapes are recorded once, evenly spread where one number is drawn, and forced on
# both sides of many pairs. What that shows orders pairs, and proves nothing.

_RECORDED, _RECORDING, _TAPES, _MOST_DRAWS = 600, 0.1, 48, 4
_SAME_TAPES_SECONDS, _SAME_TAPES_SHARE, _PAIRS, _KEPT, _CELLS = 0.9, 0.12, 3000, 4, 6


def apart_on_same_tapes(tracer: Tracer) -> Iterator[Pair]:
    """Yield pairs that differ most on equal draws; none where draws have laws, or depend on the data."""
    tapes = _tapes(tracer)
    if not tapes:
        return
    epsilon = tracer.claim[1]
    end = cpu_seconds() + min(_SAME_TAPES_SECONDS, _SAME_TAPES_SHARE * tracer.left())
    found: list[tuple[float, int, Pair]] = []
    drawn = (tracer.space.draw(tracer.rng) for _ in itertools.count())
    pairs = itertools.chain(tracer.space.corners(tracer.rng), drawn)
    for number, pair in enumerate(itertools.islice(pairs, _PAIRS)):
        if cpu_seconds() > end:
            break
        left, right = (_outputs(tracer, side, tapes) for side in (pair.left, pair.right))
        if left and right:
            worth = max(_apart(left, right, epsilon), _apart(right, left, epsilon))
            found = sorted([*found, (worth, number, pair)], key=lambda f: (-f[0], f[1]))[:_KEPT]
    yield from (pair for worth, _, pair in found if worth > 0)


def _tapes(tracer: Tracer) -> list[list[Any]]:
    """Return values of draws, of as many runs; nothing where they are no order of pairs."""
    best = tracer.seen.best[:1]
    draws = best[0].view.draws if best else ()
    free = all(d.law is None and d.options is None and d.free is None for d in draws)
    if not 0 < len(draws) <= _MOST_DRAWS or not free or tracer.hidden or not tracer.direct:
        return []
    out: list[list[Any]] = []
    for _ in range(_RECORDED):
        try:
            out.append(
                [d.value for d in tracer.tape.run(tracer.function, best[0].pair.left, "record")[1]]
            )
        except TapeEndError:
            return []
    if {len(values) for values in out} != {len(draws)}:
        return []
    if len(draws) == 1 and all(isinstance(values[0], (int, float)) for values in out):
        step = len(out) // _TAPES
        out = sorted(out)[step // 2 :: step]
    return out[:_TAPES]


def _outputs(tracer: Tracer, data: Any, tapes: list[list[Any]]) -> list[Any]:
    try:
        return [tracer.tape.run(tracer.function, data, "force", tape)[0] for tape in tapes]
    except TapeEndError:
        return []


def _apart(first: list[Any], second: list[Any], epsilon: float) -> float:
    """Return by how much an event is likelier than allowed on these tapes, with a tape to spare."""
    factor, count = math.exp(min(epsilon, 50.0)), len(first)
    spare = 1.0 / count
    names = Counter(map(text_of, first)), Counter(map(text_of, second))
    if len(names[0].keys() | names[1].keys()) <= count // 2:
        over = (n / count - factor * (names[1][o] / count) for o, n in names[0].items())
        return sum(v for v in over if v > 0) - factor * spare
    cells = [numbers(out) for out in first], [numbers(out) for out in second]
    if not all(side and len(side) == len(cells[0][0] or []) for side in (*cells[0], *cells[1])):
        return 0.0
    mine, other = (np.array(side, dtype=float) for side in cells)
    return (
        max(_beyond(a, b, factor) for a, b in zip(mine.T[:_CELLS], other.T, strict=False))
        - factor * spare
    )


def _beyond(mine: Any, other: Any, factor: float) -> float:
    """Return the same of the best bar of one number, on either side of it."""
    bars = np.unique(mine)
    above = [np.mean(side[:, None] >= bars, axis=0) for side in (mine, other)]
    below = [np.mean(side[:, None] <= bars, axis=0) for side in (mine, other)]
    return float(max(np.max(p - factor * q) for p, q in (above, below)))


# --------------------------------------------------------------------------------------------------

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
_SPLIT = "a record that moves some of the answers and not the others breaks the claim"
_BAR = "at a bar that the code names the claim breaks"
_SAME = "on equal draws the outputs of a pair are furthest apart, and break the claim"
_LEADS = {_SPLIT: 1.5, _BAR: 1.0, _SAME: 1.0}
"""Standard errors that pairs are ahead which show little before some hundred draws."""


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
    """Race the pairs that the scan found odd or dear on fast draws; bet on the best three."""
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
    """Look at all cases for a moment and at the best for longer; what was seen before counts on."""
    over = {id(found.pair) for found in tracer.seen.best if found.loss > 1 + 1e-9}
    racing = [
        _Case(name, pair, lead=_LEADS.get(name, _LEAD * (id(pair) in over)))
        for name, pair in cases(tracer)
    ]
    if tracer.seconds_a_run > _SLOW:
        return _slowly(tracer, over)
    for total, keep in _ROUNDS:
        end = cpu_seconds() + min(1.5 * total, 0.3 * tracer.left())
        each = max(_SHORTEST, total / max(len(racing), 1))
        for number, case in enumerate(racing):
            if cpu_seconds() > end and number:
                break
            case.worth = strength(tracer, case.pair, each, case.seen)
        racing = sorted(racing, key=lambda case: -case.worth - case.lead)[:keep]
        if any(case.worth > _SURE for case in racing):
            break
    return sorted(racing, key=lambda case: -case.worth)


def _slowly(tracer: Tracer, over: set[int]) -> list[_Case]:
    """Take the dearest pair along its tape; or one that was given and is too dear, of those the best."""
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
    """Opposed blocks, odd pairs of every finding, and the dearest pairs, each once; members only."""
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
    yield from ((_SAME, pair) for pair in apart_on_same_tapes(tracer))
    together = "answers that move together are likelier than the claim allows"
    for pair in tracer.given[:_GIVEN]:
        yield _GIVEN_WORDS, pair
    for pair in _opposed(tracer, levels):
        yield together, pair
    for pair in split_at_bars(tracer):
        yield _SPLIT, pair
    for pair in _simplest(tracer):
        yield "the simplest pairs break the claim", pair
    for bar, pair in at_bars(tracer):
        yield _BAR if bar else "at a size that the code names the claim breaks", pair
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
    """One record against none, two against one, one beside one of each: ties and leaders need no more.

    An argmax, a vote or a cut shows nothing along a tape on these, so the scan does not bring them.
    """
    corners = list(itertools.islice(tracer.space.corners(tracer.rng), FIRST_CORNERS))
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
    """Order pairs by how many draws one side makes more: a record that brings many keys shows most."""
    return len(found.view.other) - len(found.view.draws), _length(found)


def _length(found: Found) -> int:
    return len(repr(found.pair.left)) + len(repr(found.pair.right))


def _opposed(tracer: Tracer, levels: int) -> Iterator[Pair]:
    """Many answers that move at once, some up and some down: sparse vector, noisy max, votes."""
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
