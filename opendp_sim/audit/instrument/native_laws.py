"""Read the laws of native noise.

From a measurement's construction, checked on its releases. A law is used for prices and for draws.
Float laws have prices only: ``x + z`` in doubles has holes that OpenDP's own noise does not have, so
float noise is always drawn by OpenDP itself, at its argument.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats

from opendp_sim.audit.claims.noise_laws import NoiseLaw
from opendp_sim.core import dp
from opendp_sim.core.bridge import construction

_RELEASES, _REFERENCE, _RISK = 240, 20_000, 1e-7
_KNOWN = 400
"""Measurements whose law is remembered; a function that makes one for each call makes many."""
_MOST_TESTS = 12
"""Objects whose releases are compared; of others the law is read only, which is no verdict's base.

They are compared when they are met again: a function that makes its noise at each call makes many, and
meets none a second time.
"""
_FAR, _FARTHEST, _NARROW = 2.0**40, 60, {"8": 2.0**6, "16": 2.0**13, "32": 2.0**28}
"""Where a law is asked whether it follows its argument, in how many scales; less far in narrow types."""
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


@dataclass
class Laws:
    """The laws of the native measurements that a run has met."""

    rng: np.random.Generator
    known: dict[int, tuple[Any, Law | None, bool]] = field(default_factory=dict)
    """By identity of the object, which is kept, so that no other can get it."""
    unlike: set[Law] = field(default_factory=set)
    """Laws that an object did not fit which names them: no other is believed either."""
    tests: int = 0
    named: bool = True
    """Whether what a measurement is called by is OpenDP's own: else no construction tells a law."""

    def of(self, made: Any, real: Any) -> tuple[Law | None, bool]:
        """Return the law, and whether this object's releases confirm it."""
        if not self.named:
            return None, False
        found = self.known.get(id(made))
        if found is not None and (found[2] or self.tests >= _MOST_TESTS):
            return found[1], found[2]
        law, tested = _read_safely(made), found is not None
        if law is not None and tested:
            self.tests += 1
            if not self._fits(law, made, real):
                self.unlike.add(law)
        law = None if law in self.unlike else law
        if found is not None or len(self.known) < _KNOWN:
            self.known[id(made)] = made, law, tested
        return law, tested

    def _fits(self, law: Law, made: Any, real: Any) -> bool:
        """Compare releases to the law."""
        zero: Any = 0 if law.whole else 0.0
        try:
            if law.vector:
                size = made.input_domain.size or 4
                rows = [real(made, [zero] * size) for _ in range(max(4, _RELEASES // size))]
                seen = np.ravel(np.asarray(rows, dtype=float))
            else:
                seen = np.array([real(made, zero) for _ in range(_RELEASES)], dtype=float)
            agrees = stats.ks_2samp(seen, law.reference(self.rng)).pvalue >= _RISK
            return bool(agrees) and is_shift(law, made, real)
        except Exception:  # noqa: BLE001 - whatever refuses has no law here
            return False


def _read_safely(made: Any) -> Law | None:
    try:
        return _read(made)
    except Exception:  # noqa: BLE001 - no law
        return None


def is_shift(law: Law, made: Any, real: Any) -> bool:
    """Return whether the noise is centred on its argument.

    Tested far from zero, on both sides where possible. A chain that clamps or rounds before its noise
    has metrics and map of plain noise, and its price would be too high; so would be that of a chain
    that does so after it.
    """
    far = next((f for bits, f in _NARROW.items() if law.carrier.endswith(bits)), _FAR)
    places = (far, -far) if law.carrier[0] in "if" else (far, far / 2)
    room = _FARTHEST * law.scale + 1 + (far * 2.0**-22 if law.carrier == "f32" else 0)
    for place in places:
        at: Any = int(place) if law.whole else place
        try:
            out = real(made, [at] * (made.input_domain.size or 1) if law.vector else at)
        except Exception:  # noqa: BLE001 - whatever refuses is no plain noise
            return False
        if not all(abs(one - at) <= room for one in (out if law.vector else [out])):
            return False
    return True


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
