"""The losses of a program: the least noise within each release's share, and the total, twice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from functools import cache
from typing import Any

from opendp_sim.accounting.totals import loss_text
from opendp_sim.core import dp
from opendp_sim.core.errors import BudgetError, InternalError, ParameterError, SimError
from opendp_sim.dsl import losses
from opendp_sim.dsl.accountant import (
    Target,
    cast,
    chain,
    chained,
    claim_of,
    compose,
    loss_of,
    maps_of,
    steps_of,
    target_of,
)
from opendp_sim.dsl.diagnostic import Notes
from opendp_sim.dsl.gaussian_facts import check_gaussian
from opendp_sim.dsl.ir import Privacy, Program
from opendp_sim.dsl.release_plan import ReleasePlan
from opendp_sim.dsl.solving import Loss, solve
from opendp_sim.dsl.stage_checks import check_numerics, check_shares, spend_of
from opendp_sim.dsl.typed import Bound, Typed
from opendp_sim.dsl.types import bind_release, by_curve, release_record, users_of

__all__ = ["account"]

_Solved = dict[tuple[Any, ...], float]
"""What was solved for releases that look alike: a guess for the next one, which its own map confirms."""
_KEPT: dict[str, _Solved] = {}
_MOST_KEPT = 256
"""By program: one planned again looks at OpenDP twice, and no plan depends on another program."""


def account(
    program: Program, types: Mapping[str, Typed], notes: Notes
) -> tuple[dict[str, ReleasePlan], Target | None, Loss, Loss | None, Loss]:
    """Return each release's plan, the target, the total, the claim and the loss at one record.

    What cannot be had is reported in ``notes``.
    """
    released = {name: t for name, t in types.items() if t.release is not None}
    out = {n: ReleasePlan(t, None) for n, t in released.items() if t.release_kind == "none"}
    private = {name: t for name, t in released.items() if name not in out}
    privacy = program.privacy
    if privacy is None or not private:
        return out, None, (), None, ()
    check_shares(private, notes)
    check_numerics(private, privacy, notes)
    if notes.findings:
        return out, None, (), None, ()
    with_delta = any(_has_delta(t) for t in private.values())
    try:
        target = target_of(privacy.budget, privacy.measure, with_delta=with_delta)
    except SimError as error:
        notes.from_error(error, ("privacy", "budget"))
        return out, None, (), None, ()
    measurements: list[dp.Measurement] = []
    if len(_KEPT) > _MOST_KEPT:
        _KEPT.clear()
    solved = _KEPT.setdefault(program.hash, {})
    # By name: float sums depend on their order, and a program's hash does not.
    for name, typed in sorted(private.items()):
        try:
            plan, measurement = _least_noise(typed, privacy, target, solved)
        except InternalError:
            raise  # a contradiction in the house is nobody's mistake in the spec
        except SimError as error:
            where = ("privacy", "measure") if error.code == "OS405" else ("flow", name, "release")
            notes.from_error(error, where)
            continue
        out[name] = plan
        measurements.append(measurement)
    if notes.findings:
        return out, target, (), None, ()
    total, claim = _total(measurements, sorted(private), out, privacy, target, notes)
    one = loss_of(compose(measurements), 1)
    return {name: out[name] for name in released}, target, total, claim, one


def _has_delta(typed: Typed) -> bool:
    """Whether a release has a delta of its own."""
    assert typed.release is not None  # noqa: S101 - the caller asked
    bound = bind_release(typed, release_record(typed.release, probe=True))
    return bound.claim.measure.startswith(("approx", "smoothed"))


def _least_noise(
    typed: Typed, privacy: Privacy, target: Target, solved: _Solved
) -> tuple[ReleasePlan, dp.Measurement]:
    """Plan a release by its exact curve, where the author left that open and the measure has one."""
    if (curved := by_curve(typed, privacy.measure)) is not None:
        # A curve is stated up to some scale and number of rounds; beyond, its bound in rho is near it.
        with suppress(ParameterError, BudgetError):
            return _release(curved, privacy, target, solved)
    return _release(typed, privacy, target, solved)


def _release(
    typed: Typed, privacy: Privacy, target: Target, solved: _Solved
) -> tuple[ReleasePlan, dp.Measurement]:
    release, d_in = typed.release, privacy.unit.d_in
    assert release is not None  # noqa: S101 - the caller asked
    share = target.share(spend_of(release))
    delta = target.delta_of(spend_of(release), privacy.budget)

    probe = bind_release(typed, release_record(release, probe=True))
    steps = steps_of(typed, probe.norm)
    before = chained(steps)
    # The conversion of rho to epsilon needs the other half.
    converts = privacy.measure == "approx" and probe.claim.measure.startswith("approx_zero")
    own_delta = delta / 2 if converts else delta

    @cache  # the answer is asked for again
    def at(value: float | None) -> tuple[Bound, dp.Measurement, dp.Measurement]:
        record = release_record(release, value, own_delta, distance=users_of(typed, d_in))
        bound = bind_release(typed, record)
        own = chain(before, bound)
        gaussian = bound.claim.mu_squared is not None
        return bound, own, cast(own, bound.claim.measure, privacy.measure, delta, gaussian=gaussian)

    value = None
    if release.solve is not None:
        reach = None if before is None else before.map(d_in)
        alike = (release.solve, probe.record.key, probe.claim.measure, share, reach)
        value = solved[alike] = solve(
            lambda v: loss_of(at(v)[2], d_in),
            share,
            f"flow.{typed.name}.release",
            rising=release.solve != "scale",
            guess=solved.get(alike),
        )
    bound, own, joined = at(value)
    both = _finite(typed, loss_of(own, d_in, delta), loss_of(joined, d_in))
    again = _derived(typed, privacy, bound, delta, both)
    spend = spend_of(release) if release.solve else None
    steps = steps if bound.norm == probe.norm else steps_of(typed, bound.norm)
    maps = tuple(maps_of(steps, d_in))
    had = ReleasePlan(typed, bound, spend, bound.claim.measure, *both, maps, again)
    return had, joined


def _finite(typed: Typed, own: Loss, joined: Loss) -> tuple[Loss, Loss]:
    """Return two losses that floats hold, or refuse them."""
    if not all(map(math.isfinite, (*own, *joined))):
        raise BudgetError(
            "OS401", f"flow.{typed.name}.release", expected="a loss that a float can hold",
            got="infinity", hint="use a larger scale, or write `scale: solve`.",
        )  # fmt: skip
    return own, joined


def _derived(
    typed: Typed, privacy: Privacy, bound: Bound, delta: float, had: tuple[Loss, Loss]
) -> tuple[Fraction, ...]:
    """Return the loss that the types derive; what OpenDP said of it, ``had``, has to agree."""
    converted = privacy.measure == "approx"
    have, exact = losses.derived(typed, bound, privacy.unit.d_in, delta)
    losses.agree(f"flow.{typed.name}", had[0], exact, converted=converted)
    again = losses.cast_exactly(
        have, exact, privacy.measure, delta, gaussian=bound.claim.mu_squared is not None
    )
    losses.agree(f"flow.{typed.name}", had[1], again, converted=converted)
    return again


def _total(
    measurements: list[dp.Measurement],
    names: list[str],
    out: Mapping[str, ReleasePlan],
    privacy: Privacy,
    target: Target,
    notes: Notes,
) -> tuple[Loss, Loss | None]:
    d_in = privacy.unit.d_in
    composed = compose(measurements)
    total = loss_of(composed, d_in)
    claim = claim_of(composed, target, d_in, privacy.budget.epsilon)
    exact = losses.total([out[name].again for name in names])
    losses.agree("privacy.total", total, exact, converted=privacy.measure == "approx")
    if claim is not None and target.conversion_delta is not None:
        ours = losses.converted(privacy.measure, exact, target.conversion_delta)
        losses.agree("privacy.claim", claim, ours, converted=True)
    check_gaussian(privacy.measure, total, claim)
    budget = privacy.budget
    over = any(have > most for have, most in zip(total, target.whole, strict=True))
    limits = (budget.epsilon or math.inf, budget.delta or math.inf)
    over = over or (claim is not None and any(c > m for c, m in zip(claim, limits, strict=True)))
    if over:
        error = BudgetError(
            "OS401",
            "privacy.budget",
            expected=f"a total within {loss_text(privacy.measure, target.whole)}",
            got=loss_text(privacy.measure, total),
            hint="raise the given scales, write `scale: solve`, or raise the budget.",
        )
        notes.from_error(error, ("privacy", "budget"))
    return total, claim
