"""Generate neighbours of numbers and vectors within ``d_in`` of a metric."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from opendp_sim.audit.generators.atoms import ValueSource, listed_source
from opendp_sim.audit.generators.neighbours import Pair

VECTOR_METRICS = (
    "AbsoluteDistance",
    "L1Distance",
    "L2Distance",
    "LInfDistance",
    "DiscreteDistance",
)


MAP_METRICS = ("L1Distance", "L2Distance", "LInfDistance", "L01InfDistance", "L02InfDistance")
_MOST_KEYS, _FLOAT_SLACK = 3, 1 - 1e-12


@dataclass(frozen=True)
class MapSpace:
    """Generate mappings from keys to numbers, where an absent key has zero.

    A distance of three parts is the number of keys that differ, their L1 or L2 distance, and the largest
    difference; of one part, that norm.
    """

    keys: ValueSource
    values: ValueSource
    metric: str
    d_in: Any
    member: Any
    """Says whether a mapping is in the domain."""
    integral: bool

    def draw(self, rng: np.random.Generator, distance: Any = None) -> Pair:
        """Return a random mapping and a change of some keys."""
        base = self._base(rng, int(rng.choice([0, 1, 1, 2, 3, 6])))
        return self._pair(base, self._moved(rng, base), distance)

    def corners(self, rng: np.random.Generator) -> Iterator[Pair]:
        """Yield keys absent on one side, then each value with a change."""
        for count in (0, 1, 0, 2) * 8:
            base = self._base(rng, count)
            yield self._pair(base, self._moved(rng, base, old=0.0), self.d_in)
        for value in self.values.corners:
            for _ in range(2):
                base = {self.keys.pick(rng): value}
                yield self._pair(base, self._moved(rng, base, old=1.0), self.d_in)

    def mutate(self, pair: Pair, rng: np.random.Generator) -> Pair:
        """Change other keys of the same mapping."""
        return self._pair(pair.genome, self._moved(rng, pair.genome), pair.distance)

    def simpler(self, pair: Pair) -> Iterator[Pair]:
        """Yield pairs without one of the keys."""
        for key in dict.fromkeys([*pair.left, *pair.right]):
            left, right = (
                {k: v for k, v in d.items() if k != key} for d in (pair.left, pair.right)
            )
            yield self._pair(left, right, pair.distance)

    def _base(self, rng: np.random.Generator, count: int) -> dict[Any, Any]:
        small = listed_source([1, 2, 10])
        sources = [small if rng.random() < 0.6 else self.values for _ in range(count)]
        return {self.keys.pick(rng): source.pick(rng) for source in sources}

    def _moved(
        self, rng: np.random.Generator, base: dict[Any, Any], *, old: float = 0.5
    ) -> dict[Any, Any]:
        """Return the mapping with keys moved, as far as the distance allows."""
        parts = self.d_in if isinstance(self.d_in, tuple) else None
        most, total, step = parts or (_MOST_KEYS, self.d_in, self.d_in)
        count = int(min(most, rng.integers(1, _MOST_KEYS + 1)))
        root = count if self.metric in ("L1Distance", "L01InfDistance") else count**0.5
        each = step if self.metric == "LInfDistance" else min(step, total / root)
        each = int(each) if self.integral else float(each) * _FLOAT_SLACK
        out, sign = dict(base), rng.choice([-1, 1]).item()
        for _ in range(count):
            known = base and rng.random() < old
            key = [*base][int(rng.integers(len(base)))] if known else self.keys.pick(rng)
            value = base.get(key, 0) + (each if key not in base else sign * each)
            out[key] = value
            if value == 0:
                del out[key]
        return out

    def _pair(self, left: dict[Any, Any], right: dict[Any, Any], distance: Any) -> Pair:
        whole = self.d_in if distance is None else distance
        if not whole:  # at distance zero in all parts
            whole = tuple(0 * part for part in self.d_in) if isinstance(self.d_in, tuple) else whole
            right = dict(reversed(left.items()))
        good = self.member(left) and self.member(right)
        return Pair(left, right if good else left, whole, left)


@dataclass(frozen=True)
class VectorSpace:
    """Generate a number or vector and its shifts of at most ``d_in``."""

    source: ValueSource
    metric: str
    d_in: Any
    size: int | None
    scalar: bool
    member: Any
    """Says whether a value is in the domain."""
    integral: bool
    monotone: bool = False
    single: bool = False
    """Numbers are held in 32 bits, so that sums are rounded to them."""
    weights: tuple[int, ...] = ()
    """The distance is that of cells over their weights."""
    steps: bool = False
    """The L∞ distance adds the largest rise and the largest fall."""

    def draw(self, rng: np.random.Generator, distance: Any = None) -> Pair:
        """Return a random base and a shift of the whole distance."""
        distance = self.d_in if distance is None else distance
        size = 1 if self.scalar else self.size if self.size is not None else int(rng.integers(1, 9))
        style = rng.integers(3)
        if style == 0:
            base = [self.source.simplest] * size
        elif style == 1:
            base = [self.source.pick(rng)] * size
        else:
            base = [self.source.pick(rng) for _ in range(size)]
        return self._pair(base, self._shift(rng, size, distance), distance)

    def corners(self, rng: np.random.Generator) -> Iterator[Pair]:
        """Yield every corner value with every shape of shift."""
        for value in self.source.corners:
            size = 1 if self.scalar else self.size if self.size is not None else 3
            for _ in range(2):
                yield self._pair([value] * size, self._shift(rng, size, self.d_in), self.d_in)

    def mutate(self, pair: Pair, rng: np.random.Generator) -> Pair:
        """Change one base value, or draw the shift again."""
        base, shift = list(pair.genome[0]), pair.genome[1]
        if rng.random() < 0.5 and base:
            base[int(rng.integers(len(base)))] = self.source.pick(rng)
        else:
            shift = self._shift(rng, len(base), pair.distance)
        return self._pair(base, shift, pair.distance)

    def simpler(self, pair: Pair) -> Iterator[Pair]:
        """Yield pairs with one base value or shift set to the simplest."""
        base, shift = list(pair.genome[0]), list(pair.genome[1])
        for i, value in enumerate(base):
            if value != self.source.simplest:
                yield self._pair(
                    [*base[:i], self.source.simplest, *base[i + 1 :]], shift, pair.distance
                )
            if shift[i] != 0:
                yield self._pair(base, [*shift[:i], 0, *shift[i + 1 :]], pair.distance)
        if self.size is None and not self.scalar and len(base) > 1:
            yield self._pair(base[:-1], shift[:-1], pair.distance)

    # --- shifts --------------------------------------------------------------------

    def _shift(self, rng: np.random.Generator, size: int, distance: Any) -> list[Any]:
        if size == 0 or distance == 0:
            return [0] * size
        if self.metric == "DiscreteDistance":
            return [self.source.pick(rng) for _ in range(size)]
        sign = (
            rng.choice([-1, 1], size=size)
            if not self.monotone
            else np.full(size, rng.choice([-1, 1]))
        )
        if self.metric == "LInfDistance":
            whole = np.full(size, float(distance))
            keep = np.ones(size) if rng.random() < 0.5 else rng.random(size) < 0.5
            if self.steps:  # so many up, the rest down
                up = float(rng.integers(int(distance) + 1))
                whole = np.where(sign > 0, up, distance - up)
            out = whole * keep * sign
        elif self.metric == "L2Distance" and rng.random() < 0.5:
            direction = np.abs(rng.normal(size=size))
            out = direction / np.linalg.norm(direction) * float(distance) * (1 - 1e-12) * sign
        elif self.metric == "L1Distance" and rng.random() < 0.5:
            out = np.full(size, float(distance) / size) * (1 - 1e-12) * sign
        else:
            out = np.zeros(size)
            out[rng.integers(size)] = float(distance) * sign[0]
        if self.weights:
            out = out * np.resize(np.array(self.weights, dtype=float), size)
        return [int(v) for v in out] if self.integral else [float(v) for v in out]

    def _pair(self, base: list[Any], shift: list[Any], distance: Any) -> Pair:
        if self.metric == "DiscreteDistance":
            moved = list(shift) if any(v != 0 for v in shift) else list(base)
        else:
            moved = [self._moved(b, s) for b, s in zip(base, shift, strict=True)]
        left, right = (base[0], moved[0]) if self.scalar else (list(base), moved)
        if not self.member(left) or not self.member(right):
            right = left
        return Pair(left, right, distance, (tuple(base), tuple(shift)))

    def _moved(self, value: Any, by: Any) -> Any:
        """Add, and step back where rounding carried the sum past the distance."""
        if by == 0 or value is None or value != value:  # noqa: PLR0124
            return value
        moved = value + by
        if self.integral or not np.isfinite(moved) or not np.isfinite(value):
            return moved if np.isfinite(value) else value
        held = np.float32 if self.single else np.float64
        with np.errstate(over="ignore"):
            moved = held(moved)
        if not np.isfinite(moved):
            return value
        while abs(Fraction(float(moved)) - Fraction(value)) > abs(Fraction(by)):
            moved = np.nextafter(moved, held(value))
        return float(moved)
