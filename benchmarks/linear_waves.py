"""`linear_model` on `fourier_features`, beside `linear_model` on the rows themselves, at the same loss.

The tables of ``linear_model``; 300 frequencies, and as bandwidth .7 of the median distance of 200 held-out rows. That factor
was chosen on MNIST (5,000 rows: .7 to 1.5 are within 2 points). ``classify`` is `fourier_sketch` with 500 frequencies a class at
the same bandwidth, by its default rule and by `map`, on 1,500 test rows. A fresh split, seed and release each time.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks._distances import rho_of
from benchmarks._kernels import exact_flat, noisy, pipeline, through
from benchmarks._results import parser, table, write_section
from benchmarks.linear_model import by_gradients, datasets
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, RealRows, Rows
from opendp_sim.measurements.linear.linear_model import LinearModel
from opendp_sim.postprocessing.classify import Classify
from opendp_sim.transformations.row_maps.fourier_features import FourierFeatures

EPSILONS, FACTOR, FREQUENCIES = (0.1, 0.5, 1.0, 2.0), 0.7, 300
A_CLASS = 500
RULES = {"classify": "max_likelihood", "classify, map": "map"}


def by_sums(lower, upper, labels, train: Rows, queries, bandwidth: float, seed: int, epsilons):
    """Yield (epsilon, rule, labels) of `classify` on one sketch of every class."""
    space = RealRows(width=len(lower), lower=tuple(lower), upper=tuple(upper), labels=labels)
    sketch = {
        "fourier_sketch": {
            "frequencies": A_CLASS,
            "seed": seed,
            "per_label": True,
            "kernel": {"gaussian": {"bandwidth": bandwidth}},
        }
    }
    stages = pipeline(space, {"quantize": {"bits": 12}}, sketch)
    flat = exact_flat(stages[1:], through(stages[:1], train.values, train.labels))
    for epsilon in epsilons:
        of = noisy(stages, flat, epsilon)
        asked = of.queries(Rows(queries, np.zeros(len(queries), np.int64)))
        for name, rule in RULES.items():
            post = Classify(rule=rule).bind(of.released, Symmetric())
            yield epsilon, name, post.function(of.arrays, asked)["label"]


def one(name: str, x, y, lower, upper, splits: int, shown, epsilons) -> list[list[object]]:
    grid = GridRows(
        width=x.shape[1],
        lower=tuple(map(int, lower)),
        upper=tuple(map(int, upper)),
        labels=tuple(range(int(y.max()) + 1)),
    )
    got: dict[tuple[str, float], list[float]] = {}
    for split in range(splits):
        order = np.random.default_rng(50 + split).permutation(len(x))
        train, test = order[: 2 * len(x) // 3], order[2 * len(x) // 3 :][:4000]
        near = np.linalg.norm(x[test[:200], None] - x[None, test[200:400]], axis=2)
        waves = FourierFeatures(
            frequencies=FREQUENCIES, bandwidth=FACTOR * float(np.median(near)), seed=split
        ).bind(grid, Symmetric())
        data = Rows(x[train], y[train].astype(np.int64))
        made, asked = waves.function(data), waves.on_queries(Rows(x[test])).values
        bandwidth = FACTOR * float(np.median(near))
        if "classify" in shown:
            by_sum = by_sums(
                lower, upper, grid.labels, data, x[test[:1500]], bandwidth, split, epsilons
            )
            for epsilon, rule, found in by_sum:
                right = 100 * (found == y[test[:1500]]).mean()
                got.setdefault((rule, epsilon), []).append(right)
        if "linear" not in shown:
            continue
        for epsilon in epsilons:
            model = LinearModel(rho=rho_of(epsilon))
            plain = by_gradients(grid, data, x[test], model)
            kernel = by_gradients(waves.output, made, asked, model)
            for rule, labelled in (("rows", plain), ("waves", kernel)):
                got.setdefault((rule, epsilon), []).append(100 * (labelled == y[test]).mean())
    rows: list[list[object]] = []
    for rule in dict.fromkeys(rule for rule, _ in got):
        cells: list[object] = [f"{name}, {2 * len(x) // 3} x {x.shape[1]}", rule]
        for epsilon in epsilons:
            found = np.array(got[rule, epsilon])
            cells.append(f"{found.mean():.1f} ± {found.std(ddof=1) / np.sqrt(len(found)):.1f}")
        rows.append(cells)
        print(cells, flush=True)
    return rows


def main() -> None:
    given = parser(__doc__ or "")
    given.add_argument("--packages", type=Path, default=Path("packages"))
    given.add_argument("--splits", type=int, default=3)
    given.add_argument("--only", nargs="+", choices=("linear", "classify"))
    given.add_argument("--epsilon", type=float, nargs="+", default=EPSILONS)
    given.add_argument("--of", nargs="+", help="tables; all by default")
    options = given.parse_args()
    shown = options.only or ("linear", "classify")
    sets = (d for d in datasets(options.packages) if not options.of or d[0] in options.of)
    found = (one(*data, options.splits, shown, options.epsilon) for data in sets)
    rows = [row for part in found for row in part]
    head = ["data, records x columns", "linear in", *(f"epsilon {e:g}" for e in options.epsilon)]
    text = (
        f"{table(head, rows)}\n\nAccuracy in percent ± one standard error over {options.splits} splits; two "
        "thirds train, delta = 1e-6 in zCDP. " + " ".join((__doc__ or "").split())
    )
    print(text)
    if options.write:
        command = (
            f"python -m benchmarks.linear_waves --write --splits {options.splits} --packages FOLDER"
        )
        write_section("Linear model: Fourier features", text, command)


if __name__ == "__main__":
    main()
