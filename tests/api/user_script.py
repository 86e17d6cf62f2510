"""What a user writes: run by a test, and checked by mypy strict and pyright against the wheel."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import opendp_sim as sim
from opendp_sim.sklearn import Budget, DPNearestCentroid


def main(folder: Path) -> float:
    draw = np.random.default_rng(1)
    table = {"delay": draw.normal(10.0, 5.0, 500), "hour": draw.uniform(0.0, 24.0, 500)}
    bounds = {"delay": (-30.0, 90.0), "hour": (0.0, 24.0)}
    fit = sim.density(bounds, bandwidth={"delay": 8.0, "hour": 3.0}, epsilon=1.0)
    release: sim.Release = fit.apply(table, into=folder)
    answers: sim.Answers = release.density({"delay": [10.0], "hour": [12.0]}, confidence=0.9)
    plan: sim.Plan = sim.plan(fit.plan.to_yaml())
    again = sim.load(folder / "release.npz").ask("density", {"delay": [10.0], "hour": [12.0]})
    step = sim.then_quantize(bits=12, bounds=(0.0, 1.0))
    budget = Budget(epsilon=3.0, delta=1e-6)
    X, y = np.stack([table["delay"], table["hour"]], axis=1), (table["delay"] > 10.0).astype(int)
    low, high = [-30.0, 0.0], [90.0, 24.0]
    clf = DPNearestCentroid(bounds=(low, high), classes=[0, 1], budget=budget).fit(X, y)
    print(plan.claim, len(again), step is not None, clf.predict(X[:2]), budget.left_text)
    return float(answers["density"][0])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
