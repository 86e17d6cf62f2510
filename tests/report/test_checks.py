"""The commands of pages and of the officer's tutorial: they work as they stand, and refuse what they should."""

from __future__ import annotations

import html
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from opendp_sim.cli import app
from opendp_sim.report.commands import _spec_beside
from opendp_sim.report.page import page_of

pytest.importorskip("cryptography")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "specs").mkdir()
    shutil.copy(ROOT / "specs" / "digit-means.yaml", tmp_path / "specs")
    monkeypatch.chdir(tmp_path / "specs")
    return tmp_path / "specs"


def ran(text):
    """Run lines as a reader copies them; return what the last one printed."""
    out = ""
    for line in filter(None, re.split(r"\n|&&", text)):
        program, *words = shlex.split(line)
        if program == "openssl":
            subprocess.run(["openssl", *words], check=True, capture_output=True)
            continue
        assert program == "opendp-sim"
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, (line, done.output)
        out = done.output
    return " ".join(out.split())


def blocks(page):
    """Return the commands that a page shows."""
    return [
        html.unescape(text)
        for text in re.findall(r"<pre>(opendp-sim .*?|openssl .*?)</pre>", page, re.DOTALL)
    ]


def test_the_officer_s_signature_is_made_and_checked(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    text = (ROOT / "docs" / "tutorials" / "officer.md").read_text(encoding="utf-8")
    (block,) = [b for b in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) if "--sign " in b]
    assert "--spec" in block
    said = ran(block.replace("\\\n", " "))
    assert "signed by the key" in said
    assert "name it with --spec" not in said
    assert "name the curator's public key" not in said


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["spec", "plan", "sent plan"])
def test_the_commands_of_a_page_before_the_run_make_and_check_a_signature(
    folder, kind, monkeypatch
):
    about = folder / "digit-means.yaml"
    if kind == "plan":
        ran("opendp-sim plan digit-means.yaml -o review.plan")
        about = folder / "review.plan"
    if kind == "sent plan":  # it wrote into the author's folder, where the page did not look
        own = folder.parent / "own"
        own.mkdir()
        said = (
            CliRunner().invoke(app, ["plan", "digit-means.yaml", "-o", "../own/sent.plan"]).stderr
        )
        assert "saves its outputs under ../own" in " ".join(said.split())
        about = own / "sent.plan"
        monkeypatch.chdir(own)
    *_, commands = blocks(page_of(about))
    assert f"apply {about.name} --sign" in commands
    assert "signed by the key" in ran(commands)
    assert (about.parent / "out").is_dir()
    assert (folder / "out").is_dir() == (kind != "sent plan")


def test_the_commands_of_a_certificate_s_page_work_unsigned_and_signed(folder, monkeypatch):
    ran("opendp-sim apply digit-means.yaml")
    path = min((folder / "out").glob("*.certificate.json"))
    monkeypatch.chdir(path.parent)
    verify, against, signing = blocks(page_of(path))
    assert "--spec ../digit-means.yaml" in against
    said = ran(verify)
    assert "assumed: " not in said
    told = said.partition(" verdict ")[2]
    assert "all that could be compared agrees" in told
    assert "--spec FILE" in told
    assert "nobody signed" in told
    told = ran(against).partition(" verdict ")[2]
    assert "all that could be compared agrees" in told
    assert "--spec FILE" not in told
    assert "../digit-means.yaml --sign" in signing
    assert "signed by the key" in ran(signing)
    page = page_of(path)
    assert "It is signed by the key" in page
    assert "Nobody signed" not in page
    *_, check = blocks(page)
    assert "signed by the key" in ran(check)
    spec = folder / "digit-means.yaml"
    spec.write_text(spec.read_text().replace("epsilon: 1", "epsilon: 2"))
    assert CliRunner().invoke(app, shlex.split(against)[1:]).exit_code != 0


def test_a_program_s_name_never_becomes_a_shell_s_word(tmp_path):
    for name in ("a; rm x", "../up", "$(x)", "-o"):
        assert _spec_beside(tmp_path / "c.certificate.json", name) == "spec.yaml"
