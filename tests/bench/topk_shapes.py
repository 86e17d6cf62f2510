"""Daily Covid-19 cases, and a histogram with one step: where a stable set wins, where peeling does."""

from __future__ import annotations

import numpy as np
from _results import parser, table, write_section
from _topk_data import covid
from _topk_mechanisms import dense, score, solved, ways

from opendp_sim.accounting.conversion import zcdp_to_epsilon
from opendp_sim.measurements._selection import gaussian_rho, peel_rho

DELTA = 1e-6


def step_histogram(k: int, items: int, drop: int) -> np.ndarray:
    """``k`` items around 1,000 votes, then ``drop`` votes of nothing, then a slow tail."""
    top = 1000 + (np.arange(k)[::-1] * 7) % 50
    tail = np.maximum(1000 - drop - np.arange(items - k) // 4, 0)
    return np.concatenate([top, tail]).astype(np.int64)


def steps(runs: int) -> str:
    rows, overtaken = [], {}
    names = ("test_peel, curve", "peel, curve", "stable_top_k clipped, curve", "stable_top_k published, filled",
             "limited_domain, curve")  # fmt: skip
    chosen = [way for way in ways() if way.name in names]
    for drop in (25, 100):
        for k in (10, 50, 200, 500):
            counts, found = step_histogram(k, 2000, drop), {}
            for way in chosen:
                claim = solved(
                    lambda s, w=way, k=k: w.build(k, s, DELTA), dense(counts), 1.0, DELTA
                )
                found[way.name] = score(claim, counts, k, runs).share
            rows.append([drop, k, *(found[name] for name in names)])
            if found["peel, curve"] > found["stable_top_k clipped, curve"]:
                overtaken.setdefault(drop, []).append(k)
            print(rows[-1], flush=True)
    said = (
        "; ".join(f"drop {d}: k {', '.join(map(str, ks))}" for d, ks in overtaken.items())
        or "nowhere"
    )
    return (
        table(["drop", "k", *names], rows)
        + f"\n\npeeling ahead of the stable set at: {said}. eps 1, delta 1e-6."
    )


def windows(folder, runs: int) -> str:
    """Recall of each day's ten states with most new cases, one total budget for ten days."""
    days, _, new = covid(folder)
    rows = []
    for start in (0, 15, 30, 45):
        part = new[start : start + 10]
        out = [f"{days[start]} and nine days"]
        for epsilon in (0.4, 1.0):
            # One count a person: a person is in one day, so days are disjoint and do not add up.
            rho = _rho(epsilon)
            gauss = next(
                s for s in np.geomspace(0.1, 1e4, 4000) if gaussian_rho(float(s), 1) <= rho
            )
            peel = next(
                s for s in np.geomspace(0.1, 1e5, 4000) if 10 * peel_rho(10, float(s), 1) <= rho
            )
            split = next(
                s for s in np.geomspace(0.1, 1e5, 4000) if peel_rho(10, float(s), 1) <= rho
            )
            out += [_recall(part, runs, kind, float(s)) for kind, s in
                    (("gauss", gauss), ("peel", split), ("peel", peel))]  # fmt: skip
        rows.append(out)
    head = ["window"]
    for epsilon in (0.4, 1.0):
        head += [f"histogram, disjoint days, eps {epsilon}", f"peel, disjoint days, eps {epsilon}",
                 f"peel, ten releases of one person, eps {epsilon}"]  # fmt: skip
    return table(head, rows)


def _rho(epsilon: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if zcdp_to_epsilon(middle, DELTA) <= epsilon else (low, middle)
    return low


def _recall(part: np.ndarray, runs: int, kind: str, scale: float) -> float:
    from opendp_sim.measurements._selection import OPENDP

    found = []
    for day in part:
        real = set(np.argsort(-day, kind="stable")[:10].tolist())
        for _ in range(runs):
            if kind == "gauss":
                got = np.argsort(-OPENDP.noisy(day, scale), kind="stable")[:10]
            else:
                got = OPENDP.top(day, 10, scale)
            found.append(len(real & set(map(int, got))) / 10)
    return float(np.mean(found))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=5)
    args = options.parse_args()
    text = "Recall of the daily top 10 of the states, delta 1e-6.\n\n" + windows(
        args.data, args.runs
    )
    text += (
        "\n\nShare of the true top k, one step of `drop` votes after rank k, 2,000 items.\n\n"
        + steps(args.runs)
    )
    print(text)
    if args.write:
        write_section(
            "topk_shapes", text, f"python tests/bench/topk_shapes.py --write --runs {args.runs}"
        )


if __name__ == "__main__":
    main()
