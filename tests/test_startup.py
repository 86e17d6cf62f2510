"""Start-up: what is imported is counted, because seconds depend on the machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from opendp_sim.cli import COMMANDS, app, loaded

SPEC = str(Path(__file__).parent / "golden" / "small.yaml")
HEAVY = {
    "cupy",
    "sklearn",
    "pandas",
    "polars",
    "pyarrow",
    "matplotlib",
    "scipy.stats",
    "opendp.context",
    "starlette",
    "uvicorn",
}
RUNS = {"opendp_sim.cli.apply", "opendp_sim.dsl.run.execute", "rich.progress"}
LIGHT = {*HEAVY, "numpy", "scipy", "pydantic", "opendp"}
RUN = "import sys; sys.argv = ['opendp-sim', {}]; from opendp_sim.cli import main; main()"


def imported(code: str) -> set[str]:
    """Run ``code`` afresh and return the names of all modules that it imported."""
    tail = "import atexit, json, sys; atexit.register(lambda: print(json.dumps(list(sys.modules))))"
    done = subprocess.run(
        [sys.executable, "-c", f"{tail}\n{code}"], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("code", "without", "most"),
    [
        ("import opendp_sim", LIGHT, 120),
        ("import opendp_sim.dsl", LIGHT, 120),
        (RUN.format("'--version'"), LIGHT, 250),
        (RUN.format("'--help'"), LIGHT, 450),
        ("import opendp_sim.prelude", {*HEAVY, "scipy", "typer", "rich"}, 650),
        pytest.param(
            RUN.format(f"'check', {SPEC!r}"), {*HEAVY, *RUNS, "scipy"}, 870, marks=pytest.mark.long
        ),
        (RUN.format(f"'plan', {SPEC!r}"), {*HEAVY, *RUNS, "scipy"}, 870),
    ],
)
def test_nothing_is_imported_that_is_not_used(code, without, most):
    found = imported(code)
    assert not found & without
    assert len(found) <= most


def test_every_command_says_its_own_first_line():
    for name, (_, line) in COMMANDS.items():
        command = loaded(name)
        first = (command.help or "").split("\n\n")[0]
        assert " ".join(first.split()) == line, name
        assert command.name == name


def test_no_command_is_forgotten():
    group = typer.main.get_command(app)
    assert list(group.commands) == list(COMMANDS)  # type: ignore[attr-defined]
