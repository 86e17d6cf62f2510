"""How far `top_k` is behind peeling over a public catalogue, computed: no release, no error of one.

Peeling draws the k first of clocks with rates e**(votes / s), so the chance that an item is drawn is an integral
over the time of its own clock; `gated_peel` gives the true set with the chance that its gate passes, else peels with
what is left. The histograms of `topk_defaults`, single releases at delta = 1e-6.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from _results import parser, table, write_section
from _topk_mechanisms import dense, solved
from topk_defaults import histograms

from opendp_sim.measurements.selection.gated_peel import GatedPeel, gate_for
from opendp_sim.measurements.selection.peel import Peel
from opendp_sim.measurements.selection.top_k import share_of_the_test
from tests._enumeration import gate_chance

DELTA, GRID, EPSILONS = 1e-6, 4001, (0.1, 0.4, 0.5, 1.0, 2.0)
SHARES = (0.1, 0.05, 0.02, 0.01, 0.005)


def share_of_peeling(counts: np.ndarray, k: int, scale: float) -> float:
    """The expected share of the true top k among the k first of clocks of rates e**(votes / scale)."""
    counts = np.sort(counts)[::-1]
    rates = np.exp((counts - counts[0]) / scale)
    # Log times from before the first clock to after the k-th: the least rates are those of no votes.
    times = np.exp(np.linspace(np.log(1e-9 / rates.sum()), np.log(60.0 * (k + 1) / rates[k]), GRID))
    none = np.exp(-np.outer(times, rates[:k]))  # the true ones, which are taken out one by one
    others = np.zeros((GRID, k))
    others[:, 0] = 1.0
    for value, many in zip(*np.unique(counts[k:], return_counts=True), strict=True):
        stay = np.exp(-times * np.exp((value - counts[0]) / scale))
        for _ in range(many) if many < 40 else ():
            others = _one_more(others, stay)
        if many >= 40:  # so many alike: their own law at once
            others = _many_more(others, stay, many, k)
    total = 0.0
    for i in range(k):
        ahead = others
        for j in range(k):
            if j != i:
                ahead = _one_more(ahead, none[:, j])
        below = ahead.sum(axis=1)  # at most k - 1 of the others have rung
        mass = np.diff(-none[:, i], prepend=-1.0)
        total += float((mass * below).sum())
    return total / k


def _one_more(law: np.ndarray, stay: np.ndarray) -> np.ndarray:
    """The law of a number of clocks, cut at its columns, with one more that has not rung with chance ``stay``."""
    out = law * stay[:, None]
    out[:, 1:] += law[:, :-1] * (1 - stay)[:, None]
    return out


def _many_more(law: np.ndarray, stay: np.ndarray, many: int, k: int) -> np.ndarray:
    from scipy.stats import binom

    each = binom.pmf(np.arange(k)[None, :], many, (1 - stay)[:, None])
    out = np.zeros_like(law)
    for drawn in range(k):
        out[:, drawn:] += law[:, : k - drawn] * each[:, drawn : drawn + 1]
    return out


def pass_chance(counts: np.ndarray, claim: object, mechanism: GatedPeel) -> float:
    rounds = int(claim.expected["rounds"])
    noise = 2 * mechanism.scale * ((1 - mechanism.share) / (mechanism.share * rounds)) ** 0.5
    gate, threshold = gate_for("bench", rounds, mechanism.scale, noise, DELTA, 1)
    falling = np.sort(counts)[::-1]
    gap = int(falling[mechanism.k - 1] - falling[mechanism.k])
    return gate_chance(gate.right, noise, threshold - gap)


def main() -> None:
    given = parser(__doc__ or "")
    given.add_argument("--packages", type=Path, required=True)
    given.add_argument("--k", type=int, nargs="+", default=(10,))
    given.add_argument("--epsilon", type=float, nargs="+", default=EPSILONS)
    options = given.parse_args()
    rows: list[list[object]] = []
    for name, counts in histograms(options.packages).items():
        for k in options.k:
            for epsilon in options.epsilon:
                made: dict[str, GatedPeel] = {}

                def peel(s: float, k: int = k) -> Peel:
                    return Peel(k=k, scale=s, accounting="curve")

                whole = solved(peel, dense(counts), epsilon, DELTA)
                best = share_of_peeling(counts, k, whole.expected["deviation"] * 6**0.5 / np.pi)
                cells = []
                for share in dict.fromkeys((share_of_the_test(k), *SHARES)):

                    def gated(
                        s: float, k: int = k, w: float = share, made: dict[str, GatedPeel] = made
                    ) -> GatedPeel:
                        made["last"] = GatedPeel(
                            k=k, scale=s, delta=DELTA, share=w, accounting="curve"
                        )
                        return made["last"]

                    claim = solved(gated, dense(counts), epsilon, DELTA)
                    mechanism = made["last"]
                    passes = pass_chance(counts, claim, mechanism)
                    rest = share_of_peeling(counts, k, mechanism.scale)
                    found = passes + (1 - passes) * rest
                    cells.append(f"{best - found:+.4f}")
                rows.append([f"{name}, {len(counts):,} items", k, epsilon, f"{best:.4f}", *cells])
                print(rows[-1], flush=True)
    shares = dict.fromkeys((share_of_the_test(options.k[0]), *SHARES))
    head = ["histogram", "k", "epsilon", "peel", *(f"behind, share {w:g}" for w in shares)]
    text = table(head, rows) + "\n\n" + " ".join((__doc__ or "").split())
    print(text)
    if options.write:
        command = "python benchmarks/topk_exact.py --write --packages FOLDER"
        write_section("topk_exact", text, command)


if __name__ == "__main__":
    main()
