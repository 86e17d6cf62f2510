"""Describe a layer's refutation with evidence, or its power."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from opendp_sim.audit.generators.neighbours import Pair

Status = Literal["refuted", "not refuted", "skipped"]


@dataclass(frozen=True)
class Effort:
    """Bound the resources of each layer.

    Seconds are nominal seconds of this process. A smaller budget finds less; the risk of a false alarm is
    the same at any budget.
    """

    name: str
    """What the report calls it."""
    stability_seconds: float
    """L1: seconds of the search, a part of them before L2 and the rest after."""
    stability_trials: int
    """L1: most pairs looked at."""
    structure_pairs: int
    """L0: pairs compared by type, shape and exception, in at most a fifth of ``seconds``."""
    noise_runs: int
    """L2: releases of the first dataset; up to eight times as many of few cells, fewer of slow ones."""
    search_pairs: int
    """L3: most pairs in the race."""
    search_runs: int
    """L3: most releases a side of one pair in the first round of the race."""
    bet_pairs: int
    """L3: most rounds of betting; a round is one release from either side."""
    seconds: float
    """L3: race and bets together."""
    total: float = math.inf
    """All layers: L3 gets what the others leave, but never less than two fifths of ``seconds``."""
    trace_seconds: float = 5.0
    """LT: the whole layer, of opaque Python measurements; never more than ``seconds``."""
    scan_seconds: float = 1.2
    """LT: the search along tapes."""
    scan_pairs: int = 1_000_000
    """LT: most pairs of that search."""
    witness_seconds: float = 0.8
    """After a refutation: the search for a plain event that shows it; 0 leaves it out."""

    @classmethod
    def of(cls, name: str) -> Effort:
        """Return the budget ``quick`` (10 s) or ``deep`` (two minutes)."""
        if name == "deep":
            return cls(
                name,
                stability_seconds=15,
                stability_trials=100_000,
                structure_pairs=60,
                noise_runs=2000,
                search_pairs=128,
                search_runs=4000,
                bet_pairs=4_000_000,
                seconds=100,
                trace_seconds=40,
                scan_seconds=8,
                witness_seconds=5,
            )
        return cls(
            "quick",
            stability_seconds=2.0,
            stability_trials=6000,
            structure_pairs=24,
            noise_runs=400,
            search_pairs=64,
            search_runs=1000,
            bet_pairs=250_000,
            seconds=5.5,
            total=9.5,
        )

    @property
    def most(self) -> float:
        """The nominal seconds that an audit may take with all layers."""
        return min(
            self.total,
            self.stability_seconds + self.seconds + self.trace_seconds + self.witness_seconds,
        )

    def left(self, spent: float) -> Effort:
        """Return the budget of L3 after the other layers' seconds."""
        return replace(self, seconds=max(0.4 * self.seconds, min(self.seconds, self.total - spent)))


@dataclass(frozen=True)
class Evidence:
    """Describe a counterexample, with everything to reproduce it."""

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

    def flipped(self) -> Evidence:
        """Return the counterexample with exchanged datasets and words."""
        return replace(
            self,
            detail=mirrored(self.detail),
            claimed=mirrored(self.claimed),
            measured=mirrored(self.measured),
            pair=None if self.pair is None else self.pair.flipped(),
            outputs=None if self.outputs is None else self.outputs[::-1],
        )


def mirrored(text: Any) -> Any:
    """Return words about a pair with exchanged sides, other values unchanged."""
    return text if not isinstance(text, str) else _SIDES.sub(lambda m: _OTHER[m[0]], text)


_OTHER = {
    "on the left": "on the right",
    "on the right": "on the left",
    "P[left in": "P[right in",
    "P[right in": "P[left in",
}
_SIDES = re.compile("|".join(map(re.escape, _OTHER)))


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
