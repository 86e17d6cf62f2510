"""A session's store whose rows somebody rewrote, and computed every hash anew."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from opendp_sim.accounting.session import _chain as chain
from opendp_sim.accounting.session._encoding import packed_arrays, unpacked_arrays
from opendp_sim.dsl import plan_file
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.run.session import serve

SPEC = """
spec: opendp_sim/1
name: people
data:
  people:
    source: {npz: people.npz}
    columns:
      x: {dtype: "array[f64, 2]", bounds: [-1, 1]}
      kind: {dtype: category, keys: [a, b]}
      who: {dtype: str, role: privacy_id}
privacy:
  unit: {add_remove: 1, of: UNIT}
  measure: MEASURE
flow:
  rows:
    from: people
    steps:
      - select: {features: x, label: kind}
      - quantize: {bits: 8}
  near:
    from: rows
    release: {mechanism: {MECHANISM}, spend: 100%}
outputs:
  answers: {from: near, serve: session, store: people.session}
"""
PERSONS = ("who", "zcdp\n  budget: {rho: 0.4}")
MECHANISMS = {
    "ind_knn: {queries: 50, size: 60, reuse: true}": PERSONS,
    "hybrid_knn: {queries: 50, size: 60}": ("row", PERSONS[1]),
    "private_knn: {queries: 60, neighbours: 5}": (
        "row",
        "approx\n  budget: {epsilon: 5.0, delta: 1.0e-5}",
    ),
}
ARRAYS: tuple[Any, ...] = (
    np.zeros(0),
    np.zeros((0, 2)),
    np.zeros((3, 0)),
    np.array(1.0),
    np.full((1, 2), np.nan),
    np.full((1, 2), np.inf),
    np.full((2, 2), 2.0**62),
    np.array([-1]),
    np.array([2**62]),
    np.array([7]),
    np.array(["a"]),
    np.array([b"x"]),
    np.array([True]),
    np.ones((1, 3)),
    np.ones((2, 2, 2)),
    np.array([1j]),
    np.array(["p700", "é"]),
    np.zeros(1, dtype="M8[s]"),
    np.zeros(1, dtype=[("a", "i8")]),
    np.arange(600.0).reshape(300, 2),
)
BLOBS = (
    None,
    b"",
    b"\x00",
    b"\x00" * 8,
    b"\xff" * 8,
    b"\x01" + b"\x00" * 7,
    b"\x00" * 16,
    b"\x00" * 4000,
    "text",
    7,
)
KINDS = (
    "answers",
    "easy",
    "means",
    "reference",
    "insert",
    "relabel",
    "delete",
    "failed",
    "",
    "x",
    None,
)
_ROWS = "SELECT place, kind, payload, who, units, answers, copy FROM entry ORDER BY place"


class EditedStores:
    """A session of a spec without a ledger, with questions and updates; edits of its rows."""

    def __init__(self, folder: Path, mechanism: str) -> None:
        folder.mkdir()
        self.path, rng = folder / "people.session", np.random.default_rng(1)
        np.savez(
            folder / "people.npz",
            x=rng.uniform(-1, 1, (60, 2)),
            kind=np.array(["a", "b"])[rng.integers(0, 2, 60)],
            who=np.array([f"p{i // 2}" for i in range(60)]),
        )
        unit, measure = MECHANISMS[mechanism]
        text = (
            SPEC.replace("MECHANISM", mechanism).replace("UNIT", unit).replace("MEASURE", measure)
        )
        if unit == "row":
            text = text.replace("      who: {dtype: str, role: privacy_id}\n", "")
        (folder / "people.yaml").write_text(text)
        self.plan: Plan = plan_file(folder / "people.yaml")
        with serve(self.plan) as served:
            served.session.refer({"x": np.array([[0.1, 0.2], [0.3, 0.4]])})
            served.ask([[0.5, 0.5]])
            if unit != "row":
                served.update("insert", [{"x": [0.4, 0.5], "kind": "a", "who": "p700"}])
                served.update("relabel", [{"x": [0.4, 0.5], "kind": "b", "who": "p700"}])
                served.ask([[-0.5, -0.5]])
                served.update("delete", ["p700"])
            served.ask([[0.1, 0.5], [0.2, -0.5]])
        self.whole = self.path.read_bytes()

    def edit(self, pick: random.Random) -> None:
        """Edit one or two rows of the genuine store, or its purses, and make the chain whole."""
        self.path.write_bytes(self.whole)
        with closing(sqlite3.connect(self.path)) as db, db:
            rows = [list(row) for row in db.execute(_ROWS)]
            place, purses = db.execute("SELECT place, units FROM purses").fetchone()
            for _ in range(pick.choice((1, 1, 2))):
                if pick.random() < 0.1:
                    purses = pick.choice([b for b in BLOBS if isinstance(b, bytes)])
                elif rows:
                    _edit_row(pick, rows)
            _rewrite(db, rows, place, purses)

    def read(self) -> None:
        """Open the session as a command does, and ask."""
        with serve(self.plan) as served:
            served.ask([[0.5, 0.5]])


def _edit_row(pick: random.Random, rows: list[list[Any]]) -> None:
    at = pick.randrange(len(rows))
    act = pick.randrange(8)
    if act == 0:
        del rows[at]
    elif act == 1:
        rows.insert(at, list(rows[pick.randrange(len(rows))]))
    elif act == 2:
        rows[at][1] = pick.choice([k for k in KINDS if k is not None])
    elif act == 3:
        rows[at][pick.choice((3, 4))] = pick.choice(BLOBS)
    elif act == 4:
        rows[at][5] = pick.choice((0, 1, -1, 2**62, 7))
    else:
        rows[at][2] = _other_payload(pick, rows[at][2])


def _other_payload(pick: random.Random, blob: bytes) -> bytes:
    try:
        arrays = dict(unpacked_arrays(blob))
    except Exception:  # noqa: BLE001 - edited before
        return blob
    name = pick.choice([*arrays, "extra"])
    act = pick.randrange(4)
    if act == 0 and name in arrays:
        del arrays[name]
    elif act == 1 and name in arrays and arrays[name].ndim:
        arrays[name] = pick.choice(
            (
                arrays[name][:0],
                np.repeat(arrays[name], 2, axis=0),
                arrays[name].astype("f4") if arrays[name].dtype.kind in "if" else arrays[name],
            )
        )
    else:
        arrays[name] = pick.choice(ARRAYS)
    return packed_arrays(arrays)


def _rewrite(db: sqlite3.Connection, rows: list[list[Any]], place: int, purses: bytes) -> None:
    """Number the rows, bind the copy of the purses to its row, and compute every hash."""
    name = db.execute("SELECT value FROM about WHERE name = 'name'").fetchone()[0]
    last = chain.start(str(name))
    db.execute("DELETE FROM entry")
    db.execute("DELETE FROM purses")
    place = min(place, len(rows))
    for at, row in enumerate(rows, 1):
        row[0] = at
        row[6] = (
            chain.copy_hash(purses, chain.empty_folded(str(name)))
            if at == place
            else (row[6] if at < place else "")
        )
        payload, who, units = (
            part.encode() if isinstance(part, str) else part for part in row[2:5]
        )
        try:
            last = chain.linked(last, (at, row[1], payload, who, units, row[5], row[6]))
        except TypeError:  # a number for a blob: no hash fits it
            last = "0" * 64
        db.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row, last))
    if rows:
        db.execute("INSERT INTO purses VALUES (?, ?)", (place, purses))
    chain.write_value(db, "head", chain.Head(place=len(rows), hash=last))
    chain.write_value(db, "folded", chain.empty_folded(str(name)))
