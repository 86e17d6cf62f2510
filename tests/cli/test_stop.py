"""Stopped at any moment, the command line says one line, what was charged, and exits with 130."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import typer

from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.cli import _stop
from opendp_sim.cli._run import handled
from opendp_sim.core.errors import SpecError
from tests._cli import begun

SPEC = """
spec: opendp_sim/1
name: stopped
data:
  people:
    source: {csv: people.csv}
    ledger: {file: people.ledger, limit: {rho: 100.0}}
    columns:
      x: {dtype: "array[f64, 2]", bounds: [-1, 1]}
privacy:
  unit: {add_remove: 1, of: row}
  measure: zcdp
  budget: {rho: 0.4}
flow:
  rows:
    from: people
    steps:
      - select: {features: x}
      - quantize: {bits: 8}
      - race_sketch: {repetitions: 64, buckets: 64, family: {p_stable_l2: {width: 1.0}}, seed: 1}
  noisy:
    from: rows
    release: {noise: gaussian, scale: solve, spend: 100%}
outputs:
  sketch: {from: noisy, save: out/sketch.npz}
"""
MAIN = "from opendp_sim._entry import main; main()"


def spec(folder: Path) -> Path:
    file = folder / "spec.yaml"
    file.write_text(SPEC)
    rows = np.random.default_rng(1).uniform(-1, 1, (20_000, 2))
    np.savetxt(
        folder / "people.csv", rows, delimiter=",", header="x_0,x_1", comments="", fmt="%.6f"
    )
    return file


COUNTED = """
import os, signal, sys
at, signum, seen = int(sys.argv.pop(1)), int(sys.argv.pop(1)), 0
def heard(event, given):
    global seen
    if event in ("open", "import") or event.startswith(("os.", "sqlite3.")):
        if getattr(signal.getsignal(signum), "__module__", "").startswith("opendp_sim"):
            seen += 1
            if seen == at:
                os.kill(os.getpid(), signum)
            if at == 0:
                os.write(1, b"|")
sys.addaudithook(heard)
from opendp_sim._entry import main
main()
"""
"""A command that sends itself a signal at its n-th call to the system from where it can hear one."""


def counted(arguments: list[str], at: int, signum: int) -> tuple[int, str, int]:
    """Stop a command at a call; return its exit code, what it said as errors, and its calls if ``at`` is 0."""
    done = subprocess.run(
        [sys.executable, "-c", COUNTED, str(at), str(int(signum)), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr, done.stdout.count("|")


def charges(folder: Path) -> int:
    path = folder / "people.ledger"
    if not path.exists():
        return 0
    with Ledger.open(path) as ledger:
        return len(ledger.charges)


@pytest.mark.long
@pytest.mark.skipif(os.name == "nt", reason="signals of a POSIX system")
@pytest.mark.parametrize(
    ("command", "signum"),
    [("apply", signal.SIGINT), ("check", signal.SIGINT), ("apply", signal.SIGTERM)],
)
def test_a_command_stopped_at_any_moment_says_one_line(
    tmp_path: Path, command: str, signum: int
) -> None:
    """Moments are calls to the system, counted from where its handlers are in force: no clock decides."""
    start, draw = tmp_path / "start", np.random.default_rng([14, signum, len(command)])
    start.mkdir()
    file = begun(spec(start))
    for _ in range(2):  # the first makes what later ones find: outputs, compiled modules
        code, _, calls = counted([command, str(file)], 0, signum)
        assert code == 0
    for at in draw.integers(1, calls * 9 // 10, 3):
        folder = tmp_path / str(at)
        shutil.copytree(start, folder)
        code, said, _ = counted([command, str(folder / file.name)], int(at), signum)
        assert (code, said.count("\n")) == (128 + signum, 1), said
        assert said.startswith("interrupted; " if signum == signal.SIGINT else "terminated; ")
        assert ("nothing was charged" in said) == (charges(folder) == charges(start)), said


PATCHED = """
import os, signal, sys
import opendp_sim.dsl.run.execute as execute
usual = execute.released
def run(*given):
    os.kill(os.getpid(), signal.SIGINT)
    return usual(*given)
execute.released = run
from opendp_sim.cli import main
main()
"""


def test_it_says_what_was_charged(tmp_path: Path) -> None:
    file = spec(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", PATCHED, "apply", str(begun(file))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 130
    said = done.stderr.splitlines()
    assert said == [
        f"interrupted; entry 1 of {tmp_path / 'people.ledger'} charges rho 0.4, and stands"
    ]
    assert charges(tmp_path) == 1
    assert not list((tmp_path / "out").glob("sketch*"))


ENDED = """
import atexit, os, signal, sys
from opendp_sim._entry import main
atexit.register(os.kill, os.getpid(), signal.{signum})
sys.argv[1:] = ["--version"]
main()
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of a POSIX system")
@pytest.mark.parametrize("signum", ["SIGINT", "SIGTERM"])
def test_a_command_that_has_ended_keeps_its_exit_code(signum: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDED.format(signum=signum)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


LOST = """
import os, signal
import opendp_sim.cli.spec as spec
class Drops:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000): pass
def check(spec, param=None, json_=False):
    Drops()
    import time
    time.sleep(600)
spec.plan_file = check
from opendp_sim.cli import main
main()
"""


def test_an_interrupt_that_a_destructor_drops_is_sent_again(tmp_path: Path) -> None:
    file = spec(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", LOST, "check", str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 130
    assert done.stderr == "interrupted; nothing was charged\n"


WHILE_IMPORTED = """
import os, signal, sys
class Stops:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.{signum})
            for _ in range(1000): pass
            os.write(2, b"went on")
sys.meta_path.insert(0, Stops())
from opendp_sim._entry import main
main()
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of a POSIX system")
@pytest.mark.parametrize(
    ("signum", "code", "word"), [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "terminated")]
)
def test_it_says_so_while_the_command_line_is_imported(signum: str, code: int, word: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WHILE_IMPORTED.format(signum=signum)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, f"{word}; nothing was charged\n")


def test_the_script_starts_with_the_light_module() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    assert project["project"]["scripts"]["opendp-sim"] == "opendp_sim._entry:main"
    said = subprocess.run(
        [sys.executable, "-c", "import sys, opendp_sim._entry; print('typer' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "False\n"


def _closed(*arguments: object, lines: int) -> tuple[int, str]:
    """Run a command whose standard output is closed after some lines; return code and errors."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for _ in range(lines):
        process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    said = process.stderr.read()
    process.stderr.close()
    return process.wait(timeout=60), said


@pytest.mark.long
@pytest.mark.skipif(os.name == "nt", reason="pipes of a POSIX system")
def test_a_closed_pipe_ends_a_command_as_a_shell_expects(tmp_path: Path) -> None:
    """Quietly with 141; where a charge was made, the last line names it."""
    assert _closed("ops", lines=0) == (141, "")
    _closed_after_its_charge(tmp_path)


@pytest.mark.long
@pytest.mark.skipif(os.name == "nt", reason="pipes of a POSIX system")
def test_so_do_help_and_what_is_told_to_programs(tmp_path: Path) -> None:
    assert _closed("--help", lines=0) == (141, "")
    _closed_after_its_charge(tmp_path, "--json")


def _closed_after_its_charge(tmp_path: Path, *more: str) -> None:
    """All is written before a word is said."""
    code, said = _closed("apply", begun(spec(tmp_path)), *more, lines=0)
    assert code == 141
    assert charges(tmp_path) == 1
    assert said.startswith("standard output was closed; entry ")
    assert said.endswith(f", and stands; wrote {tmp_path / 'out' / 'sketch.npz'}\n")
    assert (tmp_path / "out" / "sketch.npz.certificate.json").exists()


def _as_in_a_terminal() -> None:
    """What was started by ``nohup`` has the signal ignored, and so have its children."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="terminals of a POSIX system")
def test_a_closed_terminal_ends_a_command_like_a_polite_kill(tmp_path: Path) -> None:
    file = spec(tmp_path)
    code = PATCHED.replace("SIGINT", "SIGHUP")
    done = subprocess.run(
        [sys.executable, "-c", code, "apply", str(begun(file))],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=_as_in_a_terminal,
    )
    assert done.returncode == 129
    assert done.stderr.startswith("hung up; entry ")
    assert charges(tmp_path) == 1
    before = MAIN.replace("main()", "import os, signal; os.kill(os.getpid(), signal.SIGHUP)")
    early = subprocess.run(
        [
            sys.executable,
            "-c",
            before.replace(
                "import main;",
                "import main, SIGNALS, _end; "
                "import signal; [signal.signal(s, _end) for s in SIGNALS];",
            ),
        ],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=_as_in_a_terminal,
    )
    assert (early.returncode, early.stderr) == (129, "hung up; nothing was charged\n")


def test_a_second_command_of_a_process_is_stopped_too_and_says_what_it_charged_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before, the handler of the first command raised in the second one, where nobody caught it."""
    said = []
    monkeypatch.setattr(_stop, "_end", lambda: said.append(_stop._Process.charged))
    for name, value in (("seen", 0), ("leaving", False), ("inside", False)):
        monkeypatch.setattr(_stop._Process, name, value)
    with _stop.stoppable():
        _stop.note_charge("entry 1 charges everything")
    with _stop.stoppable():
        raise _stop.Interrupted
    assert said == [""]


@pytest.mark.parametrize("inside", [True, False])
def test_a_signal_within_the_hook_of_dropped_exceptions_is_sent_again(monkeypatch, inside):
    """What the hook raised was printed as an error of ours, above the one true line (1 of 500 runs)."""
    sent: list[int] = []

    def again(signals: list[int]) -> None:
        sent.extend(signals)
        if inside and len(sent) == 1:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(_stop, "send_again", again)
    monkeypatch.setattr(_stop._Process, "seen", 0)
    usual = signal.signal(signal.SIGTERM, _stop._stop)
    try:
        if inside:
            _stop._lost(print, SimpleNamespace(exc_type=_stop.Interrupted))
        else:
            with pytest.raises(_stop.Interrupted):
                signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, usual)
    assert sent == ([signal.SIGINT, signal.SIGTERM] if inside else [])


@pytest.mark.parametrize(
    "error", [ValueError("of a record"), SpecError("OS304", "x", expected="a", got="b", hint="c")]
)
@pytest.mark.parametrize("as_json", [False, True])
def test_an_error_after_a_charge_names_the_charge(capsys, monkeypatch, error, as_json) -> None:
    for name in ("charged", "written"):
        monkeypatch.setattr(_stop._Process, name, "of an earlier command")
    charged = "entry 1 of x.ledger charges rho 0.4, and stands"
    with pytest.raises(typer.Exit), handled(as_json_text=as_json):  # noqa: PT012
        _stop.note_charge(charged)
        raise error
    out, said = capsys.readouterr()
    if as_json and isinstance(error, SpecError):
        assert json.loads(out)["done"] == charged
    else:
        assert f"note: {charged}\n" in said
