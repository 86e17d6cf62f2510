"""Every command that a document, a hint or a docstring names is one: its words, its options, its file."""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from opendp_sim import cli

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    *ROOT.glob("*.md"),
    *ROOT.glob(".github/*.md"),
    *ROOT.glob("opendp_sim/**/*.md"),
    *ROOT.glob("opendp_sim/**/*.py"),
    *ROOT.glob("specs/*.yaml"),
]


def _named() -> set[str]:
    found = set[str]()
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        found |= {m.strip() for m in re.findall(r"opendp-sim( [a-z][^`\n|\"']*)[`\n|\"']", text)}
    return {words for words in found if words.split()[0] in _VERBS or "-" in words}


def _commands():
    for name in cli.COMMANDS:
        command = cli.loaded(name)
        yield (name,), command
        yield from (((name, sub), c) for sub, c in getattr(command, "commands", {}).items())


COMMANDS = dict(_commands())
_VERBS = {words[0] for words in COMMANDS} | {"schema"}


def _refused(words: list[str]) -> str | None:
    """Say what is wrong with a command line's command and options, or nothing."""
    at = tuple(words[:2]) if tuple(words[:2]) in COMMANDS else tuple(words[:1])
    if at not in COMMANDS:
        return f"no command {' '.join(words)}"
    known = {name for p in COMMANDS[at].params for name in (*p.opts, *p.secondary_opts)} | {
        "--help"
    }
    given = [
        word.rstrip(".,;:)").split("=")[0] for word in words[len(at) :] if word.startswith("-")
    ]
    wrong = [word for word in given if word not in known]
    return f"{' '.join(at)} has no {wrong[0]}" if wrong else None


def test_every_command_of_the_documents_exists():
    named = _named()
    assert len(named) > 15
    assert {line: bad for line in named if (bad := _refused(line.split()))} == {}


def test_a_command_that_does_not_exist_is_found():
    assert _refused(["schema", "--write"])
    assert _refused(["refute", "SPEC"])
    assert _refused(["audit", "SPEC", "--format", "json"]) is None


def _of_contributing() -> list[str]:
    text = (ROOT / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text[text.index("## Commands") :]
    return re.findall(
        r"`([^`]*)`", "\n".join(row.split("|", 2)[2] for row in table.splitlines() if "|" in row)
    )


def test_contributing_names_what_is_there():
    """Modules, files, folders and variables of its commands; the longest of them run in CI anyway."""
    lines = _of_contributing()
    assert any("GOLDEN=write" in line for line in lines)
    for line in lines:
        for part in line.split("&&"):
            words = part.split()
            while words and "=" in words[0]:
                name = words.pop(0).split("=")[0]
                users = [*ROOT.glob("tests/*.py"), *ROOT.glob("opendp_sim/testing/*.py")]
                assert any(f'"{name}"' in p.read_text("utf-8") for p in users), name
            if words[:2] == ["python", "-m"]:
                assert importlib.util.find_spec(words[2])
            for word in words:
                if "/" in word and "<" not in word:
                    assert (ROOT / word).exists(), word


@pytest.mark.long
def test_the_schema_and_a_golden_file_are_written_as_contributing_says(tmp_path):
    code = "from opendp_sim.cli import app; app()"
    (line,) = [x for x in _of_contributing() if x.startswith("opendp-sim schema")]
    words = [str(tmp_path / "schema.json") if "/" in w else w for w in line.split()[1:]]
    subprocess.run([sys.executable, "-c", code, *words], check=True, capture_output=True)
    written = json.loads((tmp_path / "schema.json").read_text(encoding="utf-8"))
    there = json.loads((ROOT / "specs" / "schema.json").read_text(encoding="utf-8"))
    assert set(written) == set(there)  # whether it is up to date is asked in tests/dsl


def test_the_scoreboard_takes_a_family(monkeypatch):
    script = str(ROOT / "benchmarks" / "audit_scoreboard.py")
    monkeypatch.setattr(sys, "argv", [script, "--family", "no_such_key", "--only", "twins"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr("opendp.prelude.enable_features", lambda *_: None)  # they would stay on
    with pytest.raises(SystemExit, match="no entry of the corpus"):
        runpy.run_path(script, run_name="__main__")
