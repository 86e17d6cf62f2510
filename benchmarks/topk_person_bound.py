"""Share of the true top 50 of an open catalogue, by how many items of a person count.

`sim.top` without a bound, with `max_items`, and with `items_per_user`, a public guess, which compares
plans. Three logs: word pairs and words by their authors (`--data`), and a made one: 5,000 persons of 14
items at the mean (a geometric law) of 4,000, drawn by a power law. Runs are alternated.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import numpy as np
from _results import parser, table, write_figure
from _topk_data import counts_of, reddit

import opendp_sim as sim

EPSILONS, SIZE, BOUNDS = (0.1, 0.4, 1.0), 50, (None, 5, 10, 20, 40, 75)
COMMAND = "python benchmarks/topk_person_bound.py --write --data FOLDER"


def made() -> tuple[np.ndarray, np.ndarray]:
    """Persons and their items, by a fixed seed."""
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(5000), rng.geometric(1 / 14, 5000))
    weight = 1 / (20.0 + np.arange(4000))
    return who, rng.choice(4000, len(who), p=weight / weight.sum())


def logs(folder: object) -> Iterator[tuple[str, int, np.ndarray, np.ndarray]]:
    """Name, a public guess of a person's items, persons, items."""
    yield "made", 14, *made()
    who, pairs = reddit(folder)  # type: ignore[arg-type]
    who = np.unique(who.astype(str), return_inverse=True)[1]
    yield "word pairs by authors", 14, who, pairs.astype(str)
    split = np.char.split(pairs.astype(str))
    yield "words by authors", 28, np.repeat(who, 2), np.concatenate([np.array(p) for p in split])


def main() -> None:
    given = parser(__doc__ or "")
    given.add_argument("--runs", type=int, default=6)
    options = given.parse_args()
    rows: list[list[object]] = []
    for name, guess, who, items in logs(options.data):
        names, item = np.unique(items, return_inverse=True)
        counts, _ = counts_of(who, item)
        best = set(np.argsort(-counts, kind="stable")[:SIZE].tolist())
        records = {"who": who.astype(np.int64), "item": item.astype(np.int64)}
        words = {"k": SIZE, "unit": "who", "ids": "int64", "items": "int64"}
        for epsilon in EPSILONS:
            fits = {
                most: sim.top("item", **words, epsilon=epsilon, max_items=most) for most in BOUNDS
            }
            fits[0] = sim.top("item", **words, epsilon=epsilon, items_per_user=guess)
            shares: dict[int | None, list[float]] = {most: [] for most in fits}
            for _ in range(options.runs):
                for most, fit in fits.items():
                    found = fit.apply(records, into=tempfile.mkdtemp())
                    shares[most].append(len(best & set(found["item"].tolist())) / SIZE)
            cells = [
                f"{np.mean(each):.2f} ± {np.std(each) / (options.runs - 1) ** 0.5:.2f}"
                for each in shares.values()
            ]
            rows.append(
                [f"{name}, {len(names):,} items", epsilon, *cells[:-1], f"{cells[-1]} ({guess})"]
            )
            print(rows[-1], flush=True)
    head = [
        "log",
        "epsilon",
        *(f"max_items {m or 'none'}" for m in BOUNDS),
        "items_per_user (guess)",
    ]
    text = (
        f"{table(head, rows)}\n\nMean over {options.runs} releases and its standard error, delta 1e-6. "
        + " ".join((__doc__ or "").split())
    )
    print(text)
    if options.write:
        write_figure("selection/top-k-person-bound", text, COMMAND)


if __name__ == "__main__":
    main()
