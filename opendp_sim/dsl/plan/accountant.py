"""Account with OpenDP.

Chains, casts, and one composition; ``solve.py`` inverts its maps.

No formula of ours decides anything here; ``losses.py`` has the second opinion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from opendp_sim.accounting.budget import MEASURES, Budget, MeasureName
from opendp_sim.accounting.measures.conversion import gaussian_of_pure
from opendp_sim.accounting.measures.gaussian import epsilon_within
from opendp_sim.core import dp
from opendp_sim.core.arithmetic.rounding import float_down, float_up
from opendp_sim.core.bridge import build
from opendp_sim.core.claims import Norm
from opendp_sim.core.errors import BudgetError
from opendp_sim.dsl.plan.solve import Loss, solve
from opendp_sim.dsl.types.records import Bound, Typed

_NO_END = Fraction(2) ** 1024
"""Above every float: of a budget that states no such part."""
_ROOM = Fraction(2**40 - 1, 2**40)
"""Shares are solved a trillionth below themselves, so that their rounded sum fits the whole."""


Steps = Sequence[tuple[str, dp.Transformation]]
"""The row maps and the sketch before a release, by key, as OpenDP's own objects."""


def steps_before(typed: Typed, norm: Norm | None) -> Steps:
    """Return the steps before a release."""
    return [
        (s.mechanism.key, build(s.claim, s.mechanism.key, s.domain, s.metric, norm))
        for s in typed.stages
    ]


def chain_steps(steps: Steps) -> dp.Transformation | None:
    """Return the chained steps, or None for bare records."""
    transformation = None
    for _, made in steps:
        transformation = made if transformation is None else transformation >> made
    return transformation


def prefix(typed: Typed, norm: Norm | None) -> dp.Transformation | None:
    """Return everything before a release as one OpenDP transformation.

    None for bare records.
    """
    return chain_steps(steps_before(typed, norm))


def chain(before: dp.Transformation | None, bound: Bound) -> dp.Measurement:
    """Return one OpenDP measurement of steps and release."""
    release: dp.Measurement = build(bound.claim, bound.record.key, bound.domain, bound.metric)
    return release if before is None else before >> release


def maps_of(steps: Steps, d_in: int) -> list[tuple[str, float]]:
    """Evaluate every OpenDP map of the chain at ``d_in``.

    As (step, distance after it).
    """
    out: list[tuple[str, float]] = []
    distance: Any = d_in
    for key, made in steps:
        distance = made.map(distance)
        out.append((key, distance))
    return out


def cast(
    measurement: dp.Measurement, have: str, want: MeasureName, delta: float, *, gaussian: bool
) -> dp.Measurement:
    """Return ``measurement`` under the program's measure, through OpenDP's own casts.

    ``delta`` is the share of delta that a conversion to ``approx`` may use. ``gaussian`` says that
    the release's claim is one of Gaussian DP: under ``gdp`` a loss in zCDP alone is not enough.
    """
    if want == "gdp":
        return _as_gaussian(measurement, have, gaussian=gaussian)
    if have == MEASURES[want]:
        return measurement
    if want in ("zcdp", "approx_zcdp") and have == "max_divergence":
        measurement, have = dp.c.make_pureDP_to_zCDP(measurement), MEASURES["zcdp"]
    if want == "zcdp" and have == MEASURES["zcdp"]:
        return measurement
    if want == "approx_zcdp" and have == MEASURES["zcdp"]:
        return dp.c.make_approximate(measurement)
    if want == "approx":
        if have == "max_divergence":
            return dp.c.make_approximate(measurement)
        if have in ("zero_concentrated_divergence", "approx_zero_concentrated_divergence"):
            measurement, have = dp.c.make_zCDP_to_approxDP(measurement), "smoothed_max_divergence"
        if have == "smoothed_max_divergence":
            return dp.c.make_fix_delta(measurement, delta)
    raise _no_loss(have, want)


def _as_gaussian(measurement: dp.Measurement, have: str, *, gaussian: bool) -> dp.Measurement:
    """Return a ``gdp`` release with its loss as ``mu**2 / 2``."""
    if gaussian:
        return measurement
    if have == "max_divergence":
        return gaussian_of_pure(measurement)
    raise _no_loss(have, "gdp")


def _no_loss(have: str, want: MeasureName) -> BudgetError:
    return BudgetError(
        "OS405", "privacy.measure", expected=f"releases that have a loss under `{want}`",
        got=have.replace("_", " "), hint=_RENYI if have == "renyi_divergence" else _BETTER[want],
    )  # fmt: skip


_RENYI = (
    "no budget is a Rényi curve: give the mechanism `accounting: curve` under `approx`, or "
    "`accounting: zcdp` under `zcdp` and `approx_zcdp`."
)
_BETTER = {
    "pure": "Laplace noise has a pure loss; or state the budget under `zcdp`.",
    "gdp": "under `gdp` releases are rounded Gaussian noise, ind_knn, hybrid_knn, linear_model, or pure; "
    "for this one choose the measure `zcdp`, `approx_zcdp` or `approx`, or a ledger of its own.",
    "zcdp": "use `approx_zcdp` for mechanisms that have a delta of their own.",
    "approx_zcdp": "use `approx` for mechanisms that are only (epsilon, delta).",
    "approx": "this release has no loss in (epsilon, delta); see `opendp-sim explain OS405`.",
}


def map_value(measurement: dp.Measurement, d_in: int, delta: float = 0.0) -> Loss:
    """Return the map's value at ``d_in`` as floats.

    A tuple; a curve is read at ``delta``.

    A first part that overflows is infinite: no budget has room for it.
    """
    value = _or_infinite(lambda: measurement.map(d_in))
    if isinstance(value, dp.PrivacyProfile):
        return _epsilon(value, delta), delta
    return tuple(map(float, value)) if isinstance(value, tuple) else (float(value),)


def compose(measurements: Sequence[dp.Measurement]) -> dp.Measurement:
    """Return OpenDP's composition of the program's releases."""
    return dp.c.make_composition(list(measurements))


@dataclass(frozen=True)
class Target:
    """State the budget in the measure of composition.

    The most that all releases may lose together.
    """

    measure: MeasureName
    exact: tuple[Fraction, ...]
    """The parts as the budget states them; infinite where it states none."""
    conversion_delta: float | None
    """The delta at which a zCDP total is stated as an epsilon, or None."""

    @property
    def whole(self) -> Loss:
        """The parts as the greatest floats that are no larger."""
        return tuple(map(float_down, self.exact))

    def share(self, spend: Fraction) -> Loss:
        """Return the part of it that a release may spend."""
        room = Fraction(1) if spend == 1 else _ROOM
        return tuple(float_down(part * spend * room) for part in self.exact)

    def delta_of(self, spend: Fraction, budget: Budget) -> float:
        """Return the delta for a release's conversion.

        The release may spend this part.
        """
        share = self.share(spend)
        return share[1] if len(share) > 1 else (budget.down("delta") or 0.0)


def target_of(budget: Budget, measure: MeasureName, *, with_delta: bool) -> Target:
    """Return the target.

    ``with_delta`` states whether any mechanism has a delta of its own.
    """
    epsilon, delta, rho = (budget.exact(name) for name in ("epsilon", "delta", "rho"))
    if measure == "pure":
        return Target(measure, (epsilon or _NO_END,), None)
    if measure == "approx":
        return Target(measure, (epsilon or _NO_END, delta or Fraction(0)), None)
    if measure == "gdp":
        square = budget.mu_squared
        whole = _NO_END if square is None else square / 2
        return Target(measure, (whole,), None if epsilon is None else budget.down("delta"))
    own = budget.mechanisms_delta if measure == "approx_zcdp" and with_delta else Fraction(0)
    most = _NO_END if rho is None else rho
    conversion = None
    if epsilon is not None and delta is not None:
        conversion = float_down(delta - own)  # their sum is no more
        most = min(most, Fraction(_rho_for(float_down(epsilon), conversion)))
    return Target(measure, (most,) if measure == "zcdp" else (most, own), conversion)


@cache
def _rho_for(epsilon: float, delta: float) -> float:
    """Return the greatest rho within ``epsilon`` at ``delta``.

    As OpenDP converts.

    The rho is that of OpenDP's own Gaussian on one integer, whose scale is searched.
    """
    space = dp.atom_domain(T="i64"), dp.absolute_distance(T="i64")

    def converted(scale: float) -> Loss:
        curve = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale)).map(1)
        return (_epsilon(curve, delta),)

    tail = -math.log(delta)
    root = epsilon / (
        math.sqrt(tail + epsilon) + math.sqrt(tail)
    )  # of rho, by the plain conversion
    start = math.sqrt(0.5) / max(root, 2.0**-40)
    scale = solve(converted, (epsilon,), "budget.epsilon", start=start)
    return float(dp.m.make_gaussian(*space, scale).map(1))


def total_at(
    total: dp.Measurement, target: Target, d_in: int, limit: float | None = None
) -> Loss | None:
    """Return the total as (epsilon, delta) where asked.

    Through OpenDP's conversion.

    Under ``gdp`` OpenDP's total is ``mu**2 / 2``, and the exact curve converts it; ``limit`` is the
    epsilon that the budget states.
    """
    if target.conversion_delta is None:
        return None
    if target.measure == "gdp":
        square = 2 * Fraction(map_value(total, d_in)[0])
        return epsilon_within(square, target.conversion_delta, limit), target.conversion_delta
    converted = dp.c.make_zCDP_to_approxDP(total)
    curve: Any = converted.map(d_in)
    if isinstance(curve, tuple):
        profile, own = curve
        delta = float_up(Fraction(own) + Fraction(target.conversion_delta))
        return _epsilon(profile, target.conversion_delta), delta
    return _epsilon(curve, target.conversion_delta), target.conversion_delta


def _epsilon(curve: dp.PrivacyProfile, delta: float) -> float:
    """Read a curve at ``delta``; infinity where OpenDP's arithmetic overflows."""
    return float(_or_infinite(lambda: curve.epsilon(delta)))


def _or_infinite(evaluate: Callable[[], Any]) -> Any:
    """Return OpenDP's value, or infinity if it is too large."""
    try:
        return evaluate()
    except dp.OpenDPException as error:
        if error.variant != "Overflow":
            raise
        return math.inf
