"""Show on a certificate's page what was released, beside its noise.

From the verified file, at no further loss.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from opendp_sim.accounting.release.release import Release
from opendp_sim.domains.released import Released
from opendp_sim.dsl.files.paths import private_of
from opendp_sim.dsl.plan.error_units import unit_of_answers
from opendp_sim.dsl.plan.expected_error import how_wrong
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.run.inputs import open_points, open_queries
from opendp_sim.dsl.run.outputs import answer
from opendp_sim.dsl.types.error_terms import WIDE, WITHIN, size, wide
from opendp_sim.report.charts import bars_chart
from opendp_sim.report.facts import Part
from opendp_sim.report.maps import column_tables, shown_classes, shown_density

_FREE = "To read this again costs no privacy; a new run does."
VALUE_COLUMNS = ("density", "distance", "score", "prediction", "probability", "count")
"""Columns that hold answers where none has a stated error, the most telling first."""
_SHOWN = 10
_LONG, _WIDE, _MOST = 6, 4, 20
"""Rows and columns of a table, and items of a list, that a page shows."""
_BESIDE = (
    *("noise_error", "sketch_error", "bias", "lower", "upper", "score", "margin_deviation"),
    *("records", "least_records"),
)
"""Columns that explain an answer, and are left to the file."""
Row = tuple[str, float, float, float]
Rows = tuple[str, Sequence[Mapping[str, str]]]
"""An output, and rows of its answers by column."""


def released_parts(plan: Plan, output: str, file: Path) -> list[Part]:
    """Return what a verified file holds, as parts of a page.

    A selection's list; a table's first answers; a release's map, or its answers to the program's own
    questions, or the range of its numbers.
    """
    if file.suffix == ".json":
        record = plan.releases[plan.outputs[output].stage.name].record
        ranked = bool(getattr(record, "ranked", False))
        return list(_items(json.loads(file.read_text(encoding="utf-8")), ranked=ranked))
    release: Release | None = None
    if file.suffix == ".npz" and isinstance(plan.outputs[output].domain, Released):
        release = Release.load(file)
        head = ("place", "released answer")
        shown = [
            Part(kind, body, note=note, head=head, numbers=(1,))
            for kind, body, note in (*shown_density(release), *shown_classes(release))
        ]
        for columns, rows, note in column_tables(release):
            numbers = tuple(range(len(columns) - len(rows[0][1:]), len(columns))) if rows else ()
            shown.append(Part("table", rows, note=note, head=columns, numbers=numbers))
        if shown:
            return shown
    found = first_answers(plan, output, file)
    if found is not None and found[1]:
        asked = plan.outputs[found[0]].decl.post
        sure = next((c for c in (getattr(p, "confidence", 0.0) for p in asked) if c), 0.0)
        values = _values_of(plan, found[0])
        drawn = _bars(found[1], values, sure, unit_of_answers(plan, found[0], values[0]))
        table = _table(found[1])
        return [*([drawn] if drawn else []), *([table] if table else [])]
    return [] if release is None else [_numbers(release)]


def _table(rows: Sequence[Mapping[str, str]]) -> Part | None:
    """Return the first answers as a table of a few columns."""
    names = [k for k in rows[0] if k.partition(":")[0] not in _BESIDE][:_WIDE]
    if len(rows) == 1 and any(":" in name for name in names):
        return None
    body = [
        (str(at), *(_readable(row[name]) for name in names))
        for at, row in enumerate(rows[:_LONG], 1)
    ]
    more = len(rows[0]) - len(names)
    note = f"{more} further columns stand in the file." if more > 0 else ""
    numbers = tuple(range(1, len(names) + 1))
    kinds = {name.partition(":")[0] for name in names}
    classes = len(kinds) == 1 and all(":" in name for name in names)
    head = [name.partition(":")[2] if classes else name for name in names]
    return Part("table", body, "", note, ("question", *head), numbers)


def _readable(text: str) -> str:
    try:
        return f"{float(text):,.4g}"
    except ValueError:
        return text[:40]


def _numbers(release: Release) -> Part:
    """Return the range of the released numbers."""
    rows = []
    for name, array in release.arrays.items():
        if array.dtype.kind in "iuf" and array.size:
            least, middle, most = (f"{f(array):,.4g}" for f in (np.min, np.median, np.max))
            rows.append((name, f"{array.size:,}", least, middle, most))
    head = ("array", "numbers", "smallest", "middle", "largest")
    return Part("table", rows[:_LONG], "", _FREE, head, (1, 2, 3, 4))


def first_answers(plan: Plan, output: str, file: Path, most: int = _SHOWN) -> Rows | None:
    """Return a verified file's output and first answers.

    A release is asked what its own program asks of it, where the questions come with the package: at
    most ``_SHOWN`` of them.
    """
    if file.suffix == ".csv":
        with file.open(encoding="utf-8", newline="") as stream:
            return output, [
                row for _, row in zip(range(most), csv.DictReader(stream), strict=False)
            ]
    return _answered_queries(plan, output, file) if file.suffix == ".npz" else None


def _answered_queries(plan: Plan, output: str, file: Path) -> Rows | None:
    mine = plan.outputs[output].stage.name
    for name, other in plan.outputs.items():
        query = other.decl.query
        if (
            other.stage.name == mine
            and other.posts
            and query is not None
            and query.kind == "builtin"
        ):
            folder, private = plan.program.folder, private_of(plan.program)
            block, points = open_queries(query, other, folder, {}, private=private), None
            if other.decl.public is not None:
                if other.decl.public.kind != "builtin":
                    return None
                points = open_points(other, folder, {}, private=private)
            if not any(
                getattr(mechanism, "public", "") == "queries" for mechanism in other.decl.post
            ):
                block = {key: values[:_SHOWN] for key, values in block.items()}
            found = answer(Release.load(file), other.posts, block, points)
            return name, list(_rows(found, getattr(other.domain, "labels", None)))[:_SHOWN]
    return None


def _rows(found: Any, labels: Sequence[Any] | None) -> Iterator[dict[str, str]]:
    if not isinstance(found, Mapping):
        return
    names = [str(label) for label in labels or ()]
    flat: dict[str, Any] = {}
    for name, values in found.items():
        array = np.asarray(values)
        if array.ndim == 2 and array.shape[1] == len(names):
            flat |= {f"{name}:{label}": array[:, i] for i, label in enumerate(names)}
        elif array.ndim == 1 or array.shape[1:] == (1,):
            flat[name] = array.reshape(len(array))
    for i in range(min((len(column) for column in flat.values()), default=0)):
        yield {name: str(column[i]) for name, column in flat.items()}


def _values_of(plan: Plan, output: str) -> Sequence[str]:
    """Return the columns to draw, the measured one alone if any."""
    measured = getattr(plan.outputs[output].domain, "measured", "")
    return (measured,) if measured else VALUE_COLUMNS


def _bars(
    rows: Sequence[Mapping[str, str]],
    values: Sequence[str] = VALUE_COLUMNS,
    confidence: float = 0.0,
    unit: str = "",
) -> Part | None:
    if not rows:
        return None
    for value in values:
        names = [k.partition(":")[2] for k in rows[0] if k.startswith(f"{value}:")]
        if names:
            bars = [_bar(name, rows[0], value, f":{name}") for name in names]
            text = "The first question, and its answer for each class. "
            return _figure(bars, _labelled(value, unit), text + _noise(rows[:1]), confidence)
        if value in rows[0]:
            bars = [_bar(str(i), row, value, "") for i, row in enumerate(rows, 1)]
            text = f"The first {len(rows)} questions and their answers. "
            return _figure(bars, _labelled(value, unit), text + _noise(rows), confidence)
    return None


def _labelled(value: str, unit: str) -> str:
    """Return the bars' label and unit."""
    own = "from 0 to 1" if value == "probability" else f"in {unit}" if unit else ""
    return f"{value}, {own}" if own else value


def _noise(rows: Sequence[Mapping[str, str]]) -> str:
    """State the drawn values' noise, where the file has it."""
    found = [
        float(v) for row in rows for k, v in row.items() if k.partition(":")[0] == "noise_error"
    ]
    if not found or not np.isfinite(found).all():
        return ""
    least, most = wide(min(found)), wide(max(found))
    between = least if least == most else f"{least} to {most}"
    return f"Noise alone moves {WITHIN} by at most {between}. "


def _bar(name: str, row: Mapping[str, str], value: str, ending: str) -> Row:
    middle = float(row[value + ending])
    low, high = (float(row.get(f"{side}{ending}", "nan")) for side in ("lower", "upper"))
    if np.isfinite([low, high]).all():
        return name, middle, min(low, middle), max(high, middle)
    return name, middle, middle, middle


def _figure(bars: Sequence[Row], value: str, text: str, confidence: float) -> Part | None:
    if not np.isfinite([bar[1:] for bar in bars]).all():
        return None
    if any(low < high for _, _, low, high in bars):
        sure = f"In {100 * confidence:.3g}% of runs the" if confidence else "The"
        text += f"{sure} exact answer lies on the line, which holds all errors. "
    return Part("picture", bars_chart(bars, value), "", text + _FREE)


def _items(found: Any, *, ranked: bool = False) -> Iterator[Part]:
    """List selected items, or tabulate what else a file holds."""
    if isinstance(found, dict):
        columns = {k: v if isinstance(v, list) else [v] for k, v in found.items()}
        if "item" in columns:
            yield _ranks(columns)
            return
        rows = [tuple(map(str, row)) for row in zip(*columns.values(), strict=False)]
        rows = [(str(at), *row) for at, row in enumerate(rows, 1)]
        yield Part("table", rows[:_MOST], "", _more(len(rows)) + _FREE, ("no.", *columns))
        return
    if not isinstance(found, list):
        yield Part("pairs", [("released number", str(found))], "", _FREE)
        return
    if all(isinstance(item, str | int) for item in found):
        order = "" if ranked else "The order means nothing. "
        names = [(str(at) if ranked else "", str(item)[:80]) for at, item in enumerate(found, 1)]
        told = (
            f"{order}How often an item occurs was not released. "
            if found
            else "No item was selected. "
        )
        yield Part("names", names[:_MOST], "", told + _more(len(found)) + _FREE)
        return
    rows = [(str(at), json.dumps(item)[:120]) for at, item in enumerate(found, 1)]
    yield Part("table", rows[:_LONG], "", _more(len(found), _LONG) + _FREE, ("question", "answer"))


def _ranks(columns: Mapping[str, Sequence[Any]]) -> Part:
    """Return a ranking with its counts, where it has some."""
    items, ranks, counts = (columns.get(name) or () for name in ("item", "rank", "count"))
    names = []
    for at, item in enumerate(items[:_MOST]):
        beside = f" ({float(counts[at]):,.6g})" if len(counts) == len(items) else ""
        rank = str(ranks[at]) if len(ranks) == len(items) else ""
        names.append((rank, f"{str(item)[:80]}{beside}"))
    counted = "Counts are noisy. " if counts else "How often an item occurs was not released. "
    return Part("names", names, "", counted + _more(len(items)) + _FREE)


def _more(number: int, most: int = 20) -> str:
    return f"{most} of the {number:,} that are released are shown here. " if number > most else ""


# --------------------------------------------------------------------------------------------------
# Answers beside their noise. Before a run nothing is known of them, and a plan compares its errors
# with 100 rows: a certificate knows more.

_READ = 20_000
"""Rows that are read: what is said is of these."""
_NOISE = "noise_error"
"""The column that states the noise of each answer, in the answer's own unit."""


def spread_of(plan: Plan, output: str, file: Path) -> dict[str, str]:
    """Return each output's noise beside its answers' size, in a verified file."""
    found = first_answers(plan, output, file, _READ)
    error = None if found is None else how_wrong(plan).get(found[0])
    if found is None or error is None:
        return {}
    rows = found[1]
    if safe := error.safe_from:
        leads = _column(rows, ("margin",))
        if not leads or median(leads) <= 0:
            return {}
        below = sum(lead < safe for lead in leads)
        told = f"{below:,} of {len(leads):,} leads here are below the safe lead: noise may have decided"
        return {found[0]: f"{told}."}
    values, noise = _column(rows, _values_of(plan, found[0])), _column(rows, (_NOISE,))
    if not values or not noise or median(values) <= 0 or median(noise) <= 0:
        return {}
    middle, share = size(median(values)), 100 * WIDE * median(noise) / median(values)
    noisy = f"its noise ±{wide(median(noise))} in {WITHIN} of answers: {size(share)}% of it"
    return {found[0]: f"The middle answer here is {middle}, and {noisy}."}


def _column(rows: Sequence[Mapping[str, str]], wanted: Sequence[str]) -> list[float]:
    """Return the first present column's numbers."""
    for value in wanted:
        names = [k for k in (rows[0] if rows else {}) if k == value or k.startswith(f"{value}:")]
        if names:
            numbers = (float(row[name]) for row in rows for name in names)
            return [number for number in numbers if isfinite(number)]
    return []
