"""Plan a program without its data.

Every loss, scale, conversion and expected error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from pathlib import Path as File
from typing import Any

from opendp_sim.accounting.budget import Budget
from opendp_sim.accounting.composition import loss_text
from opendp_sim.accounting.measures.gaussian import delta_up
from opendp_sim.core import dp
from opendp_sim.core.arithmetic.rounding import float_up, whole_distance
from opendp_sim.core.bridge import curve_measurement
from opendp_sim.core.claims import Stable
from opendp_sim.core.errors import BudgetError, InternalError, ParameterError, SimError
from opendp_sim.core.memory import machine_memory
from opendp_sim.dsl.files.paths import check_places
from opendp_sim.dsl.grammar.program import Privacy, Program
from opendp_sim.dsl.grammar.reader import Draft, draft_of_file
from opendp_sim.dsl.plan import losses
from opendp_sim.dsl.plan.accountant import (
    Target,
    cast,
    chain,
    chain_steps,
    compose,
    map_value,
    maps_of,
    prefix,
    steps_before,
    target_of,
    total_at,
)
from opendp_sim.dsl.plan.gaussian_facts import attackers_of, check_gaussian, gaussian_facts
from opendp_sim.dsl.plan.records import Planned
from opendp_sim.dsl.plan.release_plan import ReleasePlan
from opendp_sim.dsl.plan.solve import Loss, solve
from opendp_sim.dsl.plan.text import ErrorCurve, as_html, as_yaml, lines_of
from opendp_sim.dsl.text.diagnostic import Notes
from opendp_sim.dsl.types.checks import check_numerics, check_shares, spend_of
from opendp_sim.dsl.types.describe import memory_of, stage_plain
from opendp_sim.dsl.types.infer import (
    bind_release,
    by_curve,
    release_record,
    type_stages,
    users_before,
)
from opendp_sim.dsl.types.outputs import type_outputs, unreleased
from opendp_sim.dsl.types.records import Bound, Typed
from opendp_sim.io.blocks import widest

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
    """Return the plans of releases with their total.

    And the target, the claim and the loss at one record.

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
    one = map_value(compose(measurements), 1)
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
    """Return the loss derived from the types."""
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
    total = map_value(composed, d_in)
    claim = total_at(composed, target, d_in, privacy.budget.down("epsilon"))
    exact = losses.total([out[name].again for name in names])
    losses.agree("privacy.total", total, exact, converted=privacy.measure == "approx")
    if claim is not None and target.conversion_delta is not None:
        ours = losses.converted(privacy.measure, exact, target.conversion_delta)
        losses.agree("privacy.claim", claim, ours, converted=True)
    check_gaussian(privacy.measure, total, claim)
    budget = privacy.budget
    # A map rounds up: a loss of just the budget is stated as the next float.
    over = any(have > float_up(most) for have, most in zip(total, target.exact, strict=True))
    limits = (float_up(budget.exact(name) or Fraction(2) ** 1024) for name in ("epsilon", "delta"))
    over = over or (claim is not None and any(c > m for c, m in zip(claim, limits, strict=True)))
    if over:
        error = BudgetError(
            "OS401",
            "privacy.budget",
            expected=f"a total within {loss_text(privacy.measure, target.exact)}",
            got=loss_text(privacy.measure, total),
            hint="raise the given scales, write `scale: solve`, or raise the budget.",
        )
        notes.from_error(error, ("privacy", "budget"))
    return total, None if claim is None else _as_written(claim, budget)


def _as_written(claim: Loss, budget: Budget) -> Loss:
    """Return a claim with the budget's own numbers."""
    own = (float(budget.exact(name) or 0) for name in ("epsilon", "delta"))
    both = zip(claim, own, strict=True)
    return tuple(
        said if have <= said <= math.nextafter(have, 1e300) else have for have, said in both
    )


# --------------------------------------------------------------------------------------------------
# A whole program as one OpenDP measurement, for pipelines that go on in OpenDP.
#
# Nothing is claimed here that the plan did not claim: the releases are the plan's, chained and composed
# by OpenDP, and the curve of a Gaussian program is that of its total
# (``accounting/measures/gaussian.md``).


def as_opendp(plan: Planned, *, curve: bool = False) -> dp.Measurement:
    """Return OpenDP's composition of a plan's releases.

    Or the same under its exact curve.

    Args:
        plan: a plan; its data is not opened, and no ledger is charged by what is returned.
        curve: state the loss as a privacy profile (smoothed max divergence) instead of in the
            program's measure. OpenDP's ``make_fix_delta`` goes on from there. ``gdp`` alone.

    Returns:
        A measurement on the program's records (the domain that its first step reads), whose release
        is the list of the plan's releases in the order of their names, those that are asked last: under
        an approximate measure OpenDP answers the last of them only. Map: ``plan.total`` at the
        unit's distance; with ``curve``, ``d_in -> (epsilon -> delta)`` with
        ``delta = Phi(mu / 2 - epsilon / mu) - e**epsilon Phi(-mu / 2 - epsilon / mu)`` and ``mu**2``
        twice OpenDP's composed rho at ``d_in``, rounded up.

    Raises:
        BudgetError (OS405): nothing is released with privacy; a curve of another measure than ``gdp``.
        OpenDPException: releases of different data cannot be composed.
    """
    found = sorted(plan.releases.items(), key=lambda item: (item[1].interactive, item[0]))
    releases = [release for _, release in found if release.bound is not None]
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
    """Return a Gaussian total's exact curve."""
    whole_distance(d_in, "plan.map")
    return partial(delta_up, 2 * Fraction(composed.map(d_in)))


# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Plan(Planned):
    """Everything that is known about a program before its data is opened."""

    def plain(self) -> dict[str, Any]:
        """The plan as plain JSON; floats by their shortest exact text."""
        privacy = self.privacy
        return {
            "name": self.program.name,
            "program": self.program.hash,
            "privacy": None if privacy is None else privacy.plain() | {"d_in": privacy.unit.d_in},
            "stages": {name: stage_plain(typed) for name, typed in self.types.items()},
            "releases": {name: release.plain() for name, release in self.releases.items()},
            "total": list(self.total),
            "conversion_delta": None if self.target is None else self.target.conversion_delta,
            "claim": None if self.claim is None else list(self.claim),
            "gaussian": gaussian_facts(self),
            "attackers": attackers_of(self),
            "outputs": {
                name: {
                    "from": output.decl.source,
                    "stage": output.stage.name,
                    "expected": output.expected,
                    "save": output.decl.save,
                    "serve": output.decl.serve,
                }
                for name, output in self.outputs.items()
            },
            "memory_bytes": memory_of(self.types.values()),
        }

    def __repr__(self) -> str:
        """Return the promise, errors and cost in ten lines."""
        return "\n".join(f"{word:<10}{text}" for word, text in lines_of(self))

    def _repr_html_(self) -> str:
        """Return the same lines for a notebook."""
        return as_html(self)

    def to_opendp(self, *, curve: bool = False) -> dp.Measurement:
        """Return the program as one OpenDP measurement."""
        return as_opendp(self, curve=curve)

    def to_yaml(self) -> str:
        """Return the program as a spec, every default written out."""
        return as_yaml(self)

    def errors(self, epsilon: Sequence[float], delta: float | None = None) -> ErrorCurve:
        """Return this program's errors at other budgets."""
        return _errors_at(self, epsilon, delta)

    @property
    def canonical(self) -> str:
        """Return the canonical text.

        Two plans of equal text are the same plan.
        """
        return json.dumps(self.plain(), sort_keys=True, separators=(",", ":"))


def plan_file(path: str | File, given: Mapping[str, Any] | None = None) -> Plan:
    """Read, check and plan a spec; raises ``Refused`` with every independent finding."""
    return plan_of(draft_of_file(path, given))


def plan_of(draft: Draft) -> Plan:
    """Plan a program, or raise ``Refused`` with every independent finding."""
    dp.enable_features("contrib")
    program, notes, document = draft.program, draft.notes, draft.document
    types = type_stages(program, draft.broken, notes, draft.unit)
    type_outputs(program, types, draft.broken, notes)
    unreleased(program, types, notes)
    path = document.name if document is not None else None
    check_places(program, notes, path)
    notes.raise_if_any(document)
    good = {name: typed for name, typed in types.items() if typed is not None}
    _check_sizes(good, notes)
    notes.raise_if_any(document)
    releases, target, total, claim, one = account(program, good, notes)
    notes.raise_if_any(document)
    bounds = {name: r.bound for name, r in releases.items() if r.bound is not None}
    outputs = type_outputs(program, good, frozenset(), notes, bounds)
    notes.raise_if_any(document)
    found = {name: output for name, output in outputs.items() if output is not None}
    return Plan(program, good, found, releases, target, total, claim, path, one)


def _check_sizes(types: Mapping[str, Typed], notes: Notes) -> None:
    """Report what this machine, or OpenDP's vectors, cannot hold (OS103)."""
    for name, typed in types.items():
        params = dict(typed.release.params) if typed.release is not None else {}
        cells, needed = getattr(typed.domain, "size", 0) or 0, memory_of([typed])
        if needed <= machine_memory() and not (typed.is_sketch and cells >= 2**31):
            continue
        width, where = widest(typed.stages)
        claim = where.claim if where is not None else None
        lower = claim.widened_by if isinstance(claim, Stable) else ""
        if typed.is_sketch and 3 * 8 * cells > needed // 2:
            what = f"{cells:,} cells"
            hint = "lower `repetitions`, `buckets` or the sketch's other sizes, or the labels."
        else:
            what = f"records of {width:,} numbers"
            hint = (
                f"lower `{lower}` of `{where.mechanism.key}`"
                if where and lower
                else "lower the sizes"
            )
            hint += ", or the public `size`." if params.get("size") else "."
        notes.error(
            "OS103", f"`{name}` needs about {needed:,} bytes for {what}", ("flow", name),
            label=f"the machine has {machine_memory():,} bytes, a sketch fewer than 2**31 cells",
            help=hint, part="key",
        )  # fmt: skip


def _errors_at(plan: Plan, epsilon: Sequence[float], delta: float | None = None) -> ErrorCurve:
    """Plan at other budgets, and return the outputs' errors.

    Args:
        plan: a plan of a private program whose scales are solved from the budget.
        epsilon: the budgets to try.
        delta: the delta of all of them; default the plan's own.
    """
    privacy = plan.program.privacy
    found: dict[str, list[float]] = {}
    for value in epsilon if privacy is not None else ():
        assert privacy is not None  # noqa: S101 - the loop asked
        given = delta if delta is not None else privacy.budget.delta
        budget = replace(privacy.budget, epsilon=float(value), delta=given, rho=None, mu=None)
        program = replace(plan.program, privacy=privacy.model_copy(update={"budget": budget}))
        other = plan_of(Draft(program, frozenset(), Notes(), None, privacy.unit))
        for name, output in other.outputs.items():
            for word, error in output.expected.items():
                found.setdefault(f"{name}: {word}", []).append(float(error))
    return ErrorCurve(tuple(map(float, epsilon)), {k: tuple(v) for k, v in found.items()})
