"""The ledger in PostgreSQL: the laws of the file ledger, many drivers, kills, forgeries. A throw-away server."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opendp_sim.accounting.budget import Limit
from opendp_sim.accounting.composition import Charge
from opendp_sim.accounting.ledger import postgres_connection as _postgres
from opendp_sim.accounting.ledger._entries import entry_hash
from opendp_sim.accounting.ledger._postgres_tables import PostgresTables
from opendp_sim.accounting.ledger.ledger import REFUSALS, Ledger, Terms, head_of, is_there
from opendp_sim.accounting.ledger.postgres_connection import is_shared
from opendp_sim.core.errors import BudgetError, DataError
from opendp_sim.dsl import apply, plan_file
from opendp_sim.dsl.run.charge import Transaction, ledger_terms, standing
from tests._small import write_small
from tests.accounting._server import Cut, Server

psycopg = pytest.importorskip("psycopg")
ONE = Charge("zcdp", (0.01,))


def terms(charges: int) -> Terms:
    return Terms("zcdp", "add_remove 1 of row", Limit(rho=0.01 * charges + 1e-9))


def bodies(ledger: Ledger) -> list[dict[str, Any]]:
    return [{k: v for k, v in e.body.items() if k != "time"} for e in ledger.entries]


def outcome(action: Any) -> Any:
    try:
        found = action()
    except BudgetError as error:
        return error.code
    return getattr(found, "seq", found)


def step_of(what: int, ledger: Ledger, loss: Charge, kind: Any, entry: Any, step: int) -> Any:
    about = {"program": f"p{step}"}
    settled = {} if kind == "charge" else {"code": "OS603"}
    return [
        lambda: ledger.charge(loss, about),
        lambda: ledger.reserve(loss, about),
        lambda: ledger.reserve(loss, about),
        lambda: ledger.settle(entry, kind, settled),
        lambda: ledger.opened("s", f"t{step}"),
        ledger.may_refuse,
        lambda: ledger.total().text,
    ][what]


def test_both_ledgers_side_by_side_say_the_same(place: str, tmp_path: Path) -> None:
    """A state machine over every call: equal answers, equal refusals, equal entries, equal totals."""
    g = np.random.default_rng(1)
    with Ledger.open(tmp_path / "l", terms(9)) as file, Ledger.open(place, terms(9)) as shared:
        made: list[tuple[Any, Any]] = []
        for step in range(36):
            what = g.integers(0, 7)
            loss, kind = (
                Charge("zcdp", (0.002 * int(g.integers(1, 6)),)),
                str(g.choice(["charge", "refusal", "void"])),
            )
            at = int(g.integers(0, max(len(made), 1)))
            if what == 3 and not made:
                continue
            both = [
                outcome(step_of(what, ledger, loss, kind, made[at][n] if made else None, step))
                for n, ledger in enumerate((file, shared))
            ]
            assert both[0] == both[1]
            if what in (1, 2) and isinstance(both[0], int):
                made.append((file.entries[-1], shared.entries[-1]))
        assert bodies(file) == bodies(shared)
        assert len(file.entries) > 12
        assert (file.turn_of("s"), file.total().text) == (shared.turn_of("s"), shared.total().text)
        assert shared.verify(shared.head) == len(shared.entries)
    assert head_of(place) == shared.head


def test_of_many_that_saw_one_head_one_is_charged(place: str) -> None:
    """The head is compared in the transaction that writes, by as many connections as there are."""
    with Ledger.open(place, terms(9)) as ledger:
        ledger.charge(ONE, {"program": "p"})
        seen = ledger.head

        def confirmed(number: int) -> Any:
            with Ledger.open(place) as own:
                return outcome(lambda: own.reserve(ONE, {"program": f"p{number}"}, seen))

        with ThreadPoolExecutor(6) as pool:
            found = list(pool.map(confirmed, range(6)))
        assert sorted(found, key=str) == [2, *["OS409"] * 5]
        assert len(ledger.entries) == 2


DRIVER = """
import sys
from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.accounting.composition import Charge
from opendp_sim.core.errors import BudgetError
ledger = Ledger.open(sys.argv[1])
while True:
    try: print(ledger.charge(Charge("zcdp", (0.01,)), {"program": "p"}).seq, flush=True)
    except BudgetError as error:
        if error.code == "OS402": break
        print(error.code, error.got, file=sys.stderr, flush=True)
"""


def driver(place: str) -> Any:
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, place],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_drivers_never_pass_the_limit(place: str) -> None:
    Ledger.open(place, terms(24))
    drivers = [driver(place) for _ in range(2)]
    told = [int(line) for one in drivers for line in one.communicate()[0].split()]
    assert sorted(told) == list(range(1, 25))
    assert Ledger.open(place).verify() == 24


def test_threads_of_one_object_take_turns(place: str) -> None:
    """They shared one connection and its transaction: a hang, or an AttributeError."""
    ledger = Ledger.open(place, terms(12))

    def charge(at: int) -> int:
        seq = ledger.charge(ONE, {"program": str(at)}).seq
        assert ledger.verify() >= seq
        return seq

    with ThreadPoolExecutor(6) as pool:
        told = list(pool.map(charge, range(12), timeout=60))
    assert sorted(told) == list(range(1, 13))
    with pytest.raises(BudgetError, match="OS402"):
        ledger.charge(ONE, {"program": "p"})


def killed(one: Any) -> tuple[str, str]:
    """Kill a process and return what it had said; ``communicate`` loses what ``readline`` read ahead."""
    one.kill()
    with one:
        return one.stdout.read(), one.stderr.read()


@pytest.mark.parametrize(
    "waits", [(), pytest.param((0.0, 0.001, 0.004, 0.011) * 3, marks=pytest.mark.deep)]
)
def test_killed_clients_and_a_killed_server_lose_and_double_nothing(
    waits: tuple[float, ...], server: Server
) -> None:
    place = f"postgresql:one/kills-{len(waits)}"
    Ledger.open(place, terms(400))
    told: list[int] = []
    for wait in waits:
        one = driver(place)
        told.append(int(one.stdout.readline()))
        time.sleep(wait)
        told += [int(line) for line in killed(one)[0].split()]
    one = driver(place)
    told.append(int(one.stdout.readline()))
    server.kill()
    time.sleep(0.3)
    server.start()
    told += [int(one.stdout.readline()) for _ in range(3)]
    rest, errors = killed(one)
    told += [int(line) for line in rest.split()]
    ledger = Ledger.open(place)
    kept = ledger.verify()
    assert len(set(told)) == len(told)
    assert set(told) <= set(range(1, kept + 1))
    # Each kill, of a client or of the server, may leave one that was kept and not told.
    assert kept - len(told) <= len(waits) + 2
    assert all(line.startswith("OS403") for line in errors.splitlines() if line)


def test_a_lost_answer_to_commit_charges_once(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.open(place, terms(5))
    lost = iter([True, False, False])

    real = PostgresTables.writing

    @contextmanager
    def dropped(self: PostgresTables, token: str) -> Iterator[int | None]:
        with real(self, token) as made:
            yield made
        if next(lost, False):
            raise psycopg.OperationalError("the connection went away during COMMIT")

    monkeypatch.setattr(PostgresTables, "writing", dropped)
    assert ledger.charge(ONE, {"program": "p"}).seq == 1
    assert ledger.charge(ONE, {"program": "q"}).seq == 2
    assert [e.body["program"] for e in ledger.entries] == ["p", "q"]


@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.long), "after"])
def test_a_network_that_is_cut_during_commit_charges_once(when: str, server: Server) -> None:
    """At the first COMMITs of a reserve, a settlement and a charge; whether the server heard it or not."""
    place = f"postgresql:cut/cut-{when}"
    Ledger.open(place.replace("cut/", "one/"), terms(60))
    for at in range(1, 5):
        proxy = Cut(server.port, at, when)
        server.through(proxy.door.getsockname()[1])
        ledger = Ledger.open(place)
        before = [entry.seq for entry in ledger.entries]
        for step in range(3):
            entry = ledger.reserve(ONE, {"program": f"p{at}-{step}"})
            ledger.settle(entry, "charge" if step else "void", {} if step else {"code": "OS601"})
        said = bodies(ledger)[len(before) :]
        proxy.close()
        assert proxy.cuts == 1
        assert [body["kind"] for body in said] == ["reserve", "void", *["reserve", "charge"] * 2]
        assert [body.get("program") for body in said][::2] == [f"p{at}-{n}" for n in range(3)]
    assert Ledger.open(place.replace("cut/", "one/")).verify() == 24


def test_eight_clients_never_pass_the_limit(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight connections that charge at once: every entry once, and exactly as many as fit."""
    monkeypatch.setattr(_postgres, "_OPTIONS", "-c lock_timeout=0")  # a slow machine is no refusal
    clients = [Ledger.open(place, terms(12)) for _ in range(8)]

    def all_of(ledger: Ledger) -> list[int]:
        told = []
        while True:
            try:
                told.append(ledger.charge(ONE, {"program": "p"}).seq)
            except BudgetError as error:
                if error.code != "OS402":
                    raise
                return told

    with ThreadPoolExecutor(8) as pool:
        told = [seq for one in pool.map(all_of, clients) for seq in one]
    assert sorted(told) == list(range(1, 13))
    assert clients[0].verify() == 12


FORGERIES = {
    "edit": "UPDATE opendp_sim.entry SET body = body || ' ' WHERE seq = 2 AND ledger = {id}",
    "cut": "DELETE FROM opendp_sim.entry WHERE seq = 3 AND ledger = {id}",
    "hole": "DELETE FROM opendp_sim.entry WHERE seq = 1 AND ledger = {id}",
    "swap": "UPDATE opendp_sim.entry SET body = (SELECT body FROM opendp_sim.entry o WHERE o.ledger = {id} "
    "AND o.seq = 5 - entry.seq) WHERE seq IN (2, 3) AND ledger = {id}",
    "head": "UPDATE opendp_sim.ledger SET head = replace(head, '3', '2') WHERE id = {id}",
    "terms": "UPDATE opendp_sim.ledger SET genesis = replace(genesis, 'rho', 'mu') WHERE id = {id}",
}


@pytest.mark.parametrize("how", FORGERIES)
def test_a_forged_ledger_is_refused(how: str, server: Server) -> None:
    place = f"postgresql:one/forged-{how}"
    ledger = Ledger.open(place, terms(9))
    for name in "abc":
        ledger.charge(ONE, {"program": name})
    (number,) = server.sql("SELECT max(id) FROM opendp_sim.ledger").fetchone()
    text = FORGERIES[how].format(id=number)
    if how not in ("head", "terms"):
        with pytest.raises(psycopg.Error, match="never changed"):
            server.sql(text)
    server.sql("ALTER TABLE opendp_sim.entry DISABLE TRIGGER never")
    server.sql(text)
    server.sql("ALTER TABLE opendp_sim.entry ENABLE TRIGGER never")
    with pytest.raises(BudgetError) as caught:
        Ledger.open(place)
    assert caught.value.code == "OS403"


def test_an_older_history_is_found_by_a_head_kept_elsewhere(place: str, server: Server) -> None:
    ledger = Ledger.open(place, terms(9))
    ledger.charge(ONE, {"program": "p"})
    head = ledger.head
    assert ledger.verify(head) == 1
    with pytest.raises(BudgetError, match="OS403"):
        ledger.verify(entry_hash("", "another"))


def test_refusals_of_many_drivers_are_capped(place: str) -> None:
    """Drivers that reserve before any of them was refused: what is beyond the cap stays a charge."""
    one, two = Ledger.open(place, terms(40)), Ledger.open(place)
    held = [ledger.reserve(ONE, {"program": "p"}) for ledger in (one, two) * 7]
    for at, entry in enumerate(held):
        (one, two)[at % 2].settle(entry, "refusal", {"code": "OS603"})
    assert sum(e.kind == "refusal" for e in one.entries) == REFUSALS
    assert len(one.charges) == len(held) - REFUSALS


def test_runs_under_enforce_have_refusals_of_their_own(place: str, tmp_path: Path) -> None:
    """A cut file under `enforce`, in ledgers whose other runs were refused ten times: as in a file."""
    about = {"program": "p"}
    for where in (place, tmp_path / "l.ledger"):
        with Ledger.open(where, terms(40)) as ledger:
            for _ in range(REFUSALS):
                ledger.settle(ledger.reserve(ONE, about), "refusal", {"code": "OS603"})
            with pytest.raises(BudgetError, match="OS402"):
                ledger.may_refuse()
            ledger.may_refuse(enforced=True)
            cut = {"code": "OS601", "ingest": "enforce"}
            assert ledger.settle(ledger.reserve(ONE, about), "refusal", cut).kind == "refusal"
            assert not ledger.charges


def test_a_refusal_that_stays_charged_is_not_taken_back(place: str, tmp_path: Path) -> None:
    """Others were refused while this run looked at its data: what it was told of the charge stands."""
    plan = plan_file(write_small(tmp_path, ("points.ledger", place)))
    terms_, told = ledger_terms(plan), list[str]()
    with Ledger.open(place, terms_) as ledger:
        transaction = Transaction(plan, ledger, told.append)
        transaction.reserve()
        for _ in range(REFUSALS):
            ledger.refusal({"program": "p", "code": "OS603"})
        cut = DataError("OS603", "records", expected="an entry", got="none", hint="clean it.")
        with pytest.raises(DataError), transaction.gate():
            raise cut
        assert [e.kind for e in ledger.entries][-1] == "refusal"
        assert len(ledger.charges) == 1
    assert len(told) == 1
    assert "and stands" in told[0]


def test_an_entry_of_somebody_else_breaks_no_look_at_the_chain(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries and head are of one moment: read apart, a healthy ledger was said to be cut."""
    other, real = Ledger.open(place, terms(40)), Ledger._read

    def read(self: Ledger, *, afresh: bool = False) -> Any:
        found = real(self, afresh=afresh)
        if self is not other:
            other.reserve(ONE, {"program": "p"})
        return found

    monkeypatch.setattr(Ledger, "_read", read)
    one = Ledger.open(place)
    for at in range(3):
        assert one.verify(other.head) >= at
    assert len(other.entries) >= 4


def test_a_server_that_may_lose_commits_is_no_ledger(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_postgres, "_OPTIONS", "-c synchronous_commit=off")
    with pytest.raises(BudgetError, match="synchronous_commit"):
        Ledger.open(place, terms(3))


def test_other_terms_no_service_and_no_name_are_refused(place: str) -> None:
    Ledger.open(place, terms(3))
    for where, given in (
        (place, terms(4)),
        (place + "x", None),
        ("postgresql:none/x", terms(3)),
        ("postgresql:x", None),
    ):
        with pytest.raises(BudgetError) as caught:
            Ledger.open(where, given)
        assert caught.value.code == "OS403"
    assert is_shared(place)
    assert not is_shared("l.ledger")


def test_a_spec_is_charged_there(place: str, tmp_path: Path) -> None:
    spec = write_small(tmp_path, ("points.ledger", place))
    done = apply(plan_file(spec))
    assert done.charge is not None
    with Ledger.open(place) as ledger:
        assert [e.kind for e in ledger.entries] == ["reserve", "charge", "outcome"]


def test_a_ledger_that_a_database_lost_is_missed_by_its_certificates(
    place: str, tmp_path: Path, server: Server
) -> None:
    """The advice was to move a file away."""
    plan = plan_file(write_small(tmp_path, ("points.ledger", f'"{place}"')))
    apply(plan)
    server.sql("DROP SCHEMA opendp_sim CASCADE")
    with pytest.raises(BudgetError, match="OS407") as caught:
        apply(plan)
    assert "name another ledger in the spec" in caught.value.hint


def test_a_plan_writes_nothing_there(place: str, tmp_path: Path, server: Server) -> None:
    """It made the ledger, and with it its limit, which a later spec could not state otherwise."""
    plan = plan_file(write_small(tmp_path, ("points.ledger", place)))
    before = standing(plan)
    assert before is not None
    assert (before.head, before.runs) == ("", ())
    assert head_of(place) is None
    assert not is_there(place)
    apply(plan)
    after = standing(plan)
    assert after is not None
    assert (after.head, len(after.runs)) == (head_of(place), 1)
    assert head_of(place) is not None
    server.sql("DROP SCHEMA opendp_sim CASCADE")  # a database that nobody has used yet
    assert not is_there(place)


def test_a_network_that_says_nothing_ends_a_client(place: str) -> None:
    """libpq's own patience is for ever, and a commit holds back Ctrl-C meanwhile."""
    assert Ledger.open(place, terms(3)) is not None
    with _postgres.connect(Path(place)) as db:
        told = db.info.get_parameters()
    assert {name: told[name] for name in _postgres.PATIENCE} == {
        name: str(value) for name, value in _postgres.PATIENCE.items()
    }
