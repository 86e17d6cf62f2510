"""Define types of the language, of stages and bound releases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from opendp_sim.accounting.evidence import EVIDENCE, tier, weakest
from opendp_sim.core.claims import Interactive, Norm, Private, Sensitivity, Stable, Stage
from opendp_sim.core.mechanism import REGISTRY, Mechanism
from opendp_sim.core.pipeline import sensitivity_after, stability
from opendp_sim.core.space import Domain, Metric
from opendp_sim.dsl.grammar.program import DataEntry, ReleaseDecl, StageDecl
from opendp_sim.dsl.text.diagnostic import Path

Numerics = Literal["exact", "idealized"]


@dataclass(frozen=True)
class Bound:
    """A release's mechanism bound to what it releases."""

    record: Mechanism
    claim: Private | Interactive
    domain: Domain
    metric: Metric
    norm: Norm | None


@dataclass(frozen=True)
class Typed:
    """Hold one stage with its whole typed chain.

    Attributes:
        stages: every bound step since the source, this stage's last.
        places: where each of them stands in the program.
        sensitivity: norms of one source record's contribution, when the chain ends in a sketch.
        release: how the stage is released, if it is.
        expected_records: about how many records are expected, by this stage or the nearest one before.
    """

    name: str
    entry: DataEntry
    decl: StageDecl
    stages: tuple[Stage, ...]
    places: tuple[Path, ...]
    domain: Domain
    metric: Metric
    release: ReleaseDecl | None = None
    expected_records: int | None = None

    @property
    def sensitivity(self) -> Sensitivity | None:
        """Sensitivity per unit of the source's distance."""
        return sensitivity_after(self.stages)

    @property
    def stability(self) -> int:
        """Product of the row maps' stabilities since the source."""
        return stability(self.stages)

    @property
    def release_kind(self) -> str | None:
        """``noise``, ``mechanism`` or ``none``; None for a stage that is not released."""
        return None if self.release is None else self.release.kind

    @property
    def is_sketch(self) -> bool:
        """Whether the chain ends in a sketch."""
        return self.sensitivity is not None

    @property
    def sketch(self) -> Stable:
        """The claim of the sketch that the chain ends in."""
        claim = self.stages[-1].claim
        assert isinstance(claim, Stable)  # noqa: S101 - for the type checker; `is_sketch` was asked
        return claim

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Keys of every mechanism of the chain, and of the release."""
        own = tuple(stage.mechanism.key for stage in self.stages)
        return (*own, self.release.key) if self.release and self.release.key else own

    @property
    def numerics(self) -> Numerics:
        """``idealized`` when any mechanism of the chain is."""
        tiers = {getattr(REGISTRY[key], "numerics", "exact") for key in self.mechanisms}
        return "idealized" if "idealized" in tiers else "exact"

    @property
    def evidence(self) -> str:
        """The weakest evidence tier of the chain."""
        return weakest(tier(key) for key in self.mechanisms) if self.mechanisms else EVIDENCE[0]
