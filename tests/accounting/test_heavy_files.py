"""Small files of other people that would take the memory, or ledgers that are no file: refused by their form."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import tracemalloc
import zipfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import opendp_sim as sim
from opendp_sim.accounting.budget import Limit
from opendp_sim.accounting.certificate import certificate
from opendp_sim.accounting.ledger._entries import Terms
from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.accounting.release import query_blocks
from opendp_sim.accounting.release.answers import Answers
from opendp_sim.accounting.release.release import Release
from opendp_sim.accounting.session._chain import read_about
from opendp_sim.cli import app
from opendp_sim.core.errors import BudgetError, DataError, ReleaseError
from opendp_sim.dsl.plan.document import is_plan
from opendp_sim.sklearn import Budget
from tests._small import write_small

LISTS = b"[" + b"{}," * 2**20 + b"{}]"
TERMS = Terms("zcdp", "{}", Limit(epsilon=1.0, delta=1e-6))


def _peak(act, error):
    tracemalloc.start()
    try:
        with pytest.raises(error):
            act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_header_of_a_million_maps_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "r.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", LISTS)
        archive.writestr("header.sha256", hashlib.sha256(LISTS).hexdigest())
    assert _peak(lambda: Release.load(tmp_path / "r.npz"), ReleaseError) < 4 * len(LISTS)


def test_a_certificate_is_refused_by_its_size(tmp_path: Path, monkeypatch) -> None:
    file = tmp_path / "x.certificate.json"
    file.write_bytes(LISTS)
    assert _peak(lambda: certificate.read_certificate(file), ReleaseError) < 4 * len(LISTS)
    monkeypatch.setattr(certificate, "_LONGEST", 2**10)
    file.write_bytes(b" " * 2**22)
    assert _peak(lambda: certificate.read_certificate(file), ReleaseError) < 2**20


@pytest.mark.parametrize(
    "text", ["[" + "{}," * 300_000 + "{}]", '{"a": [' + "[]," * 300_000 + "[]]}"]
)
def test_a_heavy_file_is_no_plan_and_is_not_parsed(tmp_path: Path, monkeypatch, text: str) -> None:
    def parsed(_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("opendp_sim.dsl.plan.document.json.loads", parsed)
    path = tmp_path / "heavy.plan"
    path.write_text(text)
    assert not is_plan(path)


def test_answers_that_take_too_much_memory_are_refused(tmp_path: Path, monkeypatch) -> None:
    fit = sim.density({"x": (0, 1)}, bandwidth=0.1, epsilon=1e4)
    release = fit.apply({"x": np.linspace(0, 1, 50)}, into=tmp_path)
    release.save(tmp_path / "r.npz")
    np.savez(tmp_path / "q.npz", x=np.zeros(2**9))
    monkeypatch.setattr(query_blocks, "_MOST_ANSWERS", 2**12)
    with pytest.raises(DataError, match="OS607"):
        release.density({"x": np.zeros(2**9)})
    words = ["answer", tmp_path / "r.npz", "--queries", tmp_path / "q.npz", "--post", "density"]
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 4
    assert "several parts" in done.output


def test_one_fit_spends_in_one_ledger_whatever_folder_is_current(
    tmp_path: Path, monkeypatch
) -> None:
    table = {"x": np.linspace(0, 1, 50)}
    for name in "ab":
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "a")
    fit = sim.density(
        {"x": (0, 1)}, bandwidth=0.1, ledger="x.ledger", limit={"epsilon": 2.5, "delta": 1e-5}
    )
    fit.apply(table)
    monkeypatch.chdir(tmp_path / "b")
    fit.apply(table)
    assert not list((tmp_path / "b").glob("*.ledger*"))
    with Ledger.open(tmp_path / "a" / "x.ledger") as ledger:
        assert len(ledger.charges) == 2


def test_a_link_to_no_file_is_no_ledger_and_makes_none(tmp_path: Path) -> None:
    (tmp_path / "d.ledger").symlink_to(tmp_path / "gone.ledger")
    for _ in range(2):
        with pytest.raises(BudgetError, match="OS403"):
            Ledger.open(tmp_path / "d.ledger", TERMS)
    assert [file.name for file in tmp_path.iterdir()] == ["d.ledger"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", [("check",), ("check", "--json"), ("plan",)])
def test_a_full_standard_output_has_a_code_of_its_own(tmp_path: Path, capsys, words) -> None:
    spec = write_small(tmp_path)
    with Path("/dev/full").open("w") as full, pytest.MonkeyPatch.context() as patched:
        patched.setattr("sys.stdout", full)
        with pytest.raises(SystemExit) as ended:
            app([*words, str(spec)])
        patched.undo()
        assert ended.value.code == 74
        assert capsys.readouterr().err == "standard output takes no more; nothing was charged\n"
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())


def test_a_ledger_with_one_long_row_is_refused_before_the_row_is_read(tmp_path: Path) -> None:
    path, long = tmp_path / "d.ledger", 64 << 20
    Ledger.open(path, TERMS).close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO entries VALUES (1, zeroblob(?), '')", (long,))
    assert _peak(lambda: Ledger.open(path), BudgetError) < long / 8


def test_a_store_that_says_much_of_itself_is_refused_before_it_is_read(tmp_path: Path) -> None:
    long = 64 << 20
    with closing(sqlite3.connect(tmp_path / "x")) as db:
        db.execute("CREATE TABLE about (name TEXT, value TEXT)")
        db.execute("INSERT INTO about VALUES ('name', 'a')")
        assert read_about(db) == {"name": "a"}
        db.execute("INSERT INTO about VALUES ('a', zeroblob(?))", (long,))
        assert _peak(lambda: read_about(db), ValueError) < long / 8
        assert db.execute("SELECT zeroblob(?)", (long,)).fetchone()  # purses may be as long


def test_names_in_answers_and_budgets_reach_no_terminal_unescaped(tmp_path: Path) -> None:
    name = "a\x1b[2J\u202ez"
    answers = Answers({name: np.arange(2.0)}, queries={name + "q": np.array([name, "b"])})
    budget = Budget.open(tmp_path / (name + ".ledger"), epsilon=1.0, delta=1e-6)
    texts = [repr(answers), str(answers), answers._repr_html_(), repr(budget)]
    assert not [text for text in texts if "\x1b" in text or "\u202e" in text]
    assert all("\\x1b" in text for text in texts)
