"""Describe one mechanism on one space, with drawn neighbours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from opendp_sim.core.claims import Claim, Stable
from opendp_sim.core.mechanism import Mechanism
from opendp_sim.core.space import Domain, Metric

__all__ = ["Case", "Neighbours"]

Neighbours = tuple[Any, Any, int]
"""``(x, x', d_in)``: two datasets at input distance at most ``d_in``."""


@dataclass(frozen=True)
class Case:
    """One row of the table that every law runs over."""

    mechanism: Mechanism
    domain: Domain
    metric: Metric
    pairs: st.SearchStrategy[Neighbours] | None = None
    """Draws neighbours; needed by the laws of transformations and measurements."""
    attains: Neighbours | None = None
    """A pair that meets the map with equality (in every norm of a sketch), if it is claimed tight."""
    released: Callable[[], tuple[Any, Any]] | None = None
    """For a query mechanism: makes (arrays, queries), or (answer, None) when it takes an answer."""
    excused: dict[str, str] = field(default_factory=dict)
    """Law name to reason; an excuse that is no longer needed fails the run."""

    def claim(self) -> Claim:
        """Bind the mechanism."""
        return self.mechanism.bind(self.domain, self.metric)

    def drawn(self) -> st.SearchStrategy[Neighbours]:
        """Return the strategy of neighbours; a transformation or measurement must bring one."""
        assert self.pairs is not None, "the case needs `pairs`"
        return self.pairs

    @property
    def is_sketch(self) -> bool:
        """Whether the claim is a sum of features."""
        claim = self.claim()
        return isinstance(claim, Stable) and claim.sensitivity is not None

    @property
    def is_row_map(self) -> bool:
        """Whether the claim maps rows to rows."""
        claim = self.claim()
        return isinstance(claim, Stable) and claim.sensitivity is None
