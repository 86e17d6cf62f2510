"""Convert descriptors to plain JSON and back by a closed table."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from opendp_sim.core.errors import ReleaseError
from opendp_sim.core.space import Descriptor
from opendp_sim.domains.metrics import IdDistance, Symmetric, VectorNorm
from opendp_sim.domains.records import Column, Records
from opendp_sim.domains.rows import GridRows, RealRows

_KNOWN: dict[str, type[Descriptor]] = {
    cls.__name__: cls for cls in (Records, RealRows, GridRows, Symmetric, IdDistance, VectorNorm)
}


def to_json(descriptor: Descriptor) -> dict[str, Any]:
    """Return ``{class name: fields}``."""
    return {type(descriptor).__name__: asdict(descriptor)}  # type: ignore[call-overload]


def from_json(value: Any) -> Any:
    """Rebuild a descriptor; refuse anything that is not exactly one known descriptor."""
    try:
        ((name, fields),) = value.items()
        cls = _KNOWN[name]
        given = {key: _frozen(field) for key, field in fields.items()}
        if cls is Records:
            columns = (Column(**{k: _frozen(v) for k, v in c.items()}) for c in fields["columns"])
            given = {"columns": tuple(columns)}
        return cls(**given)
    except (AttributeError, KeyError, TypeError, ValueError):
        pass
    raise ReleaseError(
        "OS701", "header", expected=f"one of {', '.join(_KNOWN)}", got="something else",
        hint="the file was not written by this package, or by a newer version of it.",
    )  # fmt: skip


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
