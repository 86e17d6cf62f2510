"""Show what a release answers over its columns.

From the release alone, at no further loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from opendp_sim.accounting.release.release import Release
from opendp_sim.core.errors import ParameterError
from opendp_sim.domains.records import Column, Records
from opendp_sim.dsl.types.error_terms import WITHIN, wide
from opendp_sim.report.charts import curve_chart, heat_map

Grid = NDArray[np.float64]
SURE = 2.0
"""Deviations of its noise that a number must exceed to be coloured."""
Shown = tuple[Literal["picture", "table"], object, str]
"""A kind of part, its body, and its note."""
_LARGE = (1e4, 1e12)
"""Numbers that are written without an exponent."""
_ACROSS = 44
_TOLD = 4
"""Places whose answers stand beside a map."""


def figure(value: float) -> str:
    """Return a number with four digits, or a large one whole."""
    return f"{value:,.0f}" if _LARGE[0] <= abs(value) < _LARGE[1] else f"{value:.4g}"


def shown_classes(release: Release) -> Iterator[Shown]:
    """Yield nearest classes at places of numeric columns, if any."""
    columns = numeric_columns(release)
    if not {"nearest_class", "totals"} <= set(release.ops) or not columns:
        return  # of mean distances no noise is stated
    low, high = (np.array([end(c.bounds) for c in columns.values()]) for end in (min, max))
    shares = np.full((1 + _TOLD, len(low)), 0.5)  # the middle, and steps to either side of it
    for at in range(_TOLD):
        shares[1 + at, at // 2 % len(low)] = 0.75 if at % 2 else 0.25
    places = low + shares * (high - low)
    asked = {name: places[:, at] for at, name in enumerate(columns)}
    found = release.ask("nearest_class", asked)
    rows = []
    for at, place in enumerate(places):
        where = ", ".join(f"{n} {figure(v)}" for n, v in list(zip(columns, place, strict=True))[:3])
        named = found["label"][at]
        name = str(found.labels[int(named)] if found.labels is not None else named)
        sure = found["margin"][at] >= SURE * found["margin_deviation"][at]
        rows.append((where, name if sure else f"{name}, within the noise"))
    yield "table", rows, f"The class whose mean is nearest. {_FREE}"


def numeric_columns(release: Release) -> dict[str, Column]:
    """Return the columns with bounds that a release is asked by."""
    domain = release.stages[0].domain
    every = domain.columns if isinstance(domain, Records) else ()
    scalar = (c for c in every if len(c.bounds) == 2 and not c.dtype.startswith("array"))
    return {column.name: column for column in scalar}


def shown_density(release: Release) -> Iterator[Shown]:
    """Yield a density's picture and table over its numeric columns, if any."""
    names = list(numeric_columns(release))[:2]
    if "density" not in release.ops or not names:
        return
    points = _ACROSS if len(names) == 2 else 4 * _ACROSS
    x, y, asked, cut = query_grid(release, names[0], names[1] if names[1:] else None, {}, points)
    found = release.ask("density", asked)
    keys = ("density", "lower", "upper", "noise_error")
    told = of_one_class({k: found[k].reshape(len(found[k]), -1) for k in keys}, found.labels, None)
    rest = ", ".join(f"{name} = {value:.6g}" for name, value in cut.items())
    note = f"A cut at {rest}: the other columns are held there. " if rest else ""
    if y is None:
        lines = (told[key].tolist() for key in ("lower", "density", "upper"))
        drawn = list(zip(x.tolist(), *lines, strict=True))
        yield "picture", curve_chart(drawn, names[0], "rows near"), ""
    else:
        shape = len(y), len(x)
        values, noise = told["density"].reshape(shape), told["noise_error"].reshape(shape)
        sides = ((names[0], x[0], x[-1]), (names[1], y[0], y[-1]))
        yield "picture", heat_map(values.tolist(), (values >= SURE * noise).tolist(), sides), ""
        note += "The stronger the colour, the more rows are near; hatched is within the noise. "
    note += f"± is the noise of {WITHIN} of answers. "
    yield "table", _places(names, asked, told), f"{note}Reading it costs no further privacy."


def _places(
    names: list[str], asked: Mapping[str, Grid], told: Mapping[str, Grid]
) -> list[tuple[str, str]]:
    """Return the answers at the peak and at places of falling density."""
    order = np.argsort(-told["density"], kind="stable")
    picked = [order[int(share * (len(order) - 1))] for share in np.linspace(0, 0.9, _TOLD)]
    rows = []
    for at in picked:
        value, noise = float(told["density"][at]), float(told["noise_error"][at])
        place = ", ".join(f"{name} {figure(asked[name][at])}" for name in names)
        answer = figure(value) if value >= SURE * noise else "within the noise of 0"
        rows.append((place, f"{answer} ± {wide(noise)}"))
    return rows


Table = tuple[tuple[str, ...], list[tuple[str, ...]], str]
"""A head, rows, and a note."""
_SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)
_MANY = 40
"""Rows of a table."""


def column_tables(release: Release) -> Iterator[Table]:
    """Yield totals, quantiles or coefficients of a release's columns, if any."""
    if "totals" in release.ops:
        found = release.ask("totals").table()
        head = ("column", *_class_head(found), "records", "sum", "mean", "95% within")
        rows = [
            (
                *_named(row),
                _short(row["count"]),
                _short(row["sum"]),
                _short(row["mean"]),
                _ends(row),
            )
            for row in _rows_of(found)
        ]
        yield head, rows[:_MANY], f"All numbers are noisy. {_FREE}"
    elif "quantiles" in release.ops:
        found = release.ask("quantiles", shares=_SHARES).table()
        head = ("column", *_class_head(found), "of records below", "value", "95% within")
        rows = [
            (*_named(row), f"{100 * row['share']:g}%", _short(row["quantile"]), _ends(row))
            for row in _rows_of(found)
        ]
        yield head, rows[:_MANY], _FREE
    elif "line" in release.released.capabilities:
        names, target = list(numeric_columns(release)), predicted_column(release)
        if target is None:
            return
        others = [name for name in names if name != target]
        values = release.ask("regress", answer="coefficients")["coefficient"]
        parts = zip(["constant", *others], map(_short, values), strict=True)
        yield ("to be multiplied by", f"for {target}"), list(parts), f"A line. {_FREE}"


def predicted_column(release: Release) -> str | None:
    """Return the column that a release's line is for, or None."""
    line, names = release.released.capabilities.get("line"), list(numeric_columns(release))
    return None if line is None or line.width != len(names) else names[line.target]


_FREE = "Reading it costs no further privacy."


def _rows_of(table: Mapping[str, Grid]) -> list[dict[str, Any]]:
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


def _class_head(table: Mapping[str, Grid]) -> tuple[str, ...]:
    return ("class",) if "class" in table else ()


def _named(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (str(row["column"]), *([str(row["class"])] if "class" in row else []))


def _ends(row: Mapping[str, Any]) -> str:
    return f"{_short(row['lower'])} to {_short(row['upper'])}"


def _short(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, int | float | np.number) else str(value)[:20]


def query_grid(
    release: Release, x: str, y: str | None, at: Mapping[str, float], points: int
) -> tuple[Grid, Grid | None, dict[str, Grid], dict[str, float]]:
    """Return axes, their queries, and other columns' values (OS102 without columns)."""
    numeric = numeric_columns(release)
    asked_for = [x] if y is None else [x, y]
    for name in [*asked_for, *at]:
        if name not in numeric:
            have = ", ".join(numeric) or "none"
            raise undrawable(
                f"column {name[:40]}", f"a numeric column with bounds: {have}", "another"
            )
    ends = {name: (min(column.bounds), max(column.bounds)) for name, column in numeric.items()}
    places = [np.linspace(ends[name][0], ends[name][1], points) for name in asked_for]
    mesh = [np.asarray(part).reshape(-1) for part in np.meshgrid(*places)]
    held = {name: float(at.get(name, sum(pair) / 2)) for name, pair in ends.items()}
    queries = {name: np.full(len(mesh[0]), value) for name, value in held.items()}
    queries |= dict(zip(asked_for, mesh, strict=True))
    cut = {name: value for name, value in held.items() if name not in asked_for}
    return places[0], places[1] if y is not None else None, queries, cut


def of_one_class(
    answers: Mapping[str, Grid], labels: tuple[str | int, ...] | None, wanted: str | int | None
) -> dict[str, Grid]:
    """Return one class's answers, or the classes' sum."""
    if wanted is not None:
        if labels is None or wanted not in labels:
            raise undrawable("label", f"one of {labels or ()}"[:80], str(wanted)[:40])
        return {key: value[:, labels.index(wanted)] for key, value in answers.items()}
    total = answers["density"].sum(axis=1)
    root = {
        key: np.sqrt((value**2).sum(axis=1))
        for key, value in {
            "noise_error": answers["noise_error"],
            "lower": answers["density"] - answers["lower"],
            "upper": answers["upper"] - answers["density"],
        }.items()
    }
    return {
        "density": total,
        "noise_error": root["noise_error"],
        "lower": total - root["lower"],
        "upper": total + root["upper"],
    }


def undrawable(where: str, expected: str, got: str) -> ParameterError:
    """Return the refusal of a column or class without a picture."""
    return ParameterError(
        "OS102", where, expected=expected, got=got,
        hint="`release.ops` and its columns list the rest.",
    )  # fmt: skip
