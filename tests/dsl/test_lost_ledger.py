"""A ledger that is gone while something knows of it is not begun again with the whole budget."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

from opendp_sim.accounting.ledger import Ledger
from opendp_sim.cli import app
from opendp_sim.core.errors import BudgetError
from opendp_sim.dsl import apply, plan_file
from opendp_sim.dsl.lost_ledger import trace_of
from opendp_sim.dsl.standing import standing
from tests._small import write_small


def _run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def _lost(folder, *kept):
    """Run a small spec, and lose its ledger and all traces but those that are named."""
    spec = write_small(folder)
    apply(plan_file(spec))
    (folder / "points.ledger").unlink()
    if "lock" not in kept:
        (folder / "points.ledger.lock").unlink()
    if "certificates" not in kept:
        shutil.rmtree(folder / "out")
    return spec


@pytest.mark.parametrize("kept", ["lock", "certificates"])
def test_a_lost_ledger_is_refused_whatever_knows_of_it(tmp_path, kept):
    spec = _lost(tmp_path, kept)
    for _ in range(2):
        with pytest.raises(BudgetError, match="OS407") as caught:
            apply(plan_file(spec))
    assert "restore" in caught.value.hint
    assert "--forget" in caught.value.hint
    assert "OS407" in _run("apply", spec).stderr
    assert not (tmp_path / "points.ledger").exists()
    assert "refused" in standing(plan_file(spec))
    assert "was charged here before" in " ".join(_run("plan", spec, "-v").stdout.split())


def test_without_any_trace_the_first_run_makes_it(tmp_path):
    spec = _lost(tmp_path)
    plan = plan_file(spec)
    assert trace_of(plan, tmp_path / "points.ledger") is None
    assert apply(plan).charge.seq == 2


def test_a_restored_ledger_goes_on(tmp_path):
    spec = write_small(tmp_path)
    apply(plan_file(spec))
    (tmp_path / "points.ledger").rename(tmp_path / "away")
    with pytest.raises(BudgetError, match="OS407"):
        apply(plan_file(spec))
    (tmp_path / "away").rename(tmp_path / "points.ledger")
    apply(plan_file(spec))
    with Ledger.open(tmp_path / "points.ledger") as ledger:
        assert len(ledger.charges) == 2


def test_a_certificate_of_another_ledger_is_no_trace(tmp_path):
    """Outputs of two specs may share a folder, and their ledgers a name in two folders."""
    one = tmp_path / "one"
    one.mkdir()
    spec = write_small(one, ("file: points.ledger", "file: kept/points.ledger"))
    apply(plan_file(spec), into=tmp_path / "out")
    two = tmp_path / "two"
    two.mkdir()
    assert apply(plan_file(write_small(two)), into=tmp_path / "out").charge.seq == 2


@pytest.mark.parametrize("kept", ["lock", "certificates"])
def test_it_is_begun_anew_by_a_command_that_says_what_is_forgotten(tmp_path, kept):
    spec = _lost(tmp_path, kept)
    assert "OS407" in _run("ledger", "new", spec).stderr
    result = _run("ledger", "new", spec, "--forget")
    assert result.exit_code == 0, result.output
    assert "forgotten" in result.stdout
    assert apply(plan_file(spec)).charge.seq == 2
    assert "in place of a lost ledger" in " ".join(
        _run("ledger", "show", tmp_path / "points.ledger").stdout.split()
    )
    assert _run("ledger", "new", spec, "--forget").exit_code == 3  # never where it is there


def test_a_first_ledger_can_be_begun_by_hand(tmp_path):
    spec = write_small(tmp_path)
    assert _run("ledger", "new", spec).exit_code == 0
    with Ledger.open(tmp_path / "points.ledger") as ledger:
        assert ledger.anew is None
    assert apply(plan_file(spec)).charge.seq == 2


def test_the_folder_of_an_unfinished_run_knows_of_its_ledger(tmp_path, monkeypatch):
    from tests.dsl.test_survive_runs import unfinished

    spec = unfinished(tmp_path, monkeypatch)
    for name in ("points.ledger", "points.ledger.lock"):
        (tmp_path / name).unlink()
    with pytest.raises(BudgetError, match="holds the files of a run"):
        apply(plan_file(spec))


def test_a_session_whose_ledger_is_lost_is_not_charged_to_a_new_one(tmp_path):
    from opendp_sim.dsl.serve import serve
    from tests.cli.test_session_cli import PEOPLE

    spec = tmp_path / "people.yaml"
    spec.write_text(PEOPLE.replace("ledger.jsonl", "people.ledger"))
    rng = np.random.default_rng(1)
    kinds = np.array(["a", "b"])[rng.integers(0, 2, 60)]
    who = np.array([f"p{i // 2}" for i in range(60)])
    np.savez(tmp_path / "people.npz", x=rng.uniform(-1, 1, (60, 2)), kind=kinds, who=who)
    with serve(plan_file(spec)):
        pass
    for found in tmp_path.glob("*.ledger*"):
        found.unlink()
    with pytest.raises(BudgetError, match="OS407"):
        serve(plan_file(spec))
    assert not list(tmp_path.glob("*.ledger"))


def test_a_budget_of_estimators_is_not_begun_again(tmp_path):
    from opendp_sim.sklearn import Budget

    path = tmp_path / "b.ledger"
    Budget.open(path, epsilon=1.0, delta=1e-6)
    path.unlink()
    with pytest.raises(BudgetError, match="OS407"):
        Budget.open(path, epsilon=1.0, delta=1e-6)
    Budget.open(path, epsilon=1.0, delta=1e-6, forget=True)
    with Ledger.open(path) as ledger:
        assert ledger.anew is not None


@pytest.mark.parametrize("kind", ["folder", "ring"])
def test_a_file_that_is_none_is_no_certified_one(tmp_path, kind):
    spec = write_small(tmp_path)
    apply(plan_file(spec))
    file = tmp_path / "out" / "release.npz"
    file.unlink()
    file.mkdir() if kind == "folder" else file.symlink_to(file)
    for words in (["verify", f"{file}.certificate.json"], ["answer", file, "--post", "density"]):
        assert _run(*words).exit_code in (4, 5), words
