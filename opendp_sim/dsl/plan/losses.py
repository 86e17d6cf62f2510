"""Compute bounds again from the types, in rationals; disagreement is OS901."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from opendp_sim.accounting.budget import MEASURES, MOST_DELTA, MeasureName
from opendp_sim.accounting.measures.gaussian import mu_squared_of_pure
from opendp_sim.accounting.measures.second_opinion import (
    gaussian_rho,
    gdp_to_epsilon,
    laplace_epsilon,
    pure_to_zcdp,
    zcdp_to_epsilon,
)
from opendp_sim.core.arithmetic.rounding import float_up, least
from opendp_sim.core.errors import BudgetError, InternalError
from opendp_sim.dsl.plan.solve import Loss
from opendp_sim.dsl.types.records import Bound, Typed

ExactLoss = tuple[Fraction, ...]
TOLERANCE = 1e-9
"""Relative: OpenDP rounds every step outward, by an ulp or two each."""
_TINY = 1e-12
"""An epsilon below which the two conversions are not compared: their logarithms cancel."""


def derived(typed: Typed, bound: Bound, d_in: int, delta: float = 0.0) -> tuple[str, ExactLoss]:
    """Return the (measure, loss) of a release, a curve's at ``delta``."""
    claim, sensitivity = bound.claim, typed.sensitivity
    noise = getattr(claim, "noise", None)
    if sensitivity is not None and noise is not None:
        if noise.family == "discrete_laplace":
            return "max_divergence", (laplace_epsilon(sensitivity.l1, d_in, noise.scale),)
        if noise.family in ("discrete_gaussian", "rounded_gaussian"):
            rho = gaussian_rho(sensitivity.l2_squared, d_in, noise.scale)
            if claim.measure == "smoothed_max_divergence":  # rounded noise by its own curve
                return MEASURES["approx"], _on_curve(2 * rho, delta)
            return "zero_concentrated_divergence", (rho,)
    if sensitivity is not None and bound.norm is not None:
        value = claim.privacy_map(sensitivity.bound(bound.norm, d_in))
    elif (again := getattr(claim, "again", None)) is not None:
        curve = claim.measure == "smoothed_max_divergence"
        measure = MEASURES["approx"] if curve else claim.measure
        return measure, tuple(again(d_in * typed.stability))
    else:
        value = claim.privacy_map(d_in * typed.stability)
    if claim.measure == "smoothed_max_divergence":
        return MEASURES["approx"], (_finite_epsilon(value, delta), Fraction(delta))
    parts = value if isinstance(value, tuple) else (value,)
    return claim.measure, tuple(Fraction(part) for part in parts)


def _on_curve(square: Fraction, delta: float) -> ExactLoss:
    """Return a Gaussian curve at ``delta``, or refuse."""
    if delta >= MOST_DELTA:
        raise BudgetError(
            "OS401", "privacy.budget", expected=f"delta < {MOST_DELTA:g} for a curve", got=f"{delta}",
            hint="state a smaller delta, or leave out `accounting: curve`.",
        )  # fmt: skip
    return Fraction(gdp_to_epsilon(float_up(square), delta)), Fraction(delta)


def _finite_epsilon(curve: Callable[[float], float], delta: float) -> Fraction:
    epsilon = _epsilon_at(curve, delta)
    if math.isinf(epsilon):
        raise BudgetError(
            "OS401", "privacy.budget", expected="a loss that a float can hold", got="infinity",
            hint="use a larger scale, or write `scale: solve`.",
        )  # fmt: skip
    return Fraction(epsilon)


def _epsilon_at(curve: Callable[[float], float], delta: float) -> float:
    """Return the least epsilon at which the curve is at most ``delta``."""
    low, high = 0.0, 1.0
    while curve(high) > delta:
        high *= 2
        if math.isinf(high):
            return high
    if curve(0.0) <= delta:
        return 0.0
    return least(lambda epsilon: curve(epsilon) <= delta, low, high)


def cast_exactly(
    have: str, loss: ExactLoss, want: MeasureName, delta: float, *, gaussian: bool
) -> ExactLoss:
    """Return a loss under the program's measure, by ``accountant.cast`` in rationals."""
    if want == "gdp" and have == "max_divergence":
        return (mu_squared_of_pure(loss[0]) / 2,)
    if have == MEASURES[want] and (want != "gdp" or gaussian):
        return loss
    if want in ("zcdp", "approx_zcdp") and have == "max_divergence":
        loss, have = (pure_to_zcdp(loss[0]),), MEASURES["zcdp"]
    if want == "zcdp" and have == MEASURES["zcdp"]:
        return loss
    if want == "approx_zcdp" and have == MEASURES["zcdp"]:
        return loss[0], Fraction(0)
    if want == "approx":
        if have == "max_divergence":
            return loss[0], Fraction(0)
        if have == "zero_concentrated_divergence":
            return Fraction(zcdp_to_epsilon(float(loss[0]), delta)), Fraction(delta)
        if have == "approx_zero_concentrated_divergence":
            left = delta - float(loss[1])
            return Fraction(zcdp_to_epsilon(float(loss[0]), left)), Fraction(delta)
    raise BudgetError(
        "OS405", "privacy.measure", expected=f"a loss under `{want}`", got=have,
        hint="choose another measure for the program.",
    )  # fmt: skip


def total(losses: Sequence[ExactLoss]) -> ExactLoss:
    """Return the sum of losses, part by part, by basic composition."""
    return tuple(sum(parts, Fraction(0)) for parts in zip(*losses, strict=True))


def converted(measure: MeasureName, loss: ExactLoss, delta: float) -> tuple[float, float]:
    """Return a Gaussian or zCDP total as (epsilon, delta)."""
    if measure == "gdp":
        return gdp_to_epsilon(float_up(2 * loss[0]), delta), delta
    own = float_up(loss[1]) if len(loss) > 1 else 0.0
    return zcdp_to_epsilon(float_up(loss[0]), delta), float_up(Fraction(own) + Fraction(delta))


def agree(
    what: str, opendp: Loss, ours: Sequence[Fraction | float], *, converted: bool = False
) -> None:
    """Check that two computations of a bound agree, up to rounding (OS901).

    Of ``converted`` ones logarithms were taken: tiny numbers agree when both are tiny, and OpenDP may
    say more than 0 where ours is 0 (it does not look at every order, which is safe).
    """
    for theirs, own in zip(opendp, ours, strict=True):
        shown = own if isinstance(own, float) else float_up(own)
        if math.isinf(theirs) or math.isinf(shown):
            near = theirs >= shown  # infinity is no claim, and every budget refuses it
        else:
            apart = abs(Fraction(theirs) - Fraction(own))
            near = apart <= Fraction(TOLERANCE) * abs(Fraction(own))
            near = near or apart < (_TINY if converted else 1e-300)
            near = near or (converted and own == 0 < theirs)
        if not near:
            raise InternalError(
                "OS901", what, expected=f"{shown!r}, as the types say",
                got=f"{theirs!r} from OpenDP",
                hint="nothing ran; report the spec as a bug.",
            )  # fmt: skip
