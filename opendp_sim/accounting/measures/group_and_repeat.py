"""Bound protection over runs and records (Lemmas A4, A5 of ``attackers.md``)."""

from __future__ import annotations

import math
from fractions import Fraction

from opendp_sim.accounting.measures.attackers import Attacker, attacker_of
from opendp_sim.core.arithmetic.rounding import float_up


def after_runs(attacker: Attacker, runs: int) -> Attacker:
    """Return the attacker after ``runs`` equal runs on one dataset (Lemma A4)."""
    first, *deltas = (_times(part, runs) for part in attacker.loss)
    return attacker_of(attacker.measure, (first, *(min(1.0, delta) for delta in deltas)))


def of_units(attacker: Attacker, count: int) -> Attacker | None:
    """Return the attacker of ``count`` units together, or None (Lemma A5)."""
    first = attacker.loss[0]
    if attacker.measure in ("gdp", "zcdp"):
        return attacker_of(attacker.measure, (_times(first, count * count),))
    grown = _times(first, count)
    if attacker.measure == "pure":
        return attacker_of("pure", (grown,))
    if attacker.measure != "approx" or grown > 700:
        return None
    steps = sum(math.exp(step * first) for step in range(count))
    return attacker_of("approx", (grown, min(1.0, attacker.loss[1] * steps * (1 + 1e-12))))


def _times(value: float, count: int) -> float:
    return value if math.isinf(value) else float_up(Fraction(value) * count)
