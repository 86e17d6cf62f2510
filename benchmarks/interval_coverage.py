"""How often printed intervals of `density` and `distance` hold the truth, on data made to miss them.

A row is one kind of data under one setting: the coverage at the query that is held least often in the first half of the
releases, counted in the second half alone. (The least of several queries is below what is said by chance; this is not.)
Every release has its own public seed and its own noise. The truth is the sum over the rows as they were before the grid.

python benchmarks/interval_coverage.py --write
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

import opendp_sim.prelude  # noqa: E402, F401 - fills the registry
from benchmarks._results import parser, table, write_figure  # noqa: E402
from opendp_sim.accounting.release.release import Release  # noqa: E402
from opendp_sim.core.apply_stable import whole_function  # noqa: E402
from opendp_sim.core.claims import Noise  # noqa: E402
from opendp_sim.core.mechanism import Mechanism, lookup  # noqa: E402
from opendp_sim.core.pipeline import bind_steps, resolve  # noqa: E402
from opendp_sim.domains.metrics import Symmetric  # noqa: E402
from opendp_sim.domains.rows import RealRows, Rows, with_points  # noqa: E402

Array = NDArray[np.float64]
FAR = np.array([[1000.0, -1000.0, 1000.0]])


def release(
    steps: list[Mechanism], box: tuple[float, float], data: Array, scale: float, seed: int
) -> Release:
    """Return a release of a chain over real rows, with seeded noise: for tests only."""
    real = RealRows(width=data.shape[1], lower=(box[0],), upper=(box[1],))
    stages = bind_steps(real, Symmetric(), steps)
    flat = whole_function(stages[-1].claim)(resolve(stages, list)(Rows(data)))
    noise = np.random.default_rng(seed).normal(0, scale, flat.shape)
    cells = np.rint(flat + noise).astype(np.int64)
    return Release.of_sketch(stages, cells, Noise("discrete_gaussian", scale), {"rho": 1.0})


def held(of: Release, query: Mechanism, asked: Array, truth: Array) -> NDArray[np.bool_]:
    """Return which intervals hold the truth, shape (q,)."""
    found = query.bind(of.released, Symmetric()).function(of.arrays, of.queries(asked))
    return np.asarray((found["lower"][:, 0] <= truth) & (truth <= found["upper"][:, 0]))


def least(hits: list[NDArray[np.bool_]]) -> float:
    """Return the coverage in the second half of the releases of the worst query in the first half."""
    first, second = np.split(np.stack(hits), [len(hits) // 2])
    return float(second[:, first.mean(axis=0).argmin()].mean())


# --- kernel sums ----------------------------------------------------------------------------------


def clusters(sizes: tuple[int, ...], box: float = 900.0, seed: int = 5) -> Array:
    """Return clusters of these sizes, each in one point, in a box: by default far from one another."""
    centres = np.random.default_rng(seed).uniform(-box, box, (len(sizes), 3))
    return np.repeat(centres, sizes, axis=0)


CLUSTERS = {
    "one of 300": (300,),
    "3 of 100": (100, 100, 100),
    "200, 60, 30, 10": (200, 60, 30, 10),
    "250 and 50 of 1": (250, *(1,) * 50),
    "30 of 10": (10,) * 30,
}


def race(
    sizes: tuple[int, ...],
    repetitions: int,
    groups: int,
    confidence: float,
    scale: float,
    runs: int,
    box: float = 900.0,
) -> float:
    """Return the coverage at the worst of far and near queries: the width of a bucket is 1."""
    data = clusters(sizes, box)
    near = [data[:1] + off for off in (0.1, 0.5, 2.0, 5.0)]
    asked = np.concatenate([FAR, *near, data[-1:] - 40.0, data.mean(axis=0, keepdims=True)])
    hits = []
    words = {"estimator": "median_of_means", "groups": groups} if groups > 1 else {}
    query = lookup("density")(confidence=confidence, **words)
    for seed in range(runs):
        family = {"p_stable_l2": {"width": 1.0}}
        sketch = lookup("race_sketch")(
            repetitions=repetitions, buckets=32, family=family, seed=seed, count_weight=8
        )
        of = release([lookup("quantize")(bits=20), sketch], (-1000.0, 1000.0), data, scale, seed)
        far = np.linalg.norm(data[:, None] - asked[None], axis=2)
        hits.append(held(of, query, asked, sketch.family.kernel(far).sum(axis=0)))
    return least(hits)


SKETCHES: dict[str, dict[str, Any]] = {
    "race_sketch": {"repetitions": 300, "buckets": 64, "family": {"p_stable_l2": {"width": 0.3}}},
    "race_sketch l1": {
        "repetitions": 300,
        "buckets": 64,
        "family": {"p_stable_l1": {"width": 0.3}},
    },
    "fourier_sketch": {"frequencies": 800, "kernel": {"gaussian": {"bandwidth": 0.3}}},
    "fourier_sketch exponential": {
        "frequencies": 800,
        "kernel": {"exponential": {"bandwidth": 0.3}},
    },
    "exponential_sum": {
        "bandwidth": 0.3,
        "accuracy": 0.01,
        "structure": {"fourier": {"frequencies": 200}},
    },
    "gauss_transform_sketch": {"bandwidth": 0.3, "order": 8},
}


def lattice(name: str, bits: int, dimension: int, runs: int) -> float:
    """Return the coverage where all records, and the query, are rounded apart by a whole step."""
    hits, unit = [], 2.0 / 2**bits
    projection = [lookup("jl_projection")(dimension=dimension, seed=1)] if dimension else []
    for seed in range(runs):
        words = SKETCHES[name] | ({} if name.startswith("gauss") else {"seed": seed})
        sketch = lookup(name.partition(" ")[0])(**words)
        side = 0.499 if seed % 2 else -0.499
        data = np.full((5000, 2 if not dimension else 8), unit * (1 + side))
        asked = np.full((1, data.shape[1]), unit * (2 - side))
        steps = [lookup("quantize")(bits=bits), *projection, sketch]
        of = release(steps, (-1.0, 1.0), data, 1.0, seed)
        sums = of.released.capabilities["kernel_sums"]
        moved = data[:1] - asked
        if dimension:  # the interval is about projected rows: linear, so exact on real ones
            stages = bind_steps(RealRows(width=8, lower=(-1.0,), upper=(1.0,)), Symmetric(), steps)
            moved = moved @ stages[1].claim.matrices[0].T / np.sqrt(dimension)
        order = 1 if sums.distance == "l1" else 2
        far = np.linalg.norm(moved, ord=order, axis=1)
        hits.append(held(of, lookup("density")(), asked, 5000 * sums.kernel(far)))
    return float(np.mean(hits))


# --- distances ------------------------------------------------------------------------------------


def projected(map_name: str, bits: int, kind: str, runs: int) -> float:
    """Return the coverage of sums of distances behind a random projection, at the worst query."""
    rng, width, hits = np.random.default_rng(8), 16, []
    data = {
        "one point": np.full((3000, width), 0.31),
        "a line": np.outer(rng.uniform(-1, 1, 3000), np.ones(width)),
        "a cloud": rng.uniform(-1, 1, (3000, width)),
    }[kind]
    asked = np.concatenate([np.full((1, width), -0.77), rng.uniform(-1, 1, (3, width)), data[:1]])
    for seed in range(runs):
        if map_name == "jl_projection":
            steps = [lookup("jl_projection")(dimension=12, seed=seed), lookup("moments_sketch")()]
        elif map_name == "slice_sketch":
            steps = [lookup("slice_sketch")(directions=60, seed=seed)]
        else:
            embedding = lookup("l1_embedding")(directions=60, seed=seed)
            steps = [embedding, lookup("threshold_sketch")(thresholds=256)]
        of = release([lookup("quantize")(bits=bits), *steps], (-1.0, 1.0), data, 5.0, seed)
        far = np.linalg.norm(data[:, None] - asked[None], axis=2)
        truth = (far ** (2 if map_name == "jl_projection" else 1)).sum(axis=0)
        hits.append(held(of, lookup("distance")(), asked, truth))
    return least(hits)


def beside(
    kernel: dict[str, Any], frequencies: int, confidence: float, groups: int, runs: int
) -> float:
    """Return the coverage at the worst of nine distances from 0 to a bandwidth of 300 equal records."""
    far = np.array([0.0, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 2.0])
    asked, hits = np.stack([far, np.zeros(9)], axis=1), []
    words = {"estimator": "median_of_means", "groups": groups} if groups > 1 else {}
    query = lookup("density")(confidence=confidence, **words)
    for seed in range(runs):
        sketch = lookup("fourier_sketch")(
            frequencies=frequencies, kernel=kernel, seed=seed, features="random"
        )
        of = release(
            [lookup("quantize")(bits=20), sketch], (-2.0, 2.0), np.zeros((300, 2)), 1.0, seed
        )
        hits.append(held(of, query, asked, 300 * sketch.kernel.value(far)))
    return least(hits)


CUSPS: dict[str, dict[str, Any]] = {
    "exponential": {"exponential": {"bandwidth": 1.0}},
    "laplacian": {"laplacian": {"bandwidth": 1.0}},
    "rational": {"rational": {"bandwidth": 1.0}},
    "rational of l1": {"rational": {"bandwidth": 1.0, "distance": "l1"}},
    "gaussian": {"gaussian": {"bandwidth": 1.0}},
    "weighted": {
        "weighted": {
            "terms": [
                [2.0, {"gaussian": {"bandwidth": 1.0}}],
                [-1.0, {"exponential": {"bandwidth": 0.5}}],
            ]
        }
    },
}


APART = {
    "race l1": {"race_sketch": {"buckets": 64, "family": {"p_stable_l1": {"width": 1.0}}}},
    "race l2": {"race_sketch": {"buckets": 64, "family": {"p_stable_l2": {"width": 1.0}}}},
    **{name: {"fourier_sketch": {"kernel": kernel}} for name, kernel in CUSPS.items()},
    "sum": {"exponential_sum": {"bandwidth": 1.0, "accuracy": 0.1}},
}
BESIDE = (0.0, 0.0005, 0.003, 0.01, 0.1, 1.0)


def pointed(name: str, repetitions: int, off: float, runs: int) -> float:
    """Return the least coverage of 100,000 equal records read with 20 public points beside them."""
    data, covered, size = np.full((1, 2), 0.25), np.zeros(len(BESIDE)), 10**5
    points = np.full((20, 2), 0.25) + np.array([0.0, off])
    asked = data + np.outer(BESIDE, [1.0, 0.0])
    ((key, given),) = APART[name].items()
    count = {"race_sketch": "repetitions", "fourier_sketch": "frequencies"}.get(key)
    words = given | ({"features": "random"} if count == "frequencies" else {})
    words |= (
        {count: repetitions} if count else {"structure": {"fourier": {"frequencies": repetitions}}}
    )
    for seed in range(runs):
        steps = [lookup("quantize")(bits=20), lookup(key)(**words, seed=seed)]
        stages = bind_steps(RealRows(width=2, lower=(-2.0,), upper=(2.0,)), Symmetric(), steps)
        one = whole_function(stages[-1].claim)(resolve(stages, list)(Rows(data)))
        scale = float(stages[-1].claim.sensitivity.bound("l2", 1)) / np.sqrt(2 * 0.017)
        noise = np.random.default_rng(seed + 10**6).normal(0, scale, one.shape)
        cells = np.rint(size * one + noise).astype(np.int64)
        of = Release.of_sketch(stages, cells, Noise("discrete_gaussian", scale), {"rho": 0.017})
        sums = of.released.capabilities["kernel_sums"]
        far = np.linalg.norm(data - asked, axis=1, ord=1 if sums.distance == "l1" else 2)
        query = lookup("density")(public="points").bind(of.released, Symmetric())
        found = query.function(of.arrays, with_points(of.queries(asked), of.queries(points)))
        truth = size * sums.kernel(far)
        covered += (found["lower"][:, 0] <= truth) & (truth <= found["upper"][:, 0])
    return float(covered.min() / runs)


def public_rows(runs: int) -> Iterator[list[object]]:
    """Yield the same with public points beside the records."""
    for name in APART:
        for repetitions in (50, 300):
            for off in (0.0005, 0.01, 0.3):
                yield [
                    f"{name}, {repetitions} repetitions",
                    f"100,000 in one place, public points {off:g} of a bandwidth beside",
                    0.95,
                    pointed(name, repetitions, off, runs),
                ]


def rows(runs: int) -> Iterator[list[object]]:
    """Yield data, setting, confidence and coverage."""
    for name, sizes in CLUSTERS.items():
        for repetitions, groups, scale in (
            (20, 1, 0.01),
            (20, 1, 2.0),
            (60, 9, 0.01),
            (300, 1, 0.01),
        ):
            for confidence in (0.5, 0.95, 0.999):
                of = f"race_sketch, {repetitions} hashes, {groups} groups, noise {scale:g}"
                yield [
                    of,
                    f"clusters {name}",
                    confidence,
                    race(sizes, repetitions, groups, confidence, scale, runs),
                ]
    for name in SKETCHES:
        gauss = name.startswith("gauss")
        for bits in (8, 10) if gauss else (4, 6, 10):
            for dimension in (0,) if gauss else (0, 4):
                behind = f", behind jl_projection to {dimension}" if dimension else ""
                yield [
                    f"{name}, {bits} bits{behind}",
                    "5,000 records between two steps",
                    0.95,
                    lattice(name, bits, dimension, runs),
                ]
    for map_name in ("jl_projection", "l1_embedding", "slice_sketch"):
        for kind in ("one point", "a line", "a cloud"):
            for bits in (5, 10):
                yield [
                    f"distance behind {map_name}, {bits} bits",
                    f"3,000 records: {kind}",
                    0.95,
                    projected(map_name, bits, kind, runs),
                ]


NEAR = ((20, 0.95), (60, 0.95), (300, 0.95), (60, 0.5), (60, 0.999))
"""Hashes and confidences."""


def near_rows(runs: int) -> Iterator[list[object]]:
    """Yield the same for many clusters near one another, and for queries beside a cluster."""
    for box in (3.0, 30.0):
        for name, sizes in list(CLUSTERS.items())[1:]:
            for repetitions, confidence in NEAR:
                yield [
                    f"race_sketch, {repetitions} hashes, 1 groups, noise 0.01",
                    f"clusters {name} in a box of {2 * box:g} buckets",
                    confidence,
                    race(sizes, repetitions, 1, confidence, 0.01, runs, box),
                ]
    for name, kernel in CUSPS.items():
        for frequencies, groups in ((16, 1), (64, 1), (64, 9), (300, 1)):
            yield [
                f"fourier_sketch {name}, {frequencies} frequencies, {groups} groups",
                "300 in one point, beside it",
                0.95,
                beside(kernel, frequencies, 0.95, groups, runs),
            ]


# --- likely intervals -----------------------------------------------------------------------------


def drawn_rows(kind: str, folder: Path, draw: np.random.Generator) -> tuple[Array, float]:
    """Return rows within 0 and the second number, of one kind, and that number."""
    if kind == "spread":
        return draw.uniform(0, 1, (5000, 2)), 1.0
    if kind == "a cloud":
        return np.clip(0.5 + 0.1 * draw.standard_normal((5000, 2)), 0, 1), 1.0
    if kind == "one place":
        return np.repeat(draw.uniform(0, 1, (1, 2)), 5000, axis=0), 1.0
    if kind.startswith("whole numbers"):
        most = int(kind.rsplit(maxsplit=1)[-1])
        one = "in one place" in kind
        return np.broadcast_to(
            draw.integers(0, most + 1, (1 if one else 5000, 2)), (5000, 2)
        ) * 1.0, most
    if kind == "flights":
        rows = np.loadtxt(
            ROOT / "specs/data/flights.csv", delimiter=",", skiprows=1, usecols=(4, 5)
        )
        rows, most = np.clip(rows, -30, 210) + 30, 240.0
    elif kind == "cities":
        rows = np.loadtxt(ROOT / "specs/data/cities.csv", delimiter=",", skiprows=1)
        rows, most = (rows - rows.min()) / np.ptp(rows), 1.0
    else:
        name, columns = kind.split(",", maxsplit=1)[0], int(kind.split()[1])
        rows = np.load(folder / f"{name}.npz")["x"].astype(float)[:, :columns]
        most = 255.0 if name == "skin" else 1.0
        rows = rows if name == "skin" else (rows - rows.min(axis=0)) / np.ptp(rows, axis=0)
    return rows[draw.choice(len(rows), 5000, replace=False)], most


def likely_covered(kind: str, bits: int, folder: Path, runs: int) -> list[object]:
    """Return coverage and widths of sure and likely intervals, of roundings alone."""
    hits, widths = [], []
    for seed in range(runs):
        draw = np.random.default_rng([seed, bits])
        data, most = drawn_rows(kind, folder, draw)
        asked = data[:100] + draw.normal(0, 0.05 * most, (100, data.shape[1]))
        asked = np.clip(asked, 0, most)
        if "whole" in kind:
            asked = np.rint(asked)
        kernel = {"gaussian": {"bandwidth": 0.15 * most}}
        sketch = lookup("fourier_sketch")(frequencies=2000, kernel=kernel, seed=seed)
        of = release([lookup("quantize")(bits=bits), sketch], (0.0, most), data, 1.0, seed)
        truth = sketch.kernel.value(np.linalg.norm(data[:, None] - asked, axis=2)).sum(axis=0)
        found = (
            lookup("density")()
            .bind(of.released, Symmetric())
            .function(of.arrays, of.queries(asked))
        )
        low, high, least_, most_ = (
            found[name][:, 0] for name in ("likely_lower", "likely_upper", "lower", "upper")
        )
        hits.append([(low <= truth) & (truth <= high), (least_ <= truth) & (truth <= most_)])
        widths.append(
            [
                np.mean(high - low),
                np.mean(most_ - least_),
                np.abs(found["density"][:, 0] - truth).mean(),
            ]
        )
    covered, width = np.mean(hits, axis=2), np.mean(widths, axis=0)
    return [
        covered[:, 0].mean(),
        covered[:, 0].min(),
        covered[:, 1].min(),
        *(width[:2] / 2),
        width[2],
    ]


KINDS = (
    *("spread", "a cloud", "one place", "whole numbers to 100", "whole numbers to 64"),
    *("whole numbers in one place, to 100", "whole numbers in one place, to 64"),
    *("flights", "cities", "casp, 1", "casp, 2", "casp, 3", "skin, 3", "pulsar, 2"),
)


def likely_rows(runs: int, folder: Path) -> Iterator[list[object]]:
    """Yield sure and likely intervals of 5,000 rows almost without noise, at 100 places a release."""
    for kind in KINDS:
        for bits in (10, 14, 20):
            yield [f"{bits} bits", kind, *likely_covered(kind, bits, folder, runs)]


PARTS = {
    "far": ("kernels/coverage-far", rows),
    "near": ("kernels/coverage-near", near_rows),
    "public": ("kernels/coverage-public", public_rows),
    "likely": ("promises/likely", likely_rows),
}


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument(
        "--runs", type=int, default=200, help="releases a row, half of them to find the worst query"
    )
    options.add_argument("--part", choices=PARTS, default="far", help="which kinds of data")
    args = options.parse_args()
    figure, part = PARTS[args.part]
    found: list[list[object]] = []
    likely = args.part == "likely"
    head = ["release", "data", "said", "covered at the worst query"]
    if likely:
        head = ["grid", "data", "likely covers", "in the worst release", "sure covers there"]
        head += ["half likely, rows", "half sure", "mean error"]
    for row in part(args.runs, args.data) if likely else part(args.runs):
        found.append(row)
        print(*row, sep=" | ", flush=True)
    text = table(head, found)
    if args.write:
        words = f"--part {args.part} --runs {args.runs} --write"
        write_figure(figure, text, f"python benchmarks/interval_coverage.py {words}")


if __name__ == "__main__":
    main()
