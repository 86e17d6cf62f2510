"""Plan a program, losses, scales, conversions and errors, without data."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as File
from typing import Any

from opendp_sim.core import dp
from opendp_sim.core.arithmetic.rounding import up_text
from opendp_sim.core.claims import Stable
from opendp_sim.core.errors import BudgetError, ParameterError, SimError
from opendp_sim.core.memory import machine_memory
from opendp_sim.dsl.files.paths import check_places
from opendp_sim.dsl.grammar.error_goal import Solvable
from opendp_sim.dsl.grammar.reader import Draft, draft_of_file
from opendp_sim.dsl.plan.accountant import account, measurement_of
from opendp_sim.dsl.plan.expected_error import asked_later, error_forecasts
from opendp_sim.dsl.plan.gaussian_facts import attackers_of, gaussian_facts
from opendp_sim.dsl.plan.records import Planned
from opendp_sim.dsl.plan.statements import tell
from opendp_sim.dsl.plan.text import ErrorCurve, as_yaml
from opendp_sim.dsl.text.diagnostic import Notes
from opendp_sim.dsl.types.describe import memory_of, stage_plain
from opendp_sim.dsl.types.error_terms import BY_ROWS, ErrorForecast, few_digits
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
    if draft.solve is not None:
        draft.notes.raise_if_any(draft.document)
        return _reached(draft.solve)
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


# --------------------------------------------------------------------------------------------------
# A number that is solved from an error: the least one whose plan's forecast is at most the goal.
#
# Public facts alone: each number is planned as if it were written. A forecast need not fall with the
# number (noise of pure DP grows with frequencies), so a doubling number is looked at until it reaches the
# goal or gains nothing more, and the answer is verified by its own plan.

_MOST, _PATIENCE = 2**24, 6
_DIGITS, _ENOUGH = 3, 250
"""Digits of an epsilon, and a whole number's part to which the least one is found."""
_LEAST_EPSILON = 2.0**-20
"""No epsilon below it is solved: delta alone may reach an error, however small epsilon is."""
_KNOBS = {BY_ROWS["rounding"]: "raise `bits` of `quantize`"}
"""What lowers a part of an error beside the budget and the number that is solved."""


def _reached(solve: Solvable) -> Plan:
    """Return the plan that reaches a goal, or refuse (OS401)."""
    plans: dict[float, Plan | SimError] = {}

    def planned(number: float) -> Plan | SimError:
        if number not in plans:
            try:
                plans[number] = plan_of(solve.at(number))
            except SimError as error:
                plans[number] = error
        return plans[number]

    def error(number: float) -> float:
        plan = planned(number)
        return (
            math.inf
            if isinstance(plan, SimError)
            else _forecast_of(plan, solve).at(size) or math.inf
        )

    size, goal = solve.goal.size, solve.goal.error
    best = _least_whole(error, goal) if solve.whole else _least_epsilon(error, goal)
    found = None if best is None else planned(best)
    if solve.whole and isinstance(found, Plan) and _raises(plans, error, best or 1):
        raise ParameterError(
            "OS102", solve.name, expected="a number that lowers the error", got="one that raises it",
            hint=f"write `{solve.name}` as a number: what it is good for is no part of this error.",
        )  # fmt: skip
    if isinstance(found, Plan):
        unit = _forecast_of(found, solve).unit
        told = f"{solve.name} {best:,}: {few_digits(error(best or 0))} {unit} with about {size:,} records"
        return replace(found, solved=f"{told}, of at most {goal:g}")
    known = {number: plan for number, plan in plans.items() if isinstance(plan, Plan)}
    if not known:
        raise next(plan for plan in plans.values() if isinstance(plan, SimError))
    nearest = min(known, key=lambda number: (error(number), number))
    raise _unreachable(solve, known[nearest], error(nearest), nearest)


def _raises(
    plans: Mapping[float, Plan | SimError], error: Callable[[float], float], best: float
) -> bool:
    """Return whether the error only grows, from the first number on."""
    fewer = [plan for number, plan in plans.items() if number < best and isinstance(plan, Plan)]
    return not fewer and error(best) < error(2 * best) < math.inf


def _least_whole(error: Callable[[float], float], goal: float) -> int | None:
    """Return the least whole number that reaches a goal, or None."""
    errors: list[float] = []
    number = 1
    while number <= _MOST and error(number) > goal:
        found = error(number)
        if found == math.inf and min(errors, default=math.inf) < math.inf:
            break  # beyond what the mechanism takes: the last numbers before are looked at
        errors.append(found)
        if len(errors) > _PATIENCE and min(errors[:-_PATIENCE]) <= min(errors) < math.inf:
            return None
        number *= 2
    low, high = number // 2, number
    if error(high) > goal:
        while high - low > 1 and error(low) > goal:
            middle = (low + high) // 2
            low, high = (low, middle) if error(middle) == math.inf else (middle, high)
        low, high = number // 2, low
        if error(high) > goal:
            return None
    return _between(error, goal, low, high)


def _between(error: Callable[[float], float], goal: float, low: int, high: int) -> int:
    """Return the least number up to ``high`` that reaches a goal."""
    for number in map(round, _guesses(error, goal, low, high)):
        if low < number < high:
            low, high = (low, number) if error(number) <= goal else (number, high)
    while high - low > max(1, high // _ENOUGH):
        middle = (low + high) // 2
        low, high = (low, middle) if error(middle) <= goal else (middle, high)
    return high


def _guesses(
    error: Callable[[float], float], goal: float, low: float, high: float
) -> Iterator[float]:
    """Yield numbers beside a power law's answer."""
    if 0 < low < high and error(high) < error(low) < math.inf:
        power = math.log(error(low) / goal) / math.log(error(low) / error(high))
        near = low * (high / low) ** power
        yield from (near * (1 - 1 / _ENOUGH), near * (1 + 1 / _ENOUGH))


def _least_epsilon(error: Callable[[float], float], goal: float) -> float | None:
    """Return the least epsilon that reaches a goal, or None."""
    high = 1.0
    while error(high) > goal:
        high *= 2.0
        if high > 2.0**10:
            return None
    low = high / 2.0
    while error(low) <= goal:
        high, low = low, low / 2.0
        if low < _LEAST_EPSILON:
            return high  # delta alone pays for it
    for number in _guesses(error, goal, low, high):
        if low < number < high:
            low, high = (low, number) if error(number) <= goal else (number, high)
    while high / low > 1.0 + 10.0**-_DIGITS:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if error(middle) <= goal else (middle, high)
    rounded = float(up_text(high, _DIGITS))
    return rounded if error(rounded) <= goal else high


def _forecast_of(plan: Plan, solve: Solvable) -> ErrorForecast:
    """Return the forecast that a goal is about, or refuse (OS305)."""
    of = solve.goal.of
    told = {name: one for name, one in plan.forecast().items() if one.errors is not None}
    named = [name for name in told if of in (None, name, name.partition(" of ")[0])]
    if len(named) == 1:
        return told[named[0]]
    raise ParameterError(
        "OS102", f"{solve.name}.of",
        expected=f"one of {', '.join(told)}" if told else "an error that is known in advance",
        got=of or (f"{len(named)} errors" if named else "none"),
        hint="write `of:` beside `error:`." if told else "write the number itself: what this program "
        "answers depends on the data.",
    )  # fmt: skip


def _unreachable(solve: Solvable, plan: Plan, best: float, number: float) -> BudgetError:
    """Refuse a goal with the least error and what to change."""
    forecast, size = _forecast_of(plan, solve), solve.goal.size
    parts = {word: size * part for word, part in forecast.parts.items()}
    if forecast.least is not None:
        parts = forecast.parts
    worst = max(parts, key=lambda word: parts[word], default="")
    noise = (forecast.noise or 0.0) / (1 if forecast.least is None else size)
    knob = f"most of it is by {worst}: {_KNOBS.get(worst, 'raise the sizes of the sketch')}"
    if parts.get(worst, 0.0) <= noise:
        knob = "most of it is noise: raise the budget"
    return BudgetError(
        "OS401", solve.name,
        expected=f"an error of at most {solve.goal.error:g} {forecast.unit} with {size:,} records",
        got=f"{few_digits(best)} at the least, with {solve.name} {number:,}",
        hint=f"{knob}, or state a larger `error`.",
    )  # fmt: skip


# --------------------------------------------------------------------------------------------------


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
