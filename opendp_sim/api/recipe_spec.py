"""Build a recipe's program from words, columns, row maps and sketch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, signature
from os import PathLike
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypedDict, TypeVar

from opendp_sim.accounting.budget import Number
from opendp_sim.accounting.ledger.postgres_connection import is_shared
from opendp_sim.accounting.release.release import Release
from opendp_sim.api.columns import Bounds, declared
from opendp_sim.api.recipe import (
    DATA,
    Recipe,
    check_apart,
    check_privacy_words,
    check_word,
    keys_of,
    size_of,
    source_of,
    stem_of,
)
from opendp_sim.core.errors import ParameterError, array_like, scalar_text
from opendp_sim.dsl.builder import Builder, program

StepDicts = list[Mapping[str, Any]]
P = ParamSpec("P")
T = TypeVar("T")


class PersonOptions(TypedDict, total=False):
    """Name the keywords that every recipe takes."""

    epsilon: Number | Mapping[str, Any]
    delta: Number | None
    measure: Literal["pure", "gdp", "zcdp", "approx_zcdp", "approx"]
    unit: str
    ids: Literal["str", "int64"]
    ledger: str | PathLike[str] | None
    limit: Mapping[str, Number] | None
    source: str | PathLike[str] | Mapping[str, Any] | None


class PrivacyOptions(PersonOptions, total=False):
    """Name the keywords of a recipe that uses rows of one person."""

    max_rows: int | None


def recipe_function(
    options: type[PersonOptions], example: str, **default: Any
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Show a recipe's keywords, and refuse a call that misses some.

    Editors and type checkers read ``**privacy: Unpack[options]``; ``help`` and notebooks read the
    signature that is made here. A call that cannot be bound is refused (OS101) with all that is missing
    and the ``example``. ``default`` has defaults other than ``PrivacyWords``'.
    """

    def declare(function: Callable[P, T]) -> Callable[P, T]:
        plain = signature(function)
        known = {field.name: field.default for field in fields(PrivacyWords)} | default
        words = [
            Parameter(n, Parameter.KEYWORD_ONLY, default=known[n], annotation=kind.__forward_arg__)
            for n, kind in options.__annotations__.items()
        ]
        needed = [p.name for p in plain.parameters.values() if p.default is Parameter.empty][:-1]

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                given = plain.bind_partial(*args, **kwargs).arguments
            except TypeError as error:
                raise _uncallable(function.__name__, example, str(error)) from None
            if missing := [name for name in needed if name not in given]:
                tables = [type(one).__name__[:60] for one in given.values() if array_like(one)]
                got = ", ".join([*tables, *(f"no {name}" for name in missing)])
                raise _uncallable(function.__name__, example, got)
            return function(*args, **kwargs)

        own = [p for p in plain.parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
        checked.__dict__["__signature__"] = plain.replace(parameters=[*own, *words])
        return checked

    return declare


def _uncallable(name: str, example: str, got: str) -> ParameterError:
    return ParameterError(
        "OS101",
        name,
        expected=f"a call such as sim.{example}",
        got=got,
        hint="bounds and keys are public knowledge, never read from the table; the table itself goes to "
        f"`.apply(table)`. help(sim.{name}) explains every argument.",
    )


@dataclass(frozen=True)
class PrivacyWords:
    """Hold every recipe's privacy words with defaults."""

    epsilon: Number | Mapping[str, Any] = 1.0
    delta: Number | None = 1e-6
    measure: str = "gdp"
    unit: str = "row"
    ids: str = "str"
    max_rows: int | None = None
    ledger: str | PathLike[str] | None = None
    limit: Mapping[str, Number] | None = None
    source: str | PathLike[str] | Mapping[str, Any] | None = None

    def file_name(self, name: str) -> str:
        """Return a file's name, begun with that of the source's file."""
        return name if self.source is None else f"{stem_of(self.source)}-{name}"

    def begun(self, name: str, columns: Mapping[str, Any]) -> Builder:
        """Return a program over one table or file, with privacy and ledger."""
        told = dict(columns)
        if self.unit != "row":
            check_apart(self.unit, columns)
            told[self.unit] = {"dtype": self.ids, "role": "privacy_id"}
        budget: dict[str, Any] = {"epsilon": self.epsilon}
        budget |= {} if self.delta is None else {"delta": self.delta}
        kept = None
        if self.ledger is not None:
            file = _absolute(self.ledger) if self.source is None else str(self.ledger)
            kept = {"file": file, "limit": dict(self.limit or budget)}
        source = {"memory": DATA} if self.source is None else source_of(self.source)
        return (
            program(self.file_name(name))
            .data(DATA, source=source, columns=told, ingest="enforce", ledger=kept)
            .privacy(unit={"add_remove": 1, "of": self.unit}, measure=self.measure, budget=budget)
        )


def privacy_words(recipe: str, words: Mapping[str, Any], **default: Any) -> PrivacyWords:
    """Return a recipe's privacy words, refusing unknown or useless ones.

    ``default`` is what this recipe takes where its caller wrote nothing.
    """
    known = [field.name for field in fields(PrivacyWords)]
    for word in words:
        if word not in known:
            near = get_close_matches(word, known, n=1)
            raise ParameterError(
                "OS101", word, expected=f"one of {', '.join(known)}", got="another word",
                hint=f"did you mean {near[0]!r}?" if near else f"help(sim.{recipe}) lists them.",
            )  # fmt: skip
    found = PrivacyWords(**(default | dict(words)))
    check_privacy_words(found.unit, found.ids, found.ledger, found.limit)
    if isinstance(found.epsilon, Mapping) and found.ledger is not None and found.limit is None:
        raise ParameterError(
            "OS102", "limit", expected="a `limit` of the ledger, where epsilon is solved from an error",
            got="no `limit`", hint='limit={"epsilon": 3.0, "delta": 1e-6}.',
        )  # fmt: skip
    for word, needed, given in (
        ("limit", "ledger", found.limit is not None and found.ledger is None),
        ("max_rows", "unit", found.max_rows is not None and found.unit == "row"),
    ):
        if given:
            raise ParameterError(
                "OS102", word, expected=f"`{word}` only beside `{needed}`", got=f"no `{needed}`",
                hint=f"say `{needed}` too, or leave `{word}` out: by itself it would protect nobody.",
            )  # fmt: skip
    if found.measure == "pure" and found.delta is not None:
        if "delta" in words:
            raise ParameterError(
                "OS102", "delta", expected='delta=None with measure="pure"',
                got=scalar_text(found.delta, 30),
                hint="pure DP has no delta: write delta=None, or leave it out.",
            )  # fmt: skip
        return replace(found, delta=None)
    return found


def recipe(
    name: str,
    columns: Bounds,
    label: tuple[str, Sequence[str | int]] | None,
    steps: StepDicts,
    privacy: Mapping[str, Any],
    mechanism: Mapping[str, Any] | None = None,
    size: int | None = None,
) -> Recipe[Release]:
    """Return a recipe of row maps and a sketch (OS101, OS102).

    ``columns`` are public bounds, ``label`` the classes' column and every class; ``mechanism`` releases
    the rows, None for noise on the sketch; ``size`` is about how many records the release counts.
    """
    words = privacy_words(name, privacy)
    told: dict[str, Any] = declared(columns)
    select: dict[str, Any] = {"features": list(told)}
    if label is not None:
        check_word("label", label[0], str, "the name of a column", 'label="kind".')
        told[label[0]] = {"dtype": "category", "keys": keys_of(label[1])}
        select["label"] = label[0]
    first: StepDicts = [{"select": select}]
    if words.unit != "row":
        first = [{"bound_contributions": {"max_rows": words.max_rows}}, *first]
    save = words.file_name("release.npz" if words.source is None else f"{name}.npz")
    noise = "laplace" if words.measure == "pure" else "gaussian"
    expect = {} if size is None else {"expect": {"records": size_of(size)}}
    released = {"noise": noise} if mechanism is None else {"mechanism": mechanism}
    return Recipe(
        words.begun(name, told)
        .stage("sketch", DATA, steps=[*first, *steps])
        .stage("noisy", "sketch", release={**released, "spend": "100%"}, **expect)
        .output("release", "noisy", save=save)
    )


def _absolute(ledger: str | PathLike[str]) -> str:
    return str(ledger) if is_shared(str(ledger)) else str(Path(ledger).absolute())
