"""Serve an interactive release across processes, with stored purses and transcript."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from opendp_sim.accounting.ledger._durable import Closing
from opendp_sim.accounting.session.identity import StorePlace
from opendp_sim.accounting.session.postgres import store_at
from opendp_sim.core.claims import Interactive, Stable, Stage
from opendp_sim.core.errors import BudgetError, DataError, SpaceError
from opendp_sim.core.guard import guarded
from opendp_sim.core.pipeline import on_queries, resolve
from opendp_sim.core.randomness import fingerprint
from opendp_sim.core.system.event_log import log_event
from opendp_sim.domains.ids import pack_ids, persons
from opendp_sim.domains.metrics import IdDistance
from opendp_sim.domains.records import Records
from opendp_sim.domains.rows import Rows
from opendp_sim.io.fold import collect_rows


class Session(Closing):
    """Answer questions to a private dataset, each charged before its answer.

    A context manager. ``ask``, ``refer`` are for analysts; ``insert``, ``relabel`` and ``delete`` are
    for whoever keeps the data. Records and queries are given as the source has them: they go
    through the same row maps. Where a row map surveys the data (``bound_contributions``), the
    session takes no new records: ``insert`` and ``relabel`` are refused (OS201). Threads may share a
    session: their calls come one after another. A fork is refused (OS407). No ledger is asked: each
    new store is a budget of its own, as is a copy of one (``dsl.serve`` charges a spec's ledger and
    refuses copies; ``store.md``). After an interruption or a full disk, open it again.

    Args:
        stages: row maps and, last, an interactive mechanism (``core.pipeline.bind_steps``).
        blocks: opens the dataset afresh.
        path: the store, a file or ``postgresql:SERVICE/STORE``; made if it does not exist.
        name: what a ledger calls a new store (``dsl.serve`` charges it under this name).
        place: the store's place, where that is locked already.

    Raises:
        SpaceError (OS201): the last stage cannot be resumed. BudgetError (OS407): the store is open
            elsewhere, damaged, or was started with something else.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        blocks: Callable[[], Iterable[Any]],
        path: str | Path,
        name: str | None = None,
        place: StorePlace | None = None,
    ) -> None:
        claim = stages[-1].claim if stages else None
        if not isinstance(claim, Interactive) or claim.resume is None:
            raise SpaceError(
                "OS201", "session", expected="a mechanism that can be resumed, such as ind_knn",
                got="another one", hint="see `opendp-sim explain ind_knn`.",
            )  # fmt: skip
        self._maps = tuple(stages[:-1])
        self._ids = _kind_of_ids(stages[0])
        self._owner, self._open = os.getpid(), True
        self.lock = threading.RLock()  # calls come one after another
        resume, key = claim.resume, stages[-1].mechanism.key
        rows = guarded(lambda _: collect_rows(self._maps, blocks), key)(None)
        guarded(stages[-1].domain.check, key)(rows)
        identity = guarded(lambda r: _identity(stages, r), key)(rows)
        forgets = bool(getattr(stages[-1].mechanism, "forgets_answers", False))
        self._store = store_at(path, identity, name, forgets=forgets, place=place)
        try:
            self._service = guarded(lambda r: resume(r, self._store), key)(rows)
        except BaseException:
            self._store.close()
            raise

    def __repr__(self) -> str:
        """The place of the store, and nothing that is inside."""
        return f"Session({self._store!r})"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse copies and pickles (OS407)."""
        raise BudgetError(
            "OS407", "session", expected="one object for an open session", got="a copy of it",
            hint="hand questions to the session itself; another process opens the store when this one "
            "has closed it.",
        )  # fmt: skip

    def close(self) -> None:
        """Close the store if it is open; in a fork, do nothing."""
        if os.getpid() == self._owner:
            with self.lock:
                self._open = False
                self._store.close()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Lock the session for one call, or refuse it (OS407)."""
        if os.getpid() != self._owner:  # another thread's lock would be held there for ever
            raise BudgetError(
                "OS407", "session", expected="the process that opened the session", got="a fork of it",
                hint="ask in the process that opened it; the session stays open there.",
            )  # fmt: skip
        with self.lock:
            if not self._open:
                raise BudgetError(
                    "OS407", "session", expected="an open session", got="one that was closed",
                    hint="open the session again; what was answered stands.",
                )  # fmt: skip
            yield

    def keep(self, release: Callable[[], None]) -> None:
        """Call ``release`` when the store is closed, after it."""
        self._store.keep(release)

    def take_turn(self, name: str, last: str, ledger: str = "") -> str:
        """Mark the store as opened, and return the mark for the ledger."""
        with self._turn():
            return self._store.take_turn(name, last, ledger)

    def tell(self) -> tuple[int, str]:
        """Return the last entry's place and hash, for a ledger."""
        with self._turn():
            return self._store.tell()

    def check_head(self, place: int, digest: str, ended: bool = False) -> None:
        """Refuse a store without its ledger's entry, or beyond its end (OS407)."""
        with self._turn():
            self._store.check_head(place, digest, ended)

    @property
    def answered(self) -> int:
        """Return the number of answered queries, which is public."""
        with self._turn():
            return self._store.answered

    def ask(self, queries: Any, *, key: str | None = None, caller: str = "") -> Any:
        """Answer public queries in order, all charged before the first answer.

        Args:
            queries: as the source has records.
            key: a name for this question, of 1 to 200 characters; the same key gets the same answer at no
                cost, also after a crash, as long as the store keeps it: 4,096 entries at least.
            caller: whose keys they are: two callers never see each other's.

        Raises:
            BudgetError (OS408): the key was used for another question; nothing was charged.
        """
        with self._turn(), np.errstate(all="ignore"):  # public numbers, however large
            rows = on_queries(self._maps, queries)
            if key is None:
                answers = self._service.predict(rows)
            else:
                answers = self._service.predict_once(rows, _digest(key, caller))
            log_event("%r: queries are charged and answered", self)  # the store may fail by now
            return answers

    def refer(self, queries: Any) -> bool:
        """Say what public queries look like, before the first question."""
        with self._turn(), np.errstate(all="ignore"):
            return bool(self._service.refer(on_queries(self._maps, queries)))

    def insert(self, records: Any) -> None:
        """Add records; a person who was here before keeps their purse."""
        with self._turn():
            self._service.insert(self._rows(records))

    def relabel(self, records: Any) -> None:
        """Replace all records of the persons in ``records`` by these."""
        with self._turn():
            self._service.relabel(self._rows(records))

    def delete(self, ids: Any) -> None:
        """Remove all records of some persons, free and at once.

        Args:
            ids: integers or texts, of the kind that the person's column declares.

        Raises:
            DataError (OS607): ids of the other kind, whether or not anybody was ever met.
        """
        with self._turn():
            if self._ids is not None:
                _refuse_other_kind(persons(ids), self._ids)
            self._service.delete(ids)

    def _rows(self, records: Any) -> Any:
        """Apply the row maps, which depend on no earlier record."""
        surveys = [
            stage.mechanism.key
            for stage in self._maps
            if isinstance(stage.claim, Stable) and stage.claim.survey is not None
        ]
        if surveys:
            # What such a map keeps was decided over all records at once; new ones judged by
            # themselves would come on top of what their person already has.
            raise SpaceError(
                "OS201", "session", expected="row maps that look at one record at a time",
                got=surveys[0], hint="bound contributions before the source, or start a new store "
                "with all records; questions and `delete` work as they are.",
            )  # fmt: skip
        if self._maps:
            records = self._maps[0].domain.normal(records)
            self._maps[0].domain.check(records)
        return resolve(self._maps, lambda: ())(records)


def _digest(key: Any, caller: Any) -> bytes:
    """Return a key's digest, another one for each caller (OS607)."""
    if not (isinstance(key, str) and 1 <= len(key) <= 200 and isinstance(caller, str)):
        raise DataError(
            "OS607", "session", expected="a key of 1 to 200 characters", got="another one",
            hint="draw one for each question, such as uuid.uuid4().hex, and keep it for retries.",
        )  # fmt: skip
    return hashlib.sha256(json.dumps([caller, key]).encode()).digest()


def _kind_of_ids(first: Stage) -> type | None:
    """Return the declared kind of persons' ids, or None."""
    if not isinstance(first.domain, Records) or not isinstance(first.metric, IdDistance):
        return None
    column = first.domain.column(first.metric.identifier_column)
    return None if column is None else str if column.dtype == "str" else int


def _refuse_other_kind(who: list[Any], kind: type) -> None:
    if who and not isinstance(who[0], kind):
        raise DataError(
            "OS607", "session", expected=f"ids of the declared kind: {kind.__name__}",
            got="the other kind",
            hint="5 and '5' are two persons: give integers where the column is int64, texts where str.",
        )  # fmt: skip


def _identity(stages: Sequence[Stage], rows: Rows) -> str:
    """Return everything that purses belong to."""
    parts = [rows.values, rows.labels, None if rows.ids is None else pack_ids(rows.ids)]
    steps = [{stage.mechanism.key: stage.mechanism.spec()} for stage in stages]
    about = {
        "steps": steps,
        "domain": stages[0].domain.identifier,
        "metric": stages[0].metric.identifier,
        "data": fingerprint([part for part in parts if part is not None]),
    }
    return json.dumps(about, sort_keys=True)
