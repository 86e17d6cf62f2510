"""Write releases and tables atomically, by renamed temporary files."""

from __future__ import annotations

import csv
import json
import os.path
import re
import secrets
from collections.abc import Mapping
from itertools import chain
from pathlib import Path as File
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.accounting.atomic_files import replacing
from opendp_sim.accounting.release.release import Release
from opendp_sim.core.errors import DataError
from opendp_sim.core.space import Domain
from opendp_sim.domains.cell import columned, object_array


def check_writable(path: File, where: str) -> None:
    """Check that ``path`` can be written, or refuse (OS609).

    Creates its folder, and a file of the longest name beside it.
    """
    token = secrets.token_hex(8)
    try:
        if os.path.lexists(path) and not path.is_file():
            raise unwritable(where, f"{path}, which is no regular file")
        longest = path.with_name(f".{path.name}.certificate.json.{token}.part")
        path.parent.mkdir(parents=True, exist_ok=True)
        with longest.open("xb") as stream:  # on trial: it need not last
            stream.write(bytes(1))
        longest.unlink()
        free = not path.with_name(path.name + ".certificate.json").is_dir()
    except (OSError, ValueError):  # ValueError: no name, or one with a NUL, which no file has
        free = False
    if not free:
        raise unwritable(where, str(path))


def unwritable(where: str, got: str, hint: str = "") -> DataError:
    """Return the refusal of an output that cannot be written (OS609)."""
    return DataError(
        "OS609", where, expected="a file that can be written", got=got,
        hint=hint or "name a folder that can be made and written, or choose one with --into.",
    )  # fmt: skip


def write_output(
    path: File, value: Any, domain: Domain | None, *, spreadsheet: bool = False
) -> None:
    """Write a release (.npz), arrays (.npz), or a table (.csv, .json), atomically.

    The path's ending decides. Labels of ``domain`` name columns; ``spreadsheet``: see ``inert``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(value, Release):
        value.save(path)
    elif path.suffix == ".npz":
        with replacing(path, "wb") as stream:
            np.savez_compressed(stream, **_arrays(value))
    elif path.suffix == ".csv":
        names, rows = answer_table(value, getattr(domain, "labels", None))
        with replacing(path, "w") as stream:
            writer = csv.writer(
                stream,
                lineterminator="\n",
                quoting=csv.QUOTE_NONNUMERIC if spreadsheet else csv.QUOTE_MINIMAL,
            )
            lines = chain([names], rows)
            writer.writerows((map(inert, line) for line in lines) if spreadsheet else lines)
    else:
        with replacing(path, "w") as stream:
            json.dump(_plain(_named(value, getattr(domain, "labels", None))), stream, indent=1)
            stream.write("\n")


_FORMULA = re.compile(r"(?:^|[;\t])\s*(?=[=+\-@\uff1d\uff0b\uff0d\uff20])|^(?=[\t\r])")
"""Where a cell begins that a spreadsheet runs.

At the start of a text, or behind a mark that parts cells in some countries; the wide signs are of East
Asian keyboards.
"""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Characters that a terminal or a reader of lines acts on."""


def inert(cell: Any) -> Any:
    r"""Return a text that no spreadsheet runs; other cells are unchanged.

    An apostrophe comes before what would be a formula, and control characters are escaped (``\x1b``).
    A text that is a number stays one. It is no longer the text that was counted.
    """
    if not isinstance(cell, str) or _is_number(cell):
        return cell
    held = _FORMULA.sub(lambda found: f"{found[0]}'", cell)
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], held)


def formula_note(path: File) -> str:
    """Return a warning about texts that a spreadsheet would run.

    Anybody can name an item ``=HYPERLINK(...)``. The file holds it as it is, for programs: quotes stop
    no spreadsheet, and an apostrophe is another text.
    """
    if path.suffix != ".csv":
        return ""
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as stream:
        if not any(_acts(cell) for row in csv.reader(stream) for cell in row):
            return ""
    return (
        f"{path} has texts that begin with =, +, - or @, or hold control characters: a spreadsheet would "
        "run them as formulas. Write `texts: spreadsheet` beside `save` (`answer --spreadsheet`), which "
        "changes such texts, import its columns as text, or save as .json"
    )


def _acts(cell: str) -> bool:
    """Return whether a cell is a formula or a control sequence."""
    if _is_number(cell):
        return False
    rest = cell.replace("\n", "").replace("\t", "").replace("\r", "")
    return _FORMULA.search(cell) is not None or _CONTROL.search(rest) is not None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _arrays(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {str(name): _stored(columned(array)) for name, array in value.items()}
    return {"answer": _stored(columned(value))}


def _stored(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array for a file without pickles."""
    if array.dtype != object:
        return array
    held = columned(array.ravel().tolist()).reshape(array.shape)
    if held.dtype != object:
        return held
    return np.array([json.dumps(cell) for cell in array.ravel().tolist()]).reshape(array.shape)


def answer_table(value: Any, labels: tuple[Any, ...] | None) -> tuple[list[str], list[list[Any]]]:
    """Return column names and rows of answers.

    A two-axis column has one name a label. A column called ``label`` holds indices into the public
    labels and is written as the labels.
    """
    columns: dict[str, Any] = {}
    for name, given in (value if isinstance(value, Mapping) else {"answer": value}).items():
        array = columned(given)
        if array.ndim == 2:
            wide = array.shape[1]
            tags = labels if labels is not None and len(labels) == wide else range(wide)
            for place, tag in enumerate(tags):
                columns[name if wide == 1 else f"{name}:{tag}"] = array[:, place]
        elif name == "label" and labels is not None and array.dtype.kind in "iu":
            columns[name] = object_array(labels)[array]
        else:
            columns[name] = np.atleast_1d(array)
    rows = [list(row) for row in zip(*(c.tolist() for c in columns.values()), strict=True)]
    return list(columns), rows


def _named(value: Any, labels: tuple[Any, ...] | None) -> Any:
    if labels is None or not isinstance(value, Mapping):
        return value
    columns = {str(name): columned(given) for name, given in value.items()}
    named = {
        n: object_array(labels)[a] if n == "label" and a.dtype.kind in "iu" else a
        for n, a in columns.items()
    }
    wide = any(a.ndim == 2 and a.shape[1] == len(labels) > 1 for a in columns.values())
    return named | ({"classes": list(labels)} if wide and "classes" not in named else {})


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(_plain, value))
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value
