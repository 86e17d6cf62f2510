"""Whole native noise for one number, ready to be taken: what a live run asks for most often.

What ``Tape.native`` finds out about a measurement at each call (its law, whether releases were compared,
whether an argument is far from the ends) is kept here once it cannot change any more. The values
are the same: noise drawn ahead, from a table for ``bulk`` and by numpy for ``scout`` (``pools.py``).
"""

from __future__ import annotations

from typing import Any

from opendp_sim.audit.common import Common
from opendp_sim.audit.laws import Law
from opendp_sim.audit.pools import Pools

__all__ = ["Ready"]

_LARGEST = 2**30 - 1
"""The largest number that is far from the ends of every type that is served."""


class Ready:
    """The noise of one measurement in one mode."""

    def __init__(self, made: Any, law: Law, pools: Pools, common: Common, *, bulk: bool) -> None:
        """Keep the object: an identity is not given out twice while it lives."""
        self.made, self._law, self._common = made, law, common
        self._pools, self._bulk = pools, bulk
        self._pool = pools.pool(law, bulk=bulk)
        self._key = "number", law.family, law.scale

    @staticmethod
    def serves(law: Law) -> bool:
        """Say whether noise of a law is one whole number of a common type."""
        return not law.vector and law.carrier in ("i32", "i64")

    @staticmethod
    def takes(argument: Any) -> bool:
        """Say whether OpenDP would take an argument as it is, and add noise far from its type's ends."""
        return type(argument) is int and -_LARGEST <= argument <= _LARGEST

    def at(self, argument: int) -> int:
        """Return a noisy value; the second run of a round takes what the first one has."""
        common = self._common
        if not common.on:
            return argument + self._noise()
        if common.weighing:
            return common.noisy_number(self._key, self._law, argument, self._noise)
        return argument + common.number(self._key, self._noise)

    def _noise(self) -> int:
        pool = self._pool
        if not pool:
            self._pools.fill(self._law, 1, bulk=self._bulk)
        return int(pool.pop())
