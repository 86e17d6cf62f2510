"""Edited, cut and foreign files of every format end in a coded refusal (benchmarks has the campaign)."""

from __future__ import annotations

import hashlib
import json
import random
import re
import sqlite3
import zipfile
from contextlib import closing

import pytest

from opendp_sim.accounting.file_schemas import plain_json
from opendp_sim.accounting.ledger._entries import canonical_json, entry_hash
from tests._edits import Files, fault_of


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Files(tmp_path_factory.mktemp("files"))


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "kind",
    [
        "spec",
        "certificate",
        "certificate, bytes",
        "plan",
        "release",
        "release, bytes",
        "ledger",
        "ledger, bytes",
        "store",
        "store, bytes",
    ],
)
def test_an_edit_ends_in_a_code(files, kind):
    name, edit, read = files.kinds()[kind]
    refused = 0
    for seed in range(12):
        edit(random.Random(f"{kind} {seed}"))  # noqa: S311 - which edit
        refused += fault_of(read) is not None
        files.restore(name)
    assert refused >= 3
    assert fault_of(read) is None  # the genuine file passes


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.long)])
def test_a_certificate_that_states_a_member_twice_is_refused(files, every):
    """Another reader takes the first one; in each object of it, wherever it lies (every eighth in the suite)."""
    name = "out/release.npz.certificate.json"
    whole = (files.genuine / name).read_text()
    objects = [match.start() for match in re.finditer(r"\{(?=\s*\")", whole)]
    assert len(objects) >= 16
    for at in objects[::every]:
        member = json.JSONDecoder().raw_decode(whole[at + 1 :].lstrip())[0]
        (files.folder / name).write_text(whole[: at + 1] + f'"{member}": 0, ' + whole[at + 1 :])
        assert fault_of(files.read_certificate) == "OS701", (at, member)
    files.restore(name)
    assert fault_of(files.read_certificate) is None


def test_a_plan_that_states_a_member_twice_is_refused(files):
    _, _, read = files.kinds()["plan"]
    whole = (files.genuine / "p.plan").read_text()
    for member in ("spec", "epsilon", "plan"):
        head, found, tail = whole.partition(f'"{member}":')
        assert found
        (files.folder / "p.plan").write_text(f'{head}"{member}": "x", {found}{tail}')
        assert fault_of(read) == "OS309"
    files.restore("p.plan")
    assert fault_of(read) is None


def test_a_release_that_states_a_member_twice_is_refused(files):
    name, _, read = files.kinds()["release"]
    with zipfile.ZipFile(files.folder / name) as archive:
        members = {each: archive.read(each) for each in archive.namelist()}
    raw = members["header.json"].replace(b'"privacy": {', b'"privacy": {"mu": 0, "mu": 0, ')
    assert raw != members["header.json"]
    members |= {"header.json": raw, "header.sha256": hashlib.sha256(raw).hexdigest().encode()}
    with zipfile.ZipFile(files.folder / name, "w") as archive:
        for each, content in members.items():
            archive.writestr(each, content)
    assert fault_of(read) == "OS701"
    files.restore(name)


def test_a_ledger_that_states_a_member_twice_is_refused(files):
    """With every hash computed anew, as who writes to the file can."""
    with closing(sqlite3.connect(files.folder / "points.ledger")) as db, db:
        last = entry_hash(
            "", db.execute("SELECT value FROM meta WHERE key='genesis'").fetchone()[0]
        )
        bodies = [row[0] for row in db.execute("SELECT body FROM entries ORDER BY seq")]
        for seq, body in enumerate(bodies, 1):
            doubled = body.replace('"loss":{', '"loss":{},"loss":{', 1)
            last = entry_hash(last, doubled)
            db.execute("UPDATE entries SET body=?, hash=? WHERE seq=?", (doubled, last, seq))
        head = canonical_json({"count": len(bodies), "hash": last})
        db.execute("UPDATE meta SET value=? WHERE key='head'", (head,))
    assert fault_of(files.read_ledger) == "OS403"
    files.restore("points.ledger")


@pytest.mark.parametrize("text", ['{"a": 1, "a": 1}', '[{"b": {"a": 1, "\\u0061": 2}}]'])
def test_json_that_states_a_member_twice_is_no_json(text):
    with pytest.raises(ValueError, match="twice"):
        plain_json(text)


@pytest.mark.parametrize(
    ("kind", "table", "code"),
    [("store, bytes", b"entry", "OS407"), ("ledger, bytes", b"meta", "OS403")],
)
def test_a_schema_that_is_no_text_is_a_damaged_file(files, kind, table, code):
    """SQLite quotes what it cannot read, and Python's reader of that message raised UnicodeDecodeError."""
    name, _, read = files.kinds()[kind]
    raw = (files.genuine / name).read_bytes()
    assert b"CREATE TABLE " + table in raw
    (files.folder / name).write_bytes(
        raw.replace(b"CREATE TABLE " + table, b"CREATE \xa0ABLE " + table)
    )
    assert fault_of(read) == code
    files.restore(name)
    assert fault_of(read) is None
