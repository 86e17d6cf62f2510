"""Convert raw blocks to the declared types.

Every column by one function. What a single cell becomes depends on that cell alone, never on the rest
of its block, so that a source cut into other blocks is the same source. A cell that cannot be read
becomes NaN in a real column, ``MISSING`` in an integer column, -1 in a category and an empty text in a
text column: the gate then refuses it or drops its record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opendp_sim.core.errors import DataError, SimError
from opendp_sim.domains.category_codes import key_indices
from opendp_sim.domains.cell import MISSING
from opendp_sim.domains.normalise import as_array, normal
from opendp_sim.domains.records import Records
from opendp_sim.io.blocks import Block

__all__ = [
    "ANY",
    "MISSING",
    "check_lengths",
    "conform",
    "key_indices",
    "missing_column",
    "no_arrow_type",
    "unquoted",
]

ANY = "surrogateescape"
"""Any bytes are text, and other bytes another text: one odd cell may not stop the run."""


def conform(raw: Mapping[str, Any], records: Records) -> Block:
    """Return the declared columns of ``raw`` in their dtypes.

    Each where that is safe. A column whose dtype cannot be converted without loss of meaning is handed
    on as it is, for the gate to refuse.

    Raises:
        DataError (OS602): a declared column is missing, or cannot be read, or columns differ in length.
    """
    block = {}
    for column in records.columns:
        if column.name not in raw:
            raise missing_column(column.name)
        with unquoted(column.name):
            held = as_array(raw[column.name])
            if not held.ndim:
                raise missing_column(column.name, "one cell a record")
            block[column.name] = normal(held, column)
    check_lengths(block)
    return block


def check_lengths(block: Mapping[str, Any]) -> None:
    """Refuse columns of several lengths (OS602)."""
    if len({len(values) for values in block.values()}) > 1:
        raise DataError(
            "OS602", "records", expected="columns of one length", got="several lengths",
            hint="every column needs one entry a record.",
        )  # fmt: skip


def missing_column(name: str, expected: str = "the column") -> DataError:
    """Return the refusal of a source without a declared column."""
    return DataError(
        "OS602", f"column {name}", expected=expected, got="no such column in the source",
        hint="name the source's columns in `columns`, or map them in the source's own options; if "
        "another sign than a comma stands between the cells of a .csv, write `delimiter`.",
    )  # fmt: skip


def no_arrow_type(name: str) -> DataError:
    """Return the refusal of a column type that Arrow lacks."""
    return DataError(
        "OS602", f"column {name}", expected="a column of a type that Arrow has", got="another",
        hint="convert it, for example to float64 or text.",
    )  # fmt: skip


@contextmanager
def unquoted(name: str) -> Iterator[None]:
    """Replace a library's error, which could quote a cell (OS602)."""
    try:
        yield
    except (SimError, GeneratorExit, KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException:  # noqa: BLE001 - a panic in Rust is no Exception
        no_arrow_type(name).alone()
