"""Other systems' budgets pay for a release: priced, charged, then released, in a process beside theirs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "hosts"
FAKE = """
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["do"] == sys.argv[1]:
        os._exit(9) if sys.argv[2] == "dies" else print(json.dumps({"refused": "OS401"}), flush=True)
    elif asked["do"] == "price":
        print(json.dumps({"epsilon": 1.0, "delta": 0.0, "digest": "d"}), flush=True)
    else:
        print(json.dumps({"answers": {"rows": asked["rows"]}}), flush=True)
"""
PROGRAM: dict[str, Any] = {
    "columns": {"age": {"dtype": "float64", "bounds": [0, 100]}},
    "contributions": 2,
    "measure": "pure",
    "budget": {"epsilon": 1.0},
    "steps": [
        {"select": {"features": "age"}},
        {"quantize": {"bits": 6}},
        {"distance_tree": {"levels": 6}},
    ],
    "release": {"noise": "laplace", "scale": "solve", "spend": "100%"},
    "ask": {"distance": {"queries": [[30.0]]}},
}

GAUSSIAN: dict[str, Any] = {
    "steps": [*PROGRAM["steps"][:2], {"moments_sketch": {}}],
    "release": {"noise": "gaussian", "scale": "solve", "spend": "100%"},
}


def example(name: str) -> Any:
    """Return a module of the example."""
    spec = spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


charged, worker = example("charged"), example("worker")


def run(at: str, how: str, *, room: bool = True) -> tuple[list[str], Any]:
    """Return what happened in order, and the answers or the refusal."""
    happened: list[str] = []

    def charge(epsilon: float, delta: float) -> None:
        if not room:
            raise ValueError("no budget")
        happened.append(f"charged {epsilon:g}, {delta:g}")

    def rows() -> dict[str, list[float]]:
        happened.append("opened")
        return {"age": [1.0]}

    try:
        found = charged.charged_release(
            [sys.executable, "-c", FAKE, at, how], PROGRAM, charge, rows
        )
    except (charged.RefusedError, ValueError) as error:
        found = str(error)
    return happened, found


@pytest.mark.parametrize(
    ("at", "how", "room", "happened", "found"),
    [
        ("never", "", True, ["charged 1, 0", "opened"], {"rows": {"age": [1.0]}}),
        ("price", "dies", True, [], "the worker is gone"),
        ("price", "refuses", True, [], "OS401"),
        ("never", "", False, [], "no budget"),
        ("release", "dies", True, ["charged 1, 0", "opened"], "the worker is gone"),
        ("release", "refuses", True, ["charged 1, 0", "opened"], "OS401"),
    ],
)
def test_rows_are_opened_after_the_charge_which_stands(at, how, room, happened, found):
    assert run(at, how, room=room) == (happened, found)


def test_what_was_priced_is_released_once_and_nothing_else():
    served = worker.Worker()

    def said(**asked: Any) -> dict[str, Any]:
        return dict(served.answer(json.dumps(asked)))

    rows = {"age": [20.0, 30.0, float("nan"), 1e9] * 50}
    priced = said(do="price", program=PROGRAM)
    assert (priced["epsilon"], priced["delta"]) == (1.0, 0.0)
    assert said(do="release", digest="another", rows=rows) == {"refused": "ValueError"}
    answers = said(do="release", digest=priced["digest"], rows=rows)["answers"]
    assert set(answers["distance"]) >= {"distance", "noise_error", "lower", "upper"}
    assert said(do="release", digest=priced["digest"], rows=rows) == {"refused": "ValueError"}


@pytest.mark.parametrize(
    "change",
    [
        {"data": {"source": {"csv": "x.csv"}}},
        {"steps": [{"select": {"features": "age"}}]},
        {"contributions": 0},
        {"budget": {"epsilon": 0}},
        {"release": {"noise": "none"}},
        {"measure": "zcdp", "budget": {"rho": 5.0}} | GAUSSIAN,
        {"measure": "approx_zcdp", "budget": {"rho": 5.0, "delta": 1e-6}} | GAUSSIAN,
        {"measure": "gdp", "budget": {"mu": 3.0}} | GAUSSIAN,
    ],
    ids=["a file", "no sketch", "nobody", "no budget", "no noise", "rho", "rho, delta", "mu"],
)
def test_a_program_that_loses_more_or_names_files_has_no_price(change):
    reply = worker.Worker().answer(json.dumps({"do": "price", "program": PROGRAM | change}))
    assert set(reply) == {"refused"}


def test_a_refusal_after_the_charge_has_no_word_of_the_rows():
    served = worker.Worker()
    priced = served.answer(json.dumps({"do": "price", "program": PROGRAM}))
    line = json.dumps({"do": "release", "digest": priced["digest"], "rows": {"age": ["secret"]}})
    assert "secret" not in json.dumps(served.answer(line))


def test_the_worker_s_own_ledger_is_charged_too(tmp_path):
    ledger = {"file": str(tmp_path / "a.ledger"), "limit": {"epsilon": 1.5}}
    served, rows = worker.Worker(ledger), {"age": [20.0] * 40}
    for refused in (False, True):
        priced = served.answer(json.dumps({"do": "price", "program": PROGRAM}))
        line = json.dumps({"do": "release", "digest": priced.get("digest"), "rows": rows})
        assert ("refused" in served.answer(line)) == refused


def foreign(word: str, script: str, folder: Path) -> str:
    """Return what a script prints under another system's Python, or skip."""
    python = os.environ.get(word)
    if not python:
        pytest.skip(f"{word} names no Python with that system (examples/hosts/README.md)")
    done = subprocess.run(
        [python, FOLDER / script, folder, sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_a_lomas_server_charges_its_budget_before_the_answer(tmp_path):
    said = json.loads(foreign("LOMAS_PYTHON", "try_lomas.py", tmp_path).splitlines()[-1])
    assert said["cost"] == {"epsilon": 1.0, "delta": 0.0}
    assert said["spent after the estimate"] == 0.0
    assert said["answer"]["epsilon"] == said["spent after the answer"] == 1.0
    assert len(said["answer"]["result"]["quantiles"]["quantile"]) == 2
    assert said["dead worker"] == 422
    assert said["spent after a worker died"] == 2.0
    assert (said["no budget left"], said["a file"]) == (400, 400)
    assert said["spent at the end"] == 2.0
    assert said["archived"] == 1


@pytest.mark.long
def test_a_script_of_dp_wizard_releases_within_its_one_budget(tmp_path):
    text = foreign("DP_WIZARD_PYTHON", "try_dp_wizard.py", tmp_path)
    assert "age_bin" in text
    said = json.loads(text.splitlines()[-1])
    assert (said["epsilon"], said["delta"]) == (1.5, 0.0)  # of 2, by weights 1 and 3
    assert len(said["answers"]["distance"]["distance"]) == 2
