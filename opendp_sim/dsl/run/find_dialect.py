"""Find the dialect in which a text file's sample reads best.

Private: it looks at records. ``doctor`` shows the result to the data's curator alone; a run guesses
nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np

from opendp_sim.core.errors import DataError, SimError
from opendp_sim.domains.cell import MISSING, integer_cell, real
from opendp_sim.domains.records import Column, Records
from opendp_sim.io import csv_files
from opendp_sim.io.dialect import Dialect
from opendp_sim.io.file_spec import ENDINGS, FileOptions, read_place, same_file
from opendp_sim.io.open import open_source, read_columns
from opendp_sim.io.table_files import json_lines, keys_of_column

SAMPLE = 5000
"""Records of a sample."""
_DELIMITERS = (",", ";", "\t", "|")
_SKIP = 12
_FORMS: tuple[dict[str, str], ...] = (
    {},
    {"thousands": ","},
    {"decimal": ","},
    {"decimal": ",", "thousands": "."},
    {"thousands": " "},
    {"decimal": ",", "thousands": " "},
    {"thousands": "'"},
    {"thousands": ".", "decimal": ","},
)
_BEFORE = re.compile(
    r"[+\-\u2212]?\s*([^\w\s+\-\u2212.,()\"']{1,3}|[^\W\d_]{1,8}(?=\s))\s*[+\-\u2212]?[.,]?\d"
)
_BEHIND = re.compile(r"\d\s*[.,]?([^\w\s.,()\"']{1,3}|[^\W\d_]{2,8}|(?<=\s)[^\W\d_])$")
"""The text around a number: signs, or letters that make no code of it (p7, 12A)."""
_OFTEN = 0.005
"""The share of a column's cells from which a form or a value is named."""


@dataclass
class DialectFit:
    """What a sample told of a text file. Private.

    Attributes:
        options: of the source, those that differ from the declared ones.
        reasons: what was found and what is proposed for it, a line each.
        examples: up to three cells by column that the found dialect does not read.
        asked: questions that only the data's curator can answer, a line each.
        holes: options that these are about, for which nothing is proposed.
    """

    options: dict[str, Any] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    examples: dict[str, list[str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    holes: list[str] = field(default_factory=list)


def find_dialect(
    given: Mapping[str, Any], records: Records, folder: Path, rows: int = SAMPLE
) -> DialectFit:
    """Return the options that read most of a sample's cells.

    Raises:
        DataError: no header line was found that has the declared columns.
    """
    found = DialectFit()
    records = read_columns(read_place(given, folder, "csv"), records)
    options = _form(given, records, folder, found)
    cells, lines = _sample(read_place(options, folder, "csv"), records, rows)
    _ragged(options, records, folder, found, lines)
    if "ragged" in found.options:
        cells, _ = _sample(read_place({**options, **found.options}, folder, "csv"), records, rows)
    numbers = {c.name: cells[c.name] for c in records.columns if _is_number(c)}
    base = read_place({**options, **found.options}, folder, "csv").dialect
    declared = not {"decimal", "thousands"}.isdisjoint(given)
    _numbers(base, numbers, records, found, ask=not declared)
    _heaps({**options, **found.options}, numbers, records, folder, found)
    return found


def _form(
    given: Mapping[str, Any], records: Records, folder: Path, found: DialectFit
) -> dict[str, Any]:
    """Find encoding, delimiter, lines before the header, and places of equal headers."""
    declared: DataError | None = None
    encodings = [{}] if "encoding" in given else [{}, {"encoding": "utf-16"}]
    delimiters = dict.fromkeys((given.get("delimiter", ","), *_DELIMITERS))
    skips = dict.fromkeys((given.get("skip", 0), *range(_SKIP)))
    for skip, encoding, delimiter in product(skips, encodings, delimiters):
        tried = {**given, **encoding, "delimiter": delimiter, "skip": skip}
        tried = {k: v for k, v in tried.items() if k in given or v not in (",", 0)}
        try:
            csv_files.csv_source(read_place(tried, folder, "csv"), records)
        except SimError as error:
            if getattr(error, "got", "") == "several":
                tried = _placed(tried, records, folder, found)
            else:
                declared = declared or (error if isinstance(error, DataError) else None)
                continue
        for name, value in tried.items():
            if given.get(name) != value:
                found.options[name] = value
                if name in _SAID:
                    found.reasons.append(_SAID[name].format(value))
        return tried
    raise declared or DataError("OS601", "csv", expected="a readable .csv file", got="another",
                                 hint="check the path and the names of the columns.")  # fmt: skip


_SAID = {
    "delimiter": "the header fits the delimiter {0!r}",
    "skip": "{0} lines stand before the header line",
    "encoding": "the file is in UTF-16",
}


def _placed(
    options: dict[str, Any], records: Records, folder: Path, found: DialectFit
) -> dict[str, Any]:
    """Return places for repeated headers, by best read cells."""
    place = read_place(options, folder, "csv")
    with same_file(place.file) as (raw, _):
        header = [
            name.strip()
            for name in csv_files.csv_header(place, csv_files.csv_records(place, raw)) or ()
        ]
    columns = dict(options.get("columns", {}))
    for column in records.columns:
        stored = place.stored(column.name)
        places = [at for at, name in enumerate(header, 1) if name == stored]
        if len(places) < 2:
            continue

        def unread(at: int, column: Column = column) -> int:
            tried = {**options, "columns": {column.name: {"at": at}}}
            cells, _ = _sample(read_place(tried, folder, "csv"), Records((column,)))
            return sum(not _reads(column)(cell) for cell in cells[column.name])

        columns[column.name] = {"at": min(places, key=unread)}
        found.reasons.append(
            f"{len(places)} headers are called {stored!a}; the cells at place "
            f"{columns[column.name]['at']} fit column {column.name}"
        )
    return {**options, "columns": columns}


def _sample(
    place: FileOptions, records: Records, rows: int = SAMPLE
) -> tuple[dict[str, list[str]], list[list[str]]]:
    """Return every column's first cells, and the first lines, as text."""
    plain = FileOptions(place.file, place.columns, place.delimiter, place.dialect)
    with same_file(place.file) as (raw, _):
        lines = csv_files.csv_records(plain, raw)
        layout = csv_files.layout_of(plain, records, csv_files.csv_header(plain, lines))
        kept = [line for line in islice(lines, rows) if line]
    picked = [dict(zip(layout.wanted, layout.picked(line), strict=True)) for line in kept]
    cells = {
        name: [line[at] for line in picked for at in places]
        for name, places in layout.places.items()
    }
    return cells, kept


def _ragged(
    options: dict[str, Any],
    records: Records,
    folder: Path,
    found: DialectFit,
    lines: list[list[str]],
) -> None:
    """Propose ``ragged`` where it reads records that are missing now."""
    if options.get("ragged"):
        return
    tried = {**options, "ragged": True}
    counts = []
    for one in (options, tried):
        cells, _ = _sample(read_place(one, folder, "csv"), records)
        counts.append(sum(bool(cell.strip()) for part in cells.values() for cell in part))
    sizes = Counter(map(len, lines))
    if counts[1] > counts[0]:
        (size, often), *_ = sizes.most_common(1)
        found.options["ragged"] = True
        found.reasons.append(
            f"lines have other numbers of cells than the header ({often:,} of the first "
            f"{len(lines):,} have {size}): `ragged: true` reads their cells"
        )
    with same_file(read_place(options, folder, "csv").file) as (raw, _):
        place = read_place(options, folder, "csv")
        header = csv_files.csv_header(place, csv_files.csv_records(place, raw))
    other = len(lines) - sizes[len(header)] if header is not None else 0
    if other and counts[1] <= counts[0]:
        found.reasons.append(
            f"{other:,} of the first {len(lines):,} lines have another number of cells than the header, "
            "or a quote within a cell that is not doubled: they are missing as a whole"
        )


def _is_number(column: Column) -> bool:
    return not column.keys and column.dtype not in ("str", "date", "bool")


def _reads(column: Column) -> Callable[[str], bool]:
    """Return whether a cell is a value of a column."""
    if not _is_number(column):
        return lambda cell: bool(cell.strip())
    if column.numpy_dtype.kind == "f":
        return lambda cell: abs(real(cell)) < float("inf")
    return lambda cell: integer_cell(cell) != MISSING


def _read(dialect: Dialect, cells: list[str], column: Column) -> Iterator[bool]:
    reads = _reads(column)
    for cell in cells:
        value = dialect.number(cell)
        yield value is not None and reads(value)


def _numbers(
    base: Dialect, numbers: dict[str, list[str]], records: Records, found: DialectFit, *, ask: bool
) -> None:
    """Find the first form of numbers that reads most cells."""
    columns = {c.name: c for c in records.columns}
    strips = [base.strip, tuple(dict.fromkeys((*base.strip, *_affixes(numbers, columns, base))))]
    best, most = base, -1
    tied: list[Dialect] = []
    for strip, form in product(dict.fromkeys(strips), (None, *_FORMS)):
        marks = (
            {"decimal": base.decimal, "thousands": base.thousands}
            if form is None
            else {"decimal": ".", "thousands": "", **form}
        )
        tried = _with(base, strip=strip, **marks)
        count = sum(sum(_read(tried, numbers[name], columns[name])) for name in numbers)
        if count > most:
            best, most, tied = tried, count, []
        elif count == most and tried.strip == best.strip:
            tied.append(tried)
    if ask:
        _ask(base, best, tied, numbers, found)
    _propose(base, best, numbers, columns, found)
    for name, cells in numbers.items():
        reads = _read(best, cells, columns[name])
        odd = [cell for cell, good in zip(cells, reads, strict=True) if not good]
        if odd:
            found.examples[name] = [ascii(c)[:40] for c, _ in Counter(odd).most_common(3)]


def _propose(
    base: Dialect,
    best: Dialect,
    numbers: dict[str, list[str]],
    columns: Mapping[str, Column],
    found: DialectFit,
) -> None:
    """Propose the signs of a form with their gains."""
    said_of = {"decimal": "a decimal", "thousands": "a thousands sign", "strip": "texts around"}
    for name, said in said_of.items():
        value = getattr(best, name)
        if value == getattr(base, name) or name in found.holes:
            continue
        found.options[name] = list(value) if name == "strip" else value
        plain = _with(best, **{name: getattr(base, name)})
        for where, cells in numbers.items():
            ways = [_read(plain, cells, columns[where]), _read(best, cells, columns[where])]
            lost = sum(new and not old for old, new in zip(*ways, strict=True))
            if lost:
                signs = ", ".join(map(repr, value)) if name == "strip" else repr(value)
                found.reasons.append(
                    f"column {where}: {lost:,} of the first {len(cells):,} cells have {said} ({signs})"
                )


def _ask(
    base: Dialect,
    best: Dialect,
    tied: list[Dialect],
    numbers: dict[str, list[str]],
    found: DialectFit,
) -> None:
    """Ask which of two equally good forms is meant.

    1,234 is 1234 or 1.234, and no cell of the column tells which. The plain form stays as it is.
    """
    name_of = "thousands" if best.thousands else "decimal"
    proposed = getattr(best, name_of) != getattr(base, name_of)
    for name, cells in numbers.items():
        for other in tied:
            pairs = [(c, _value(best, c), _value(other, c)) for c in cells]
            unlike = [(c, one, two) for c, one, two in pairs if one != two]
            if len(unlike) < _TIED:
                continue
            cell, one, two = unlike[0]
            found.asked.append(
                f"column {name}: {len(unlike):,} of the first {len(cells):,} cells, such as {cell!a}, "
                f"are {one:.12g} with {_form_text(best)} and {two:.12g} with {_form_text(other)}, and no "
                f"cell tells which: declare one"
            )
            found.holes += [name_of] if proposed and name_of not in found.holes else []
            break


_TIED = 3
"""Cells that two forms read as other numbers, from which it is asked which form is meant."""


def _value(dialect: Dialect, cell: str) -> float:
    """Return a cell's number, zero for a missing one."""
    number = dialect.number(cell)
    found = 0.0 if number is None else real(number)
    return found if abs(found) < float("inf") else 0.0


def _form_text(dialect: Dialect) -> str:
    signs = {"decimal": dialect.decimal, "thousands": dialect.thousands}
    told = [f'{name}: "{sign}"' for name, sign in signs.items() if sign and (name, sign) != _PLAIN]
    return f"`{', '.join(told)}`" if told else "the plain form"


_PLAIN = ("decimal", ".")


def _with(dialect: Dialect, **changes: Any) -> Dialect:
    return Dialect(**{**{name: getattr(dialect, name) for name in _NAMES}, **changes})


_NAMES = tuple(Dialect.__dataclass_fields__)


def _affixes(
    numbers: dict[str, list[str]], columns: Mapping[str, Column], base: Dialect
) -> list[str]:
    """Return the texts that often stand around numbers."""
    counted: Counter[str] = Counter()
    total = max(sum(map(len, numbers.values())), 1)
    for name, cells in numbers.items():
        for cell, good in zip(cells, _read(base, cells, columns[name]), strict=True):
            if not good:
                bare = cell.strip()
                counted.update(m[1] for m in (_BEFORE.match(bare), _BEHIND.search(bare)) if m)
    return [
        text for text, count in counted.most_common(4) if count / total >= _OFTEN / len(numbers)
    ]


def _heaps(
    options: dict[str, Any],
    numbers: dict[str, list[str]],
    records: Records,
    folder: Path,
    found: DialectFit,
) -> None:
    """Name frequent values that lie apart, and all their columns.

    A mark of missing values is one of every column of numbers.
    """
    dialect = read_place(options, folder, "csv").dialect
    values = {
        column.name: [
            v
            for v in (real(c) for c in map(dialect.number, numbers[column.name]) if c is not None)
            if abs(v) < float("inf")
        ]
        for column in records.columns
        if column.name in numbers
    }
    bounds = {column.name: column.bounds for column in records.columns}
    heaps = {name: _heap(cells, bounds[name]) for name, cells in values.items()}
    marks = list(dict.fromkeys(value for several in heaps.values() for value in several))
    for name, cells in values.items():
        for value in marks:
            count, mark = cells.count(value), _plain(value)
            why = heaps[name].get(value, "as in another column")
            if count:
                found.reasons.append(
                    f"column {name}: {count:,} of the first {len(cells):,} cells are {mark} ({why}): "
                    f"if it stands for a missing value, `missing: [{mark}]`"
                )
    if marks:
        known = options.get("missing", ())
        found.options["missing"] = list(dict.fromkeys([*known, *map(_plain, marks)]))


def _heap(values: list[float], bounds: tuple[float, ...]) -> dict[float, str]:
    """Return a column's frequent values that lie apart, with reasons."""
    found = {}
    for value, count in Counter(values).most_common(3):
        if count < max(_OFTEN * len(values), 5):
            continue
        rest = [v for v in values if v != value]
        low, high = min(rest, default=value), max(rest, default=value)
        if bounds and not bounds[0] <= value <= bounds[1]:
            found[value] = "outside the bounds"
        elif value < 0 <= (low if rest else -1.0):
            found[value] = "below zero, alone"
        elif max(low - value, value - high) > high - low > 0:
            found[value] = "far from all others"
    return found


def _plain(value: float) -> float | int:
    return int(value) if value.is_integer() else value


# --- several files --------------------------------------------------------------------------------


def find_common(
    fits: Mapping[str, DialectFit], reads: Callable[[str, Mapping[str, Any]], int]
) -> DialectFit:
    """Return the files' best common options, and name the others.

    Args:
        fits: of each file, what its own sample told.
        reads: of a file and options, how many of its sample's cells they read.
    """
    marks = _union([{k: v for k, v in f.options.items() if k == "missing"} for f in fits.values()])
    own = {name: _apart(fit.options, marks) for name, fit in fits.items()}
    tried = [{}, *own.values(), _union(list(own.values()))]
    tried = [one for at, one in enumerate(tried) if one not in tried[:at]]
    best = max(tried, key=lambda options: sum(reads(name, options) for name in fits))
    common = DialectFit(
        options=best | marks, holes=list({h: 0 for fit in fits.values() for h in fit.holes})
    )
    alike: dict[str, list[str]] = {}
    for name, fit in fits.items():
        other = reads(name, own[name]) > reads(name, best)
        alike.setdefault(repr((other, sorted(fit.options.items(), key=str))), []).append(name)
        if other:
            told = ", ".join(f"{k}: {v!r}" for k, v in own[name].items()) or "the declared form"
            common.reasons.append(
                f"{name} is in another form than the other files ({told}), and no declaration reads "
                "both: convert it, or make it a dataset of its own"
            )
        for column, cells in fit.examples.items():
            common.examples[f"{column} of {name}"] = cells
        common.asked += [f"{name}: {question}" for question in fit.asked]
    for names in alike.values():
        more = f" (and {len(names) - 1:,} more)" if len(names) > 1 else ""
        common.reasons += [f"{names[0]}{more}: {reason}" for reason in fits[names[0]].reasons]
    return common


def _apart(options: Mapping[str, Any], marks: Mapping[str, Any]) -> dict[str, Any]:
    """Return options without those that make cells missing."""
    return {name: value for name, value in options.items() if name not in marks}


def _union(several: list[dict[str, Any]]) -> dict[str, Any]:
    """Return all options at once, with every word of lists."""
    found: dict[str, Any] = {}
    for name, value in (item for options in several for item in options.items()):
        if isinstance(value, list):
            found[name] = list(dict.fromkeys([*found.get(name, ()), *value]))
        else:
            found.setdefault(name, value)
    return found


def cells_read(given: Mapping[str, Any], records: Records, folder: Path, rows: int = SAMPLE) -> int:
    """Return the number of cells read; 0 for a refused file."""
    try:
        place = read_place(given, folder, "csv")
        records = read_columns(place, records)
        cells, _ = _sample(place, records, rows)
    except SimError:
        return 0
    columns = {c.name: c for c in records.columns}
    return sum(
        sum(_read(place.dialect, part, columns[name]))
        if _is_number(columns[name])
        else sum(map(bool, map(str.strip, part)))
        for name, part in cells.items()
    )


# --- cells that no dialect mends ------------------------------------------------------------------


def about_cells(kind: str, given: Mapping[str, Any], records: Records, folder: Path) -> list[str]:
    """Return findings on keys and latitudes, a line each (private)."""
    if kind not in ENDINGS or "votes" in given:
        return []
    place = read_place(given, folder, kind)
    found = _keys(place, read_columns(place, records)) if kind == "jsonl" else []
    return found + _swapped(kind, given, place, records, folder)


def _keys(place: FileOptions, records: Records) -> list[str]:
    """Name lacking keys of a sample, and keys like them."""
    counted: Counter[str] = Counter()
    lines, found = 0, []
    wanted = {c.name: keys_of_column(place, c) for c in records.columns}
    lacking: Counter[str] = Counter()
    with same_file(place.file) as (raw, _):
        for cells, _ in islice(json_lines(csv_files.decompressed(place, raw)), SAMPLE):
            lines += 1
            counted.update(list(cells))
            lacking.update(name for name, keys in wanted.items() if cells.keys().isdisjoint(keys))
    known = {key for keys in wanted.values() for key in keys}
    others = {key.lower(): key for key in counted if key not in known}
    for name, count in lacking.items():
        near = get_close_matches(wanted[name][0].lower(), others, n=3)
        told = ", ".join(f"{others[key]!a:.40} ({counted[others[key]]:,})" for key in near)
        found.append(
            f"column {name}: {count:,} of the first {lines:,} lines have no key `{wanted[name][0]}`"
            + (f"; like it: {told}" if told else "")
        )
    return found


_LATITUDE = re.compile(r"lat(itude)?", re.IGNORECASE)


def _swapped(
    kind: str, given: Mapping[str, Any], place: FileOptions, records: Records, folder: Path
) -> list[str]:
    """Name latitudes of a sample that are beyond 90 degrees."""
    stored = {
        name: str(plane.stored[0])
        for name, plane in place.planes.items()
        if plane.kind == "km" and records.column(name) is not None
    }
    stored |= {
        c.name: str(place.stored(c.name))
        for c in records.columns
        if c.dtype == "float64" and _LATITUDE.fullmatch(str(place.stored(c.name)))
    }
    found = []
    for name, latitude in stored.items():
        one = Column(name, "float64")
        source = open_source(kind, {**given, "columns": {name: latitude}}, Records((one,)), folder)
        values = next((block[name][:SAMPLE] for block in source.blocks(SAMPLE)), np.zeros(0))
        if values.dtype.kind == "f" and (count := int((abs(values) > 90.0).sum())):
            found.append(
                f"column {name}: {count:,} of the first {len(values):,} latitudes are beyond 90 degrees: "
                "latitude stands first, as in `km: [lat, lon]`"
            )
    return found
