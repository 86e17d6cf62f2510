"""A store whose hashes somebody computed anew: every value in every column is read, or is a damaged store."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from opendp_sim.accounting.session import _chain as chain
from opendp_sim.accounting.session.postgres import mark_at
from opendp_sim.accounting.session.store import SessionStore
from opendp_sim.core.errors import BudgetError
from tests._edited_stores import MECHANISMS, EditedStores
from tests._edits import fault_of
from tests.accounting.session.test_chain import filled

ODD = (
    None,
    b"",
    b"\x00" * 7,
    b"\x00" * 8,
    b"\xff" * 8,
    b"\xff\xfe",
    "",
    "text",
    "é\x00",
    "9" * 5000,
    0,
    -1,
    7,
    2**53,
    2**63 - 1,
    -(2**63),
    0.5,
    -0.0,
    1e308,
    float("inf"),
)
COLUMNS = ("place", "kind", "payload", "who", "units", "answers", "copy", "hash")
KEYS = (
    "format",
    "identity",
    "name",
    "turn",
    "before",
    "ledger",
    "head",
    "folded",
    "told",
    "x",
    None,
)
PUT = "INSERT OR REPLACE INTO about VALUES (?, ?)"
HEADS = (-1, 2**53, 2**63 - 1, 2**63, 10**30, 10**400, 0.5, None, True, "0", [], {})


def _rehash(db):
    """Compute the chain anew, as a forger does: where no hash fits a value, any is written."""
    name = db.execute("SELECT value FROM about WHERE name = 'name'").fetchone()
    folded = chain.empty_folded(str(name and name[0]))
    last = folded.hash
    for place, units in db.execute("SELECT place, units FROM purses").fetchall():
        if isinstance(units, bytes):
            bound = (
                "UPDATE entry SET copy = ? WHERE place = ? AND typeof(copy) = 'text' AND copy <> ''"
            )
            db.execute(bound, (chain.copy_hash(units, folded), place))
    rows = db.execute("SELECT * FROM entry ORDER BY place").fetchall()
    for *row, _ in rows:
        try:
            last = chain.linked(last, tuple(row))
        except TypeError:
            last = "0" * 64
        db.execute("UPDATE entry SET hash = ? WHERE place = ?", (last, row[0]))
    chain.write_value(db, "folded", folded)
    chain.write_value(
        db, "head", chain.Head.model_construct(place=rows[-1][0] if rows else 0, hash=last)
    )


def _used(path):
    """Do all that a service does with a store; a refusal is one of a store, anything else is raised."""
    try:
        mark_at(path)
        with SessionStore(path, "identity", forgets=True) as store:
            _ = store.purses(), store.answered, store.head
            store.transcript()
            store.take_turn("name", "")
            store.tell()
            store.commit("answers", {"labels": np.array([0])}, [], lambda: np.arange(50))
    except BudgetError as error:
        return error.code
    return "passed"


@pytest.fixture
def genuine(tmp_path):
    path = filled(tmp_path / "s.session")
    return path, path.read_bytes()


def _forge(genuine, statement, values, rehash=True):
    path, whole = genuine
    path.write_bytes(whole)
    with closing(sqlite3.connect(path)) as db:
        try:
            db.execute(statement, values)
            if rehash:
                _rehash(db)
        except (sqlite3.IntegrityError, OverflowError):
            return "not written"
        db.commit()
    return _used(path)


@pytest.mark.parametrize("column", COLUMNS)
def test_every_value_in_every_column_of_an_entry(genuine, column):
    ends = [
        _forge(genuine, f"UPDATE entry SET {column} = ? WHERE place = {place}", (value,))  # noqa: S608
        for value in ODD
        for place in (1, 3)
    ]
    assert set(ends) <= {"OS407", "passed", "not written"}
    assert "OS407" in ends or column == "hash"  # which a forger computes anew


def test_a_place_of_a_forged_ledger_that_no_store_has(genuine):
    with SessionStore(genuine[0], "identity") as store:
        for place in (-1, 2**63, 10**400):
            with pytest.raises(BudgetError, match="OS407"):
                store.check_head(place, "0" * 64)


def test_two_numbers_of_answers_whose_sum_is_none(tmp_path):
    """Seed 23458 of the campaign (benchmarks/survive_edits): SQLite's own sum overflowed, OS902."""
    name = next(key for key in MECHANISMS if key.startswith("private_knn"))
    stores = EditedStores(tmp_path / "store", name)
    with closing(sqlite3.connect(stores.path)) as db, db:
        assert db.execute("UPDATE entry SET answers = 1 << 62 WHERE kind = 'answers'").rowcount == 2
        _rehash(db)
    assert fault_of(stores.read) == "OS407"


@pytest.mark.parametrize(
    ("table", "every"),
    [("about", 5), ("purses", 1), pytest.param("about", 1, marks=pytest.mark.long)],
)
def test_every_value_in_the_other_tables(genuine, table, every):
    if table == "purses":
        edits = [(f"UPDATE purses SET {c} = ?", (v,)) for c in ("place", "units") for v in ODD]  # noqa: S608
    else:
        edits = [(PUT, (key, value)) for key in KEYS for value in ODD]
        edits += [("DELETE FROM about WHERE name = ?", (key,)) for key in KEYS]
    ends = [_forge(genuine, *edit) for edit in edits[::every]]
    assert set(ends) <= {"OS407", "passed", "not written"}
    assert "OS407" in ends


@pytest.mark.parametrize("key", ["head", "folded", "told"])
def test_every_value_in_what_is_kept_of_the_chain(genuine, key):
    """Places and answers that no number of SQLite holds, and members of another type."""
    name = chain.empty_folded("name")
    plain = {
        "head": {"place": 5, "hash": "0" * 64},
        "folded": {"place": 0, "hash": name.hash, "answers": 0, "kept": name.kept, "marks": {}},
        "told": {"place": 5, "hash": "0" * 64},
    }[key]
    ends = []
    for member in plain:
        for value in HEADS:
            edited = {**plain, member: value}
            text = json.dumps([edited] if key == "told" else edited)
            ends.append(_forge(genuine, PUT, (key, text), rehash=False))
    assert set(ends) <= {"OS407", "passed"}
    assert ends.count("OS407") > len(ends) // 2


@pytest.mark.parametrize(
    "edit",
    [
        "DELETE FROM entry",
        "DELETE FROM purses",
        "DELETE FROM about",
        "DROP TABLE purses",
        "DROP TABLE about",
    ],
)
def test_missing_rows_and_tables(genuine, edit):
    assert _forge(genuine, edit, (), rehash=False) == "OS407"
