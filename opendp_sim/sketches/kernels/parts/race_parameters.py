"""What the reader of a RACE sketch needs to know of its sketch."""

from __future__ import annotations

from typing import Protocol

from opendp_sim.sketches.kernels.parts.hash_families import Family

__all__ = ["Parameters"]


class Parameters(Protocol):
    """What the reader needs to know of its sketch."""

    @property
    def key(self) -> str:
        """The sketch's name."""

    @property
    def repetitions(self) -> int:
        """Number of independent hash functions."""

    @property
    def buckets(self) -> int:
        """Counters a repetition."""

    @property
    def family(self) -> Family:
        """The locality-sensitive hash."""

    @property
    def seed(self) -> int:
        """Seed of the public draws."""

    @property
    def per_label(self) -> bool:
        """Whether there is one structure a label."""

    @property
    def weight(self) -> int:
        """The weight of the total's cell."""
