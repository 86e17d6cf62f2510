"""Provide the package's small, real data sets (``data/README.md``)."""

from __future__ import annotations

from difflib import get_close_matches
from importlib.resources import files

from opendp_sim.core.errors import SpecError
from opendp_sim.core.system.npy import arrays_of
from opendp_sim.domains.records import Column, Records
from opendp_sim.io.protocol import PieceSource, from_arrays

_DIGITS = Records(
    (
        Column("pixels", "array[f32, 64]", bounds=(0.0, 16.0)),
        Column("label", "category", keys=tuple(range(10))),
    )
)
BUILTINS: dict[str, tuple[str, slice, Records]] = {
    "digits": ("digits.npz", slice(0, 1297), _DIGITS),
    "digits_test": ("digits.npz", slice(1297, None), _DIGITS),
}
"""Name to the file, the fixed public part of it, and the type it has by itself."""


def builtin_source(name: str, records: Records | None = None) -> PieceSource:
    """Return a built-in data set, with its own declarations (OS303, OS602)."""
    file, part, own = _lookup(name)
    place = files("opendp_sim.io") / "data" / file
    with place.open("rb") as stream:
        arrays = arrays_of(stream)
    return from_arrays(records or own, {key: array[part] for key, array in arrays.items()})


def _lookup(name: str) -> tuple[str, slice, Records]:
    if name not in BUILTINS:
        near = get_close_matches(str(name), BUILTINS, n=1)
        raise SpecError(
            "OS303", "source.builtin", expected=f"one of {', '.join(BUILTINS)}", got=str(name),
            hint=f"did you mean {near[0]!r}?" if near else "or name a file: {npz: data.npz}.",
        )  # fmt: skip
    return BUILTINS[name]
