"""Compare mechanisms and parameters by predicted error, ``sim.recommend``."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Unpack, get_args

from opendp_sim.api.columns import Bounds, bounds_of, declared, grid
from opendp_sim.api.kernel_steps import kernel_steps
from opendp_sim.api.recipe import DATA, keys_of, size_of
from opendp_sim.api.recipe_spec import (
    PrivacyOptions,
    PrivacyWords,
    StepDicts,
    privacy_words,
    recipe_function,
)
from opendp_sim.api.top import votes_needed
from opendp_sim.core.arithmetic.plain_numbers import python_value
from opendp_sim.core.capabilities import sliced
from opendp_sim.core.errors import ParameterError, SimError, scalar_text
from opendp_sim.core.mechanism import REGISTRY, Mechanism, lookup
from opendp_sim.domains.released import offering
from opendp_sim.dsl.builder import Builder
from opendp_sim.dsl.grammar.steps import SOLVABLE
from opendp_sim.dsl.plan.expected_error import error_of
from opendp_sim.dsl.plan.kernel_choice import LEVELS
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.text.diagnostic import suggest
from opendp_sim.dsl.types.describe import memory_of
from opendp_sim.dsl.types.error_terms import WIDE, WITHIN, ErrorForecast, few_digits, of_release

Norm = Literal["l1", "l2", "l2_squared"]
QUESTIONS: Mapping[str, Sequence[Mapping[str, Mapping[str, Any]]]] = {
    "density": [{"density": {}}],
    "outliers": [{"density": {}}],
    "modes": [{"density": {}}],
    "distances": [{"distance": {}}],
    "means": [{"totals": {}}],
    "quantiles": [{"quantiles": {}}],
    "classes": [
        {"density": {}},
        {"nearest_class": {}},
        {"nearest_class": {"rule": "mean_distance"}},
        {"predict": {}},
    ],
    "regression": [{"regress": {}}],
    "top": [],
    "session": [],
}
"""Each question, with the queries whose errors decide its answers; the last two have none."""
_KERNELS = ("density", "outliers", "modes", "classes")
_FIELDS = {"top": ("k", "k_max"), "session": ("queries",)}
"""A parameter of each measurement that answers without a query, by question."""
_NEAR = (1.05, 3.0, 10.0)
"""Of a parameter, the least values are taken whose errors are at most so many times the least error."""
_POWERS = 24
"""Powers of two of a parameter, beyond which no mechanism goes."""
_PATIENCE = 3
"""Doublings without a gain before a parameter's search ends."""
_H = 0.1
"""The bandwidth where none is stated, in parts of a column's range."""
_MOST_COLUMNS = 10_000
_NOT_STATED = "a question that does not state it"


@dataclass(frozen=True, repr=False)
class Candidate:
    """Hold one way to answer a question, planned.

    Attributes:
        mechanism: its name in a spec.
        parameters: those that were chosen by the predicted error.
        error: what 95 % of answers are within, in ``unit``; of a choice, the lead or the votes from which
            it is safe; None where no plan can know it.
        unit: what the error is counted in.
        memory: a run's peak, in bytes, without the table.
        reason: what the error is made of, or why it is not known.
        plan: the plan; a plan knows no time.
        step: the mechanism with all its parameters, as a spec has it.
    """

    mechanism: str
    parameters: Mapping[str, int]
    error: float | None
    unit: str
    memory: int
    reason: str
    plan: Plan
    step: Mapping[str, Any]
    _made: Builder

    def spec(self) -> str:
        """Return the short spec of this program, with its table in memory."""
        return self._made.to_yaml()

    def plain(self) -> dict[str, Any]:
        """Return the numbers and the reason as plain JSON."""
        return {
            "mechanism": self.mechanism,
            "parameters": dict(self.parameters),
            "error": self.error,
            "unit": self.unit,
            "memory_bytes": self.memory,
            "reason": self.reason,
        }

    def unranked(self) -> Candidate:
        """Return the candidate without an error that nothing is compared with."""
        if self.error is None:
            return self
        told = f"{few_digits(self.error)} {self.unit}, another unit than the others': {self.reason}"
        return replace(self, error=None, unit="", reason=told)

    @property
    def name(self) -> str:
        """The mechanism with what was chosen of it."""
        chosen = ", ".join(f"{name} {value:,}" for name, value in self.parameters.items())
        return f"{self.mechanism} ({chosen})" if chosen else self.mechanism

    def __repr__(self) -> str:
        """Return the name, error and reason in one line."""
        return f"{self.name}: {self.size}; {self.reason}"

    @property
    def size(self) -> str:
        """The error and memory in words."""
        if self.error is None:
            return "not ranked"
        return (
            f"{few_digits(self.error)} {self.unit}, {max(math.ceil(self.memory / 2**20), 1):,} MiB"
        )


@dataclass(frozen=True, repr=False)
class Recommendation:
    """Hold a question's candidates, ranked by predicted error.

    Attributes:
        question: its name.
        candidates: those with a known error, the least first.
        unknown: those that can be planned, whose error depends on the data.
        refused: the others by name, with the reason.
        about: the public facts that all of it holds for.
    """

    question: str
    candidates: tuple[Candidate, ...]
    unknown: tuple[Candidate, ...]
    refused: Mapping[str, str] = field(default_factory=dict)
    about: str = ""

    @property
    def best(self) -> Candidate:
        """Return the candidate of the least predicted error.

        Raises:
            ParameterError (OS102): no candidate has a known error.
        """
        if self.candidates:
            return self.candidates[0]
        raise ParameterError(
            "OS102", "question", expected="a question whose error is known in advance",
            got=self.question,
            hint="choose one of `.unknown`, and compare them on public rows like the data.",
        )  # fmt: skip

    def plain(self) -> dict[str, Any]:
        """Return all of it as plain JSON, without plans."""
        return {
            "question": self.question,
            "about": self.about,
            "candidates": [one.plain() for one in self.candidates],
            "unknown": [one.plain() for one in self.unknown],
            "refused": dict(self.refused),
        }

    def _rows(self) -> Iterator[tuple[str, str, str]]:
        for place, one in enumerate(self.candidates, 1):
            yield f"{place}  {one.name}", one.size, one.reason
        for one in self.unknown:
            yield f"?  {one.name}", one.size, one.reason
        for name, why in self.refused.items():
            yield f"-  {name}", "left out", why

    def __repr__(self) -> str:
        """Return two lines a candidate, the least error first."""
        rows = list(self._rows())
        wide = max((len(name) for name, _, _ in rows), default=0)
        lines = (line for n, s, why in rows for line in (f"{n:<{wide}}  {s}", f"     {why}"))
        return "\n".join([self.about, *lines])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>"
            for row in self._rows()
        )
        return f"<table><caption>{html.escape(self.about)}</caption>{rows}</table>"


@recipe_function(PrivacyOptions, 'recommend("density", 5, size=20_000)')
def recommend(
    question: str,
    columns: Bounds | int,
    *,
    size: int,
    bandwidth: float | Mapping[str, float] | None = None,
    keys: Sequence[str | int] | None = None,
    norm: Norm = "l1",
    k: int = 10,
    most: int = 2 ** (_POWERS - 1),
    **privacy: Unpack[PrivacyOptions],
) -> Recommendation:
    """Rank the mechanisms that answer a question by predicted error.

    Every sketch and measurement that offers what the question asks for is planned, and ``forecast`` of
    its plan is compared: no data is opened, and nothing is spent. A whole number that a mechanism needs
    (``frequencies``, ``thresholds``, ...) is the least power of two whose error is within 5 % of the
    least, and the least values within 3 and 10 times it: the fewer, the quicker. Where the error depends
    on the data, or is counted in another unit than the others', a mechanism has no rank.

    Args:
        question: ``density``, ``outliers``, ``modes``, ``distances``, ``means``, ``quantiles``,
            ``classes``, ``regression`` (of the last column), ``top`` or ``session``.
        columns: each column's public bounds, as for ``density``; or a number of columns within 0 and 1.
        size: about how many records, from public knowledge.
        bandwidth: of densities, as for ``density``; a tenth of the longest range where it is left out.
        keys: of ``classes`` and ``session``, every class that could occur (two where it is left out); of
            ``top`` every item, where that is public.
        norm: of ``distances``, ``l1``, ``l2`` or ``l2_squared``.
        k: of ``top``, how many items, in no order.
        most: the largest of such whole numbers, where memory or time is short.
        **privacy: as for ``density``; ``measure`` is ``approx`` for ``top``.

    Returns:
        A ``Recommendation``; ``.best.plan`` is a plan, and ``.best.spec()`` its spec.

    Raises:
        ParameterError (OS101): another question, or a wrong number. Refused: no candidate can be planned.

    Example:
        >>> found = recommend("density", 2, size=10_000)
        >>> found.best.mechanism, found.best.unit
        ('fourier_sketch', 'rows')
    """
    _check_question(question)
    _check_norm(norm)
    given = None if keys is None else keys_of(keys)
    asked = _Asked(
        question,
        _bounds(columns),
        size_of(size),
        given,
        norm,
        _whole("k", k),
        _whole("most", most),
        bandwidth,
        privacy,
    )
    if isinstance(asked.words.epsilon, Mapping):
        raise ParameterError(
            "OS101", "epsilon", expected="a number: candidates are compared at one budget",
            got="an error", hint="compare with epsilon=1.0, and state the error to the recipe.",
        )  # fmt: skip
    found: list[Candidate] = []
    refused: dict[str, str] = {}
    raised: list[SimError] = []
    for key in asked.mechanisms():
        try:
            found += asked.candidates(REGISTRY[key])
        except SimError as error:
            refused[key] = _why(error)
            raised += [] if error.got == _NOT_STATED else [error]
    if raised and not found:
        raise _none_of(question, raised, refused)
    units = Counter(one.unit for one in found if one.error is not None)
    (unit, _), *_ = units.most_common(1) or [("", 0)]
    known = sorted((one for one in found if one.unit == unit), key=lambda one: one.error or 0.0)
    others = [one.unranked() for one in found if one.unit != unit or one.error is None]
    ranked = tuple(one for one in known if one.error is not None)
    return Recommendation(question, ranked, tuple(others), refused, asked.about)


@dataclass(frozen=True)
class _Asked:
    """Build and plan the programs of one question."""

    question: str
    columns: Bounds
    size: int
    keys: list[Any] | None
    norm: str
    k: int
    most: int
    bandwidth: float | Mapping[str, float] | None
    privacy: Mapping[str, Any]

    @property
    def words(self) -> PrivacyWords:
        default = {"measure": "approx"} if self.question == "top" else {}
        return privacy_words("recommend", self.privacy, **default)

    @property
    def near(self) -> float | Mapping[str, float]:
        """The bandwidth, or a tenth of the longest range."""
        if self.bandwidth is not None:
            return self.bandwidth
        return _H * max(high - low for low, high in bounds_of(self.columns).values())

    @property
    def about(self) -> str:
        words, wide = self.words, len(self.columns)
        of = "" if self.question == "top" else f" in {wide} column{'s'[: wide != 1]}"
        facts = [f"{self.question}{of}"]
        facts += [f"about {self.size:,} row{'s'[: self.size != 1]}", f"epsilon {words.epsilon}"]
        facts += [] if words.delta is None else [f"delta {words.delta}"]
        near = self.near if self.question in _KERNELS else None
        facts += [f"bandwidth {near:g}"] if isinstance(near, float) else []
        return f"{', '.join(facts)}: errors of {WITHIN} of answers, predicted without data"

    def mechanisms(self) -> Iterator[str]:
        """Yield every mechanism that offers what the question asks for."""
        queries = (lookup(query) for each in QUESTIONS[self.question] for query in each)
        offered = {name for query in queries for name in query.asks_for}
        yield from sorted({key for name in offered for key in offering(name)})
        fields = {*_FIELDS.get(self.question, ())}
        for key, cls in sorted(REGISTRY.items()):
            if cls.room == "measurements" and fields & {*cls.model_fields}:
                yield key

    def candidates(self, cls: type[Mechanism]) -> list[Candidate]:
        """Plan a mechanism with the parameters of the least error, or refuse."""
        given = self._given(cls)
        needed = [
            name
            for name, info in cls.model_fields.items()
            if info.is_required() and name not in (*given, *SOLVABLE, "delta")
        ]
        if not needed:
            return [self._planned(cls, given, {})]
        if len(needed) > 1 or cls.model_fields[needed[0]].annotation is not int:
            raise _unstated(cls, needed)
        found = self._searched(cls, given, needed[0])
        best = min(one.error or 0.0 for one in found)
        near = (next(one for one in found if (one.error or 0.0) <= best * most) for most in _NEAR)
        return list({id(one): one for one in near}.values())

    def _searched(
        self, cls: type[Mechanism], given: Mapping[str, Any], name: str
    ) -> list[Candidate]:
        """Plan powers of two of a parameter while the error falls."""
        found: list[Candidate] = []
        refused = None
        for value in (2**power for power in range(min(_POWERS, self.most.bit_length()))):
            try:
                one = self._planned(cls, given, {name: value})
            except SimError as error:
                refused = refused or error
                if found:
                    break
                continue
            if one.error is None:
                raise _unstated(cls, [name])
            found.append(one)
            errors = [other.error or 0.0 for other in found]
            if len(found) > _PATIENCE and min(errors[:-_PATIENCE]) <= min(errors) * _NEAR[0]:
                break
        if not found:
            raise refused or _unstated(cls, [name])
        return found

    def _given(self, cls: type[Mechanism]) -> dict[str, Any]:
        """Return the parameters that the question states, of those a mechanism has."""
        near = self.near if self.question in _KERNELS else 1.0
        h = 1.0 if isinstance(near, Mapping) else near
        stated = {
            "seed": 0,
            "bandwidth": h,
            "kernel": {"gaussian": {"bandwidth": h}},
            "per_label": self.question == "classes",
            "consistent": True,
            "size": self.size,
            "k": self.k,
            "queries": 200,
            "p": 2 if self.norm == "l2_squared" else 1,
        } | ({"levels": LEVELS, "thresholds": 2**LEVELS} if self.question == "quantiles" else {})
        if self.question == "session":
            del stated["kernel"]
        return {name: value for name, value in stated.items() if name in cls.model_fields}

    def _planned(
        self, cls: type[Mechanism], given: Mapping[str, Any], chosen: Mapping[str, int]
    ) -> Candidate:
        words = {**chosen, **given}
        made = self._program(cls, words)
        plan = made.plan()
        error, unit, reason = self._error(plan, cls)
        memory = memory_of(plan.types.values())
        step = {cls.key: words}
        return Candidate(cls.key, chosen, error, unit, memory, reason, plan, step, made)

    def _program(self, cls: type[Mechanism], params: Mapping[str, Any]) -> Builder:
        """Return the program of one release by a mechanism."""
        words, labelled = self.words, self.question in ("classes", "session")
        noise: dict[str, Any] = {"noise": "laplace" if words.measure == "pure" else "gaussian"}
        if self.question == "top":
            column: dict[str, Any] = {"item": {"dtype": "str"}}
            if self.keys is not None:
                column = {"item": {"dtype": "category", "keys": self.keys}}
            steps: StepDicts = [{"vote_counts": {"item": "item"}}]
        else:
            column = declared(self.columns)
            select: dict[str, Any] = {"features": list(column)}
            if labelled:
                column["label"] = {
                    "dtype": "category",
                    "keys": ["a", "b"] if self.keys is None else self.keys,
                }
                select["label"] = "label"
            steps = [{"select": select}, *self._rows()]
            if words.unit != "row":
                steps = [{"bound_contributions": {"max_rows": words.max_rows}}, *steps]
        release: dict[str, Any] = (
            noise if cls.room == "sketches" else {"mechanism": {cls.key: params}}
        )
        if cls.room == "sketches":
            steps = [*steps, {cls.key: params}]
        made = words.begun(self.question, column).stage("rows", DATA, steps=steps)
        made = made.stage("noisy", "rows", release={**release, "spend": "100%"})
        if self.question == "session":
            return made.output("release", "noisy", serve="session", store="release.session")
        ending = "json" if self.question == "top" else "npz"
        return made.output("release", "noisy", save=words.file_name(f"release.{ending}"))

    def _rows(self) -> StepDicts:
        """Return the row maps between the columns and a mechanism."""
        if self.question in _KERNELS:
            rows, _ = kernel_steps(self.columns, self.near, 0, per_label=False, privacy={})
            return rows
        alike = len({*bounds_of(self.columns).values()}) == 1 or self.question == "distances"
        return [*([] if alike else [{"rescale": {}}]), grid(self.columns)]

    def _error(self, plan: Plan, cls: type[Mechanism]) -> tuple[float | None, str, str]:
        """Return a plan's error, its unit, and what it is made of."""
        (output,), (release,) = plan.outputs.values(), plan.releases.values()
        assert release.bound is not None  # noqa: S101 - a private release
        expected = release.bound.claim.expected
        stated = of_release(expected, release.bound.record)
        votes, _ = votes_needed(expected)
        if self.question == "top" and stated is not None and votes < math.inf:
            return votes, "votes", stated.line
        told = list(self._asked(output, cls).values()) or ([] if stated is None else [stated])
        near = told[0].at(self.size) if told and stated is None else None
        if near is not None:
            return near, told[0].unit, _made_of(told[0], self.size)
        line = told[0].line if told else "it depends on the data"
        return None, "", line.removeprefix("not known in advance").lstrip(":; ")

    def _asked(self, output: Any, cls: type[Mechanism]) -> dict[str, ErrorForecast]:
        """Return the errors of a release's first possible query."""
        refused = None
        for query, words in (item for each in QUESTIONS[self.question] for item in each.items()):
            if {*lookup(query).asks_for} & {*cls.offers}:
                try:
                    self._same_norm(output.domain, cls)
                    return error_of(output, lookup(query)(**words))
                except SimError as error:
                    refused = refused or error
        if refused is not None:
            raise refused
        return {}

    def _same_norm(self, released: Any, cls: type[Mechanism]) -> None:
        """Refuse a sketch of another norm's distances."""
        if self.question != "distances":
            return
        sums = released.capabilities["distance_sums"]
        have = "l2" if sliced(sums) is not None else "l1" if sums.power == 1 else "l2_squared"
        if have != self.norm:
            raise ParameterError(
                "OS102", cls.key, expected=f"distances in {self.norm}", got=have,
                hint=f'norm="{have}" compares it.',
            )  # fmt: skip


def _none_of(question: str, raised: Sequence[SimError], refused: Mapping[str, str]) -> SimError:
    """Return the one reason why nothing can be planned, or all."""
    if len({_why(error) for error in raised}) == 1:
        return raised[0]
    return ParameterError(
        "OS102", "question", expected=f"facts under which some mechanism answers `{question}`",
        got=f"none of {len(refused)} that can be planned",
        hint="; ".join(f"{key}: {why}" for key, why in [*refused.items()][:4]) + ".",
    )  # fmt: skip


def _check_question(question: Any) -> None:
    """Refuse another question (OS101)."""
    if not isinstance(question, str) or question not in QUESTIONS:
        near = suggest(question, QUESTIONS) if isinstance(question, str) else ""
        raise ParameterError(
            "OS101", "question", expected=f"one of {', '.join(QUESTIONS)}",
            got=scalar_text(question, 40), hint=near or 'recommend("density", 5, size=20_000).',
        )  # fmt: skip


def _check_norm(norm: Any) -> None:
    """Refuse another norm (OS101)."""
    if not isinstance(norm, str) or norm not in get_args(Norm):
        raise ParameterError(
            "OS101", "norm", expected=f"one of {', '.join(get_args(Norm))}",
            got=scalar_text(norm, 40), hint='norm="l1".',
        )  # fmt: skip


def _whole(name: str, given: Any) -> int:
    """Return a whole number from 1 on (OS101)."""
    found = python_value(given)
    if type(found) is not int or found < 1:
        raise ParameterError(
            "OS101", name, expected="a whole number from 1", got=scalar_text(given, 40),
            hint="k=10, most=8192.",
        )  # fmt: skip
    return found


def _bounds(columns: Any) -> dict[str, tuple[Any, Any]]:
    """Return columns by name, or a number of unit ranges (OS101)."""
    number = python_value(columns)
    if isinstance(number, bool) or not isinstance(number, int | float):
        bounds_of(columns)
        return dict(columns)
    if not isinstance(number, int) or not 1 <= number <= _MOST_COLUMNS:
        raise ParameterError(
            "OS101", "columns", expected=f"a whole number from 1 to {_MOST_COLUMNS:,}, or bounds",
            got=scalar_text(columns, 40), hint='5, or {"age": (0, 120), "stay": (0, 90)}.',
        )  # fmt: skip
    return {f"x{place}": (0.0, 1.0) for place in range(1, number + 1)}


def _made_of(known: ErrorForecast, size: int) -> str:
    """Return what an error is made of, the largest first."""
    rows = 1 if known.least is not None else size
    parts = {word: rows * part for word, part in known.parts.items()}
    noise = (known.noise or 0.0) / (size if known.least is not None else 1)
    parts["noise"] = (
        noise
        if known.least is None
        else math.hypot(noise, WIDE * known.divisor * known.largest / size)
    )
    ranked = sorted(parts.items(), key=lambda part: -part[1])
    return ", ".join(f"±{few_digits(part)} by {word}" for word, part in ranked if part)


def _unstated(cls: type[Mechanism], needed: Sequence[str]) -> ParameterError:
    words = " and ".join(f"`{name}`" for name in needed)
    return ParameterError(
        "OS102", cls.key, expected=words, got=_NOT_STATED,
        hint="no error known in advance tells it: write it in a spec, `opendp-sim explain "
        f"{cls.key}`.",
    )  # fmt: skip


def _why(error: SimError) -> str:
    """Return a refusal's reason in one line."""
    findings = getattr(error, "findings", ())
    if findings:
        return f"{findings[0].title}: {findings[0].label}"
    if error.got == _NOT_STATED:
        return f"it needs {error.expected}, which the question does not state"
    return f"{error.where} expects {error.expected}: got {error.got}"
