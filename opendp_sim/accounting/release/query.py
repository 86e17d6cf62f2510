"""Ask a release in Python public queries at no further loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from opendp_sim.accounting.release.answers import Answers
from opendp_sim.accounting.release.query_blocks import (
    answered_in_blocks,
    one_block,
    query_blocks,
    together,
)
from opendp_sim.core.claims import Post, Stage
from opendp_sim.core.errors import DataError, ParameterError, ReleaseError
from opendp_sim.core.mechanism import REGISTRY, Mechanism, lookup
from opendp_sim.core.space import Domain
from opendp_sim.domains.records import Column, Records
from opendp_sim.domains.released import AnswerColumns, asking
from opendp_sim.domains.rows import GridRows, RealRows, array_of_rows, with_points
from opendp_sim.io.blocks import Block
from opendp_sim.io.columns import library_of, stored_as, typed_column
from opendp_sim.io.frames import raw_columns
from opendp_sim.io.origin import NOTHING_PRIVATE, Origin
from opendp_sim.io.protocol import Source, from_arrays


def questions_of(release: Any) -> tuple[str, ...]:
    """Return the questions that a release answers, best first read in ``opendp-sim ops``."""
    return tuple(asking(release.released.capabilities))


def answers_of(release: Any, question: str, queries: Any, parameters: Mapping[str, Any]) -> Answers:
    """Answer ``queries`` from a release alone."""
    points = parameters.get("public")
    if points is not None and not isinstance(points, str):
        parameters = {**parameters, "public": "points"}
    claim = _bound(question, parameters, release.released, release)
    if claim.asks and queries is None:
        raise DataError(
            "OS607", question, expected="public queries", got="none",
            hint="pass an array of shape (q, d), a data frame, or a dict of columns.",
        )  # fmt: skip
    carried: dict[str, NDArray[Any]] = {}
    features = features_of(release)
    own = None
    if points is not None and not isinstance(points, str):
        told = query_columns(points, features)
        own = _mapped(
            release,
            read_queries(lambda: from_arrays(features, told), "public", private=NOTHING_PRIVATE),
        )

    def answer(block: Block | None) -> Any:
        mapped = None if block is None else _mapped(release, block)
        return claim.function(release.arrays, mapped if own is None else with_points(mapped, own))

    if queries is None:
        value = answer(None)
    else:
        given = query_columns(queries, features)
        blocks = query_blocks(
            lambda: from_arrays(features, given), "queries", private=NOTHING_PRIVATE
        )
        value, asked = answered_in_blocks(answer, one_block(blocks, claim), "queries")
        carried = asked | {n: np.asarray(a) for n, a in given.items() if np.ndim(a) == 1}
    return _table(value, claim.output, carried, (question,), release)


def _mapped(release: Any, asked: Block) -> Any:
    plain = isinstance(release.stages[0].domain, Records)
    return release.queries(asked if plain else asked["x"])


def _bound(
    question: str, parameters: Mapping[str, Any], domain: Domain | None, release: Any
) -> Post:
    known = sorted(key for key, cls in REGISTRY.items() if cls.room == "queries")
    if question not in known:
        lookup(question)  # refuses an unknown name with the nearest one
        raise ParameterError(
            "OS101", "question", expected=f"one of {', '.join(known)}", got=question,
            hint=f"this release answers {', '.join(questions_of(release)) or 'no question'}.",
        )  # fmt: skip
    mechanism: Mechanism = lookup(question)(**parameters)
    if domain is None:
        raise ReleaseError(
            "OS702", question, expected="answers that can be asked further", got="final ones",
            hint="ask the release itself.",
        )  # fmt: skip
    return cast("Post", mechanism.bind(domain, release.stages[0].metric))


def _table(
    value: Any, domain: Domain | None, carried: Any, asked: tuple[str, ...], release: Any
) -> Answers:
    columns = value if isinstance(value, Mapping) else {"answer": value}
    if isinstance(domain, AnswerColumns):
        columns = _with_names(domain.without_classes(columns), release)

    def again(question: str, parameters: Mapping[str, Any]) -> Answers:
        claim = _bound(question, parameters, domain, release)
        return _table(claim.function(value), claim.output, carried, (*asked, question), release)

    return Answers(columns, domain, carried, asked, again)


def _with_names(columns: Any, release: Any) -> Any:
    """Return a table with its columns' names for their numbers.

    Where every column of the queries is one of the sketch's: behind a projection there are none.
    """
    names = [column.name for column in features_of(release).columns]
    width = getattr(getattr(release.released, "queries", None), "width", None)
    if "column" not in columns or len(names) != width:
        return columns
    return {**columns, "column": np.array(names)[columns["column"]]}


# --- queries --------------------------------------------------------------------------------------


def features_of(release: Any) -> Records:
    """Return the columns of a query to this release."""
    domain = release.stages[0].domain
    if isinstance(domain, Records):
        return query_records(domain, release.stages)
    width = domain.width if isinstance(domain, RealRows | GridRows) else 1
    return Records((Column("x", f"array[f64, {width}]"),))


def query_columns(queries: Any, features: Records) -> dict[str, Any]:
    """Return the declared columns of anything that holds queries.

    A dict or a data frame (whatever has ``__arrow_c_stream__``) gives columns by name; a vector
    column ``x`` may also be spread over ``x_0``, ``x_1``, ... An array of shape (q, d) gives the columns
    side by side in the declared order; one of shape (d,) is a single query, and where one number is
    asked for (d = 1), each of its numbers is a query. A series of pandas, Polars or Arrow is such an
    array; one of pandas with texts as its index is a row by column names, where d > 1.
    """
    if _is_series(queries):
        queries = _row_or_array(queries, features)
    if isinstance(queries, Mapping):
        held: dict[str, Any] = dict(queries)
    elif hasattr(queries, "__arrow_c_stream__"):
        held = raw_columns(queries, features)
    else:
        held = _side_by_side(queries, features)
    for column in features.columns:
        parts = [f"{column.name}_{i}" for i in range(column.width)]
        if column.name not in held and column.is_vector and all(p in held for p in parts):
            spread = array_of_rows([held.pop(p) for p in parts], "OS607", "queries")
            held[column.name] = spread.T.copy()
    return {c.name: held[c.name] for c in features.columns if c.name in held}


def _is_series(queries: Any) -> bool:
    """Return whether queries are one column of a library, and no table."""
    known = library_of(queries) in ("pandas", "polars", "pyarrow")
    return known and not any(hasattr(queries, name) for name in ("columns", "schema", "collect"))


def _row_or_array(series: Any, features: Records) -> Any:
    """Return a series as a named row or as an array."""
    index: Any = getattr(series, "index", ())
    if len(features.columns) > 1 and stored_as(getattr(index, "dtype", None)) in _TEXTS:
        return {str(name): [value] for name, value in zip(index, series, strict=True)}
    found = typed_column(series, "queries")
    return np.asarray(series) if found is None else found


_TEXTS = ("object", "str", "string")
"""Types of an index of pandas that has the names of a row."""


def _side_by_side(queries: Any, features: Records) -> dict[str, Any]:
    wanted = sum(column.width for column in features.columns)
    array = array_of_rows(queries, "OS607", "queries")
    array = array.reshape(-1, 1) if wanted == 1 and array.ndim == 1 else np.atleast_2d(array)
    if array.ndim != 2 or array.shape[1] != wanted:
        raise DataError(
            "OS607", "queries",
            expected=f"an array of shape (q, {wanted}): {', '.join(c.name for c in features.columns)}",
            got=f"shape {array.shape}",
            hint="pass one row a query (of one column, one number a query), or a dict or data frame with "
            "the columns by name.",
        )  # fmt: skip
    out, start = {}, 0
    for column in features.columns:
        part = array[:, start : start + column.width]
        out[column.name] = part if column.is_vector else part[:, 0]
        start += column.width
    return out


def read_queries(opened: Callable[[], Source], where: str, *, private: Origin) -> Block:
    """Read and check all queries of a source together (OS607, OS704)."""
    return together(query_blocks(opened, where, private=private), where)


def query_records(records: Records, stages: Sequence[Stage]) -> Records:
    """Return a query's columns, the features without bounds, labels or persons."""
    chosen: set[str] = set()
    for stage in stages:
        features = getattr(stage.mechanism, "features", None)
        if features is not None:
            chosen = {features} if isinstance(features, str) else set(features)
            break
    columns = [c for c in records.columns if (c.name in chosen if chosen else _feature(c))]
    return Records(tuple(replace(column, bounds=()) for column in columns))


def _feature(column: Column) -> bool:
    return column.role is None and not column.keys
