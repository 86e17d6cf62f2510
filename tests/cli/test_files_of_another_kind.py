"""A private file that is named by mistake, where a spec belongs: no command quotes any of it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from opendp_sim.cli import app
from opendp_sim.core.regular import text_of

PERSON = "anna-has-it"
COMMANDS = (
    "report",
    "plan",
    "plan --json",
    "check",
    "check --json",
    "verify",
    "explain",
    "apply",
    "types",
    "doctor",
    "init",
    "session",
    "answer",
    "ledger show",
    "ledger show --json",
    "ledger verify",
    "ledger new",
    "plot --output p.svg",
    "audit",
)


def named(folder: Path) -> list[Path]:
    """Private files of several kinds, under names that commands take for one of theirs."""
    store = folder / "a.session"
    with closing(sqlite3.connect(store)) as made, made:
        made.execute("CREATE TABLE kept (what TEXT)")
        made.execute("INSERT INTO kept VALUES (?)", (f"\n{PERSON}\n",))
    np.savez(folder / "a.npz", rows=np.array([f"\n{PERSON}\n".encode()]))
    kinds = [store.read_bytes(), (folder / "a.npz").read_bytes()]
    kinds += [
        f"{PERSON}: é".encode("latin-1"),
        PERSON.encode("utf-16"),
        b"a: \x00" + PERSON.encode(),
    ]
    kinds += [b"SQLite format 3" + PERSON.encode()]
    files = [store, folder / "a.npz"]
    for at, raw in enumerate(kinds):
        ends = ("yaml", "plan", "json", "ledger", "certificate.json", "py", "session")
        for end in ends if at == 0 else ends[at : at + 1]:
            files.append(folder / f"{at}.{end}")
            files[-1].write_bytes(raw)
    return files


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_quotes_a_file_that_is_no_text(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in named(tmp_path):
        done = CliRunner().invoke(app, [*command.split(), str(file)])
        said = done.stdout + done.stderr
        assert PERSON not in said, (file.name, said)
        assert "SQLite format" not in said, (file.name, said)
        assert "PK\\x03" not in said, (file.name, said)
        assert done.exit_code != 0 or command == "init", (file.name, said)
        if command in ("report", "check", "plan") and file.suffix == ".session":
            assert "not UTF-8 text" in said
            assert "another kind of file, of which nothing is shown" in said


def test_what_is_a_text() -> None:
    assert text_of("é\r\n".encode()) == "é\r\n"
    assert text_of(b"") == ""
    for raw in (b"\xff", b"a\0b", b"SQLite format 3\0", b"SQLite format 3"):
        assert text_of(raw) is None
