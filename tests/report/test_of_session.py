"""The page of a session's store: how far it came, what it cost, and what is left."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from typer.testing import CliRunner

from opendp_sim.accounting.session.status import standing_of
from opendp_sim.cli import app
from opendp_sim.core.errors import BudgetError
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.dsl.run.session import serve
from opendp_sim.report.page import page_of
from tests.cli.test_session_cli import PEOPLE
from tests.report.test_report import sound

LIMITED = {
    "zcdp": "approx",
    "of: who": "of: row",
    "{dtype: str, role: privacy_id}": "{dtype: str}",
    "{rho: 1.0}": "{epsilon: 5.0, delta: 1.0e-4}",
    "{rho: 0.4}": "{epsilon: 2.0, delta: 1.0e-5}",
    "ind_knn: {queries: 50, size: 60, threshold: 0.5, centre: false}": (
        "private_knn: {queries: 5, neighbours: 4, rate: 0.2}"
    ),
}


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(1)
    np.savez(
        tmp_path / "people.npz",
        x=rng.uniform(-1, 1, (60, 2)),
        kind=np.array(["a", "b"])[rng.integers(0, 2, 60)],
        who=np.array([f"p{i}" for i in range(60)]),
    )
    return tmp_path


def asked(folder, number, limited=False):
    """Write a spec, answer some questions, and return the spec and the store."""
    text = PEOPLE
    for old, new in LIMITED.items() if limited else ():
        assert old in text
        text = text.replace(old, new)
    spec = folder / "people.yaml"
    spec.write_text(text)
    with serve(plan_file(spec)) as served:
        served.reference([[0.5, 0.5], [0.1, 0.2]])
        served.ask([[0.5, 0.5]] * number)
    return spec, folder / "people.session"


def said(*about):
    return " ".join(sound(page_of(*about)).text)


def test_a_store_says_what_it_answered_cost_and_left(folder):
    _, store = asked(folder, 3)
    text = said(store)
    for told in ("3 questions answered", "rho 0.4", "rho 0.6 left", "See the spec"):
        assert told in text, told
    assert "p1" not in text.split()
    assert "guesses whether one given" in text
    assert "who is in the data. Of 100 such guesses" in " ".join(
        text.split()
    )  # its unit, not a row


def test_with_its_spec_a_store_says_how_many_questions_are_left(folder):
    spec, store = asked(folder, 3, limited=True)
    text = said(store, spec)
    for told in ("3 questions answered", "2 questions left", "Of 5; then the session refuses"):
        assert told in text, told
    assert "Not promised" in text
    with serve(plan_file(spec)) as served:
        served.ask([[0.5, 0.5]] * 2)
        with pytest.raises(BudgetError, match="OS406"):
            served.ask([[0.5, 0.5]])
    assert "0 questions left" in said(store, spec)


def test_a_file_that_is_no_store_and_none_at_all_have_no_standing(folder):
    _, store = asked(folder, 2)
    assert standing_of(store).answered == 2
    assert standing_of(folder / "people.npz") is None
    assert standing_of(folder / "nothing.session") is None


def test_a_store_of_another_spec_an_open_one_and_an_edited_one_give_no_page(folder):
    spec, store = asked(folder, 1)
    other = folder / "other.yaml"
    other.write_text(spec.read_text().replace("rho: 0.4", "rho: 0.3"))
    with pytest.raises(BudgetError, match="another one"):
        page_of(store, other)
    with serve(plan_file(spec)), pytest.raises(BudgetError, match="OS407"):
        page_of(store)
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("UPDATE entry SET answers = 7 WHERE kind = 'answers'")
    with pytest.raises(BudgetError, match="damaged"):
        page_of(store)


def test_without_its_ledger_a_store_says_that_nothing_is_known_of_what_is_left(folder):
    _, store = asked(folder, 1)
    (folder / "away").mkdir()
    shutil.copy(store, folder / "away")
    (folder / "ledger.jsonl").rename(folder / "hidden.jsonl")
    assert "Its ledger is not here" in said(folder / "away" / store.name)


def test_the_command_that_the_page_names_writes_it_again(folder, monkeypatch):
    spec, store = asked(folder, 1)
    monkeypatch.chdir(folder)
    command = f"report {store.name} --spec {spec.name}"
    assert f"opendp-sim {command}" in page_of(store, spec)
    done = CliRunner().invoke(app, command.split())
    assert done.exit_code == 0, done.output
    assert "one question answered" in (folder / "people.session.html").read_text()
