"""Generate record values at extremes and boundaries, near-duplicates too."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from opendp_sim.core import dp
from opendp_sim.core.errors import AuditError

_INT_BITS = {"i8": 7, "i16": 15, "i32": 31, "i64": 63, "i128": 63, "isize": 63}
_UINT_BITS = {"u8": 8, "u16": 16, "u32": 32, "u64": 63, "u128": 63, "usize": 63}
_WORDS = ("", "a", "b", "c", "0", "1", "-1", "1.5", "nan", "true", "é", "a" * 40)


@dataclass(frozen=True)
class ValueSource:
    """Where values of one record come from."""

    corners: tuple[Any, ...]
    """Structured values, tried first and again and again."""
    draw: Callable[[np.random.Generator], Any]
    """A fresh value."""
    simplest: Any
    """What a counterexample shrinks towards."""

    def pick(self, rng: np.random.Generator) -> Any:
        """Return a corner half of the time, a fresh value otherwise."""
        if self.corners and rng.random() < 0.5:
            return self.corners[int(rng.integers(len(self.corners)))]
        return self.draw(rng)


def atom_source(domain: dp.Domain) -> ValueSource:
    """Read type, bounds and NaN of an ``AtomDomain``.

    Raises:
        AuditError: OS501, a carrier type without a generator.
    """
    kind = str(domain.carrier_type)
    bounds = _bounds(domain)
    if kind in _INT_BITS or kind in _UINT_BITS:
        return _integers(kind, bounds)
    if kind in ("f32", "f64"):
        return _floats(bounds, single=kind == "f32", nan=_has_nan(domain))
    if kind == "bool":
        return ValueSource((False, True), lambda rng: bool(rng.integers(2)), simplest=False)
    if "String" in kind:
        return ValueSource(_WORDS, lambda rng: _WORDS[int(rng.integers(len(_WORDS)))], simplest="")
    if kind == "BitVector":
        return _bits(domain)
    raise AuditError(
        "OS501",
        "audit.atoms",
        expected="an atom of integers, floats, booleans or strings",
        got=kind,
        hint="pass generator= (a numpy Generator to a dataset) for this domain.",
    )


def _has_nan(domain: dp.Domain) -> bool:
    """Return whether a domain has NaN as a member."""
    if not getattr(domain, "nan", False):
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bool(domain.member(math.nan))


def listed_source(values: Sequence[Any]) -> ValueSource:
    """Return a source of some values."""
    known = tuple(values)
    return ValueSource(known, lambda rng: known[int(rng.integers(len(known)))], known[0])


def tuple_source(sources: Sequence[ValueSource]) -> ValueSource:
    """Return records with a value of each source."""

    def draw(rng: np.random.Generator) -> tuple[Any, ...]:
        return tuple(source.pick(rng) for source in sources)

    first = tuple(source.corners[0] for source in sources)
    # One cell at a time: a fault of records that agree in a cell (one person, two values) shows between
    # the first corner and another. The last one, all cells odd, is what the others are added to.
    turned = (source.corners[:0:-1] for source in sources)
    corners = (
        first,
        *(
            (*first[:spot], value, *first[spot + 1 :])
            for values in zip_longest(*turned)
            for spot, value in enumerate(values)
            if value is not None
        ),
        tuple(source.corners[-1] for source in sources),
    )
    return ValueSource(corners, draw, corners[0])


def option_source(inside: ValueSource) -> ValueSource:
    """Let a value be absent."""
    return ValueSource(
        (None, *inside.corners),
        lambda rng: None if rng.random() < 0.25 else inside.draw(rng),
        simplest=None,
    )


def _bits(domain: dp.Domain) -> ValueSource:
    """Return bit vectors of one length, twice the largest weight."""
    told = re.search(r"weight=(\d+)", str(domain))
    weight = int(told[1]) if told else 8
    size = -(-2 * weight // 8)

    def made(spots: Any) -> bytes:
        return np.packbits(np.isin(np.arange(8 * size), spots)).tobytes()

    def draw(rng: np.random.Generator) -> bytes:
        return made(rng.choice(8 * size, int(rng.integers(weight + 1)), replace=False))

    ends = (range(weight), range(8 * size - weight, 8 * size), range(0), range(1))
    corners = tuple(made([*spots]) for spots in ends)
    return ValueSource(corners, draw, made([]))


def _bounds(domain: dp.Domain) -> tuple[Any, Any] | None:
    try:
        return domain.bounds
    except Exception:  # noqa: BLE001
        return None


def _integers(kind: str, bounds: tuple[int, int] | None) -> ValueSource:
    if bounds is None:
        limit = 2 ** _INT_BITS.get(kind, _UINT_BITS.get(kind, 31))
        low, high = (0 if kind in _UINT_BITS else -limit), limit - 1
    else:
        low, high = int(bounds[0]), int(bounds[1])
    ends = low, low + 1, high, high - 1, (low + high) // 2
    wanted = (0, 1, -1, 2, 3, 7, 10, 100, *ends, 2**53, 2**24)
    corners = tuple(dict.fromkeys(v for v in wanted if low <= v <= high))

    def draw(rng: np.random.Generator) -> int:
        if rng.random() < 0.5:
            return int(min(max(rng.integers(-12, 13), low), high))
        return low + int(rng.random() * (high - low))

    return ValueSource(corners, draw, simplest=min(max(0, low), high))


def _float_corners(
    bounds: tuple[float, float] | None, *, single: bool, nan: bool
) -> tuple[float, ...]:
    """Return numbers where float arithmetic fails, and near the bounds."""
    low, high = bounds if bounds is not None else (-math.inf, math.inf)
    top = 3e38 if single else 1.7e308
    wanted: list[float] = [
        *(0.0, -0.0, 1.0, -1.0, 0.1, 0.5, 1 / 3, 2.0, 10.0, 1e8 + 0.5, 2.0**53, -(2.0**53)),
        *(1e16, 5e-324, 1e-310, top, -top, math.inf, -math.inf),
    ]
    if bounds is not None:
        middle = low / 2 + high / 2
        wanted += [low, high, math.nextafter(high, low), math.nextafter(low, high), middle]
    corners = [float(v) for v in wanted if low <= v <= high]
    if single:
        corners = [v for v in corners if float(np.float32(v)) == v]
    return (*corners[:2], math.nan, *corners[2:]) if nan else tuple(corners)


def _floats(bounds: tuple[float, float] | None, *, single: bool, nan: bool) -> ValueSource:
    low, high = bounds if bounds is not None else (-math.inf, math.inf)
    corners = _float_corners(bounds, single=single, nan=nan)
    finite_low, finite_high = max(low, -1e6), min(high, 1e6)

    def draw(rng: np.random.Generator) -> float:
        value = finite_low + rng.random() * (finite_high - finite_low)
        if rng.random() < 0.5:
            value = float(rng.normal()) * 10.0 ** float(rng.integers(-3, 4))
        value = float(np.float32(value)) if single else float(value)
        return min(max(value, low), high)

    return ValueSource(corners, draw, simplest=min(max(0.0, low), high))
