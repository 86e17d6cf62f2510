"""Fresh processes, stopped at drawn moments: how they end, and what they say of the ledger.

``python -m tests.bench.interrupts --kills 210`` spreads the kills over the README's chain (a loop of
building, maps, releases and compositions), ``apply``, ``check`` and ``session``. A process ends well with
130 (143 after SIGTERM), or with 0 when the signal came after its end. ``--write`` updates RESULTS.md.
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

from opendp_sim.accounting.ledger import Ledger
from tests.bench._results import write_section
from tests.cli.test_stop import MAIN, SPEC

CHAIN = """
import sys
import numpy as np, opendp.prelude as dp
from opendp.extras.numpy import array2_domain
import opendp_sim.prelude as sim
dp.enable_features("contrib")
rows = np.random.default_rng(0).uniform(-1, 1, (200, 32))
family = {"p_stable_l2": {"width": 1.0}}
print("ready", flush=True)
try:
    while True:
        space = array2_domain(num_columns=32, nan=False, T=float), dp.symmetric_distance()
        release = (space >> sim.then_quantize(bits=12, bounds=(-4.0, 4.0))
                   >> sim.then_jl_projection(dimension=16, seed=3)
                   >> sim.then_race_sketch(repetitions=64, buckets=128, family=family, seed=11)
                   >> dp.m.then_laplace(65.0))
        release.map(1)
        release(rows)
        dp.c.make_composition([release, release])(rows)
except KeyboardInterrupt:
    sys.exit(130)
"""


def ledger_charges(folder: Path) -> int:
    path = folder / "people.ledger"
    if not path.exists():
        return 0
    with Ledger.open(path) as ledger:
        return len(ledger.charges)


def chain(draw: np.random.Generator, _folder: Path) -> str:
    """Stop a library user's loop; asked again when a destructor dropped the interrupt."""
    process = subprocess.Popen([sys.executable, "-c", CHAIN], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(draw.uniform(0, 0.2))
    again = ""
    for _ in range(10):
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=10)
            break
        except subprocess.TimeoutExpired:
            again = ", asked again"
    return f"exit {process.returncode}{again}"


def command(name: str, draw: np.random.Generator, folder: Path) -> str:
    """Stop a command, and compare what it says of the ledger with the ledger."""
    before = ledger_charges(folder)
    signum = signal.SIGINT if draw.random() < 0.7 else signal.SIGTERM
    process = subprocess.Popen([sys.executable, "-c", MAIN, name, str(folder / "spec.yaml")],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip
    time.sleep(draw.uniform(0.15, 1.1) * LENGTH[name])
    process.send_signal(signum)
    said = process.communicate(timeout=60)[1]
    added = ledger_charges(folder) - before
    if process.returncode == 0:
        return "finished"
    true = ("nothing was charged" in said) == (added == 0) and said.count("\n") == 1
    return f"exit {process.returncode}, {'one true line' if true else 'SAID ' + repr(said[-200:])}"


LENGTH: dict[str, float] = {}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--kills", type=int, default=210)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--write", action="store_true")
    given = options.parse_args()
    draw = np.random.default_rng(given.seed)
    found: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "spec.yaml").write_text(SPEC)
        rows = draw.uniform(-1, 1, (20_000, 2))
        np.savetxt(folder / "people.csv", rows, delimiter=",", header="x_0,x_1", comments="")
        for word in ("apply", "check"):
            start = time.monotonic()
            subprocess.run([sys.executable, "-c", MAIN, word, str(folder / "spec.yaml")],
                           check=True, capture_output=True)  # fmt: skip
            LENGTH[word] = time.monotonic() - start
        for turn in range(given.kills):
            what = ("chain", "apply", "check")[turn % 3]
            end = chain(draw, folder) if what == "chain" else command(what, draw, folder)
            found[what][end] += 1
            print(turn, what, end, flush=True)
    lines = ["| what | how it ended | processes |", "|---|---|---|"]
    lines += [f"| {what} | {end} | {n} |" for what in found for end, n in found[what].most_common()]
    print("\n".join(lines))
    if given.write:
        write_section(
            "interrupts",
            "\n".join(lines),
            f"python -m tests.bench.interrupts --kills {given.kills}",
        )


if __name__ == "__main__":
    main()
