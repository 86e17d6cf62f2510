"""A session's store in PostgreSQL: the file's entries, hashes and refusals; kills, cuts, forgeries, clients."""

from __future__ import annotations

import itertools
import os
import re
import signal
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opendp_sim.accounting.ledger import postgres_connection as _postgres
from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.accounting.session import _chain as chain, postgres as _session_postgres
from opendp_sim.accounting.session.postgres import SharedStore, mark_at, store_at
from opendp_sim.accounting.session.store import SessionStore
from opendp_sim.core.errors import BudgetError
from opendp_sim.dsl import plan_file
from opendp_sim.dsl.run.session import serve
from tests.accounting import _kill_session as kill
from tests.accounting._server import Cut, Server
from tests.accounting.session.test_chain import EDITS

QUERIES = np.rint(np.random.default_rng(4).normal(0, 40, (40, 4)))
PERSONS = 30
ROWS = "SELECT place, kind, payload, who, units, answers, copy, hash FROM entry ORDER BY place"


class Model:
    """Two stores that are asked the same, and the purses that both should hold."""

    def __init__(self, file: Path, shared: str) -> None:
        self.places, self.purses = (file, shared), np.full(PERSONS, 10**6)
        self.open()

    def open(self) -> None:
        self.stores = [store_at(at, "identity", "name", forgets=True) for at in self.places]
        assert [type(one) for one in self.stores] == [SessionStore, SharedStore]

    def each(self, action: Callable[[Any], Any]) -> Any:
        told = []
        for one in self.stores:
            try:
                told.append(action(one))
            except BudgetError as error:
                told.append((error.code, str(error)))
        assert repr(told[0]) == repr(told[1])
        return told[0]

    def commit(self, kind: str, who: Any, seed: int) -> None:
        paid = np.full(len(who), seed + 1)
        np.subtract.at(self.purses, who, paid)
        now, rows = self.purses.copy(), np.full((2, 3), seed)
        payload = (
            {"labels": np.array([seed % 2]), "rows": rows} if kind != "delete" else {"ids": who}
        )
        if kind != "keyed":
            self.each(lambda one: one.commit(kind, payload, [(who, paid)], lambda: now))
            return

        def publish(one: Any) -> Any:
            one.hold()
            one.commit("answers", payload, [(who, paid)], lambda: now)
            one.commit("easy", payload, [], lambda: now)
            one.publish(bytes([seed]) * 32, bytes(32), payload)
            return one.let_go()

        assert self.each(publish) is False

    def check(self) -> None:
        self.each(lambda one: one._db.execute(ROWS).fetchall())
        self.each(lambda one: [one.published(bytes([at]) * 32) for at in range(140)])
        self.each(lambda one: (one.head, one.answered, one.purses(), one.entries().__len__()))
        if self.stores[0].head[0]:
            assert np.array_equal(self.stores[1].purses(), self.purses)


def test_both_stores_side_by_side_hold_the_same(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state machine: commits, turns, heads, closings, wrong owners; rows and refusals byte for byte."""
    monkeypatch.setattr(chain, "KEPT", 24)
    monkeypatch.setattr(chain, "DENSE", 8)
    g, model, turns = np.random.default_rng(3), Model(tmp_path / "s.session", place), [""]
    for step in range(140):
        what = g.integers(0, 16)
        if what < 11:
            kind = str(g.choice(["answers", "easy", "means", "reference", "delete", "keyed"]))
            model.commit(kind, g.integers(0, PERSONS, 4), step)
        elif what == 11:
            heads = {one.tell() for one in model.stores}
            model.each(lambda one, h=heads: one.check_head(*next(iter(h))))
            assert len(heads) == 1
        elif what == 12:
            at = int(g.integers(0, 40))
            model.each(lambda one, at=at: one.check_head(at, "0" * 64, ended=bool(at % 2)))
        elif what == 13:
            with monkeypatch.context() as patch:
                patch.setattr("secrets.token_hex", lambda _, step=step: f"{step:032x}")
                model.each(lambda one: one.take_turn("name", turns[-1], "l"))
            turns.append(f"{step:032x}")
        else:
            model.check()
            with monkeypatch.context() as patch:
                patch.setattr(_session_postgres, "_SESSION_POSTGRES_WAITS", (0.0,))
                with pytest.raises(BudgetError, match="lock"):
                    store_at(place, "identity")
            model.each(lambda one: one.close())
            with pytest.raises(BudgetError, match="started with"):
                store_at(place, "another")
            assert mark_at(place) == mark_at(tmp_path / "s.session")
            model.open()
    model.check()
    assert model.stores[1]._folded.place > 0
    model.each(lambda one: one.close())


IN_POSTGRES = (
    (r"zeroblob\((\d+)\)", r"decode(repeat('00', \1), 'hex')"),
    (r"x''", "''::bytea"),
    (r"lower\(hex\(randomblob\(32\)\)\)", "encode(sha256('x'), 'hex')"),
)


def test_an_edited_store_is_refused(server: Server) -> None:
    """All edits that are refused in a file; in a database each is its administrator's."""
    for at, (name, edit) in enumerate(EDITS.items()):
        place = f"postgresql:one/edit-{at}"
        with store_at(place, "identity", "name") as store:
            for number in range(5):
                charge = (np.array([number]), np.array([3]))
                payload = {"labels": np.array([number % 2])}
                store.commit("answers", payload, [charge], np.arange(50).copy)
            schema = store._db.schema
        store_at(place, "identity").close()
        words = edit
        for pattern, text in IN_POSTGRES:
            words = re.sub(pattern, text, words)
        server.sql(f"SET search_path = {schema}; {words}")
        with pytest.raises(BudgetError) as caught:
            store_at(place, "identity")
        assert caught.value.code == "OS407", name


def test_a_schema_that_does_something_is_refused(place: str, server: Server) -> None:
    with store_at(place, "identity") as store:
        schema = store._db.schema
    server.sql(
        f"CREATE FUNCTION {schema}.f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;"
        f"CREATE TRIGGER t BEFORE INSERT ON {schema}.entry FOR EACH ROW EXECUTE FUNCTION {schema}.f()"
    )
    for act in (lambda: store_at(place, "identity"), lambda: mark_at(place)):
        with pytest.raises(BudgetError, match="OS407"):
            act()


class Interrupted:
    """A connection before or after whose n-th statement something happens."""

    def __init__(self, real: Any, at: int, act: Callable[[], None], *, after: bool) -> None:
        self._real, self._left, self._act, self._after = real, at, act, after
        self.reached = False

    def execute(self, statement: str, *more: Any) -> Any:
        self._left -= 1
        if self._left:
            return self._real.execute(statement, *more)
        self.reached = True
        if self._after:
            found = self._real.execute(statement, *more)
            self._act()
            return found
        self._act()
        return self._real.execute(statement, *more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def one_answer(store: SharedStore, at: int) -> None:
    charge = (np.array([at % PERSONS]), np.array([7]))
    payload = {"labels": np.array([at % 2]), "counts": np.array([at])}
    if at % 2:  # under a key
        store.hold()
    store.commit("answers", payload, [charge], lambda: np.full(PERSONS, 1000 - 7 * at))
    if at % 2:
        store.publish(bytes([at]) * 32, bytes(32), payload)
        assert not store.let_go()


def kept(place: str) -> list[int]:
    """Return the answers that a store holds, as a new process finds them, the purses checked."""
    with store_at(place, "identity") as store:
        found = [int(payload["counts"][0]) for _, payload in store.entries()]
        assert store.purses() is not None or not found
        for at in range(4):  # a key is there exactly where its answer is
            assert (store.published(bytes([at]) * 32) is not None) == (at % 2 == 1 and at in found)
    return found


@pytest.mark.parametrize("after", [False, True])
def test_a_connection_that_ends_at_any_statement_loses_and_doubles_nothing(
    after: bool, server: Server
) -> None:
    """The server ends it; the store comes back, and the commit is there once, or nothing was answered."""
    said = 0
    for at in itertools.count(1):
        place = f"postgresql:one/ends-{after}-{at}"
        with store_at(place, "identity") as store:
            one_answer(store, 0)
            pid = store._db._db.info.backend_pid

            def end(pid: int = pid) -> None:
                server.sql(f"SELECT pg_terminate_backend({pid}, 5000)")

            store._db = broken = Interrupted(store._db, at, end, after=after)
            one_answer(store, 1)
            if not broken.reached:
                break
            one_answer(store, 2)
            said += 1
        assert kept(place) == [0, 1, 2]
    assert said == at - 1 > 5


def acts(place: str, at: int, out: int, *, after: bool) -> None:
    store = store_at(place, "identity")
    one_answer(store, 0)
    os.write(out, b"0")
    end = lambda: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731 - a child's last act
    store._db = broken = Interrupted(store._db, at, end, after=after)
    one_answer(store, 1)
    os.write(out, b"1" if broken.reached else b"x")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("after", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_process_killed_at_any_statement_leaves_no_answer_without_its_charge(
    after: bool, server: Server
) -> None:
    for at in itertools.count(1):
        place = f"postgresql:one/killed-{after}-{at}"
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                acts(place, at, write, after=after)
            finally:
                os._exit(1)
        os.close(write)
        os.waitpid(child, 0)
        with os.fdopen(read, "rb") as stream:
            told = stream.read()
        if told == b"0x":
            break
        assert told == b"0"
        wait_until_free(place)
        assert kept(place) in ([0], [0, 1])
    assert at > 5


def wait_until_free(place: str) -> None:
    """Wait until the server has missed a killed client, and with it its lock."""
    import time

    for _ in range(2000):
        try:
            mark_at(place)
        except BudgetError:
            time.sleep(0.01)
        else:
            return
    raise AssertionError


@pytest.mark.parametrize(
    "at", [pytest.param(4, marks=pytest.mark.long), pytest.param(1, marks=pytest.mark.deep)]
)
def test_a_server_that_is_killed_loses_and_doubles_nothing(at: int, server: Server) -> None:
    place = f"postgresql:one/server-{at}"
    with store_at(place, "identity") as store:
        one_answer(store, 0)

        def crash() -> None:
            server.kill()
            server.start()

        store._db = Interrupted(store._db, at, crash, after=False)
        one_answer(store, 1)
    assert kept(place) == [0, 1]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_network_that_is_cut_during_commit_keeps_an_entry_once(when: str, server: Server) -> None:
    place = f"postgresql:one/net-{when}"
    store_at(place, "identity").close()
    for at in range(2, 5):  # the first COMMIT is of the opening
        proxy = Cut(server.port, at, when)
        server.through(proxy.door.getsockname()[1])
        with store_at(place.replace("one/", "cut/"), "identity") as store:
            for number in range(3):
                one_answer(store, 3 * (at - 2) + number)
        proxy.close()
        assert proxy.cuts == 1
    wait_until_free(place)
    assert kept(place) == list(range(9))


@pytest.mark.parametrize("at", ["INSERT INTO entry", "COMMIT"])
def test_a_frozen_server_is_given_up_and_keeps_an_entry_once(
    at: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for ever, and then the lock of its own lost connection was taken for another process."""
    for name, value in (("_ANSWER", 0.15), ("_PAUSE", 0.001), ("_LONGEST_PAUSE", 0.05)):
        monkeypatch.setattr(_postgres, name, value)
    monkeypatch.setattr(_session_postgres, "_SESSION_POSTGRES_WAITS", (0.0,))
    purses, stopped, real = (
        np.ones(3, dtype=np.int64),
        list[int](),
        _session_postgres.StoreTables.execute,
    )
    with store_at(place, "one") as store:

        def execute(self: Any, statement: str, values: Any = ()) -> Any:
            if statement.startswith(at) and not stopped:
                stopped.append(self._db.info.backend_pid)
                os.kill(stopped[0], signal.SIGSTOP)
                threading.Timer(0.5, os.kill, (stopped[0], signal.SIGCONT)).start()
            return real(self, statement, values)

        monkeypatch.setattr(_session_postgres.StoreTables, "execute", execute)
        store.commit("updates", {}, [], lambda: purses)
        monkeypatch.setattr(_postgres, "_ANSWER", 10.0)  # what is only read is asked for once
        assert stopped
        assert store.head[0] == 1
        store.commit("updates", {}, [], lambda: purses)
        assert store.head[0] == 2


def test_who_lost_the_store_cannot_write_after_another_opened_it(
    place: str, server: Server
) -> None:
    """The fence: without it the first one would come back, and write after purses that it never read."""
    first = store_at(place, "identity")
    one_answer(first, 0)
    server.sql(f"SELECT pg_terminate_backend({first._db._db.info.backend_pid}, 5000)")
    with store_at(place, "identity") as second:
        one_answer(second, 1)
        with pytest.raises(BudgetError, match="opened the store last"):  # and has the lock
            one_answer(first, 2)
    with pytest.raises(BudgetError, match="opened the store last"):
        one_answer(first, 2)
    first.close()
    assert kept(place) == [0, 1]


def test_of_eight_clients_one_opens_a_store(place: str) -> None:
    store_at(place, "identity").close()

    def attempt(_: int) -> Any:
        try:
            return store_at(place, "identity")
        except BudgetError as error:
            return error.code

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(attempt, range(8)))
    (one,) = [found for found in told if found != "OS407"]
    one_answer(one, 0)
    one.close()


def test_servers_that_may_lose_commits_and_places_that_are_none_are_refused(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mark_at(place) is None
    for where in ("postgresql:none/x", "postgresql:x", "postgresql:one/"):
        for act in (mark_at, lambda at: store_at(at, "identity")):
            with pytest.raises(BudgetError) as caught:
                act(where)
            assert caught.value.code == "OS407"
            assert "close the other process" not in caught.value.hint
    monkeypatch.setattr(_postgres, "_OPTIONS", "-c synchronous_commit=off")
    with pytest.raises(BudgetError, match="synchronous_commit") as caught:
        store_at(place, "identity")
    assert "ask its administrator" in caught.value.hint


def test_a_session_answers_from_a_server_as_from_a_file(place: str, tmp_path: Path) -> None:
    """The purses of both are the same after the same questions, and after they were opened again."""
    held = []
    for path in (tmp_path / "s.session", place):
        for part in (QUERIES[:3], QUERIES[3:6]):
            with kill.opened(path) as session:
                session.ask(part)
                held.append((session.answered, session._store.head[0]))
    assert held[:2] == held[2:]


def test_a_spec_is_served_from_a_server_and_charged_once(place: str, tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "specs" / "digits-session.yaml").read_text()
    ledger = "    ledger: {file: l.ledger, limit: {epsilon: 2.5, delta: 1.0e-4}}\n    columns:"
    text = text.replace("out/digits.session", f'"{place}"').replace("    columns:", ledger)
    (tmp_path / "spec.yaml").write_text(text)
    queries, answered = np.zeros((2, 64)), []
    for _ in range(2):
        told: list[str] = []
        with serve(plan_file(tmp_path / "spec.yaml"), charged=told.append) as served:
            served.ask(queries.tolist())
            answered.append((served.session.answered, len(told)))
    assert [count for count, _ in answered] == [2, 4]
    assert mark_at(place) is not None
    with closing(sqlite3.connect(tmp_path / "l.ledger")) as db:
        kinds = [row[0] for row in db.execute("SELECT body FROM entries")]
    assert sum('"kind":"charge"' in kind.replace(" ", "") for kind in kinds) == 1


def test_processes_that_open_one_new_store_charge_once(place: str, tmp_path: Path) -> None:
    """Four processes race for the first opening, of a store and a ledger of one server."""
    text = (Path(__file__).parents[3] / "specs" / "digits-session.yaml").read_text()
    ledger = (
        f'    ledger: {{file: "{place}ledger", limit: {{epsilon: 9, delta: 1.0e-4}}}}\n    columns:'
    )
    text = text.replace("out/digits.session", f'"{place}"').replace("    columns:", ledger)
    (tmp_path / "spec.yaml").write_text(text)

    def ask() -> None:
        with serve(plan_file(tmp_path / "spec.yaml")) as served:
            served.ask(np.zeros((1, 64)).tolist())

    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                ask()
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    ask()
    with Ledger.open(f"{place}ledger") as found:
        assert len(found.charges) == 1


@pytest.mark.parametrize("what", ["new", "old"])
def test_a_role_that_cannot_make_or_read_a_store_pays_nothing(
    what: str, place: str, tmp_path: Path, server: Server
) -> None:
    """The store was refused after the charge, with the rights of a ledger as the hint."""
    server.sql(
        "DROP ROLE IF EXISTS payer; CREATE ROLE payer LOGIN; GRANT pg_read_all_data, pg_write_all_data TO payer"
    )
    server.service.write_text(
        server.service.read_text()
        + f"[payer]\nhost=127.0.0.1\nport={server.port}\nuser=payer\ndbname=postgres\n"
    )
    mine = place.replace("one", "payer", 1)
    if what == "old":
        store_at(place, "identity").close()
        server.sql("REVOKE pg_read_all_data, pg_write_all_data FROM payer")
    spec = (Path(__file__).parents[3] / "specs" / "digits-session.yaml").read_text()
    ledger = "    ledger: {file: l.ledger, limit: {epsilon: 2.5, delta: 1.0e-4}}\n    columns:"
    spec = spec.replace("out/digits.session", f'"{mine}"').replace("    columns:", ledger)
    (tmp_path / "spec.yaml").write_text(spec)
    with pytest.raises(BudgetError) as caught:
        serve(plan_file(tmp_path / "spec.yaml"))
    assert caught.value.code == "OS407"
    assert "CREATE on the database" in caught.value.hint
    assert not (tmp_path / "l.ledger").exists()


def _cut(server: Server) -> None:
    """End every other connection, as a server does that starts again."""
    server.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )


def test_a_run_that_lost_its_connection_still_makes_and_opens_its_store(
    place: str, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place was locked before the charge; its connection did not live until the store was made."""
    text = (Path(__file__).parents[3] / "specs" / "digits-session.yaml").read_text()
    ledger = "    ledger: {file: l.ledger, limit: {epsilon: 2.5, delta: 1.0e-4}}\n    columns:"
    text = text.replace("out/digits.session", f'"{place}"').replace("    columns:", ledger)
    (tmp_path / "spec.yaml").write_text(text)
    for method in ("_connect", "take_turn", "tell", "_commit"):
        real = getattr(SharedStore, method)

        def cut(self: Any, *given: Any, real: Any = real, **named: Any) -> Any:
            _cut(server)
            return real(self, *given, **named)

        monkeypatch.setattr(SharedStore, method, cut)
    with serve(plan_file(tmp_path / "spec.yaml")) as served:
        served.ask(np.zeros((2, 64)).tolist())
        assert served.session.answered == 2
    with closing(sqlite3.connect(tmp_path / "l.ledger")) as db:
        kinds = [row[0] for row in db.execute("SELECT body FROM entries")]
    assert sum('"kind":"reserve"' in kind for kind in kinds) == 1


def test_a_place_whose_lock_another_took_makes_no_store(
    place: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_postgres, "_AWAY", 0.1)
    monkeypatch.setattr(_session_postgres, "_SESSION_POSTGRES_WAITS", (0.0,))
    one = _session_postgres.SharedPlace(place)
    _cut(server)
    with store_at(place, "identity", "theirs") as other:
        with pytest.raises(BudgetError, match="the store's lock"):
            store_at(place, "identity", "mine", place=one)
        other.take_turn("theirs", "")
    with store_at(place, "identity", "mine") as late, pytest.raises(BudgetError):
        late.take_turn("mine", "")
