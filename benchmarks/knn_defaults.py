"""What the rule's defaults lose against values tuned on the test labels.

A line a run is kept in a file (``--keep``), so that the whole can be done in parts (``--minutes``).
"""

from __future__ import annotations

import json
import time
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks import _knn as k
from benchmarks._results import parser, table, write_section
from benchmarks.knn_accuracy import Cell, Kept
from opendp_sim.measurements.knn._impl.predictor import Predictor
from opendp_sim.measurements.knn.ind_knn import IndKnn

NEIGHBOURS = (0.33, 0.6, 1.0, 1.7)
VOTES = (0.7, 1.0, 1.5)
QUERIES = 2000


def right(data: k.Set, of: k.Asked, rho: float, factor: float, loudness: float) -> np.ndarray:
    """Answer with K* and vote noise some factors off the rule's, and say which are right."""
    plain = IndKnn(rho=rho, queries=len(of), size=data.size)
    rule = plain.rule(len(data.grid.labels))
    if (factor, loudness) == (1.0, 1.0):
        return k.ind_knn(data, of, rho) == of.labels
    wanted = max(1, min(round(rule.neighbours * factor), data.size // 2))
    setting = plain.model_copy(update={"neighbours": wanted})
    service = Predictor(setting, data.grid, data.train)
    service.refer(of.once)
    weight = service._reference.mean_weight(service._ladder, angular=True)
    scale = loudness * setting.rule(len(data.grid.labels)).vote_scale(weight)
    return k.ind_knn(data, of, rho, neighbours=wanted, vote_scale=scale) == of.labels


class Measured:
    """Share of right answers of a run, kept."""

    def __init__(self, data: k.Set, kept: Kept, queries: int, stop: float) -> None:
        self._data, self._kept, self._queries, self._stop = data, kept, queries, stop

    def right(self, epsilon: float, at: tuple[float, float], rep: int) -> np.ndarray:
        of = k.asked(self._data, self._queries, rep)

        def run():
            if time.monotonic() > self._stop:
                raise TimeoutError
            found = right(self._data, of, k.rho_of(epsilon), *at)
            return np.packbits(found).tobytes().hex()

        key = json.dumps(["defaults", self._data.name, epsilon, self._queries, *at, rep])
        bits = np.frombuffer(bytes.fromhex(self._kept.get(key, run)), dtype=np.uint8)
        return np.unpackbits(bits)[: self._queries].astype(float)

    def row(self, epsilon: float, reps: int) -> list[object]:
        """Choose on run 0, compare on the runs after it, query by query."""
        grid = {at: self.right(epsilon, at, 0).mean() for at in product(NEIGHBOURS, VOTES)}
        best = max(grid, key=grid.get)
        later = range(1, reps + 1)
        which = [k.asked(self._data, self._queries, rep).which for rep in later]
        plain = [self.right(epsilon, (1.0, 1.0), rep) for rep in later]
        tuned = [self.right(epsilon, best, rep) for rep in later]
        gaps = [a - b for a, b in zip(tuned, plain, strict=True)]
        cells = [str(Cell.of(values, which)) for values in (plain, tuned, gaps)]
        return [self._data.name, epsilon, *cells, f"K* x {best[0]}, votes x {best[1]}"]


def main():
    options = parser(__doc__)
    options.add_argument("--sets", nargs="+", default=["digits", "newsgroups", "mnist"])
    options.add_argument("--epsilons", nargs="+", type=float, default=[0.5, 1.0, 2.0])
    options.add_argument(
        "--reps", type=int, default=3, help="runs that compare, after one that chooses"
    )
    options.add_argument("--keep", type=Path, help="file of the runs that are done")
    options.add_argument("--minutes", type=float, default=1e9, help="stop after so long")
    args = options.parse_args()
    kept, stop = Kept(args.keep), time.monotonic() + 60 * args.minutes
    rows = []
    try:
        for name in args.sets:
            data = k.load(name, args.data)
            of_set = Measured(data, kept, min(QUERIES, len(data.queries)), stop)
            reps = 1 if data.size > 20_000 else args.reps
            rows += [of_set.row(epsilon, reps) for epsilon in args.epsilons]
    except TimeoutError:
        print("not done yet")
        return
    text = table(
        ["set", "epsilon", "defaults, % right", "tuned, % right", "loss", "best of the grid"], rows
    )
    text += (
        f"\n\nThe grid: K* times {', '.join(map(str, NEIGHBOURS))} and vote noise times "
        f"{', '.join(map(str, VOTES))}, chosen on the test labels of one run and compared on {args.reps} "
        "others (one on MNIST), with fresh noise and, where there are enough, other queries (so that luck is not counted "
        f"as tuning). T = {QUERIES:,}; 500 on the digits, which have no more. ± one standard error; the "
        "loss is taken query by query."
    )
    print(text)
    if args.write:
        write_section(
            "Private prediction: defaults", text, "python -m benchmarks.knn_defaults --write"
        )


if __name__ == "__main__":
    main()
