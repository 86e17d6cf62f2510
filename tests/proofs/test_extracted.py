"""The code computes what the extracted functions do; and the comparison finds thirty-odd faults of one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from opendp_sim.accounting.ledger.ledger import Ledger
from tests.accounting import _server
from tests.proofs.comparisons import Driver
from tests.proofs.machines import ledger
from tests.proofs.mutants import MUTANTS, PACKAGE
from tests.proofs.table import COMPARISONS

ROOT = Path(__file__).parents[2]


@pytest.mark.few(5)
@pytest.mark.parametrize("name", COMPARISONS)
def test_code_and_proof_agree(name: str, drivers: list[Driver]) -> None:
    compare, few, _ = COMPARISONS[name]
    found = compare(drivers[0], drivers[1], few)
    assert found.rows
    assert found.differences == {}


@pytest.mark.long
@pytest.mark.parametrize("name", COMPARISONS)
def test_code_and_proof_agree_on_many_cases(name: str, drivers: list[Driver]) -> None:
    compare, _, many = COMPARISONS[name]
    assert compare(drivers[0], drivers[1], many).differences == {}


@pytest.mark.long
def test_a_ledger_in_a_database_agrees_and_one_without_a_limit_does_not(
    drivers: list[Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failing writes, lost answers, and answers that are lost and asked for again."""
    pytest.importorskip("psycopg")
    if not _server.FOUND:
        pytest.skip("no PostgreSQL on this machine")
    with _server.running():
        assert ledger(*drivers, 8, place="postgresql:one/proofs").differences == {}
        monkeypatch.setattr(Ledger, "afford", lambda _self, _charge: None)
        differences = ledger(*drivers, 8, place="postgresql:one/unlimited").differences
        assert "a reserve is a step of the machine: within the limit" in differences


@pytest.mark.long
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(n, id=f"{m.row}-{m.file}", marks=[pytest.mark.deep] if n % 3 else [])
        for n, m in enumerate(MUTANTS)
    ],
)
def test_a_fault_of_one_line_is_found(number: int, programs: list[Path]) -> None:
    """In a process of its own; every third in CI, all of them nightly."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.proofs.mutants", str(number), *map(str, programs)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert MUTANTS[number].row in done.stdout.splitlines()


@pytest.mark.parametrize("mutant", MUTANTS)
def test_every_mutant_still_changes_its_line(mutant) -> None:
    assert (PACKAGE / mutant.file).read_text("utf-8").count(mutant.old) == 1
    assert mutant.old != mutant.new


def test_forty_rows_have_a_mutant() -> None:
    assert len({mutant.row for mutant in MUTANTS}) >= 45
