"""Turn a form into a recipe, and a plan into its form.

A form stands for one program. Back from a plan it is found only where the form's own program has the
plan's hash: a form never shows less than a spec says.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import opendp_sim as sim
from opendp_sim.api.columns import declared, grid
from opendp_sim.api.recipe import DATA, Recipe
from opendp_sim.api.recipe_spec import privacy_words, recipe
from opendp_sim.core.errors import ParameterError, SimError
from opendp_sim.dsl.plan.plan import Plan

_WHOLE = re.compile(r"-?[0-9]{1,15}\Z")
_LONG = 200
"""Most columns, classes and items of a form; more are written in the spec."""
_SENTENCES = 500
"""Characters about the bounds."""


@dataclass(frozen=True)
class ChosenColumn:
    """Hold a column's public bounds, and the distance that counts as near."""

    low: float
    high: float
    near: float


@dataclass(frozen=True)
class Form:
    """Hold a question about one file, as the page shows it.

    Attributes:
        source: the file, as a spec names it.
        question: a name in ``QUESTIONS``.
        unit: ``row``, the column that names a person, ``?`` while it is not chosen, or empty while nobody
            said.
        rows: rows of one person that are used.
        ids: the dtype of the column that names a person.
        columns: the numbers that are compared.
        label, keys: the column of the classes, and all of them.
        target: the column that a line predicts.
        size, asked: about how many records there are, and how many questions are planned.
        item, most: the column of the items, and how many are wanted.
        stated: who states the bounds, and where they are public.
        epsilon, delta: of this release.
        limit, limit_delta: of all releases together.
    """

    source: Mapping[str, Any]
    question: str = "density"
    unit: str = ""
    rows: int = 1
    ids: str = "str"
    columns: Mapping[str, ChosenColumn] = field(default_factory=dict)
    label: str = ""
    keys: tuple[str | int, ...] = ()
    target: str = ""
    size: int = 1000
    asked: int = 200
    item: str = ""
    most: int = 10
    stated: str = ""
    epsilon: float = 1.0
    delta: float = 1e-6
    limit: float = 3.0
    limit_delta: float = 1e-6

    def plain(self) -> dict[str, Any]:
        """Return the form as plain data, without the source."""
        found = asdict(self)
        del found["source"]
        columns = {
            name: {end: "" if math.isnan(value) else value for end, value in chosen.items()}
            for name, chosen in found["columns"].items()
        }
        return found | {"columns": columns, "keys": ", ".join(map(str, self.keys))}


@dataclass(frozen=True)
class Question:
    """Describe a question that a form can ask.

    Attributes:
        name: on its button.
        hint: the question in a reader's words.
        make: the recipe's function.
        uses: the parts of the form beside unit and budget; ``any_label`` is a label or none.
    """

    name: str
    hint: str
    make: Callable[..., Recipe[Any]]
    uses: frozenset[str]


def _regression(columns: Mapping[str, Any], *, target: str, **words: Any) -> Recipe[Any]:
    """Return a line for one column, which stands last."""
    told = {name: ends for name, ends in columns.items() if name != target}
    told[target] = columns[target]
    mechanism: dict[str, Any] = {"linear_regression": {}}
    return recipe("regression", told, None, [{"rescale": {}}, grid(told)], words, mechanism)


_IN_REACH = 0.6
"""The kernel's value, ``exp(-1/2)`` rounded down, from which a row votes: within near."""


def _session(
    columns: Mapping[str, Any],
    *,
    bandwidth: Mapping[str, float],
    label: str,
    keys: Sequence[str | int],
    size: int,
    asked: int,
    **words: Any,
) -> Recipe[Any]:
    """Return votes of the rows near to one question after another.

    What is near is stated, so no example of a question is needed. A store's name follows from its form,
    so that no other form's store is in its way.
    """
    private = privacy_words("session", words)
    steps = [
        {"select": {"features": list(columns), "label": label}},
        {"rescale": {"scale": [bandwidth[name] for name in columns]}},
        grid(columns),
    ]
    if private.unit != "row":
        steps = [{"bound_contributions": {"max_rows": private.max_rows}}, *steps]
    votes = {
        "queries": asked,
        "size": size,
        "kernel": {"rbf": {"bandwidth": 1.0}},
        "threshold": _IN_REACH,
        "normalise": False,
        "centre": False,
    }
    named = {label: {"dtype": "category", "keys": list(keys)}}
    form = json.dumps([columns, bandwidth, named, size, asked, words], sort_keys=True, default=str)
    store = f"session-{zlib.crc32(form.encode()):08x}.session"
    return Recipe(
        private.begun("session", declared(columns) | named)
        .stage("rows", DATA, steps=steps)
        .stage("votes", "rows", release={"mechanism": {"ind_knn": votes}, "spend": "100%"})
        .output("answers", "votes", serve="session", store=private.file_name(store))
    )


QUESTIONS = {
    "density": Question(
        "Density",
        "How many records are like this one?",
        sim.density,
        frozenset({"columns", "near"}),
    ),
    "classes": Question(
        "Classes",
        "Which class is this one like?",
        sim.classes,
        frozenset({"columns", "near", "label"}),
    ),
    "means": Question(
        "Totals",
        "How many, how much in all, and on average?",
        sim.means,
        frozenset({"columns", "any_label"}),
    ),
    "quantiles": Question(
        "Quantiles",
        "Below which value is a half, or a tenth?",
        sim.quantiles,
        frozenset({"columns", "any_label"}),
    ),
    "predict": Question(
        "Classifier",
        "Which class does a line predict?",
        sim.predict,
        frozenset({"columns", "label"}),
    ),
    "regression": Question(
        "Regression",
        "Which number do the others predict?",
        _regression,
        frozenset({"columns", "target"}),
    ),
    "top": Question("Top items", "What do most of them have?", sim.top, frozenset({"item"})),
    "session": Question(
        "Session",
        "What do the ones near to it say? Each answer costs.",
        _session,
        frozenset({"columns", "near", "label", "asked"}),
    ),
}
"""Questions by the name of their recipe."""


def form_from(raw: Any, source: Mapping[str, Any]) -> Form:
    """Return the form of a page's plain data (OS101)."""
    try:
        columns = {
            str(name): ChosenColumn(*(_number(chosen[word]) for word in ("low", "high", "near")))
            for name, chosen in list(dict(raw["columns"]).items())[:_LONG]
        }
        return Form(
            source,
            str(raw["question"]),
            str(raw["unit"]),
            _whole(raw["rows"]),
            str(raw["ids"]),
            columns,
            str(raw["label"]),
            _keys(str(raw["keys"])),
            str(raw["target"]),
            _whole(raw["size"]),
            _whole(raw["asked"]),
            str(raw["item"]),
            _whole(raw["most"]),
            str(raw["stated"]).strip()[:_SENTENCES],
            *(_number(raw[word]) for word in ("epsilon", "delta", "limit", "limit_delta")),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ParameterError(
            "OS101", "form", expected="every field of a form", got="another form",
            hint="reload the page.",
        ) from None  # fmt: skip


def _number(value: Any) -> float:
    """Return a number, and NaN of an empty field."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return math.nan
    return found if math.isfinite(found) else math.nan


def _whole(value: Any) -> int:
    """Return a whole number, and 0 of any other text."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return 0


def _keys(text: str) -> tuple[str | int, ...]:
    """Return the classes of a text between commas, numbers if all are."""
    words = tuple(word.strip() for word in text.split(",") if word.strip())[:_LONG]
    whole = bool(words) and all(_WHOLE.match(word) for word in words)
    return tuple(map(int, words)) if whole else words


def missing_part(form: Form) -> str:
    """Return what a form still lacks, or an empty text."""
    asked = QUESTIONS.get(form.question)
    if asked is None:
        return "Choose a question."
    if not form.unit:
        return "Say whether a row is a person."
    if form.unit == "?":
        return "Choose the column of the person."
    lacks = [
        "columns" in asked.uses and _missing_columns(form, near="near" in asked.uses),
        "label" in asked.uses
        and not (form.label and form.keys)
        and "Choose the column of the classes, and write all classes.",
        "any_label" in asked.uses
        and bool(form.label and not form.keys)
        and "Write all classes that could occur.",
        "target" in asked.uses
        and (form.target not in form.columns or len(form.columns) == 1)
        and "Choose two columns or more, and which of them is predicted.",
        "item" in asked.uses and not form.item and "Choose the column of the items.",
        _missing_numbers(form, asked.uses),
        "item" in asked.uses
        and form.most > _LONG
        and f"Ask for at most {_LONG} items, or edit the spec: its noise is searched item by item.",
        not all(value > 0 for value in (form.epsilon, form.delta, form.limit, form.limit_delta))
        and "Write limit and delta as numbers above 0.",
    ]
    return next((text for text in lacks if text), "")


def _missing_numbers(form: Form, uses: frozenset[str]) -> str:
    """Return which whole numbers are not written, or an empty text."""
    used = {
        "Rows used of each": form.unit != "row" and "columns" in uses and form.rows,
        "How many": "item" in uses and form.most,
        "About how many rows": "asked" in uses and form.size,
        "Questions planned": "asked" in uses and form.asked,
    }
    open_ = [name for name, value in used.items() if value is not False and value < 1]
    return f"Write whole numbers above 0: {', '.join(open_)}." if open_ else ""


def _missing_columns(form: Form, *, near: bool) -> str:
    """Return what the chosen columns lack, or an empty text."""
    if not form.columns:
        return "Choose one or two columns."
    open_ = [
        name for name, c in form.columns.items() if not c.low < c.high or (near and not c.near > 0)
    ]
    turned = [name for name in open_ if form.columns[name].low >= form.columns[name].high]
    if turned:
        return f"Write a lower bound below the upper one: {', '.join(turned)} has none."
    return f"Write the bounds of {', '.join(open_)}." if open_ else ""


def recipe_of(form: Form) -> Recipe[Any]:
    """Return the recipe of a complete form, or raise its refusal."""
    asked = QUESTIONS[form.question]
    words: dict[str, Any] = {
        "epsilon": form.epsilon,
        "delta": form.delta,
        "unit": form.unit,
        "source": form.source,
        "ledger": ledger_name(form.source),
        "limit": {"epsilon": form.limit, "delta": form.limit_delta},
    }
    if form.unit != "row":
        words["ids"] = form.ids
        if "columns" in asked.uses:
            words["max_rows"] = form.rows
    if "near" in asked.uses:
        words["bandwidth"] = {name: c.near for name, c in form.columns.items()}
    if {"label", "any_label"} & asked.uses and form.label:
        words |= {"label": form.label, "keys": list(form.keys)}
    if "target" in asked.uses:
        words["target"] = form.target
    if "asked" in asked.uses:
        words |= {"size": form.size, "asked": form.asked}
    if "item" in asked.uses:
        return asked.make(form.item, k=form.most, **words)
    made = asked.make({name: (c.low, c.high) for name, c in form.columns.items()}, **words)
    return made.about(bounds=form.stated) if form.stated else made


def ledger_name(source: Mapping[str, Any]) -> str:
    """Return the file of a source's ledger, beside it."""
    ((_, place),) = source.items()
    file = place["file"] if isinstance(place, Mapping) else place
    return f"{Path(str(file)).stem}.ledger"


def form_of(plan: Plan) -> Form | None:
    """Return the form that stands for exactly this program, or None."""
    try:
        seen = _read_back(plan)
        form = form_from(seen.plain(), seen.source)
        same = not missing_part(form) and recipe_of(form).plan.program.hash == plan.program.hash
    except (SimError, KeyError, TypeError, ValueError, IndexError, AttributeError):
        return None
    return form if same else None


def _read_back(plan: Plan) -> Form:
    """Return the form that a program looks like; its hash decides."""
    (entry,) = plan.program.data
    steps = _steps(plan)
    columns = entry.records.columns
    person = next((c for c in columns if c.role == "privacy_id"), None)
    near = steps.get("rescale", {}).get("scale", ())
    widths = list(near) if isinstance(near, Sequence) and not isinstance(near, str) else []
    numbers = [c for c in columns if len(c.bounds) == 2]
    label = next((c for c in columns if c.keys), None)
    release = next(d.release for d in reversed(plan.program.flow) if d.release is not None)
    params = dict(release.params)
    question = "classes" if label is not None else "density"
    for mechanism, name in _BY_STEP.items():
        question = name if mechanism in steps else question
    question = _BY_RELEASE.get(release.key or "", question)
    about = plan.program.about
    budget, ledger = plan.program.privacy.budget, entry.ledger.limit  # type: ignore[union-attr]
    return Form(
        entry.source.plain(),
        question,
        "row" if person is None else person.name,
        int(steps.get("bound_contributions", {}).get("max_rows") or 1),
        "str" if person is None else person.dtype,
        {
            c.name: ChosenColumn(min(c.bounds), max(c.bounds), float(h))
            for c, h in zip(numbers, widths or [math.nan] * len(numbers), strict=True)
        },
        "" if label is None else label.name,
        () if label is None else tuple(label.keys),
        numbers[-1].name if question == "regression" else "",
        int(params.get("size") or 1000) if question == "session" else 1000,
        int(params.get("queries") or 200),
        str(steps.get("vote_counts", {}).get("item", "")),
        int(params.get("k", 10)),
        "" if about is None else about.bounds or "",
        *(_number(value) for value in (budget.epsilon, budget.delta, ledger.epsilon, ledger.delta)),
    )


_BY_STEP = {"moments_sketch": "means", "distance_tree": "quantiles", "vote_counts": "top"}
_BY_RELEASE = {"linear_model": "predict", "linear_regression": "regression", "ind_knn": "session"}
"""Questions by what a form's program has of its own."""


def _steps(plan: Plan) -> dict[str, Any]:
    """Return the parameters of all steps by name."""
    flow = plan.program.plain()["flow"].values()
    named = [step for stage in flow for step in stage.get("steps", ())]
    return {key: value for step in named for key, value in step.items()}
