"""A structure for sums of l2 distances that is not built: centred thresholds on slices, imitated in numpy.

With s_j the projections of a row on k directions (blocks of orthonormal ones, scaled to the mean length of a normal vector), rounded to levels,
and phi the vector of all [s_j > t] - p_t, p_t the share of a normal law of the norm bound B above t: for any numbers p the
sum of |s_j - s'_j| is |phi - phi'|^2 (a step between them is a 1), so the answer is sum |phi|^2 + N |phi(y)|^2 - 2 <sum phi, phi(y)>:
three blocks, as in `moments_sketch`. Signs, which `threshold_sketch` adds, are the case p = 1/2, where |phi|^2 is as long as the clip for every row.

Lemma. Let L(s) be the sum over t of ([s > t] - p_t)^2, a table of integers, and C any number, A = max over levels of L(s) - C s^2. A row with
sum s_j^2 <= M has |phi|^2 <= k A + C M. Proof: add L(s_j) <= A + C s_j^2 over j. QED. In whole blocks the sum of s_j^2 is |x|^2 times k m^2 / d
up to rounding, so M is the same for every row of the ball; a row above it would be shortened, as in `moments_sketch`. C is chosen for the least
bound: with L concave in s^2 that is the tangent at the mean of s^2, 3 % above the mean of L over the sphere.

In units of B / sqrt(2 rho) the deviation is 2.9 at |y| = B and 2.0 in the middle, for every k, where that of `threshold_sketch` behind
`l1_embedding` is 10. ``found`` is the longest |phi|^2 of rows sought by ascent over the bound of the lemma.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import ndtr

from opendp_sim.core.directions import length_of_normal, orthogonal_blocks
from tests.bench._distances import rho_of
from tests.bench._results import parser, table, write_section
from tests.bench.distance_price import ASKED, EPSILONS, datasets

COMMAND = "python -m tests.bench.distance_centred --write --packages FOLDER"
SEEDS, LEVELS, FINE = 4, 128, 256


@dataclass(frozen=True)
class Centred:
    """Public numbers of one structure: rows of norm B = sqrt(d) / 2 about the middle of [0, 1]^d."""

    width: int
    directions: int
    seed: int

    def __post_init__(self) -> None:
        bound, long = math.sqrt(self.width) / 2, length_of_normal(self.width)
        clip = min(4.0, long) * bound
        made = orthogonal_blocks(np.random.default_rng(self.seed), self.width, self.directions)
        at = (np.arange(LEVELS) + 0.5) / LEVELS * 2 * clip - clip
        shares = np.rint(FINE * ndtr(-at / bound)).astype(np.int64)
        above = np.arange(LEVELS + 1)[:, None] > np.arange(LEVELS)
        steps = np.square(np.arange(LEVELS + 1) - LEVELS // 2)
        own = np.square(FINE * above - shares).sum(axis=1)
        reach = bound * long * math.sqrt(math.ceil(self.directions / self.width))
        most = (reach * LEVELS / (2 * clip) + math.sqrt(self.directions) / 2) ** 2
        slopes = np.linspace(0, 4 * FINE**2 / LEVELS, 4001)
        tops = (own[:, None] - slopes * steps[:, None]).max(axis=0)
        longest = float((self.directions * tops + slopes * most).min())
        vars(self).update(matrix=made * long, clip=clip, shares=shares, own=own, longest=longest)
        vars(self).update(least=float(self.directions * own.min()), bound=bound)

    def levels(self, rows: np.ndarray) -> np.ndarray:
        """Levels of all projections: shape (n, k)."""
        found = (rows @ self.matrix + self.clip) * (LEVELS / (2 * self.clip))
        return np.clip(np.rint(found), 0, LEVELS).astype(np.int64)

    def sums(self, rows: np.ndarray) -> tuple[np.ndarray, float]:
        """Exact cells (k, T), and the sum of |phi|^2."""
        counts = np.zeros((self.directions, LEVELS + 1), dtype=np.int64)
        for start in range(0, len(rows), 2000):
            found = self.levels(rows[start : start + 2000])
            ids = found + np.arange(self.directions) * (LEVELS + 1)
            counts += np.bincount(ids.ravel(), minlength=counts.size).reshape(counts.shape)
        above = counts[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:]
        return FINE * above - len(rows) * self.shares, float((counts * self.own).sum())

    def answer(self, rows: np.ndarray, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums of distances without noise, and its deviation times sqrt(2 rho), by query."""
        cells, squares = self.sums(rows)
        middle, half = (self.longest + self.least) / 2, (self.longest - self.least) / 2
        costs = np.array([middle + self.longest, half, 2 * self.longest])
        unit = math.sqrt(math.pi / 2) * 2 * self.clip / LEVELS / self.directions / FINE**2
        found, spread = [], []
        for one in self.levels(queries):
            own = float(self.own[one].sum())
            phi = FINE * (one[:, None] > np.arange(LEVELS)) - self.shares
            found.append(unit * (squares + len(rows) * own - 2 * float((cells * phi).sum())))
            terms = (middle + own) ** 2 / costs[0] + half + 4 * own * self.longest / costs[2]
            spread.append(unit * math.sqrt(costs.sum() * terms))
        return np.array(found), np.array(spread)

    def found(self) -> float:
        """The longest |phi|^2 of rows of the ball that an ascent finds, over the bound."""
        rng, best = np.random.default_rng(self.seed), 0.0
        rows = np.concatenate([rng.normal(size=(50, self.width)), self.matrix.T[:50]])
        for _ in range(60):
            rows *= self.bound / np.linalg.norm(rows, axis=1, keepdims=True)
            values = self.own[self.levels(rows)].sum(axis=1)
            if values.max() > best:
                best, top = float(values.max()), rows[values.argmax()].copy()
            rows = top + rng.normal(size=rows.shape) * self.bound * 0.2 / math.sqrt(self.width)
        return best / self.longest


def one(name: str, values: np.ndarray, directions: int) -> list[object]:
    """Errors over the price on one table, as `distance_price` has them."""
    order = np.random.default_rng(0).permutation(len(values))
    queries, rows = values[order[:ASKED]] - 0.5, values[order[ASKED:]] - 0.5
    far = np.linalg.norm(0.5 + np.abs(queries), axis=1)
    truth = cdist(queries, rows).sum(axis=1)
    got: dict[float, list[float]] = {}
    noise, sought = [], []
    for seed in range(SEEDS):
        made, rng = Centred(rows.shape[1], directions, seed), np.random.default_rng(100 + seed)
        answers, spread = made.answer(rows, queries)
        sought.append(made.found())
        noise.append(float((spread / far).mean()))
        for epsilon in EPSILONS:
            root = math.sqrt(2 * rho_of(epsilon))
            off = answers - truth + rng.normal(size=(100, ASKED)) * spread / root
            price = math.sqrt(2 / math.pi) * far / root
            got.setdefault(epsilon, []).append(float((np.abs(off).mean(axis=0) / price).mean()))
    cells: list[object] = [f"{name}, {len(rows):,} x {rows.shape[1]}", directions]
    cells += [f"{max(sought):.3f}", f"{np.mean(noise):.2f}"]
    for found in got.values():
        cells.append(f"{np.mean(found):.2f} ± {np.std(found, ddof=1) / math.sqrt(SEEDS):.2f}")
    print(cells, flush=True)
    return cells


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--packages", type=Path, default=Path("packages"))
    options.add_argument("--directions", type=int, nargs="+", default=(256, 1024, 4096))
    given = options.parse_args()
    data = list(datasets(given.packages))
    rows = [one(name, values, k) for name, values in data for k in given.directions]
    head = ["data", "directions", "found", "noise alone", *(f"epsilon {e:g}" for e in EPSILONS)]
    text = table(head, rows) + (
        f"\n\nMean absolute error over the price of one query, ± one standard error over {SEEDS} draws of the "
        f"directions, 100 draws of the noise each, {ASKED} queries; {LEVELS} thresholds a direction. "
        + "\n\n".join(" ".join(part.split()) for part in (__doc__ or "").split("\n\n"))
    )
    print(text)
    if given.write:
        write_section("Distances: l2 by centred thresholds", text, COMMAND)


if __name__ == "__main__":
    main()
