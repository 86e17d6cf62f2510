"""Sessions: durable charges, one owner, the same answers after reopening."""

from __future__ import annotations

import copy
import itertools
import os
import pickle
import shutil
import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.accounting.session.postgres import mark_at
from opendp_sim.accounting.session.session import Session
from opendp_sim.accounting.session.store import SessionStore
from opendp_sim.core.errors import BudgetError, InternalError, SpaceError
from opendp_sim.core.pipeline import bind_steps
from opendp_sim.domains.metrics import IdDistance, Symmetric
from opendp_sim.domains.rows import RealRows, Rows
from opendp_sim.measurements.knn._impl.vote_noise import Stock
from opendp_sim.measurements.knn.ind_knn import IndKnn
from opendp_sim.transformations.row_maps.bound_contributions import BoundContributions
from opendp_sim.transformations.row_maps.quantize import Quantize
from tests.accounting import _kill_session as kill

dp.enable_features("contrib")
QUERIES = np.rint(np.random.default_rng(2).normal(0, 40, (150, 4)))


def test_what_was_spent_stays_spent(tmp_path):
    path = tmp_path / "s.sqlite"
    with kill.opened(path) as session:
        session.ask(QUERIES[:3])
        for query in QUERIES[3:]:
            session.ask(query[None])
        left = session._service._purses.snapshot()
    assert left.min() < left.max()
    with kill.opened(path) as session:
        assert np.array_equal(session._service._purses.snapshot(), left)
        assert session.answered == 150
        session.ask(QUERIES[:1])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_main_file_alone_holds_every_charge(tmp_path):
    path, copy = tmp_path / "s.sqlite", tmp_path / "copy.sqlite"
    with kill.opened(path) as session:
        session.ask(QUERIES[:40])
        shutil.copy(path, copy)  # the write-ahead file stays behind
        left = session._service._purses.snapshot()
    with kill.opened(copy) as session:
        assert np.array_equal(session._service._purses.snapshot(), left)
        assert session.answered == 40


def test_an_emptied_store_is_no_new_store(tmp_path):
    path = tmp_path / "s.sqlite"
    with kill.opened(path) as session:
        session.ask(QUERIES[:1])
    path.write_bytes(b"")
    with pytest.raises(BudgetError) as caught:
        kill.opened(path)
    assert caught.value.code == "OS407"


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM purses",
        "DELETE FROM entry",
        "DELETE FROM entry WHERE place = 2",
        "DELETE FROM entry WHERE place = 1",
        "DELETE FROM entry WHERE place > 1; UPDATE purses SET place = 3",
        "UPDATE purses SET place = 0",
        "UPDATE purses SET units = x'0011'",
        "UPDATE purses SET units = x''",
        "INSERT INTO purses SELECT place + 1, units FROM purses",
        "UPDATE entry SET who = NULL WHERE place = 3",
        "UPDATE entry SET units = x'' WHERE place = 3",
        "UPDATE entry SET payload = x'50' WHERE place = 2",
    ],
)
def test_a_store_that_lost_a_part_is_damaged_and_not_new(tmp_path, damage):
    """Without its purses, a store with answers would start from full ones."""
    path = tmp_path / "s.sqlite"
    with kill.opened(path) as session:
        for query in QUERIES[:3]:
            session.ask(query[None])
    with closing(sqlite3.connect(path)) as other:
        other.executescript(damage)
    with pytest.raises(BudgetError, match="OS407"):
        kill.opened(path)


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_kills_never_find_an_answer_without_its_charge(tmp_path):
    said, charged = kill.kills(tmp_path / "s.sqlite", 8, seed=1)
    assert 0 < said <= charged


def test_the_kill_test_can_fail(tmp_path, monkeypatch):
    """A store that forgets every other commit is caught."""
    real, calls = SessionStore.commit, itertools.count()

    def forgetful(self, kind, payload, charges, snapshot):
        if next(calls) % 2 or kind != "answers":
            real(self, kind, payload, charges, snapshot)

    monkeypatch.setattr(SessionStore, "commit", forgetful)
    with pytest.raises(AssertionError, match="without its charge"):
        kill.kills(tmp_path / "s.sqlite", 8, seed=1)


def test_nobody_else_can_open_it(tmp_path):
    path = tmp_path / "s.sqlite"
    with kill.opened(path):
        with pytest.raises(BudgetError, match="OS407"):
            kill.opened(path)
        other = (
            "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], timeout=0.1)\n"
            "try: c.execute('select * from purses').fetchall(); print('open')\n"
            "except sqlite3.OperationalError: print('locked')"
        )
        seen = subprocess.run(
            [sys.executable, "-c", other, str(path)], capture_output=True, text=True, check=True
        )
        assert seen.stdout.strip() == "locked"
    kill.opened(path).close()


def test_a_fork_cannot_answer(tmp_path):
    with kill.opened(tmp_path / "s.sqlite") as session:
        session._store._owner += 1
        with pytest.raises(BudgetError, match="a fork of it"):
            session.ask(QUERIES[:1])


@pytest.mark.parametrize("way", ["rename", "link", "remove", "replace"])
def test_a_store_that_lost_its_name_while_open_answers_nothing(tmp_path, monkeypatch, way):
    """Without a ledger too: its lock is by name."""
    monkeypatch.chdir(tmp_path)
    path, old = tmp_path / "s.sqlite", tmp_path / "old"
    kill.opened(path).close()
    shutil.copy(path, old)
    with kill.opened(Path(path.name)) as session:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        session.ask(QUERIES[:1])
        {
            "rename": lambda: path.rename(tmp_path / "moved"),
            "link": lambda: (tmp_path / "second").hardlink_to(path),
            "remove": path.unlink,
            "replace": lambda: old.replace(path),
        }[way]()
        with pytest.raises(BudgetError, match="OS407"):
            session.ask(QUERIES[1:2])


def test_another_setting_other_data_or_a_damaged_file_are_refused(tmp_path):
    path = tmp_path / "s.sqlite"
    kill.opened(path).close()
    stages = bind_steps(kill.GRID, Symmetric(), [IndKnn(rho=9.0, queries=4, size=300)])
    with pytest.raises(BudgetError, match="OS407"):
        Session(stages, lambda: [kill.data()], path)
    half = Rows(kill.data().values[:9], kill.data().labels[:9])
    with pytest.raises(BudgetError, match="OS407"):
        Session(kill.stages(), lambda: [half], path)
    path.write_bytes(b"not a database, but long enough to be looked at" * 40)
    with pytest.raises(BudgetError, match="OS407"):
        kill.opened(path)


def test_a_mechanism_that_cannot_be_resumed_is_refused(tmp_path):
    with pytest.raises(SpaceError, match="OS201"):
        Session((), lambda: [kill.data()], tmp_path / "s.sqlite")


def test_a_failed_commit_withholds_the_answer(tmp_path, monkeypatch):
    path = tmp_path / "s.sqlite"
    with kill.opened(path) as session:
        session.ask(QUERIES[:2])

        def full(*_):
            raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr(session._store, "commit", full)
        with pytest.raises(InternalError, match="OS902"):
            session.ask(QUERIES[:1])
        with pytest.raises(BudgetError, match="OS406"):
            session.ask(QUERIES[:1])
    with kill.opened(path) as session:
        assert session.answered == 2


def test_a_failure_inside_is_durable(tmp_path, monkeypatch):
    path = tmp_path / "s.sqlite"
    with kill.opened(path) as session:
        session.ask(QUERIES[:2])
        with monkeypatch.context() as patched:
            patched.setattr(Stock, "noisy", lambda *_: 1 / 0)
            with pytest.raises(InternalError, match="OS902"):
                session.ask(QUERIES[:1])
    with kill.opened(path) as session:
        assert not session._service._purses.snapshot().any()
        with pytest.raises(BudgetError, match="OS406"):
            session.ask(QUERIES[:1])


def test_updates_reference_and_reuse_survive(tmp_path, monkeypatch):
    monkeypatch.setattr(Stock, "noisy", lambda _, cells, scale: cells)
    domain = RealRows(width=2, labels=(0, 1), ids=True)
    steps = [
        Quantize(bits=8, bounds=(-1.0, 1.0)),
        IndKnn(
            rho=0.5,
            queries=50,
            size=100,
            reuse=True,
            search={"sign_hashes": {"bits": 2, "tables": 9}},
        ),
    ]
    stages = bind_steps(domain, IdDistance("who"), steps)
    rng = np.random.default_rng(4)
    rows = Rows(rng.uniform(-1, 1, (60, 2)), rng.integers(0, 2, 60), np.arange(60) // 2)
    public, asked = rng.uniform(-1, 1, (80, 2)), rng.uniform(-1, 1, (20, 2))

    def told(session, first):
        if first:
            session.insert(Rows(np.array([[0.5, 0.5]]), np.array([1]), np.array([99])))
            session.refer(public)
        one = session.ask(asked[:10])
        session.delete([3, 4])
        session.relabel(Rows(np.array([[-0.5, 0.5]]), np.array([1]), np.array([7])))
        two = session.ask(asked[10:])
        return np.concatenate([one.votes, two.votes])

    with Session(stages, lambda: [rows], tmp_path / "a.sqlite") as session:
        once = told(session, first=True)
        again = told(session, first=False)
    with Session(stages, lambda: [rows], tmp_path / "b.sqlite") as session:
        assert np.array_equal(once, told(session, first=True))
    with Session(stages, lambda: [rows], tmp_path / "b.sqlite") as session:
        assert np.array_equal(again, told(session, first=False))
        kinds = [kind for kind, _ in session._store.transcript()]
        assert set(kinds) == {"reference", "answers"}
        assert "secret" not in repr(session) or "sqlite" in repr(session)


def test_bounded_persons_stay_bounded(tmp_path):
    """A survey is good for one pass, and says nothing about records that come later."""
    domain = RealRows(width=2, labels=(0, 1), ids=True)
    steps = [
        BoundContributions(max_rows=2),
        Quantize(bits=8, bounds=(-1.0, 1.0)),
        IndKnn(rho=0.5, queries=50, size=100, threshold=0.3, centre=False),
    ]
    stages = bind_steps(domain, IdDistance("who"), steps)
    rng = np.random.default_rng(4)
    rows = Rows(rng.uniform(-1, 1, (60, 2)), rng.integers(0, 2, 60), np.arange(60) // 6)
    queries = rng.uniform(-1, 1, (2, 2))
    path = tmp_path / "s.sqlite"
    for answered in (2, 4):
        with Session(stages, lambda: [rows], path) as session:
            assert len(session._service._purses.snapshot()) == 20
            session.ask(queries)
            assert session.answered == answered
            new = Rows(rng.uniform(-1, 1, (9, 2)), np.zeros(9, dtype=np.int64), np.full(9, 77))
            for update in (session.insert, session.relabel):
                with pytest.raises(SpaceError, match="OS201"):
                    update(new)


OTHER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.accounting import _kill_session as kill
try:
    with kill.opened(Path(sys.argv[1])): print("open")
except Exception as error: print(error.code)
"""


def test_closing_another_descriptor_lets_nobody_in(tmp_path):
    """POSIX drops SQLite's lock when this process closes any descriptor of the file."""
    path = tmp_path / "s.sqlite"
    with kill.opened(path) as session:
        session.ask(QUERIES[:1])
        path.read_bytes()
        seen = subprocess.run(
            [sys.executable, "-c", OTHER, str(path), str(Path(__file__).parents[3])],
            capture_output=True,
            text=True,
            check=False,
        )
        assert seen.stdout.strip() == "OS407", seen.stderr
        (tmp_path / "link.sqlite").symlink_to(path)
        with pytest.raises(BudgetError, match="OS407"):
            kill.opened(tmp_path / "link.sqlite")
        session.ask(QUERIES[1:2])
    with kill.opened(path) as session:
        assert len(session._store.transcript()) == 2


def test_threads_take_turns(tmp_path):
    """Closed by another thread it kept its lock for ever, though its ledger had heard of the end."""
    path = tmp_path / "s.sqlite"
    with kill.opened(path) as session, ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(session.ask, QUERIES[at : at + 1]) for at in range(12)]:
            assert len(done.result().labels) == 1
        assert pool.submit(lambda: session.answered).result() == 12
        assert np.array_equal(session._service._purses.snapshot(), session._store.purses())
        pool.submit(session.close).result()
        for act in (lambda: session.ask(QUERIES[:1]), session.tell, lambda: session.answered):
            with pytest.raises(BudgetError, match="one that was closed"):
                act()
    with kill.opened(path) as session:
        assert session.answered == 12


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_is_used_once_is_not_copied(again, tmp_path):
    """A copy would spend the same purses, or give out the same noise, a second time."""
    with kill.opened(tmp_path / "s.sqlite") as session:
        for one in (session._service, session._service._stock, Stock()):
            with pytest.raises(BudgetError, match="OS407"):
                again(one)
        session.ask(QUERIES[:1])


STRANGE = {
    "a trigger": """CREATE TRIGGER t AFTER INSERT ON about WHEN NEW.name='head' BEGIN
        DELETE FROM entry WHERE place > 1; END;""",
    "an endless view": """ALTER TABLE about RENAME TO a2; CREATE VIEW about AS WITH RECURSIVE c(value) AS
        (SELECT 1 UNION ALL SELECT value+1 FROM c) SELECT value name, value FROM c;""",
    "a table more": "CREATE TABLE keep AS SELECT * FROM purses;",
}


@pytest.mark.parametrize("what", STRANGE)
def test_a_store_with_anything_but_its_tables_is_refused(tmp_path, what):
    """A trigger refilled all purses whenever the store was opened."""
    path = tmp_path / "s.sqlite"
    kill.opened(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("PRAGMA journal_mode=DELETE;" + STRANGE[what])
    with pytest.raises(BudgetError, match="OS407"):
        kill.opened(path)
    with pytest.raises(BudgetError, match="OS407"):
        mark_at(path)
