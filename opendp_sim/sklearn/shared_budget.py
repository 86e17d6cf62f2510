"""Which budget pays where several could: the one that all of them are, or a refusal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from opendp_sim.sklearn.budget import Budget
from opendp_sim.sklearn.refusals import EstimatorRefused

__all__ = ["one_budget"]


def one_budget(held: Iterable[Any], expected: str, hint: str) -> Budget | None:
    """Return the one budget among what is held; None where there is none.

    Raises:
        EstimatorRefused (OS102): two different ones.
    """
    named = [each for each in held if isinstance(each, Budget)]
    if any(budget is not named[0] for budget in named):
        raise EstimatorRefused("OS102", "budget", expected=expected, got="several", hint=hint)
    return named[0] if named else None
