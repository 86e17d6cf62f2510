"""Rows: datasets of vectors, with or without public labels, as floats or on an integer grid."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import opendp.prelude as dp
from numpy.typing import NDArray
from opendp.extras.numpy import NPArray2Domain, array2_domain

from opendp_sim.core.errors import DataError
from opendp_sim.core.space import FOREIGN_DOMAINS, Domain
from opendp_sim.spaces.ids import persons

__all__ = ["GridRows", "RealRows", "Rows", "as_rows", "length", "take"]


@dataclass(frozen=True)
class Rows:
    """A block of records: ``values`` (n, d); ``labels`` (n,) indices into the public label set;
    ``ids`` (n,) person identifiers, when the domain says so.

    Frozen, and without slots: OpenDP tries to hang the *input* of a call on its output as an attribute
    and gives up on an ``AttributeError``, which is what a frozen record raises.
    """

    values: NDArray[Any]
    labels: NDArray[np.int64] | None = None
    ids: NDArray[Any] | None = None

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.values)


def as_rows(data: Any) -> Rows:
    """Return ``data`` as ``Rows``; a bare array is rows without labels."""
    return data if isinstance(data, Rows) else Rows(np.asarray(data))


def length(data: Any) -> int:
    """Return the number of records of a block (rows, or a dict of columns)."""
    return len(next(iter(data.values()))) if isinstance(data, dict) else len(data)


def take(data: Any, which: Any) -> Any:
    """Return the records ``which`` (a slice, a mask or indices) of a block."""
    if isinstance(data, Rows):
        labels, ids = (None if p is None else p[which] for p in (data.labels, data.ids))
        return Rows(data.values[which], labels, ids)
    if isinstance(data, dict):
        return {name: column[which] for name, column in data.items()}
    return data[which]


@dataclass(frozen=True)
class _RowDomain(Domain):
    """What real and grid rows share: a width, optional public labels, optional person ids."""

    width: int
    labels: tuple[str | int, ...] | None = None
    ids: bool = False

    def _check_shape(self, rows: Rows) -> None:
        values = rows.values
        if values.ndim != 2 or values.shape[1] != self.width:
            raise self._refuse("OS602", f"an array of shape (n, {self.width})", "another shape")
        if values.dtype.kind not in "fiu":
            raise self._refuse("OS602", "a numeric dtype", "another dtype")
        if (rows.labels is None) != (self.labels is None) or (rows.ids is None) == self.ids:
            raise self._refuse("OS602", "labels and ids as the type says", "another set of parts")
        if rows.labels is not None and self.labels is not None:
            if rows.labels.shape != values.shape[:1] or rows.labels.dtype.kind not in "iu":
                raise self._refuse("OS602", "one integer label a row", "another shape or dtype")
            if rows.labels.size and not (
                rows.labels.min() >= 0 and rows.labels.max() < len(self.labels)
            ):
                raise self._refuse("OS604", "labels among the public keys", "another label")
        if rows.ids is not None and len(persons(rows.ids)) != len(values):
            raise self._refuse("OS602", "one person identifier a row", "another number")

    @staticmethod
    def _refuse(code: str, expected: str, got: str) -> DataError:
        return DataError(
            code, "rows", expected=expected, got=got,
            hint="clean the data before it is read, or declare `ingest: enforce`.",
        )  # fmt: skip


@dataclass(frozen=True)
class RealRows(_RowDomain):
    """Rows of finite floats.

    Args:
        width: number of columns d.
        labels: public label keys, or None.
        ids: whether each row carries a person identifier.
        lower, upper: public bounds, one number for all columns or one a column; empty when none.
        norm: ``("l1" | "l2" | "linf", bound)`` when every row's norm is bounded, else None.
    """

    lower: tuple[float, ...] = ()
    upper: tuple[float, ...] = ()
    norm: tuple[str, float] | None = None
    plain: bool = False

    def check(self, data: Any) -> None:
        """Refuse wrong shapes, NaN and infinities, values out of bounds, foreign labels."""
        rows = as_rows(data)
        self._check_shape(rows)
        if not np.isfinite(rows.values).all():
            raise self._refuse("OS603", "finite values", "NaN or infinity")
        if self.lower and not (
            (rows.values >= np.array(self.lower)).all()
            and (rows.values <= np.array(self.upper)).all()
        ):
            raise self._refuse("OS605", "values within the declared bounds", "a value outside")
        if self.norm is not None:
            order = {"l1": 1, "l2": 2, "linf": np.inf}[self.norm[0]]
            norms = np.linalg.norm(rows.values, ord=order, axis=1)
            if (norms > self.norm[1] * (1 + 1e-12)).any():
                raise self._refuse("OS605", "rows within the declared norm", "a longer row")

    def native(self) -> dp.Domain | None:
        """Return ``array2_domain`` for plain rows, so that native chains start from it."""
        if not self.plain:
            return None
        order: Any = None if self.norm is None else int(self.norm[0][1:])
        norm = None if self.norm is None else self.norm[1]
        return array2_domain(num_columns=self.width, nan=False, T=float, p=order, norm=norm)


@dataclass(frozen=True)
class GridRows(_RowDomain):
    """Rows on an integer grid: integer-valued float64, so that products are exact (``core.grid``).

    Args:
        unit: real value of one integer step (all columns alike).
        lower, upper: integer bounds, one for all columns or one a column.
        l2: an integer bound on every row's L2 norm, in steps, or None.
        distortion: for the image of a random public map, ``(p, relative, lost)``: sums of the p-th
            powers of its distances have this relative deviation, over the draw of the map, from
            those they stand for, and clipping and rounding may move one by ``lost``, in real units.
            Empty for rows that stand for themselves.
    """

    unit: float = 1.0
    lower: tuple[int, ...] = (0,)
    upper: tuple[int, ...] = (0,)
    l2: int | None = None
    distortion: tuple[float, ...] = ()

    @property
    def magnitude(self) -> int:
        """The largest absolute value of a coordinate, in steps."""
        return max(map(abs, (*self.lower, *self.upper)))

    def check(self, data: Any) -> None:
        """Refuse anything that is not float64 integers within the bounds."""
        rows = as_rows(data)
        self._check_shape(rows)
        values = rows.values
        if values.dtype != np.float64:
            raise self._refuse("OS602", "float64", "another dtype")
        if not (np.isfinite(values).all() and (values == np.rint(values)).all()):
            raise self._refuse("OS603", "integers", "another value")
        if not ((values >= self.lower).all() and (values <= self.upper).all()):
            raise self._refuse("OS605", "values within the grid", "a value outside")
        if self.l2 is not None and (np.square(values).sum(axis=1) > float(self.l2) ** 2).any():
            raise self._refuse("OS605", "rows within the norm bound", "a longer row")

    def to_real(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return grid values in real units (for public data and for messages about types)."""
        return values * self.unit


def _read(domain: dp.Domain) -> Domain | None:
    about = getattr(domain, "descriptor", None)
    if not isinstance(about, NPArray2Domain):
        return None
    plain = about.num_columns is not None and about.nan is False and str(about.T) == "f64"
    shifted = about.origin is not None and np.any(about.origin)  # a norm's origin of zeros is none
    other = about.size is not None or shifted or about.cardinalities
    if not plain or about.num_columns is None or other:
        return None
    rows = RealRows(width=about.num_columns, plain=True)
    if about.norm is not None and about.p is not None:
        return replace(rows, norm=(f"l{about.p}", float(about.norm)))
    return rows


FOREIGN_DOMAINS.append(_read)
