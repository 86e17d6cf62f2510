"""Compose charges by OpenDP's composition of stand-in measurements.

A recorded charge has no mechanism any more, only a loss; a stand-in is a measurement whose map is
that loss. A ledger has one measure for its life, and every charge joins it when it is made (pure
losses may enter a zCDP ledger, through OpenDP's cast, or a Gaussian one at their exact mu; Gaussian
losses may enter a zCDP ledger). That is a privacy filter: charges may be
chosen after seeing earlier answers, and the limit holds for the whole history. Basic composition is
exact for pure and for zCDP filters, and their approximate kinds. Losses and limits are rationals, added
and compared exactly: ten runs of 0.1 fit a limit of 1 (``composition.md``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from opendp_sim.accounting.budget import MEASURES, Limit, MeasureName, number_text
from opendp_sim.accounting.measures.gaussian import epsilon_up, epsilon_within
from opendp_sim.accounting.measures.normal_tail import root_bounds
from opendp_sim.accounting.measures.second_opinion import gaussian_of_pure, zcdp_to_epsilon
from opendp_sim.core import dp
from opendp_sim.core.arithmetic.rounding import (
    decimal_down,
    down_text,
    float_down,
    float_up,
    sqrt_up,
    up_text,
)
from opendp_sim.core.bridge import build
from opendp_sim.core.claims import Private
from opendp_sim.core.errors import BudgetError
from opendp_sim.domains.metrics import VectorNorm
from opendp_sim.domains.sketch import IntVector

# --------------------------------------------------------------------------------------------------
# What a limit leaves, part by part, and how that is said.
#
# Epsilons of Gaussian and zero-concentrated losses do not add up: mu**2 and rho do. What is left of an
# epsilon at a delta is therefore no difference of epsilons, but the epsilon of the largest run that still
# fits. A part of a limit is used up by the part that adds up, so equal runs are equal shares.

BY_SQUARES: tuple[MeasureName, ...] = ("gdp", "zcdp", "approx_zcdp")
"""Measures whose runs' epsilons add up by squares."""
_CLOSE = 1 - 2.0**-36
"""A run of this part of a computed epsilon costs less than what it was computed from."""
_STEPS = 60


def delta_limit(measure: MeasureName, limit: Limit) -> Fraction:
    """Return the delta that mechanisms may use of a limit."""
    of_all = limit.exact("delta") or Fraction(0)
    return limit.mechanisms_delta if measure == "approx_zcdp" else of_all


def converted_at(measure: MeasureName, limit: Limit) -> float:
    """Return the delta at which the epsilon of a limit is stated."""
    return limit.conversion_delta if measure == "approx_zcdp" else limit.down("delta") or 0.0


def most_of(measure: MeasureName, limit: Limit, fits: Callable[[float], bool]) -> float:
    """Return the greatest sum that a limit allows, to 2**-36.

    ``fits`` is the ledger's decision on a sum; the precision is in the part that adds up.
    """
    rho, epsilon = limit.down("rho"), limit.down("epsilon")
    found = [] if rho is None or "zcdp" not in measure else [rho]
    if measure == "gdp" and limit.mu_squared is not None:
        found.append(float_down(limit.mu_squared / 2))
    elif measure in BY_SQUARES and epsilon is not None:
        delta, bound = converted_at(measure, limit), epsilon
        near = _greatest(lambda rho: zcdp_to_epsilon(rho, delta) <= bound, 2 * bound + 1)
        found.append(near * _CLOSE)
    elif epsilon is not None:
        found.append(epsilon)
    most = min(found, default=0.0)
    if not most or _fits_safely(fits, most):
        return most
    return _greatest(lambda sum_: _fits_safely(fits, sum_), most)


def _fits_safely(fits: Callable[[float], bool], sum_: float) -> bool:
    """Say whether a sum fits; one that cannot be converted does not."""
    try:
        return fits(sum_)
    except BudgetError:
        return False


def _greatest(holds: Callable[[float], bool], high: float) -> float:
    low, step = 0.0, high
    while step and not holds(step):
        high, step = step, step / 1024
    low = step
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def room_of(measure: MeasureName, limit: Limit, spent: Fraction, most: float) -> Fraction:
    """Return the greatest epsilon, at the limit's delta, that still fits."""
    whole = limit.exact("epsilon")
    if not spent and limit.rho is None and limit.mu is None and whole is not None:
        return whole
    if spent >= most:
        return Fraction(0)
    rest, delta = float_down(Fraction(most) - spent), converted_at(measure, limit)
    found = (
        epsilon_up(2 * Fraction(rest), delta) if measure == "gdp" else zcdp_to_epsilon(rest, delta)
    )
    return min(Fraction(found * _CLOSE), *([] if whole is None else [whole]), Fraction(2) ** 1023)


def less(limit: Fraction, spent: Fraction) -> Fraction:
    """Return what is left where numbers add up."""
    return max(Fraction(0), limit - spent)


def mu_left(limit: Fraction, spent: Fraction) -> Fraction:
    """Return the largest mu whose square still fits, rounded down."""
    square = limit**2 - 2 * spent
    if square <= 0:
        return Fraction(0)
    return limit if not spent else Fraction(root_bounds(square, 80)[0], 1 << 80)


def rest_text(measure: str, left: Mapping[str, float | Fraction], limit: Limit) -> str:
    """Return the remaining budget, or cost of a run, rounded down."""
    plain: list[str] = []
    squares: list[str] = []
    for name, value in left.items():
        squared = name == "mu" or (name == "epsilon" and measure in BY_SQUARES)
        if squared and not value:
            continue
        (squares if squared else plain).append(f"{name} {down_text(value)}")
        if squared and name == "epsilon" and limit.delta is not None:
            squares[-1] += f" at delta {number_text(limit.delta)}"
    if squares:
        told = " and ".join(squares)
        plain.append(
            f"room for one more run of {told} under {measure} (losses of this kind add up by squares)"
        )
    return ", ".join(plain) or "nothing"


# --------------------------------------------------------------------------------------------------

_APPROXIMATE = (("gdp", "approx_zcdp"), ("zcdp", "approx_zcdp"), ("pure", "approx"))
_PARTS = {"pure": 1, "gdp": 1, "zcdp": 1, "approx": 2, "approx_zcdp": 2}


_RATIO = re.compile(r"([0-9]{1,400})/([0-9]{1,400})")
_MOST_RUNS = 1000
"""Runs that are counted; more are as good as no end."""
_LARGE = 2**1200
"""A loss with more bits above or below is rounded up to a float."""


@dataclass(frozen=True)
class Charge:
    """Hold one loss and its measure.

    As (epsilon,), (rho,), (epsilon, delta) or (rho, delta). Under ``gdp`` the one part is ``mu**2 /
    2``; twice it is exactly the mu**2 that adds up.

    Attributes:
        measure: the measure.
        exact: the parts as rationals. A float that is given is the number that it holds, to the bit: a
            map's value is a bound, and its shortest text may be below it.

    Raises:
        BudgetError (OS405): no such measure, another number of parts than it has, or a part that is
            negative, infinite or no number. A loss below zero would fill a ledger up again.
    """

    measure: MeasureName
    exact: tuple[Fraction, ...]

    def __init__(self, measure: MeasureName, loss: Sequence[float | Fraction]) -> None:
        """Keep the parts exactly, or refuse."""
        object.__setattr__(self, "measure", measure)
        object.__setattr__(self, "exact", _loss(measure, loss))

    @property
    def loss(self) -> tuple[float, ...]:
        """The parts as floats, rounded up."""
        return tuple(map(float_up, self.exact))

    def plain(self) -> dict[str, Any]:
        """Return the JSON form, a rational that is no float as "1/10"."""
        return {"measure": self.measure, "loss": plain_loss(self.exact)}

    @classmethod
    def read(cls, value: dict[str, Any]) -> Charge:
        """Read the JSON form."""
        try:
            return cls(value["measure"], tuple(map(_read_part, value["loss"])))
        except (TypeError, ValueError, KeyError, OverflowError, ZeroDivisionError):
            raise _no_loss("a loss as `plain` writes it", "something else") from None

    @property
    def text(self) -> str:
        """Say it shortly."""
        return loss_text(self.measure, self.exact)


def plain_loss(exact: Sequence[Fraction]) -> list[str]:
    """Return a loss as exact texts, a float by its bits."""
    return [_part_text(part) for part in exact]


def _part_text(part: Fraction) -> str:
    near = float_up(part)
    exact = math.isfinite(near) and Fraction(near) == part
    return near.hex() if exact else f"{part.numerator}/{part.denominator}"


def _read_part(text: str) -> float | Fraction:
    ratio = _RATIO.fullmatch(text)
    return Fraction(int(ratio[1]), int(ratio[2])) if ratio else float.fromhex(text)


def _loss(measure: object, loss: object) -> tuple[Fraction, ...]:
    parts = _PARTS.get(measure, 0) if isinstance(measure, str) else 0
    if not (parts and isinstance(loss, tuple) and len(loss) == parts):
        raise _no_loss("a loss of the measure's own parts", "another")
    return tuple(map(_loss_part, loss))


def _loss_part(value: object) -> Fraction:
    """Return a part of a loss, refusing negative and infinite ones."""
    real = isinstance(value, int | float | np.integer | np.floating | Fraction)
    if not real or isinstance(value, bool):
        raise _no_loss("finite numbers at or above zero", "no number")
    up = float_up(value) if isinstance(value, Fraction) else _as_float(value)
    if not (math.isfinite(up) and up >= 0.0):
        raise _no_loss("finite numbers at or above zero", f"{up:g}")
    if isinstance(value, Fraction) and max(value.numerator, value.denominator) < _LARGE:
        return value
    return Fraction(up)


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _no_loss(expected: str, got: str) -> BudgetError:
    return BudgetError(
        "OS405", "charge", expected=expected, got=got,
        hint="charge the value of the release's map: (epsilon,), (rho,), (epsilon, delta) or "
        "(rho, delta).",
    )  # fmt: skip


def loss_text(measure: MeasureName, loss: Sequence[float | Fraction]) -> str:
    """Render a loss, rounded up, as ``rho 0.0245`` or ``epsilon 1, delta 1e-06``."""
    parts = [  # a rational that is a float is shown as it
        near if isinstance(part, Fraction) and (near := float_up(part)) == part else part
        for part in loss
    ]
    if measure == "gdp":
        first = loss[0]
        return f"mu {up_text(sqrt_up(2 * Fraction(first)) if first < math.inf else math.inf)}"
    first_name = "rho" if "zcdp" in measure else "epsilon"
    named = [f"{first_name} {up_text(parts[0])}"]
    return ", ".join(named + [f"delta {up_text(v, 3)}" for v in parts[1:]])


@dataclass(frozen=True)
class Total:
    """A sum of charges beside the limit, both exact."""

    measure: MeasureName
    exact: tuple[Fraction, ...]
    limit: Limit
    epsilon: float | None
    """The loss as epsilon at the limit's delta, rounded up, where the limit is stated so."""

    @property
    def loss(self) -> tuple[float, ...]:
        """The sum as floats, rounded up."""
        return tuple(map(float_up, self.exact))

    @property
    def fits(self) -> bool:
        """Whether the limit holds, in rationals."""
        limit, measure = self.limit, self.measure
        epsilon, rho, mu = map(limit.exact, ("epsilon", "rho", "mu"))
        held = []
        if epsilon is not None and measure in BY_SQUARES:
            held.append(self.epsilon is not None and self.epsilon <= epsilon)  # a NaN fails
        elif epsilon is not None:
            held.append(self.exact[0] <= epsilon)
        if rho is not None and "zcdp" in measure:
            held.append(self.exact[0] <= rho)
        if mu is not None and measure == "gdp":
            held.append(2 * self.exact[0] <= mu**2)
        if len(self.exact) > 1:
            held.append(self.exact[1] <= delta_limit(measure, limit))
        return bool(held) and all(held)

    @property
    def text(self) -> str:
        """What was spent."""
        stated = "" if self.epsilon is None else f" (epsilon {up_text(self.epsilon)})"
        return loss_text(self.measure, self.exact) + (stated if self.measure in BY_SQUARES else "")

    @property
    def limit_text(self) -> str:
        """The limit."""
        return self.limit.text

    @property
    def rest(self) -> dict[str, Fraction]:
        """What the limit leaves, part by part, exactly where numbers add up.

        Where squares add up, epsilon and mu are those of one more run that still fits.
        """
        left, limit, measure, first = {}, self.limit, self.measure, self.exact[0]
        epsilon, rho, mu = map(limit.exact, ("epsilon", "rho", "mu"))
        if epsilon is not None and self.epsilon is not None:
            left["epsilon"] = (
                room_of(measure, limit, first, _most(measure, limit))
                if measure in BY_SQUARES
                else less(epsilon, first)
            )
        if rho is not None and "zcdp" in measure:
            left["rho"] = less(rho, first)
        if mu is not None and measure == "gdp":
            left["mu"] = mu_left(mu, first)
        if len(self.exact) > 1 and limit.delta is not None:
            left["delta"] = less(delta_limit(measure, limit), self.exact[1])
        return left

    @property
    def left(self) -> dict[str, float]:
        """Return ``rest`` as floats rounded down, a budget that still fits."""
        return {name: decimal_down(value) for name, value in self.rest.items()}

    @property
    def share(self) -> float:
        """Return the greatest used share of the limit, for pictures alone.

        Of what adds up (rho, or the square of mu): equal runs are equal parts.
        """
        parts = zip(self.loss, map(float, self._most), strict=True)
        return max(min(1.0, spent / most) if most else float(spent > 0) for spent, most in parts)

    @property
    def _most(self) -> tuple[Fraction, ...]:
        """Return the greatest sum of each part, of computed ones to 2**-36."""
        more = (delta_limit(self.measure, self.limit),) if len(self.exact) > 1 else ()
        return (Fraction(_most(self.measure, self.limit)), *more)

    def room(self, charge: Charge) -> int:
        """Return how many more runs of a loss fit, at most 1,000.

        Equal runs add equal parts, so the number is a quotient; the ledger's own decision is asked of it
        and of one run more.
        """
        each = total_of((charge,), self.measure, self.limit).exact
        if not any(each):
            return _MOST_RUNS

        def fits(runs: int) -> bool:
            loss = tuple(a + runs * b for a, b in zip(self.exact, each, strict=True))
            try:
                return total_of((Charge(self.measure, loss),), self.measure, self.limit).fits
            except BudgetError:
                return False  # a delta beyond 1, or a sum that cannot be converted

        quotients = (
            max(most - spent, Fraction(0)) // one
            for most, spent, one in zip(self._most, self.exact, each, strict=True)
            if one
        )
        runs = min(_MOST_RUNS, *quotients)
        while runs and not fits(runs):
            runs -= 1
        while runs < _MOST_RUNS and fits(runs + 1):
            runs += 1
        return int(runs)

    @property
    def left_text(self) -> str:
        """What is left, in words."""
        return rest_text(self.measure, self.rest, self.limit)


@lru_cache(maxsize=256)
def _most(measure: MeasureName, limit: Limit) -> float:
    """Return the greatest sum within a limit."""
    more = (0.0,) * (_PARTS[measure] - 1)

    def fits(first: float) -> bool:
        return total_of((Charge(measure, (first, *more)),), measure, limit).fits

    return most_of(measure, limit, fits)


def total_of(charges: Sequence[Charge], measure: MeasureName, limit: Limit) -> Total:
    """Add charges exactly in the ledger's measure.

    The sum is converted where the limit is in another measure. A ledger may hold thousands of charges:
    the parts of their losses are added in rationals, as basic composition adds them
    (``composition.md``), and one stand-in has the sum, rounded up, for OpenDP to convert.
    """
    dp.enable_features("contrib")
    if not charges:
        empty = (Fraction(0),) * _PARTS[measure]
        return Total(measure, empty, limit, None if limit.epsilon is None else 0.0)
    try:
        joined = [_joined(charge, measure) for charge in charges]
        exact = tuple(sum(parts, Fraction(0)) for parts in zip(*joined, strict=True))
        if any(map(math.isinf, map(float_up, exact))):
            raise OverflowError
        return Total(measure, exact, limit, _epsilon(measure, exact, limit))
    except (dp.OpenDPException, OverflowError):
        raise BudgetError(
            "OS405", "ledger", expected="losses whose sum OpenDP can convert", got="a sum it cannot",
            hint="a loss may be too small, or too large, for the conversion's floats.",
        ) from None  # fmt: skip


@lru_cache(maxsize=4096)
def _joined(charge: Charge, measure: MeasureName) -> tuple[Fraction, ...]:
    """Return a charge's loss in the ledger's measure."""
    if charge.measure == measure or (charge.measure, measure) == ("gdp", "zcdp"):
        return charge.exact  # mu-GDP is mu**2 / 2-zCDP
    value: Any = _cast(_stand_in(charge.measure, charge.loss), charge.measure, measure).map(1)
    return tuple(map(Fraction, value)) if isinstance(value, tuple) else (Fraction(value),)


def _epsilon(measure: MeasureName, exact: tuple[Fraction, ...], limit: Limit) -> float | None:
    left: float | None = None
    if limit.epsilon is not None and measure in ("zcdp", "approx_zcdp"):
        # A fixed split of delta: the limit is a box in (rho, delta), which is what a filter needs.
        left = converted_at(measure, limit)
    loss = tuple(map(float_up, exact))
    found = _read(measure, loss, left)
    if limit.epsilon is None:
        return None
    if measure == "gdp":
        return epsilon_within(2 * exact[0], limit.down("delta") or 0.0, limit.down("epsilon"))
    return loss[0] if left is None else found


@lru_cache(maxsize=4096)
def _read(measure: MeasureName, loss: tuple[float, ...], delta: float | None) -> float:
    """Return a sum, converted by OpenDP at ``delta``."""
    whole = _stand_in(measure, loss)
    whole.map(1)
    if delta is None or delta <= 0:
        return math.inf
    curve: Any = dp.c.make_zCDP_to_approxDP(whole).map(1)
    return float((curve[0] if isinstance(curve, tuple) else curve).epsilon(delta))


def _stand_in(measure: MeasureName, loss: tuple[float, ...]) -> dp.Measurement:
    """Return a measurement whose map is a loss."""
    value: Any = loss if len(loss) > 1 else loss[0]
    claim = Private(MEASURES[measure], lambda _d_in: value, lambda _data: 0)
    return build(claim, "ledger", IntVector(1), VectorNorm("l1"))


def _cast(made: dp.Measurement, own: MeasureName, measure: MeasureName) -> dp.Measurement:
    """Return a measurement in the ledger's measure."""
    if own == "pure" and measure == "gdp":
        return gaussian_of_pure(made)
    if own == "pure" and measure in ("zcdp", "approx_zcdp"):
        made = dp.c.make_pureDP_to_zCDP(made)
        return made if measure == "zcdp" else dp.c.make_approximate(made)
    if (own, measure) in _APPROXIMATE:
        return dp.c.make_approximate(made)
    raise BudgetError(
        "OS405", "ledger", expected=f"a charge that joins a `{measure}` ledger",
        got=f"a `{own}` charge",
        hint="keep the program's measure that of its ledger, or charge another ledger.",
    )  # fmt: skip
