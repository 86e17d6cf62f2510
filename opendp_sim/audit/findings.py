"""What a layer reports: a refutation with its evidence, or what it could have seen and did not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from opendp_sim.audit.neighbours import Pair

__all__ = ["Budget", "Evidence", "LayerResult", "Status"]

Status = Literal["refuted", "not refuted", "skipped"]


@dataclass(frozen=True)
class Budget:
    """How much each layer may spend."""

    name: str
    stability_seconds: float
    stability_trials: int
    structure_pairs: int
    noise_runs: int
    search_pairs: int
    search_runs: int
    bet_pairs: int
    seconds: float
    """Of the whole-curve layer: search and betting together."""
    forks: bool = False

    @classmethod
    def of(cls, name: str) -> Budget:
        """Return the named budget: ``quick`` (at most about 10 s) or ``deep`` (about two minutes)."""
        if name == "deep":
            return cls(
                name, stability_seconds=15, stability_trials=100_000, structure_pairs=60,
                noise_runs=2000, search_pairs=128, search_runs=4000, bet_pairs=4_000_000, seconds=100,
                forks=True,
            )  # fmt: skip
        return cls(
            "quick", stability_seconds=2.0, stability_trials=6000, structure_pairs=24,
            noise_runs=400, search_pairs=64, search_runs=1000, bet_pairs=250_000, seconds=5.5,
        )  # fmt: skip


@dataclass(frozen=True)
class Evidence:
    """A counterexample: everything that is needed to see it again."""

    kind: str
    """What was measured: ``stability``, ``loss``, ``exception``, ``noise scale``, ``event``, ..."""
    detail: str
    """One sentence."""
    claimed: Any
    measured: Any
    pair: Pair | None = None
    outputs: tuple[Any, Any] | None = None
    confidence: str = "exact"
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LayerResult:
    """One layer's answer."""

    layer: str
    status: Status
    reason: str = ""
    runs: int = 0
    seconds: float = 0.0
    evidence: Evidence | None = None
    power: str = ""
    """The smallest excess this run would have seen, computed from what it did."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Further results: slack, p-values, lower bounds."""
