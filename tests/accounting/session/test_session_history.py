"""A store's history is read from its tables alone: no file, no lock, and nothing is written."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import pytest

from opendp_sim.accounting.session import _chain as chain
from opendp_sim.accounting.session.store import SessionHistory, SessionStore
from opendp_sim.core.errors import BudgetError

PURSES = np.arange(4, dtype=np.int64)


@pytest.fixture
def kept(tmp_path):
    """A store of two answers and an update, and what it said of itself while it was open."""
    path = tmp_path / "s.session"
    with SessionStore(path, "identity", "name") as store:
        store.commit("answers", {"labels": np.array([1])}, [], PURSES.copy)
        store.commit("insert", {"ids": np.array([7])}, [], PURSES.copy)
        store.commit("answers", {"labels": np.array([0])}, [], PURSES.copy)
        return path, store.head, store.answered


def test_a_history_says_what_the_open_store_said(kept):
    path, head, answered = kept
    before = path.read_bytes()
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as tables:
        history = SessionHistory()
        history._db, history._folded = tables, chain.read_folded(tables)
        assert (history.head, history.answered) == (head, answered)
        assert [kind for kind, _ in history.entries()] == ["answers", "insert", "answers"]
        assert [kind for kind, _ in history.transcript()] == ["answers", "answers"]
        assert history.purses().tolist() == PURSES.tolist()
        history.check_head(*head)
        history.check_head(*head, ended=True)
        with pytest.raises(BudgetError, match="OS407"):
            history.check_head(head[0] - 1, head[1])
    assert path.read_bytes() == before


def test_a_history_without_its_head_is_damaged():
    with closing(sqlite3.connect(":memory:")) as tables:
        tables.executescript(chain.CREATE_TABLES)
        history = SessionHistory()
        history._db, history._folded = tables, chain.empty_folded("")
        for said in (history.purses, lambda: history.head):
            with pytest.raises(BudgetError, match="OS407"):
                said()
