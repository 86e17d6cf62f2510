"""Commands x encodings x standard streams that are full or closed: what was done is what is said.

Text comes after the deed: the run is charged and its files are complete. So no character, no full disk
and no reader that is gone may make it look undone, or somebody runs it, and pays, once more.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.audit import Effort, audit
from opendp_sim.cli import COMMANDS, audit as command
from tests._cli import begun
from tests._forks import Ended, forked, warm

pytestmark = pytest.mark.skipif(
    not (hasattr(os, "fork") and Path("/dev/full").exists()),
    reason="forks, and a device that is full",
)

SPEC = """
spec: opendp_sim/1
name: Łódź → 東京
data:
  люди:
    source: {csv: люди.csv}
    ledger: {file: люди.ledger, limit: {rho: 100.0}}
    columns:
      x: {dtype: float64, bounds: [-1, 1]}
privacy:
  unit: {add_remove: 1, of: row}
  measure: zcdp
  budget: {rho: 0.1}
flow:
  строки:
    from: люди
    steps:
      - select: {features: [x]}
      - quantize: {bits: 8}
      - fourier_sketch: {frequencies: 8, kernel: {gaussian: {bandwidth: 1.0}}, seed: 1}
  шум:
    from: строки
    release: {noise: gaussian, scale: solve, spend: 100%}
outputs:
  выпуск: {from: шум, save: выпуск.npz}
  плотность:
    from: шум
    post: [density: {}]
    queries: {csv: люди2.csv}
    save: плотность.csv
"""
SESSION = """
spec: opendp_sim/1
name: Łódź
data:
  люди:
    source: {csv: люди3.csv}
    ledger: {file: люди.ledger, limit: {rho: 100.0}}
    columns:
      x: {dtype: "array[f64, 2]", bounds: [-1, 1]}
      kind: {dtype: category, keys: [ночь, день]}
privacy:
  unit: {add_remove: 1, of: row}
  measure: zcdp
  budget: {rho: 0.2}
flow:
  строки:
    from: люди
    steps:
      - select: {features: x, label: kind}
      - quantize: {bits: 8}
  соседи:
    from: строки
    release: {mechanism: {ind_knn: {queries: 50, size: 60, threshold: 0.5, centre: false}}, spend: 100%}
outputs:
  служба: {from: соседи, serve: session}
"""
PERIODS = (
    SPEC.partition("outputs:")[0]
    .replace("csv: люди.csv", "memory: люди")
    .replace("люди.ledger", "поток.ledger")
    + "outputs:\n  выпуск: {from: шум, save: ряд.npz}\n"
)
MODULE = """
import opendp.prelude as dp

dp.enable_features("contrib")


def сумма():
    space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    return dp.m.make_laplace(*space, 2.0)
"""


def editor() -> str:
    """What an editor says about a spec whose names no ASCII text has."""
    opened = {"uri": "file:///спец.yaml", "languageId": "yaml", "version": 1}
    text = SPEC.replace("quantize", "quantise")
    said = [
        {"id": 1, "method": "initialize", "params": {"processId": None, "capabilities": {}}},
        {"method": "initialized", "params": {}},
        {"method": "textDocument/didOpen", "params": {"textDocument": opened | {"text": text}}},
        {"id": 2, "method": "shutdown", "params": None},
        {"method": "exit", "params": None},
    ]
    bodies = [json.dumps({"jsonrpc": "2.0"} | each) for each in said]
    return "".join(f"Content-Length: {len(body)}\r\n\r\n{body}" for body in bodies)


LINE = '{"query": [0.1, 0.2], "id": "вопрос"}\n'

CALLS: dict[str, tuple[str, ...]] = {
    "check": ("check", "спец.yaml"),
    "types": ("types", "спец.yaml"),
    "plan": ("plan", "-v", "спец.yaml"),
    "plan -o": ("plan", "спец.yaml", "-o", "план.json"),
    "apply": ("apply", "спец.yaml", "-v"),
    "apply --json": ("apply", "спец.yaml", "--json"),
    "answer": ("answer", "выпуск.npz", "--post", "density", "--queries", "люди2.csv"),
    "answer -o": (
        "answer",
        "выпуск.npz",
        "--post",
        "density",
        "--queries",
        "люди2.csv",
        "-o",
        "ф.csv",
    ),
    "verify": ("verify", "выпуск.npz.certificate.json"),
    "report": ("report", "выпуск.npz.certificate.json"),
    "ledger show": ("ledger", "show", "люди.ledger"),
    "ledger verify": ("ledger", "verify", "люди.ledger"),
    "explain": ("explain", "шум", "--spec", "спец.yaml"),
    "session": ("session", "сессия.yaml"),
    "stream new": ("stream", "new", "ряд.yaml", "--periods", "500", "--into", "ряд"),
    "stream": ("stream", "add", "ряд", "люди.csv"),
    "stream status": ("stream", "status", "ряд"),
    "recommend": ("recommend", "top", "--size", "50"),
    "ops": ("ops",),
    "schema": ("schema",),
    "stubs": ("stubs",),
    "init": ("init", "новый.yaml", "--data", "люди.csv"),
    "doctor": ("doctor", "спец.yaml", "--private-look"),
    "engine": ("engine", "check", "local"),
    "audit": ("audit", "проба:сумма"),
    "audit --json": ("audit", "проба:сумма", "--json"),
    "audit --format sarif": ("audit", "проба:сумма", "--format", "sarif"),
    "plot": ("plot", "люди.ledger", "-o", "рис.svg"),
    "lsp": ("lsp",),
    "--help": ("--help",),
    "--version": ("--version",),
}
"""A call of every command; those after ``apply`` are about its files."""
EXTRAS = {"plot": "matplotlib", "lsp": "pygls"}
CHARGES = {"apply", "apply --json", "session"}
WRITES = {
    "plan -o": "план.json",
    "apply": "плотность.csv",
    "apply --json": "плотность.csv",
    "answer -o": "ф.csv",
    "report": "выпуск.npz.certificate.json.html",
    "init": "новый.yaml",
    "plot": "рис.svg",
    "session": "служба.session",
}
BESIDE = re.compile(r"warning: Glyph|\w+, \d+ s$|\[1/1\] проба:сумма$")
"""What commands say of their work on standard error: a font's letters, an audit's objects."""
AFTER = {"plan -o"}
"""Commands that print first and write then: what they could not print they did not do."""


def encoded(encoding: str) -> None:
    """Print in an encoding that lacks most names, as ``PYTHONIOENCODING`` makes it."""
    sys.stdin = os.fdopen(0, "r", encoding=encoding, closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding=encoding, closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding=encoding, errors="backslashreplace", closefd=False)


def full(*numbers: int) -> None:
    """Send streams to a device without room."""
    for number in numbers:
        os.dup2(os.open("/dev/full", os.O_WRONLY), number)
    encoded("utf-8")


def closed() -> None:
    """Send standard output to a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)
    encoded("utf-8")


STREAMS: dict[str, tuple[Callable[[], None], int]] = {
    "cp1252": (partial(encoded, "cp1252"), 0),
    "ascii": (partial(encoded, "ascii"), 0),
    "full": (partial(full, 1), 74),
    "closed": (closed, 141),
    "no errors": (partial(full, 2), 0),
}


SHORT = replace(
    Effort.of("quick"), seconds=0.2, trace_seconds=0.2, stability_seconds=0.1, total=0.4
)


def prepared(call: str, streams: str) -> None:
    """Give a command its streams, and an audit less time."""
    STREAMS[streams][0]()
    if call.startswith("audit"):
        command.audit = lambda obj, distance, _budget, **more: audit(obj, distance, SHORT, **more)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the commands are about, and one run of it."""
    folder = tmp_path_factory.mktemp("имя")
    rows = np.random.default_rng(1).uniform(-1, 1, (60, 2))
    lines = [f"{x:.4f},{y:.4f},{'ночь' if x < y else 'день'}" for x, y in rows]
    (folder / "люди.csv").write_text("x\n" + "\n".join(f"{x:.4f}" for x, _ in rows), "utf-8")
    (folder / "люди2.csv").write_text("x\n0.1\n0.2\n", "utf-8")
    (folder / "люди3.csv").write_text("\n".join(["x_0,x_1,kind", *lines]), "utf-8")
    (folder / "спец.yaml").write_text(SPEC, "utf-8")
    (folder / "проба.py").write_text(MODULE, "utf-8")
    (folder / "сессия.yaml").write_text(SESSION, "utf-8")
    warm()
    (folder / "ряд.yaml").write_text(PERIODS, "utf-8")
    begun(folder / "спец.yaml")
    begun(folder / "ряд.yaml")
    assert forked(CALLS["stream new"], folder).code == 0
    assert forked(("apply", "спец.yaml"), folder).code == 0
    return folder


def charges(folder: Path) -> int:
    with Ledger.open(folder / "люди.ledger") as ledger:
        return len(ledger.charges)


def done(place: Path, call: str, streams: str) -> Ended:
    """Run a command with such streams; check what it did."""
    for name in {"новый.yaml", "рис.svg", "служба.session", WRITES.get(call, "новый.yaml")}:
        for file in place.glob(f"{name}*"):
            if file.suffix != ".json" or name == "план.json":
                file.unlink()
    before = charges(place)
    lines = {"session": LINE, "lsp": editor()}.get(call, "")
    ended = forked(CALLS[call], place, lines, before=partial(prepared, call, streams))
    assert charges(place) == before + (call in CHARGES), ended
    failed = STREAMS[streams][1] and call in AFTER
    assert call not in WRITES or (place / WRITES[call]).exists() is not failed
    return ended


FAST = {
    *(("apply", streams) for streams in STREAMS),
    *(
        ("--help", "full"),
        ("lsp", "cp1252"),
        ("lsp", "closed"),
        ("plot", "full"),
        ("audit", "ascii"),
        ("plan -o", "full"),
        ("session", "cp1252"),
        ("session", "full"),
        ("stream", "ascii"),
        ("stream", "full"),
    ),
}
"""The suite's part: what charges, and something of the rest."""
CASES = [
    pytest.param(call, streams, marks=() if (call, streams) in FAST else pytest.mark.long)
    for call in CALLS
    for streams in STREAMS
]


@pytest.mark.few(2)
@pytest.mark.parametrize(("call", "streams"), CASES)
def test_a_command_says_what_it_did_wherever_it_prints(
    place: Path, call: str, streams: str
) -> None:
    pytest.importorskip(EXTRAS.get(call, "sys"))
    ended = done(place, call, streams)
    assert not ended.sick, ended
    assert ended.code == STREAMS[streams][1], ended
    if STREAMS[streams][1] == 74:
        opened, _, last = ended.complained.rpartition(" ends\n")  # a session's first screen
        said = [line for line in last.splitlines() if not BESIDE.match(line)]
        assert len(said) == 1
        assert said[0].startswith("standard output takes no more; ")
        assert opened.startswith("open ") == (call == "session")
    if STREAMS[streams][1] and call in CHARGES:
        assert "stands" in ended.complained
    if STREAMS[streams][1] and call in WRITES and call not in AFTER | {"session"}:
        assert "wrote " in ended.complained
    if call == "session" and not STREAMS[streams][1]:
        assert json.loads(ended.said)["id"] == "вопрос"
    if call == "lsp" and not STREAMS[streams][1]:
        assert ended.said.count("Content-Length: ") == 3
        assert "did you mean `quantize`?" in ended.said
    if call == "audit --json" and not STREAMS[streams][1]:
        assert json.loads(ended.said)["verdict"] == "not refuted"
    if call == "apply --json" and not STREAMS[streams][1]:
        assert json.loads(ended.said)["files"] == {
            "выпуск": "выпуск.npz",
            "плотность": "плотность.csv",
        }


SERVERS = {"serve", "studio"}
"""Commands that answer until they are stopped: a run of them is a client's test, in their rooms."""


def test_every_command_is_tried() -> None:
    assert {words[0] for words in CALLS.values()} == set(COMMANDS) - SERVERS | {
        "--help",
        "--version",
    }


OLD = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""A system whose file names are ASCII, for Python."""


def asked(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    code = "from opendp_sim._entry import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=place,
        env=os.environ | OLD,
        check=False,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
    )


def test_names_that_the_system_cannot_write_are_refused_before_the_charge(place: Path) -> None:
    """It was "leaves the folder", or "no such file"."""
    before = charges(place)
    refused = asked(place, "apply", "спец.yaml")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.count("error[OS304]") == 5, refused.stderr
    assert "PYTHONUTF8=1" in refused.stderr
    assert charges(place) == before
