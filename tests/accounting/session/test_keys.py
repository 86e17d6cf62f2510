"""A question asked again under its key is answered again, at no cost; whatever happened in between."""

from __future__ import annotations

import itertools
import os
import select
import signal
import sqlite3
import struct
import time
from contextlib import closing, suppress

import numpy as np
import pytest

from opendp_sim.accounting.session import _chain as chain
from opendp_sim.accounting.session._encoding import packed_arrays, unpacked_arrays
from opendp_sim.accounting.session.session import Session
from opendp_sim.accounting.session.store import SessionStore
from opendp_sim.core.errors import BudgetError, DataError, InternalError
from opendp_sim.core.pipeline import bind_steps
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.measurements.knn._impl.vote_noise import Stock
from tests.accounting import _kill_session as kill
from tests.accounting.session.test_chain import FORGETFUL
from tests.accounting.test_session_faults import FAULTS, Faulty

QUERIES = np.rint(np.random.default_rng(5).normal(0, 40, (60, 4)))
PURSES = np.arange(50, dtype=np.int64)


def same(one, other):
    parts = [
        (a.labels, *(p.tobytes() for p in (a.counts, a.votes, a.deviations))) for a in (one, other)
    ]
    assert parts[0] == parts[1]


def state(session):
    return session.answered, session._store.head, session._service._purses_now().tolist()


@pytest.mark.parametrize("name", FORGETFUL)
def test_a_retry_gets_the_same_answer_for_nothing_also_after_reopening(tmp_path, name):
    """Also where one batch makes several entries, and several batches one answer."""
    stages, path = bind_steps(kill.GRID, Symmetric(), [FORGETFUL[name]]), tmp_path / "s.session"
    with Session(stages, lambda: [kill.data()], path) as session:
        first = session.ask(QUERIES, key="a")  # its own reference
        second = session.ask(QUERIES[:2], key="b")
        before = state(session)
        same(session.ask(QUERIES, key="a"), first)
        assert state(session) == before
    with Session(stages, lambda: [kill.data()], path) as session:
        same(session.ask(QUERIES[:2].astype(np.int64), key="b"), second)
        same(session.ask(QUERIES, key="a"), first)
        assert state(session) == before
        assert session.ask(QUERIES[:2]).labels is not None
        assert session.answered == 64
        assert len([k for k, _ in session._store.entries() if k == chain.REPLAY]) == 0


def test_many_batches_of_one_key_are_one_transaction(tmp_path):
    rows = np.rint(np.random.default_rng(6).normal(0, 40, (600, 4)))
    with kill.opened(tmp_path / "s.session") as session:
        first = session.ask(rows, key="a")
        assert session.answered == 600
        same(session.ask(rows, key="a"), first)
        assert session.answered == 600
        assert session.ask(rows[:0], key="none").labels == ()


def test_a_key_of_another_question_is_refused_and_costs_nothing(tmp_path):
    with kill.opened(tmp_path / "s.session") as session:
        first = session.ask(QUERIES[:1], key="a", caller="ann")
        before = state(session)
        for other in (QUERIES[1:2], QUERIES[:2], QUERIES[:0]):
            with pytest.raises(BudgetError) as caught:
                session.ask(other, key="a", caller="ann")
            assert caught.value.code == "OS408"
        for key in ("", "x" * 201, 7, b"a"):
            with pytest.raises(DataError, match="OS607"):
                session.ask(QUERIES[:1], key=key)
        assert state(session) == before
        for caller in ("bob", "", 'ann", "'):
            session.ask(QUERIES[1:2], key="a", caller=caller)
        assert session.answered == 4
        same(session.ask(QUERIES[:1], key="a", caller="ann"), first)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_statement_charges_and_keeps_the_key_or_neither(tmp_path, fault, after):
    make, seen = FAULTS[fault]
    for at in itertools.count(1):
        path = tmp_path / f"{at}.session"
        with kill.opened(path) as session:
            session.ask(QUERIES[:2], key="before")
            session._store.published(b"")  # its keys are read by now
            real = session._store._db
            session._store._db = broken = Faulty(real, at, make(), after=after)
            try:
                session.ask(QUERIES[2:3], key="k")
                failed = None
            except BaseException as error:  # noqa: BLE001 - an interruption is one of them
                failed = error
            session._store._db = real
            if not broken.reached:
                assert failed is None
                break
            assert isinstance(failed, seen) or (
                fault == "memory" and isinstance(failed, MemoryError)
            )
        with kill.opened(path) as session:
            answered, purses = session.answered, session._service._purses_now()
            known = session._store.published(_digest("k")) is not None
            assert answered == 2 + known  # charged exactly where a retry replays it
            if fault == "memory" and not purses.any():
                with pytest.raises(BudgetError, match="OS406"):
                    session.ask(QUERIES[3:4], key="new")
                assert known or session.answered == 2
                same(session.ask(QUERIES[:2], key="before"), session.ask(QUERIES[:2], key="before"))
                continue
            session.ask(QUERIES[2:3], key="k")
            assert session.answered == 3
    assert at > 6


def _digest(key):
    from opendp_sim.accounting.session.session import _digest

    return _digest(key, "")


def test_answers_that_wait_are_discarded_with_their_session(tmp_path, monkeypatch):
    """Between two batches nothing is durable: a failure that no step saw ends this object, not the store."""
    from opendp_sim.measurements.knn._impl import service

    path = tmp_path / "s.session"
    with kill.opened(path) as session:
        session.ask(QUERIES[:1], key="a")

        def no_room(*_):
            raise MemoryError

        with monkeypatch.context() as patch:
            patch.setattr(service, "_joined", no_room)
            with pytest.raises(MemoryError):
                session.ask(QUERIES[1:2], key="b")
        for act in (
            lambda: session.ask(QUERIES[1:2], key="b"),
            lambda: session.ask(QUERIES[:1], key="a"),
        ):
            with pytest.raises(BudgetError, match="open it again"):
                act()
    with kill.opened(path) as session:
        assert session.answered == 1
        session.ask(QUERIES[1:2], key="b")
        assert session.answered == 2


def test_a_failure_inside_charges_everything_and_old_keys_are_still_answered(tmp_path, monkeypatch):
    path = tmp_path / "s.session"
    with kill.opened(path) as session:
        first = session.ask(QUERIES[:2], key="a")
        with monkeypatch.context() as patch:
            patch.setattr(Stock, "noisy", lambda *_: 1 / 0)
            with pytest.raises(InternalError, match="OS902"):
                session.ask(QUERIES[2:3], key="b")
        same(session.ask(QUERIES[:2], key="a"), first)
    with kill.opened(path) as session:
        assert not session._service._purses.snapshot().any()
        same(session.ask(QUERIES[:2], key="a"), first)
        with pytest.raises(BudgetError, match="OS406"):
            session.ask(QUERIES[2:3], key="b")


def test_keys_fold_with_their_answers_and_change_nothing_else(tmp_path, monkeypatch):
    """Of two stores, one with keys: after a fold the same answers stay, and old keys are new ones."""
    monkeypatch.setattr(chain, "KEPT", 20)
    monkeypatch.setattr(chain, "DENSE", 8)
    kinds, left = [], []
    for keyed in (False, True):
        path = tmp_path / f"{keyed}.session"
        with SessionStore(path, "identity", "name", forgets=True) as store:
            for at in range(200):
                if keyed:
                    store.hold()
                payload = {"labels": np.array([at % 2]), "rows": np.full((1, 3), at)}
                store.commit(
                    "answers", payload, [(np.array([at % 50]), np.array([3]))], PURSES.copy
                )
                if keyed:
                    store.publish(bytes([at]) * 32, bytes(32), {"labels": np.array([at])})
                    assert not store.let_go()
        with SessionStore(path, "identity", forgets=True) as store:
            kinds.append([int(p["rows"][0, 0]) for _, p in store.entries()])
            assert store.answered == 200
            left.append(store.purses().tolist())
            keys = [at for at in range(200) if store.published(bytes([at]) * 32)]
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("SELECT count(*) FROM entry").fetchone()[0] < 2 * (20 + 9) + 2
    assert kinds[0] == kinds[1]
    assert left[0] == left[1]
    assert set(kinds[1]) <= {*keys, keys[0] - 1}


@pytest.mark.parametrize("edit", ["labels", "votes", "counts", "key", "question", "a part"])
def test_an_answer_that_no_service_published_is_a_damaged_store(tmp_path, monkeypatch, edit):
    """Somebody computed every hash anew."""
    path = tmp_path / "s.session"
    with kill.opened(path) as session:
        session.ask(QUERIES[:2], key="a")
        (place,) = session._store._db.execute("SELECT max(place) FROM entry").fetchone()
        blob = session._store._db.execute("SELECT payload FROM entry WHERE place = ?", (place,))
        payload = dict(unpacked_arrays(blob.fetchone()[0]))
        changed = {
            "labels": {"labels": np.array([7, 0])},
            "votes": {"votes": payload["votes"][:1]},
            "counts": {"counts": np.array(["a", "b"])},
            "key": {"key": payload["key"][:5]},
            "question": {"question": payload["question"].astype(float)},
            "a part": {},
        }[edit]
        payload |= changed
        if edit == "a part":
            del payload["deviations"]
        session._store._db.execute(
            "UPDATE entry SET payload = ? WHERE place = ?", (packed_arrays(payload), place)
        )
        with pytest.raises(BudgetError, match="OS407"):
            session.ask(QUERIES[:2], key="a")
    with pytest.raises(BudgetError, match="OS407"):
        kill.opened(path)


SAID = struct.Struct("<q2d")


def _asks(path, first, out):
    """Ask one key after another, each answered in one write."""
    with kill.opened(path) as session:
        for at in itertools.count(first):
            answer = session.ask(QUERIES[at % 60][None], key=f"key {at}")
            os.write(out, SAID.pack(at, *answer.votes[0]))


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_kills_leave_every_charge_with_its_key(tmp_path):
    """Charged = replayed + lost, where lost is none; an answer that left is replayed bit for bit."""
    path, wait, first, said = tmp_path / "s.session", np.random.default_rng(1), 0, {}
    for _ in range(12):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                _asks(path, first, write)
            os._exit(1)
        os.close(write)
        select.select([read], [], [], 5.0)
        time.sleep(float(wait.uniform(0, 0.05)))
        os.kill(child, signal.SIGKILL)
        with os.fdopen(read, "rb") as stream:
            told = stream.read()
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status)
        whole = told[: len(told) // SAID.size * SAID.size]
        said |= {at: votes for at, *votes in SAID.iter_unpack(whole)}
        with kill.opened(path) as session:
            charged, replayed = session.answered, 0
            for at in range(max(said, default=0) + 2):
                before = session.answered
                if session._store.published(_digest(f"key {at}")) is None:
                    assert at not in said, "an answer left that a retry would pay for again"
                    continue
                answer = session.ask(QUERIES[at % 60][None], key=f"key {at}")
                assert session.answered == before
                assert at not in said or answer.votes[0].tolist() == list(said[at])
                replayed += 1
                first = at + 1
            assert charged == replayed
    assert first > 12
