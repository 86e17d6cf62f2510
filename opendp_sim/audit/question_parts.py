"""What a question of a queryable is made of, and the conversation that is held of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from opendp_sim.audit.curious import Asked

__all__ = ["Shape"]

_OFTEN, _EIGHT, _HALF, _EACH, _ODD = 10, 7, 4, 2, 2
"""How often questions are asked; one that nobody means comes between others, for what an exception leaves
behind may be more than there was."""


@dataclass(frozen=True)
class Shape:
    """Parts of a question: the values of each, and the keys of a mapping, or a text's mark between them;
    without either it is a tuple.
    """

    kinds: str
    values: tuple[tuple[Any, ...], ...]
    keys: tuple[Any, ...] | None = None
    mark: str | None = None
    bare: bool = False
    """Whether the only part is the question itself."""
    plain: bool = False
    """Whether a mapping is Python's own: some code looks at the type."""

    def question(self, places: Sequence[int]) -> Any:
        """Return the question with that value of each part; a new one each time.

        Without places it is one that nobody means: the usual parts in the other order.
        """
        spots = places or [0] * len(self.values)
        parts = [some[min(i, len(some) - 1)] for some, i in zip(self.values, spots, strict=True)]
        return self.of(parts if places else parts[::-1])

    def of(self, parts: Sequence[Any]) -> Any:
        """Return the question with these parts."""
        if self.bare:
            return parts[0]
        if self.mark is not None:
            return self.mark.join(map(str, parts))
        if self.keys is None:
            return tuple(parts)
        kind = dict if self.plain else Asked
        return kind(zip(self.keys, parts, strict=True))

    def conversation(self) -> list[list[int]]:
        """Return all questions, in order: for each part the place of its value."""
        usual = [0] * len(self.kinds)
        others = list(self.others())
        dear = [self._at(places, 1) for places in ([usual, *others] if "c" in self.kinds else [])]
        most, whole = ([self._at(usual, cost)] if dear else [] for cost in (2, 3))
        each = [places for places in others for _ in range(_EACH)]
        again = [usual] * _HALF + (dear[:1] or [usual]) * _HALF
        odd: list[list[int]] = [[], usual, usual] * _ODD if len(self.kinds) > 1 else []
        odd += [self._at(usual, -1), *dear[:1]] * _ODD if dear else []
        begin = [usual, *most] + [usual] * _EIGHT + whole + [usual] * (_OFTEN - _EIGHT)
        return begin + each + dear + most + again + odd

    def others(self) -> Iterator[list[int]]:
        """Yield the places of questions that differ from the usual one in one part, but its cost."""
        for part, values in enumerate(self.values):
            if self.kinds[part] != "c":
                for i in range(1, len(values)):
                    yield [i if k == part else 0 for k in range(len(self.kinds))]

    def _at(self, places: Sequence[int], cost: int) -> list[int]:
        return [cost if kind == "c" else i for kind, i in zip(self.kinds, places, strict=True)]
