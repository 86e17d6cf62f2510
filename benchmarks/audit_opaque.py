"""Strangers' objects at default settings: ``audit(obj, d_in)`` and nothing else, broken and sound.

    python benchmarks/audit_opaque.py --seeds 3 --rows opaque.jsonl --write
    python benchmarks/audit_opaque.py --only clip_batch_gradient,observed_keys --broken
    python benchmarks/audit_opaque.py --corpus strangers --sample 5 --rows strangers.jsonl
    python benchmarks/audit_opaque.py --native 150 --rows native.jsonl
    python benchmarks/audit_opaque.py --excess 20

``--corpus`` names the programs: those of ``tests/audit/opaque``, the strangers' sets of ``tests/audit/corpus``,
or both; ``--sample 5`` takes every fifth of them, in an order that no name decides.
``--native`` audits that many sound objects of OpenDP's constructors, one seed after the other over all
of them, from number ``--skip`` on; ``--excess`` a count whose claim is 5 % too small, at so many seeds. Every audit is a line of ``--rows`` as soon as it has ended; the same command goes on where it
stopped. ``--clock 2`` halves the budgets of work. Rows name the engine, a hash of the whole auditor. ``--write`` puts the rows into the record that the scoreboard prints.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import opendp.prelude as dp  # noqa: E402

from benchmarks._audit_rows import engine_of, recorded, write_record  # noqa: E402
from opendp_sim.audit import audit  # noqa: E402
from opendp_sim.audit.work import clocked  # noqa: E402
from tests.audit.corpus import programs  # noqa: E402
from tests.audit.opaque import PAIRS  # noqa: E402
from tests.audit.opaque.kit import Pair  # noqa: E402
from tests.audit.twins.entries import collect  # noqa: E402

ENGINE = engine_of(ROOT, whole=True)


def one(name: str, make: Any, d_in: Any, seed: int, **options: Any) -> dict[str, Any]:
    """Audit once; a crash of the auditor is a row of its own kind."""
    begin, wall = time.process_time(), time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report = audit(make(), d_in, seed=seed, **options)
        verdict, layer = report.verdict, report.layer
        detail = report.evidence.detail if report.evidence else ""
    except Exception as error:  # noqa: BLE001
        verdict, layer, detail = "crash", type(error).__name__, str(error)[:200]
    return {
        "name": name,
        "seed": seed,
        "verdict": verdict,
        "layer": layer,
        "detail": detail[:160],
        "cpu": round(time.process_time() - begin, 2),
        "wall": round(time.perf_counter() - wall, 2),
        "engine": ENGINE,
    }


def main() -> None:
    """Run the campaign and print the table."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--seeds", type=int, default=1)
    ask.add_argument("--first-seed", type=int, default=0)
    ask.add_argument("--only", default="")
    ask.add_argument("--corpus", choices=("opaque", "strangers", "both"), default="opaque")
    ask.add_argument("--sample", type=int, default=1)
    ask.add_argument("--broken", action="store_true")
    ask.add_argument("--sound", action="store_true")
    ask.add_argument("--rows", default="")
    ask.add_argument("--native", type=int, default=0)
    ask.add_argument("--skip", type=int, default=0)
    ask.add_argument("--excess", type=int, default=0)
    ask.add_argument("--write", action="store_true")
    ask.add_argument("--clock", type=float, default=1.0)
    asked = ask.parse_args()
    with clocked(asked.clock):
        run(asked)


def run(asked: argparse.Namespace) -> None:
    """Audit what is asked for, and print."""
    dp.enable_features("contrib", "honest-but-curious", "idealized-numerics")
    done: list[dict[str, Any]] = []
    path = Path(asked.rows) if asked.rows else None
    if path is not None and path.exists():
        done = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    there = {(row["name"], row["seed"]) for row in done}
    for name, make, d_in, seed, options in _tasks(asked):
        if (name, seed) in there:
            continue
        row = one(name, make, d_in, seed, **options)
        done.append(row)
        if path is not None:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        mark = {"refuted": "x", "priced": "$", "not refuted": " ", "crash": "!"}[row["verdict"]]
        print(
            f"{seed} {mark} {name:34} {row['layer']:16} {row['cpu']:5.1f} s  {row['detail'][:70]}",
            flush=True,
        )
    if asked.excess:
        times = [row["cpu"] for row in done]
        caught = sum(row["verdict"] == "refuted" for row in done)
        print(
            f"{caught} of {len(done)} seeds; median {median(times):.1f}, longest {max(times):.1f} CPU s"
        )
        return
    if asked.native:
        accused = [row["name"] for row in done if row["verdict"] in ("refuted", "crash")]
        longest = max(row["cpu"] for row in done)
        print(f"{len(done)} audits, accused or crashed: {accused}; longest {longest:.1f} CPU s")
        return
    summary(done)
    if asked.write:
        record = recorded()
        record["opaque"] = _record(done)
        record.setdefault("engines", {})["opaque"] = "+".join(
            sorted({row.get("engine", "unknown")[:12] for row in done})
        )
        record.setdefault("dates", {})["opaque"] = datetime.now(UTC).strftime("%Y-%m-%d")
        write_record(record)


Task = tuple[str, Any, Any, int, dict[str, Any]]


def _tasks(asked: argparse.Namespace) -> Iterator[Task]:
    if asked.excess:
        return _excess(asked)
    return _natives(asked) if asked.native else _programs(asked)


def _excess(asked: argparse.Namespace) -> Iterator[Task]:
    """An opaque count with noise of scale 1 that claims epsilon 1 / 1.05."""
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    noise = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 1.0)

    def make() -> Any:
        return dp.m.make_user_measurement(
            *space, dp.max_divergence(), lambda rows: noise(len(rows)), lambda d: d / 1.05
        )

    for seed in range(asked.first_seed, asked.first_seed + asked.excess):
        yield "count, 5 % too small", make, 1, seed, {}


def _programs(asked: argparse.Namespace) -> Iterator[Task]:
    names = set(asked.only.split(",")) - {""}
    for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
        for broken in (True, False):
            if (asked.broken and not broken) or (asked.sound and broken):
                continue
            for pair in _asked_for(asked):
                if not names or pair.name in names:
                    name = f"{pair.name}/{'broken' if broken else 'sound'}"
                    yield name, partial(pair.make, broken), pair.d_in, seed, dict(pair.options)


def _asked_for(asked: argparse.Namespace) -> list[Pair]:
    """Return the programs asked for, in an order that is the same everywhere."""
    known = {"opaque": [*PAIRS], "strangers": [*programs()], "both": [*PAIRS, *programs()]}
    mixed = sorted(known[asked.corpus], key=lambda pair: zlib.crc32(pair.name.encode()))
    return mixed[:: asked.sample] if asked.sample > 1 else known[asked.corpus]


def _natives(asked: argparse.Namespace) -> Iterator[Task]:
    """OpenDP's sound objects, all of them before any a second time."""
    _, controls = collect(ROOT / "tests/audit/twins", "twins_opendp*.py")
    for number in range(asked.skip, asked.native):
        entry = controls[number % len(controls)]
        yield (
            entry.name,
            entry.make,
            entry.d_in,
            asked.first_seed + number // len(controls),
            dict(entry.options),
        )


def _record(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Sum up the rows by program: seeds, refuted, and the median of the CPU seconds."""
    out: dict[str, Any] = {}
    for kind in ("broken", "sound"):
        for pair in PAIRS:
            mine = [row for row in rows if row["name"] == f"{pair.name}/{kind}"]
            if mine:
                out[f"{kind}/{pair.name}"] = {
                    "seeds": len(mine),
                    "refuted": sum(row["verdict"] == "refuted" for row in mine),
                    "seconds_median": median(row["cpu"] for row in mine),
                    "seconds_max": max(row["cpu"] for row in mine),
                }
    return out


def summary(rows: list[dict[str, Any]]) -> None:
    """Print what was caught and what was accused, seed by seed."""
    for seed in sorted({row["seed"] for row in rows}):
        here = [row for row in rows if row["seed"] == seed]
        broken = [row for row in here if row["name"].endswith("/broken")]
        sound = [row for row in here if row["name"].endswith("/sound")]
        caught = [row for row in broken if row["verdict"] == "refuted"]
        alarms = [row["name"] for row in sound if row["verdict"] in ("refuted", "crash")]
        times = [row["cpu"] for row in caught] or [0.0]
        print(
            f"seed {seed}: caught {len(caught)} of {len(broken)}, median {median(times):.1f} CPU s, "
            f"largest {max(times):.1f}; alarms or crashes {len(alarms)} of {len(sound)} {alarms}; "
            f"longest audit {max((row['cpu'] for row in here), default=0):.1f} CPU s"
        )
        for word, verdict in (("priced", "priced"), ("missed", "not refuted")):
            names = [row["name"].rpartition("/")[0] for row in broken if row["verdict"] == verdict]
            print(f"  {word}: {', '.join(names)}")


if __name__ == "__main__":
    main()
