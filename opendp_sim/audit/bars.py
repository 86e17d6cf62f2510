"""Pairs at a bar: as many equal records as the code names, and one more, of their kind or of another.

A noisy comparison tells most where a count stands at its threshold. One more record of the same kind
moves all counts, which the threshold's own noise hides; one that moves some and leaves the others shows
them against each other.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from opendp_sim.audit.clock import cpu_seconds
from opendp_sim.audit.members import quiet_member
from opendp_sim.audit.neighbours import Pair
from opendp_sim.audit.tape import Mode, TapeEndError
from opendp_sim.audit.tracer import Tracer
from opendp_sim.audit.views import View, alike, look

__all__ = ["FIRST_CORNERS", "at_bars", "split_at_bars"]

FIRST_CORNERS = 24
"""The simplest kinds of records are among so many corners."""
_LARGEST_BAR, _MOST_BARS, _KINDS, _SECONDS = 200, 24, 2, 0.48
"""Sizes named by the code that are tried, how many of them, and of how many kinds of records; seconds."""
_SPLIT_BARS, _OTHERS, _SPLIT_PAIRS, _FEWEST, _SHARE = 8, 12, 4, 4, 0.2
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
    the path tells more (``trace.md``). Noise that the function adds itself has no such sum.
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
            if share >= _SHARE and (best is None or share > best[0]):
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
