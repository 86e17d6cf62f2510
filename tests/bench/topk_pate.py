"""Multi-label PATE on newsgroup tags: epsilon at aligned accuracy, four rules.

The tags of a message are the words of its newsgroup's name (comp, sys, mac, hardware, ...): real
documents with several true labels each, though from a closed set of twenty combinations. Teachers are
logistic regressions on disjoint parts of the training messages that vote for the tags of the group
they predict. The unit is one training message replaced: its teacher is retrained, so one row of votes
goes and another comes, d_in = 2, and thresholds are calibrated for two. A rule is scored over a fixed
number of public queries, those without an answer included, by F1 against the true tags and by the
share of queries whose whole set is right. Its epsilon is the least at which the mean score of some
runs comes within a tolerance of the noiseless majority's.
"""

from __future__ import annotations

import warnings

import numpy as np
from _results import parser, table, write_section
from _topk_mechanisms import epsilon_of

from opendp_sim.measurements.pate_labels import PateLabels
from opendp_sim.spaces.metrics import Symmetric
from opendp_sim.spaces.rows import RealRows

DELTA = 1e-6
REPLACED = 2
"""d_in: one message replaced is one teacher's row removed and another added."""
LOSSES = (0.01, 0.03, 0.1)


def tags_of(names: np.ndarray, tags: list[str]) -> np.ndarray:
    return np.array([[tag in str(name).split(".") for tag in tags] for name in names])


def votes(folder, teachers: int, queries: int) -> tuple[np.ndarray, np.ndarray]:
    """Return votes (teachers, queries, tags) and the true tags (queries, tags)."""
    from sklearn.linear_model import LogisticRegression

    data = np.load(folder / "newsgroups_minilm.npz")
    x, y = data["x_train"].astype(float), data["y_train"]
    tags = sorted({word for name in np.unique(y) for word in str(name).split(".")})
    order = np.random.default_rng(1).permutation(len(x))
    asked = np.random.default_rng(2).permutation(len(data["x_test"]))[:queries]
    test = data["x_test"][asked].astype(float)
    out = np.zeros((teachers, queries, len(tags)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few messages a group; a cut-off fit is a teacher too
        for number, part in enumerate(np.array_split(order, teachers)):
            model = LogisticRegression(C=30.0, max_iter=60).fit(x[part], y[part])
            out[number] = tags_of(model.predict(test), tags)
    return out, tags_of(data["y_test"][asked], tags)


def scores(answers, real: np.ndarray) -> tuple[float, float]:
    """Return F1 over all pairs of query and tag, and the share of queries answered exactly."""
    said = np.zeros_like(real, dtype=bool)
    for row, answer in enumerate(answers):
        said[row, list(answer) if answer is not None else []] = True
    hit = (said & real).sum()
    return 2 * hit / max(said.sum() + real.sum(), 1), float((said == real).all(axis=1).mean())


def curve(
    cast: np.ndarray, real: np.ndarray, rule: dict, scales, runs: int
) -> list[tuple[float, np.ndarray]]:
    """Return (epsilon, mean scores) at each scale."""
    teachers, queries, labels = cast.shape
    flat = cast.reshape(teachers, queries * labels)
    found = []
    for scale in scales:
        pate = PateLabels(
            labels=labels, rule=rule, scale=float(scale), delta=DELTA / 2, distance=REPLACED
        )
        claim = pate.bind(RealRows(width=queries * labels), Symmetric())
        score = np.mean([scores(claim.function(flat), real) for _ in range(runs)], axis=0)
        found.append((epsilon_of(claim, DELTA, REPLACED), score))
    return found


def compared(folder, teachers: int, queries: int, runs: int) -> tuple[str, dict[str, list[float]]]:
    """Return a table for one number of teachers, and the epsilons by rule."""
    cast, real = votes(folder, teachers, queries)
    quorum = teachers // 2
    exact = scores([np.flatnonzero(c > quorum) for c in cast.sum(axis=0)], real)
    fine, coarse = (
        np.geomspace(0.02, 0.3, 20) * teachers / 4,
        np.geomspace(0.02, 0.4, 20) * teachers,
    )
    rules = {
        "stable_top_k": ({"stable": {"k_max": 6}}, fine),
        "tau-approximation, tau 3": ({"gaussian": {"quorum": quorum, "tau": 3}}, coarse),
        "tau-approximation, tau 5": ({"gaussian": {"quorum": quorum, "tau": 5}}, coarse),
        "plain Gaussian PATE": ({"gaussian": {"quorum": quorum}}, coarse),
    }
    rows, least = [], {}
    for name, (rule, scales) in rules.items():
        points = curve(cast, real, rule, scales, runs)
        least[name] = [
            min((e for e, score in points if score[which] >= exact[which] - loss), default=np.nan)
            for which in (0, 1)
            for loss in LOSSES
        ]
        best = np.max([score for _, score in points], axis=0)
        rows.append([name, float(best[0]), *least[name][:3], float(best[1]), *least[name][3:]])
        print(teachers, name, [(round(e, 2), s.round(3).tolist()) for e, s in points], flush=True)
    gaps = -np.sort(-cast.sum(axis=0), axis=1)[:, :7]
    clear = np.median((gaps[:, :-1] - gaps[:, 1:]).max(axis=1)) / teachers
    text = (
        f"\n{teachers} teachers; noiseless majority: F1 {exact[0]:.3f}, whole sets {exact[1]:.3f}; "
        f"median clearest gap {clear:.2f} of the teachers.\n\n"
    )
    head = ["rule", "best F1", *(f"eps, F1 within {v}" for v in LOSSES),
            "best whole sets", *(f"eps, sets within {v}" for v in LOSSES)]  # fmt: skip
    return text + table(head, rows), least


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--teachers", type=int, nargs="+", default=[100, 200])
    options.add_argument("--queries", type=int, default=100)
    options.add_argument("--runs", type=int, default=10)
    args = options.parse_args()
    text = (
        f"Unit: one training message replaced, d_in = {REPLACED} (one teacher's row goes, another "
        f"comes). {args.queries} queries, 33 tags, 2.65 true tags a message; delta {DELTA}, half of it "
        f"for the stability tests; {args.runs} runs a scale. A query without an answer counts as an "
        "empty set.\n"
    )
    for teachers in args.teachers:
        part, least = compared(args.data, teachers, args.queries, args.runs)
        stable, plain = least["stable_top_k"], least["plain Gaussian PATE"]
        tau = np.fmin(*(least[f"tau-approximation, tau {t}"] for t in (3, 5)))
        ratio = [f"{p / s:.2f}" for p, s in zip(plain, stable, strict=True)]
        best = [f"{t / s:.2f}" for t, s in zip(tau, stable, strict=True)]
        text += (
            f"{part}\n\nEpsilon over that of stable_top_k, column by column: plain {', '.join(ratio)}; "
            f"the better tau {', '.join(best)}.\n"
        )
    text += (
        "\nThe published figures are on 40 attributes of faces and were not reproduced: those images are "
        "in no package, and accuracy there may be of answered queries alone."
    )
    print(text)
    if args.write:
        teachers = " ".join(map(str, args.teachers))
        command = (
            f"python tests/bench/topk_pate.py --write --teachers {teachers} --runs {args.runs}"
        )
        write_section("topk_pate", text, command)


if __name__ == "__main__":
    main()
