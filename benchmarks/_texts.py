"""Everything that leaves a run, as texts in which only noise, times and random names are masked."""

from __future__ import annotations

import io
import json
import logging
import re
import shutil
import sys
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.cli import _progress, app
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.run.execute import apply
from opendp_sim.dsl.run.session import serve

Texts = dict[str, str]
_NUMBER = re.compile(r"(?<![\w.])-?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf|null|NaN)(?![\w.])")
_MASKS = (
    (re.compile(r"\b[0-9a-f]{12,}\b"), "<hash>"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.+Z-]+"), "<time>"),
    (re.compile(r"\b0x[0-9a-f]+\b"), "<address>"),
    (re.compile(r"\btmp[0-9a-z_]{8}\b"), "<folder>"),
    (re.compile(r"\d+:\d\d:\d\d"), "<elapsed>"),
    (re.compile(r'"bytes": \d+'), '"bytes": <of noise>'),
)


def masked(text: str) -> str:
    """Return a text without hashes, times and addresses."""
    for pattern, word in _MASKS:
        text = pattern.sub(word, text)
    return text


def no_numbers(text: str) -> str:
    """Return a text whose numbers carry noise: each is one sign, whatever its length."""
    return _NUMBER.sub("#", masked(text))


@contextmanager
def overheard(into: Texts) -> Iterator[None]:
    """Catch every log record and warning."""
    lines: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.name} {record.levelname} {record.getMessage()}")

    root, ear = logging.getLogger(), Ear()
    level = root.level
    root.addHandler(ear)
    root.setLevel(logging.DEBUG)
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            yield
    finally:
        root.removeHandler(ear)
        root.setLevel(level)
    into["log"] = masked("\n".join(line for line in lines if "asyncio" not in line))
    into["warnings"] = masked("\n".join(f"{w.category.__name__} {w.message}" for w in seen))


def of_exception(error: BaseException | None) -> str:
    """Return what a traceback prints, and what hangs on an exception: causes, contexts, arguments."""
    if error is None:
        return "none"
    lines = traceback.format_exception(error)
    chain: list[str] = []
    now: BaseException | None = error
    while now is not None and len(chain) < 9:
        chain.append(f"{type(now).__name__} {now!r} {now.args!r}")
        now = now.__cause__ or now.__context__
    return masked("\n".join([*lines, *chain]))


def of_python(plan: Plan, memory: Any, clean: Callable[[], None], workers: int) -> Texts:
    """Return the texts of ``apply`` as a program in Python sees them."""
    clean()
    out: Texts = {}
    with overheard(out):
        done, error = None, None
        try:
            done = apply(plan, memory=memory, workers=workers)
        except Exception as failed:  # noqa: BLE001 - its text is what is looked at
            error = failed
    out["exception"] = of_exception(error)
    if done is not None:
        out["spent"] = f"{done.spent} {done.left}"
        out["repr"] = no_numbers(re.sub(r"\[[^]]*\]", "[]", repr(done.charge)))
    return out


class _Terminal(io.StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True


def of_command(arguments: list[str], clean: Callable[[], None], lines: str = "") -> Texts:
    """Return the texts of a command on a terminal: both streams, and the exit code."""
    clean()
    out: Texts = {}
    told, seen, code, error = io.StringIO(), _Terminal(), "none", None
    with overheard(out), stages(seen), mock.patch.object(sys, "stdin", io.StringIO(lines)):
        try:
            with redirect_stdout(told), redirect_stderr(seen):
                app(arguments)
        except SystemExit as end:
            code = str(end.code)
        except Exception as failed:  # noqa: BLE001 - its text is what is looked at
            error = failed
    stdout = told.getvalue()
    out["stdout"] = no_numbers(stdout) if arguments[0] == "session" else masked(stdout)
    out["stderr"], out["exit"], out["exception"] = (
        phases(seen.getvalue()),
        code,
        of_exception(error),
    )
    return out


@contextmanager
def stages(stream: io.StringIO) -> Iterator[None]:
    """Write every stage of a command's progress as it begins, and not by the clock."""

    def enter(self: Any, stage: str) -> None:
        stream.write(f"\r{stage}\r")

    never = mock.patch.object(_progress, "_FIRST", 1e9)
    with never, mock.patch.object(_progress._Ticker, "enter", enter):
        yield


def phases(text: str) -> str:
    """Return what was on standard error, each line of progress once."""
    if "\r" not in text:
        return masked(text)
    lines = [masked(line).strip() for line in text.replace("\r", "\n").split("\n")]
    return "\n".join(sorted(set(filter(None, lines))))


def of_files(folder: Path, entries: Path | None) -> Texts:
    """Return certificates, ledger, and the forms of what was released."""
    out: Texts = {}
    for file in sorted(folder.rglob("*")):
        name = str(file.relative_to(folder))
        if name.endswith(".certificate.json"):
            out[name] = masked(file.read_text("utf-8"))
        elif file.suffix == ".npz":
            out[name] = of_release(file)
        elif file.suffix == ".csv":
            out[name] = of_answers(file.read_text("utf-8"))
        elif file.suffix == ".json":
            out[name] = str(sorted(_keys(json.loads(file.read_text("utf-8")))))
        elif file.is_file():
            out[name] = "a file"
    if entries is not None and entries.exists():
        with Ledger.open(entries) as ledger:
            out["ledger"] = masked("\n".join(entry.text for entry in ledger.entries))
    return out


def of_release(file: Path) -> str:
    """Return members, shapes and dtypes of a release, and its texts without numbers of noise."""
    with zipfile.ZipFile(file) as archive, np.load(file, allow_pickle=False) as arrays:
        sizes = [(info.filename, info.file_size) for info in archive.infolist()]
        held = {name: arrays[name] for name in arrays.files if name + ".npy" in archive.namelist()}
        forms = [(name, array.shape, str(array.dtype)) for name, array in held.items()]
    return f"{sizes} {forms}"


def of_answers(text: str) -> str:
    """Return the header of a file of answers and its number of lines: the rest is noise."""
    lines = text.splitlines()
    return lines[0] if lines[0].startswith("mode:") else f"{lines[0]} {len(lines)}"


def _keys(value: Any, at: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _keys(inner, f"{at}.{name}")
    else:
        yield at


def emptied(folder: Path, names: tuple[str, ...]) -> None:
    """Take away what a run before left."""
    for name in names:
        for file in folder.glob(name):
            shutil.rmtree(file) if file.is_dir() else file.unlink()


def of_session(plan: Plan, memory: Any, clean: Callable[[], None], lines: list[str]) -> Texts:
    """Return what a session over arrays in memory answers to lines, or why it does not open."""
    from opendp_sim.cli.session import _converse

    clean()
    out: Texts = {}
    answers, error = io.StringIO(), None
    with overheard(out):
        try:
            with serve(plan, memory=memory) as served:
                _converse(served, lines, answers, updates=True)
        except Exception as failed:  # noqa: BLE001 - its text is what is looked at
            error = failed
    out["answers"] = no_numbers(answers.getvalue())
    out["exception"] = of_exception(error)
    return out
