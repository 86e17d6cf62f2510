"""Purses are the last full copy less what was paid since; bytes that cannot be that are refused."""

from __future__ import annotations

import io
import sqlite3
import zipfile
import zlib
from contextlib import closing

import numpy as np
import pytest

from opendp_sim.accounting.session import _chain as chain
from opendp_sim.accounting.session._encoding import unpacked_arrays
from opendp_sim.accounting.session._tables import create_store, read_purses
from opendp_sim.accounting.session.end import End, note_end, noted_end, remove_note
from opendp_sim.accounting.session.store import SessionHistory, SessionStore
from opendp_sim.core.errors import BudgetError


def packed(*numbers: int) -> bytes:
    return np.array(numbers, dtype="<i8").tobytes()


@pytest.mark.parametrize(
    ("who", "paid", "left"),
    [
        (packed(1), packed(4), [10, 6, 10]),
        (packed(-1), packed(4), None),
        (packed(7), packed(4), None),
        (packed(0, 1), packed(4), None),
        (b"123", packed(4), None),
    ],
)
def test_purses_are_read_or_refused(who: bytes, paid: bytes, left: list[int] | None) -> None:
    with closing(sqlite3.connect(":memory:")) as store:
        create_store(store, {}, "name")
        store.execute("INSERT INTO purses VALUES (1, ?)", (packed(10, 10, 10),))
        row = (2, "answers", b"", who, paid, 1, "", chain.start("name"))
        store.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        if left is None:
            with pytest.raises(BudgetError, match="OS407"):
                read_purses(store)
        else:
            assert read_purses(store).tolist() == left


def edited(blob: bytes, how: str) -> bytes:
    """Return a zip of one deflated member, damaged in one way that its directory does not show."""
    with io.BytesIO() as out:
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("labels.npy", blob)
        raw = bytearray(out.getvalue())
    at = raw.index(b"PK\x01\x02")  # the directory's entry: flags at 8, method at 10, size at 24
    if how == "encrypted":
        raw[6] |= 1
        raw[at + 8] |= 1
    elif how == "another method":
        raw[8] = raw[at + 10] = 97
    else:
        start = 30 + len("labels.npy")
        raw[start : start + 8] = b"\xff" * 8
        raw[at + 24 : at + 28] = (1).to_bytes(
            4, "little"
        )  # it seems to be no longer than the entry
    return bytes(raw)


@pytest.mark.parametrize("how", ["encrypted", "broken", "another method"])
def test_an_entry_whose_zip_cannot_be_read_is_a_damaged_store(how: str) -> None:
    with io.BytesIO() as out:
        np.lib.format.write_array(out, np.random.default_rng(1).integers(0, 2**62, 50))
        blob = edited(out.getvalue(), how)
    with zipfile.ZipFile(io.BytesIO(blob)) as archive, pytest.raises(Exception) as raw:  # noqa: PT011
        archive.read("labels.npy")
    assert type(raw.value) in (RuntimeError, zlib.error, NotImplementedError)
    with pytest.raises(BudgetError, match="OS407"):
        unpacked_arrays(blob)


def test_a_note_is_one_store_s_own(tmp_path):
    ledger, end = tmp_path / "x.ledger", End(turn="t", place=3, head="a" * 64)
    assert noted_end(ledger, "one") is None
    note_end(ledger, "one", end)
    assert noted_end(ledger, "one") == end
    assert noted_end(ledger, "../two") is None
    remove_note(ledger, "one")
    remove_note(ledger, "one")
    assert noted_end(ledger, "one") is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"turn": "t", "place": "3", "head": "x"}'])
def test_another_file_is_refused(tmp_path, text):
    ledger = tmp_path / "x.ledger"
    note_end(ledger, "one", End(turn="t", place=3, head="a" * 64))
    next(tmp_path.glob("*.end")).write_text(text)
    with pytest.raises(BudgetError, match="OS407"):
        noted_end(ledger, "one")


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
