"""What the opaque twins are made of: a table, and short names for OpenDP's constructors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import opendp.prelude as dp

dp.enable_features("contrib", "honest-but-curious")

SYMMETRIC = dp.symmetric_distance()
CHANGE_ONE = dp.change_one_distance()
PURE = dp.max_divergence()
ZCDP = dp.zero_concentrated_divergence()
APPROX = dp.approximate(dp.max_divergence())


@dataclass(frozen=True)
class Pair:
    """One program, broken and sound.

    ``make(True)`` is the broken one. ``fault`` says what is wrong; ``sound`` is the argument why the
    other one keeps its claim.
    """

    name: str
    family: str
    make: Callable[[bool], Any]
    d_in: Any
    fault: str
    sound: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the audit: a domain of one's own needs a generator."""


PAIRS: list[Pair] = []


def pair(family: str, *, fault: str, sound: str, d_in: Any = 1) -> Callable[..., Any]:
    """Register a factory ``make(broken)``.

    A file that is run again under another module name (pytest's doctests do it) registers nothing new.

    Raises:
        ValueError: two programs have one name.
    """

    def keep(make: Callable[[bool], Any]) -> Callable[[bool], Any]:
        known = next((pair for pair in PAIRS if pair.name == make.__name__), None)
        if known is None:
            PAIRS.append(Pair(make.__name__, family, make, d_in, fault, sound))
        elif _place(known.make) != _place(make):
            raise ValueError(make.__name__)
        return make

    return keep


def _place(make: Any) -> tuple[Path, int]:
    """Return the file and the line of a function."""
    return Path(make.__code__.co_filename).resolve(), make.__code__.co_firstlineno


def whole(low: int | None = None, high: int | None = None, size: int | None = None) -> Any:
    """Datasets of integers, bounded or not."""
    bounds = None if low is None else (low, high)
    return dp.vector_domain(dp.atom_domain(T=int, bounds=bounds), size=size)


def real(low: float | None = None, high: float | None = None, *, nan: bool = False) -> Any:
    """Datasets of floats."""
    if low is None:
        return dp.vector_domain(dp.atom_domain(T=float, nan=nan))
    return dp.vector_domain(dp.atom_domain(T=float, bounds=(low, high), nan=nan))


def text() -> Any:
    """Datasets of strings."""
    return dp.vector_domain(dp.atom_domain(T=str))


def lap(scale: float) -> Any:
    """OpenDP's integer Laplace for one number."""
    return dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), scale)


def laps(scale: float) -> Any:
    """OpenDP's integer Laplace for a vector under the L1 distance."""
    return dp.m.make_laplace(dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int), scale)


def flap(scale: float) -> Any:
    """OpenDP's float Laplace for one number."""
    return dp.m.make_laplace(
        dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float), scale
    )


def gauss(scale: float) -> Any:
    """OpenDP's integer Gaussian for one number, under zCDP."""
    return dp.m.make_gaussian(dp.atom_domain(T=int), dp.absolute_distance(T=int), scale)


def gausses(scale: float) -> Any:
    """OpenDP's integer Gaussian for a vector under the L2 distance."""
    return dp.m.make_gaussian(
        dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float), scale
    )


def up(value: float) -> float:
    """A claim with room for the rounding of a few float operations."""
    return value * (1 + 1e-9)


def opaque(domain: Any, metric: Any, measure: Any, function: Any, privacy_map: Any) -> Any:
    """A Python function with a claim."""
    return dp.m.make_user_measurement(domain, metric, measure, function, privacy_map)
