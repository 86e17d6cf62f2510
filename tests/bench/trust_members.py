"""Generated members of each mechanism's domain, OpenDP's own included, through native chains.

Every mechanism of the catalogue is built as OpenDP's object and given datasets of its input domain, corners first
(infinities, ends of int64, equal values of other types). An exception is a failure. Datasets are counted as far as
the stated CPU seconds of each mechanism reach, so slow ones (a private neighbour search) see fewer than cheap ones.

python tests/bench/trust_members.py --datasets 100000 --write
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402

import opendp_sim.prelude  # noqa: E402, F401
from opendp_sim.core import dp  # noqa: E402
from opendp_sim.core.claims import Post  # noqa: E402
from opendp_sim.core.constructors import bound  # noqa: E402
from tests.bench._members import sampler  # noqa: E402
from tests.bench._results import parser, table, write_section  # noqa: E402
from tests.cases import cases  # noqa: E402

_POOLS: dict[str, list[Any]] = {}


def campaign(case: Any, datasets: int, seconds: float) -> tuple[int, dict[str, int]]:
    """Return how many datasets were tried in the time, and what was raised how often."""
    draw, built = sampler(case.domain), bound(case.mechanism, case.domain, case.metric)
    rng = np.random.default_rng(13)
    tried, raised, end = 0, {}, time.process_time() + seconds
    while tried < datasets and time.process_time() < end:
        data = draw(rng) if draw is not None else _drawn(case, rng)
        tried += 1
        try:
            built(data)
        except Exception as error:  # noqa: BLE001 - counted
            raised[str(error)[:60]] = raised.get(str(error)[:60], 0) + 1
    return tried, raised


def _drawn(case: Any, rng: np.random.Generator) -> Any:
    """Return one of the datasets that the case's own strategy draws, for domains of its own."""
    if case.mechanism.key not in _POOLS:
        found: list[Any] = []

        @given(case.drawn())
        @settings(max_examples=200, phases=[Phase.generate], deadline=None, database=None,
                  suppress_health_check=list(HealthCheck))  # fmt: skip
        def keep(pair: Any) -> None:
            found.append(pair[0])

        keep()
        _POOLS[case.mechanism.key] = found
    pool = _POOLS[case.mechanism.key]
    return pool[rng.integers(0, len(pool))]


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--datasets", type=int, default=100_000, help="of each mechanism")
    options.add_argument(
        "--seconds", type=float, default=1e9, help="CPU seconds at most, of each mechanism"
    )
    args = options.parse_args()
    dp.enable_features("contrib")
    warnings.simplefilter("ignore")
    rows, total, bad = [], 0, 0
    for key, case in sorted(cases().items()):
        if isinstance(case.claim(), Post):
            continue
        tried, raised = campaign(case, args.datasets, args.seconds)
        total, bad = total + tried, bad + sum(raised.values())
        rows.append([key, tried, sum(raised.values()), "; ".join(raised) or "-"])
        print(rows[-1], flush=True)
    text = table(["mechanism", "datasets", "exceptions", "which"], rows)
    text += (
        f"\n\n{total:,} datasets, {bad} exceptions; shared over the mechanisms as the table says."
    )
    print(text)
    if args.write:
        command = f"python tests/bench/trust_members.py --datasets {args.datasets}"
        if args.seconds < 1e9:
            command += f" --seconds {args.seconds:g}"
        write_section("Trust: members of every domain", text, command + " --write")


if __name__ == "__main__":
    main()
