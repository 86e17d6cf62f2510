"""The plan: every loss, scale, conversion and expected error of a program, without its data."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path as File
from typing import Any

from opendp_sim.accounting.totals import Charge, loss_text
from opendp_sim.core import dp
from opendp_sim.core.claims import Stage
from opendp_sim.core.errors import BudgetError, InternalError, ParameterError, SimError
from opendp_sim.core.mechanism import Mechanism
from opendp_sim.core.memory import machine_memory
from opendp_sim.dsl import losses
from opendp_sim.dsl.accountant import (
    Target,
    cast,
    chain,
    claim_of,
    compose,
    loss_of,
    maps_of,
    prefix,
    target_of,
)
from opendp_sim.dsl.as_opendp import as_opendp
from opendp_sim.dsl.describe import memory_of, stage_plain
from opendp_sim.dsl.diagnostic import Notes
from opendp_sim.dsl.gaussian_facts import attackers_of, check_gaussian, gaussian_facts
from opendp_sim.dsl.ir import Privacy, Program
from opendp_sim.dsl.output_types import OutputType, type_outputs, unreleased
from opendp_sim.dsl.places import check_places
from opendp_sim.dsl.plan_text import ErrorCurve, as_html, as_yaml, errors_at, lines_of
from opendp_sim.dsl.reader import Draft, draft_of_file
from opendp_sim.dsl.solving import Loss, solve
from opendp_sim.dsl.stage_checks import check_numerics, check_shares, spend_of
from opendp_sim.dsl.typed import Bound, Typed
from opendp_sim.dsl.types import bind_release, by_curve, release_record, type_stages, users_of

__all__ = ["Plan", "ReleasePlan", "plan_file", "plan_of"]


@dataclass(frozen=True)
class ReleasePlan:
    """One release: the record with its solved parameter, its claim, and its loss."""

    typed: Typed
    bound: Bound | None
    spend: Fraction | None = None
    own_measure: str = "none"
    own_loss: Loss = ()
    loss: Loss = ()
    """In the program's measure."""
    maps: tuple[tuple[str, float], ...] = ()
    """Every map of the chain at the unit's distance: (step, distance after it)."""
    again: losses.Exact = ()
    """The same from the types, in exact numbers."""

    @property
    def record(self) -> Mechanism | None:
        """The mechanism with everything filled in."""
        return None if self.bound is None else self.bound.record

    @property
    def asked_stages(self) -> tuple[Stage, ...] | None:
        """The pipeline whose release can be asked: a sketch with noise, or a mechanism of its own."""
        typed, bound = self.typed, self.bound
        if typed.is_sketch and typed.release_kind in ("noise", "none"):
            return typed.stages
        if bound is None or not getattr(bound.claim, "capabilities", None):
            return None
        return (*typed.stages, Stage(bound.record, bound.domain, bound.metric, bound.claim))

    @property
    def sampler(self) -> str | None:
        """Which sampler draws the noise."""
        noise = getattr(self.bound.claim, "noise", None) if self.bound else None
        return None if noise is None else str(noise.sampler)

    def plain(self) -> dict[str, Any]:
        """The JSON form."""
        if self.bound is None:
            return {"mechanism": "none", "loss": []}
        noise = getattr(self.bound.claim, "noise", None)
        record = self.bound.record
        return {
            "mechanism": {record.key: record.spec()},
            "norm": self.bound.norm,
            "maps": [list(found) for found in self.maps],
            "spend": None if self.spend is None else str(self.spend),
            "own": {"measure": self.own_measure, "loss": list(self.own_loss)},
            "loss": list(self.loss),
            "sampler": self.sampler,
            "deviation": None if noise is None else noise.deviation,
            "cells": self.typed.sketch.output.size if self.typed.is_sketch else None,  # type: ignore[attr-defined]
            "expected": {k: float(v) for k, v in self.bound.claim.expected.items()},
        } | ({"reason": reason} if (reason := getattr(self.bound.claim, "reason", "")) else {})


@dataclass(frozen=True, repr=False)
class Plan:
    """Everything that is known about a program before its data is opened."""

    program: Program
    types: Mapping[str, Typed]
    outputs: Mapping[str, OutputType]
    releases: Mapping[str, ReleasePlan]
    target: Target | None
    total: Loss
    """OpenDP's composition of all releases, in the program's measure."""
    claim: Loss | None
    """The total as (epsilon, delta), through OpenDP's conversion; under ``gdp`` by the exact curve."""
    path: str | None = None
    of_one: Loss = ()
    """OpenDP's composition at distance 1: one record, or one person."""

    @property
    def privacy(self) -> Privacy | None:
        """The program's privacy claim; None when all data is public."""
        return self.program.privacy if self.target is not None else None

    @property
    def charge(self) -> Charge | None:
        """What a ledger is charged."""
        return None if self.privacy is None else Charge(self.privacy.measure, self.total)

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
        """Return ten lines: the promise, the errors to expect, the cost."""
        return "\n".join(f"{word:<10}{text}" for word, text in lines_of(self))

    def _repr_html_(self) -> str:
        """Return the same lines for a notebook."""
        return as_html(self)

    def to_opendp(self, *, curve: bool = False) -> dp.Measurement:
        """Return the whole program as one OpenDP measurement: see ``as_opendp``."""
        return as_opendp(self, curve=curve)

    def to_yaml(self) -> str:
        """Return the program as a spec, every default written out."""
        return as_yaml(self)

    def errors(self, epsilon: Sequence[float], delta: float | None = None) -> ErrorCurve:
        """Return the errors that this program would have at other budgets; nothing is spent."""
        return errors_at(self, epsilon, delta)

    @property
    def canonical(self) -> str:
        """The canonical text: two plans of equal text are the same plan."""
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
    releases, target, total, claim, one = _account(program, good, notes)
    notes.raise_if_any(document)
    bounds = {name: r.bound for name, r in releases.items() if r.bound is not None}
    outputs = type_outputs(program, good, frozenset(), notes, bounds)
    notes.raise_if_any(document)
    found = {name: output for name, output in outputs.items() if output is not None}
    return Plan(program, good, found, releases, target, total, claim, path, one)


def _check_sizes(types: Mapping[str, Typed], notes: Notes) -> None:
    """Report sketches that this machine, or OpenDP's vectors, cannot hold (OS103)."""
    for name, typed in types.items():
        cells, needed = getattr(typed.domain, "size", 0) or 0, memory_of([typed])
        if typed.is_sketch and (needed > machine_memory() or cells >= 2**31):
            notes.error(
                "OS103", f"`{name}` needs about {needed:,} bytes for {cells:,} cells", ("flow", name),
                label=f"the machine has {machine_memory():,} bytes, a sketch fewer than 2**31 cells",
                help="lower `repetitions`, `buckets` or the sketch's other sizes, or the labels.",
                part="key",
            )  # fmt: skip


def _account(
    program: Program, types: Mapping[str, Typed], notes: Notes
) -> tuple[dict[str, ReleasePlan], Target | None, Loss, Loss | None, Loss]:
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
    # By name: float sums depend on their order, and a program's hash does not.
    for name, typed in sorted(private.items()):
        try:
            plan, measurement = _least_noise(typed, privacy, target)
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
    typed: Typed, privacy: Privacy, target: Target
) -> tuple[ReleasePlan, dp.Measurement]:
    """Plan a release by its exact curve, where the author left that open and the measure has one."""
    if (curved := by_curve(typed, privacy.measure)) is not None:
        # A curve is stated up to some scale and number of rounds; beyond, its bound in rho is near it.
        with suppress(ParameterError, BudgetError):
            return _release(curved, privacy, target)
    return _release(typed, privacy, target)


def _release(typed: Typed, privacy: Privacy, target: Target) -> tuple[ReleasePlan, dp.Measurement]:
    release, d_in = typed.release, privacy.unit.d_in
    assert release is not None  # noqa: S101 - the caller asked
    share = target.share(spend_of(release))
    delta = target.delta_of(spend_of(release), privacy.budget)

    probe = bind_release(typed, release_record(release, probe=True))
    before = prefix(typed, probe.norm)
    # The conversion of rho to epsilon needs the other half.
    converts = privacy.measure == "approx" and probe.claim.measure.startswith("approx_zero")
    own_delta = delta / 2 if converts else delta

    def at(value: float | None) -> tuple[Bound, dp.Measurement, dp.Measurement]:
        record = release_record(release, value, own_delta, distance=users_of(typed, d_in))
        bound = bind_release(typed, record)
        own = chain(before, bound)
        gaussian = bound.claim.mu_squared is not None
        return bound, own, cast(own, bound.claim.measure, privacy.measure, delta, gaussian=gaussian)

    value = None
    if release.solve is not None:
        value = solve(
            lambda v: loss_of(at(v)[2], d_in),
            share,
            f"flow.{typed.name}.release",
            rising=release.solve != "scale",
            power=typed.release_kind == "noise",
        )
    bound, own, joined = at(value)
    own_loss, loss = loss_of(own, d_in, delta), loss_of(joined, d_in)
    if not all(map(math.isfinite, (*own_loss, *loss))):
        raise BudgetError(
            "OS401", f"flow.{typed.name}.release", expected="a loss that a float can hold",
            got="infinity", hint="use a larger scale, or write `scale: solve`.",
        )  # fmt: skip
    have, exact = losses.derived(typed, bound, d_in, delta)
    converted = privacy.measure == "approx"
    losses.agree(f"flow.{typed.name}", own_loss, exact, converted=converted)
    again = losses.cast_exactly(
        have, exact, privacy.measure, delta, gaussian=bound.claim.mu_squared is not None
    )
    losses.agree(f"flow.{typed.name}", loss, again, converted=converted)
    spend = spend_of(release) if release.solve else None
    maps = tuple(maps_of(typed, bound, d_in))
    return ReleasePlan(
        typed, bound, spend, bound.claim.measure, own_loss, loss, maps, again
    ), joined


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
            "OS401", "privacy.budget",
            expected=f"a total within {loss_text(privacy.measure, target.whole)}",
            got=loss_text(privacy.measure, total),
            hint="raise the given scales, write `scale: solve`, or raise the budget.",
        )  # fmt: skip
        notes.from_error(error, ("privacy", "budget"))
    return total, claim
