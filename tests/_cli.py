"""The command line as tests call it: in this process, each word as a text."""

from __future__ import annotations

from typing import Any

from typer.testing import CliRunner

from opendp_sim.cli import app


def run(*words: Any) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


def begun(spec: Any) -> Any:
    """Make the ledger of a spec; return the spec."""
    assert run("ledger", "new", spec).exit_code == 0
    return spec
