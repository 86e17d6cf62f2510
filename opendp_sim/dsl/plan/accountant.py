"""Account a program's losses with OpenDP.

``account`` plans every release: the least noise within its share, by ``solve.py``, which inverts
OpenDP's maps. No formula of ours decides anything here; ``losses.py`` has the second opinion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from typing import Any

from opendp_sim.accounting.budget import MEASURES, Limit, MeasureName
from opendp_sim.accounting.composition import loss_text
from opendp_sim.accounting.measures.gaussian import delta_up, epsilon_within
from opendp_sim.accounting.measures.second_opinion import gaussian_of_pure, zcdp_to_epsilon
from opendp_sim.core import dp
from opendp_sim.core.arithmetic.rounding import float_down, float_up, whole_distance
from opendp_sim.core.bridge import build, curve_measurement, noted
from opendp_sim.core.claims import Claim, Interactive, Norm
from opendp_sim.core.errors import BudgetError, InternalError, ParameterError, SimError
from opendp_sim.core.serialization import BoundNote
from opendp_sim.core.space import Domain, Metric
from opendp_sim.dsl.grammar.program import Privacy, Program
from opendp_sim.dsl.plan import losses
from opendp_sim.dsl.plan.release_plan import ReleasePlan
from opendp_sim.dsl.plan.solve import Loss, solve
from opendp_sim.dsl.text.diagnostic import Notes
from opendp_sim.dsl.types.checks import check_numerics, check_shares, spend_of
from opendp_sim.dsl.types.infer import bind_release, by_curve, release_record, users_before
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
        (s.mechanism.key, _made(s.mechanism, s.claim, s.domain, s.metric, norm))
        for s in typed.stages
    ]


def _made(
    record: Any, claim: Claim, domain: Domain, metric: Metric, norm: Norm | None = None
) -> Any:
    """Return a bound mechanism as an OpenDP object that can be written."""
    made = build(claim, record.key, domain, metric, norm)
    return noted(made, BoundNote(record, domain, metric, norm))


def chain_steps(steps: Steps) -> dp.Transformation | None:
    """Return the chained steps, or None for bare records."""
    transformation = None
    for _, made in steps:
        transformation = made if transformation is None else transformation >> made
    return transformation


def prefix(typed: Typed, norm: Norm | None) -> dp.Transformation | None:
    """Return the steps before a release as one transformation, or None."""
    return chain_steps(steps_before(typed, norm))


def chain(before: dp.Transformation | None, bound: Bound) -> dp.Measurement:
    """Return one OpenDP measurement of steps and release."""
    release: dp.Measurement = _made(bound.record, bound.claim, bound.domain, bound.metric)
    return release if before is None else before >> release


def maps_of(steps: Steps, d_in: int) -> list[tuple[str, float]]:
    """Evaluate every OpenDP map of the chain at ``d_in``, as (step, distance)."""
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
    "gdp": "under `gdp` releases are rounded Gaussian noise, ind_knn, hybrid_knn, linear_model, "
    "linear_regression, or pure; for this one choose the measure `zcdp`, `approx_zcdp` or `approx`, or "
    "a ledger of its own.",
    "zcdp": "use `approx_zcdp` for mechanisms that have a delta of their own.",
    "approx_zcdp": "use `approx` for mechanisms that are only (epsilon, delta).",
    "approx": "this release has no loss in (epsilon, delta); see `opendp-sim explain OS405`.",
}


def map_value(measurement: dp.Measurement, d_in: int, delta: float = 0.0) -> Loss:
    """Return the map's value at ``d_in``, a curve's at ``delta``, as floats.

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
    """State the most that all releases may lose together."""

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

    def delta_of(self, spend: Fraction, budget: Limit) -> float:
        """Return the delta for the conversion of a release with share ``spend``."""
        share = self.share(spend)
        return share[1] if len(share) > 1 else (budget.down("delta") or 0.0)


def target_of(budget: Limit, measure: MeasureName, *, with_delta: bool) -> Target:
    """Return the target; ``with_delta`` if a mechanism has its own delta."""
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
    """Return the greatest rho within ``epsilon`` at ``delta``, as OpenDP converts.

    It is that of OpenDP's own Gaussian on one integer, whose scale is searched.
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
    total: dp.Measurement,
    target: Target,
    d_in: int,
    limit: float | None = None,
    known: Loss | None = None,
) -> Loss | None:
    """Return the total as (epsilon, delta) where asked.

    Through OpenDP's conversion. Under ``gdp`` OpenDP's total is ``mu**2 / 2``, and the exact curve
    converts it; ``limit`` is the epsilon that the budget states, ``known`` the total's own loss at
    ``d_in``.
    """
    if target.conversion_delta is None:
        return None
    if target.measure == "gdp":
        square = 2 * Fraction((known or map_value(total, d_in))[0])
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


# --------------------------------------------------------------------------------------------------
# The losses of a program: the least noise within each release's share, and the total, twice.

_Solved = dict[tuple[Any, ...], float]
"""What was solved for releases that look alike: a guess for the next one, which its own map confirms."""
_KEPT: dict[str, _Solved] = {}
_MOST_KEPT = 256
"""By program: one planned again looks at OpenDP twice, and no plan depends on another program."""


def account(
    program: Program, types: Mapping[str, Typed], notes: Notes
) -> tuple[dict[str, ReleasePlan], Target | None, Loss, Loss | None, Loss]:
    """Plan all releases with total, target, claim and one record's loss."""
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
    composed = compose(measurements)
    total, claim = _total(composed, sorted(private), out, privacy, target, notes)
    one = total if privacy.unit.d_in == 1 else map_value(composed, 1)
    return {name: out[name] for name in released}, target, total, claim, one


def _has_delta(typed: Typed) -> bool:
    """Whether a release has a delta of its own."""
    assert typed.release is not None  # noqa: S101 - the caller asked
    bound = bind_release(typed, release_record(typed.release, probe=True))
    return bound.claim.measure.startswith(("approx", "smoothed"))


def _least_noise(
    typed: Typed, privacy: Privacy, target: Target, solved: _Solved
) -> tuple[ReleasePlan, dp.Measurement]:
    """Plan a release by its exact curve, where possible."""
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
    steps = steps_before(typed, probe.norm)
    before = chain_steps(steps)
    # The conversion of rho to epsilon needs the other half.
    converts = privacy.measure == "approx" and probe.claim.measure.startswith("approx_zero")
    own_delta = delta / 2 if converts else delta

    @cache  # the answer is asked for again
    def at(value: float | None) -> tuple[Bound, dp.Measurement, dp.Measurement]:
        record = release_record(release, value, own_delta, distance=users_before(typed, d_in))
        bound = bind_release(typed, record)
        if isinstance(bound.claim, Interactive):  # its refusal as it is, not inside OpenDP's text
            bound.claim.privacy_map(1)
        own = chain(before, bound)
        gaussian = bound.claim.mu_squared is not None
        return bound, own, cast(own, bound.claim.measure, privacy.measure, delta, gaussian=gaussian)

    value = None
    if release.solve is not None:
        reach = None if before is None else before.map(d_in)
        alike = (release.solve, probe.record.key, probe.claim.measure, share, reach)
        value = solved[alike] = solve(
            lambda v: map_value(at(v)[2], d_in),
            share,
            f"flow.{typed.name}.release",
            rising=release.solve != "scale",
            # A parameter that is a loss is near the share itself: far below, it may not be drawable.
            start=1.0 if release.solve == "scale" else 1.0 / max(share[0], 2.0**-50),
            guess=solved.get(alike),
        )
    bound, own, joined = at(value)
    both = _finite(typed, map_value(own, d_in, delta), map_value(joined, d_in))
    again = _derived(typed, privacy, bound, delta, both)
    spend = spend_of(release) if release.solve else None
    steps = steps if bound.norm == probe.norm else steps_before(typed, bound.norm)
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
    converted = privacy.measure == "approx"
    have, exact = losses.derived(typed, bound, privacy.unit.d_in, delta)
    losses.agree(f"flow.{typed.name}", had[0], exact, converted=converted)
    again = losses.cast_exactly(
        have, exact, privacy.measure, delta, gaussian=bound.claim.mu_squared is not None
    )
    losses.agree(f"flow.{typed.name}", had[1], again, converted=converted)
    return again


def _total(
    composed: dp.Measurement,
    names: list[str],
    out: Mapping[str, ReleasePlan],
    privacy: Privacy,
    target: Target,
    notes: Notes,
) -> tuple[Loss, Loss | None]:
    d_in = privacy.unit.d_in
    total = map_value(composed, d_in)
    claim = total_at(composed, target, d_in, privacy.budget.down("epsilon"), total)
    exact = losses.total([out[name].again for name in names])
    losses.agree("privacy.total", total, exact, converted=privacy.measure == "approx")
    if claim is not None and target.conversion_delta is not None:
        ours = losses.converted(privacy.measure, exact, target.conversion_delta)
        losses.agree("privacy.claim", claim, ours, converted=True)
    _check_gaussian(privacy.measure, total, claim)
    budget = privacy.budget
    # A map rounds up: a loss of just the budget is stated as the next float.
    over = any(have > float_up(most) for have, most in zip(total, target.exact, strict=True))
    limits = (float_up(budget.exact(name) or Fraction(2) ** 1024) for name in ("epsilon", "delta"))
    over = over or (claim is not None and any(c > m for c, m in zip(claim, limits, strict=True)))
    if over:
        error = BudgetError(
            "OS401", "privacy.budget",
            expected=f"a total within {loss_text(privacy.measure, target.exact)}",
            got=loss_text(privacy.measure, total),
            hint="raise the given scales, write `scale: solve`, or raise the budget.",
        )  # fmt: skip
        notes.from_error(error, ("privacy", "budget"))
    return total, None if claim is None else _as_written(claim, budget)


def _as_written(claim: Loss, budget: Limit) -> Loss:
    """Return a claim with the budget's own numbers."""
    own = (float(budget.exact(name) or 0) for name in ("epsilon", "delta"))
    both = zip(claim, own, strict=True)
    return tuple(
        said if have <= said <= math.nextafter(have, 1e300) else have for have, said in both
    )


def _check_gaussian(
    measure: MeasureName, total: tuple[float, ...], claim: tuple[float, ...] | None
) -> None:
    """Check that the exact curve is within zCDP's conversion (OS901)."""
    if measure != "gdp" or claim is None:
        return
    most = zcdp_to_epsilon(total[0], claim[1])
    if claim[0] > most * (1 + 1e-9) + 1e-12:
        raise InternalError(
            "OS901", "privacy.claim", expected=f"at most {most!r}, as every zCDP mechanism",
            got=f"{claim[0]!r} by the Gaussian curve", hint="nothing ran; report the spec as a bug.",
        )  # fmt: skip


# --------------------------------------------------------------------------------------------------


def measurement_of(
    releases: Sequence[ReleasePlan], privacy: Privacy, target: Target, *, curve: bool
) -> dp.Measurement:
    """Return OpenDP's composition of planned releases, as their plan composed them.

    ``curve`` states the loss as a privacy profile: ``gdp`` alone (``accounting/measures/gaussian.md``).
    """
    measurements = []
    for release in releases:
        bound, decl = release.bound, release.typed.release
        assert bound is not None and decl is not None  # noqa: S101, PT018 - the caller filtered
        own = chain(prefix(release.typed, bound.norm), bound)
        delta = target.delta_of(spend_of(decl), privacy.budget)
        gaussian = bound.claim.mu_squared is not None
        measurements.append(
            cast(own, bound.claim.measure, privacy.measure, delta, gaussian=gaussian)
        )
    composed = compose(measurements)
    return curve_measurement(composed, partial(_curve, composed)) if curve else composed


def _curve(composed: dp.Measurement, d_in: Any) -> Callable[[float], float]:
    """Return a Gaussian total's exact curve."""
    whole_distance(d_in, "plan.map")
    return partial(delta_up, 2 * Fraction(composed.map(d_in)))
