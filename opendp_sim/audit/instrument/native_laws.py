"""Read the laws of native noise.

From a measurement's construction. A law is used for prices and for draws.
Float laws have prices only: ``x + z`` in doubles has holes that OpenDP's own noise does not have, so
float noise is always drawn by OpenDP itself, at its argument.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from opendp_sim.audit.claims.noise_laws import NoiseLaw
from opendp_sim.core import dp
from opendp_sim.core.bridge import construction

_REFERENCE, _FARTHEST = 20_000, 60
_KNOWN = 400
"""Measurements whose law is remembered; a function that makes one for each call makes many."""
_CONSTRUCTORS = {
    "make_laplace": "laplace",
    "make_geometric": "laplace",
    "make_gaussian": "gaussian",
}
_MEASURES = {"MaxDivergence": "laplace", "ZeroConcentratedDivergence": "gaussian"}
"""Of ``make_noise`` the measure says which family it adds."""
_FINEST = -1074
"""The granularity of float noise that OpenDP takes by itself: no float argument is rounded to it."""
_FINE = 2.0**15
"""Normal noise of a larger scale is imitated by rounding, and not from a table of its values."""
_DELTA = 0.01
_EXACT = 2**53


@dataclass(frozen=True)
class Law:
    """Describe ``laplace`` or ``gaussian`` noise of one scale, whole or not."""

    family: str
    scale: float
    whole: bool
    vector: bool
    carrier: str = "f64"
    """The type of a cell, as OpenDP names it; asking OpenDP again costs more than a draw."""

    @property
    def noise(self) -> NoiseLaw:
        """The same law as the other layers know it."""
        return NoiseLaw(f"discrete_{self.family}" if self.whole else self.family, self.scale)

    @property
    def reach(self) -> float:
        """Return the range of whole noise but for 1e-25 of mass."""
        return _FARTHEST * self.scale + 1

    @functools.cached_property
    def ends(self) -> float:
        """Return the largest number far from the type's ends."""
        return 2.0 ** (int(self.carrier[1:]) - 2)

    def clear_of_ends(self, argument: Any) -> bool:
        """Return whether whole noise at an argument stays in its type."""
        if not self.whole:
            return True
        low = self.reach if self.carrier.startswith("u") else -self.ends
        cells = argument if self.vector else [argument]
        return all(low <= cell <= self.ends for cell in cells)

    def loss(self, first: Any, second: Any, delta: float = 0.0) -> tuple[float, float]:
        """Return the loss of equal noisy values at two arguments.

        As (epsilon, rho). The epsilon of normal noise is the one beside a delta, by the usual
        conversion, and beside .01 where the claim has none.
        """
        if type(first) is int and type(second) is int and abs(first) + abs(second) < _EXACT:
            moved, squared = float(abs(first - second)), float((first - second) ** 2)
        else:
            a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
            if a.shape != b.shape:
                return math.inf, math.inf
            with np.errstate(invalid="ignore"):
                gap = np.nan_to_num(np.abs(a - b), nan=math.inf, posinf=math.inf)
                moved, squared = float(gap.sum()), float((gap * gap).sum())
        if self.family == "laplace":
            epsilon = moved / self.scale
            return epsilon, epsilon * min(epsilon / 2, 1.0)
        rho = squared / (2 * self.scale**2)
        return rho + math.sqrt(4 * rho * -math.log(min(max(delta, 0.0), 1.0) or _DELTA)), rho

    def scout(self, count: int, rng: np.random.Generator) -> list[int]:
        """Return whole noise drawn fast by numpy, for searches alone."""
        if self.family == "laplace":
            p = -math.expm1(-1 / self.scale)
            return list((rng.geometric(p, count) - rng.geometric(p, count)).tolist())
        if self.scale > _FINE:
            return list(np.rint(rng.normal(0.0, self.scale, count)).astype(np.int64).tolist())
        reach = int(12 * self.scale + 12)
        z = np.arange(-reach, reach + 1)
        weight = np.cumsum(np.exp(-(z.astype(float) ** 2) / (2 * self.scale**2)))
        spots = np.searchsorted(weight / weight[-1], rng.random(count), side="right") - reach
        return list(spots.tolist())

    def reference(self, rng: np.random.Generator) -> Any:
        """Return a sample that releases are compared to."""
        if self.whole:
            return np.array(self.scout(_REFERENCE, rng), dtype=float)
        if self.family == "laplace":
            return rng.laplace(0.0, self.scale, _REFERENCE)
        return rng.normal(0.0, self.scale, _REFERENCE)

    def window(self, tail: float) -> range:
        """Return the values of whole noise, up to ``tail`` of mass."""
        if self.family == "laplace":
            reach = math.ceil(self.scale * math.log(2 / tail)) + 1
        else:
            reach = math.ceil(self.scale * math.sqrt(2 * math.log(4 / tail))) + 2
        return range(-reach, reach + 1)

    def masses(self, values: range) -> Any:
        """Return the probabilities of whole noise at these values."""
        z = np.asarray(values, dtype=float)
        if self.family == "laplace":
            t = math.exp(-1 / self.scale)
            return np.exp(-np.abs(z) / self.scale) * ((1 - t) / (1 + t))
        wide = np.arange(-int(40 * self.scale + 40), int(40 * self.scale + 41), dtype=float)
        total = float(np.exp(-(wide**2) / (2 * self.scale**2)).sum())
        return np.exp(-(z**2) / (2 * self.scale**2)) / total


class Laws:
    """The laws of the native measurements that a run has met."""

    def __init__(self) -> None:
        """Begin with none."""
        self.named = True
        """Whether what a measurement is called by is OpenDP's own: else no construction tells a law."""
        self._known: dict[int, tuple[Any, Law | None]] = {}
        """By identity of the object, which is kept, so that no other can get it."""

    def of(self, made: Any) -> tuple[Law | None, bool]:
        """Return the law, and whether the object was met before."""
        if not self.named:
            return None, False
        if id(made) in self._known:
            return self._known[id(made)][1], True
        law = _read_safely(made)
        if len(self._known) < _KNOWN:
            self._known[id(made)] = made, law
        return law, False


def _read_safely(made: Any) -> Law | None:
    try:
        return _read(made)
    except Exception:  # noqa: BLE001 - no law
        return None


def clear(law: Law, argument: Any) -> bool:
    """Return whether noise at an argument surely stays in its type."""
    try:
        return law.clear_of_ends(argument)
    except (TypeError, ValueError):  # OpenDP says itself what it does not take
        return False


def as_taken(argument: Any) -> Any:
    """Return a float argument as OpenDP converts NaN and infinities."""
    if isinstance(argument, list):
        return [as_taken(cell) for cell in argument]
    if isinstance(argument, float) and not math.isfinite(argument):
        return float(np.nan_to_num(argument))
    return argument


def _read(made: Any) -> Law | None:
    """Return family and scale from an object's construction, or None.

    A map is no way to know a law: it only bounds a loss, by any noise and as loosely as it likes.
    """
    name, given = construction(made)
    measure, granularity = str(given.get("output_measure", "")), given.get("k")
    family = _CONSTRUCTORS.get(name)
    if name == "make_noise":
        family = next((f for kind, f in _MEASURES.items() if measure.startswith(kind)), None)
    domain, scale = made.input_domain, given.get("scale")
    vector = isinstance(domain, dp.VectorDomain)
    atom = domain.element_domain if vector else domain
    if family is None or not isinstance(atom, dp.AtomDomain) or given.get("bounds") is not None:
        return None
    carrier = str(atom.carrier_type)
    whole = not carrier.startswith("f")
    if granularity not in ((None, 0) if whole else (None, _FINEST)):
        return None  # the argument is rounded to a grid before the noise
    if not isinstance(scale, (int, float)) or not 0 < scale < math.inf:
        return None
    law = Law(family, float(scale), whole, vector, carrier)
    return law if not whole or law.reach <= law.ends else None
