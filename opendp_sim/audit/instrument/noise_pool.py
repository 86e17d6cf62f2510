"""Draw noise in advance, many values of a law at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from os import urandom  # the original: the one of the module may be on the tape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.instrument.native_laws import Law
from opendp_sim.core import dp

# --------------------------------------------------------------------------------------------------
# Whole noise from a table of its distribution function, cut to 64 bits: fast, with a bounded error.
#
# OpenDP's exact samplers take some twenty microseconds a draw, a table a twentieth of one. A value's
# probability is off by less than 2^-64, so a draw is within ``entries * 2^-64`` of the law in total
# variation: with 2^16 entries and a million draws that is 4e-9 in all (``layer.md``, lemma 2).

MOST_ENTRIES = 2**16
_BITS, _DIGITS = 64, 60
_TAIL = 2.0**-70


class NoiseTable:
    """The distribution function of a whole law, times 2^64 and rounded down."""

    def __init__(self, law: Law) -> None:
        """Add the weights up with sixty digits."""
        window = law.window(_TAIL)
        self.low = window.start
        weights = _weights(law.family, law.scale, len(window) // 2)
        with localcontext() as digits:
            digits.prec = _DIGITS
            total, so_far, cuts = sum(weights), Decimal(0), []
            for weight in weights[:-1]:
                so_far += weight
                cuts.append(min(int(so_far * 2**_BITS / total), 2**_BITS - 1))
        self.cuts: NDArray[np.uint64] = np.array(cuts, dtype=np.uint64)

    @staticmethod
    def fits(law: Law) -> bool:
        """Say whether the law is whole, and narrow enough for a table."""
        return law.whole and law.scale < MOST_ENTRIES and len(law.window(_TAIL)) <= MOST_ENTRIES

    def draw(self, count: int) -> list[Any]:
        """Return fresh noise, from the operating system's randomness."""
        uniform = np.frombuffer(urandom(8 * count), dtype=np.uint64)
        spots = np.searchsorted(self.cuts, uniform, side="right")
        return list((spots + self.low).tolist())


def _weights(family: str, scale: float, reach: int) -> list[Decimal]:
    """Return the weights of the values from ``-reach`` to ``reach``."""
    with localcontext() as digits:
        digits.prec = _DIGITS
        exact = Decimal(scale)  # a float is a fraction of two whole numbers
        if family == "laplace":
            step, turn = (-1 / exact).exp(), Decimal(1)
        else:  # exp(-(z + 1)^2 / 2s^2) is exp(-z^2 / 2s^2) times exp(-(2z + 1) / 2s^2)
            step, turn = (-1 / (2 * exact * exact)).exp(), (-1 / (exact * exact)).exp()
        half = [Decimal(1)]
        for _ in range(reach):
            half.append(half[-1] * step)
            step *= turn
    return half[:0:-1] + half


# --------------------------------------------------------------------------------------------------

_BULK = 4096


@dataclass
class Pools:
    """Hold noise drawn in advance."""

    pools: dict[Any, list[Any]] = field(default_factory=dict)
    makers: dict[Any, Any] = field(default_factory=dict)
    sizes: dict[Any, int] = field(default_factory=dict)
    tables: dict[Any, NoiseTable] = field(default_factory=dict)

    def whole(self, law: Law, count: int) -> list[Any]:
        """Return whole noise values of a law."""
        pool = self.pool(law)
        if len(pool) < count:
            self.fill(law, count)
        out = pool[-count:] if count else []
        del pool[len(pool) - count :]
        return out

    def pool(self, law: Law) -> list[Any]:
        """Return the unused noise of a law, always the same list."""
        return self.pools.setdefault((law.family, law.scale), [])

    def fill(self, law: Law, count: int) -> None:
        """Draw more than so many values ahead."""
        self.pool(law).extend(self._bulk(law, count + _BULK))

    def _bulk(self, law: Law, many: int) -> list[Any]:
        if not NoiseTable.fits(law):
            return list(self._maker(law)([0] * many))
        key = law.family, law.scale
        if key not in self.tables:
            self.tables[key] = NoiseTable(law)
        return self.tables[key].draw(many)

    def at(self, law: Law, argument: float) -> float:
        """Return float noise at an argument, drawn by OpenDP's vector constructor there."""
        key = law.family, law.scale, argument
        pool = self.pools.setdefault(key, [])
        if not pool:
            many = self.sizes[key] = min(2 * self.sizes.get(key, 8), 2000)
            pool.extend(self._maker(law)([argument] * many))
        return float(pool.pop())

    def _maker(self, law: Law) -> Any:
        key, carrier = (law.family, law.scale, law.carrier), law.carrier
        if key not in self.makers:
            atom = dp.atom_domain(T=carrier) if law.whole else dp.atom_domain(T=carrier, nan=False)
            domain = dp.vector_domain(atom)
            if law.family == "laplace":
                self.makers[key] = dp.m.make_laplace(domain, dp.l1_distance(T=carrier), law.scale)
            else:
                metric = dp.l2_distance(T="f64" if law.whole else carrier)
                self.makers[key] = dp.m.make_gaussian(domain, metric, law.scale)
        return self.makers[key]


# --------------------------------------------------------------------------------------------------
# Whole native noise for one number, ready to be taken: what a live run asks for most often.
#
# What ``Tape.native`` finds out about a measurement at each call (its law, whether releases were
# compared,
# whether an argument is far from the ends) is kept here once it cannot change any more. The values
# are the same: noise drawn ahead, from a table.

_LARGEST = 2**30 - 1
"""The largest number that is far from the ends of every type that is served."""


class Ready:
    """The noise of one measurement."""

    def __init__(self, made: Any, law: Law, pools: Pools) -> None:
        """Store the object, so that its identity stays unique."""
        self.made, self._law = made, law
        self._pools, self._pool = pools, pools.pool(law)

    @staticmethod
    def serves(law: Law) -> bool:
        """Return whether a law's noise is one common integer."""
        return not law.vector and law.carrier in ("i32", "i64")

    @staticmethod
    def takes(argument: Any) -> bool:
        """Return whether an argument is an int far from its type's ends."""
        return type(argument) is int and -_LARGEST <= argument <= _LARGEST

    def at(self, argument: int) -> int:
        """Return a noisy value."""
        if not self._pool:
            self._pools.fill(self._law, 1)
        return argument + int(self._pool.pop())
