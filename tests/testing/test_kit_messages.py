"""A law that fails says what it saw, to a third party as well, and cannot be switched off."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import opendp_sim.testing

FOLDER = Path(opendp_sim.testing.__file__).parent
THIRD_PARTY = """
from dataclasses import replace
from opendp_sim.testing import laws_of_maps
from tests.cases.race import CASES
from tests.testing.test_kit import of, sensitivity

def test_law():
    laws_of_maps.check_sensitivity_is_attained(of("race_sketch", sensitivity(l1=12345)))
"""


def test_every_assertion_of_the_kit_has_a_message():
    silent = [
        f"{path.name}:{node.lineno}"
        for path in sorted(FOLDER.glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assert) and node.msg is None
    ]
    assert silent == []


def test_a_third_party_sees_the_values(tmp_path):
    (tmp_path / "test_mine.py").write_text(THIRD_PARTY, encoding="utf-8")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(tmp_path),
            str(tmp_path / "test_mine.py"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "claimed tight" in done.stdout
    assert "assert Fraction(" in done.stdout or "12345" in done.stdout


def test_the_kit_does_not_load_where_assertions_are_removed():
    done = subprocess.run(
        [sys.executable, "-O", "-c", "import opendp_sim.testing"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "without -O" in done.stderr


def test_pytest_rewrites_the_kit():
    source = (FOLDER / "__init__.py").read_text(encoding="utf-8")
    assert source.index("register_assert_rewrite") < source.index("laws_of_maps as _maps")
