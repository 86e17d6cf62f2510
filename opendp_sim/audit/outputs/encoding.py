"""Encode outputs as symbols and rows of numbers."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDEST = 400
_LONGEST_SYMBOL = 400
_BLOCK = 16
_LETTERS = 64
_NAN = ", NaN in it"
_PLAIN = (int, float, str, bytes, type(None))


def outcome(function: Callable[[Any], Any], data: Any) -> Any:
    """Return an output, or ``Raised`` with class and text of the exception."""
    try:
        return function(data)
    except Exception as error:  # noqa: BLE001 - exceptions are outputs
        return Raised.of(error)


@dataclass(frozen=True)
class Encoded:
    """Hold one side's encoded outputs, ``symbols``, ``cells`` and ``summary``."""

    symbols: NDArray[Any]
    cells: NDArray[np.float64]
    summary: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.symbols)

    def part(self, which: Any) -> Encoded:
        """Return a subset of the outputs."""
        return Encoded(self.symbols[which], self.cells[which], self.summary[which])

    @staticmethod
    def join(parts: Sequence[Encoded]) -> Encoded:
        """Put samples of one side after each other."""
        width = max(p.cells.shape[1] for p in parts)
        cells = [
            np.pad(p.cells, ((0, 0), (0, width - p.cells.shape[1])), constant_values=np.nan)
            for p in parts
        ]
        return Encoded(
            np.concatenate([p.symbols for p in parts]),
            np.concatenate(cells),
            np.concatenate([p.summary for p in parts]),
        )


def structure(value: Any) -> str:
    """Return type and shape of an output, with NaN and exceptions."""
    if isinstance(value, Raised):
        return f"raises {value.text}"
    if isinstance(value, np.ndarray):
        unknown = value.dtype.kind == "f" and bool(np.isnan(value).any())
        return f"array{value.shape}:{value.dtype}{_NAN * unknown}"
    if isinstance(value, (list, tuple)):
        inner = sorted({type(v).__name__ for v in value})
        nested = (
            [structure(v) for v in value]
            if any(isinstance(v, (list, tuple, np.ndarray)) for v in value)
            else []
        )
        unknown = _NAN * any(isinstance(v, float) and v != v for v in value)  # noqa: PLR0124
        shown = nested if len(nested) < 20 else ""
        return f"{type(value).__name__}[{len(value)}] of {inner}{unknown} {shown}"
    if isinstance(value, Mapping):
        return f"mapping of {sorted({type(v).__name__ for v in value.values()})}"
    unknown = isinstance(value, float) and math.isnan(value)
    return f"{type(value).__name__}{_NAN * unknown}"


def encode(outputs: Sequence[Any]) -> Encoded:
    """Encode outputs of one side."""
    if all(isinstance(v, np.ndarray) for v in outputs) and len({v.shape for v in outputs}) == 1:
        cells = np.stack(outputs).astype(float).reshape(len(outputs), -1)
        symbols = np.array([_bytes(row) for row in cells], dtype=object)
        return Encoded(symbols, cells[:, :WIDEST], _summary(cells))
    rows = [_numbers(v) for v in outputs]
    width = max((len(r) for r in rows), default=0)
    cells = np.full((len(rows), width), np.nan)
    for i, row in enumerate(rows):
        cells[i, : len(row)] = row
    symbols = np.array([_symbol(v) for v in outputs], dtype=object)
    return Encoded(symbols, cells[:, :WIDEST], _summary(cells))


def _bytes(row: NDArray[np.float64]) -> bytes:
    return row.tobytes()


def _symbol(value: Any) -> str | bytes:
    if isinstance(value, np.ndarray):
        return _bytes(value.astype(float).ravel())
    return shortened(repr(unordered(value)), _LONGEST_SYMBOL)


def unordered(value: Any) -> Any:
    """Return an output with sorted mappings and sets.

    In the order of their text. A release that is a mapping says what each key has; in which order the
    keys came is no part of it.
    """
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Mapping):
        return dict(sorted(((k, unordered(v)) for k, v in value.items()), key=repr))
    if isinstance(value, (set, frozenset)):
        return sorted(map(unordered, value), key=repr)
    if type(value) in (list, tuple) and not all(isinstance(part, _PLAIN) for part in value):
        return type(value)(map(unordered, value))
    return value


def _numbers(value: Any) -> list[float]:  # noqa: C901 - one kind a branch
    if isinstance(value, np.ndarray):
        return value.astype(float).ravel().tolist()
    if isinstance(value, (bool, int, float, np.generic)):
        try:
            return [float(value)]
        except (TypeError, ValueError, OverflowError):
            return [float(hash(str(value)) % 1009)]
    if value is None:
        return [-1e9]
    if isinstance(value, str):  # letter by letter while it is short: marks of answers, for one
        if len(value) <= _LETTERS:
            return [float(ord(letter)) for letter in value] or [-1.0]
        return [float(zlib.crc32(value.encode("utf-8", "surrogatepass")) % 100_003)]
    if isinstance(value, (bytes, bytearray)):
        short = len(value) <= _LETTERS
        return list(map(float, value)) or [-1.0] if short else [float(zlib.crc32(value) % 100_003)]
    if isinstance(value, Raised):
        return [1e12]
    if isinstance(value, Mapping):
        value = [part for item in sorted(value.items(), key=repr) for part in item]
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=repr)
    if isinstance(value, (list, tuple)):
        parts = [_numbers(part) for part in value]
        if any(isinstance(part, (list, tuple, np.ndarray)) for part in value):
            # parts keep their place whatever their lengths are
            return [n for part in parts for n in _padded(part)]
        return [number for part in parts for number in part]
    return []


def _padded(part: list[float]) -> list[float]:
    short = _BLOCK - len(part)
    return part + [math.nan] * short if short > 0 else part


def _summary(cells: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return summary statistics of rows.

    A function of each row alone: how wide the others are must not matter, or the event would not be
    one of the output.
    """
    rows, width = cells.shape
    there = ~np.isnan(cells)
    size = there.sum(axis=1)
    if width == 0 or not size.any():
        return np.zeros((rows, 9))
    clean = np.clip(np.where(there, cells, 0.0), -1e300, 1e300)
    low, high = np.where(there, clean, np.inf), np.where(there, clean, -np.inf)
    ordered = np.sort(low, axis=1)
    rising = ((np.diff(clean, axis=1) >= 0) & there[:, 1:] & there[:, :-1]).sum(axis=1)
    with np.errstate(invalid="ignore"):
        fresh = ((np.diff(ordered, axis=1) > 0) & np.isfinite(ordered[:, 1:])).sum(axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        # one cell after the other: pairwise sums would round by the width of the others' rows
        total = np.nan_to_num(clean.cumsum(axis=1)[:, -1])
    columns = [
        size,
        total,
        low.min(axis=1),
        high.max(axis=1),
        ((clean == 0) & there).sum(axis=1),
        fresh,
        rising,
        high.argmax(axis=1),
        ((clean == np.floor(clean)) & there).sum(axis=1),
    ]
    return np.where(size[:, None] > 0, np.column_stack(columns), 0.0)


# --------------------------------------------------------------------------------------------------
# Exceptions as outputs: their whole text without the places of tracebacks. OpenDP puts the traceback of a
# user's function into the text of its own error, causes included. What stands between the places of that
# traceback is what the function's exceptions said, in one line or many.


_LONGEST = 400
_TRACEBACK = "Traceback (most recent call last):"
_BETWEEN = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_BEFORE = re.compile(r'\s*(\w+\(")?Continued stack trace from Exception in user-defined function:')
_AFTER = '")'
_PLACE = re.compile(r'  (File "|\[Previous line|  )')
_GROUP = re.compile(r"^ *(\| |\+ (?=Exception Group)|\+-[+-]*)")
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{7,}")
_DEEPEST = 4


@dataclass(frozen=True)
class Raised:
    """An exception as an output symbol."""

    text: str

    @classmethod
    def of(cls, error: BaseException) -> Raised:
        """Return class and text of an exception, its causes and notes."""
        return cls(shortened("; ".join(_error_lines(error, _DEEPEST)), _LONGEST))


def shortened(text: str, most: int) -> str:
    """Return a text shortened with a checksum, so that texts differ."""
    if len(text) <= most:
        return text
    rest = text[most:].encode("utf-8", "surrogatepass")
    return f"{text[:most]}... ({len(rest)} more, {zlib.crc32(rest):08x})"


def _error_lines(error: BaseException, depth: int) -> Iterator[str]:
    """Yield what an exception says, its notes, and what its causes say."""
    native = type(error).__name__ == "OpenDPException"
    try:
        message = getattr(error, "message", None) if native else None
        native = isinstance(message, str)
        said, *causes = reversed(_messages(str(message if native else error)))
    except Exception as another:  # noqa: BLE001 - a text that its class does not write
        said, causes = f"<{type(another).__name__}>", []
    yield f"{type(error).__name__}: {_named(error, native=native)}{said}"
    with suppress(Exception):  # notes that are no list, or that write no text
        yield from [_plain(str(note)) for note in getattr(error, "__notes__", ())]
    yield from (f"caused by {cause}" for cause in reversed(causes))
    for part in getattr(error, "exceptions", ()) if isinstance(error, BaseExceptionGroup) else ():
        yield from (f"with {told}" for told in _error_lines(part, depth - 1) if depth)
    cause = error.__cause__
    if cause is None and not error.__suppress_context__:
        cause = error.__context__
    if cause is not None and depth:
        yield from (f"caused by {told}" for told in _error_lines(cause, depth - 1))


def _named(error: BaseException, *, native: bool) -> str:
    variant = getattr(error, "variant", "FFI") if native else "FFI"
    return "" if variant == "FFI" else f"{variant}: "


def _messages(text: str) -> list[str]:
    """Return the messages in a traceback's text, without places."""
    if _TRACEBACK not in text:
        return [_plain(text)]
    found: list[list[str]] = [[]]
    inside, group = False, "Exception Group" in text
    for line in text.split("\n"):
        bare = _GROUP.sub("", line) if group else line
        if bare.endswith(_TRACEBACK):
            found.append([])
            inside = True
        elif not (inside and _PLACE.match(bare)):
            inside = False
            found[-1].append(bare)
    if found[-1][-1:] == [_AFTER]:
        found[-1].pop()
    parts = [
        "\n".join(line for line in lines if line not in _BETWEEN and not _BEFORE.match(line))
        for lines in found
    ]
    return [_plain(part) for part in parts if part.strip()] or [""]


def _plain(text: str) -> str:
    """Return a text in one line."""
    return without_addresses(text.strip("\n")).replace("\n", "\\n")


def without_addresses(text: str) -> str:
    """Return a text without addresses in memory, which differ by run."""
    return _ADDRESS.sub("at 0x", text)
