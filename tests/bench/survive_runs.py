"""Runs that are killed, or whose disk fails, at file calls: released uncharged, charged twice, unfinished?

Needs a C compiler: the calls are counted, and one of them is stopped or failed, by a preloaded library
(``_file_calls.c``), so that SQLite's own calls are among them.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import opendp.prelude as dp

from opendp_sim.accounting.certificate import digest_of, read_certificate
from opendp_sim.accounting.ledger import Ledger
from opendp_sim.core.errors import SimError
from opendp_sim.dsl import apply, plan_file
from tests._small import write_small
from tests.bench._results import parser, table, write_section

MODES = {1: "SIGKILL", 2: "EIO", 3: "ENOSPC", 4: "short write"}
SHIM = Path(__file__).with_name("_file_calls.c")
FILES = {
    "density.csv",
    "release.npz",
    "density.csv.certificate.json",
    "release.npz.certificate.json",
}


def moved(plan, folder):
    return replace(plan, program=replace(plan.program, folder=str(folder)), path=None)


def in_child(plan, at: int, mode: int, out: Path) -> str:
    """Run the plan in a fork that stops at its at-th call; return how it ended."""
    child = os.fork()
    if child == 0:
        said = "ended"
        shim = ctypes.CDLL(None)
        try:
            shim.arm(ctypes.c_long(at), mode)
            apply(plan)
        except SimError as error:
            said = error.code
        except BaseException as error:  # noqa: BLE001 - a fault to report
            said = f"raw {type(error).__name__}"
        shim.calls.restype = ctypes.c_long
        count = shim.calls()
        shim.arm(ctypes.c_long(-1), 0)
        out.write_text(f"{said} {count}")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "killed 0"
    return out.read_text()


def charges(folder: Path) -> int:
    if not (folder / "points.ledger").exists():
        return 0
    with Ledger.open(folder / "points.ledger") as ledger:
        return len(ledger.charges)


def pairs_agree(folder: Path) -> bool:
    return all(
        digest_of(path.with_name(read_certificate(path)[0].file.name))
        == read_certificate(path)[0].file.sha256
        for path in (folder / "out").glob("*.certificate.json")
    )


def one(plan, genuine: Path, at: int, mode: int, second: int | None, found: Counter) -> None:
    """Stop a run, perhaps stop what goes on from it, then run to the end and look at what is there."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        shutil.copytree(genuine, folder)
        here, out = moved(plan, folder), Path(name) / "said"
        runs, before = 0, 0
        for call, how in [(at, mode)] + ([(second, 1)] if second else []):
            said = in_child(here, call, how, out).split(" ")[0]
            found[f"{MODES[how]}: {said}"] += 1
            runs += 1
            charged = charges(folder)
            released = {p.name for p in (folder / "out").glob("*") if not p.name.startswith(".")} if (
                folder / "out").exists() else set()  # fmt: skip
            found["released uncharged"] += bool(released) and charged == 0
            found["charged more than once a run"] += charged > runs
            found["a pair that disagrees"] += not pairs_agree(folder)
            found["internal or raw"] += said.startswith(("raw", "OS9"))
            before = charged
        done = apply(here)
        found["finished without a new charge"] += done.resumed is not None
        found["charged twice"] += charges(folder) != before + (done.resumed is None)
        found["not complete in the end"] += {p.name for p in (folder / "out").iterdir()} != FILES
        found["a pair that disagrees"] += not pairs_agree(folder)
        found["folders left"] += len(list(folder.glob(".opendp_sim-*")))
        found["stops"] += runs


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, default=300.0)
    options.add_argument("--seed", type=int, default=1)
    args = options.parse_args()
    if "file_calls" not in os.environ.get("LD_PRELOAD", ""):
        with tempfile.TemporaryDirectory() as folder:
            built = Path(folder) / "file_calls.so"
            subprocess.run(
                ["cc", "-shared", "-fPIC", "-o", str(built), str(SHIM), "-ldl"], check=True
            )
            env = {**os.environ, "LD_PRELOAD": str(built)}
            raise SystemExit(subprocess.run([sys.executable, "-m", "tests.bench.survive_runs", *sys.argv[1:]],
                                            env=env, check=False).returncode)  # fmt: skip
    dp.enable_features("contrib")
    found: Counter = Counter()
    pick = random.Random(args.seed)  # noqa: S311 - which call
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        genuine = Path(name) / "genuine"
        genuine.mkdir()
        spec = write_small(genuine, ("repetitions: 100", "repetitions: 4"), ("l1: 100, l2: 10", "l1: 4, l2: 2"),
                           ("epsilon: 3.0, delta: 1.0e-5", "epsilon: 300.0, delta: 1.0e-5"))  # fmt: skip
        plan = plan_file(spec)
        trial = Path(name) / "trial"
        shutil.copytree(genuine, trial)
        calls = int(in_child(moved(plan, trial), 10**9, 0, Path(name) / "said").split()[1])
        found["file calls of a run"] = calls
        while time.monotonic() - begun < args.seconds:
            second = pick.randint(1, calls) if pick.random() < 0.3 else None
            one(plan, genuine, pick.randint(1, calls), pick.choice((1, 1, 2, 3, 4)), second, found)
    text = table(["what", "number"], [[what, number] for what, number in sorted(found.items())])
    text += (
        "\n\nA run of a small spec (a release, answers, two certificates, a ledger) is stopped at a file call drawn at random "
        "among all that it makes, SQLite's included; in a third of the cases what goes on from it is killed too; then it is run "
        "to the end. `SIGKILL: ended` and the like are calls that a shorter run did not reach, or faults that were met by "
        f"trying again. {time.monotonic() - begun:.0f} s."
    )
    print(text)
    if args.write:
        write_section(
            "Survival: runs",
            text,
            f"python -m tests.bench.survive_runs --seconds {args.seconds:.0f} --write",
        )


if __name__ == "__main__":
    main()
