"""Fourier sketches: noise flat in D, sampling error beside its formula, six kernels without bias."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from benchmarks._kernels import exact_flat, exact_sums, pipeline
from benchmarks._results import parser, table, write_section
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.measurements.noise._impl.samplers import add_gaussian

UNIT, RHO, DRAWS = 1 / 2048, 0.5, 400
GRID = GridRows(width=5, unit=UNIT, lower=(-2048,), upper=(2048,))
KERNELS = {
    "exp(-l2^2)": {"gaussian": {"bandwidth": 0.8}},
    "exp(-l2)": {"exponential": {"bandwidth": 0.8}},
    "exp(-l1)": {"laplacian": {"bandwidth": 1.2}},
    "1/(1+l2)": {"rational": {"bandwidth": 0.6, "distance": "l2"}},
    "1/(1+l2^2)": {"rational": {"bandwidth": 0.6, "distance": "l2_squared"}},
    "1/(1+l1)": {"rational": {"bandwidth": 1.0, "distance": "l1"}},
}


def sketch(kernel: dict, frequencies: int, seed: int):
    step = {"frequencies": frequencies, "kernel": kernel, "seed": seed, "features": "random"}
    return pipeline(GRID, {"fourier_sketch": step})


def noise_rows() -> list[list[object]]:
    rows: list[list[object]] = []
    queries = Rows(np.random.default_rng(3).integers(-60000, 60000, (40, 5)).astype(float))
    for frequencies in (250, 500, 1000, 2000, 4000, 8000):
        claim = sketch(KERNELS["exp(-l2^2)"], frequencies, 1)[0].claim
        reader, size = claim.capabilities["kernel_sums"], claim.output.size
        scale = math.sqrt(float(claim.sensitivity.l2_squared) / (2 * RHO))
        found = []
        for _ in range(DRAWS):
            noise = add_gaussian(np.zeros(size, np.int64), ((size, Fraction(scale)),))
            found.append(reader.estimate(claim.output.split(noise), queries).groups[0, 0])
        measured, price = float(np.std(found)), 1 / math.sqrt(2 * RHO)
        rows.append([frequencies, price, scale * reader.noise_factor(), measured, measured / price])
        print(rows[-1], flush=True)
        assert abs(measured / price - 1) < 0.05
    return rows


def sampling_rows() -> list[list[object]]:
    rng = np.random.default_rng(5)
    values = np.clip(np.rint(rng.normal(0, 600, (60, 5))), -2048, 2048)
    queries = np.clip(np.rint(rng.normal(0, 600, (20, 5))), -2048, 2048)
    origin, rows, frequencies, seeds = np.zeros((1, 5)), [], 200, 400
    for name, kernel in KERNELS.items():
        errors = []
        for seed in range(seeds):
            stages = sketch(kernel, frequencies, seed)
            reader = stages[0].claim.capabilities["kernel_sums"]
            arrays = stages[0].claim.output.split(exact_flat(stages, Rows(values)))
            errors.append(reader.estimate(arrays, Rows(queries)).groups[0, 0])
        exact = exact_sums(values * UNIT, queries * UNIT, reader)
        variance = []
        for query, truth in zip(queries, exact, strict=True):
            plus = (values[:, None] + values[None] - 2 * query).reshape(-1, 5) * UNIT
            minus = (values[:, None] - values[None]).reshape(-1, 5) * UNIT
            pairs = (exact_sums(plus, origin, reader) + exact_sums(minus, origin, reader))[0] / 2
            variance.append((pairs - truth**2) / frequencies)
        off = np.array(errors) - exact
        measured = float(np.sqrt(np.square(off).mean()))
        predicted = float(np.sqrt(np.mean(variance)))
        z = np.abs(off.mean(axis=0) / (off.std(axis=0) / math.sqrt(seeds))).max()
        rows.append([name, predicted, measured, measured / predicted, float(z)])
        print(rows[-1], flush=True)
        assert abs(measured / predicted - 1) < 0.10
        assert z < 4
    return rows


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    noise = table(
        ["D", "1/sqrt(2 rho)", "predicted", "measured", "measured / (1/sqrt(2 rho))"], noise_rows()
    )
    sampling = table(
        ["kernel", "sampling deviation predicted", "measured", "ratio", "largest |bias| / its se"],
        sampling_rows(),
    )
    text = (
        f"Noise, zCDP at rho = {RHO}, {DRAWS} releases x 40 queries; a twentieth of the budget pays "
        f"for the count (must be within 5 %):\n\n{noise}\n\nSampling and bias, D = 200, 400 seeds, 60 "
        "records, 20 queries, 5 columns; predicted is the exact pairwise formula (must be within "
        f"10 %), bias against brute force (must be below 4):\n\n{sampling}"
    )
    print(text)
    if options.write:
        write_section("Kernels: errors", text, "python -m benchmarks.kernel_errors --write")


if __name__ == "__main__":
    main()
