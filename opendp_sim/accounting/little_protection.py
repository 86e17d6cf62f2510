"""Budgets that protect hardly anybody, in one plain line: plans, recipes and budgets all say it."""

from __future__ import annotations

from opendp_sim.accounting.budget import Budget

__all__ = ["MOST_EPSILON", "little_protection"]

MOST_EPSILON = 20.0
"""Above it a release may be half a billion times as likely with somebody as without."""
_MOST = {"epsilon": MOST_EPSILON, "rho": 5.0, "mu": 3.25}
"""The others are about the same at a delta of 1e-6."""


def little_protection(limit: Budget | None) -> str | None:
    """Say that a budget protects hardly anybody, where it does; None elsewhere."""
    stated = {} if limit is None else limit.stated()
    for name, most in _MOST.items():
        value = stated.get(name)
        if value is not None and value > most:
            rest = f"1 is usual, and above {most:g} little is left"
            return f"{name} {value:g} protects hardly anybody: {rest}"
    return None
