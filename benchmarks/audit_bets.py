"""How many of an audit's runs are bet on: sound programs at default settings, so that nothing ends early.

    python benchmarks/audit_bets.py --only batch_clip,k_ary

Runs are counted where they are made: along tapes, in rounds of two sides, in weighed rounds. A run is bet on
where it belongs to a round whose stake is not zero.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import opendp.prelude as dp  # noqa: E402

from opendp_sim.audit import audit  # noqa: E402
from opendp_sim.audit.instrument import tape  # noqa: E402
from opendp_sim.audit.statistics import betting, sampling, score_bets as lean  # noqa: E402
from opendp_sim.audit.trace import importance_weights as weighed, output_sample as glance  # noqa: E402
from tests.audit.opaque import PAIRS  # noqa: E402

USUAL = "batch_clip,short_delta,k_ary,cumulative,argmax_both_ways"


def counted(runs: Counter[str]) -> None:
    """Count runs and bets from now on."""
    both, run, add, more = (
        sampling.both_sides,
        tape.Tape.run,
        betting.Wealth.add,
        weighed.Weighed.more,
    )
    stakes = weighed._stakes

    def both_sides(one: Any, pair: Any, count: int, rounds: Any = None) -> Any:
        runs["rounds"] += 2 * count
        return both(one, pair, count, rounds)

    def tape_run(self: Any, *args: Any, **options: Any) -> Any:
        runs["tapes"] += 1
        return run(self, *args, **options)

    def wealth_add(self: Any, changes: Any, goal: float) -> bool:
        runs["bet on"] += 2 * changes.shape[1] * bool(changes.any())
        return add(self, changes, goal)

    def weighed_more(self: Any, function: Any, pair: Any, count: int, common: Any) -> Any:
        runs["weighed"] += 4 * count
        runs["bet on"] += 4 * count * staked.pop("next", 0)
        return more(self, function, pair, count, common)

    staked: dict[str, int] = {}

    def noted(event: Any) -> Any:
        found = stakes(event)
        staked["next"] = int(bool(found.any()))
        return found

    for module in (sampling, lean, glance):
        module.both_sides = both_sides  # type: ignore[attr-defined]
    tape.Tape.run = tape_run  # type: ignore[method-assign]
    betting.Wealth.add = wealth_add  # type: ignore[method-assign]
    weighed.Weighed.more = weighed_more  # type: ignore[method-assign]
    weighed._stakes = noted


def main() -> None:
    """Print the shares, program by program."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--only", default=USUAL)
    ask.add_argument("--seed", type=int, default=0)
    asked = ask.parse_args()
    dp.enable_features("contrib", "honest-but-curious", "idealized-numerics")
    runs: Counter[str] = Counter()
    counted(runs)
    for name in asked.only.split(","):
        pair = next(pair for pair in PAIRS if pair.name == name)
        runs.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report = audit(pair.make(False), pair.d_in, seed=asked.seed)
        total = runs["tapes"] + runs["rounds"] + runs["weighed"]
        print(
            f"{name:24} {report.verdict}: {runs['bet on'] / max(total, 1):.0%} of {total:,} runs bet on; "
            f"along tapes {runs['tapes'] / max(total, 1):.0%}, weighed {runs['weighed'] / max(total, 1):.0%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
