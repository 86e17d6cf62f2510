"""Plan one release's loss and noise."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from opendp_sim.core.claims import Interactive, Stage
from opendp_sim.core.mechanism import Mechanism
from opendp_sim.dsl.plan import losses
from opendp_sim.dsl.plan.kernel_choice import frequencies_told
from opendp_sim.dsl.plan.solve import Loss
from opendp_sim.dsl.types.records import Bound, Typed


@dataclass(frozen=True)
class ReleasePlan:
    """Hold a release's solved record, claim and loss."""

    typed: Typed
    bound: Bound | None
    spend: Fraction | None = None
    own_measure: str = "none"
    own_loss: Loss = ()
    loss: Loss = ()
    """In the program's measure."""
    maps: tuple[tuple[str, float], ...] = ()
    """Every map of the chain at the unit's distance: (step, distance after it)."""
    again: losses.ExactLoss = ()
    """The same from the types, in exact numbers."""

    @property
    def record(self) -> Mechanism | None:
        """The mechanism with everything filled in."""
        return None if self.bound is None else self.bound.record

    @property
    def interactive(self) -> bool:
        """Whether it answers one question after another, from a session's store."""
        return self.bound is not None and isinstance(self.bound.claim, Interactive)

    @property
    def asked_stages(self) -> tuple[Stage, ...] | None:
        """Return a sketch with noise, or a mechanism, for questions."""
        typed, bound = self.typed, self.bound
        if typed.is_sketch and typed.release_kind in ("noise", "none"):
            return typed.stages
        if bound is None or not getattr(bound.claim, "capabilities", None):
            return None
        return (*typed.stages, Stage(bound.record, bound.domain, bound.metric, bound.claim))

    @property
    def sampler(self) -> str | None:
        """Which sampler draws the noise."""
        noise = getattr(self.bound.claim, "noise", None) if self.bound else None
        return None if noise is None else str(noise.sampler)

    @property
    def reason(self) -> str:
        """Explain a mechanism's chosen rule, or a sketch's frequencies."""
        claim = None if self.bound is None else self.bound.claim
        told, noise = str(getattr(claim, "reason", "")), getattr(claim, "noise", None)
        if told or not self.typed.stages:
            return told
        facts = self.typed.stages[-1].claim.expected
        sampled = facts.get("sampling deviation per far record", 0.0)
        count = getattr(self.typed.stages[-1].mechanism, "frequencies", 0)
        if noise is None or not sampled or not count:
            return ""
        return frequencies_told(
            count,
            sampled,
            facts["noise per unit of cell noise"] * noise.deviation,
            facts.get("share of moments", 0.0),
        )

    def plain(self) -> dict[str, Any]:
        """The JSON form."""
        if self.bound is None:
            return {"mechanism": "none", "loss": []}
        noise = getattr(self.bound.claim, "noise", None)
        record = self.bound.record
        return {
            "mechanism": {record.key: record.spec()},
            "norm": self.bound.norm,
            "maps": [list(found) for found in self.maps],
            "spend": None if self.spend is None else str(self.spend),
            "own": {"measure": self.own_measure, "loss": list(self.own_loss)},
            "loss": list(self.loss),
            "sampler": self.sampler,
            "deviation": None if noise is None else noise.deviation,
            "cells": self.typed.sketch.output.size if self.typed.is_sketch else None,  # type: ignore[attr-defined]
            "expected": {k: float(v) for k, v in self.bound.claim.expected.items()},
        } | ({"reason": self.reason} if self.reason else {})
