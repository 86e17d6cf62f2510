"""Read Arrow files, JSON lines, and folders of files.

Every cell is read by itself, as in a frame: ``ingest.md``.
"""

from __future__ import annotations

import io
import json
import os
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.errors import DataError, SpecError
from opendp_sim.domains.cell import MISSING, object_array
from opendp_sim.domains.records import Column, Records
from opendp_sim.io.arrow import arrow_column, no_rows, stored_in
from opendp_sim.io.columns import pyarrow
from opendp_sim.io.conform import ANY, missing_column
from opendp_sim.io.csv_files import LONGEST_RECORD, decompressed, header_line
from opendp_sim.io.file_spec import (
    NO_OBJECT,
    OTHER_HEADERS,
    At,
    FileOptions,
    FileState,
    file_state,
    listed_files,
    naming,
    need_state,
    reading,
    same_file,
)
from opendp_sim.io.gate import check_block, check_form
from opendp_sim.io.parquet import unbounded_decode
from opendp_sim.io.protocol import PieceSource, Raw, Source

Open = Callable[[FileOptions, Records], PieceSource]
"""What makes a source of one file."""

# --- folders --------------------------------------------------------------------------------------


def files_source(place: FileOptions, records: Records, kind: str, opener: Open) -> PieceSource:
    """Return a source over a file, folder or pattern (``day-*.csv``).

    Files are read in the order of their paths. A folder called ``year=2026`` gives its files a column
    ``year``, which no file of it needs to have. Every file is opened before any is read, and a refusal
    of its form names it.

    Raises:
        DataError (OS601): no file, or none of this kind. (OS602): a file lacks a declared column, or its
            columns stand at other places than those of the first file where they are named by place.
    """
    files = listed_files(place, kind)
    if files == [(place.file, {})]:
        return opener(place, records)
    found = []
    for file, keys in files:
        with naming(file, place):
            found.append(_one_file(replace(place, file=file), records, keys, opener))
    if kind == "csv":
        _check_places(place, [file for file, _ in files])
    lengths = [source.length for source in found]
    forms = [source.form for source in found if source.form is not None]

    def form() -> Raw:
        for (file, _), source in zip(files, found, strict=True):
            with naming(file, place):
                check_form(source)
        return forms[0]()

    return PieceSource(
        records,
        lambda rows: chain.from_iterable(source.pieces(rows) for source in found),
        sum(n or 0 for n in lengths) if None not in lengths else None,
        form if forms else None,
        sum(source.weight or 0 for source in found) or None,
        sum(source.packed or 0 for source in found) or None,
    )


def _check_places(place: FileOptions, files: Sequence[Path]) -> None:
    """Refuse header lines that differ where columns are named by place (OS602).

    No name is looked up in them, so each could be a record: the refusal counts, and names no file.
    """
    names = chain.from_iterable(n if isinstance(n, tuple) else (n,) for n in place.columns.values())
    if place.dialect.header or not any(isinstance(name, At) for name in names):
        return
    headers = [header_line(replace(place, file=file)) for file in files]
    if any(header != headers[0] for header in headers):
        raise DataError(
            "OS602", str(place.file), expected="one header line in all files, for columns named by place",
            got=OTHER_HEADERS,
            hint="`opendp-sim doctor` names the file. Name the columns by their headers, or convert it.",
        )  # fmt: skip


def _one_file(
    place: FileOptions, records: Records, keys: Mapping[str, str], opener: Open
) -> PieceSource:
    """Return one file's source, with the values of its folders' names."""
    named = {
        c.name: keys[str(place.stored(c.name))]
        for c in records.columns
        if place.stored(c.name) in keys
    }
    source = opener(place, Records(tuple(c for c in records.columns if c.name not in named)))
    if not named:
        return source

    def with_keys(piece: Raw) -> Raw:
        count = len(next(iter(piece.values()), ()))
        return {**piece, **{name: object_array([v] * count) for name, v in named.items()}}

    form = source.form
    return replace(
        source,
        records=records,
        pieces=lambda rows: map(with_keys, source.pieces(rows)),
        form=None if form is None else lambda: with_keys(form()),
        cut=None,
    )


# --- votes in long form ---------------------------------------------------------------------------

_VOTES = ("worker", "question", "answer", "questions", "answers")


@dataclass(frozen=True)
class VoteColumns:
    """Name the columns of a table of votes, one a record.

    Of such a table, as crowd tools export it, ``rows_of`` makes a row of 0 and 1 for each worker.
    """

    worker: str
    question: str
    answer: str
    questions: tuple[str | int, ...]
    answers: tuple[str | int, ...]
    ids: str = "str"

    @property
    def width(self) -> int:
        """Return how many numbers a worker's row has."""
        return len(self.questions) * len(self.answers)

    @property
    def records(self) -> Records:
        """Return the declared type of the votes."""
        return Records(
            (
                Column(self.worker, self.ids),
                Column(self.question, "category", keys=self.questions),
                Column(self.answer, "category", keys=self.answers),
            )
        )

    def rows_of(self, votes: Source) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """Return the workers by name, and a row for each.

        A vote without a worker, or with another question or answer, is left out. A worker's row is a
        function of this worker's votes alone (Lemma 5 of ``ingest.md``).
        """
        given: dict[Any, set[int]] = {}
        for block in votes.blocks():
            check_block(block, self.records, "assume")
            at = block[self.question] * len(self.answers) + block[self.answer]
            good = (block[self.question] >= 0) & (block[self.answer] >= 0)
            for who, place, known in zip(block[self.worker], at, good, strict=True):
                if who not in ("", MISSING):
                    given.setdefault(who, set()).update([int(place)] if known else ())
        who = sorted(given)
        rows = np.zeros((len(who), self.width), dtype=np.uint8)
        for row, one in enumerate(who):
            rows[row, list(given[one])] = 1
        return np.array(who, dtype=object if self.ids == "str" else np.int64), rows


def votes_source(
    given: Any, where: str, opener: Callable[[Records], Source], records: Records
) -> PieceSource:
    """Return a source of one record a worker from their votes.

    Args:
        given: the option: the names of the columns ``worker``, ``question`` and ``answer``, the lists of
            all ``questions`` and ``answers``, and perhaps ``ids``, the workers' dtype.
        where: what a refusal names.
        opener: opens the votes.
        records: one declared vector, of questions times answers numbers, and perhaps the worker's column.

    Raises:
        SpecError (OS304): another form. DataError (OS602): another declaration, or a column is missing.
    """
    votes = _vote_columns(given)
    if votes is None:
        raise SpecError(
            "OS304", f"{where}.votes", expected="three columns and two lists", got="something else",
            hint="votes: {worker: who, question: task, answer: label, questions: [1, 2], "
            "answers: [cat, dog]}.",
        )  # fmt: skip
    others = [c for c in records.columns if c.name != votes.worker]
    if [c.width for c in others if c.is_vector] != [votes.width] or len(others) > 1:
        raise DataError(
            "OS602", where, expected=f"{votes.worker}, and one column array[u8, {votes.width}]",
            got="other columns",
            hint="a worker's row has a number for each question and answer; `bounds: [0, 1]`.",
        )  # fmt: skip
    source, (column,) = opener(votes.records), others

    def pieces(rows: int) -> Iterator[Raw]:
        who, found = votes.rows_of(source)
        for start in range(0, max(len(found), 1), rows):
            part = slice(start, start + rows)
            yield {votes.worker: who[part], column.name: found[part]}

    def form() -> Raw:
        check_form(source)
        return records.no_records()

    return PieceSource(records, pieces, form=form)


def _vote_columns(given: Any) -> VoteColumns | None:
    """Return the option ``votes``, or None for another form."""
    if not isinstance(given, Mapping) or not set(_VOTES) <= set(given) <= {*_VOTES, "ids"}:
        return None
    worker, question, answer, *lists = (given[name] for name in _VOTES)
    names = (worker, question, answer)
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) < 3:
        return None
    if not all(isinstance(one, list | tuple) and one for one in lists):
        return None
    ids = given.get("ids", "str")
    if ids not in ("str", "int64"):
        return None
    return VoteColumns(worker, question, answer, tuple(lists[0]), tuple(lists[1]), ids)


# --- Arrow ----------------------------------------------------------------------------------------

_MAGIC = b"ARROW1"


def arrow_source(place: FileOptions, records: Records) -> PieceSource:
    """Return a source over an Arrow file (``.arrow``, ``.feather``).

    Also over a stream that was written into a file. Only the declared columns are read, a batch of the
    file at a time. A vector is a column of lists or several columns of numbers.

    Raises:
        DataError (OS601): not a readable file. (OS602): no such column, or several. (OS606): no pyarrow.
    """
    pyarrow()

    def pieces(rows: int) -> Iterator[Raw]:
        with _arrow_file(place, names, state) as (_, batches, _):
            for batch in batches:
                for start in range(0, batch.num_rows, rows):
                    yield raw_columns_of(batch.slice(start, rows), records, parts)

    with _arrow_file(place, None) as (schema, _, state):
        known = schema.names
        parts = {c.name: stored_in(c, place.stored(c.name, known), known) for c in records.columns}
        names = _each_once([name for several in parts.values() for name in several], known)
        form = raw_columns_of(no_rows(schema), records, parts)
    return PieceSource(records, pieces, None, lambda: form)


def raw_columns_of(
    table: Any, records: Records, parts: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Return an Arrow table's or batch's columns from their named ``parts``."""
    return {
        c.name: arrow_column(c, [table.column(name) for name in parts[c.name]])
        for c in records.columns
    }


def _each_once(names: Sequence[str], known: Sequence[str]) -> list[int]:
    """Return the places of names, or refuse repeated ones (OS602)."""
    several = [name for name in names if list(known).count(name) > 1]
    if several:
        raise DataError(
            "OS602", f"column {several[0]}", expected="a column of this name", got="several",
            hint="rename them in the file.",
        )  # fmt: skip
    return sorted({list(known).index(name) for name in names})


@contextmanager
def _arrow_file(
    place: FileOptions, wanted: list[int] | None, expected: FileState = ()
) -> Iterator[tuple[Any, Iterator[Any], FileState]]:
    """Yield an unchanging Arrow file's schema, batches and state."""
    arrow = pyarrow()
    with (
        reading(place.file, "readable Arrow or Feather"),
        arrow.OSFile(os.fsencode(place.file)) as raw,
    ):
        state = file_state(raw.fileno())
        need_state(place.file, state, expected)
        options = arrow.ipc.IpcReadOptions(use_threads=False)
        if wanted is not None:
            options.included_fields = wanted
        is_file = raw.read(len(_MAGIC)) == _MAGIC
        raw.seek(0)
        reader = (arrow.ipc.open_file if is_file else arrow.ipc.open_stream)(raw, options=options)
        places = range(reader.num_record_batches) if is_file else ()
        batches = map(reader.get_batch, places) if is_file else iter(reader)
        yield reader.schema, (_whole(batch, place.file) for batch in batches), state
        need_state(place.file, file_state(raw.fileno()), state)


def _whole(batch: Any, file: Path) -> Any:
    """Return a batch whose offsets and indices lie within its memory.

    The format is read as it lies in the file: a damaged one would end the process.
    """
    arrow = pyarrow()
    for column in batch.columns:
        cells = column
        with suppress(KeyError):  # bytes that are no UTF-8 are read as those of a .csv are
            cells = column.view(
                {"string": "binary", "large_string": "large_binary"}[str(column.type)]
            )
        try:
            cells.validate(full=True)
        except arrow.ArrowInvalid:
            cells.validate()
            if "UTF8" not in _fault(cells):
                raise
    if unbounded_decode(0, batch.nbytes, batch.num_rows):
        raise DataError(
            "OS601", str(file), expected="batches of at most 256 MiB, or 1 MiB a record",
            got="a larger one", hint="write the file in smaller batches.",
        )  # fmt: skip
    return batch


def _fault(cells: Any) -> str:
    try:
        cells.validate(full=True)
    except Exception as error:  # noqa: BLE001 - only its kind is asked
        return str(error)[:200]
    return ""


# --- JSON lines -----------------------------------------------------------------------------------

_CELLS = 2**17
"""Cells held at a time."""
_TEXT = 2**26
"""Characters of lines held at a time."""


def jsonl_source(place: FileOptions, records: Records) -> PieceSource:
    """Return a source over JSON lines, one object a line, also compressed.

    A line is a record whatever the others are: a line that is no object is a record without cells, a key
    that it lacks is a missing cell. A vector is a list of numbers, or the keys ``x_0`` to ``x_{d-1}``.
    Which keys there are is private, since no header lists them: a misspelt column is missing in every
    record, and ``doctor`` says so. A declared ``header`` is the keys that records may have.

    Raises:
        DataError (OS601): not a readable file, or a first line of another form. (OS602): a column that is
            not in the declared header.
    """
    parts = {c.name: keys_of_column(place, c) for c in records.columns}
    if isinstance(place.dialect.header, tuple) and (known := set(place.dialect.header)):
        for column in records.columns:
            names = parts[column.name]
            if names[0] not in known and not (
                names[1:] and known.issuperset(names[-column.width :])
            ):
                raise missing_column(column.name, f"a key `{names[0]}` in the declared `header`")
    wanted = list(dict.fromkeys(name for names in parts.values() for name in names))

    def pieces(rows: int) -> Iterator[Raw]:
        count = max(1, min(rows, _CELLS // max(len(wanted), 1)))
        with reading(place.file, "readable .jsonl"), same_file(place.file, state) as (raw, _):
            objects = json_lines(decompressed(place, raw))
            lines = ((list(map(found.get, wanted)), size) for found, size in objects)
            while kept := _some(lines, count):
                yield _columns(kept, wanted, parts, records)

    with reading(place.file, "readable .jsonl"), same_file(place.file) as (raw, state):
        _check_first(decompressed(place, raw), place.file)
    return PieceSource(records, pieces, packed=state[0])


def keys_of_column(place: FileOptions, column: Column) -> tuple[str, ...]:
    """Return a column's possible keys, with those of its entries."""
    stored = place.stored(column.name)
    if isinstance(stored, tuple):
        return stored
    entries = (f"{stored}_{at}" for at in range(column.width if column.is_vector else 0))
    return (stored, *entries)


def _check_first(file: IO[bytes], where: Path) -> None:
    """Refuse a file that begins as no object does."""
    if file.read(2**16).removeprefix(BOM_UTF8).lstrip()[:1] not in (b"{", b""):
        raise DataError(
            "OS601", str(where), expected="JSON lines, one object {...} a line", got=NO_OBJECT,
            hint="write a line a record; of one JSON array `jq -c '.[]' data.json > data.jsonl`.",
        )  # fmt: skip


def json_lines(file: IO[bytes]) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield each line's object, empty if it is none, and its characters."""
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors=ANY, newline="\n")
    while line := text.readline(LONGEST_RECORD):
        size = len(line)
        if size == LONGEST_RECORD and not line.endswith("\n"):
            while line and not line.endswith("\n"):
                line = text.readline(LONGEST_RECORD)
            line = "0"  # too long to be read: a record without cells
        if line.strip():
            yield _object(line), size


def _object(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if type(found) is dict else {}


def _some(lines: Iterable[tuple[list[Any], int]], count: int) -> list[list[Any]]:
    """Return up to so many records, fewer where their lines are long."""
    kept, size = [], 0
    for cells, length in islice(lines, count):
        kept.append(cells)
        size += length
        if size > _TEXT:
            break
    return kept


def _columns(
    kept: list[list[Any]],
    wanted: Sequence[str],
    parts: Mapping[str, tuple[str, ...]],
    records: Records,
) -> Raw:
    """Return records' cells by column."""
    by_key = dict(zip(wanted, map(list, zip(*kept, strict=True)), strict=True))
    out: dict[str, Any] = {}
    for c in records.columns:
        names = parts[c.name]
        if c.is_vector and len(names) > 1:
            lists = by_key[names[0]] if len(names) == c.width + 1 else [None] * len(kept)
            entries = zip(*(by_key[name] for name in names[-c.width :]), strict=True)
            out[c.name] = object_array(
                [
                    list(several) if one is None else one
                    for one, several in zip(lists, entries, strict=True)
                ]
            )
        else:
            out[c.name] = object_array(by_key[names[0]])
    return out
