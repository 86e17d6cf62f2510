"""The pytest plugin, and the audit of everything that a module makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from opendp_sim.audit.modules import makers
from opendp_sim.cli.audit import _subjects
from opendp_sim.core.errors import AuditError

STRANGER = """
import opendp.prelude as dp
dp.enable_features("contrib", "honest-but-curious")
SPACE = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
count = dp.t.make_count(*SPACE)

def make_noisy(scale=1.0):
    return count >> dp.m.then_laplace(scale)

def helper(x):
    return x

def make_of(scale):
    return make_noisy(scale)

def twice() -> dp.Measurement:
    return count >> dp.m.then_laplace(2.0)
"""
TEST = """
import pytest
from stranger_of_tests import make_noisy

@pytest.mark.opendp_audit
def test_noisy(assert_not_refuted):
    assert_not_refuted(make_noisy(), d_in=1, seconds=0.5)
"""


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "stranger_of_tests.py").write_text(STRANGER, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "stranger_of_tests", raising=False)
    return tmp_path


def test_a_module_s_objects_and_factories_are_found(stranger: Path) -> None:
    assert [name for name, _ in makers("stranger_of_tests")] == ["count", "make_noisy", "twice"]
    names = [name for name, _, _ in _subjects("stranger_of_tests", 1)]
    assert names == [f"stranger_of_tests:{name}" for name in ("count", "make_noisy", "twice")]


def test_a_module_without_any_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty_of_tests.py").write_text("x = 1\n", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(AuditError, match="OS501"):
        _subjects("empty_of_tests", 1)


def test_marked_tests_run_when_they_are_asked_for(stranger: Path) -> None:
    (stranger / "test_stranger.py").write_text(TEST, "utf-8")
    root = Path(__file__).resolve().parents[2]
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "opendp_sim.pytest_audit",
        "--rootdir", str(stranger), str(stranger / "test_stranger.py"),
    ]  # fmt: skip
    environment = {
        "PYTHONPATH": f"{root}:{stranger}",
        "PATH": "/usr/bin:/bin",
        "HOME": str(stranger),
    }
    for options, told in (([], "1 skipped"), (["--opendp-audit"], "1 passed")):
        done = subprocess.run(
            [*command, *options], capture_output=True, text=True, check=False, env=environment,
            cwd=stranger,
        )  # fmt: skip
        assert told in done.stdout, done.stdout + done.stderr


def test_explain_audit_is_the_guide() -> None:
    from opendp_sim.dsl.explain import explain

    assert "audit(obj, d_in)" in explain("audit")
