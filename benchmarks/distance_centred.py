"""Sums of l2 distances by `slice_sketch`: errors over the price of one query, intervals and time, by directions.

The price of a query is the mean absolute error of answering it alone (`distance_price`). ``found`` is the longest
squared length of a record that an ascent finds among rows of the type, over the bound of Lemma 2 of ``slice_sketch.md``.
``noise alone`` is the stated deviation times sqrt(2 rho) over the farthest that a row of the box can be. ``held`` is the
share of the 95 % intervals that hold the truth, of all budgets; those of one release err together. ``build`` is the CPU time of the cells
over that of the bare product of the rows with the directions (`out=`, in the same chunks), one BLAS thread on each
side; ``question`` milliseconds of CPU a query, of 1,000 queries. Queries are held-out rows.
"""

from __future__ import annotations

import math
import time
from pathlib import Path

import numpy as np
from scipy.spatial.distance import cdist

from benchmarks._distances import Built, rho_of
from benchmarks._results import parser, table, write_section
from benchmarks.distance_price import ASKED, EPSILONS, datasets
from opendp_sim.core.arithmetic.grid import chunks
from opendp_sim.domains.rows import RealRows

COMMAND = "python -m benchmarks.distance_centred --write --packages FOLDER"
SEEDS, RELEASES = 6, 4


def found(built: Built) -> float:
    """The longest |phi|^2 of rows of the box that an ascent finds, over the bound."""
    slices = built.stages[-1].claim.capabilities["distance_sums"].slices
    rng, reach = np.random.default_rng(0), np.array(slices.centre.reach, dtype=np.float64)
    rows = np.where(rng.random((200, len(reach))) < 0.5, -reach, reach)
    best, top = 0.0, rows[0]
    for _ in range(60):
        levels = np.clip(np.floor(slices.projection.phases(rows)), 0, slices.thresholds)
        values = slices.squares[levels.astype(np.int64)].sum(axis=0)
        if values.max() > best:
            best, top = float(values.max()), rows[values.argmax()].copy()
        turned = rng.random(rows.shape) < rng.choice([1, 2, 4], (len(rows), 1)) / len(reach)
        rows = np.where(turned, -top, top)
    return best / slices.longest


def times(built: Built) -> tuple[float, float]:
    """Build over the bare product, and milliseconds a question."""
    claim, rows = built.stages[-1].claim, built.rows
    matrix = claim.capabilities["distance_sums"].slices.projection.folded[:, :-1]
    ratios = []
    for _ in range(3):
        begun, out = time.process_time(), np.zeros(claim.output.size, dtype=np.int64)
        claim.accumulate(rows, out)
        own, begun = time.process_time() - begun, time.process_time()
        for start in range(0, len(matrix), 256):
            some = matrix[start : start + 256]
            for part in chunks(len(rows), len(some)):
                values = rows.values[part]
                np.matmul(some, values.T, out=np.empty((len(some), len(values))))
        ratios.append(own / (time.process_time() - begun))
    asked = np.resize(rows.values, (1000, rows.values.shape[1]))
    reading = claim.capabilities["distance_sums"].reading(
        claim.output.split(built.cells), None, 0.1
    )
    begun = time.process_time()
    reading.at(asked)
    return float(np.median(ratios)), time.process_time() - begun


def one(name: str, values: np.ndarray, directions: int) -> list[object]:
    """Errors over the price on one table, as `distance_price` has them."""
    order, width = np.random.default_rng(0).permutation(len(values)), values.shape[1]
    queries, x = values[order[:ASKED]], values[order[ASKED:]]
    space = RealRows(width=width, lower=(0.0,), upper=(1.0,))
    farthest = np.linalg.norm(np.maximum(queries, 1 - queries), axis=1)
    truth = cdist(queries, x).sum(axis=1)
    errors: dict[float, list[float]] = {epsilon: [] for epsilon in EPSILONS}
    noise, held = [], []
    for seed in range(SEEDS):
        sketch = ("slice_sketch", {"directions": directions, "seed": seed})
        built = Built(space, (("quantize", {"bits": 12}), sketch), x)
        for epsilon in EPSILONS:
            root = math.sqrt(2 * rho_of(epsilon))
            price, claim = (
                math.sqrt(2 / math.pi) * farthest / root,
                built.noise(rho=rho_of(epsilon)),
            )
            off = []
            for _ in range(RELEASES):
                got = built.ask(claim, queries)
                off.append(float((np.abs(got["distance"][:, 0] - truth) / price).mean()))
                within = (got["lower"][:, 0] <= truth) & (truth <= got["upper"][:, 0])
                held.append(float(within.mean()))
            errors[epsilon].append(float(np.mean(off)))
        noise.append(float((got["noise_error"][:, 0] * root / farthest).mean()))
    build, question = times(built)
    cells: list[object] = [f"{name}, {len(x):,} x {width}", directions, f"{found(built):.2f}"]
    cells.append(f"{np.mean(noise):.2f}")
    for epsilon in EPSILONS:
        scatter = np.std(errors[epsilon], ddof=1) / math.sqrt(SEEDS)
        cells.append(f"{np.mean(errors[epsilon]):.2f} ± {scatter:.2f}")
    cells += [f"{np.mean(held):.3f}", f"{build:.1f}", f"{question:.2f}"]
    print(cells, flush=True)
    return cells


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--packages", type=Path, default=Path("packages"))
    options.add_argument("--directions", type=int, nargs="+", default=(1024, 4096, 8192))
    given = options.parse_args()
    data = list(datasets(given.packages))
    rows = [one(name, values, k) for name, values in data for k in given.directions]
    head = ["data", "directions", "found", "noise alone", *(f"epsilon {e:g}" for e in EPSILONS)]
    text = table([*head, "held", "build", "question"], rows) + (
        f"\n\nMean absolute error over the price of one query, ± one standard error over {SEEDS} draws of the "
        f"directions, {RELEASES} releases each, {ASKED} queries; 128 thresholds a direction. "
        + "\n\n".join(" ".join(part.split()) for part in (__doc__ or "").split("\n\n"))
    )
    print(text)
    if given.write:
        write_section("Distances: l2 by centred thresholds", text, COMMAND)


if __name__ == "__main__":
    main()
