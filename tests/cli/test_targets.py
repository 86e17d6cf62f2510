"""``-o`` replaces a file with ``--force`` only, and no ledger; a run replaces its own outputs."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import opendp_sim as sim
from opendp_sim.core.errors import DataError
from opendp_sim.dsl.run.overwrite import check_target, kept_of
from tests._cli import begun, run as _run
from tests._small import write_small
from tests._tiers import some


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("targets")
    spec = write_small(folder)
    assert _run("apply", begun(spec)).exit_code == 0
    (folder / "other.json").write_text('{"spec": 1}')
    (folder / "d.csv").write_text("x\n1\n")
    return folder


@pytest.fixture
def folder(made, tmp_path):
    shutil.copytree(made, tmp_path / "f")
    return tmp_path / "f"


def _state(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


COMMANDS = {
    "plan": ("plan", "small.yaml", "-o"),
    "report": ("report", "small.yaml", "-o"),
    "report ledger": ("report", "points.ledger", "-o"),
    "plot": ("plot", "small.yaml", "-o"),
    "answer": ("answer", "out/release.npz", "--queries", "queries.npz", "--post", "density", "-o"),
    "schema": ("schema", "-o"),
}


def _refused(target, about, *, force):
    with pytest.raises(DataError) as told:
        check_target(Path(target), kept_of(about), force=force)
    assert told.value.code == "OS609", target


@pytest.mark.parametrize("force", [False, True])
def test_a_file_is_replaced_with_force_only_and_a_ledger_by_no_command(folder, monkeypatch, force):
    monkeypatch.chdir(folder)
    Path("linked.csv").hardlink_to("d.csv")
    Path("link.html").symlink_to("points.ledger")
    os.mkfifo("fifo.csv")
    before = _state(folder)
    never = (
        "points.ledger",
        "link.html",
        "fifo.csv",
        ".",
        "",
        "/",
        "/dev/null",
        "a\0",
        "small.yaml",
    )
    for target in never:
        _refused(target, "small.yaml", force=force)
        assert _state(folder) == before, target
    for target in ("points.npz", "out/release.npz", "d.csv", "linked.csv"):
        if force:
            check_target(Path(target), kept_of("small.yaml"), force=True)
        else:
            _refused(target, "small.yaml", force=False)
        assert _state(folder) == before, target


def test_the_places_beside_a_ledger_are_no_output_of_a_command_about_it(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for side in ("-wal", "-shm", "-journal", ".lock", ""):
        _refused(f"points.ledger{side}", "points.ledger", force=True)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_asks_before_it_writes(folder, monkeypatch, name):
    monkeypatch.chdir(folder)
    before = _state(folder)
    for target in ("", "d.csv", "small.yaml" if name == "schema" else COMMANDS[name][1]):
        done = _run(*COMMANDS[name], target)
        assert done.exit_code in (1, 4), (target, done.output)
        assert "OS609" in done.output or "OS304" in done.output, (target, done.output)
        assert _state(folder) == before, target
    if name != "plot":
        assert _run(*COMMANDS[name], "d.csv", "--force").exit_code == 0
        assert _state(folder) != before


def test_a_ledger_that_is_a_folder_is_refused_with_a_code(tmp_path, monkeypatch):
    spec = write_small(tmp_path, ("points.ledger", "."))
    monkeypatch.chdir(tmp_path)
    for words in (("check",), ("plan",), ("apply",)):
        done = _run(*words, spec.name)
        assert done.exit_code == 1, done.output
        assert "OS304" in done.output


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", ["text", "archive", "link", "hard link"])
def test_save_replaces_no_file_that_no_run_wrote(folder, monkeypatch, kind):
    monkeypatch.chdir(folder)
    saved = Path("out/release.npz")
    Path("out/release.npz.certificate.json").unlink()
    # A release is known by itself, and replaced by the next one.
    assert _run("apply", "small.yaml").exit_code == 0
    Path("out/release.npz.certificate.json").unlink()
    saved.unlink()
    if kind == "text":
        saved.write_text("mine")
    elif kind == "archive":
        shutil.copy("points.npz", saved)
    elif kind == "link":
        saved.symlink_to(Path("other.json").resolve())
    else:
        saved.hardlink_to("other.json")
    before = _state(folder)
    done = _run("apply", "small.yaml")
    assert done.exit_code == 4
    assert "OS609" in done.output
    after = {name: raw for name, raw in _state(folder).items() if name in before}
    assert after == before


@pytest.mark.parametrize("kept", some(["whole", "no certificate"], 2))
def test_a_release_of_another_program_is_replaced_where_that_is_allowed_only(folder, kept):
    """It was paid for; the next run of an edited spec took its place without a word."""
    spec, other = folder / "small.yaml", folder / "other.yaml"
    other.write_text(
        spec.read_text().replace("epsilon: 1.0", "epsilon: 0.5").replace("out/density", "d/density")
    )
    if kept != "whole":
        (folder / "out" / "release.npz.certificate.json").unlink()
    before = _state(folder)
    done = _run("apply", other)
    assert done.exit_code == 4, done.output
    assert "OS609" in done.output
    assert "--replace" in done.output
    after = _state(folder)
    assert {name: after[name] for name in before} == before
    assert _run("apply", other, "--into", folder / "elsewhere").exit_code == 0
    assert _run("apply", other, "--replace").exit_code == 0
    assert _run("apply", other).exit_code == 0  # its own is replaced by the next run
    assert _run("apply", spec).exit_code == 4
    with pytest.raises(DataError, match="OS609"):
        sim.apply(str(spec))
    assert sim.apply(str(spec), replace=True).charge is not None


def test_what_another_program_published_meanwhile_is_not_replaced_by_an_unfinished_run(
    tmp_path, monkeypatch
):
    from opendp_sim.dsl import apply, plan_file
    from tests.dsl.test_survive_runs import state, unfinished

    spec = unfinished(tmp_path, monkeypatch)
    other = tmp_path / "other.yaml"
    other.write_text(spec.read_text().replace("epsilon: 1.0", "epsilon: 0.5"))
    apply(plan_file(other))
    before = _state(tmp_path / "out")
    for resume in (2, None):
        with pytest.raises(DataError, match="another program"):
            apply(plan_file(spec), resume=resume)
    assert _state(tmp_path / "out") == before
    assert apply(plan_file(spec), replace=True).resumed == 2
    assert state(tmp_path)[0] == 2


def test_the_certificate_of_another_program_whose_file_is_away_is_kept(tmp_path):
    """It is the record of a paid run: a run took it for its own output's old one, and removed it."""
    spec = write_small(tmp_path)
    saved = tmp_path / "out" / "density.csv"
    beside = saved.with_name("density.csv.certificate.json")
    sim.apply(str(spec))
    saved.rename(tmp_path / "moved.csv")
    before = beside.read_bytes()
    spec.write_text(spec.read_text().replace("name: small", "name: another"))
    (tmp_path / "out" / "release.npz").unlink()
    with pytest.raises(DataError, match="certificate of a release of another"):
        sim.apply(str(spec))
    assert beside.read_bytes() == before
    assert sim.apply(str(spec), replace=True).files


def test_a_release_that_names_no_program_is_no_free_one(tmp_path):
    """What a chain returned and a sum of holders' releases are of no program, and were paid for."""
    spec = write_small(tmp_path)
    done = sim.apply(str(spec))
    place = next(file for file in map(Path, done.files.values()) if file.suffix == ".npz")
    release = sim.load(place)
    claim = {"measure": "pure", "epsilon": 1.0}
    for file in (place, place.with_name(f"{place.name}.certificate.json")):
        file.unlink()
    replace(release, header={**release.header, "privacy": claim}).save(place)
    with pytest.raises(DataError, match="another program"):
        sim.apply(str(spec))
    assert sim.load(place).header["privacy"] == claim
