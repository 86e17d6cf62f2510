"""Gaussian DP against zCDP at equal (epsilon, delta): drawn noise, the sampler's time, neighbours.

``python benchmarks/gaussian_dp.py noise|sampler|neighbours [--write]``. Noise is drawn, not computed: the
cells of a release of no records, each over its weight. The analytic Gaussian is what one query would
have: the scale of ``dp_accounting.get_sigma_gaussian`` times the L2 sensitivity.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
from ruamel.yaml import YAML

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import _knn as k
from benchmarks._results import parser, table, write_section
from opendp_sim.accounting.measures.gaussian import mu_squared_down
from opendp_sim.dsl.grammar.reader import draft_of
from opendp_sim.dsl.plan.plan import plan_of
from opendp_sim.measurements.noise._impl.samplers import add_gaussian, add_rounded

SPECS = Path(__file__).parents[1] / "specs"
STRUCTURES = {
    "race_sketch": "digit-density",
    "threshold_sketch": "digit-distances",
    "fourier_sketch": "digit-fourier",
    "class moments": "digit-means",
    "second_moments": "digit-regression",
}
EPSILONS, DELTA = (0.5, 1.0, 2.0), 1e-6
CELLS = 6_000_000
SCALES = (0.5, 2.0, 10.0, 1e4, 1e9, 1e15)
REPS = {"newsgroups": 20, "mnist": 6}


def planned(spec: str, measure: str, epsilon: float):
    body = YAML(typ="safe").load((SPECS / f"{spec}.yaml").read_text())
    body["privacy"]["measure"] = measure
    body["privacy"]["budget"] = {"epsilon": epsilon, "delta": DELTA}
    plan = plan_of(draft_of(body, folder=str(SPECS)))
    (release,) = plan.releases.values()
    return plan, release


def drawn(release) -> float:
    """Deviation of the noise of a cell of weight 1, from about six million drawn cells."""
    noise = release.bound.claim.noise
    size = release.typed.sketch.output.size
    weights = np.ones(size)
    if noise.weights:
        weights = np.repeat([w for _, w in noise.weights], [n for n, _ in noise.weights])
    add = add_rounded if noise.family == "rounded_gaussian" else add_gaussian
    factor = int(1 / noise.step)
    spans = noise.weights or ((size, 1),)
    many = max(1, CELLS // size)
    runs = [(n, Fraction(noise.scale) * w * factor) for _ in range(many) for n, w in spans]
    values = add(np.zeros(size * many, np.int64), runs) / (np.tile(weights, many) * factor)
    return float(np.sqrt(np.mean(values**2)))


def noise_table() -> str:
    import dp_accounting

    rows = []
    for name, spec in STRUCTURES.items():
        for epsilon in EPSILONS:
            (_, zcdp), (plan, gdp) = (planned(spec, m, epsilon) for m in ("zcdp", "gdp"))
            l2 = math.sqrt(gdp.typed.sensitivity.l2_squared) * plan.privacy.unit.d_in
            best = l2 * dp_accounting.get_sigma_gaussian(epsilon, DELTA, tol=1e-12)
            old, new = drawn(zcdp), drawn(gdp)
            rows.append(
                [
                    name,
                    epsilon,
                    old,
                    new,
                    f"{100 * (new / old - 1):+.2f} %",
                    best,
                    f"{100 * (new / best - 1):+.3f} %",
                ]
            )
    head = ["structure", "epsilon", "zcdp", "gdp", "less", "analytic Gaussian", "gdp over it"]
    text = (
        f"Deviation of the drawn noise of a cell of weight 1 at delta {DELTA:g}, from about {CELLS:,} cells each "
        f"(standard error {100 / math.sqrt(2 * CELLS):.3f} %)."
    )
    return f"{text}\n\n{table(head, rows)}"


def sampler_table() -> str:
    cells, rows = 1 << 20, []
    zeros = np.zeros(cells, np.int64)
    for scale in SCALES:
        laps = []
        for _ in range(9):
            lap = []
            for add in (add_gaussian, add_rounded):
                start = time.process_time()
                add(zeros, [(cells, Fraction(scale))])
                lap.append(1e9 * (time.process_time() - start) / cells)
            laps.append(lap)
        old, new = (statistics.median(lap[i] for lap in laps) for i in (0, 1))
        ratio = statistics.median(lap[1] / lap[0] for lap in laps)
        rows.append([scale, old, new, f"{ratio:.2f}"])
    start = time.process_time()
    many = [(512, Fraction(2000 + i)) for i in range(100)]
    add_rounded(np.zeros(51_200, np.int64), many)
    fresh = 10 * (time.process_time() - start)
    text = f"{cells:,} cells, CPU time, the two alternating in one run, medians of 9."
    head = ["scale", "discrete, ns/cell", "rounded, ns/cell", "ratio (median of pairs)"]
    return (
        f"{text}\n\n{table(head, rows)}\n\nA new scale with 512 cells: {fresh:.2f} ms of CPU time."
    )


def neighbours_table(data: Path, minutes: float, names) -> str:
    rows = []
    for name in names:
        found, stop = k.load(name, data), time.monotonic() + 60 * minutes / len(names)
        gains: dict[tuple[str, float], list[tuple[float, float]]] = {}
        for rep in range(REPS[name]):
            if time.monotonic() > stop:
                break
            of = k.asked(found, 1000, rep)
            for epsilon in EPSILONS:
                purses = k.rho_of(epsilon), float(mu_squared_down(epsilon, k.DELTA)) / 2
                for method, run in (("ind_knn", k.ind_knn), ("hybrid_knn", k.hybrid)):
                    pair = tuple(k.share_right(run(found, of, rho), of) for rho in purses)
                    gains.setdefault((method, epsilon), []).append(pair)
        for (method, epsilon), pairs in sorted(gains.items(), reverse=True):
            old, new = (statistics.mean(p[i] for p in pairs) for i in (0, 1))
            gain = [b - a for a, b in pairs]
            error = statistics.stdev(gain) / math.sqrt(len(gain)) if len(gain) > 1 else math.nan
            purse = float(mu_squared_down(epsilon, k.DELTA)) / 2 / k.rho_of(epsilon) - 1
            rows.append(
                [
                    name,
                    method,
                    epsilon,
                    f"{100 * purse:+.1f} %",
                    f"{old:.2f}",
                    f"{new:.2f}",
                    f"{new - old:+.2f} +- {error:.2f}",
                    len(pairs),
                ]
            )
    head = ["data", "mechanism", "epsilon", "purse", "zcdp", "gdp", "gain, points", "runs"]
    text = (
        f"% of 1,000 queries right at delta {k.DELTA:g}; the same mechanism (rounded noise in both) with the purse of "
        "zCDP's conversion and with that of the exact curve, paired by queries."
    )
    return f"{text}\n\n{table(head, rows)}"


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("part", choices=["noise", "sampler", "neighbours"])
    options.add_argument("--minutes", type=float, default=60.0)
    options.add_argument("--sets", default="newsgroups,mnist")
    args = options.parse_args()
    if args.part == "neighbours":
        text = neighbours_table(args.data, args.minutes, args.sets.split(","))
    else:
        text = {"noise": noise_table, "sampler": sampler_table}[args.part]()
    print(text)
    if args.write:
        command = f"python benchmarks/gaussian_dp.py {args.part} --write"
        write_section(f"Gaussian DP, {args.part}", text, command)


if __name__ == "__main__":
    main()
