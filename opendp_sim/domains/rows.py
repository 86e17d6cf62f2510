"""Describe datasets of labelled or bare vectors, floats or grid."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core import dp
from opendp_sim.core.errors import DataError
from opendp_sim.core.space import FOREIGN_DOMAINS, Domain
from opendp_sim.domains.frame import Frame, middles_and_units
from opendp_sim.domains.ids import are_numbers, persons, stored_ids
from opendp_sim.domains.normalise import unmasked
from opendp_sim.domains.row_norms import any_longer, norm_slack, row_norms

_CACHED = 2**16
"""Cells that are checked at a time."""


@dataclass(frozen=True)
class Rows:
    """Hold a block of records.

    ``values`` (n, d); ``labels`` (n,) indices into the public label set; ``ids`` (n,) person
    identifiers, when the domain has them.

    Frozen, and without slots: OpenDP tries to hang the *input* of a call on its output as an attribute
    and gives up on an ``AttributeError``, which is what a frozen record raises.
    """

    values: NDArray[Any]
    labels: NDArray[np.int64] | None = None
    ids: NDArray[Any] | None = None

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.values)


@dataclass(frozen=True)
class WithPoints(Rows):
    """Hold public queries with the public ``points`` (m, d)."""

    points: NDArray[Any] | None = None


def with_points(queries: Any, points: Any) -> WithPoints:
    """Return queries on a sketch's input space, if any, with public points."""
    told = as_rows(points).values
    asked = Rows(told[:0]) if queries is None else as_rows(queries)
    return WithPoints(asked.values, asked.labels, asked.ids, told)


def floats_of(data: Any) -> NDArray[np.float64]:
    """Return rows as an array of float64, shape (n, d)."""
    return np.asarray(as_rows(data).values, dtype=np.float64)


def as_rows(data: Any) -> Rows:
    """Return ``data`` as ``Rows``; a bare array is rows without labels."""
    return data if isinstance(data, Rows) else Rows(filled_array(data))


def filled_array(values: Any) -> NDArray[Any]:
    """Return an array, masked entries as NaN, which the domain refuses."""
    array, holes = unmasked(array_of_rows(values))
    return array if holes is None else np.where(holes, np.nan, array)


def array_of_rows(values: Any, code: str = "OS602", where: str = "rows") -> NDArray[Any]:
    """Return rows as an array, or refuse several lengths without counts."""
    with suppress(ValueError, TypeError, OverflowError, RecursionError):
        return values if isinstance(values, np.ndarray) else np.asarray(values)
    raise DataError(
        code, where, expected="rows of one length", got="rows of several lengths, or no numbers",
        hint="pass an array of shape (n, d): one row a record or query, one number a column.",
    )  # fmt: skip


def length(data: Any) -> int:
    """Return the number of records of rows or of columns."""
    return len(next(iter(data.values()))) if isinstance(data, dict) else len(data)


def take(data: Any, which: Any) -> Any:
    """Return records of a block by a slice, mask or indices."""
    if isinstance(data, Rows):
        labels, ids = (None if p is None else p[which] for p in (data.labels, data.ids))
        return Rows(data.values[which], labels, ids)
    if isinstance(data, dict):
        return {name: column[which] for name, column in data.items()}
    return data[which]


@dataclass(frozen=True)
class _RowDomain(Domain):
    """Describe rows by width, optional public labels, optional person ids."""

    width: int
    labels: tuple[str | int, ...] | None = None
    ids: bool = False

    def normal(self, data: Any) -> Rows:
        """Return rows with canonical persons.

        A masked array is refused by its type. OpenDP's own domain takes one whatever is masked, so
        whether a row is must not decide.
        """
        bare = data.values if isinstance(data, Rows) else data
        if isinstance(bare, np.ma.MaskedArray):
            raise self._refuse("OS602", "an array without a mask", "a masked array")
        rows = as_rows(data)
        labels = None if rows.labels is None else np.asarray(np.ma.filled(rows.labels, -1))
        return Rows(
            filled_array(rows.values), labels, None if rows.ids is None else stored_ids(rows.ids)
        )

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
        if rows.ids is not None:
            who = rows.ids if are_numbers(rows.ids) else persons(rows.ids)
            if len(who) != len(values) or (who is not rows.ids and "" in who):
                raise self._refuse("OS602", "one person identifier a row", "another number of them")

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
        plain: whether they are those of OpenDP's own ``array2_domain``.
        lattice: a public number of which every value is an exact multiple, or None.
        frame: where zero is and how long a unit is, in data units (``spaces.frame``); empty for rows
            that were not rescaled.
    """

    lower: tuple[float, ...] = ()
    upper: tuple[float, ...] = ()
    norm: tuple[str, float] | None = None
    plain: bool = False
    lattice: float | None = None
    frame: Frame = ()

    def check(self, data: Any) -> None:
        """Refuse wrong shapes, NaN and infinities, values out of bounds, foreign labels.

        Plain rows may hold infinities: the domain of OpenDP that stands for them admits infinities, and
        every map of plain rows clamps.
        """
        rows = as_rows(data)
        self._check_shape(rows)
        if np.isnan(rows.values).any():
            raise self._refuse("OS603", "finite values", "NaN")
        if not self.plain and np.isinf(rows.values).any():
            raise self._refuse("OS603", "finite values", "NaN or infinity")
        if self.lower and not (
            (rows.values >= np.array(self.lower)).all()
            and (rows.values <= np.array(self.upper)).all()
        ):
            raise self._refuse("OS605", "values within the declared bounds", "a value outside")
        if self.lattice is not None:
            steps = rows.values / self.lattice
            if (steps != np.rint(steps)).any():
                raise self._refuse("OS605", "multiples of the declared step", "a value between")
        if self.norm is not None:
            norms = row_norms(rows.values, self.norm[0])
            if not (norms <= self.norm[1] * norm_slack(self.width)).all():
                raise self._refuse("OS605", "rows within the declared norm", "a longer row")

    def native(self) -> dp.Domain | None:
        """Return ``array2_domain`` for plain rows, so that native chains start from it."""
        if not self.plain:
            return None
        from opendp.extras.numpy import array2_domain  # noqa: PLC0415 - loads polars where it is

        order: Any = None if self.norm is None else int(self.norm[0][1:])
        norm = None if self.norm is None else self.norm[1]
        return array2_domain(num_columns=self.width, nan=False, T=float, p=order, norm=norm)


@dataclass(frozen=True)
class GridRows(_RowDomain):
    """Describe rows on an integer grid.

    Values are integer-valued float64, so that products are exact (``core.grid``).

    Args:
        unit: real value of one integer step (all columns alike).
        lower, upper: integer bounds, one for all columns or one a column.
        l2: an integer bound on every row's L2 norm, in steps, or None.
        distortion: for the image of a random public map, ``(p, relative, lost)``: sums of the p-th
            powers of its distances have this relative deviation, over the draw of the map, from
            those they stand for, and clipping and rounding may move one by ``lost``, in real units.
            Empty for rows that stand for themselves.
        frame: as in ``RealRows``; empty for rows that were not rescaled, or stand for no columns.
        rounding: by how much of a step, at most, rounding to the grid has moved a coordinate; in root
            mean square over the columns behind a projection; 0 for rows that were on the grid before.
    """

    unit: float = 1.0
    lower: tuple[int, ...] = (0,)
    upper: tuple[int, ...] = (0,)
    l2: int | None = None
    distortion: tuple[float, ...] = ()
    frame: Frame = ()
    rounding: float = 0.0

    @property
    def magnitude(self) -> int:
        """The largest absolute value of a coordinate, in steps."""
        return max(map(abs, (*self.lower, *self.upper)))

    def moved(self, distance: str) -> float:
        """Return how far rounding moves record and query apart (real units).

        Sums over d columns (``l1``) are at most sqrt(d) times the L2 norm (``l2``).
        """
        steps = self.width if distance == "l1" else math.sqrt(self.width)
        return 2.0 * self.rounding * self.unit * steps

    def check(self, data: Any) -> None:
        """Refuse anything that is not float64 integers within the bounds."""
        rows = as_rows(data)
        self._check_shape(rows)
        values = rows.values
        if values.dtype != np.float64:
            raise self._refuse("OS602", "float64", "another dtype")
        if not all((np.isfinite(part) & (part == np.rint(part))).all() for part in _parts(values)):
            raise self._refuse("OS603", "integers", "another value")
        lower, upper = np.asarray(self.lower), np.asarray(self.upper)
        if not all(((part >= lower) & (part <= upper)).all() for part in _parts(values)):
            raise self._refuse("OS605", "values within the grid", "a value outside")
        if (
            self.l2 is not None
            and self.l2**2 < self.width * self.magnitude**2
            and any_longer(values, self.l2)
        ):
            raise self._refuse("OS605", "rows within the norm bound", "a longer row")

    def to_data(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return public points (m, d), in steps, in the data's units."""
        middles, units = middles_and_units(self.frame, self.width)
        return values * (units * self.unit) + middles


def _parts(values: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Cut rows into parts that stay in the cache."""
    step = max(1, _CACHED // max(1, values.shape[1]))
    return (values[at : at + step] for at in range(0, len(values), step))


def _read(domain: dp.Domain) -> Domain | None:
    if "opendp.extras.numpy" not in sys.modules:
        return None  # nobody has made a domain of it
    from opendp.extras.numpy import NPArray2Domain  # noqa: PLC0415 - loads polars where it is

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
