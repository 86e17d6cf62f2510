"""A session whose disk fills up, whose process is interrupted or killed, at every point of an answer."""

from __future__ import annotations

import itertools
import json
import resource
import signal
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from opendp_sim.core.errors import BudgetError, InternalError
from opendp_sim.measurements.knn._impl import predictor as _knn_predictor
from opendp_sim.measurements.knn._impl.pool import Pool
from opendp_sim.measurements.knn._impl.privacy_filter import UNITS
from tests._forks import forked
from tests.accounting import _kill_session as kill

QUERIES = np.rint(np.random.default_rng(4).normal(0, 40, (40, 4)))
SPEC = Path(__file__).parents[2] / "specs" / "digits-session.yaml"


class Faulty:
    """A connection to a store that fails at its n-th statement, before it or after it."""

    def __init__(self, real, at, fault, *, after):
        self._real, self._left, self._fault, self._after = real, at, fault, after
        self.reached = False

    def execute(self, statement, *more):
        self._left -= 1
        if self._left or self.reached:
            return self._real.execute(statement, *more)
        self.reached = True
        if self._after:
            self._real.execute(statement, *more)
        raise self._fault

    def __getattr__(self, name):
        return getattr(self._real, name)


def full():
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorname = "SQLITE_FULL"
    return error


FAULTS = {
    "full": (full, BudgetError),
    "system": (lambda: OSError(28, "no space"), BudgetError),
    "interrupt": (KeyboardInterrupt, KeyboardInterrupt),
    "memory": (MemoryError, InternalError),
}


def durable(path):
    """Return how many answers the store holds, and its purses, as a new process finds them."""
    with kill.opened(path) as session:
        purses = session._store.purses()
        return session.answered, purses if purses is not None else np.full(kill.RECORDS, UNITS)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_statement_of_a_commit_leaves_no_answer_without_its_charge(
    tmp_path, fault, after
):
    """What failed was not answered; what was answered is charged; reopening goes on from there."""
    make, seen = FAULTS[fault]
    for at in itertools.count(1):
        path = tmp_path / f"{at}.session"
        with kill.opened(path) as session:
            session.ask(QUERIES[:2])
            before = session._store.purses()
            real = session._store._db
            session._store._db = broken = Faulty(real, at, make(), after=after)
            try:
                session.ask(QUERIES[2:3])
                failed = None
            except BaseException as error:  # noqa: BLE001 - an interruption is one of them
                failed = error
            session._store._db = real
            if not broken.reached:
                assert failed is None
                break
            assert isinstance(failed, seen)
            assert getattr(failed, "__context__", None) is None or fault == "interrupt"
            assert getattr(failed, "code", "OS407") == ("OS902" if fault == "memory" else "OS407")
            with pytest.raises(BudgetError, match="OS406") as later:
                session.ask(QUERIES[2:3])
            assert ("open it again" in later.value.hint) == (fault != "memory")
        answered, purses = durable(path)
        assert answered in (2, 3)
        assert (purses <= before).all()
        if fault == "memory":  # a failure inside is charged in full
            assert not purses.any()
            continue
        assert (purses < before).any() == (answered == 3)  # kept with its charge, or not at all
        with kill.opened(path) as session:
            session.ask(QUERIES[3:5])
            assert session.answered == answered + 2
    assert at > 4  # begin, entry, (copy,) commit, checkpoint


def test_a_full_disk_is_said_and_the_session_goes_on_when_there_is_room(tmp_path):
    """A real one: SQLite may not grow the file, then it may."""
    path = tmp_path / "s.session"
    with kill.opened(path) as session:
        session.ask(QUERIES[:2])
        pages = session._store._db.execute("PRAGMA page_count").fetchone()[0]
        session._store._db.execute(f"PRAGMA max_page_count={pages}")
        answered = 2

        def fill():
            nonlocal answered
            for query in itertools.cycle(QUERIES):
                session.ask(query[None])
                answered += 1

        with pytest.raises(BudgetError) as caught:
            fill()
        assert caught.value.code == "OS407"
        assert caught.value.got == "one that cannot be written"
        assert "make room" in caught.value.hint
    assert durable(path)[0] == answered
    with kill.opened(path) as session:
        session.ask(QUERIES[:5])
        assert session.answered == answered + 5


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="needs limits on files")
def test_a_file_that_may_not_grow_is_said(tmp_path):
    """The system refuses the write itself; also while a store is made and opened."""
    path = tmp_path / "s.session"
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    with kill.opened(path) as session:
        session.ask(QUERIES[:2])
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))
            with pytest.raises(BudgetError, match="OS407") as caught:
                session.ask(QUERIES[2:4])
            with pytest.raises(BudgetError, match="OS407") as made:
                kill.opened(tmp_path / "new.session")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert caught.value.got == made.value.got == "one that cannot be written"
    assert durable(path)[0] in (2, 4)
    assert [
        p.name for p in tmp_path.iterdir() if p.name.startswith("new") and "lock" not in p.name
    ] == []


@pytest.mark.parametrize("fault", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("where", ["vote", "products"])
def test_a_fault_while_votes_are_computed(tmp_path, monkeypatch, fault, where):
    path = tmp_path / "s.session"
    calls = itertools.count()

    def broken(real):
        def step(*given, **named):
            if next(calls) == 3:
                raise fault
            return real(*given, **named)

        return step

    with kill.opened(path) as session:
        session.ask(QUERIES[:2])
        before = session._store.purses()
        with monkeypatch.context() as patched:
            if where == "vote":
                patched.setattr(_knn_predictor, "vote", broken(_knn_predictor.vote))
            else:
                patched.setattr(Pool, "nearby", broken(Pool.nearby))
            with pytest.raises(KeyboardInterrupt if fault is KeyboardInterrupt else InternalError):
                session.ask(QUERIES[2:12])
        with pytest.raises(BudgetError, match="OS406"):
            session.ask(QUERIES[2:3])
    with kill.opened(path) as session:
        assert session.answered == 2
        if fault is KeyboardInterrupt:
            assert np.array_equal(session._store.purses(), before)
            session.ask(QUERIES[2:12])
        else:
            assert not session._store.purses().any()


def test_products_are_formed_some_at_a_time_and_are_the_same(tmp_path, monkeypatch):
    """However many records there are, a bounded number of products is in memory."""
    whole = kill.opened(tmp_path / "a.session")
    seen = whole._service._pool.lens.see_queries(QUERIES, whole._service._dtype)
    at_once = list(whole._service._pool.products(seen))
    monkeypatch.setattr("opendp_sim.measurements.knn._impl.pool._PRODUCTS", 3 * kill.RECORDS + 1)
    parts = whole._service._pool.products(seen)
    first = next(parts)
    assert first.base is None or first.base.size <= 3 * kill.RECORDS
    assert np.array_equal([first, *parts], at_once)
    whole.close()


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_command_and_the_store_holds_what_was_said(tmp_path, sign):
    path = tmp_path / "s.session"
    line = json.dumps({"query": [1.0] * 64}) + "\n"
    ended = forked(["session", str(SPEC), "--store", str(path)], tmp_path, 3 * line, stop=(3, sign))
    assert [next(iter(json.loads(answer))) for answer in ended.said.splitlines()] == ["label"] * 3
    assert ended.code == 128 + sign
    assert not ended.sick
    *told, last = ended.complained.splitlines()
    assert last.endswith(f"what was answered is charged in {path}, and stands")
    assert not [line for line in told if "error[" in line or "Traceback" in line]
    from opendp_sim.dsl.plan.plan import plan_file
    from opendp_sim.dsl.run.session import serve

    with serve(plan_file(SPEC), store=path) as served:
        assert served.session.answered == 3
        served.ask([[1.0] * 64])
