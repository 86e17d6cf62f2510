"""Type stubs: made from the records, compared with their files, and what a user's script is checked by."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

import opendp_sim
from opendp_sim.accounting.release.questions import Questions
from opendp_sim.dsl.stubs import stubs, write_stubs
from tests.api import every_verb
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
    found = [
        line for line in out.splitlines() if line.startswith("script.py") and ": error:" in line
    ]
    assert len(found) == (4 if wrong else 0), out


FLOW = """
spec: opendp_sim/1
name: small
data:
  t:
    source: {memory: t}
    columns: {x: {dtype: float64, bounds: [0, 1]}, y: {dtype: float64, bounds: [0, 1]}, kind: {dtype: category, keys: [a, b]}}
privacy: {unit: {add_remove: 1, of: row}, measure: gdp, budget: {epsilon: 1.0, delta: 1.0e-6}}
flow:
  noisy:
    from: t
    steps: [select: {features: [x, y], label: kind}, quantize: {bits: 8}, %s
outputs:
  answers: {from: noisy, %s}
"""
SUMS = FLOW % ("moments_sketch: {}]\n    release: {noise: gaussian, spend: 100%}", "save: sums.npz")
KNN = FLOW % (
    "]\n    release: {mechanism: {ind_knn: {queries: 60, size: 60}}, spend: 100%}",
    "serve: session, store: s.session",
)


def test_every_verb_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    every_verb.main(tmp_path, SUMS, KNN)
    shown = capsys.readouterr().out
    assert "Refused" in shown
    written = Path(every_verb.__file__).read_text("utf-8")
    steps = ("then_", "make_")
    verbs = {name for name in dir(opendp_sim) if not name.startswith((*steps, "_"))}
    assert {name for name in verbs if f"sim.{name}" not in written} == set()


MISSPELT = """\
import opendp_sim as sim
sim.density({"x": (0, 1)}, bandwidth=1.0, epsilonn=3)
sim.density({"x": (0, 1)}, epsilon=3)
sim.top("page", k=10, max_rows=3)
sim.means({"x": (0, 1)}, measure="renyi")
"""
PYRIGHT = which("pyright") or which("basedpyright")


@pytest.mark.long
@pytest.mark.skipif(PYRIGHT is None, reason="no pyright")
@pytest.mark.parametrize("wrong", [False, True])
def test_a_script_of_every_verb_passes_pyright_strict(wrong, tmp_path):
    """And a misspelt or a missing word, and a measure that is none, do not."""
    script = tmp_path / "script.py"
    script.write_text(MISSPELT if wrong else Path(every_verb.__file__).read_text("utf-8"), "utf-8")
    config = {"include": ["script.py", "user.py"], "typeCheckingMode": "strict"}
    if not wrong:
        (tmp_path / "user.py").write_text(SCRIPT.read_text("utf-8"), "utf-8")
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = [
        str(PYRIGHT),
        "--project",
        str(tmp_path),
        "--outputjson",
        "--pythonpath",
        sys.executable,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    found = json.loads(done.stdout)
    lines = [one["range"]["start"]["line"] for one in found["generalDiagnostics"]]
    assert found["summary"]["filesAnalyzed"] == (1 if wrong else 2)
    assert sorted(set(lines)) == ([1, 2, 3, 4] if wrong else []), found["generalDiagnostics"]
