"""Restrict a curator's changes to persons' records while serving."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.errors import DataError, SpaceError
from opendp_sim.domains.ids import pack_ids, persons, unpack_ids
from opendp_sim.domains.rows import GridRows, Rows, as_rows, take
from opendp_sim.io.origin import origin_of
from opendp_sim.measurements.knn._impl.pool import Pool
from opendp_sim.measurements.knn._impl.privacy_filter import IndividualFilter
from opendp_sim.measurements.knn._impl.service import Payload, Service, Store, unreadable
from opendp_sim.measurements.knn._impl.stored import Owners, kept_records

_Owned = tuple[Rows, NDArray[np.int64]]
"""Records, and the purse of each."""


class FixedRecords(Service):
    """A service whose records stay as they are."""

    def insert(self, rows: Rows) -> None:
        """Refuse records, since only ``ind_knn`` has lasting purses (OS201)."""
        del rows
        raise self._fixed_records()

    def relabel(self, rows: Rows) -> None:
        """Refuse records, as ``insert`` does."""
        del rows
        raise self._fixed_records()

    def delete(self, ids: Any) -> None:
        """Refuse to delete, as ``insert`` refuses."""
        del ids
        raise self._fixed_records()

    def _fixed_records(self) -> SpaceError:
        return SpaceError(
            "OS201", self._setting.key, expected="a mechanism whose records may change: ind_knn",
            got="one with fixed records", hint="start a new store with the records as they are now.",
        )  # fmt: skip


class ChangingRecords(Service):
    """Let persons' records change while their purses stay.

    Args:
        setting: the mechanism record (``IndKnn``).
        domain: the grid of the rows.
        data: the first records.
        store: keeps charges and updates durable; nothing for a service that lives in memory only.
        purses: none yet; a person who was never met gets one.
    """

    def __init__(
        self,
        setting: Any,
        domain: GridRows,
        data: Rows,
        store: Store | None,
        purses: IndividualFilter,
    ) -> None:
        super().__init__(setting, domain, store)
        self._private = origin_of(data.values)
        self._owners = Owners(data.ids)
        self._purses = purses
        self._waiting: list[_Owned] | None = [(data, self._meet(data))]
        self._pool: Pool | None = None

    def insert(self, rows: Rows) -> None:
        """Add records of persons, with the purses of known ones."""
        with self._alone():
            self._updatable(rows)
            self._guard(lambda: self._insert(rows, "insert"))

    def relabel(self, rows: Rows) -> None:
        """Replace the records of the persons in ``rows``."""
        with self._alone():
            self._updatable(rows)
            self._guard(lambda: self._insert(rows, "relabel"))

    def delete(self, ids: Any) -> None:
        """Remove all records of some persons, free, immediate and silent."""
        if not self._domain.ids:
            raise _no_ids(self._setting.key)
        who = persons(ids)
        with self._alone():
            if not self._owners.fit(who):
                raise _other_ids(self._setting.key)
            self._guard(lambda: self._delete(who))

    def _updatable(self, rows: Rows) -> None:
        if not self._domain.ids:
            raise _no_ids(self._setting.key)
        self._domain.check(as_rows(rows))
        if not self._owners.fit(persons(rows.ids)):
            raise _other_ids(self._setting.key)

    def _insert(self, rows: Rows, kind: str) -> None:
        payload: dict[str, NDArray[Any]] = {
            "values": rows.values,
            "labels": np.asarray(rows.labels),
            "ids": pack_ids(rows.ids),
        }
        self._apply(kind, payload)
        self._keep(kind, payload)

    def _delete(self, ids: list[Any]) -> None:
        payload = {"ids": pack_ids(ids)}
        self._apply("delete", payload)
        self._keep("delete", payload)

    def _apply(self, kind: str, payload: Payload) -> None:
        ids = unpack_ids(payload["ids"])
        if kind in ("delete", "relabel"):
            gone = self._owners.known(ids)
            if self._pool is not None:
                self._pool.remove(gone)
            else:
                self._waiting = [_without(*each, gone) for each in self._waiting or ()]
        if kind in ("insert", "relabel"):
            rows = kept_records(self._domain, payload)
            self._join(rows, self._meet(rows))

    def _purses_now(self) -> NDArray[np.int64]:
        return self._purses.snapshot()

    def _spend_all(self) -> NDArray[np.int64]:
        self._purses.retire()
        return self._purses.snapshot()

    def _meet(self, rows: Rows) -> NDArray[np.int64]:
        """Return the purse of each record, new for new persons."""
        if rows.ids is None:
            return self._purses.open(len(rows))
        before, owners = self._owners.count, self._owners.meet(rows.ids)
        self._purses.open(self._owners.count - before)
        return owners

    def _join(self, rows: Rows, owners: NDArray[np.int64]) -> None:
        if self._pool is None:
            self._waiting = [*(self._waiting or []), (rows, owners)]
            return
        if rows.labels is None:
            raise unreadable()
        self._pool.add(rows.values, rows.labels, owners)


def _without(rows: Rows, owners: NDArray[np.int64], gone: NDArray[np.int64]) -> _Owned:
    keep = ~np.isin(owners, gone)
    return cast("Rows", take(rows, keep)), owners[keep]


def _other_ids(key: str) -> DataError:
    return DataError(
        "OS607", key, expected="ids of the kind that the dataset has", got="the other kind",
        hint="5 and '5' are two persons: give integers where the column is int64, texts where str.",
    )  # fmt: skip


def _no_ids(key: str) -> DataError:
    return DataError(
        "OS607", key, expected="records that name their person", got="records without ids",
        hint="give a column `role: privacy_id`: a lifetime budget needs to know whose it is.",
    )  # fmt: skip
