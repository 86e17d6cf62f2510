"""The opaque corpus at default settings: ``audit(obj, d_in)`` and nothing else, broken and sound.

    python tests/bench/audit_opaque.py --seeds 3
    python tests/bench/audit_opaque.py --only clip_batch_gradient,observed_keys --broken
    python tests/bench/audit_opaque.py --native 200

Every audit is a line of ``--rows`` as soon as it has ended; the same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from opendp_sim.audit import audit  # noqa: E402
from tests.audit.opaque import PAIRS  # noqa: E402


def one(name: str, make: Any, d_in: Any, seed: int) -> dict[str, Any]:
    """Audit once; a crash of the auditor is a row of its own kind."""
    begin, wall = time.process_time(), time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report = audit(make(), d_in, seed=seed)
        verdict, layer = report.verdict, report.layer
        detail = report.evidence.detail if report.evidence else ""
    except Exception as error:  # noqa: BLE001
        verdict, layer, detail = "crash", type(error).__name__, str(error)[:200]
    return {
        "name": name, "seed": seed, "verdict": verdict, "layer": layer, "detail": detail[:160],
        "cpu": round(time.process_time() - begin, 2), "wall": round(time.perf_counter() - wall, 2),
    }  # fmt: skip


def main() -> None:
    """Run the campaign and print the table."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--seeds", type=int, default=1)
    ask.add_argument("--first-seed", type=int, default=0)
    ask.add_argument("--only", default="")
    ask.add_argument("--broken", action="store_true")
    ask.add_argument("--sound", action="store_true")
    ask.add_argument("--rows", default="")
    asked = ask.parse_args()
    done: list[dict[str, Any]] = []
    path = Path(asked.rows) if asked.rows else None
    if path is not None and path.exists():
        done = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    there = {(row["name"], row["seed"]) for row in done}
    names = set(asked.only.split(",")) - {""}
    for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
        for broken in (True, False):
            if (asked.broken and not broken) or (asked.sound and broken):
                continue
            for pair in PAIRS:
                name = f"{pair.name}/{'broken' if broken else 'sound'}"
                if (names and pair.name not in names) or (name, seed) in there:
                    continue
                row = one(name, lambda p=pair, b=broken: p.make(b), pair.d_in, seed)
                done.append(row)
                if path is not None:
                    with path.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
                mark = {"refuted": "x", "not refuted": " ", "crash": "!"}[row["verdict"]]
                print(
                    f"{seed} {mark} {name:34} {row['layer']:16} {row['cpu']:5.1f} s  {row['detail'][:70]}",
                    flush=True,
                )
    summary(done)


def summary(rows: list[dict[str, Any]]) -> None:
    """Print what was caught and what was accused, seed by seed."""
    for seed in sorted({row["seed"] for row in rows}):
        here = [row for row in rows if row["seed"] == seed]
        broken = [row for row in here if row["name"].endswith("/broken")]
        sound = [row for row in here if row["name"].endswith("/sound")]
        caught = [row for row in broken if row["verdict"] == "refuted"]
        alarms = [row["name"] for row in sound if row["verdict"] != "not refuted"]
        times = [row["cpu"] for row in caught] or [0.0]
        print(
            f"seed {seed}: caught {len(caught)} of {len(broken)}, median {median(times):.1f} CPU s, "
            f"largest {max(times):.1f}; alarms or crashes {len(alarms)} of {len(sound)} {alarms}; "
            f"longest audit {max((row['cpu'] for row in here), default=0):.1f} CPU s"
        )
        missed = [row["name"].split("/")[0] for row in broken if row["verdict"] != "refuted"]
        print(f"  missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
