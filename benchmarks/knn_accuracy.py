"""Accuracy of private prediction against epsilon, and against the number of queries.

Every run is one line of a file (``--keep``), so that the whole can be done in parts (``--minutes``): a run
that is in the file is not repeated, and the tables are made of the file when nothing is missing.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks import _knn as k
from benchmarks._results import parser, table, write_figure
from opendp_sim.measurements.knn._impl.calibration import Rule

EPSILONS = (0.5, 1.0, 2.0)
COUNTS = (100, 500, 1000, 2000, 5000)
MAIN = 2000
CODES, TABLES = {"sign_codes": {}}, {"sign_hashes": {"tables": 60, "bits": 8}}
OURS = {
    "Ind-KNN, cosine": {},
    "Ind-KNN, cosine, reuse": {"reuse": True},
    "Ind-KNN, cosine, hashed": {"search": CODES},
    "Ind-KNN, cosine, hashed, reuse": {"search": CODES, "reuse": True},
    "Ind-KNN, rbf": {"kernel": "rbf"},
    "Ind-KNN, rbf, reuse": {"kernel": "rbf", "reuse": True},
    "Ind-KNN, rbf, hashed": {"kernel": "rbf", "search": CODES},
    "Ind-KNN, rbf, hashed, reuse": {"kernel": "rbf", "search": CODES, "reuse": True},
}
LIKE = "Ind-KNN, cosine, shown 1,000 more public queries"
"""Only for few queries, which alone tell little of how near the nearest records are."""
CORE = tuple(OURS)[:3] + tuple(OURS)[4:5]
ABLATION = "Ind-KNN, cosine, 60 tables of 8 bits"
HYBRID, SAMPLED, MEANS = "Hybrid", "Private kNN, tuned", "Noisy class means"
BEFORE = "Hybrid, as it read class means before"
DESCENT, FIXED, TUNED = (
    "Linear, noisy gradient descent, tuned",
    "Linear, DP-SGD (Opacus), one setting",
    "Linear, DP-SGD (Opacus), tuned",
)
PLAIN = "kNN without privacy"
ONE_OFF = (MEANS, DESCENT, FIXED, TUNED)
"""Released once, whatever the number of queries."""
GRID = {
    "mnist": [(r, n) for r in (0.03, 0.1, 0.3) for n in (100, 300, 1000, 3000) if n < 9000 * r],
    "newsgroups": [(r, n) for r in (0.1, 0.3, 1.0) for n in (50, 150, 400, 1000)],
    "digits": [(r, n) for r in (0.2, 0.5, 1.0) for n in (20, 60, 130)],
}
STEPS = [(20, 4.0, 0.5), (40, 8.0, 0.5), (80, 8.0, 0.3)]
SGD = [(0.1, 20, 4.0, 0.1), (0.1, 20, 4.0, 0.3), (0.05, 20, 2.0, 0.3), (0.1, 20, 2.0, 1.0)]
"""Sampling rate, epochs, step size, clip. The first is the one setting."""
_LARGE = 20_000


@dataclass(frozen=True)
class Run:
    """One method at one budget, number of queries and repetition."""

    set: str
    method: str
    epsilon: float
    queries: int
    rep: int

    @property
    def key(self) -> str:
        return json.dumps([self.set, self.method, self.epsilon, self.queries, self.rep])


class Kept:
    """The runs that are done, a line each: which queries, whether right, CPU seconds."""

    def __init__(self, path: Path | None) -> None:
        self._path, self.lines = path, {}
        for line in path.read_text().splitlines() if path and path.exists() else ():
            self.lines.update(json.loads(line))

    def get(self, key: str, make: Callable[[], object]) -> object:
        if key not in self.lines:
            self.lines[key] = made = make()
            if self._path:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({key: made}) + "\n")
        return self.lines[key]


def few_make_more(count: int) -> int:
    """Return how many runs of few queries stand for one of many."""
    return max(1, min(5, 1000 // count))


def runs_of(name: str, reps: int, torch: str | None) -> list[Run]:
    """Return all runs of a set; repetitions outermost, so that what is there is even.

    What takes longest on a large set comes last, and few of it there.
    """
    small = name != "mnist"
    linear = ONE_OFF if torch else ONE_OFF[:2]
    quick, slow = (*OURS, HYBRID, SAMPLED, MEANS), (*linear[1:], ABLATION)
    counted = (*OURS, HYBRID, SAMPLED) if small else (*CORE, HYBRID, SAMPLED)
    out = []
    for rep in range(reps):
        out.append(Run(name, PLAIN, 0.0, MAIN, rep))
        out += [Run(name, method, epsilon, MAIN, rep) for epsilon in EPSILONS for method in quick]
        for count in COUNTS:
            if count != MAIN:
                often = few_make_more(count) if small or count == COUNTS[0] else 1
                out += [
                    Run(name, method, 2.0, count, again)
                    for again in range(rep * often, (rep + 1) * often)
                    for method in (counted if count > COUNTS[0] else (*counted, LIKE))
                ]
        out += [Run(name, method, epsilon, MAIN, rep) for method in slow for epsilon in EPSILONS]
    return out


COLUMN = ("Ind-KNN, cosine", "Ind-KNN, cosine, reuse", BEFORE, HYBRID, SAMPLED, MEANS, DESCENT)
"""What stands in a column of its own (``--column``)."""


def column(
    kept: Kept, data: k.Set, epsilon: float, reps: int, stop: float, torch: str | None, only: list
) -> str:
    """Return the first table's main rows at another epsilon, to be put beside it by hand."""
    shown = only or [*COLUMN, *((FIXED, TUNED) if torch else ())]
    runs = [Run(data.name, m, epsilon, MAIN, rep) for rep in range(reps) for m in shown]
    done(kept, data, runs, torch, stop)
    answers = Answers(kept, data, runs)
    rows = [[m, str(answers.cell(m, epsilon, MAIN))] for m in shown]
    return table([f"% right, {data.name}", f"epsilon {epsilon:g}"], rows)


def best(kept: Kept, run: Run, choices, score) -> tuple:
    """Return the setting with the best score on the test labels of the first repetition, kept."""
    key = "choice " + json.dumps([run.set, run.method, run.epsilon, run.queries])
    found = kept.get(key, lambda: list(choices[int(np.argmax(score(choices)))]))
    return tuple(found)


def predicted(data: k.Set, run: Run, kept: Kept, torch: str | None) -> np.ndarray:
    of, first = k.asked(data, run.queries, run.rep), k.asked(data, run.queries, 0)
    epsilon, rho = run.epsilon, k.rho_of(run.epsilon) if run.epsilon else 0.0
    if run.method in OURS:
        return k.ind_knn(data, of, rho, **OURS[run.method])
    if run.method == ABLATION:
        return k.ind_knn(data, of, rho, search=TABLES)
    if run.method == HYBRID:
        return k.hybrid(data, of, rho)
    if run.method == BEFORE:
        return k.hybrid_as_it_was(data, of, rho)
    if run.method == MEANS:
        return k.class_means(data, of, rho)
    if run.method == FIXED:
        return k.opacus(torch, data, of, epsilon, SGD[:1])[0]
    some = min(500, len(first))

    def hits(labels):
        return float((labels == first.labels[: len(labels)]).mean())

    def sampled(setting):
        several = [k.asked(data, run.queries, rep) for rep in range(few_make_more(run.queries))]
        found = [k.private_knn(data, of, epsilon, *setting, some=some) for of in several]
        right = [f == of.labels[:some] for f, of in zip(found, several, strict=True)]
        return float(np.mean(right))

    if run.method == PLAIN:
        found = best(
            kept, run, [(5,), (20,)], lambda c: [hits(k.plain_knn(data, first, *s)) for s in c]
        )
        return k.plain_knn(data, of, *found)
    if run.method == SAMPLED:
        found = best(kept, run, GRID[run.set], lambda c: [sampled(s) for s in c])
        return k.private_knn(data, of, epsilon, *found)
    if run.method == LIKE:
        shown = np.concatenate([of.once, data.queries[-1000:]])
        return k.ind_knn(data, replace(of, once=shown), rho)
    if run.method == DESCENT:
        found = best(
            kept, run, STEPS, lambda c: [hits(k.noisy_gradient(data, first, rho, *s)) for s in c]
        )
        return k.noisy_gradient(data, of, rho, *found)
    # Training costs minutes on a large set: chosen once there, at the least budget.
    at = EPSILONS[0] if data.size > _LARGE else epsilon
    found = best(
        kept,
        replace(run, epsilon=at),
        SGD,
        lambda c: [hits(p) for p in k.opacus(torch, data, first, at, c)],
    )
    return k.opacus(torch, data, of, epsilon, [found])[0]


def measured(data: k.Set, run: Run, kept: Kept, torch: str | None) -> dict:
    start = sum(os.times()[:4])  # with children
    of = k.asked(data, run.queries, run.rep)
    right = predicted(data, run, kept, torch) == of.labels
    return {
        "right": np.packbits(right).tobytes().hex(),
        "cpu": round(sum(os.times()[:4]) - start, 2),
    }


def done(kept: Kept, data: k.Set, runs: list[Run], torch: str | None, stop: float) -> bool:
    for run in runs:
        if time.monotonic() > stop:
            return False
        kept.get(run.key, lambda run=run: measured(data, run, kept, torch))
    return True


@dataclass(frozen=True)
class Cell:
    """A share of right answers and its standard error, in points.

    The error is the larger of two: over different queries (repetitions averaged), over repetitions.
    """

    value: float
    error: float

    @classmethod
    def of(cls, values: list[np.ndarray], which: list[np.ndarray]) -> Cell:
        """Average values of single queries, one array a repetition."""
        place = np.concatenate(which)
        value, times = np.bincount(place, np.concatenate(values)), np.bincount(place)
        each = value[times > 0] / times[times > 0]
        means = np.array([v.mean() for v in values])
        error = each.std(ddof=1) / len(each) ** 0.5
        if len(means) > 2:
            error = max(error, means.std(ddof=1) / len(means) ** 0.5)
        return cls(100 * float(means.mean()), 100 * float(error))

    def __str__(self) -> str:
        return "" if math.isnan(self.value) else f"{self.value:.1f} ± {self.error:.1f}"


class Answers:
    """Right or wrong, by query, of everything kept about one set."""

    def __init__(self, kept: Kept, data: k.Set, runs: list[Run]) -> None:
        self._found, self._which = defaultdict(list), defaultdict(list)
        for run in runs:
            if run.key not in kept.lines:
                continue
            bits = np.frombuffer(bytes.fromhex(kept.lines[run.key]["right"]), dtype=np.uint8)
            at = run.method, run.epsilon, run.queries
            self._found[at].append(np.unpackbits(bits)[: run.queries].astype(float))
            self._which[at].append(k.asked(data, run.queries, run.rep).which)

    def _at(self, method: str, epsilon: float, queries: int):
        if method == PLAIN:
            return method, 0.0, MAIN
        return method, epsilon, MAIN if method in ONE_OFF else queries

    def cell(self, method: str, epsilon: float, queries: int) -> Cell:
        at = self._at(method, epsilon, queries)
        if at not in self._found:
            return Cell(float("nan"), float("nan"))
        return Cell.of(self._found[at], self._which[at])

    def ahead(self, one: str, other: str, epsilon: float, queries: int) -> Cell:
        """Return how far one method is ahead: query by query where both were asked the same."""
        a, b = self._at(one, epsilon, queries), self._at(other, epsilon, queries)
        if not {a, b} <= set(self._found):
            return Cell(float("nan"), float("nan"))
        if self._which[a][0].shape == self._which[b][0].shape:
            gaps = [x - y for x, y in zip(self._found[a], self._found[b], strict=False)]
            return Cell.of(gaps, self._which[a][: len(gaps)])
        left, right = self.cell(one, epsilon, queries), self.cell(other, epsilon, queries)
        return Cell(left.value - right.value, (left.error**2 + right.error**2) ** 0.5)


def advice(answers: Answers, data: k.Set, cells, linear) -> list[list[str]]:
    """Return what a plan says from public numbers, beside what was best."""
    rules = [Rule(k.rho_of(e), n, data.size, len(data.grid.labels)) for e, n in cells]
    said = [
        "Ind-KNN" if not r.crowded else "one-off" if r.overcrowded else "one-off or hybrid"
        for r in rules
    ]
    kinds = {"Ind-KNN": ("Ind-KNN, cosine",), "hybrid": (HYBRID,), "one-off": linear}
    best = []
    for cell in cells:
        tops = {
            kind: np.nanmax([answers.cell(m, *cell).value for m in of])
            for kind, of in kinds.items()
        }
        tops = {kind: value for kind, value in tops.items() if not math.isnan(value)}
        first, second = sorted(tops, key=tops.get, reverse=True)[:2]
        best.append(f"{first} (+{tops[first] - tops[second]:.1f} on {second})")
    return [
        ["Neighbourhoods, in classes", *(f"{r.coarseness:.2f}" for r in rules)],
        ["The plan advises", *said],
        ["Best measured", *best],
    ]


def report(kept: Kept, data: k.Set, runs: list[Run], torch: str | None) -> str:
    answers = Answers(kept, data, runs)
    linear = ONE_OFF if torch else ONE_OFF[:2]
    budgets = [(epsilon, MAIN) for epsilon in EPSILONS]
    counts = [(2.0, count) for count in COUNTS]
    heads = [f"epsilon {e:g}" for e, _ in budgets], [f"T = {n:,}" for _, n in counts]
    shown = (
        (*OURS, ABLATION, HYBRID, SAMPLED, *linear, PLAIN),
        (*OURS, LIKE, HYBRID, SAMPLED, *linear),
    )

    def wide(head, methods, cells):
        rows = [[m, *(str(answers.cell(m, *cell)) for cell in cells)] for m in methods]
        return table(["% right", *head], rows)

    pairs = [("Ind-KNN, cosine", SAMPLED), ("Ind-KNN, rbf", SAMPLED), (LIKE, SAMPLED)]
    pairs += [("Ind-KNN, cosine", m) for m in linear]
    pairs += [(HYBRID, "Ind-KNN, cosine"), (HYBRID, MEANS)]
    ahead = [
        [f"{one} - {other}", *(str(answers.ahead(one, other, *c)) for c in [*budgets, *counts])]
        for one, other in pairs
    ]
    ahead += advice(answers, data, [*budgets, *counts], linear)
    chosen = {
        key.removeprefix("choice "): value
        for key, value in kept.lines.items()
        if key.startswith("choice ") and json.loads(key.removeprefix("choice "))[0] == data.name
    }
    notes = "; ".join(
        f"{method}, epsilon {epsilon:g}, T {queries:,}: {', '.join(map(str, value))}"
        for (_, method, epsilon, queries), value in ((json.loads(c), v) for c, v in chosen.items())
    )
    reps = 1 + max(run.rep for run in runs if run.queries == MAIN)
    again, whole = len(data.queries) < MAIN, all(run.key in kept.lines for run in runs)
    return "\n\n".join(
        [
            wide(heads[0], shown[0], budgets),
            "Against the number of queries, at epsilon 2 (models that are released once do not depend on it):",
            wide(heads[1], shown[1], counts),
            f"Differences in points, first at T = {MAIN:,}, then at epsilon 2:",
            table(["", *heads[0], *heads[1]], ahead),
            f"{data.name}: {data.size:,} records, {data.grid.width} columns"
            f"{' (raw pixels)' if data.name == 'mnist' else ''}, {len(data.grid.labels)} classes, "
            f"{len(data.queries):,} held-out queries; first table T = {MAIN:,}, delta = 1e-5; {'' if whole else 'up to '}{reps} runs a "
            f"cell with fresh noise (T = 100: {5 * reps}{'' if data.size > _LARGE else f', T = 500: {2 * reps}'})"
            + (
                ", the held-out queries asked again and again to make T."
                if again
                else " and the next T queries."
            )
            + " ± is one standard error: over queries, or over runs where that is larger. Ind-KNN and the hybrid "
            "use their defaults and see no label of the test set; the queries asked are the public ones that set thresholds; hashed is `sign_codes` at recall 0.9. Tuned "
            "methods are given the best of a grid on the test labels of the first run (of five at T = 100, two at T = 500; private kNN: rate and k; "
            "descent: steps, step size, clip; DP-SGD, on a large set at the least epsilon: sampling rate, epochs, step size, clip), then run afresh: "
            f"{notes}. DP-SGD with one setting: {', '.join(map(str, SGD[0]))} for every set and budget, fixed in "
            "a pilot on the test labels of the digits and newsgroups. CPU time of all runs "
            f"{sum(kept.lines[run.key]['cpu'] for run in runs if run.key in kept.lines):.0f} s.{'' if whole else ' Empty: not run.'}",
        ]
    )


def main():
    options = parser(__doc__)
    options.add_argument("--sets", nargs="+", default=["digits", "newsgroups", "mnist"])
    options.add_argument("--reps", type=int, default=3)
    options.add_argument("--keep", type=Path, help="file of the runs that are done")
    options.add_argument("--minutes", type=float, default=1e9, help="stop after so long")
    options.add_argument(
        "--as-it-is", action="store_true", help="report what is done when time is up"
    )
    options.add_argument("--column", type=float, help="the main rows at this epsilon, and no more")
    options.add_argument("--rows", nargs="+", default=[], help="of the column; all by default")
    options.add_argument("--torch-python", help="an interpreter that has opacus")
    args = options.parse_args()
    kept, stop = Kept(args.keep), time.monotonic() + 60 * args.minutes
    torch = k.torch_python(args.torch_python)
    for name in args.sets:
        data = k.load(name, args.data)
        if args.column is not None:
            print(column(kept, data, args.column, args.reps, stop, torch, args.rows), flush=True)
            continue
        runs = runs_of(name, args.reps, torch)
        if not done(kept, data, runs, torch, stop) and not args.as_it_is:
            print("not done yet")
            return
        text = report(kept, data, runs, torch)
        print(text)
        if args.write:
            write_figure(
                f"knn/accuracy-{name}",
                text,
                f"python -m benchmarks.knn_accuracy --sets {name} --reps {args.reps} --write"
                + (" --torch-python PYTHON" if args.torch_python else ""),
            )


if __name__ == "__main__":
    main()
