"""A whole program as one OpenDP measurement, for pipelines that go on in OpenDP.

Nothing is claimed here that the plan did not claim: the releases are the plan's, chained and composed
by OpenDP, and the curve of a Gaussian program is that of its total (``accounting/gaussian_curve.md``).
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

from opendp_sim.accounting.gaussian_curve import delta_up
from opendp_sim.core import dp
from opendp_sim.core.bridge import curve_measurement
from opendp_sim.core.errors import BudgetError
from opendp_sim.core.rounding import whole_distance
from opendp_sim.dsl.accountant import cast, chain, compose, prefix
from opendp_sim.dsl.planned import Planned
from opendp_sim.dsl.release_plan import ReleasePlan
from opendp_sim.dsl.stage_checks import spend_of

__all__ = ["as_opendp"]


def as_opendp(plan: Planned, *, curve: bool = False) -> dp.Measurement:
    """Return OpenDP's composition of a plan's releases, or the same under its exact curve.

    Args:
        plan: a plan; its data is not opened, and no ledger is charged by what is returned.
        curve: state the loss as a privacy profile (smoothed max divergence) instead of in the
            program's measure. OpenDP's ``make_fix_delta`` goes on from there. ``gdp`` alone.

    Returns:
        A measurement on the program's records (the domain that its first step reads), whose release
        is the list of the plan's releases in the order of their names. Map: ``plan.total`` at the
        unit's distance; with ``curve``, ``d_in -> (epsilon -> delta)`` with
        ``delta = Phi(mu / 2 - epsilon / mu) - e**epsilon Phi(-mu / 2 - epsilon / mu)`` and ``mu**2``
        twice OpenDP's composed rho at ``d_in``, rounded up.

    Raises:
        BudgetError (OS405): nothing is released with privacy; a curve of another measure than ``gdp``.
        OpenDPException: releases of different data cannot be composed.
    """
    releases = [r for _, r in sorted(plan.releases.items()) if r.bound is not None]
    if plan.privacy is None or not releases:
        raise BudgetError(
            "OS405", "plan", expected="a program that releases something with privacy",
            got="none", hint="give a stage a `release` with noise.",
        )  # fmt: skip
    measure = plan.privacy.measure
    if curve and measure != "gdp":
        raise BudgetError(
            "OS405", "privacy.measure", expected="`gdp`, whose curve is exact", got=measure,
            hint="OpenDP converts the other measures itself: `make_zCDP_to_approxDP`.",
        )  # fmt: skip
    composed = compose([_joined(plan, release) for release in releases])
    return curve_measurement(composed, partial(_curve, composed)) if curve else composed


def _joined(plan: Planned, release: ReleasePlan) -> dp.Measurement:
    """Return one release under the program's measure, as the plan composed it."""
    bound, privacy, target = release.bound, plan.privacy, plan.target
    decl = release.typed.release
    assert bound is not None and decl is not None  # noqa: S101, PT018 - the caller filtered
    assert privacy is not None and target is not None  # noqa: S101, PT018 - the caller asked
    own = chain(prefix(release.typed, bound.norm), bound)
    delta = target.delta_of(spend_of(decl), privacy.budget)
    gaussian = bound.claim.mu_squared is not None
    return cast(own, bound.claim.measure, privacy.measure, delta, gaussian=gaussian)


def _curve(composed: dp.Measurement, d_in: Any) -> Callable[[float], float]:
    """Return the exact curve of a Gaussian total: twice OpenDP's rho, a rational, is mu**2."""
    whole_distance(d_in, "plan.map")
    return partial(delta_up, 2 * Fraction(composed.map(d_in)))
