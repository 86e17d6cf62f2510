"""Budgets: what may be lost, as it is stated in public."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from opendp_sim.core.claims import Measure
from opendp_sim.core.errors import BudgetError

__all__ = ["MEASURES", "Budget", "MeasureName"]

MeasureName = Literal["pure", "zcdp", "approx_zcdp", "approx"]
MEASURES: dict[MeasureName, Measure] = {
    "pure": "max_divergence",
    "zcdp": "zero_concentrated_divergence",
    "approx_zcdp": "approx_zero_concentrated_divergence",
    "approx": "approx_max_divergence",
}
"""The spec's word for a measure, and OpenDP's."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A public bound on the total loss: epsilon, epsilon at delta, rho, or several at once.

    Attributes:
        epsilon: bound on epsilon, at ``delta`` when that is given.
        delta: the delta at which epsilon is stated.
        rho: bound on the zCDP parameter.
        reserve_mechanisms: part of delta that mechanisms with a delta of their own may use; the rest
            is for the conversion from zCDP.
    """

    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None
    reserve_mechanisms: float | None = None

    def check(self, measure: MeasureName | None, where: str = "budget") -> None:
        """Refuse a budget that is none, or not one for ``measure`` where that is known (OS401)."""
        for name, value in self.stated().items():
            if not (math.isfinite(value) and value > 0):
                raise self._refuse(where, f"{name} > 0 and finite", f"{name} {value:g}")
        if self.delta is not None and self.delta >= 1:
            raise self._refuse(where, "delta < 1", f"delta {self.delta:g}")
        if self.epsilon is None and self.rho is None:
            raise self._refuse(where, "epsilon, epsilon and delta, or rho", "none of them")
        if measure is None:
            return
        if measure == "pure" and (self.rho is not None or self.delta is not None):
            raise self._refuse(where, "epsilon alone under `pure`", "rho or delta")
        if measure == "approx" and (self.rho is not None or self.epsilon is None):
            raise self._refuse(where, "epsilon and delta under `approx`", "another budget")
        if measure != "pure" and self.epsilon is not None and self.delta is None:
            raise self._refuse(where, f"a delta beside epsilon under `{measure}`", "no delta")
        if measure == "approx_zcdp" and self.delta is None:
            raise self._refuse(where, "a delta under `approx_zcdp`", "no delta")
        if self.epsilon is None and self.delta is not None and measure == "zcdp":
            raise self._refuse(where, "an epsilon beside delta", "delta alone")
        if self.reserve_mechanisms is not None and not (
            measure == "approx_zcdp" and self.reserve_mechanisms < (self.delta or 0.0)
        ):
            raise self._refuse(
                where, "reserve.mechanisms < delta, under `approx_zcdp`",
                f"{self.reserve_mechanisms:g}",
            )  # fmt: skip

    def stated(self) -> dict[str, float]:
        """The bounds that are given, by name."""
        named = {"epsilon": self.epsilon, "delta": self.delta, "rho": self.rho}
        return {name: value for name, value in named.items() if value is not None}

    def plain(self) -> dict[str, Any]:
        """The spec's form."""
        out: dict[str, Any] = dict(self.stated())
        if self.reserve_mechanisms is not None:
            out["reserve"] = {"mechanisms": self.reserve_mechanisms}
        return out

    @property
    def mechanisms_delta(self) -> float:
        """The delta that mechanisms may use under ``approx_zcdp``: half unless reserved."""
        if self.reserve_mechanisms is not None:
            return self.reserve_mechanisms
        delta = self.delta or 0.0
        return delta if self.epsilon is None else delta / 2

    @staticmethod
    def _refuse(where: str, expected: str, got: str) -> BudgetError:
        return BudgetError(
            "OS401", where, expected=expected, got=got,
            hint="for example {epsilon: 1.0} under pure, {epsilon: 1.0, delta: 1.0e-6} under zcdp.",
        )  # fmt: skip
