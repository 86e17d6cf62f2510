"""The machines of the ledger and of a session's store against the code, in a file and in a database."""

from __future__ import annotations

import hashlib
import random
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from tests.proofs.comparisons import Driver, Found


def _digest(content: int) -> dict[str, Any]:
    text = hashlib.sha256(str(content).encode()).hexdigest()
    return {"out": {"sha256": text, "statement": text}}


def ledger(_: Driver, machine: Driver, n: int, place: str = "") -> Found:
    """Random traces of a ledger, with failing writes, lost acknowledgements and openings.

    In files, or under names that begin with ``place``.
    """
    with tempfile.TemporaryDirectory() as name:
        found = Found()
        for it in range(n):
            path = f"{place}{it}" if place else Path(name) / f"{it}.ledger"
            _trace(machine, found, random.Random(it), path)
        return found


def _no_disk(*_: Any) -> None:
    raise sqlite3.OperationalError("disk I/O error")


def _troubles(*, shared: bool) -> dict[str, tuple[Any, str, Any]]:
    """Return what may happen to a write: the place of a function, and what stands in for it."""
    from opendp_sim.accounting.ledger import _file
    from opendp_sim.accounting.ledger._postgres_tables import PostgresTables

    if not shared:
        return {
            "write fails": (_file.FileTables, "put", _no_disk),
            "answer lost": (_file, "checkpoint", _no_disk),
        }
    import psycopg

    writing, cut = PostgresTables.writing, [0]

    @contextmanager
    def lost(self: Any, token: str) -> Iterator[int | None]:
        with writing(self, token) as made:
            yield made
        _no_disk()

    @contextmanager
    def lost_once(self: Any, token: str) -> Iterator[int | None]:
        cut[0] += 1
        with writing(self, token) as made:
            yield made
        if cut[0] == 1:
            raise psycopg.OperationalError("the connection is gone")

    return {
        "write fails": (PostgresTables, "put", _no_disk),
        "answer lost": (PostgresTables, "writing", lost),
        "answer lost, and tried again": (PostgresTables, "writing", lost_once),
    }


def _trace(machine: Driver, found: Found, rng: random.Random, path: str | Path) -> None:
    from opendp_sim.accounting.budget import Limit
    from opendp_sim.accounting.composition import Charge
    from opendp_sim.accounting.ledger._entries import Terms
    from opendp_sim.accounting.ledger.ledger import Ledger
    from opendp_sim.core.errors import SimError

    scale = 2**100  # every loss is a whole number of its units
    limit = rng.choice([8.0, 3.0, 1.0])
    losses = (
        [0.1, 0.2, 0.3, 1 / 3, 0.7, 1e-9]
        if limit == 1.0
        else [rng.randint(0, 3072) / 1024 for _ in range(9)]
    )
    terms = Terms("pure", "add_remove 1 of row", Limit(epsilon=limit))
    book = Ledger.open(path, terms)
    machine.ask("limit", int(Fraction(limit) * scale))
    at: dict[int, str] = {}
    loss: dict[int, float] = {}
    content: dict[int, int] = {}
    log: list[Any] = []

    def entry(t: int) -> Any:
        return next(
            (e for e in book.entries if e.kind == "reserve" and e.body.get("token") == str(t)), None
        )

    def units(t: int) -> int:
        return int(Fraction(loss[t]) * scale)

    def done(action: Callable[[], Any]) -> str:
        """Do it; sometimes the write fails, or COMMIT is kept and its answer lost, or the file is opened again."""
        nonlocal book
        troubles = _troubles(shared=isinstance(path, str))
        how = rng.choice(["well"] * 6 + [*troubles, "opened again"])
        where = troubles.get(how)
        kept = getattr(*where[:2]) if where else None
        code = ""
        try:
            if where:
                setattr(*where)
            action()
        except SimError as error:
            code = error.code
        except sqlite3.OperationalError:
            code = "sqlite"
        finally:
            if where:
                setattr(*where[:2], kept)
        if how != "well":
            book.close()
            book = Ledger.open(path, terms)
        log.append((how, code))
        return code

    def tell(name: str, t: int, *more: int) -> list[str]:
        log.append((name, t, *more))
        return machine.ask(name, t, list(more))

    for _step in range(rng.randint(5, 25)):
        t = rng.choice(list(at)) if at and rng.random() < 0.8 else len(at)
        stage = at.get(t, "new")
        if stage == "new":
            at[t], loss[t] = "asks", rng.choice(losses)
            answer = tell("start", t, units(t))
        elif stage == "asks" and entry(t) is None:
            spent = int(tell("crash", 10**9)[1])
            fits = spent + units(t) <= int(Fraction(limit) * scale)
            code = done(lambda: book.reserve(Charge("pure", (loss[t],)), {"token": str(t)}))
            if entry(t) is not None:
                answer = tell("commit", t, units(t))
                found(
                    "a reserve is a step of the machine: within the limit",
                    answer[0] == "true" and fits,
                    log,
                )
            else:
                answer = tell("crash", 10**9)
                found(
                    "refused for the limit exactly where the sum passes it",
                    (code == "OS402") == (not fits),
                    (log, code),
                )
        elif stage == "asks":
            answer, at[t] = tell("ack", t), "gate"
            found("an entry is found by its token after a lost answer", answer[0] == "true", log)
        elif stage == "gate" and rng.random() < 0.25:
            done(lambda: book.settle(entry(t), "refusal", {"code": "OS601"}))
            if book.settlement_of(entry(t)) is not None:
                answer, at[t] = tell("refuse", t), "refused"
                found("a refusal in the gate", answer[0] == "true", log)
            else:
                answer, at[t] = tell("crash", t), "dead"
        elif stage == "gate":
            answer, at[t] = tell("left", t), "drawn"
        elif stage == "drawn":
            content[t] = rng.randint(1, 9)
            answer, at[t] = tell("stage", t, content[t]), "staged"
        elif stage == "staged":
            had = book.settlement_of(entry(t))
            done(lambda: book.settle(entry(t), "charge", {"files": _digest(content[t])}))
            if had is None and book.settlement_of(entry(t)) is not None:
                answer = tell("settle", t, content[t])
                found("a charge is a step of the machine", answer[0] == "true", log)
            elif had is not None:
                answer = tell("again", t, content[t])
                found(
                    "settled again: the same entry",
                    answer[0] == "true" and book.settlement_of(entry(t)) == had,
                    log,
                )
            else:
                answer = tell("again", t, content[t])
                found("a write that failed settles nothing", answer[0] == "false", log)
            if had is not None:
                other = done(lambda: book.settle(entry(t), "refusal", {"code": "OS601"}))
                found("no refusal after a charge", other == "OS403", (log, other))
        else:
            answer = tell("settle", t, 1)
            found("a run that was refused or died is not charged again", answer[0] == "false", log)
            if stage == "refused":
                other = done(lambda: book.settle(entry(t), "charge", {"files": _digest(1)}))
                found("no charge after a refusal", other == "OS403", (log, other))
        total, entries = book.total().exact[0], len(book.entries)
        found("the sum", total == Fraction(int(answer[1]), scale), (log, total))
        found("the number of entries", entries == int(answer[2]), (log, entries))
    book.verify()
    book.close()


def session_store(_: Driver, machine: Driver, n: int) -> Found:
    """Random traces of a session's store in a file, its purses from the filter that charges it."""
    from opendp_sim.accounting.session import store as code
    from opendp_sim.accounting.session.store import SessionStore
    from opendp_sim.core.errors import SimError
    from opendp_sim.measurements.knn._impl.privacy_filter import UNITS, IndividualFilter

    found, one = Found(), np.array([0], dtype=np.int64)
    with tempfile.TemporaryDirectory() as name:
        for it in range(n):
            rng, path, log = random.Random(it), Path(name) / f"{it}.session", list[Any]()
            store, purse = SessionStore(path, "x", "y"), IndividualFilter(Fraction(1, 2), 1)
            machine.ask("store", UNITS)
            told = machine.ask("die")
            for answer in range(rng.randint(3, 14)):
                cost = rng.choice([1, UNITS // 7, UNITS // 3, UNITS - 1, rng.randint(1, UNITS)])
                told = machine.ask("ask", cost, answer)
                log.append((cost, told[0]))
                try:
                    purse.charge(one, one + 1, cost)
                except SimError as error:
                    refused = told[0] == "false" and error.code == "OS903"
                    found("store: a price above the purse is refused", refused, log)
                    continue
                found("store: a price within the purse is asked", told[0] == "true", log)
                how = rng.choice(["well"] * 4 + ["write fails", "answer lost", "killed"])
                trouble = {"write fails": "write_entry", "answer lost": "checkpoint"}.get(how)
                kept = getattr(code, trouble) if trouble else None
                before, left = len(store.entries()), "well"
                try:
                    if trouble:
                        setattr(code, trouble, _no_disk)
                    payload = {"labels": np.array([answer]), "rows": np.ones((1, 1))}
                    charge = (one, np.array([cost], dtype=np.int64))
                    if how != "killed":
                        store.commit("answers", payload, [charge], purse.snapshot)
                except SimError as error:
                    left = error.code
                finally:
                    if trouble:
                        setattr(code, trouble, kept)
                log.append((how, left))
                written = len(store.entries()) > before
                expected = how in ("well", "answer lost")
                found("store: an entry is kept exactly where COMMIT was", written == expected, log)
                if written:
                    found("store: a write", machine.ask("write")[0] == "true", log)
                if how == "well":
                    told = machine.ask("answer")
                    found("store: an answer leaves after its entry", told[0] == "true", log)
                else:
                    told = machine.ask("die")
                    found(
                        "store: nothing leaves after a failure",
                        how == "killed" or left == "OS407",
                        log,
                    )
                if how != "well" or rng.random() < 0.2:
                    told = machine.ask("die")
                    store.close()
                    store, purse = SessionStore(path, "x", "y"), IndividualFilter(Fraction(1, 2), 1)
                    held = store.purses()
                    if held is not None:
                        purse.restore(held)
                spent = UNITS - int(purse.snapshot()[0])
                found("store: the purses after an opening", spent == int(told[1]), (log, spent))
                kept_ = [int(payload["labels"][0]) for _, payload in store.entries()]
                found("store: the number of entries", len(kept_) == int(told[2]), (log, kept_))
                out = [int(a) for a in told[3].split(",")] if len(told) > 3 else []
                found("store: every answer that left is kept", set(out) <= set(kept_), (log, out))
            store.close()
    return found
