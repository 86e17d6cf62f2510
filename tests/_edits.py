"""Edits of files: structural and byte by byte, of every format that this package reads."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import random
import shutil
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from opendp_sim.accounting.ledger._entries import canonical_json, entry_hash
from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.accounting.release.release import Release
from opendp_sim.accounting.session.store import SessionStore
from opendp_sim.core.errors import SimError
from opendp_sim.dsl import apply, plan_file, save_plan, verify
from opendp_sim.dsl.plan.document import load_plan
from opendp_sim.dsl.run.answer import ask, reference
from opendp_sim.dsl.text.diagnostic import Refused
from opendp_sim.dsl.verification.derivation import derivation
from tests._small import write_small

ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**63,
    2**200,
    -(2**70),
    0.0,
    -0.0,
    1e308,
    -1e-308,
    1e-320,
    "",
    "x",
    "0",
    "\x00",
    "\u202e",
    "../../x",
    "/",
    "0x1p99999",
    "nan",
    "é" * 300,
    [],
    [[]],
    [None],
    {},
    {"": None},
    {"x": {}},
    [0] * 300,
    "0" * 64,
    "zcdp",
    "gaussian",
    "points.ledger",
    "1e999",
    [1, 2],
    ["a"],
    {"add_remove": -1},
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every node."""
    found = [path] if path else []
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return found + [place for name, part in inner for place in places(part, (*path, name))]


def edited(pick: random.Random, value: Any) -> Any:
    """Return a copy in which one to three nodes were replaced, removed, doubled or swapped."""
    value = copy.deepcopy(value)
    for _ in range(pick.choice((1, 1, 1, 2, 3))):
        nodes = places(value)
        if not nodes:
            return pick.choice(ODD)
        *way, last = pick.choice(nodes)
        holder = value
        for name in way:
            holder = holder[name]
        act = pick.randrange(5)
        if act == 0:
            del holder[last]
        elif act == 1 and isinstance(holder, list):
            holder.append(holder[last])
        elif act == 1:
            holder[pick.choice(("extra", "", "kind", "0"))] = holder[last]
        elif act == 2 and isinstance(holder[last], int | float):
            holder[last] = pick.choice(
                (holder[last] + 1, -holder[last], holder[last] * 1e300, str(holder[last]))
            )
        else:
            holder[last] = copy.deepcopy(pick.choice(ODD))
    return value


def scratched(pick: random.Random, raw: bytes) -> bytes:
    """Return bytes of which some were changed, cut, doubled or moved."""
    out = bytearray(raw)
    for _ in range(pick.choice((1, 1, 2, 8))):
        at = pick.randrange(len(out) or 1)
        act = pick.randrange(4)
        if act == 0 and out:
            out[at] ^= 1 << pick.randrange(8)
        elif act == 1:
            del out[at : at + pick.choice((1, 7, len(out)))]
        elif act == 2:
            out[at:at] = out[at : at + pick.choice((1, 40, 400))]
        else:
            out[at:at] = pick.choice(
                (b"\xff", b"\x00", b'"', b"{", b"[" * 2000, b"1e999", b"${x}", b"&a", b"- ")
            )
    return bytes(out)


class Files:
    """A run and everything it left, in one folder, with an edit and a reader for each format."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, folder / "out"
        self.spec = write_small(
            folder, ("repetitions: 100", "repetitions: 4"), ("l1: 100, l2: 10", "l1: 4, l2: 2")
        )
        apply(plan_file(self.spec))
        save_plan(plan_file(self.spec), folder / "p.plan")
        self.store = folder / "s.session"
        from tests.accounting.session.test_chain import filled

        filled(self.store)
        self.genuine = folder / "genuine"
        shutil.copytree(folder, self.genuine)

    def restore(self, name: str) -> None:
        """Put a genuine file back."""
        shutil.copy(self.genuine / name, self.folder / name)

    def kinds(self) -> dict[str, tuple[str, Callable[[random.Random], None], Callable[[], Any]]]:
        """Return, by format: the file, an edit of it, and what reads it."""
        cert, npz = "out/release.npz.certificate.json", "out/release.npz"
        return {
            "spec": ("small.yaml", self.bytes_of("small.yaml"), lambda: plan_file(self.spec)),
            "certificate": (cert, self.json_of(cert), self.read_certificate),
            "certificate, bytes": (cert, self.bytes_of(cert), self.read_certificate),
            "plan": ("p.plan", self.json_of("p.plan"), lambda: load_plan(self.folder / "p.plan")),
            "release": (npz, self.header_of(npz), self.read_release),
            "release, bytes": (npz, self.bytes_of(npz), self.read_release),
            "ledger": ("points.ledger", self.ledger_row, self.read_ledger),
            "ledger, bytes": ("points.ledger", self.bytes_of("points.ledger"), self.read_ledger),
            "store": ("s.session", self.store_row, self.read_store),
            "store, bytes": ("s.session", self.bytes_of("s.session"), self.read_store),
        }

    def json_of(self, name: str) -> Callable[[random.Random], None]:
        whole = json.loads((self.folder / name).read_text())
        return lambda pick: (
            (self.folder / name).write_text(json.dumps(edited(pick, whole))) and None
        )

    def bytes_of(self, name: str) -> Callable[[random.Random], None]:
        whole = (self.folder / name).read_bytes()
        return lambda pick: (self.folder / name).write_bytes(scratched(pick, whole)) and None

    def header_of(self, name: str) -> Callable[[random.Random], None]:
        with zipfile.ZipFile(self.folder / name) as archive:
            members = {each: archive.read(each) for each in archive.namelist()}
        header = json.loads(members["header.json"])

        def edit(pick: random.Random) -> None:
            raw = json.dumps(edited(pick, header)).encode()
            changed = {
                **members,
                "header.json": raw,
                "header.sha256": hashlib.sha256(raw).hexdigest().encode(),
            }
            out = io.BytesIO()
            with zipfile.ZipFile(out, "w") as archive:
                for each, content in changed.items():
                    archive.writestr(each, content)
            (self.folder / name).write_bytes(out.getvalue())

        return edit

    def ledger_row(self, pick: random.Random) -> None:
        """Edit an entry or the terms, and compute every hash again."""
        with closing(sqlite3.connect(self.folder / "points.ledger")) as db, db:
            genesis = db.execute("SELECT value FROM meta WHERE key = 'genesis'").fetchone()[0]
            bodies = [row[0] for row in db.execute("SELECT body FROM entries ORDER BY seq")]
            at = pick.randrange(len(bodies) + 1)
            if at == len(bodies):
                genesis = canonical_json(edited(pick, json.loads(genesis)))
                db.execute("UPDATE meta SET value = ? WHERE key = 'genesis'", (genesis,))
            else:
                bodies[at] = canonical_json(edited(pick, json.loads(bodies[at])))
            last = entry_hash("", genesis)
            for seq, body in enumerate(bodies, 1):
                last = entry_hash(last, body)
                db.execute("UPDATE entries SET body = ?, hash = ? WHERE seq = ?", (body, last, seq))
            head = canonical_json({"count": len(bodies), "hash": last})
            db.execute("UPDATE meta SET value = ? WHERE key = 'head'", (head,))

    def store_row(self, pick: random.Random) -> None:
        """Put an odd value into a cell of the store."""
        tables = {
            "about": ("name", "value"),
            "purses": ("place", "units"),
            "entry": ("place", "kind", "payload", "who", "units", "answers", "copy", "hash"),
        }
        table = pick.choice(tuple(tables))
        value = pick.choice(
            [v for v in ODD if v is None or isinstance(v, str | float)] + [b"", b"\x00" * 8, 7, -1]
        )
        column = pick.choice(tables[table])
        statement = (
            "UPDATE {0} SET {1} = ? WHERE rowid = (SELECT rowid FROM {0} ORDER BY random() LIMIT 1)"
        )
        with suppress(sqlite3.Error), closing(sqlite3.connect(self.store)) as db, db:
            db.execute(statement.format(table, column), (value,))

    def read_certificate(self) -> None:
        path = self.out / "release.npz.certificate.json"
        with suppress(SimError):
            derivation(path)
        verify(path, ledger=self.genuine / "points.ledger")

    def read_release(self) -> None:
        release = Release.load(self.out / "release.npz")
        ask(release, reference(str(self.folder / "queries.npz")), ["density"])

    def read_ledger(self) -> None:
        with Ledger.open(self.folder / "points.ledger") as ledger:
            _ = ledger.total(), ledger.terms, ledger.head, ledger.verify()

    def read_store(self) -> None:
        with SessionStore(self.store, "identity") as store:
            _ = store.entries(), store.purses(), store.answered, store.head


def fault_of(action: Callable[[], Any]) -> str | None:
    """Return the code of a refusal, None where it passed; anything else is a fault and is raised."""
    try:
        action()
    except (Refused, SimError) as error:
        code = error.code
    else:
        return None
    assert not code.startswith("OS9"), code
    return code
