"""L0: does the shape of what happens depend on the data? Types, lengths, exceptions, inner releases.

Two ways. On the outside, releases of both neighbours are compared by type, shape and exception
alone, and a difference is certified by Clopper-Pearson against the claimed curve. On the inside,
for mechanisms that say they are nothing but a composition of OpenDP measurements, the releases of
one dataset are replayed to its neighbour: the same measurements must be called in the same order,
the output must be the same, and the inner losses must fit the claim. That part is deterministic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np

from opendp_sim.audit.clock import cpu_seconds
from opendp_sim.audit.counting import certified_delta
from opendp_sim.audit.encoding import structure
from opendp_sim.audit.findings import Budget, Evidence, LayerResult
from opendp_sim.audit.members import MemberPairs
from opendp_sim.audit.neighbours import Pair, PairSpace
from opendp_sim.audit.replay import replay
from opendp_sim.audit.sampling import draw, draw_both
from opendp_sim.audit.subject import Subject

__all__ = ["structure_layer"]

_LAYER = "L0 structure"
_PROBES, _FEW, _CONFIRM, _SUSPECTS = 3, 60, 400, 3
_LONGEST = 160
"""Characters of an exception."""


def structure_layer(
    subject: Subject,
    space: PairSpace,
    members: MemberPairs,
    budget: Budget,
    rng: np.random.Generator,
    beta: float,
    *,
    composed: bool,
) -> LayerResult:
    """Compare structures on a number of pairs; certify the first differences found.

    ``space`` has structured pairs that ``members`` did not ask about yet, those of the user first.
    """
    begin = cpu_seconds()
    if not subject.private:
        return LayerResult(_LAYER, "skipped", "a transformation's exceptions and shapes are L1's")
    pairs = _pairs(space, members, budget.structure_pairs * (4 if composed else 1), rng)
    runs, suspects, compared, seen, values = 0, 0, 0, Counter[str](), list[Any]()
    for pair in pairs:
        if cpu_seconds() - begin > 0.2 * budget.seconds:
            break
        if composed:
            for side in (pair, pair.flipped()):
                evidence = replay(subject, side)
                runs += 2
                if evidence is not None:
                    return _refuted(evidence, runs, begin)
        compared += 1
        drawn = draw_both(subject, pair, _PROBES)
        left, right = (Counter(structure(v) for v in side) for side in drawn)
        values += [v for side in drawn for v in side]
        runs += 2 * _PROBES
        seen.update(left + right)
        if not left & right and suspects < _SUSPECTS:
            suspects += 1
            evidence, more = _confirm(subject, pair, beta / (2 * _SUSPECTS))
            runs += more
            if evidence is not None:
                return _refuted(evidence, runs, begin)
    text = f"{compared} pair{'s' * (compared != 1)}" + (
        ", releases replayed both ways" if composed else ""
    )
    power = f"{text}: a shape or exception that always tells neighbours apart would have shown"
    only = bool(seen) and all(name.startswith("raises ") for name in seen)
    told = seen.most_common(1)[0][0].removeprefix("raises ")[:_LONGEST] if only else ""
    if only:
        power = f"every release raised ({told}): nothing else was seen"
    facts: dict[str, Any] = {"additive": _noisy_numbers(values)}
    facts |= {"raised": told} if only else {}
    seconds = cpu_seconds() - begin
    return LayerResult(_LAYER, "not refuted", "", runs, seconds, power=power, facts=facts)


def _noisy_numbers(values: list[Any]) -> bool:
    """Say whether all outputs are plain numbers, some of them such as only noise brings: no indices."""
    cells = [cell for value in values for cell in _cells(value)]
    plain = all(isinstance(c, (int, float, np.number)) and not isinstance(c, bool) for c in cells)
    return plain and any(c < 0 or c != c // 1 for c in cells)


def _cells(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, np.ndarray):
        value = value.ravel().tolist()
    return (
        [c for part in value for c in _cells(part)] if isinstance(value, (list, tuple)) else [value]
    )


def _refuted(evidence: Evidence, runs: int, begin: float) -> LayerResult:
    return LayerResult(_LAYER, "refuted", "", runs, cpu_seconds() - begin, evidence)


def _pairs(
    space: PairSpace, members: MemberPairs, count: int, rng: np.random.Generator
) -> list[Pair]:
    structured, first = list(space.corners(rng)), count // 2
    step = max(1, len(structured) // max(1, first))
    # Membership costs as much as a release: only of the pairs that are taken is it asked.
    out = list(islice(filter(members.has, structured[::step]), first))
    return out + [members.draw(rng) for _ in range(count - len(out))]


def _confirm(subject: Subject, pair: Pair, beta: float) -> tuple[Evidence | None, int]:
    """Certify in two stages, few runs first: a failing run can be slow. Returns the runs, too."""
    done = 0
    for runs in (_FEW, _CONFIRM):
        found = _certify(subject, pair, runs, beta / 2)
        done += 2 * (runs + 1)
        if found is not None:
            return found, done
    return None, done


def _certify(subject: Subject, pair: Pair, runs: int, beta: float) -> Evidence | None:
    """Certify an event about structure in either direction; chosen on the probes, counted afresh."""
    curve = subject.curve(pair.distance)
    names = [structure(draw(subject, data, 1)[0]) for data in (pair.left, pair.right)]
    first, second = (Counter(structure(v) for v in side) for side in draw_both(subject, pair, runs))
    sides = ((names[0], first, second, pair), (names[1], second, first, pair.flipped()))
    for name, sample, other, side in sides:
        hits = sample[name], other[name]
        for epsilon, delta in zip(curve.grid, curve.deltas, strict=True):
            risk = beta / (2 * len(curve.grid))
            excess = certified_delta(hits, (runs, runs), float(epsilon), risk)
            if excess > delta:
                return Evidence(
                    "structure",
                    "the type, shape, NaN or exception of the release tells neighbours apart",
                    f"{curve.text}",
                    f"`{name}` in {hits[0]} of {runs} on the left, {hits[1]} of {runs} on the right",
                    side,
                    (name, other.most_common(1)[0][0]),
                    f"1 - {beta:.1g}",
                )
    return None
