"""A sketch that grows: error of periods 1 to t, predicted and measured, beside releases of a split budget.

Root mean square over all t and 200 runs of one cell's error, in that of one release of the whole budget. `split`
releases the sketch of periods 1 to t anew at a T-th of the budget; `one level` releases each period at all of it and adds up;
`binary` and `best` are trees of `sim.stream`. Noise is drawn by the mechanisms of the plans. The last table is of whole
streams: the error of a density in rows, of 200 streams of 8 periods without records.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import opendp_sim as sim
from benchmarks._results import parser, table, write_figure
from opendp_sim.accounting.release.continual import PeriodTree, best_tree, mean_error
from opendp_sim.domains.metrics import VectorNorm
from opendp_sim.domains.sketch import IntVector
from opendp_sim.dsl.run.stream import NodeNoise, is_laplace, streamed

PERIODS, RUNS = (8, 64, 512), 200
NONE: dict[str, list[float]] = {"x": []}


def measured(noise: NodeNoise, tree: PeriodTree, runs: int) -> float:
    """Return the root mean square of sums of nodes' noises, over all t and runs."""
    nodes = [node for t in range(1, tree.periods + 1) for node in tree.ending(t)]
    place = {node: at for at, node in enumerate(nodes)}
    cells = IntVector(len(nodes) * runs)
    claim = noise.record.bind(cells, VectorNorm(noise.bound.norm or "l2"))
    drawn = np.asarray(claim.function(np.zeros(cells.size, np.int64)), float)  # type: ignore[union-attr]
    drawn = drawn.reshape(len(nodes), runs)
    sums = [
        drawn[[place[node] for node in tree.parts(1, t)]].sum(0) for t in range(1, tree.periods + 1)
    ]
    return float(np.sqrt(np.mean(np.square(sums))))


def cells_of(measure: str) -> list[list[str]]:
    """Return a row of the table for each number of periods."""
    words = {"measure": measure} | ({"delta": None} if measure == "pure" else {})
    release = streamed(sim.density({"x": (0.0, 1.0)}, bandwidth=0.1, **words).plan)  # type: ignore[arg-type]
    laplace, rows = is_laplace(release), []
    one = NodeNoise.of(release, PeriodTree(1)).law.deviation
    for periods in PERIODS:
        best = best_tree(periods, laplace=laplace)
        trees = {
            "one level": PeriodTree(periods, periods + 1),
            "binary": PeriodTree(periods, 2),
            f"best, base {best.base}": best,
        }
        split = periods if laplace else periods**0.5
        told = [f"{split:.2f}"]
        for tree in trees.values():
            known = mean_error(tree, laplace=laplace)
            found = measured(NodeNoise.of(release, tree), tree, RUNS) / one
            told.append(f"{known:.2f} / {found:.2f}")
        told.append(f"{split / mean_error(best, laplace=laplace):.1f}")
        rows.append([measure, str(periods), *told[:-2], f"{told[-2]} ({best.base})", told[-1]])
    return rows


def densities(base: int | None) -> list[list[str]]:
    """Return the error of a density at some t, predicted and measured."""
    fit, asked = sim.density({"x": (0.0, 1.0)}, bandwidth=0.1), [0.5]
    errors: dict[int, list[float]] = {}
    known: dict[int, float] = {}
    for _ in range(RUNS):
        with (
            tempfile.TemporaryDirectory() as folder,
            sim.stream(fit, 8, into=Path(folder), base=base) as found,
        ):
            base_used = found.tree.base
            for t in range(1, 9):
                answer = found.add(NONE).density(asked)
                known[t] = float(answer["noise_error"][0])
                errors.setdefault(t, []).append(float(answer["density"][0]))
    return [
        [str(base_used), str(t), f"{known[t]:.2f}", f"{np.square(errors[t]).mean() ** 0.5:.2f}"]
        for t in (1, 3, 7, 8)
    ]


def main() -> None:
    given = parser(__doc__ or "")
    options = given.parse_args()
    head = ["measure", "periods", "split", "one level", "binary", "best (base)", "split / best"]
    told = table(head, [*cells_of("gdp"), *cells_of("pure")])
    whole = [*densities(2), *densities(None)]
    told += "\n\n" + table(["base", "t", "predicted, rows", "measured, rows"], whole)
    print(told)
    if options.write:
        write_figure("kernels/streams", told, "python -m benchmarks.continual --write")


if __name__ == "__main__":
    main()
