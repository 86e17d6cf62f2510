"""Show one answered question on a certificate's page.

From the verified file: no data, no loss.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from opendp_sim.accounting.release.release import Release
from opendp_sim.core.system.escape_text import escape
from opendp_sim.dsl.plan.error_units import unit_of_answers
from opendp_sim.dsl.plan.errors import size
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.run.inputs import open_points, open_queries, private_of
from opendp_sim.dsl.run.outputs import answer
from opendp_sim.report.charts import bars_chart
from opendp_sim.report.figures import Figure

_TITLE = "One answered question"
_FREE = "Read from what was released: asking costs no further privacy."
VALUE_COLUMNS = ("density", "distance", "score", "prediction", "probability", "count")
"""Columns that hold answers, the most telling first; what stands beside them are errors and sizes."""
_SHOWN = 10
Row = tuple[str, float, float, float]
Rows = tuple[str, Sequence[Mapping[str, str]]]
"""An output, and rows of its answers by column."""


def answered(plan: Plan, output: str, file: Path) -> Figure | None:
    """Return a verified file's answer to show, or None.

    Args:
        plan: the certificate's program.
        output: the certificate's output.
        file: the output's file, whose digest was compared.
    """
    if file.suffix == ".json":
        return _items(json.loads(file.read_text(encoding="utf-8")))
    found = first_answers(plan, output, file)
    if found is None:
        return None
    asked = plan.outputs[found[0]].decl.post
    sure = next((c for c in (getattr(p, "confidence", 0.0) for p in asked) if c), 0.0)
    return _bars(found[1], sure, unit_of_answers(plan, found[0]))


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
    """Return answers as in a file."""
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


def _bars(
    rows: Sequence[Mapping[str, str]], confidence: float = 0.0, unit: str = ""
) -> Figure | None:
    if not rows:
        return None
    for value in VALUE_COLUMNS:
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
    least, most = size(min(found)), size(max(found))
    between = least if least == most else f"{least} to {most}"
    return f"By noise alone 2 of 3 are off by at most {between}. "


def _bar(name: str, row: Mapping[str, str], value: str, ending: str) -> Row:
    middle = float(row[value + ending])
    low, high = (float(row.get(f"{side}{ending}", "nan")) for side in ("lower", "upper"))
    if np.isfinite([low, high]).all():
        return name, middle, min(low, middle), max(high, middle)
    return name, middle, middle, middle


def _figure(bars: Sequence[Row], value: str, text: str, confidence: float) -> Figure | None:
    if not np.isfinite([bar[1:] for bar in bars]).all():
        return None
    if any(low < high for _, _, low, high in bars):
        sure = f"In {100 * confidence:.3g} of 100 cases the" if confidence else "The"
        text += (
            f"{sure} answer without noise lies on the line. The line also covers what the released "
            "structure gets wrong by itself, but not what the steps before it change. "
        )
    if len(bars) > 1:
        least, most = (f"{pick(bar[1] for bar in bars):.3g}" for pick in (min, max))
        text += f"What is drawn here runs from {least} to {most}. "
    return Figure(_TITLE, bars_chart(bars, value), text + _FREE)


def _items(found: Any) -> Figure | None:
    """List selected items."""
    if not isinstance(found, list) or not all(isinstance(item, str | int) for item in found):
        return None
    lines = Markup("").join(
        Markup("<li>{}</li>").format(escape(str(item)[:80])) for item in found[:_SHOWN]
    )
    text = "No item was selected. "
    if found:
        items = "One item was" if len(found) == 1 else f"{len(found)} items were"
        text = (
            f"{items} selected{_first(len(found))}. They stand in an order that tells nothing; "
            f"how often an "
            "item occurs was not released. "
        )
    return Figure("What was selected", Markup("<ul>{}</ul>").format(lines), text + _FREE)


def _first(number: int) -> str:
    return f"; the first {_SHOWN} are shown" if number > _SHOWN else ""
