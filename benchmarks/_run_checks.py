"""What lies in a folder after a run, and what must not be."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from benchmarks._run_cases import Case
from opendp_sim.accounting.certificate.certificate import digest_of, read_certificate
from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.accounting.session.postgres import mark_at
from opendp_sim.accounting.session.store import SessionStore
from tests._forks import Ended


def restored(genuine: Path, folder: Path) -> None:
    """Put the files that a case starts from in place."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(genuine, folder)


@dataclass
class Seen:
    """What lies in a folder: published digests, the ledger, and the store."""

    files: dict[str, str] = field(default_factory=dict)
    kinds: list[str] = field(default_factory=list)
    ended: bool = False
    """Whether the ledger, or the note beside it, knows where the last session ended."""
    charges: int = 0
    charged: set[str] = field(default_factory=set)
    answers: Counter[tuple[str, int, tuple[float, ...]]] = field(default_factory=Counter)
    updates: int = 0
    answered: int = 0
    purses: Any = None

    @classmethod
    def of(cls, left: Path) -> Seen:
        """Look at a copy of what was left: a look mends nothing; raise where a file cannot be read."""
        seen, folder = cls(), left.with_name("looked at")
        restored(left, folder)
        out = folder / "out"
        for path in out.iterdir() if out.exists() else ():
            if not path.name.startswith("."):
                seen.files[path.name] = digest_of(path)
        if (folder / "people.ledger").exists():
            with Ledger.open(folder / "people.ledger") as ledger:
                ledger.verify()
                seen.kinds, seen.charges = [e.kind for e in ledger.entries], len(ledger.charges)
                turns = [e.body for e in ledger.entries if e.kind == "session"]
                seen.ended = bool(turns and turns[-1].get("ended")) or any(folder.glob("*.end"))
                for entry in ledger.entries:
                    found = entry.body.get("files", {})
                    seen.charged |= {f["sha256"] for f in found.values() if isinstance(f, dict)}
        if (folder / "people.session").exists() and mark_at(folder / "people.session"):
            seen._look_at_store(folder / "people.session")
        return seen

    def _look_at_store(self, path: Path) -> None:
        same = SimpleNamespace(hexdigest=lambda: _identity(path))
        with mock.patch(
            "opendp_sim.accounting.session.store.hashlib", SimpleNamespace(sha256=lambda _: same)
        ):
            store = SessionStore(path, "as it was made")
        with store:
            self.answered, self.purses = store.answered, store.purses()
            for kind, payload in store.entries():
                self.updates += kind not in ("answers", "means", "reference", "easy")
                if kind == "answers":
                    for label, count, votes in zip(
                        payload["labels"], payload["counts"], payload["votes"], strict=True
                    ):
                        self.answers[
                            "ab"[label], int(count), tuple(round(float(v), 6) for v in votes)
                        ] += 1


def _identity(path: Path) -> str:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        return str(db.execute("SELECT value FROM about WHERE name = 'identity'").fetchone()[0])


def faults(
    case: Case, ended: Ended, before: Seen, now: Seen, folder: Path, *, first: bool = False
) -> Iterator[str]:
    """Yield what must not be after a run, however it ended; the ``first`` resume of a run charges nothing."""
    if ended.sick:
        yield ended.sick
    if now.charges - before.charges > 1 or (
        first and "resume" in case.name and now.charges > before.charges
    ):
        yield "charged twice"
    if now.charges < before.charges or now.kinds[: len(before.kinds)] != before.kinds:
        yield "the ledger lost an entry"
    if {d for n, d in now.files.items() if not n.endswith(".json")} - now.charged:
        yield "released uncharged"
    yield from _pairs(folder)
    yield from _words(ended, now.charges - before.charges, now)
    if case.serves:
        yield from _left(ended, before, now)


def _pairs(folder: Path) -> Iterator[str]:
    for path in (folder / "out").glob("*.certificate.json"):
        certificate = read_certificate(path)[0]
        if digest_of(path.with_name(certificate.file.name)) != certificate.file.sha256:
            yield "a pair that disagrees"


def _words(ended: Ended, added: int, now: Seen) -> Iterator[str]:
    """Compare what a command said of the ledger with the ledger."""
    if ended.code < 0:
        return
    lines = ended.complained.splitlines(keepends=True)
    warned = [line for line in lines if "did not hear where this session ended" in line]
    if warned and (now.ended or len(warned) > 1):
        yield "said that an end was not heard"
    said = "".join(line for line in lines if line not in warned)
    if "nothing was charged" in said and added:
        yield "said that nothing was charged"
    if ended.code in (130, 143) and (
        said.count("\n") != 1 or ("nothing was charged" not in said and not now.charges)
    ):
        yield "no one true line"
    if ended.code not in (0, 130, 143) and "error[OS" not in said:
        yield f"exit {ended.code} without a code"


def _left(ended: Ended, before: Seen, now: Seen) -> Iterator[str]:
    lines = [
        json.loads(line) for line in ended.said.splitlines(keepends=True) if line.endswith("\n")
    ]
    answers = [each for line in lines for each in line.get("answers", [line]) if "label" in each]
    left = Counter((a["label"], a["count"], tuple(a["votes"])) for a in answers)
    if left - (now.answers - before.answers):
        yield "an answer left uncharged"
    if sum("ok" in line for line in lines) > now.updates - before.updates:
        yield "an update was lost"
    if now.answered < before.answered + len(answers):
        yield "an answer was forgotten"
    if before.purses is not None and (now.purses[: len(before.purses)] > before.purses).any():
        yield "a purse was refilled"
