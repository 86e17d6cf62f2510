"""A fork has a copy of what SQLite knows of an open file; nothing that it does reaches the file."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from opendp_sim.accounting.composition import Charge
from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.accounting.session.postgres import SharedStore
from opendp_sim.core.errors import BudgetError
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.dsl.run.session import serve
from tests.accounting import _kill_session as kill
from tests.accounting.ledger.test_ledger import TERMS
from tests.cli.test_session_cli import PEOPLE

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

FORKS = """
import os, sqlite3, sys
from pathlib import Path
def forked(inside, turn):
    "Fork while a file is open: the child leaves the block, and ends, between two turns of the parent."
    with inside() as it:
        for _ in range(3):
            turn(it)
        hear, tell = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(hear, 1)
            return
        for _ in range(3):
            turn(it)
        os.write(tell, b"x")
        assert os.waitpid(child, 0)[1] == 0
        for _ in range(3):
            turn(it)
    print(sqlite3.connect(sys.argv[1]).execute("pragma integrity_check").fetchone()[0])
"""
LEDGER = """
from opendp_sim.accounting.ledger.ledger import Ledger
forked(lambda: Ledger.open(sys.argv[1]), lambda ledger: ledger.outcome(ledger.entries[0], {}))
"""
STORE = """
import numpy as np
from tests.accounting import _kill_session as kill
forked(lambda: kill.opened(Path(sys.argv[1])), lambda session: session.ask(np.zeros((1, 4))))
"""
SERVED = """
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.dsl.run.session import serve
plan = plan_file(sys.argv[2])
forked(lambda: serve(plan, store=Path(sys.argv[1])), lambda served: served.ask([[0.5, 0.5]]))
"""


def _said(code: str, *paths: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", FORKS + code, *map(str, paths)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.stderr == ""
    return done.stdout


def test_a_fork_that_leaves_a_ledger_leaves_it_to_its_opener(tmp_path):
    path = tmp_path / "a.ledger"
    with Ledger.open(path, TERMS) as ledger:
        ledger.charge(Charge("zcdp", (0.02,)), {})
    assert _said(LEDGER, path) == "ok\n"
    with Ledger.open(path, TERMS) as ledger:
        assert ledger.verify() == 10


def test_a_fork_that_leaves_a_session_leaves_its_store_to_the_parent(tmp_path):
    path = tmp_path / "s.sqlite"
    kill.opened(path).close()
    assert _said(STORE, path) == "ok\n"
    kill.opened(path).close()


def test_a_fork_that_leaves_a_served_session_tells_the_ledger_nothing(tmp_path):
    """The store was "malformed" for ever, and the ledger heard of an end while the parent went on."""
    rng = np.random.default_rng(1)
    x, kind = rng.uniform(-1, 1, (60, 2)), np.array(["a", "b"])[rng.integers(0, 2, 60)]
    np.savez(
        tmp_path / "people.npz", x=x, kind=kind, who=np.array([f"p{i // 2}" for i in range(60)])
    )
    (tmp_path / "people.yaml").write_text(PEOPLE)
    plan, store = plan_file(tmp_path / "people.yaml"), tmp_path / "x.session"
    with serve(plan, store=store) as served:
        served.ask([[0.5, 0.5]])
    assert _said(SERVED, store, tmp_path / "people.yaml") == "ok\n"
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        ends = [entry for entry in ledger.entries if entry.body.get("ended")]
        assert len(ends) == 2
    with serve(plan, store=store) as served:
        served.ask([[0.5, 0.5]])


def in_a_fork(action):
    """Run in a fork, and return its exit code: 0 where the action says True; a hang is ended."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(120)
            code = 0 if action() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_of_a_ledger_in_a_database_connects_anew(place, monkeypatch):
    """Another thread was in a transaction: the fork waited for its lock, or spoke into its connection."""
    ledger = Ledger.open(place, TERMS)
    inside, go_on = threading.Event(), threading.Event()
    real = Ledger._append

    def slowly(self, body):
        if threading.current_thread() is not threading.main_thread():
            inside.set()
            assert go_on.wait(60)
        return real(self, body)

    monkeypatch.setattr(Ledger, "_append", slowly)
    charging = threading.Thread(target=ledger.charge, args=(Charge("zcdp", (0.01,)), {}))
    charging.start()
    assert inside.wait(60)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(120)
            code = 0 if ledger.charge(Charge("zcdp", (0.02,)), {}).seq == 2 else 2
            gc.collect(1)
        finally:
            os._exit(code)
    go_on.set()
    charging.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ledger.charge(Charge("zcdp", (0.03,)), {}).seq == 3
    assert ledger.verify() == 3


def test_a_fork_does_not_speak_into_the_connection_of_a_store(place):
    with SharedStore(place, "one") as store:
        purses = np.ones(3, dtype=np.int64)
        store.commit("updates", {}, [], lambda: purses)

        def spoken():
            refused = 0
            for action in (
                lambda: store.commit("updates", {}, [], lambda: purses),
                lambda: store.head,
                store.entries,
                store.tell,
                lambda: store.take_turn("a", ""),
            ):
                try:
                    action()
                except BudgetError as error:
                    refused += error.code == "OS407"
            store.close()
            store._db.close()
            gc.collect(1)
            return refused == 5

        assert in_a_fork(spoken) == 0
        store.commit("updates", {}, [], lambda: purses)
        assert store.head[0] == 2
