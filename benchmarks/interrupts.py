"""Fresh processes, stopped at drawn moments: how they end, and what they say of the ledger.

``python -m benchmarks.interrupts --kills 360`` spreads SIGINT and SIGTERM over the README's chain (a loop of
building, maps, releases and compositions, in the main thread and in another), ``apply``, ``check``, ``plan``
and ``verify``. A process ends well with 130 (143 after SIGTERM), or with 0 when the signal came after its
end. Moments are counted from the first line of the script on. ``--write`` updates RESULTS.md.
"""

from __future__ import annotations

import argparse
import collections
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks._results import write_section
from opendp_sim.accounting.ledger.ledger import Ledger
from tests.cli.test_stop import SPEC

CHAIN = """
import signal, sys, threading
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
import numpy as np, opendp.prelude as dp
from opendp.extras.numpy import array2_domain
import opendp_sim.prelude as sim
dp.enable_features("contrib")
rows = np.random.default_rng(0).uniform(-1, 1, (200, 32))
family = {"p_stable_l2": {"width": 1.0}}
ended = threading.Event()
def loop():
    while not ended.is_set():
        space = array2_domain(num_columns=32, nan=False, T=float), dp.symmetric_distance()
        release = (space >> sim.then_quantize(bits=12, bounds=(-4.0, 4.0))
                   >> sim.then_jl_projection(dimension=16, seed=3)
                   >> sim.then_race_sketch(repetitions=64, buckets=128, family=family, seed=11)
                   >> dp.m.then_laplace(65.0))
        release.map(1)
        release(rows)
        dp.c.make_composition([release, release])(rows)
try:
    if sys.argv[1] == "thread":
        worker = threading.Thread(target=loop)
        worker.start()
    print("ready", flush=True)
    worker.join() if sys.argv[1] == "thread" else loop()
except KeyboardInterrupt:
    ended.set()
    sys.exit(130)
finally:
    ended.set()
"""
STARTED = "import os; from opendp_sim._entry import main; os.write(1, b'ready\\n'); main()"
"""The console script, which says when its first line runs: before it a signal has its default action."""


def ledger_charges(folder: Path) -> int:
    path = folder / "people.ledger"
    if not path.exists():
        return 0
    with Ledger.open(path) as ledger:
        return len(ledger.charges)


def chain(where: str, draw: np.random.Generator) -> str:
    """Stop a library user's loop; asked again if it goes on."""
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", CHAIN, where],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    signum = signal.SIGINT if draw.random() < 0.7 else signal.SIGTERM
    time.sleep(draw.uniform(0, 0.2))
    again, said = "", ""
    for _ in range(10):
        process.send_signal(signum)
        try:
            said = process.communicate(timeout=10)[1]
            break
        except subprocess.TimeoutExpired:
            again = ", asked again"
    if process.returncode == 128 + signum:
        return f"exit {process.returncode}{again}"
    return f"exit {process.returncode} after {signum}{again}, SAID {said[-400:]!r}"


def command(name: str, draw: np.random.Generator, folder: Path) -> str:
    """Stop a command, and compare what it says of the ledger with the ledger."""
    before = ledger_charges(folder)
    signum = signal.SIGINT if draw.random() < 0.7 else signal.SIGTERM
    process = started(name, folder)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(draw.uniform(0, 1.1) * LENGTH[name])
    process.send_signal(signum)
    said = process.communicate(timeout=60)[1]
    added = ledger_charges(folder) - before
    if process.returncode == 0 and not said:
        return "finished"
    true = ("nothing was charged" in said) == (added == 0) and said.count("\n") == 1
    well = true and process.returncode == 128 + signum
    return f"exit {process.returncode}, {'one true line' if well else 'SAID ' + repr(said[-200:])}"


def started(name: str, folder: Path) -> subprocess.Popen[str]:
    file = "out/sketch.npz.certificate.json" if name == "verify" else "spec.yaml"
    return subprocess.Popen(
        [sys.executable, "-c", STARTED, name, str(folder / file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


LENGTH: dict[str, float] = {}
KINDS = ("chain", "apply", "thread", "check", "chain", "plan", "apply", "verify")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--kills", type=int, default=360)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--write", action="store_true")
    given = options.parse_args()
    draw = np.random.default_rng(given.seed)
    # What a shell starts in the background ignores SIGINT, and so would all that is started from here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    found: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "spec.yaml").write_text(SPEC)
        rows = draw.uniform(-1, 1, (20_000, 2))
        np.savetxt(folder / "people.csv", rows, delimiter=",", header="x_0,x_1", comments="")
        for word in ("apply", "check", "plan", "verify"):
            process = started(word, folder)
            assert process.stdout is not None
            process.stdout.readline()
            start = time.monotonic()
            process.communicate()
            assert process.returncode == 0, word
            LENGTH[word] = time.monotonic() - start
        for turn in range(given.kills):
            what = KINDS[turn % len(KINDS)]
            end = command(what, draw, folder) if what in LENGTH else chain(what, draw)
            found[what][end] += 1
            print(turn, what, end, flush=True)
    lines = ["| what | how it ended | processes |", "|---|---|---|"]
    lines += [f"| {what} | {end} | {n} |" for what in found for end, n in found[what].most_common()]
    print("\n".join(lines))
    if given.write:
        write_section(
            "interrupts", "\n".join(lines), f"python -m benchmarks.interrupts --kills {given.kills}"
        )


if __name__ == "__main__":
    main()
