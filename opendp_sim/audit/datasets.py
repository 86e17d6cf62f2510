"""Datasets of a domain as a sequence of records: how to take one apart and put one together.

``records_of(domain)`` reads OpenDP's own domains; a plugin's domain is taught with ``@teach``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from opendp.extras.numpy import NPArray2Domain

from opendp_sim.audit.atoms import Source, atom_source, option_source
from opendp_sim.audit.guessed import guessed_source
from opendp_sim.core import dp
from opendp_sim.core.errors import AuditError

__all__ = ["Records", "atom_of", "quiet", "records_of", "teach"]


@dataclass(frozen=True)
class Records:
    """A dataset is ``build(records)``; ``split`` takes it apart again."""

    source: Source
    build: Callable[[Sequence[Any]], Any]
    split: Callable[[Any], list[Any]]
    size: int | None = None
    """Number of records when it is public."""


_TAUGHT: dict[type, Callable[[Any], Records]] = {}


def teach(descriptor: type) -> Callable[[Callable[[Any], Records]], Callable[[Any], Records]]:
    """Register how datasets of an extrinsic domain, known by its descriptor's class, are made."""

    def keep(reader: Callable[[Any], Records]) -> Callable[[Any], Records]:
        _TAUGHT[descriptor] = reader
        return reader

    return keep


def quiet(member: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return a domain's membership test; what it raises is a no, without OpenDP's warning."""

    def asked(value: Any) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return bool(member(value))
            except Exception:  # noqa: BLE001 - whatever a user's test raises
                return False

    return asked


def _inner(domain: dp.VectorDomain) -> dp.Domain:
    """Return the domain of an entry; OpenDP 0.16 cannot say it for vectors of options."""
    try:
        return domain.element_domain
    except dp.OpenDPException:
        raise AuditError(
            "OS501",
            "audit.datasets",
            expected="a vector whose entries OpenDP can describe",
            got=str(domain),
            hint="pass generator= (a numpy Generator to a dataset) for this domain.",
        ) from None


def records_of(domain: dp.Domain) -> Records:
    """Return how datasets of this domain are made of records.

    Raises:
        AuditError: OS501, nothing is known about such a domain.
    """
    if isinstance(domain, dp.VectorDomain):
        return Records(_element(_inner(domain)), list, list, domain.size)
    descriptor = getattr(domain, "descriptor", None)
    for kind in type(descriptor).__mro__:
        if kind in _TAUGHT:
            return _TAUGHT[kind](descriptor)
    member = quiet(domain.member)
    found = guessed_source(lambda record: member([record])) if member([]) else None
    if found is not None:  # a list of records, by the domain's own word
        return Records(found, list, list)
    raise AuditError(
        "OS501",
        "audit.datasets",
        expected="a vector, a numpy array2 or a taught domain",
        got=type(domain).__name__,
        hint="pass generator= (a numpy Generator to a dataset), or teach the descriptor's class.",
    )


def atom_of(domain: dp.Domain) -> Source:
    """Return the values of a scalar domain."""
    return _element(domain)


def _element(domain: dp.Domain) -> Source:
    if isinstance(domain, dp.OptionDomain):
        return option_source(_element(domain.element_domain))
    if not isinstance(domain, dp.AtomDomain):
        found = guessed_source(quiet(domain.member))
        if found is not None:
            return found
    return atom_source(domain)


@teach(NPArray2Domain)
def _array2(descriptor: Any) -> Records:
    """Rows of a numpy array, scaled into the norm ball where the domain has one."""
    width = descriptor.num_columns or 2
    dtype = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64}.get(
        str(descriptor.T), np.float64
    )
    integral = np.issubdtype(dtype, np.integer)
    norm, order = descriptor.norm, descriptor.p
    origin = 0.0 if descriptor.origin is None else np.asarray(descriptor.origin)
    reach = norm if norm is not None else 8.0

    def inside(row: Any) -> Any:
        length = np.linalg.norm(row, ord=order) if norm is not None else 0.0
        scaled = row * (norm / length * (1 - 1e-12)) if norm is not None and length > norm else row
        return (np.trunc(scaled) if integral else scaled + origin).astype(dtype)

    def draw(rng: np.random.Generator) -> Any:
        if descriptor.cardinalities is not None:
            return np.array([rng.integers(c) for c in descriptor.cardinalities], dtype=dtype)
        kind = rng.integers(3)
        if kind == 0:
            row = np.zeros(width)
            row[rng.integers(width)] = reach * (1 if rng.random() < 0.5 else -1)
        elif kind == 1:
            row = rng.normal(size=width) * reach
        else:
            row = rng.integers(-2, 3, size=width) * (reach / 2)
        return inside(row)

    def build(rows: Sequence[Any]) -> Any:
        return np.array(rows, dtype=dtype).reshape(len(rows), width)

    axis = np.eye(1, width)[0]
    ball = (np.zeros(width), reach * axis, -reach * axis, np.full(width, reach))
    corners = [*map(inside, ball), *_unbounded(descriptor, width, dtype)]
    if descriptor.cardinalities is not None:
        corners = [np.zeros(width, dtype=dtype)]
    return Records(Source(tuple(corners), draw, corners[0]), build, list, descriptor.size)


def _unbounded(descriptor: Any, width: int, dtype: Any) -> list[Any]:
    """Return rows of very large, very small and missing floats, where the domain has them."""
    if descriptor.norm is not None or np.issubdtype(dtype, np.integer):
        return []
    values = (1e8 + 0.5, -1e16, 1e-300, *((np.nan,) if descriptor.nan else ()))
    return [np.full(width, v, dtype=dtype) for v in values]
