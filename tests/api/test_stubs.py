"""Type stubs: made from the records, compared with their files, and what a user's script is checked by."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import opendp_sim
from opendp_sim.accounting.release.questions import Questions
from opendp_sim.dsl.stubs import stubs, write_stubs
from tests.api.user_script import main

SCRIPT = Path(main.__code__.co_filename)
WRONG = """\
import opendp_sim as sim
sim.then_quantize(bits="12")
sim.then_quantise(bits=12)
def asked(release: sim.Release) -> sim.Plan:
    return release.density(confidense=0.9)
"""


def test_the_stubs_are_those_of_this_version():
    for file, text in stubs().items():
        assert file.read_text("utf-8") == text, f"{file.name}: run `opendp-sim stubs --write`"
    assert write_stubs() == []


def test_every_name_of_the_face_is_in_its_stub():
    (face,) = (text for file, text in stubs().items() if file.name == "__init__.pyi")
    for name in dir(opendp_sim):
        assert f"{name}: str" in face or f" {name} as {name}" in face, name
    assert (Path(opendp_sim.__file__).parent / "py.typed").exists()
    assert not [n for n, _ in inspect.getmembers(Questions, inspect.isfunction)]


def test_a_users_script_runs(tmp_path, capsys):
    assert main(tmp_path) > 0.0
    assert "(1.0, 1e-06) 1 True" in capsys.readouterr().out


@pytest.mark.deep
@pytest.mark.parametrize("wrong", [False, True])
def test_a_users_script_is_checked_by_mypy(wrong, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(WRONG if wrong else SCRIPT.read_text())
    command = [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", str(script)]
    out = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path).stdout
    found = [line for line in out.splitlines() if line.startswith("script.py")]
    assert len(found) == (4 if wrong else 0), out
