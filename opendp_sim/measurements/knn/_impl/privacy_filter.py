"""Filter privacy individually.

Every person has a purse, pays for contributions, and retires.

Integers throughout: no purse is ever overdrawn, not by one unit in the last place. Proofs:
``privacy_filter.md``, beside this file. What a purse holds depends on its owner's records, so
nothing here is ever shown: not in a message, not in a ``repr``.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from opendp_sim.accounting.session.identity import damaged
from opendp_sim.core.errors import InternalError

UNITS = 2**62
"""Units in a full purse: one unit is ``rho / 2**62``."""
_UNPAYABLE = UNITS + 1
_SLACK = 1 + Fraction(1, 2**40)
"""Above what OpenDP's map gains by rounding outward in floats (a few parts in 2**52)."""


@lru_cache(maxsize=4096)
def _price(scale: float | Fraction, rho: Fraction) -> int:
    return min(math.ceil(_SLACK * UNITS / (2 * Fraction(scale) ** 2 * rho)), _UNPAYABLE)


class IndividualFilter:
    """Hold a purse of ``rho`` a person.

    For steps that add Gaussian noise to sums of integer contributions. A contribution of L2 norm ``d``
    under noise of scale ``s`` costs what OpenDP's Gaussian map says of that distance, rounded up:
    ``d**2 * price(s)`` units. A mechanism asks what a person can still afford, clips the contribution
    to it, and charges *before* it releases the noisy sum. If the contribution depends on nothing but
    that person's records and the transcript, then the whole adaptive interaction is ``d_in**2 *
    rho``-zCDP (Lemma 3), and ``d_in * sqrt(2 * rho)``-GDP (Lemma 6).

    Args:
        rho: the purse of each person, in rho of zero-concentrated divergence.
        persons: how many purses to open.
    """

    def __init__(self, rho: float | Fraction, persons: int) -> None:
        self.rho = Fraction(rho)
        self._purses = np.full(persons, UNITS, dtype=np.int64)

    def __repr__(self) -> str:
        """Nothing that depends on data, the number of purses included."""
        return "IndividualFilter(secret)"

    def price(self, scale: float | Fraction) -> int:
        """Return the price of unit squared distance at a noise scale.

        At least ``1 / (2 scale**2)`` in rho, and at least OpenDP's map (Lemma 1).
        """
        return _price(scale, self.rho)

    def affordable(self, who: NDArray[np.int64], price: int) -> NDArray[np.int64]:
        """Return secret affordable distances at ``price``, one for each of ``who``."""
        if price >= _UNPAYABLE:
            return np.zeros(len(who), dtype=np.int64)
        squares = self._purses[who] // price
        roots = np.sqrt(squares).astype(np.int64)
        # The float root of an integer below 2**62 is within one of the integer root.
        roots -= roots * roots > squares
        roots += (roots + 1) * (roots + 1) <= squares
        return roots

    def charge(
        self, who: NDArray[np.int64], distances: NDArray[np.int64], price: int
    ) -> NDArray[np.int64]:
        """Charge each of ``who`` once for a contribution; return secret units.

        Raises:
            InternalError (OS903): someone cannot pay (the caller did not clip); nobody was charged.
        """
        if (distances < 0).any() or (distances > self.affordable(who, price)).any():
            raise InternalError(
                "OS903", "individual_filter", expected="clipped contributions",
                got="a larger one", hint="clip to `affordable` before `charge`.",
            )  # fmt: skip
        units = distances * distances * min(price, UNITS)
        self._purses[who] -= units
        return units

    def retire(self, who: NDArray[np.int64] | slice = slice(None)) -> None:
        """Empty the purses, charged in full, after a failure inside a mechanism."""
        self._purses[who] = 0

    def open(self, persons: int) -> NDArray[np.int64]:
        """Open full purses for ``persons`` newcomers; return their indices."""
        start = len(self._purses)
        self._purses = np.concatenate([self._purses, np.full(persons, UNITS, dtype=np.int64)])
        return np.arange(start, start + persons)

    # --- for a durable store, which is as secret as the data ------------------------------------

    def snapshot(self) -> NDArray[np.int64]:
        """Return a copy of all purses, in units. Secret."""
        return self._purses.copy()

    def restore(self, purses: NDArray[np.int64]) -> None:
        """Take over purses from a store; a purse never grows by it.

        Raises:
            BudgetError (OS407): purses of other persons, or one that is overdrawn or refilled.
        """
        if purses.shape != self._purses.shape or not (
            (purses >= 0).all() and (purses <= self._purses).all()
        ):
            raise damaged()
        self._purses = purses.astype(np.int64)
