"""Generated members of each mechanism's domain, OpenDP's own included, through native chains.

Every mechanism of the catalogue is built as OpenDP's object and given datasets of its input domain, corners first
(infinities, ends of int64, equal values of other types). An exception is a failure.

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

from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402

import opendp_sim.prelude  # noqa: E402, F401
from opendp_sim.core import dp  # noqa: E402
from opendp_sim.core.claims import Post  # noqa: E402
from opendp_sim.core.constructors import bound  # noqa: E402
from opendp_sim.testing.members import members  # noqa: E402
from tests.bench._results import parser, table, write_section  # noqa: E402
from tests.cases import cases  # noqa: E402


def campaign(case: Any, datasets: int, seconds: float) -> tuple[int, dict[str, int]]:
    """Return how many datasets were tried in the time, and what was raised how often."""
    drawn, built = members(case.domain), bound(case.mechanism, case.domain, case.metric)
    if drawn is None:
        drawn = case.drawn().map(lambda pair: pair[0])
    tried, raised, end = 0, {}, time.monotonic() + seconds

    @given(drawn)
    @settings(
        max_examples=min(datasets, 25),
        phases=[Phase.generate],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def run(data: Any) -> None:
        nonlocal tried
        tried += 1
        try:
            built(data)
        except Exception as error:  # noqa: BLE001 - counted
            raised[str(error)[:60]] = raised.get(str(error)[:60], 0) + 1

    while tried < datasets and time.monotonic() < end:
        run()
    return tried, raised


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--datasets", type=int, default=100_000, help="of each mechanism")
    options.add_argument("--seconds", type=float, default=1e9, help="at most, of each mechanism")
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
    text += f"\n\n{total:,} datasets, {bad} exceptions."
    print(text)
    if args.write:
        command = f"python tests/bench/trust_members.py --datasets {args.datasets}"
        if args.seconds < 1e9:
            command += f" --seconds {args.seconds:g}"
        write_section("Trust: members of every domain", text, command + " --write")


if __name__ == "__main__":
    main()
