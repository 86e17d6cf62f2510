"""A session's store finds every edit, folds what nobody needs, and is never copied."""

from __future__ import annotations

import copy
import pickle
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from opendp_sim.accounting.session import _chain as chain
from opendp_sim.accounting.session.postgres import mark_at
from opendp_sim.accounting.session.session import Session
from opendp_sim.accounting.session.store import SessionStore
from opendp_sim.core.errors import BudgetError, SimError
from opendp_sim.core.pipeline import bind_steps
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.measurements.knn._impl import public_votes as public
from opendp_sim.measurements.knn.hybrid_knn import HybridKnn
from opendp_sim.measurements.knn.ind_knn import IndKnn
from opendp_sim.measurements.knn.private_knn import PrivateKnn
from tests.accounting import _kill_session as kill

QUERIES = np.rint(np.random.default_rng(2).normal(0, 40, (60, 4)))
PURSES = np.arange(50, dtype=np.int64)


def filled(path, entries=5, **named):
    with SessionStore(path, "identity", "name", **named) as store:
        for at in range(entries):
            payload = {"labels": np.array([at % 2]), "rows": np.ones((1, 3))}
            charge = (np.array([at % 50]), np.array([3]))
            store.commit("answers", payload, [charge], PURSES.copy)
    return path


EDITS = {
    "the last row": "DELETE FROM entry WHERE place = (SELECT max(place) FROM entry)",
    "the last row, and the head after it": "DELETE FROM entry WHERE place = 5;"
    "UPDATE about SET value = replace(value, '\"place\": 5', '\"place\": 4') WHERE name = 'head'",
    "a middle row": "DELETE FROM entry WHERE place = 3",
    "all rows": "DELETE FROM entry; DELETE FROM purses",
    "a kind": "UPDATE entry SET kind = 'easy' WHERE place = 2",
    "a payload": "UPDATE entry SET payload = (SELECT payload FROM entry WHERE place = 1) WHERE place = 2",
    "a payload of text": "UPDATE entry SET payload = 'text' WHERE place = 2",
    "who paid": "UPDATE entry SET who = (SELECT who FROM entry WHERE place = 4) WHERE place = 3",
    "how much": "UPDATE entry SET units = zeroblob(8) WHERE place = 3",
    "a charge taken back": "UPDATE entry SET who = x'', units = x'' WHERE place = 5",
    "the number of answers": "UPDATE entry SET answers = 0 WHERE place = 2",
    "the bond to the purses": "UPDATE entry SET copy = '' WHERE copy <> ''",
    "a hash": "UPDATE entry SET hash = lower(hex(randomblob(32))) WHERE place = 2",
    "two rows swapped": "UPDATE entry SET place = place + 100 WHERE place IN (2, 3);"
    "UPDATE entry SET place = 105 - place WHERE place > 100",
    "all purses": "UPDATE purses SET units = zeroblob(400)",
    "no purses": "DELETE FROM purses",
    "purses of another place": "UPDATE purses SET place = 2",
    "the head": "UPDATE about SET value = '{}' WHERE name = 'head'",
    "no head": "DELETE FROM about WHERE name = 'head'",
    "the folded part": "UPDATE about SET value = replace(value, '\"answers\": 0', '\"answers\": -9') "
    "WHERE name = 'folded'; UPDATE about SET value = 'x' WHERE name = 'folded'",
    "another place of the fold": "UPDATE about SET value = replace(value, '\"place\": 0', '\"place\": 2')"
    " WHERE name = 'folded'",
    "the name": "UPDATE about SET value = 'other' WHERE name = 'name'",
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_store_is_refused(tmp_path, edit):
    path = filled(tmp_path / "s.session")
    SessionStore(path, "identity").close()
    with closing(sqlite3.connect(path)) as other:
        other.executescript(EDITS[edit])
    with pytest.raises(BudgetError, match="OS407"):
        SessionStore(path, "identity")


def test_one_flipped_bit_in_a_purse_is_refused(tmp_path):
    path = filled(tmp_path / "s.session")
    with closing(sqlite3.connect(path)) as other, other:
        (units,) = other.execute("SELECT units FROM purses").fetchone()
        for bit in (0, 7, 62, 8 * len(units) - 1):
            flipped = bytearray(units)
            flipped[bit // 8] ^= 1 << bit % 8
            other.execute("UPDATE purses SET units = ?", (bytes(flipped),))
            other.commit()
            with pytest.raises(BudgetError, match="OS407"):
                SessionStore(path, "identity")
        other.execute("UPDATE purses SET units = ?", (units,))
    SessionStore(path, "identity").close()


def test_folded_answers_go_and_everything_else_stays(tmp_path, monkeypatch):
    """The file stops growing; purses, numbers and updates are those of a store that forgets nothing."""
    monkeypatch.setattr(chain, "KEPT", 100)
    stores = [tmp_path / "short.session", tmp_path / "long.session"]
    for path, forgets in zip(stores, (True, False), strict=True):
        filled(path, 40, forgets=forgets)
        with SessionStore(path, "identity", forgets=forgets) as store:
            store.commit("delete", {"ids": np.array([7])}, [], PURSES.copy)
            told = store.tell()
        filled(path, 600, forgets=forgets)
        with SessionStore(path, "identity", forgets=forgets) as store:
            assert store.answered == 640
            assert store.head[0] == 641
            store.check_head(*told)
            with pytest.raises(BudgetError, match="OS407"):
                store.check_head(told[0], "0" * 64)
            with pytest.raises(BudgetError, match="OS407"):
                store.check_head(9999, told[1])
            kinds = [kind for kind, _ in store.entries()]
            assert kinds.count("delete") == 1
            assert len(kinds) <= 170 if forgets else len(kinds) == 641
    short, long = (SessionStore(path, "identity") for path in stores)
    assert np.array_equal(short.purses(), long.purses())
    assert stores[0].stat().st_size < stores[1].stat().st_size / 2
    short.close()
    with closing(sqlite3.connect(stores[0])) as other:
        other.executescript("DELETE FROM entry WHERE kind = 'delete'")
    with pytest.raises(BudgetError, match="OS407"):
        SessionStore(stores[0], "identity")
    long.close()


def test_a_folded_session_goes_on_and_answers_the_same_questions(tmp_path, monkeypatch):
    monkeypatch.setattr(chain, "KEPT", 20)
    path = tmp_path / "s.session"
    for _ in range(5):
        with kill.opened(path) as session:
            for query in QUERIES:
                session.ask(query[None])
            left = session._service._purses.snapshot()
    with kill.opened(path) as session:
        assert session.answered == 300
        assert np.array_equal(session._service._purses.snapshot(), left)
        assert len(session._store.entries()) < 120


FORGETFUL = {
    "hybrid": HybridKnn(rho=50.0, queries=400, size=300, hard=0.5),
    "reuse": IndKnn(rho=0.5, queries=400, size=300, threshold=0.3, centre=False, reuse=True),
    "private_knn": PrivateKnn(epsilon=20.0, delta=1e-6, queries=250, centre=False, rate=0.5),
}


def _remembered(session):
    """Return what a service goes on from, besides its purses."""
    service = session._service
    answered = getattr(getattr(service, "_inner", service), "_answered", None)
    return (
        getattr(service, "_doubt", None),
        session.answered,
        answered if answered is None or isinstance(answered, int) else answered.labels,
        service._purses_now().tolist(),
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("name", FORGETFUL)
def test_every_service_folds_its_answers_and_goes_on_as_if_it_had_not(tmp_path, monkeypatch, name):
    """The store stops growing; what was learned, counted and charged is what it was, bit for bit."""
    monkeypatch.setattr(chain, "KEPT", 20)
    monkeypatch.setattr(public, "REMEMBERED", 8)
    stages = bind_steps(kill.GRID, Symmetric(), [FORGETFUL[name]])
    path, sizes, left = tmp_path / "s.session", [], None
    for _ in range(2):
        with Session(stages, lambda: [kill.data()], path) as session:
            session.refer(QUERIES)
            assert left is None or _remembered(session) == left
            for query in (*QUERIES, *QUERIES):
                session.ask(query[None])
            left = _remembered(session)
            sizes.append(len(session._store.entries()))
    assert left[1] == 4 * len(QUERIES)
    assert max(sizes) < 130
    with Session(stages, lambda: [kill.data()], path) as session:
        assert _remembered(session) == left
        if name == "private_knn":  # 240 of 250 were answered, most of which are folded
            session.ask(QUERIES[:10])
            with pytest.raises(BudgetError, match="OS406"):
                session.ask(QUERIES[:1])


def test_the_number_of_folded_answers_is_bound_to_the_chain(tmp_path, monkeypatch):
    """Whoever lowers it, and so grants more of a fixed number of queries, is refused."""
    monkeypatch.setattr(chain, "KEPT", 20)
    path = filled(tmp_path / "s.session", 300, forgets=True)
    with closing(sqlite3.connect(path)) as db, db:
        folded = chain.read_folded(db)
        assert folded.answers > 100
        chain.write_value(db, "folded", folded.model_copy(update={"answers": 1}))
    with pytest.raises(BudgetError, match="OS407"):
        SessionStore(path, "identity", forgets=True)


@pytest.mark.parametrize("act", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_session_and_its_parts_are_never_copied(tmp_path, act):
    with kill.opened(tmp_path / "s.session") as session:
        for thing in (session, session._store, session._service):
            with pytest.raises(SimError, match="OS407") as caught:
                act(thing)
            assert caught.value.hint
        session.ask(QUERIES[:1])


def test_a_name_that_no_file_can_have_is_no_store(tmp_path):
    """``session --store`` with 300 characters ended as an error of ours (OS903)."""
    assert mark_at(tmp_path / ("n" * 300)) is None
