"""The pytest plugin, and the audit of everything that a module makes."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import types
from collections.abc import Generator
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace

import opendp.prelude as dp
import pytest

from opendp_sim import pytest_audit
from opendp_sim.audit.module_objects import left_out, makers
from opendp_sim.cli._audit_module import module_members
from opendp_sim.core.errors import AuditError

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = "opendp_sim.pytest_audit"
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

class Held:
    pass

def twice() -> dp.Measurement:
    return count >> dp.m.then_laplace(2.0)
"""
TEST = """
import pytest
from stranger_of_tests import make_noisy

@pytest.mark.opendp_audit
def test_noisy(assert_not_refuted):
    assert_not_refuted(make_noisy(), d_in=1, seconds=0.05)
"""


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "stranger_of_tests.py").write_text(STRANGER, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "stranger_of_tests", raising=False)
    return tmp_path


def test_a_module_s_objects_and_factories_are_found(stranger: Path) -> None:
    assert [name for name, _ in makers("stranger_of_tests")] == ["count", "make_noisy", "twice"]
    found = module_members("stranger_of_tests")
    names = [name for name, _, _ in found.subjects]
    assert names == [f"stranger_of_tests:{name}" for name in ("count", "make_noisy", "twice")]
    assert found.left_out == [
        ("Held", "a class: write a factory that returns the OpenDP object around it"),
        ("make_of", "needs `scale`: write a factory without arguments that calls it"),
    ]


def test_a_module_without_any_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty_of_tests.py").write_text("x = 1\n", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(AuditError, match="OS501"):
        module_members("empty_of_tests")


def _installed() -> list[str]:
    """The names by which pytest loads the plugin by itself."""
    return [e.name for e in entry_points(group="pytest11") if e.value == PLUGIN]


def test_the_plugin_s_entry_point_is_named_as_its_module() -> None:
    """So that `-p` of an installed plugin registers nothing twice."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert declared["project"]["entry-points"]["pytest11"] == {PLUGIN: PLUGIN}


RUNS = """
import sys, pytest
common, runs = sys.argv[1].split("|"), sys.argv[2:]
for options in runs:
    pytest.main([*options.split(), *common])
"""


def test_marked_tests_run_when_they_are_asked_for(stranger: Path) -> None:
    """With the package installed pytest loads the plugin by itself, and `-p` does no harm."""
    names = set(_installed())
    if names - {PLUGIN}:
        pytest.skip("an older version is installed, whose entry point has a name of its own")
    (stranger / "test_stranger.py").write_text(TEST, "utf-8")
    test = str(stranger / "test_stranger.py")
    common = "|".join(("-q", "-p", "no:cacheprovider", "--rootdir", str(stranger), test))
    asked = "--opendp-audit" if names else f"-p {PLUGIN} --opendp-audit"
    environment = {
        "PYTHONPATH": f"{ROOT}:{stranger}",
        "PATH": "/usr/bin:/bin",
        "HOME": str(stranger),
    }
    done = subprocess.run(
        [sys.executable, "-c", RUNS, common, f"-p {PLUGIN}", asked],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=stranger,
    )
    first, _, second = done.stdout.partition("1 skipped")
    assert "passed" not in first, done.stdout + done.stderr
    assert "1 passed" in second, done.stdout + done.stderr


def test_explain_audit_is_the_guide() -> None:
    from opendp_sim.dsl.explain.explain import explain

    assert "audit(obj, d_in)" in explain("audit")
    assert "Slow releases" in explain("known_limits")


def test_pytest_refuses_audits_of_no_seconds() -> None:
    """With 0 nothing ran, and everything passed."""
    options = {
        "--opendp-audit-seconds": 0.0,
        "--opendp-audit": False,
        "--opendp-audit-module": [],
        "--opendp-audit-all": False,
    }
    for seconds in (0.0, -3.0, float("inf")):
        config = SimpleNamespace(getoption=(options | {"--opendp-audit-seconds": seconds}).get)
        with pytest.raises(pytest.UsageError, match="above 0"):
            pytest_audit.pytest_configure(config)
        with pytest.raises(pytest.UsageError, match="above 0"):
            pytest_audit._assert(None, 1, seconds=seconds)


def _called(
    stash: dict[object, set[object]], *, on: bool = True
) -> Generator[None, object, object]:
    """Begin a test whose calls are audited."""
    options = {"--opendp-audit-all": on, "--opendp-audit-seconds": 0.3}
    config = SimpleNamespace(getoption=options.get, stash=stash)
    run = pytest_audit.pytest_pyfunc_call(SimpleNamespace(config=config))
    next(run)
    return run


def _ended(run: Generator[None, object, object]) -> object:
    """End a test that passed, with what the plugin makes of it."""
    with pytest.raises(StopIteration) as end:
        run.send(True)
    return end.value.value


def test_a_whole_suite_is_audited_as_it_calls() -> None:
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    twice = dp.t.make_user_transformation(*space, *space, lambda rows: [*rows, *rows], lambda d: d)

    def again(rows: list[int]) -> list[int]:
        return twice(rows)

    sound = dp.t.make_user_transformation(*space, *space, again, lambda d: 2 * d)
    plain, stash = dp.Transformation.__call__, dict[object, set[object]]()
    run = _called(stash, on=False)
    twice([1])
    assert _ended(run) is True
    run = _called(stash)
    twice([1])
    with pytest.raises(AssertionError, match="refuted"):
        run.send(True)
    assert dp.Transformation.__call__ is plain
    run = _called(stash)  # once a session
    twice([1])
    assert _ended(run) is True
    run = _called(stash := {})
    assert sound.map(2) == 4
    assert sound([1]) == [1, 1]  # what it calls inside is a part of it
    assert _ended(run) is True
    assert [d_in for found in stash.values() for _, d_in in found] == ["2"]
    run = _called({})
    dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 0.0)(1)
    with pytest.warns(UserWarning, match="not audited at d_in = 1"):
        _ended(run)


def test_pytest_names_a_module_that_cannot_be_audited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raises_of_tests.py").write_text("raise ValueError('password=1')\n", "utf-8")
    (tmp_path / "bare_of_tests.py").write_text("x = 1\n", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    for module, told in (
        ("no_such_module_of_tests", "no module named no_such_module_of_tests"),
        ("raises_of_tests", "ValueError at raises_of_tests.py:1"),
        ("bare_of_tests", "nothing in it can be audited"),
    ):
        with pytest.raises(pytest.UsageError, match=told) as error:
            list(pytest_audit._of_module(None, module))
        assert "password" not in str(error.value)


def test_a_function_that_is_not_named_like_a_factory_is_said() -> None:
    module = types.ModuleType("tests_left_out")
    exec(  # noqa: S102 - functions of a module that is made here
        "def count_half(): return 1\ndef _hidden(): return 1\ndef with_size(n): return n\n"
        "def make_count(): return 1\n",
        vars(module),
    )
    sys.modules[module.__name__] = module
    try:
        assert [name for name, _ in makers(module.__name__)] == ["make_count"]
        ((name, why),) = left_out(module.__name__)
    finally:
        del sys.modules[module.__name__]
    assert name == "count_half"
    assert "`tests_left_out:count_half`" in why
