"""Plan a program, losses, scales, conversions and errors, without data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as File
from typing import Any

from opendp_sim.core import dp
from opendp_sim.core.claims import Stable
from opendp_sim.core.errors import BudgetError
from opendp_sim.core.memory import machine_memory
from opendp_sim.dsl.files.paths import check_places
from opendp_sim.dsl.grammar.reader import Draft, draft_of_file
from opendp_sim.dsl.plan.accountant import account, measurement_of
from opendp_sim.dsl.plan.expected_error import asked_later, error_forecasts
from opendp_sim.dsl.plan.gaussian_facts import attackers_of, gaussian_facts
from opendp_sim.dsl.plan.records import Planned
from opendp_sim.dsl.plan.statements import tell
from opendp_sim.dsl.plan.text import ErrorCurve, as_yaml
from opendp_sim.dsl.text.diagnostic import Notes
from opendp_sim.dsl.types.describe import memory_of, stage_plain
from opendp_sim.dsl.types.error_terms import ErrorForecast
from opendp_sim.dsl.types.infer import type_stages
from opendp_sim.dsl.types.outputs import type_outputs, unreleased
from opendp_sim.dsl.types.records import Typed
from opendp_sim.io.blocks import widest


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
        return "\n".join(f"{word:<10}{text}" for word, text in tell(self).lines())

    def _repr_html_(self) -> str:
        return tell(self).card()

    def to_opendp(self, *, curve: bool = False) -> dp.Measurement:
        """Return OpenDP's composition of the plan's releases.

        Nothing is claimed here that the plan did not claim: OpenDP chains and composes its releases.

        Args:
            curve: state the loss as a privacy profile (smoothed max divergence) instead of in the
                program's measure. OpenDP's ``make_fix_delta`` goes on from there. ``gdp`` alone.

        Returns:
            A measurement on the program's records (the domain that its first step reads), whose release
            is the list of the plan's releases in the order of their names, those that are asked last:
            under an approximate measure OpenDP answers the last of them only. Map: ``plan.total`` at the
            unit's distance; with ``curve``, ``d_in -> (epsilon -> delta)`` with
            ``delta = Phi(mu / 2 - epsilon / mu) - e**epsilon Phi(-mu / 2 - epsilon / mu)`` and ``mu**2``
            twice OpenDP's composed rho at ``d_in``, rounded up. No ledger is charged by what it returns.

        Raises:
            BudgetError (OS405): no private release; a curve of another measure than ``gdp``.
            OpenDPException: releases of different data cannot be composed.
        """
        found = sorted(self.releases.items(), key=lambda item: (item[1].interactive, item[0]))
        releases = [release for _, release in found if release.bound is not None]
        if self.privacy is None or self.target is None or not releases:
            raise BudgetError(
                "OS405", "plan", expected="a program that releases something with privacy",
                got="none", hint="give a stage a `release` with noise.",
            )  # fmt: skip
        if curve and self.privacy.measure != "gdp":
            raise BudgetError(
                "OS405", "privacy.measure", expected="`gdp`, whose curve is exact",
                got=self.privacy.measure,
                hint="OpenDP converts the other measures itself: `make_zCDP_to_approxDP`.",
            )  # fmt: skip
        return measurement_of(releases, self.privacy, self.target, curve=curve)

    def forecast(self) -> dict[str, ErrorForecast]:
        """Return each question's error as numbers, before any data is opened.

        A question is an output, or ``QUESTION of OUTPUT`` of a release that is asked later. Every text
        about errors, of a terminal, page or notebook, is made from these.

        Example:
            >>> import opendp_sim as sim
            >>> told = sim.density({"x": (0.0, 1.0)}, bandwidth=0.1).plan.forecast()
            >>> found = told["density of release"]
            >>> found.unit, round(found.noise, 1), round(found.at(100), 1)
            ('rows', 9.0, 9.0)
        """
        return error_forecasts(self)

    def to_yaml(self, *, brief: bool = False) -> str:
        """Return the program as a spec of equal hash.

        Args:
            brief: leave out every word that the program has by default, and write short values in one
                line; else all words are written, in blocks.
        """
        return as_yaml(self, brief=brief)

    def errors(self, epsilon: Sequence[float], delta: float | None = None) -> ErrorCurve:
        """Return this program's errors at other budgets.

        Of outputs; of a release that no output asks, those of its questions.
        """
        return _errors_at(self, epsilon, delta)

    @property
    def canonical(self) -> str:
        """Return the canonical text, equal for equal plans."""
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
    """Return the errors of outputs planned again at other budgets."""
    privacy = plan.program.privacy
    found: dict[str, list[float]] = {}
    for value in epsilon if privacy is not None else ():
        assert privacy is not None  # noqa: S101 - the loop asked
        given = delta if delta is not None else privacy.budget.delta
        budget = replace(privacy.budget, epsilon=value, delta=given, rho=None, mu=None)
        budget.check(privacy.measure, "epsilon")
        program = replace(plan.program, privacy=privacy.model_copy(update={"budget": budget}))
        other = plan_of(Draft(program, frozenset(), Notes(), None, privacy.unit))
        for name, output in other.outputs.items():
            for word, error in output.expected.items():
                found.setdefault(f"{name}: {word}", []).append(float(error))
        asked = {output.stage.name for output in other.outputs.values() if output.posts}
        for name, later in asked_later(other).items():
            stage = other.outputs[name.partition(" of ")[2]].stage.name
            if later.errors is not None and stage not in asked:
                word = "noise_error" if later.least is None else "noise_error of the sum"
                found.setdefault(f"{name}: {word}", []).append(later.errors.noise)
    return ErrorCurve(tuple(map(float, epsilon)), {k: tuple(v) for k, v in found.items()})
