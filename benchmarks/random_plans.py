"""Errors that 24 random plans state, beside what their releases measure.

A question, columns, kernel or norm, epsilon and a size are drawn; `sim.recommend` plans them. The first of its
candidates is released again and again on made-up rows, and the error of the worst query (the worst column)
that 95 of 100 answers are within is set beside the plan's own number. A plan whose error depends on the data
has no number, and is counted apart.
"""

from __future__ import annotations

import os
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from benchmarks._results import parser, table, write_figure
from opendp_sim.accounting.release.release import Release
from opendp_sim.api.recommend import QUESTIONS, Candidate, Recommendation, recommend
from opendp_sim.core.apply_stable import whole_function
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import Rows

NAMES = ("density", "distances", "means", "regression", "classes")
PLANS, QUERIES = 24, 24
_WITHIN = 0.15


def drawn(seed: int) -> tuple[Recommendation, dict[str, Any]]:
    """A random question with everything that is public about it."""
    made = np.random.default_rng(seed)
    about: dict[str, Any] = {
        "question": NAMES[seed % len(NAMES)],
        "columns": int(made.integers(1, 4)),
        "size": int(made.integers(500, 5000)),
        "epsilon": float(np.round(10 ** made.uniform(-0.5, 0.7), 2)),
    }
    if about["question"] == "distances":
        about["norm"] = str(made.choice(["l1", "l2_squared"]))
    if about["question"] == "density":
        about["bandwidth"] = float(np.round(made.uniform(0.1, 0.5), 2))
    return recommend(**about), about


def truth(about: dict[str, Any], rows: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """The answers without privacy, by brute force."""
    apart = rows[:, None, :] - queries[None, :, :]
    if about["question"] == "means":
        return rows.mean(axis=0)
    if about["question"] == "density":
        return np.exp(-np.square(apart).sum(axis=2) / (2 * about["bandwidth"] ** 2)).sum(axis=0)
    power = np.abs(apart) if about["norm"] == "l1" else np.square(apart)
    return power.sum(axis=2).sum(axis=0)


def planned(best: Candidate, about: dict[str, Any], exact: np.ndarray) -> float:
    """The plan's own number; of a mean, at the true one."""
    if about["question"] != "means":
        return float(best.error or 0)
    return float(best.plan.forecast()["mean of release"].at(about["size"], list(exact)) or 0)


def measured(best: Candidate, about: dict[str, Any], draws: int, seed: int) -> tuple[float, float]:
    """The plan's number, and what was measured.

    That is the largest root mean square error of a query, times what 95 of 100 normal errors are within."""
    made = np.random.default_rng(1000 + seed)
    width = about["columns"]
    rows = made.uniform(0.7, 1.0, (about["size"], width))  # in a corner, far from the middle
    queries = np.vstack(
        [np.zeros((1, width)), np.ones((1, width)), made.uniform(0, 1, (QUERIES - 2, width))]
    )
    (output,), (release,) = best.plan.outputs.values(), best.plan.releases.values()
    cells: Any = {f"x{at + 1}": rows[:, at] for at in range(width)}
    for stage in output.stage.stages:
        cells = whole_function(stage.claim)(cells)
    ((key, words),) = QUESTIONS[about["question"]][0].items()
    post, exact, claim = lookup(key)(**words), truth(about, rows, queries), release.bound.claim
    off = []
    for _ in range(draws):
        of = Release.of_sketch(output.stage.stages, claim.function(cells), claim.noise, {})
        bound = post.bind(of.released, Symmetric())
        answer = bound.function(of.arrays, of.queries(Rows(queries)) if bound.asks else None)
        name = "mean" if key == "totals" else key
        off.append(np.asarray(answer[name])[:, 0] - exact)
    stated = planned(best, about, exact)
    return stated, 1.96 * float(np.sqrt(np.square(off).mean(axis=0)).max())


def main() -> None:
    given = parser(__doc__ or "")
    given.add_argument("--draws", type=int, default=300)
    given.add_argument("--plans", type=int, default=PLANS)
    options = given.parse_args()
    rows, ratios, unknown = [], [], 0
    for seed in range(options.plans):
        found, about = drawn(seed)
        texts = [
            about.pop("question"),
            " ".join(f"{word} {value}" for word, value in about.items()),
        ]
        about["question"] = texts[0]
        if texts[0] in ("regression", "classes"):
            assert all(one.error is None for one in found.unknown)
            models = ", ".join(one.mechanism for one in found.unknown)
            rows.append([*texts, models, "not known in advance", "", ""])
            unknown += 1
            continue
        best = found.best
        stated, value = measured(best, about, options.draws, seed)
        ratios.append(value / stated)
        rows.append(
            [*texts, best.name, f"{stated:.4g} {best.unit}", f"{value:.4g}", f"{ratios[-1]:.2f}"]
        )
        print(rows[-1], flush=True)
    near = sum(abs(ratio - 1) <= _WITHIN for ratio in ratios)
    over = sum(ratio > 1 + _WITHIN for ratio in ratios)
    head = ["question", "public facts", "first of `recommend`", "planned", "measured", "ratio"]
    text = (
        f"{table(head, rows)}\n\n{near} of {len(ratios)} plans with a number are within 15 % of what was measured, "
        f"{over} err more than that beyond their number; {unknown} plans of models state none. {options.draws} "
        f"releases each; records lie in a corner of the box. " + " ".join((__doc__ or "").split())
    )
    print(text)
    if options.write:
        write_figure("promises/random-plans", text, "python -m benchmarks.random_plans --write")


if __name__ == "__main__":
    main()
