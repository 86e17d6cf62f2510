"""Generate data frames, and check the public facts of a pair.

A frame is a dataset of rows, so pairs are made as those of any records. Margins whose keys or lengths are
invariant are the same on both sides of a pair, and the rows that differ keep every ``Bound``.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from opendp import domains, metrics

from opendp_sim.audit.generators.atoms import (
    ValueSource,
    atom_source,
    listed_source,
    option_source,
    tuple_source,
)
from opendp_sim.core import dp
from opendp_sim.core.errors import AuditError

_MOST_ROWS, _MOVED = 200, 8
"""Rows that a pair differs by at most, and groups that a row is moved into before it is left out."""
_KNOWN = 50_000
"""Rows of members that are kept."""
_DAYS = (dt.date(2024, 2, 29), dt.date(1970, 1, 1), dt.date(1969, 12, 31), dt.date(2025, 1, 1))
_MOMENTS = tuple(dt.datetime(d.year, d.month, d.day, h) for d in _DAYS for h in (0, 12))  # noqa: DTZ001
_POOLS: dict[str, Sequence[Any]] = {
    "Date": _DAYS,
    "Datetime": _MOMENTS,
    "Categorical": ("a", "b", "c", ""),
}
Row = tuple[Any, ...]
Rule = tuple[tuple[str, ...], float, float]


class Bounds(int):
    """A distance in ``Bound``, as the number of rows that may differ."""

    given: tuple[Any, ...]

    @classmethod
    def of(cls, given: Sequence[Any]) -> Bounds:
        """Return the distance of a list of ``Bound``."""
        rows = [per_group * groups for _, per_group, groups in map(rule, given)]
        out = cls(min([*rows, _MOST_ROWS]))
        out.given = tuple(given)
        return out

    def __repr__(self) -> str:
        return repr([*self.given])

    __str__ = __repr__


def rule(bound: Any) -> Rule:
    """Return columns, rows in a group and groups of a ``Bound``."""
    names = [one if isinstance(one, str) else _column(str(one)) for one in bound.by]
    rows, groups = (math.inf if k is None else k for k in (bound.per_group, bound.num_groups))
    return tuple(names), rows, groups if names else 1


def _column(text: str) -> str:
    found = re.fullmatch(r'col\("([^"]*)"\)', text)
    if found is None:
        raise _unknown("groups by columns", text)
    return found[1]


@dataclass(frozen=True)
class Margin:
    """Public facts about the groups of a frame by some columns."""

    by: tuple[str, ...]
    max_length: int | None
    max_groups: int | None
    invariant: str | None

    def holds(self, names: Sequence[str], rows: Sequence[Row]) -> bool:
        """Return whether a frame has no more groups, and no longer ones."""
        sizes = _groups(names, rows, self.by)
        seen = max(sizes.values(), default=0), len(sizes)
        limits = zip(seen, (self.max_length, self.max_groups), strict=True)
        return all(most is None or count <= most for count, most in limits)


def is_frame(domain: Any) -> bool:
    """Return whether a domain's members are lazy frames."""
    return isinstance(domain, dp.LazyFrameDomain)


def margins_of(domain: dp.Domain) -> tuple[Margin, ...]:
    """Return the margins of a frame's domain.

    Raises:
        AuditError: OS501, a margin by an expression that is no column.
    """
    out = []
    for part in re.findall(r"\{([^{}]*)\}", str(domain).partition("; margins=")[2]):
        by = [_column(one) for one in part.split(", ") if one]
        told = domains._lazyframe_domain_get_margin(domain, by)  # noqa: SLF001 - the only way
        out.append(Margin(tuple(by), told.max_length, told.max_groups, told.invariant))
    return tuple(out)


def columns_of(domain: dp.Domain) -> dict[str, tuple[Any, bool]]:
    """Return each column's domain of cells, and whether they may be missing.

    Of an enumeration OpenDP returns no domain; it is None here.
    """
    out = {}
    for name in domains._lazyframe_domain_get_columns(domain):  # noqa: SLF001
        series = domains._lazyframe_domain_get_series_domain(domain, name)  # noqa: SLF001
        cells = None
        with contextlib.suppress(dp.OpenDPException):
            cells = domains._series_domain_get_element_domain(series)  # noqa: SLF001
        out[name] = cells, domains._series_domain_get_nullable(series)  # noqa: SLF001
    return out


def frame_facts(domain: dp.Domain) -> str:
    """Return all facts of a frame's domain, with its margins."""
    schema = dict(domains._lazyframe_from_domain(domain).collect_schema())  # noqa: SLF001
    cells = {name: (str(cell), missing) for name, (cell, missing) in columns_of(domain).items()}
    return f"{cells!r} {margins_of(domain)!r} {schema!r}"


def frame_rows(
    domain: dp.Domain,
) -> tuple[ValueSource, Callable[[Sequence[Row]], Any], Callable[[Any], list[Row]]]:
    """Return a frame's source of rows, its builder and its splitter."""
    import polars as pl  # noqa: PLC0415 - an extra of OpenDP's

    schema = dict(domains._lazyframe_from_domain(domain).collect_schema())  # noqa: SLF001

    def build(rows: Sequence[Row]) -> Any:
        return pl.LazyFrame([*rows], schema=schema, orient="row")

    def split(frame: Any) -> list[Row]:
        return list(frame.collect().rows())

    cells = columns_of(domain).items()
    source = tuple_source([_cells(cell, schema[name], missing) for name, (cell, missing) in cells])
    return source, build, split


def _cells(cells: dp.Domain, dtype: Any, missing: bool) -> ValueSource:
    """Return the values of a column."""
    name = type(dtype).__name__
    pool = dtype.categories.to_list() if name == "Enum" else _POOLS.get(name)
    source = listed_source(pool) if pool else atom_source(cells)
    return option_source(source) if missing else source


def frame_member(domain: dp.Domain) -> Callable[[Any], bool]:
    """Return the membership test of frames.

    OpenDP's own fails at a margin without columns, and at dates, categories and enumerations. There the
    type of a column, its missing cells and the groups of a margin are looked at here.
    """
    schema = domains._lazyframe_from_domain(domain).collect_schema()  # noqa: SLF001
    odd = [name for name in schema if type(schema[name]).__name__ in (*_POOLS, "Enum")]
    missing = {name: may for name, (_, may) in columns_of(domain).items()}
    series = [
        domains._lazyframe_domain_get_series_domain(domain, name)  # noqa: SLF001
        for name in schema
        if name not in odd
    ]
    plain, margins = domains.lazyframe_domain(series) if series else None, margins_of(domain)
    known: set[Row] = set()
    """Rows of members: all but the margins is a fact of each row alone."""

    def fits(frame: Any, rows: list[Row]) -> bool:
        with contextlib.suppress(TypeError):  # cells that are lists
            if known.issuperset(rows):
                return True
        inside = plain is None or bool(plain.member(frame.drop(odd)))
        if inside and len(known) < _KNOWN:
            with contextlib.suppress(TypeError):
                known.update(rows)
        return inside

    def member(frame: Any) -> bool:
        data = frame.collect()
        if data.schema != schema or not fits(frame, data.rows()):
            return False
        if any(data[name].null_count() and not missing[name] for name in odd):
            return False
        return all(margin.holds(data.columns, data.rows()) for margin in margins)

    return member


def frame_distance_of(metric: dp.Metric) -> dp.Metric:
    """Return the metric that a frame's bounds count in."""
    return metrics._frame_distance_get_inner_metric(metric)  # noqa: SLF001


def person_column(domain: dp.Domain, metric: dp.Metric) -> int:
    """Return which column names the person of a row."""
    told = _column(str(metrics._symmetric_id_distance_get_identifier(metric)))  # noqa: SLF001
    return [*columns_of(domain)].index(told)


# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Public:
    """Check invariant margins and bounds on a pair of frames."""

    names: tuple[str, ...]
    margins: tuple[Margin, ...]
    bounds: tuple[Rule, ...]

    @classmethod
    def of(cls, domain: dp.Domain, d_in: Any) -> Public:
        """Read the rules off a domain and a distance."""
        bounds = tuple(map(rule, d_in.given if isinstance(d_in, Bounds) else ()))
        fixed = tuple(margin for margin in margins_of(domain) if margin.invariant)
        return cls(tuple(columns_of(domain)), fixed, bounds)

    def __bool__(self) -> bool:
        return bool(self.margins or self.bounds)

    def allows(self, left: Sequence[Row], right: Sequence[Row]) -> bool:
        """Return whether two frames, as rows, keep all rules."""
        for margin in self.margins:
            mine, other = (_groups(self.names, side, margin.by) for side in (left, right))
            if mine.keys() != other.keys() or (margin.invariant == "lengths" and mine != other):
                return False
        moved = [*_without(left, right), *_without(right, left)]
        groups = ((_groups(self.names, moved, by), rule) for by, *rule in self.bounds)
        return all(
            len(sizes) <= most and max(sizes.values(), default=0) <= rows
            for sizes, (rows, most) in groups
        )

    def mend(self, base: Sequence[Row], right: Sequence[Row]) -> list[Row]:
        """Return the right side with the fewest rows moved or left out."""
        if self.allows(base, right):
            return list(right)
        out, new = list(base), _without(right, base)
        for row in _without(base, right):
            spot = list(map(repr, out)).index(repr(row))
            less = [*out[:spot], *out[spot + 1 :]]
            swapped = ([*less, self._into(fresh, row)] for fresh in new)
            out = next((t for t in (less, *islice(swapped, 1)) if self.allows(base, t)), out)
        for row in new:
            moved = (self._into(row, other) for other in (*base[:_MOVED], *right[-_MOVED:]))
            out = next(([*out, t] for t in (row, *moved) if self.allows(base, [*out, t])), out)
        return out

    def _into(self, row: Row, other: Row) -> Row:
        """Return a row in the groups of another."""
        by = {n for m in self.margins for n in m.by} | {
            n for names, *_ in self.bounds for n in names
        }
        return tuple(o if n in by else v for n, v, o in zip(self.names, row, other, strict=True))


def _groups(names: Sequence[str], rows: Iterable[Row], by: Sequence[str]) -> Counter[str]:
    """Return the number of rows of each group.

    Without columns there is one group, of an empty frame too.
    """
    if not by:
        return Counter({"[]": len([*rows])})
    places = [names.index(name) for name in by]
    return Counter(repr([row[place] for place in places]) for row in rows)


def _without(rows: Sequence[Row], others: Sequence[Row]) -> list[Row]:
    """Return a multiset difference of rows; NaN is equal to itself."""
    left, out = Counter(map(repr, others)), []
    for row in rows:
        left[repr(row)] -= 1
        out += [row] * (left[repr(row)] < 0)
    return out


def _unknown(expected: str, got: str) -> AuditError:
    return AuditError(
        "OS501", "audit.frames", expected=expected, got=got,
        hint="name each group by a column of the frame, or pass pairs=[(x, x'), ...].",
    )  # fmt: skip
