"""Warn of weak budgets and of large deltas."""

from __future__ import annotations

from opendp_sim.accounting.budget import Limit, number_text
from opendp_sim.accounting.measures.attackers import VERY_WEAK
from opendp_sim.core.arithmetic.rounding import up_text

WARN_DELTA = 1e-3
"""A delta of one over a thousand people."""

MOST_EPSILON = 20.0
"""Above it a release may be half a billion times as likely with somebody as without."""
_MOST = {"epsilon": MOST_EPSILON, "rho": 5.0, "mu": 3.25}
"""The others are about the same at a delta of 1e-6."""


def little_protection(limit: Limit | None) -> str | None:
    """Say that a budget protects hardly anybody, where it does; None elsewhere."""
    stated = {} if limit is None else limit.stated()
    for name, most in _MOST.items():
        value = stated.get(name)
        if value is not None and value > most:
            rest = f"1 is usual, and above {most:g} little is left"
            return f"{name} {number_text(value)} gives {VERY_WEAK} protection: {rest}"
    return None


def large_delta(delta: float | None, size: int | None = None) -> str | None:
    """Return a warning if a delta allows to publish a record.

    ``size`` is a public guess of the number of records; 1,000 where there is none.
    """
    most = WARN_DELTA if size is None else 1.0 / size
    if delta is None or delta <= most:
        return None
    of = "people" if size is None else f"records, of which the program expects {size:,}"
    runs = 1.0 / delta
    return (
        f"delta {up_text(delta, 3)} is too large: the claim would still hold if a record were published "
        f"outright with that chance, once in {runs:,.3g} runs; take it well below one over the number "
        f"of {of}"
    )
