"""A fit that is refused leaves its estimator as it was."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

__all__ = ["all_or_nothing"]

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E")


def all_or_nothing(fit: Callable[Concatenate[E, P], R]) -> Callable[Concatenate[E, P], R]:
    """Put every attribute back when a fit raises: what was fitted before goes on to answer.

    What was charged stays charged: that is in the ledger, and not in the estimator.
    """

    @wraps(fit)
    def whole(self: E, /, *args: P.args, **kwargs: P.kwargs) -> R:
        held: Any = vars(self)
        before = dict(held)
        try:
            return fit(self, *args, **kwargs)
        except BaseException:
            held.clear()
            held.update(before)
            raise

    return whole
