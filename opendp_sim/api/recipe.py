"""Plan one release over one table, which ``apply`` opens."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

import opendp_sim.prelude  # noqa: F401 - fills the catalogue
from opendp_sim.accounting.certificate.certificate import read_certificate
from opendp_sim.core.arithmetic.plain_numbers import python_value
from opendp_sim.core.device import Device
from opendp_sim.core.errors import DataError, ParameterError, SimError, repr_text, scalar_text
from opendp_sim.dsl.builder import Builder
from opendp_sim.dsl.grammar.program import Program
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.run.certificate import certificate_path
from opendp_sim.dsl.run.execute import apply
from opendp_sim.dsl.run.inputs import check_forms
from opendp_sim.dsl.run.overwrite import is_program, maker_of
from opendp_sim.io.columns import stored_as
from opendp_sim.io.file_spec import kind_by_name

# --------------------------------------------------------------------------------------------------
# What recipes are told, by its form: what is of another one is refused by a code (OS101, OS102).


def keys_of(keys: Any) -> list[Any]:
    """Return every label or item in written order, refusing a set's."""
    written = isinstance(keys, Iterable) and not isinstance(keys, str | bytes | Mapping)
    if not written or isinstance(keys, set | frozenset):
        raise ParameterError(
            "OS101", "keys", expected="a list of every label or item that could occur",
            got="a set, which has no order" if isinstance(keys, set | frozenset) else "no list",
            hint='for example keys=["a", "b"]; of a set keys=sorted(found).',
        )  # fmt: skip
    return list(keys)


def check_word(
    name: str, value: Any, kinds: type | tuple[type, ...], expected: str, hint: str
) -> None:
    """Refuse a word that is of none of these types (OS101)."""
    if not isinstance(value, kinds):
        raise ParameterError(
            "OS101", name, expected=expected, got=type(value).__name__[:40], hint=hint
        )


def size_of(given: Any) -> int:
    """Return a public number of records (OS101)."""
    size = python_value(given)
    if type(size) is not int or size < 1:
        raise ParameterError(
            "OS101", "size", expected="a whole number from 1", got=scalar_text(given, 60),
            hint="about how many records there are, from public knowledge, such as 20_000.",
        )  # fmt: skip
    return size


def goal(error: Any, size: Any, of: str | None = None) -> dict[str, Any]:
    """Return a number to be solved from an error (OS101, OS102)."""
    if size is None:
        raise ParameterError(
            "OS102", "error", expected="`error` only beside `size`", got="no `size`",
            hint="about how many records there are, from public knowledge, such as size=20_000.",
        )  # fmt: skip
    return {"error": error, "size": size_of(size)} | ({} if of is None else {"of": of})


def check_privacy_words(unit: Any, ids: Any, ledger: Any, limit: Any) -> None:
    """Refuse privacy words of a wrong form (OS101)."""
    check_word("unit", unit, str, "`row`, or the name of a column", 'unit="visitor".')
    check_word("ids", ids, str, "`str` or `int64`", 'ids="int64".')
    if ledger is not None:
        check_word("ledger", ledger, (str, PathLike), "a file's path", 'ledger="my.ledger".')
    if limit is not None:
        hint = 'limit={"epsilon": 2.0, "delta": 1e-6}.'
        check_word("limit", limit, Mapping, "a budget by name", hint)


def source_of(given: Any) -> dict[str, Any]:
    """Return the source that a path or a mapping names (OS101)."""
    if isinstance(given, Mapping):
        return dict(given)
    kind = kind_by_name(str(given)) if isinstance(given, str | PathLike) else None
    if kind is None:
        raise ParameterError(
            "OS101", "source", expected="a file's path, or a source such as {'csv': 'trips.csv'}",
            got=f"{given!r:.60}" if isinstance(given, str | PathLike) else type(given).__name__[:40],
            hint="name the kind of a file whose ending does not, source={'csv': 'trips.dat'}; a table in "
            "memory goes to `.apply(table)`.",
        )  # fmt: skip
    return {kind: str(given)}


def stem_of(given: Any) -> str:
    """Return the name of a source's file, without its ending."""
    ((kind, place),) = source_of(given).items() if len(source_of(given)) == 1 else [("records", "")]
    file = place.get("file") if isinstance(place, Mapping) else place
    stem = Path(file).name.partition(".")[0] if isinstance(file, str | PathLike) else ""
    return re.sub(r"[^\w-]+", "-", stem).strip("-") or str(kind)


def check_apart(unit: str, columns: Collection[str]) -> None:
    """Refuse a person's identifier among released columns (OS102)."""
    if unit in columns:
        raise ParameterError(
            "OS102",
            "unit",
            expected="a column that names the person, and no other one of the recipe's",
            got=f"{repr_text(unit, 60)}, which is a feature, a label or the item, too",
            hint="name the column of the persons' identifiers; where each row is a person, "
            'leave `unit` out, which is unit="row".',
        )


# --------------------------------------------------------------------------------------------------

DATA = "records"
"""What a recipe calls its table."""
_TEXTS = ("object", "str", "large_string", "<u", ">u", "|s")
"""How the types of columns of texts and of objects begin."""
T = TypeVar("T")


class Recipe(Generic[T]):
    """Hold a plan of one release over one table.

    Read it, then ``apply`` it to the data.

    Args:
        made: what was declared.
        read: makes what ``apply`` returns from what was released; default as it is.
        prepare: makes the table that the program reads of what ``apply`` is given; default as it is.
        note: a line about how the plan was chosen, shown below it.

    Attributes:
        plan: the plan; ``print(recipe.plan.to_yaml())`` shows the spec that it is.
    """

    def __init__(
        self,
        made: Builder,
        read: Callable[[Any], T] | None = None,
        prepare: Callable[[Any], Any] | None = None,
        note: str = "",
    ) -> None:
        self.plan: Plan = made.plan()
        self._made = made
        self._read, self._prepare, self._note = read, prepare, note
        (self._entry,) = self.plan.program.data
        ((self._output, output),) = self.plan.outputs.items()
        self._file = str(output.decl.save)

    def about(self, **words: str) -> Recipe[T]:
        """Return the recipe with words of the section ``about``."""
        return Recipe(self._made.about(**words), self._read, self._prepare, self._note)

    def to_yaml(self) -> str:
        """Return a short spec of equal hash."""
        return self._made.to_yaml()

    def apply(
        self,
        data: Any = None,
        *,
        into: str | PathLike[str] | None = None,
        device: str | Device | None = None,
    ) -> T:
        """Charge any ledger, and release.

        A file and its certificate.

        Args:
            data: a data frame of any library, a dict of columns by name, or an array with the columns
                side by side (``io/frames.py`` lists them); nothing where the recipe names a ``source``.
            into: the folder for both files; default the working folder, or a folder of this program's own
                in it (``density-1a2b3c4d``) where another program's release is there. A ledger's path
                starts from the working folder.
            device: ``cuda`` for sums on a card (extra ``gpu``), with the same bits; default the CPU.

        Raises:
            DataError (OS602): a column is missing, or of another type than declared.
                (OS609): another program's release is in ``into``; nothing was charged.
                BudgetError (OS402): the ledger refuses; nothing ran.
        """
        if into is not None:
            check_word("into", into, (str, PathLike), "a folder", 'apply(table, into="a folder").')
        folder = self._own_folder() if into is None else Path(into)
        memory = self.tables(data)
        check_forms(self.plan, memory)
        if into is not None or folder != Path():  # that one was looked at when it was chosen
            self._check_place(folder / self._file)
        found = apply(self.plan, memory=memory, into=folder, device=device)
        result = found.results[self._output]
        return result if self._read is None else self._read(result)

    def tables(self, data: Any) -> dict[str, Any]:
        """Return the table by its source's name, none of a file (OS101)."""
        named = self._entry.source.kind != "memory"
        if named != (data is None):
            raise ParameterError(
                "OS101", "data", expected="no table beside a `source`" if named else "a table",
                got="a table" if named else "none",
                hint="call .apply() alone, or plan again without `source`." if named
                else 'call .apply(table), or plan with source="trips.csv".',
            )  # fmt: skip
        if named:
            return {}
        data = data if self._prepare is None else self._prepare(data)
        self._check_kinds(data)
        return {DATA: data}

    def _own_folder(self) -> Path:
        """Return the working folder, or one of this program's own in it."""
        program = self.plan.program
        own = Path(f"{program.name}-{program.hash[:8]}")
        return Path() if not own.exists() and self._is_free(Path(self._file)) else own

    def _is_free(self, place: Path) -> bool:
        """Return whether no other program's release is at a place."""
        return not place.exists() or _is_from(self.plan.program, place)

    def _check_place(self, place: Path) -> None:
        """Refuse to replace another program's release."""
        if not self._is_free(place):
            raise DataError(
                "OS609", "into", expected="no file there, or a release of this program to replace",
                got=f"{place}: another one",
                hint="apply(table, into='another folder'), or move the file away with its certificate.",
            )  # fmt: skip

    def _check_kinds(self, table: Any) -> None:
        """Refuse texts and objects for integer identifiers or keys, by type.

        Among objects every text would be missing, and a column of names would cost everybody.
        """
        for column in self._entry.records.columns:
            numbers = bool(column.keys) and not any(isinstance(key, str) for key in column.keys)
            if column.role == "privacy_id":
                numbers = column.dtype == "int64"
            if column.dtype == "str" and _type_of(table, column.name).startswith(("int", "uint")):
                word = "ids" if column.role == "privacy_id" else "items"
                raise DataError(
                    "OS602", f"column {column.name}", expected="texts",
                    got="a column of whole numbers", hint=f'say {word}="int64".',
                )  # fmt: skip
            if numbers and _type_of(table, column.name).startswith(_TEXTS):
                what = "labels" if column.keys else "identifiers"
                raise DataError(
                    "OS602",
                    f"column {column.name}",
                    expected=f"{what} that are whole numbers",
                    got="a column of texts or objects",
                    hint='of whole numbers, `.astype("Int64")`; of texts '
                    + ('say keys=["a", "b"].' if column.keys else 'say ids="str".'),
                )

    def __repr__(self) -> str:
        """Return the plan's promise, errors and cost."""
        return "\n".join(filter(None, (repr(self.plan), self._note)))

    def _repr_html_(self) -> str:
        note = f"<p>{html.escape(self._note)}</p>" if self._note else ""
        return self.plan._repr_html_() + note


def _is_from(program: Program, place: Path) -> bool:
    """Return whether a file is a release of this program."""
    with suppress(SimError):
        if place.suffix == ".npz":
            return maker_of(place) == program.hash
        record, _ = read_certificate(certificate_path(place))
        return is_program(program, record.program, str(place.parent))
    return False


def _type_of(table: Any, name: str) -> str:
    """Return a table's type of a column, in lower case."""
    if isinstance(table, np.ndarray):
        return ""
    known = getattr(table, "column_names", None) or getattr(table, "columns", table)
    if not (isinstance(known, Iterable) and hasattr(table, "__getitem__") and name in known):
        return ""
    held = table[name]
    return stored_as(getattr(held, "dtype", getattr(held, "type", None)))
