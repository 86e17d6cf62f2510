"""Filter datasets by the input domain.

A claim covers no other datasets. Every pair that an audit looks at passes here once, whether a space
or the user made it. Only L1, whose verdicts are exact and which looks at thousands, asks later: before
a pair is its best or its evidence.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from opendp_sim.audit.generators.datasets import quiet
from opendp_sim.audit.generators.frames import frame_member, is_frame
from opendp_sim.audit.generators.neighbours import Pair, PairSpace
from opendp_sim.core import dp
from opendp_sim.core.errors import AuditError

_PLAIN = bool, int, float, str, bytes
_MOST_KNOWN = 50_000
_TRIES = 100
"""Draws after which a space is said to have no members."""


def quiet_member(domain: dp.Domain | None) -> Callable[[Any], bool]:
    """Return the domain's membership test.

    A test that fails counts as "not a member". OpenDP's warning about failures is silenced. A vector
    is a member when its size is right and every record is one, so a list of plain records that were
    seen in members before is not asked about again.
    """
    if domain is None:
        return lambda _: True
    by_record = isinstance(domain, dp.VectorDomain)
    size = domain.size if by_record else None
    known: dict[type, set[Any]] = {}
    asked = quiet(frame_member(domain) if is_frame(domain) else domain.member)

    def member(value: Any) -> bool:
        kind = _kind(value) if by_record else None
        if kind in known and size in (None, len(value)) and known[kind].issuperset(value):
            return True
        inside = asked(value)
        if inside and kind is not None:
            records = known.setdefault(kind, set())
            if len(records) < _MOST_KNOWN:
                records.update(value)
        return inside

    return member


def _kind(value: Any) -> type | None:
    """Return the only type of a list's records, or None."""
    if type(value) is not list:
        return None
    kinds = set(map(type, value))
    if not kinds:
        return type(None)
    kind = kinds.pop()
    return kind if not kinds and kind in _PLAIN else None


@dataclass(frozen=True)
class FilteredPairs:
    """Restrict a space of pairs to those of which ``has`` is true."""

    space: PairSpace

    def has(self, pair: Pair) -> bool:
        """Say whether a pair is one of these."""
        raise NotImplementedError

    def corners(self, rng: np.random.Generator) -> Iterator[Pair]:
        """Yield the structured pairs."""
        return filter(self.has, self.space.corners(rng))

    def mutate(self, pair: Pair, rng: np.random.Generator) -> Pair:
        """Return a similar pair, or the pair itself."""
        changed = self.space.mutate(pair, rng)
        return changed if changed is pair or self.has(changed) else pair

    def simpler(self, pair: Pair) -> Iterator[Pair]:
        """Yield smaller pairs."""
        return filter(self.has, self.space.simpler(pair))


@dataclass(frozen=True)
class MemberPairs(FilteredPairs):
    """Restrict a space of pairs to members of the input domain."""

    member: Callable[[Any], bool]
    rules: Callable[[Any, Any], bool] | None = None
    """What a claim takes as public of both sides, where there is something."""

    def has(self, pair: Pair) -> bool:
        """Say whether both datasets are members."""
        if not (self.member(pair.left) and (pair.right is pair.left or self.member(pair.right))):
            return False
        return self.rules is None or self.rules(pair.left, pair.right)

    def kept(self, given: tuple[Pair, ...]) -> tuple[Pair, ...]:
        """Return the covered pairs, with a warning about the others."""
        kept = tuple(pair for pair in given if self.has(pair))
        if len(kept) < len(given):
            warnings.warn(
                f"audit: {len(given) - len(kept)} of {len(given)} given pairs are not of the input "
                "domain and were not tried.",
                stacklevel=4,
            )
        return kept

    def draw(self, rng: np.random.Generator, distance: Any = None) -> Pair:
        """Return a random pair of members.

        Raises:
            AuditError: OS501, none of many draws was one.
        """
        for _ in range(_TRIES):
            pair = self.space.draw(rng, distance)
            if self.has(pair):
                return pair
        raise AuditError(
            "OS501", "audit.members", expected="datasets that are members of the input domain",
            got=f"none in {_TRIES} draws",
            hint="the domain's member(x) must hold for the datasets of pairs= and generator=.",
        )  # fmt: skip
