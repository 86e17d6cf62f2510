"""Laws of native noise: read off a measurement's map, checked on its releases.

A law is used for prices and for draws. Float laws have prices only: ``x + z`` in doubles has holes that
OpenDP's own noise does not have, so float noise is always drawn by OpenDP itself, at its argument.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats

from opendp_sim.audit.noise import NoiseLaw
from opendp_sim.core import dp

__all__ = ["Law", "Laws", "is_shift"]

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
_ADDITIVE = ("AbsoluteDistance", "L1Distance", "L2Distance")
_DELTA = 0.01


@dataclass(frozen=True)
class Law:
    """``laplace`` or ``gaussian`` noise of one scale, on whole numbers or on floats."""

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

    def loss(self, first: Any, second: Any, delta: float = 0.0) -> tuple[float, float]:
        """Return what equal noisy values cost at two arguments: (epsilon, rho).

        The epsilon of normal noise is the one beside a delta, by the usual conversion, and beside .01
        where the claim has none.
        """
        a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
        if a.shape != b.shape:
            return math.inf, math.inf
        with np.errstate(invalid="ignore"):
            gap = np.nan_to_num(np.abs(a - b), nan=math.inf, posinf=math.inf)
        if self.family == "laplace":
            epsilon = float(gap.sum()) / self.scale
            return epsilon, epsilon * min(epsilon / 2, 1.0)
        rho = float((gap * gap).sum()) / (2 * self.scale**2)
        return rho + math.sqrt(4 * rho * -math.log(min(max(delta, 0.0), 1.0) or _DELTA)), rho

    def log_ratio(self, values: list[int], second: list[int], first: list[int]) -> float:
        """Return the log of how much likelier whole noisy values are at the second arguments."""
        if self.family == "laplace":
            gaps = (abs(v - a) - abs(v - b) for v, a, b in zip(values, first, second, strict=True))
            return sum(gaps) / self.scale
        squares = ((b - a) * (2 * v - a - b) for v, a, b in zip(values, first, second, strict=True))
        return sum(squares) / (2 * self.scale**2)

    def scout(self, count: int, rng: np.random.Generator) -> list[int]:
        """Return whole noise drawn fast by numpy: for the search, never for a verdict."""
        if self.family == "laplace":
            p = -math.expm1(-1 / self.scale)
            return list((rng.geometric(p, count) - rng.geometric(p, count)).tolist())
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
        """Return the values of whole noise outside of which less than ``tail`` lies."""
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
    alike: dict[str, Law | None] = field(default_factory=dict)
    """By domain, metric, measure and loss; none once an object of the kind did not fit."""
    tests: int = 0

    def of(self, made: Any, real: Any) -> tuple[Law | None, bool]:
        """Return the law, and whether releases of this very object were compared to it."""
        found = self.known.get(id(made))
        if found is not None and (found[2] or self.tests >= _MOST_TESTS):
            return found[1], found[2]
        key = _identity(made)
        if found is not None:
            self.tests += 1
            law, tested = self._tested(made, real), True
            self.alike[key] = law if self.alike.get(key, law) is not None else None
        else:
            if key not in self.alike:
                self.alike[key] = _read_safely(made)
            law, tested = self.alike[key], False
        if found is not None or len(self.known) < _KNOWN:
            self.known[id(made)] = made, law, tested
        return law, tested

    def _tested(self, made: Any, real: Any) -> Law | None:
        try:
            law = _read(made)
            if law is None:
                return None
            zero: Any = 0 if law.whole else 0.0
            if law.vector:
                size = made.input_domain.size or 4
                rows = [real(made, [zero] * size) for _ in range(max(4, _RELEASES // size))]
                seen = np.ravel(np.asarray(rows, dtype=float))
            else:
                seen = np.array([real(made, zero) for _ in range(_RELEASES)], dtype=float)
        except Exception:  # noqa: BLE001 - whatever refuses has no law here
            return None
        agrees = stats.ks_2samp(seen, law.reference(self.rng)).pvalue >= _RISK
        return law if agrees and is_shift(law, made, real) else None


def _read_safely(made: Any) -> Law | None:
    try:
        return _read(made)
    except Exception:  # noqa: BLE001 - no law
        return None


def is_shift(law: Law, made: Any, real: Any) -> bool:
    """Say whether the noise stands around its argument far from zero, on both sides as it can be.

    A chain that clamps or rounds before its noise has metrics and map of plain noise, and its price would
    be too high; so would be that of a chain that does so after it.
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


def _identity(made: Any) -> str:
    try:
        one = made.map(_one(made))
    except Exception:  # noqa: BLE001
        one = None
    return f"{made.input_domain} {made.input_metric} {made.output_measure} {one}"


def _one(made: Any) -> Any:
    return 1 if str(made.input_distance_type)[0] in "iu" else 1.0


def _read(made: Any) -> Law | None:
    """Family and scale from domain, metric, measure and the map at 1; ``None`` for other kinds."""
    metric = str(made.input_metric.type).split("<")[0]
    domain = made.input_domain
    vector = isinstance(domain, dp.VectorDomain)
    atom = domain.element_domain if vector else domain
    if metric not in _ADDITIVE or not isinstance(atom, dp.AtomDomain):
        return None
    whole = not str(atom.carrier_type).startswith("f")
    measure, one = str(made.output_measure.type), made.map(_one(made))
    carrier = str(atom.carrier_type)
    if not isinstance(one, float) or not 0 < one < math.inf:
        return None
    if measure.startswith("ZeroConcentrated"):
        return Law("gaussian", math.sqrt(1 / (2 * one)), whole, vector, carrier)
    if measure.startswith("MaxDivergence"):
        return Law("laplace", 1 / one, whole, vector, carrier)
    return None
