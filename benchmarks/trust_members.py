"""Generated members of each mechanism's domain, OpenDP's own included, through the mechanism.

Every mechanism of the catalogue is bound once and given datasets of its input domain, corners first (infinities, ends of
int64, equal values of other types). An exception is a failure. Each dataset goes through the function that OpenDP's
object calls back into, where all code of this package runs; every tenth goes through that object itself, native calls and
all. A service is also given a reference and asked a query or more, rows of its domain, for each tenth dataset.
Mechanisms take turns, and `--keep` goes on where a run before stopped.

python benchmarks/trust_members.py --datasets 100000 --write
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402

import opendp_sim.prelude  # noqa: E402, F401
from benchmarks._members import sampler  # noqa: E402
from benchmarks._results import parser, table, write_section  # noqa: E402
from opendp_sim.core import dp  # noqa: E402
from opendp_sim.core.bridge import build, whole_function  # noqa: E402
from opendp_sim.core.claims import Interactive, Post, Private  # noqa: E402
from opendp_sim.core.interrupts import held  # noqa: E402
from tests.cases import cases  # noqa: E402

_TURN, _NATIVE = 500, 10
"""Datasets that a mechanism takes in one turn, and of how many one goes through OpenDP's object."""
Run = Callable[[Any], Any]


class Campaign:
    """One mechanism, bound once, and what came of the datasets that it was given."""

    def __init__(self, key: str, case: Any) -> None:
        self.key, self.tried, self.native = key, 0, 0
        self.raised: dict[str, int] = {}
        self._draw = sampler(case.domain) or _pool(case)
        claim = case.mechanism.bind(case.domain, case.metric)
        self._asks = isinstance(claim, Interactive)
        self._plain = _plain(claim, case.domain)
        self._object = build(claim, case.mechanism.key, case.domain, case.metric)

    def turn(self, count: int) -> None:
        """Give it so many datasets more, which depend on how many it had."""
        rng = np.random.default_rng([13, self.tried, *self.key.encode()])
        with np.errstate(all="ignore"), held():
            for at in range(count):
                whole = at % _NATIVE == 0
                self.native += whole
                self._one(self._object if whole else self._plain, rng, ask=whole and self._asks)
        self.tried += count

    def _one(self, run: Run, rng: np.random.Generator, *, ask: bool) -> None:
        data = self._draw(rng)
        try:
            released = run(data)
            if ask:
                for query in ({"reference": self._rows(rng)}, self._rows(rng)):
                    released(query)
        except Exception as error:  # noqa: BLE001 - counted
            text = f"{type(error).__name__}: {error}"[:90]
            self.raised[text] = self.raised.get(text, 0) + 1

    def _rows(self, rng: np.random.Generator) -> Any:
        while len(rows := self._draw(rng)) < 2:
            pass
        return rows.values


def _plain(claim: Any, domain: Any) -> Run:
    """Return what OpenDP's object calls: the same gate and the same function, without native calls."""
    if isinstance(claim, Interactive):
        return lambda data: claim.start(domain.normal(data))
    if isinstance(claim, Private):
        return claim.native or (lambda data: claim.function(domain.normal(data)))
    function = whole_function(claim)

    def gated(data: Any) -> Any:
        data = domain.normal(data)
        domain.check_native(data)
        return function(data)

    return gated


def _pool(case: Any) -> Callable[[np.random.Generator], Any]:
    """Return what picks one of the datasets that the case's own strategy draws, for domains of its own."""
    found: list[Any] = []

    @given(case.drawn())
    @settings(
        max_examples=200,
        phases=[Phase.generate],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def keep(pair: Any) -> None:
        found.append(pair[0])

    keep()
    return lambda rng: found[rng.integers(0, len(found))]


def _kept(file: Path | None, campaigns: list[Campaign]) -> None:
    """Take over what a run before counted."""
    if file is None or not file.exists():
        return
    for key, (tried, native, raised) in json.loads(file.read_text("utf-8")).items():
        for campaign in campaigns:
            if campaign.key == key:
                campaign.tried, campaign.native, campaign.raised = tried, native, raised


def _keep(file: Path | None, campaigns: list[Campaign]) -> None:
    if file is not None:
        text = json.dumps({c.key: [c.tried, c.native, c.raised] for c in campaigns})
        file.write_text(text, "utf-8")


def _shown(campaigns: list[Campaign]) -> str:
    rows: list[list[object]] = [
        [c.key, c.tried, c.native, sum(c.raised.values()), "; ".join(c.raised) or "-"]
        for c in campaigns
    ]
    of_object = "of them through OpenDP's object"
    text = table(["mechanism", "datasets", of_object, "exceptions", "which"], rows)
    total, least = sum(c.tried for c in campaigns), min(c.tried for c in campaigns)
    bad = sum(sum(c.raised.values()) for c in campaigns)
    return f"{text}\n\n{total:,} datasets, at least {least:,} of each mechanism; {bad} exceptions."


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--datasets", type=int, default=100_000, help="of each mechanism")
    options.add_argument("--seconds", type=float, default=1e9, help="CPU seconds at most, of all")
    options.add_argument(
        "--keep", type=Path, help="a file of counts, read first and kept up to date"
    )
    args = options.parse_args()
    dp.enable_features("contrib")
    warnings.simplefilter("ignore")
    found = sorted(cases().items())
    campaigns = [Campaign(key, case) for key, case in found if not isinstance(case.claim(), Post)]
    _kept(args.keep, campaigns)
    while time.process_time() < args.seconds:
        todo = min(campaigns, key=lambda campaign: campaign.tried)
        if todo.tried >= args.datasets:
            break
        todo.turn(min(_TURN, args.datasets - todo.tried))
        _keep(args.keep, campaigns)
    text = _shown(campaigns)
    print(text)
    if args.write:
        command = f"python benchmarks/trust_members.py --datasets {args.datasets} --write"
        write_section("Trust: members of every domain", text, command)


if __name__ == "__main__":
    main()
