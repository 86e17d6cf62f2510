"""Take datasets of a domain apart into records, and build them.

``records_of(domain)`` reads OpenDP's own domains; a plugin's domain is taught with ``@teach``.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from opendp.extras.numpy import NPArray2Domain

from opendp_sim.audit.generators.atoms import ValueSource, atom_source, option_source
from opendp_sim.audit.generators.frames import frame_rows, is_frame
from opendp_sim.core import dp
from opendp_sim.core.errors import AuditError

# --------------------------------------------------------------------------------------------------
# Records of a domain that only says whether a value is a member: their shape is found by asking.
#
# OpenDP's ``user_domain`` has a membership test and nothing else. Plain values and short tuples and lists
# of them are tried; what is a member is a record.

_POOLS: tuple[tuple[Any, ...], ...] = (
    (1, 0, 2, -1, 5, -5, 10, 100, -100, 1000),
    (1.0, 0.0, 0.5, -1.0, 10.0, -10.0, 100.0, -100.0),
    ("a", "b", "", "c", "1"),
    (True, False),
)
"""Values of each kind, likely members first."""
_LONGEST, _SHAPES, _CORNERS, _TRIES, _ASKED = 4, 3, 40, 20, 3
_FORMS: tuple[Callable[[Any], Any], ...] = (tuple, list)


def guessed_source(member: Callable[[Any], bool]) -> ValueSource | None:
    """Return records for which the test holds; ``None`` when none was found."""
    makers = list(itertools.islice(_shapes(member), _SHAPES))
    if not makers:
        return None
    corners = [record for make, pools in makers for record in _corners(make, pools, member)]
    simplest = corners[0]

    def draw(rng: np.random.Generator) -> Any:
        for _ in range(_TRIES):
            make, pools = makers[int(rng.integers(len(makers)))]
            record = make([pool[int(rng.integers(len(pool)))] for pool in pools])
            if member(record):
                return record
        return simplest

    return ValueSource(tuple(corners[:_CORNERS]), draw, simplest)


_Pools = tuple[tuple[Any, ...], ...]


def _shapes(member: Callable[[Any], bool]) -> Iterator[tuple[Callable[[Any], Any], _Pools]]:
    """Yield constructors of records, with the values of each place."""
    for pool in _POOLS:
        if any(member(value) for value in pool[:_ASKED]):
            yield (lambda parts: parts[0]), (pool,)
    for length in range(1, _LONGEST + 1):
        for pools in itertools.product(_POOLS, repeat=length):
            for form in _FORMS:
                tries = [form([pool[k % len(pool)] for pool in pools]) for k in range(_ASKED)]
                if any(member(record) for record in tries):
                    yield form, pools


def _corners(
    make: Callable[[Any], Any], pools: _Pools, member: Callable[[Any], bool]
) -> Iterator[Any]:
    """Yield records that differ from the first in one place or all."""
    middle = [pool[0] for pool in pools]
    wanted = [middle]
    for place, pool in enumerate(pools):
        wanted += [[*middle[:place], value, *middle[place + 1 :]] for value in pool]
    wanted += [[pool[k % len(pool)] for pool in pools] for k in range(max(map(len, pools)))]
    yield from (record for record in map(make, wanted) if member(record))


# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DatasetRecords:
    """A dataset is ``build(records)``; ``split`` takes it apart again."""

    source: ValueSource
    build: Callable[[Sequence[Any]], Any]
    split: Callable[[Any], list[Any]]
    size: int | None = None
    """Number of records when it is public."""
    plain: bool = False
    """Whether records are Python values, which the grammar of the code may vary."""
    mend: Callable[[Sequence[Any], Sequence[Any]], list[Any]] | None = None
    """The nearest right side that a base is allowed to have."""


_TAUGHT: dict[type, Callable[[Any], DatasetRecords]] = {}


def teach(
    descriptor: type,
) -> Callable[[Callable[[Any], DatasetRecords]], Callable[[Any], DatasetRecords]]:
    """Register a builder of datasets for a descriptor's class of domain."""

    def keep(reader: Callable[[Any], DatasetRecords]) -> Callable[[Any], DatasetRecords]:
        _TAUGHT[descriptor] = reader
        return reader

    return keep


def quiet(member: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return a domain's membership test, where an exception is a no."""

    def asked(value: Any) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return bool(member(value))
            except Exception:  # noqa: BLE001 - whatever a user's test raises
                return False

    return asked


def _inner(domain: dp.VectorDomain) -> dp.Domain:
    """Return the domain of an entry."""
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


def records_of(domain: dp.Domain) -> DatasetRecords:
    """Return how datasets of this domain are made of records.

    Raises:
        AuditError: OS501, nothing is known about such a domain.
    """
    if isinstance(domain, dp.VectorDomain):
        return DatasetRecords(_element(_inner(domain)), list, list, domain.size, plain=True)
    if is_frame(domain):
        return DatasetRecords(*frame_rows(domain), plain=True)
    descriptor = getattr(domain, "descriptor", None)
    for kind in type(descriptor).__mro__:
        if kind in _TAUGHT:
            return _TAUGHT[kind](descriptor)
    member = quiet(domain.member)
    found = guessed_source(lambda record: member([record])) if member([]) else None
    if found is not None:  # a list of records, by the domain's own word
        return DatasetRecords(found, list, list, plain=True)
    raise AuditError(
        "OS501",
        "audit.datasets",
        expected="a vector, a numpy array2 or a taught domain",
        got=type(domain).__name__,
        hint="pass generator= (a numpy Generator to a dataset), or teach the descriptor's class.",
    )


def atom_of(domain: dp.Domain) -> ValueSource:
    """Return the values of a scalar domain."""
    return _element(domain)


def _element(domain: dp.Domain) -> ValueSource:
    if isinstance(domain, dp.OptionDomain):
        return option_source(_element(domain.element_domain))
    if not isinstance(domain, dp.AtomDomain):
        found = guessed_source(quiet(domain.member))
        if found is not None:
            return found
    return atom_source(domain)


@teach(NPArray2Domain)
def _array2(descriptor: Any) -> DatasetRecords:
    """Return a builder of numpy rows, scaled into the norm ball."""
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
    return DatasetRecords(
        ValueSource(tuple(corners), draw, corners[0]), build, list, descriptor.size
    )


def _unbounded(descriptor: Any, width: int, dtype: Any) -> list[Any]:
    """Return rows of huge, tiny and missing floats in the domain."""
    if descriptor.norm is not None or np.issubdtype(dtype, np.integer):
        return []
    values = (1e8 + 0.5, -1e16, 1e-300, *((np.nan,) if descriptor.nan else ()))
    return [np.full(width, v, dtype=dtype) for v in values]
