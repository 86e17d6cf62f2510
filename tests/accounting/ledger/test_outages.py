"""Servers that are away, frozen or refuse; threads; signals: nothing is lost, doubled, or called broken."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from opendp_sim.accounting.budget import Limit
from opendp_sim.accounting.composition import Charge
from opendp_sim.accounting.ledger import _postgres_tables, postgres_connection
from opendp_sim.accounting.ledger._postgres_tables import PostgresTables
from opendp_sim.accounting.ledger.ledger import Ledger, Terms
from opendp_sim.core.errors import BudgetError
from opendp_sim.dsl import apply, plan_file
from tests._small import write_small
from tests.accounting._server import Server

psycopg = pytest.importorskip("psycopg")
ONE = Charge("zcdp", (0.01,))
ROW = "add_remove 1 of row"
SMALL = (
    ("limit: {epsilon: 3.0", "limit: {epsilon: 300.0"),
    ("repetitions: 100", "repetitions: 4"),
    ("l1: 100, l2: 10,", "l1: 4, l2: 2,"),
)


def terms(charges: int) -> Terms:
    return Terms("zcdp", ROW, Limit(rho=0.01 * charges + 1e-9))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pauses and patience short."""
    for name, value in (
        ("_PAUSE", 0.001),
        ("_LONGEST_PAUSE", 0.05),
        ("_AWAY", 0.15),
        ("_ABSENT", 0.1),
    ):
        monkeypatch.setattr(postgres_connection, name, value)


# --- a server that is away ------------------------------------------------------------------------


@contextmanager
def away(when: Callable[[], bool], patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let each connection fail for which ``when`` says so."""
    real = _postgres_tables.connect

    def connect(path: Path) -> Any:
        if when():
            raise psycopg.errors.ConnectionTimeout("away")
        return real(path)

    with patch.context() as inside:
        inside.setattr(_postgres_tables, "connect", connect)
        yield


@pytest.mark.usefixtures("quick")
def test_a_server_that_is_away_for_a_moment_at_each_call_drops_no_answer(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 7 of 28 calls the answers were dropped, although paid: three tries followed at once."""
    plan = plan_file(write_small(tmp_path, ("points.ledger", f'"{place}"'), *SMALL))
    tries, calls = [0], [0]

    def when() -> bool:
        tries[0] += 1
        calls[0] += tries[0] % 5 == 0
        return tries[0] % 5 != 0

    with away(when, monkeypatch):
        assert apply(plan).charge is not None
    assert calls[0] >= 5
    with Ledger.open(place) as ledger:
        assert [entry.kind for entry in ledger.entries] == ["reserve", "charge", "outcome"]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("after", ["reserve", "charge"])
def test_a_run_that_was_reserved_is_finished_when_its_server_is_back(
    after: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read for the report was asked of the server: a paid run was dropped, and paid for again."""
    plan = plan_file(write_small(tmp_path, ("points.ledger", f'"{place}"'), *SMALL))
    real, gone = PostgresTables.put, [False]

    def put(self: PostgresTables, entry: Any, head: str) -> None:
        real(self, entry, head)
        gone[0] = entry.kind == after

    monkeypatch.setattr(PostgresTables, "put", put)
    with away(lambda: gone[0], monkeypatch), pytest.raises(BudgetError) as caught:
        apply(plan)
    assert caught.value.code == "OS403"
    assert "run the command again" in caught.value.hint
    assert "charges nothing more" in caught.value.hint
    done = apply(plan)
    assert done.resumed is not None
    assert (tmp_path / "out" / "density.csv").exists()
    with Ledger.open(place) as ledger:
        assert len(ledger.charges) == 1


def test_what_was_reserved_is_summed_without_a_server(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a look at the whole chain that the server did not answer, which forgot what was known."""
    for name in ("_AWAY", "_PAUSE"):
        monkeypatch.setattr(postgres_connection, name, 0.01)
    ledger = Ledger.open(place, terms(3))
    reserved = ledger.reserve(ONE, {"program": "p"})
    with away(lambda: True, monkeypatch):
        with pytest.raises(BudgetError, match="no answer"):
            ledger.verify()
        assert ledger.total(upto=reserved.seq).loss == ONE.loss
        assert ledger.terms == terms(3)
        with pytest.raises(BudgetError, match="no answer"):
            ledger.total()


@pytest.mark.long
def test_a_server_that_is_away_after_any_call_of_a_run_drops_no_answer(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = "postgresql:one/away-at-any-call"
    plan = plan_file(write_small(tmp_path, ("points.ledger", f'"{place}"'), *SMALL))
    real, calls, at = PostgresTables._tried, [0], [0]

    def tried(self: PostgresTables, action: Any) -> Any:
        calls[0] += 1
        if calls[0] == at[0]:
            server.kill()
            threading.Timer(1.5, server.start).start()
        return real(self, action)

    monkeypatch.setattr(PostgresTables, "_tried", tried)
    apply(plan)
    count = calls[0]
    for number in range(1, count + 1):
        calls[0], at[0] = 0, number
        assert apply(plan).charge is not None
    at[0] = 0
    with Ledger.open(place) as ledger:
        assert len(ledger.charges) == count + 1


# --- a server that is frozen ----------------------------------------------------------------------


def frozen(where: str, patch: pytest.MonkeyPatch) -> list[int]:
    """Stop the server's process of the next write: before it hears of the entry, or of the COMMIT."""
    stopped: list[int] = []
    put, writing = PostgresTables.put, PostgresTables.writing

    def stop(self: PostgresTables) -> None:
        if not stopped:
            stopped.append(self._db.info.backend_pid)
            os.kill(stopped[0], signal.SIGSTOP)

    def put_(self: PostgresTables, entry: Any, head: str) -> None:
        if where == "entry":
            stop(self)
        put(self, entry, head)

    @contextmanager
    def writing_(self: PostgresTables, token: str) -> Iterator[int | None]:
        with writing(self, token) as made:
            yield made
            if where == "commit":
                stop(self)

    patch.setattr(PostgresTables, "put", put_)
    patch.setattr(PostgresTables, "writing", writing_)
    return stopped


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("where", ["entry", "commit"])
def test_a_frozen_server_is_given_up_and_charges_once(
    where: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client ended by SIGKILL only. Whoever asked goes on when the server does, and finds its token."""
    monkeypatch.setattr(postgres_connection, "_ANSWER", 0.15)
    monkeypatch.setattr(postgres_connection, "_AWAY", 20.0)
    ledger = Ledger.open(place, terms(3))
    stopped = frozen(where, monkeypatch)
    thaw = threading.Timer(0.4, lambda: os.kill(stopped[0], signal.SIGCONT))
    thaw.start()
    begun = time.monotonic()
    assert ledger.charge(ONE, {"program": "p"}).seq == 1
    assert time.monotonic() - begun > 0.3
    assert ledger.charge(ONE, {"program": "q"}).seq == 2
    assert [entry.body["program"] for entry in ledger.entries] == ["p", "q"]


@pytest.mark.usefixtures("quick")
def test_a_server_that_stays_frozen_is_refused_in_time(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_connection, "_ANSWER", 0.15)
    ledger = Ledger.open(place, terms(3))
    stopped = frozen("entry", monkeypatch)
    try:
        with pytest.raises(BudgetError, match="no answer"):
            ledger.charge(ONE, {"program": "p"})
    finally:
        os.kill(stopped[0], signal.SIGCONT)
    assert ledger.charge(ONE, {"program": "q"}).seq == 1


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_wait_for_a_frozen_server(
    signum: signal.Signals, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_connection, "_STOPPED", 0.1)
    ledger = Ledger.open(place, terms(3))
    stopped = frozen("entry", monkeypatch)
    before = signal.signal(signum, signal.default_int_handler)
    begun = time.monotonic()
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signum)).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            ledger.charge(ONE, {"program": "p"})
        assert time.monotonic() - begun < 5
    finally:
        signal.signal(signum, before)
        os.kill(stopped[0], signal.SIGCONT)
    assert ledger.charge(ONE, {"program": "q"}).seq == 1


# --- threads --------------------------------------------------------------------------------------


def test_threads_share_a_ledger_in_a_file(tmp_path: Path) -> None:
    """It was called broken: "restore the ledger from a backup", the one advice that hides charges."""
    with Ledger.open(tmp_path / "l.ledger", terms(12)) as ledger:

        def charge(at: int) -> int:
            seq = ledger.charge(ONE, {"program": str(at)}).seq
            assert ledger.verify() >= seq
            return seq

        with ThreadPoolExecutor(6) as pool:
            assert sorted(pool.map(charge, range(12), timeout=60)) == list(range(1, 13))
            with pytest.raises(BudgetError, match="OS402"):
                pool.submit(ledger.charge, ONE, {"program": "p"}).result()
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(Ledger.open, tmp_path / "l.ledger").result()
    other.close()


def test_a_ledger_that_was_closed_is_not_called_broken(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l.ledger", terms(3)) as ledger:
        pass
    for act in (ledger.verify, lambda: ledger.charge(ONE, {}), lambda: ledger.head):
        with pytest.raises(BudgetError, match="was closed") as caught:
            act()
        assert "backup" not in caught.value.hint


def test_a_run_that_another_process_settled_is_not_called_a_broken_chain(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l.ledger", terms(3)) as ledger:
        entry = ledger.reserve(ONE, {"program": "p"})
        ledger.settle(entry, "charge", {})
        with pytest.raises(BudgetError, match="one settled as a charge") as caught:
            ledger.settle(entry, "refusal", {"code": "OS603"})
        assert "backup" not in caught.value.hint


# --- what a server refuses, and why ---------------------------------------------------------------


def service(server: Server, name: str, **more: str) -> str:
    """Name a service that differs from `one`; return a place there."""
    about = {"host": "127.0.0.1", "port": server.port, "user": "postgres", "dbname": "postgres"}
    text = "".join(f"{key}={value}\n" for key, value in (about | more).items())
    server.service.write_text(f"[{name}]\n{text}\n" + server.service.read_text())
    return f"postgresql:{name}/{name}"


def password_role(server: Server) -> None:
    rules = server.data / "pg_hba.conf"
    rules.write_text("host all asked 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
    server.sql("CREATE ROLE asked LOGIN PASSWORD 'right'")
    server.sql("SELECT pg_reload_conf()")


CAUSES: dict[str, tuple[dict[str, str], str, str]] = {
    "password": (
        {"user": "asked", "password": "wrong"},
        'password authentication failed for user "asked"',
        "password",
    ),
    "database": ({"dbname": "nope"}, 'database "nope" does not exist', "database"),
    "role": ({"user": "nobody"}, 'role "nobody" does not exist', "user"),
    "reader": ({"user": "reader"}, "one that only reads", "target_session_attrs=read-write"),
    "rights": ({"user": "weak"}, "a role without the rights|one without", "USAGE on the schema"),
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("what", CAUSES)
def test_a_refusal_names_its_cause(what: str, server: Server) -> None:
    """All were "no answer", or "the role needs INSERT"."""
    Ledger.open("postgresql:one/causes", terms(3))
    if what == "password":
        password_role(server)
    elif what == "reader":
        server.sql("CREATE ROLE reader LOGIN SUPERUSER")
        server.sql("ALTER ROLE reader SET default_transaction_read_only = on")
    elif what == "rights":
        server.sql("CREATE ROLE weak LOGIN")
    more, got, hint = CAUSES[what]
    place = service(server, what, **more)
    with pytest.raises(BudgetError, match=got) as caught:
        Ledger.open(place, terms(3))
    assert caught.value.code == "OS403"
    assert hint in caught.value.hint


@pytest.mark.usefixtures("quick")
def test_a_row_that_another_client_holds_is_named_so(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.open(place, terms(3))
    monkeypatch.setattr(postgres_connection, "_OPTIONS", "-c lock_timeout=50")
    with psycopg.connect(service="one") as other:
        other.execute("SELECT 1 FROM opendp_sim.ledger FOR UPDATE")
        with pytest.raises(BudgetError, match="one that another client holds"):
            ledger.charge(ONE, {"program": "p"})
    assert ledger.charge(ONE, {"program": "p"}).seq == 1


@pytest.mark.parametrize("asked", [True, False])
def test_a_server_whose_default_is_serializable_refuses_nobody(
    asked: bool, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Charges at once were refused as "no answer": by the isolation that is asked for, and by a pause."""
    if not asked:
        level = r"-c default_transaction_isolation=serializable"
        monkeypatch.setattr(postgres_connection, "_OPTIONS", level)
        place = "postgresql:one/serializable-forced"
    else:
        server.sql("CREATE ROLE strict LOGIN SUPERUSER")
        server.sql("ALTER ROLE strict SET default_transaction_isolation = 'serializable'")
        place = service(server, "strict", user="strict")
    Ledger.open(place, terms(16))
    clients = [Ledger.open(place) for _ in range(4)]

    def charged(ledger: Ledger) -> list[int]:
        return [ledger.charge(ONE, {"program": "p"}).seq for _ in range(4)]

    with ThreadPoolExecutor(4) as pool:
        told = [seq for one in pool.map(charged, clients) for seq in one]
    assert sorted(told) == list(range(1, 17))
    assert clients[0].verify() == 16


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", "UTF8"])
def test_a_name_is_text_whatever_the_encodings_are(
    encoding: str, place: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver in the environment's encoding failed as UnicodeEncodeError, or read bytes for texts."""
    monkeypatch.setenv("PGCLIENTENCODING", encoding)
    assert Ledger.open(place + "日", terms(3)).charge(ONE, {"program": "p"}).seq == 1
    name = f"in_{encoding.lower()}"
    server.sql(f"CREATE DATABASE {name} ENCODING {encoding} LOCALE 'C' TEMPLATE template0")
    there = service(server, name, dbname=name)
    assert Ledger.open(there + "é", terms(3)).charge(ONE, {"program": "p"}).seq == 1
    if encoding == "LATIN1":
        with pytest.raises(BudgetError, match="characters of this database") as caught:
            Ledger.open(there + "日", terms(3))
        assert "ASCII" in caught.value.hint
    with pytest.raises(BudgetError, match="postgresql:SERVICE/LEDGER"):
        Ledger.open(there + "\udcff", terms(3))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("met", [True, False])
def test_a_refused_connection_passes_where_the_client_was_taken_before(
    met: bool, server: Server
) -> None:
    """In a language that nobody here reads, "too many clients" ended a run that had been paid."""
    server.sql("CREATE ROLE guest LOGIN SUPERUSER")
    ledger = Ledger.open(service(server, "guest", user="guest"), terms(3))
    server.sql("ALTER ROLE guest NOLOGIN")
    try:
        if not met:
            ledger = Ledger(PostgresTables(ledger.path))
        started = time.monotonic()
        with pytest.raises(BudgetError, match="not permitted to log in"):
            _ = ledger.entries
        assert (time.monotonic() - started > postgres_connection._AWAY) == met
    finally:
        server.sql("DROP OWNED BY guest CASCADE; DROP ROLE guest")


@pytest.mark.usefixtures("server")
def test_a_server_that_hangs_up_is_no_refusal() -> None:
    text = (
        'connection to server at "127.0.0.1", port 1 failed: server closed the connection unexpectedly\n'
        "\tThis probably means the server terminated abnormally\n\tbefore or while processing the request.\n"
    )
    cause = postgres_connection.cause_of(
        Path("postgresql:one/x"), psycopg.OperationalError(text), connected=False
    )
    assert cause.passes
    assert cause.got == "no answer"
