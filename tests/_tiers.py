"""Which cases of a parametrized test every run has, and which are `long` (CONTRIBUTING says who runs them)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def tiered(values: Iterable[Any], fast: Callable[[Any], bool]) -> list[Any]:
    """Return all values in their order, those that are not ``fast`` with the marker `long`."""
    return [
        value if fast(value) else pytest.param(value, marks=pytest.mark.long) for value in values
    ]


def some(values: Iterable[Any], every: int) -> list[Any]:
    """Return all values, of which the first and each ``every``-th after it are fast."""
    listed = list(values)
    return [
        value if number % every == 0 else pytest.param(value, marks=pytest.mark.long)
        for number, value in enumerate(listed)
    ]


def several(values: Iterable[Any], every: int) -> list[Any]:
    """Return what ``some`` does of rows: a tuple of one value for each of several names."""
    return [
        row if number % every == 0 else pytest.param(*row, marks=pytest.mark.long)
        for number, row in enumerate(values)
    ]
