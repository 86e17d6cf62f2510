"""A hundred thousand adversarial query streams against the individual filter."""

from __future__ import annotations

import time
from fractions import Fraction

import numpy as np

from benchmarks._results import parser, table, write_section
from opendp_sim.measurements.knn._impl.privacy_filter import UNITS, IndividualFilter

SCHEDULES, PERSONS, STEPS = 200, 500, 60


def wanted(kind: int, step: int, most: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """What an adversary asks for next: distances within, at and far above what is affordable."""
    if kind == 0:  # everything at once
        return most
    if kind == 1:  # half of the rest, again and again
        return -(-most // 2)
    if kind == 2:  # one step less than everything, then crumbs
        return np.maximum(most - 1, 0) if step == 0 else np.minimum(most, 1)
    if kind == 3:  # random, often too much
        return rng.integers(0, 2 * most + 2)
    return np.full(len(most), 255)  # the heaviest weight there is, always


def main() -> None:
    args = parser(__doc__).parse_args()
    rng = np.random.default_rng(7)
    start, worst, exhausted = time.process_time(), Fraction(0), 0
    for _ in range(SCHEDULES):
        rho = float(np.exp(rng.uniform(np.log(1e-4), np.log(5))))
        purses = IndividualFilter(rho, PERSONS)
        kinds = rng.integers(0, 5, PERSONS)
        squares = []
        for step in range(STEPS):
            # Scales from hopelessly dear (a unit costs more than a purse) to nearly free.
            scale = float(np.exp(rng.uniform(np.log(0.3), np.log(3000)))) / np.sqrt(2 * rho)
            price = purses.price(scale)
            who = rng.permutation(PERSONS)[: rng.integers(1, PERSONS)]
            most = purses.affordable(who, price)
            asked = np.zeros(len(who), dtype=np.int64)
            for kind in range(5):
                mine = kinds[who] == kind
                asked[mine] = wanted(kind, step, most[mine], rng)
            given = np.minimum(asked, most)
            purses.charge(who, given, price)
            paid = np.zeros(PERSONS, dtype=np.int64)
            paid[who] = given
            squares.append((paid, Fraction(1) / (2 * Fraction(scale) ** 2 * Fraction(rho))))
        left = purses.snapshot()
        assert ((left >= 0) & (left <= UNITS)).all()
        # The true spending of everyone, in rational numbers: the sum of d**2 / (2 s**2), over rho.
        shares = [share for _, share in squares]
        numerators = np.stack([paid for paid, _ in squares]).T.tolist()
        for distances in numerators:
            spent = sum(
                (d * d * s for d, s in zip(distances, shares, strict=True) if d), Fraction(0)
            )
            assert spent <= 1, "a record exceeded its budget"
            worst = max(worst, spent)
            exhausted += spent > Fraction(999, 1000)
    gap = float(1 - worst)
    text = table(
        ["streams", "steps each", "above B", "largest spent fraction", "streams above 99.9 % of B"],
        [[f"{SCHEDULES * PERSONS:,}", STEPS, 0, f"1 - {gap:.2e}", f"{exhausted:,}"]],
    )
    text += (
        "\n\nFive adversaries (everything at once, half of the rest, all but one then crumbs, random and "
        "too much, the heaviest weight), random scales and budgets; spending is re-computed in "
        f"rational numbers and compared exactly. CPU time {time.process_time() - start:.0f} s."
    )
    print(text)
    if args.write:
        write_section(
            "Private prediction: adversarial streams",
            text,
            "python -m benchmarks.knn_streams --write",
        )


if __name__ == "__main__":
    main()
