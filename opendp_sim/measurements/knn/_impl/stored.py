"""Read stored state as strictly as a foreign file.

The chain of a store finds edits unless every hash was computed anew (``accounting/session/store.md``).
Then what the rows hold is checked here: an array that no service wrote is a damaged store (OS407),
never a failure inside a mechanism, which would empty every purse.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.accounting.session._encoding import Payload
from opendp_sim.accounting.session.identity import damaged
from opendp_sim.core.errors import BudgetError, SimError
from opendp_sim.domains.ids import persons, unpack_ids
from opendp_sim.domains.rows import GridRows, Rows, as_rows
from opendp_sim.measurements.knn._impl.features import grid_queries

# --------------------------------------------------------------------------------------------------
# Which purse pays for a record: that of its person id, for life; without ids, a purse of its own.


class Owners:
    """Map person ids, as secret as the dataset, to purse numbers.

    Two ids share a purse exactly when they are equal: ``"1"`` and ``1`` are two persons, and so are
    texts that differ in a trailing NUL. The dtype of the first records' ``ids`` (n,) says of what kind
    all are; None when each record is its own person. Nobody is entered yet (``meet``).
    """

    def __init__(self, ids: NDArray[Any] | None) -> None:
        self._places: defaultdict[Any, int] = defaultdict()
        self.count = 0
        self._kind: type | None = None
        if ids is not None:
            self._kind = int if np.asarray(ids).dtype.kind in "iu" else str

    def __repr__(self) -> str:
        """Nothing that depends on data."""
        return "Owners(secret)"

    def fit(self, ids: list[Any]) -> bool:
        """Return whether ids have the first records' declared kind.

        Public: int64 holds integers and objects hold texts, also where there is no record.
        """
        return not ids or self._kind is None or isinstance(ids[0], self._kind)

    def meet(self, ids: Any) -> NDArray[np.int64]:
        """Enter new persons, returning each record's purse, shape (n,)."""
        people, known = persons(ids), self._places
        known.default_factory = known.__len__  # who is looked up and not there is entered: one pass
        try:
            return np.fromiter(map(known.__getitem__, people), np.int64, len(people))
        finally:
            known.default_factory = None
            self.count = len(known)

    def known(self, ids: Any) -> NDArray[np.int64]:
        """Return the purses of those ids that were met before."""
        found = [self._places[person] for person in persons(ids) if person in self._places]
        return np.array(found, dtype=np.int64)


# --------------------------------------------------------------------------------------------------

_MOST = 2.0**62


@contextmanager
def replaying() -> Iterator[None]:
    """Refuse a store with entries that cannot be brought back (OS407)."""
    try:
        yield
    except BudgetError:
        raise
    except (SimError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError):
        failed = True  # outside the handler: no context whose frames hold data
    else:
        failed = False
    if failed:
        raise damaged()


def kept_queries(domain: GridRows, payload: Payload) -> NDArray[np.float64]:
    """Return the public queries of an entry."""
    return grid_queries(domain, payload["rows"])


def kept_reference(domain: GridRows, payload: Payload) -> NDArray[np.float64]:
    """Return the public queries that fixed the reference."""
    queries = kept_queries(domain, payload)
    if len(queries) < 2:
        raise damaged()
    return queries


def kept_labels(domain: GridRows, labels: NDArray[Any]) -> NDArray[np.int64]:
    """Return numbers of classes, shape (m,)."""
    classes = len(domain.labels or ())
    good = labels.ndim == 1 and labels.dtype.kind in "iu"
    if not good or (labels.size and not 0 <= labels.min() <= labels.max() < classes):
        raise damaged()
    return labels.astype(np.int64)


def kept_ids(owners: Owners, payload: Payload) -> NDArray[Any]:
    """Return persons, of the kind that was let in."""
    ids = unpack_ids(payload["ids"])
    if not owners.fit(persons(ids)):
        raise damaged()
    return ids


def kept_labelled(
    domain: GridRows, payload: Payload
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return public queries and the class that each was given."""
    queries, labels = kept_queries(domain, payload), kept_labels(domain, payload["labels"])
    if len(labels) != len(queries):
        raise damaged()
    return queries, labels


def kept_records(domain: GridRows, payload: Payload) -> Rows:
    """Return records that a curator sent."""
    rows = Rows(payload["values"], payload["labels"], unpack_ids(payload["ids"]))
    kept_labels(domain, payload["labels"])
    domain.check(as_rows(rows))
    return rows


def kept_answers(
    domain: GridRows, payload: Payload
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return queries (m, d), their votes (m, L) and deviations (m,)."""
    queries = kept_queries(domain, payload)
    votes, deviations = payload["votes"], payload["deviations"]
    size = len(queries)
    good = votes.shape == (size, len(domain.labels or ())) and deviations.shape == (size,)
    good = good and votes.dtype.kind == deviations.dtype.kind == "f"
    if not good or not (votes < _MOST).all() or not ((deviations > 0) & (deviations < _MOST)).all():
        raise damaged()
    return queries, votes, deviations


def kept_predictions(
    domain: GridRows, payload: Payload
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.float64], NDArray[np.float64]]:
    """Return published labels, counts, votes and deviations."""
    labels = kept_labels(domain, payload["labels"])
    counts, votes, deviations = (payload[name] for name in ("counts", "votes", "deviations"))
    good = votes.shape == (len(labels), len(domain.labels or ()))
    good = good and counts.shape == deviations.shape == labels.shape
    good = good and votes.dtype.kind == deviations.dtype.kind == "f" and counts.dtype.kind in "if"
    if not good:
        raise damaged()
    return labels, counts, votes, deviations


def kept_cells(domain: GridRows, payload: Payload) -> tuple[float, NDArray[np.int64]]:
    """Return released class means' scale and cells (L, d + 1)."""
    scale, cells = float(payload["scale"]), payload["cells"]
    good = cells.shape == (len(domain.labels or ()), domain.width + 1) and cells.dtype.kind == "i"
    if not good or not 0 < scale < _MOST or (np.abs(cells) >= 2**53).any():
        raise damaged()
    return scale, cells
