"""State public budgets of privacy loss."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

from opendp_sim.accounting.measures.gaussian import mu_squared_down
from opendp_sim.core.arithmetic.plain_numbers import python_value
from opendp_sim.core.arithmetic.rounding import decimal_of, float_down
from opendp_sim.core.claims import Measure
from opendp_sim.core.errors import BudgetError, repr_text

MeasureName = Literal["pure", "gdp", "zcdp", "approx_zcdp", "approx"]
MEASURES: dict[MeasureName, Measure] = {
    "pure": "max_divergence",
    "gdp": "zero_concentrated_divergence",
    "zcdp": "zero_concentrated_divergence",
    "approx_zcdp": "approx_zero_concentrated_divergence",
    "approx": "approx_max_divergence",
}
"""The spec's word for a measure, and that in which OpenDP composes it.

Gaussian DP composes as zCDP with ``rho = mu**2 / 2``; what enters such a composition is decided by
``mu_squared`` of a claim, never by this word."""
_LARGEST = sys.float_info.max
MOST_DELTA = 0.5
"""On a Gaussian curve: from here on floats lose the curve's slope by cancellation."""
_MOST_EPSILON = 1e9
"""Beside a delta under ``gdp``: beyond it floats do not hold the curve."""
_CONVERTED_EPSILON, _CONVERTED_DELTA = 1e4, (1e-300, 0.1)
"""Where OpenDP's conversion of rho follows its formula: above, its epsilon stays near 71,000, and floats
hold neither a smaller delta nor what a larger one leaves."""

Number = float | Fraction
"""A bound as it was written: a float stands for the decimal that its shortest text says."""
WRITTEN = r"[0-9]{1,350}(/[0-9]{1,350}|(\.[0-9]{1,350})?([eE][+-]?[0-9]{1,3})?)"
"""A bound as a text: a ratio, or a decimal."""
MOST_DENOMINATOR = 10**350
"""The denominator of every bound is smaller: its text has few digits."""


def as_written(value: Any) -> Any:
    """Return a decimal, numpy number or text as an equal ``Number``.

    A text is a decimal such as "0.1", or a ratio such as "1/7"; others are unchanged.
    """
    value = python_value(value)
    if isinstance(value, str) and re.fullmatch(WRITTEN, value):
        first, ratio, second = value.partition("/")
        if not ratio:
            value = Decimal(value)
        elif int(second):
            value = Fraction(int(first), int(second))
    if isinstance(value, Decimal) and value.is_finite() and -400 < value.adjusted() < 400:
        value = Fraction(value)
    if isinstance(value, Fraction) and abs(value) <= _LARGEST:
        near = float(value)
        return near if decimal_of(near) == value else value
    return value


def number_text(value: Number) -> str:
    """Render a bound exactly, as ``0.1``, ``1e-06`` or ``1/7``."""
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


@dataclass(frozen=True, slots=True)
class Limit:
    """Bound the total loss in public, by one parameter or several.

    Bounds are the decimals or ratios that were written, exactly: a float counts as its shortest text, a
    ``Decimal``, a ``Fraction`` and a text such as ``"0.1"`` or ``"1/7"`` as themselves. ``exact`` has
    them as rationals, for sums; ``down`` as floats that are no larger, for curves and searches.

    Attributes:
        epsilon: bound on epsilon, at ``delta`` when that is given.
        delta: the delta at which epsilon is stated.
        rho: bound on the zCDP parameter.
        mu: bound on the parameter of Gaussian DP.
        reserve_mechanisms: part of delta that mechanisms with a delta of their own may use; the rest
            is for the conversion from zCDP.
    """

    epsilon: Number | None = None
    delta: Number | None = None
    rho: Number | None = None
    reserve_mechanisms: Number | None = None
    mu: Number | None = None

    def __post_init__(self) -> None:
        """Keep every bound as it was written."""
        for field in fields(self):
            object.__setattr__(self, field.name, as_written(getattr(self, field.name)))

    def exact(self, name: str) -> Fraction | None:
        """Return a bound by name, exactly, or None."""
        value = getattr(self, name)
        return None if value is None else decimal_of(value)

    def down(self, name: str) -> float | None:
        """Return the greatest float at or below a bound, or None."""
        value = self.exact(name)
        return None if value is None else float_down(value)

    def check(self, measure: MeasureName | None, where: str = "budget") -> None:
        """Refuse a budget that is not finite or not of ``measure`` (OS401)."""
        if measure is not None and measure not in MEASURES:
            raise self._refuse(where, f"a measure of {', '.join(MEASURES)}", "another")
        for name, value in self.stated().items():
            real = type(value) in (int, float, Fraction)
            if not real or not 0 < value <= _LARGEST or float_down(decimal_of(value)) == 0:
                shown = f"{value:g}" if type(value) is float else repr_text(value, 20)
                raise self._refuse(where, f"{name} > 0 and finite", f"{name} {shown}")
            if isinstance(value, Fraction) and value.denominator >= MOST_DENOMINATOR:
                raise self._refuse(where, f"{name} of at most 350 digits", "more of them")
        if self.delta is not None and self.delta >= 1:
            raise self._refuse(where, "delta < 1", f"delta {number_text(self.delta)}")
        if self.epsilon is None and self.rho is None and self.mu is None:
            raise self._refuse(where, "epsilon, epsilon and delta, rho, or mu", "none of them")
        for wrong, expected, got in self._against(measure) if measure is not None else ():
            if wrong:
                raise self._refuse(where, expected, got)

    def _against(self, measure: MeasureName) -> tuple[tuple[bool, str, str], ...]:
        """Return (does not hold, expected, got) for every rule of ``measure``."""
        epsilon, delta, rho = (v is not None for v in (self.epsilon, self.delta, self.rho))
        reserve = self.reserve_mechanisms
        fits = reserve is None or (measure == "approx_zcdp" and 0 <= reserve < (self.delta or 0.0))
        mu = self.mu is not None
        return (
            (measure != "gdp" and mu, "mu under `gdp` only", "mu under another measure"),
            (measure == "gdp" and rho, "mu, or epsilon and delta, under `gdp`", "rho"),
            (measure == "gdp" and delta and not epsilon, "an epsilon beside delta", "delta alone"),
            (
                measure == "gdp" and (self.delta or 0.0) >= MOST_DELTA,
                f"delta < {MOST_DELTA:g} under `gdp`",
                f"delta {number_text(self.delta or 0.0)}",
            ),
            (
                measure == "gdp" and (self.epsilon or 0.0) > _MOST_EPSILON,
                f"an epsilon of at most {_MOST_EPSILON:g} under `gdp`",
                f"epsilon {number_text(self.epsilon or 0.0)}",
            ),
            *self._of_a_conversion(measure),
            (measure == "pure" and (rho or delta), "epsilon alone under `pure`", "rho or delta"),
            (
                measure == "approx" and (rho or not epsilon),
                "epsilon and delta under `approx`",
                "another budget",
            ),
            (
                measure != "pure" and epsilon and not delta,
                f"a delta beside epsilon under `{measure}`",
                "no delta",
            ),
            (measure == "approx_zcdp" and not delta, "a delta under `approx_zcdp`", "no delta"),
            (measure == "zcdp" and delta and not epsilon, "an epsilon beside delta", "delta alone"),
            (
                not fits,
                "0 <= reserve.mechanisms < delta, under `approx_zcdp`",
                repr_text(reserve, 20),
            ),
        )

    def _of_a_conversion(self, measure: MeasureName) -> tuple[tuple[bool, str, str], ...]:
        """Return the rules of epsilon at delta, as OpenDP converts rho."""
        if measure not in ("zcdp", "approx_zcdp") or None in (self.epsilon, self.delta):
            return ()
        least, most = _CONVERTED_DELTA
        epsilon, delta = self.epsilon or 0.0, self.delta or 0.0
        return (
            (
                epsilon > _CONVERTED_EPSILON,
                f"an epsilon of at most {_CONVERTED_EPSILON:g} under `{measure}`",
                f"epsilon {number_text(epsilon)}",
            ),
            (
                not least <= delta <= most,
                f"a delta from {least:g} to {most:g} beside epsilon under `{measure}`",
                f"delta {number_text(delta)}",
            ),
        )

    def stated(self) -> dict[str, Number]:
        """The bounds that are given, by name."""
        named = {"epsilon": self.epsilon, "delta": self.delta, "rho": self.rho, "mu": self.mu}
        return {name: value for name, value in named.items() if value is not None}

    def plain(self) -> dict[str, Any]:
        """The spec's form."""
        out: dict[str, Any] = {name: _plain(value) for name, value in self.stated().items()}
        if self.reserve_mechanisms is not None:
            out["reserve"] = {"mechanisms": _plain(self.reserve_mechanisms)}
        return out

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> Limit:
        """Return the budget of the spec's form."""
        kept = (plain.get("reserve") or {}).get("mechanisms")
        bounds = {name: plain.get(name) for name in ("epsilon", "delta", "rho", "mu")}
        return cls(**bounds, reserve_mechanisms=kept)

    @property
    def text(self) -> str:
        """The bounds in words, exactly."""
        return ", ".join(f"{name} {number_text(value)}" for name, value in self.stated().items())

    @property
    def mu_squared(self) -> Fraction | None:
        """Return the greatest mu**2 within the bounds, or None."""
        mu, epsilon, delta = self.exact("mu"), self.down("epsilon"), self.down("delta")
        limits = [] if mu is None else [mu**2]
        if epsilon is not None and delta is not None:
            limits.append(mu_squared_down(epsilon, delta))
        return min(limits, default=None)

    @property
    def mechanisms_delta(self) -> Fraction:
        """Return the delta for ``approx_zcdp`` mechanisms, half of it unless reserved."""
        if self.reserve_mechanisms is not None:
            return decimal_of(self.reserve_mechanisms)
        delta = self.exact("delta") or Fraction(0)
        return delta if self.epsilon is None else delta / 2

    @property
    def conversion_delta(self) -> float:
        """Return the greatest delta that ``approx_zcdp`` mechanisms leave."""
        return float_down((self.exact("delta") or 0) - self.mechanisms_delta)

    @staticmethod
    def _refuse(where: str, expected: str, got: str) -> BudgetError:
        return BudgetError(
            "OS401", where, expected=expected, got=got,
            hint="for example {epsilon: 1.0} under pure, {epsilon: 1.0, delta: 1.0e-6} under gdp.",
        )  # fmt: skip


def _plain(value: Number) -> float | str:
    return number_text(value) if isinstance(value, Fraction) else value
