"""A ledger that is gone while something knows of it is not begun again with the whole budget."""

from __future__ import annotations

import shutil

import pytest

from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.core.errors import BudgetError
from opendp_sim.dsl import apply, plan_file
from opendp_sim.dsl.run.charge import standing, trace_of
from opendp_sim.dsl.text.diagnostic import Refused
from tests._cli import run as _run
from tests._small import write_small
from tests._tiers import some


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


@pytest.mark.few(1)
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
    assert standing(plan_file(spec)).refused
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
    assert apply(plan_file(write_small(two)), into=tmp_path / "out", replace=True).charge.seq == 2


@pytest.mark.parametrize("kept", some(["lock", "certificates"], 2))
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


def test_the_command_line_begins_a_ledger_by_its_command_alone(tmp_path):
    """One that was lost with every trace, or left behind by a copied spec, began with the whole limit."""
    spec = write_small(tmp_path)
    assert f"next     opendp-sim ledger new {spec}"[:60] in _run("plan", spec).stdout
    refused = _run("apply", spec)
    assert refused.exit_code == 3
    assert f"`opendp-sim ledger new {spec}`" in " ".join(refused.stderr.split())
    assert not (tmp_path / "points.ledger").exists()
    assert _run("ledger", "new", spec).exit_code == 0
    with Ledger.open(tmp_path / "points.ledger") as ledger:
        assert ledger.anew is None
    assert "next     opendp-sim apply" in _run("plan", spec).stdout
    assert _run("apply", spec).exit_code == 0


def test_the_folder_of_an_unfinished_run_knows_of_its_ledger(tmp_path, monkeypatch):
    from tests.dsl.test_survive_runs import unfinished

    spec = unfinished(tmp_path, monkeypatch)
    for name in ("points.ledger", "points.ledger.lock"):
        (tmp_path / name).unlink()
    with pytest.raises(BudgetError, match="holds the files of a run"):
        apply(plan_file(spec))


def _people(folder, ledger):
    """Write a spec of a session and its records; return the spec."""
    from tests.cli.test_session_lines import write_people

    write_people(folder)
    spec = folder / "people.yaml"
    spec.write_text(spec.read_text().replace("ledger.jsonl", ledger))
    return spec


def test_a_session_whose_ledger_is_lost_is_not_charged_to_a_new_one(tmp_path):
    from opendp_sim.dsl.run.session import serve

    spec = _people(tmp_path, "people.ledger")
    with serve(plan_file(spec)):
        pass
    for found in tmp_path.glob("*.ledger*"):
        found.unlink()
    with pytest.raises(BudgetError, match="OS407"):
        serve(plan_file(spec))
    assert not list(tmp_path.glob("*.ledger"))


def test_the_end_of_a_session_makes_no_ledger(tmp_path):
    """Its folder was away when the session ended: an empty one was made, and the budget was whole again."""
    from opendp_sim.dsl.run.session import serve

    spec = _people(tmp_path, "led/people.ledger")
    served = serve(plan_file(spec))
    served.ask([[0.5, 0.5]])
    (tmp_path / "led").rename(tmp_path / "away")
    with pytest.warns(RuntimeWarning, match="did not record the end"):
        served.__exit__(None, None, None)
    assert not (tmp_path / "led").exists()
    with pytest.raises(BudgetError, match="OS407"):
        serve(plan_file(spec))
    (tmp_path / "away").rename(tmp_path / "led")
    with serve(plan_file(spec)) as served:
        served.ask([[0.5, 0.5]])
    with Ledger.open(tmp_path / "led" / "people.ledger") as ledger:
        assert [bool(e.body.get("ended")) for e in ledger.entries if e.kind == "session"] == [
            False,
            False,
            True,
        ]


def test_the_end_of_a_session_is_told_to_its_own_ledger_only(tmp_path):
    from opendp_sim.dsl.run.session import serve

    spec = _people(tmp_path, "people.ledger")
    served = serve(plan_file(spec))
    place = tmp_path / "people.ledger"
    place.rename(tmp_path / "away")
    with Ledger.open(tmp_path / "away") as ledger:
        terms = ledger.terms
    Ledger.open(place, terms, forget=True).close()
    with pytest.warns(RuntimeWarning, match="did not record the end"):
        served.__exit__(None, None, None)
    with Ledger.open(place) as ledger:
        assert not ledger.entries


@pytest.mark.few(1)
@pytest.mark.parametrize("kept", ["r.npz", "run.json"])
def test_a_folder_that_is_called_as_that_of_a_run_is_not_removed_with_others_files(tmp_path, kept):
    """It was removed whole by the next run, whatever lay in it: a ledger, a paid release."""
    folder = tmp_path / ".opendp_sim-0123456789abcdef"
    folder.mkdir()
    (folder / kept).write_text("mine")
    before = sorted(folder.iterdir())
    apply(plan_file(write_small(tmp_path)))
    assert set(before) <= set(folder.iterdir())


@pytest.mark.parametrize(
    ("old", "name"), [("points.ledger", "d.ledger"), ("out/release.npz", "a/r.npz")]
)
def test_nothing_is_kept_in_a_folder_that_is_called_as_that_of_a_run(tmp_path, old, name):
    spec = write_small(tmp_path, (old, f".opendp_sim-0123456789abcdef/{name}"))
    done = _run("check", spec)
    assert done.exit_code == 1
    assert "OS304" in done.output


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "way", some(["link", "ring of links", "folder", "absolute", "same folder"], 2)
)
def test_a_spec_of_two_names_has_one_ledger(tmp_path, way):
    """A link from another folder began a ledger of its own: the budget was spent once for each name."""
    home, other = tmp_path / "home", tmp_path / "other"
    other.mkdir()
    if way == "folder":
        other.rmdir()
        other.symlink_to(home)
    home.mkdir()
    place = home / "points.ledger"
    spec = write_small(home, *[("points.ledger", str(place))] * (way == "absolute"))
    link = (home if way == "same folder" else other) / ("b.yaml" if way != "folder" else spec.name)
    if way != "folder":
        first = tmp_path / "first.yaml"
        first.symlink_to(spec)
        link.symlink_to(first if way == "ring of links" else spec)
        for name in ("points.npz", "queries.npz"):
            if link.parent != home:
                (other / name).symlink_to(home / name)
    apply(plan_file(spec))
    if "link" in way:
        with pytest.raises(Refused) as caught:
            plan_file(link)
        assert {found.code for found in caught.value.findings} == {"OS304"}
        assert not (other / "points.ledger").exists()
    else:
        assert apply(plan_file(link)).charge.seq == 5
    with Ledger.open(place) as ledger:
        assert len(ledger.charges) == 1 + ("link" not in way)


def test_an_older_copy_of_a_ledger_is_found_by_the_certificates(tmp_path):
    """It was charged as if the runs that it does not know of had never been."""
    spec, place = write_small(tmp_path), tmp_path / "points.ledger"
    apply(plan_file(spec))
    shutil.copy(place, tmp_path / "older")
    apply(plan_file(spec))
    shutil.copy(place, tmp_path / "newer")
    shutil.copy(tmp_path / "older", place)
    for _ in range(2):
        with pytest.raises(BudgetError, match="OS407") as caught:
            apply(plan_file(spec))
        assert "with entry 5, which" in caught.value.expected
    with Ledger.open(place) as ledger:
        assert len(ledger.entries) == 3
    shutil.copy(tmp_path / "newer", place)
    assert apply(plan_file(spec)).charge.seq == 8
    place.unlink()
    assert _run("ledger", "new", spec, "--forget").exit_code == 0
    assert apply(plan_file(spec)).charge.seq == 2  # what it forgets it does not miss


CLOCKS = {"fast": "2090-01-01T00:00:00+00:00", "slow": "1999-01-01T00:00:00+00:00"}


@pytest.mark.few(1)
@pytest.mark.parametrize("clock", CLOCKS)
def test_what_a_new_ledger_forgets_hangs_on_no_clock(tmp_path, monkeypatch, clock):
    """Begun under a fast clock, older copies of it were taken until 2090; charged under one, no run was."""
    spec, place = write_small(tmp_path), tmp_path / "points.ledger"
    now = "opendp_sim.accounting.ledger.ledger.time_now"
    with monkeypatch.context() as patch:
        patch.setattr(now, lambda: CLOCKS[clock])
        apply(plan_file(spec))
    place.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(now, lambda: CLOCKS["fast" if clock == "slow" else "slow"])
        assert _run("ledger", "new", spec, "--forget").exit_code == 0
    shutil.copy(place, tmp_path / "older")
    assert apply(plan_file(spec)).charge.seq == 2
    shutil.copy(tmp_path / "older", place)
    with pytest.raises(BudgetError, match="OS407") as caught:
        apply(plan_file(spec))
    assert "an older copy" in caught.value.got


def test_a_programs_own_certificate_is_seen_among_any_number_of_others(tmp_path, monkeypatch):
    """The first 256 of a folder were looked at: a shared one holds as many in a year."""
    monkeypatch.setattr("opendp_sim.dsl.run.charge._MOST", 1)
    spec = _lost(tmp_path, "certificates")
    (tmp_path / "out" / "a.certificate.json").write_text("{}")
    with pytest.raises(BudgetError, match="OS407"):
        apply(plan_file(spec))


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


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["folder", "ring"])
def test_a_file_that_is_none_is_no_certified_one(tmp_path, kind):
    spec = write_small(tmp_path)
    apply(plan_file(spec))
    file = tmp_path / "out" / "release.npz"
    file.unlink()
    file.mkdir() if kind == "folder" else file.symlink_to(file)
    for words in (["verify", f"{file}.certificate.json"], ["answer", file, "--post", "density"]):
        assert _run(*words).exit_code in (4, 5), words
