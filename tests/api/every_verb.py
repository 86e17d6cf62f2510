"""Every public verb of ``opendp_sim``: run by a test, and checked by pyright strict."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import opendp_sim as sim


def recipes(folder: Path, table: Mapping[str, Any]) -> sim.Release:
    bounds = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
    ledger = folder / "people.ledger"
    limit = {"epsilon": 9.0, "delta": 1e-5}
    fit = sim.density(
        bounds,
        bandwidth=0.2,
        seed=1,
        epsilon=1.0,
        delta=1e-6,
        measure="gdp",
        ledger=ledger,
        limit=limit,
    )
    release: sim.Release = fit.apply(table, into=folder / "density")
    found: sim.Answers = release.density([[0.5, 0.5]], confidence=0.9)
    by_class = sim.classes(bounds, label="kind", keys=["a", "b"], bandwidth=0.2)
    by_class.apply(table, into=folder / "classes").classify([[0.5, 0.5]])
    means = sim.means(bounds, label="kind", keys=["a", "b"], unit="who", max_rows=2)
    means.apply(table, into=folder / "means").nearest_class([[0.5, 0.5]])
    middles = sim.quantiles(bounds).apply(table, into=folder / "quantiles")
    print(middles.quantiles(shares=(0.5,)), sim.means(bounds).plan)
    pages = sim.top("kind", k=1, keys=["a", "b"], unit="who", epsilon=1.0)
    print(pages.apply(table, into=folder / "top"), found)
    far = sim.distances(bounds, norm="l2", epsilon=1.0)
    far.apply(table, into=folder / "distances").distance([[0.5, 0.5]], mean=True)
    model = sim.predict(bounds, label="kind", keys=["a", "b"], epsilon=1.0)
    model.apply(table, into=folder / "predict").predict([[0.5, 0.5]])
    with sim.stream(sim.means(bounds, epsilon=1.0), periods=2, into=folder / "grown") as grown:
        sums: sim.Release = grown.add(table)
        print(sums.totals(), grown.release(1, 1).claim)
    sets = sim.labels("kind", question="task", questions=["a"], keys=["a", "b"], unit="who")
    print(sets.plan, sim.recommend("means", bounds, size=100).best.plan)
    return release


def verbs(folder: Path, table: Mapping[str, Any], spec: str) -> None:
    builder: sim.Builder = sim.program("small")
    plan: sim.Plan = sim.plan(spec)
    try:
        sim.plan(builder)
    except (sim.Refused, sim.SimError) as error:
        print(type(error).__name__)
    done = sim.apply(plan, table, into=folder, workers=1, replace=True)
    stands = sim.standing(plan)
    print("no ledger" if stands is None else f"{stands.room} of {stands.share_after:.0%}")
    again = sim.run(sim.plan(plan), table)
    checked, left = sim.verify(next(iter(done.certificates.values())))
    loaded = sim.load(folder / "sums.npz")
    print(loaded.ask("distance", [[0.5, 0.5]]), len(checked), len(left), again.spent)


def questions(table: Mapping[str, Any], spec: str) -> list[Any]:
    with sim.session(spec, table) as served:
        return list(served.ask([[0.5, 0.5]] * 60).labels)


def books(folder: Path) -> str:
    limit = sim.Limit(epsilon=9.0, delta=1e-5)
    with sim.Ledger.open(folder / "people.ledger") as ledger:
        return f"{limit.text}: {ledger.total().left_text}"


def natively() -> list[str]:
    step = sim.then_quantize(bits=12, bounds=(0.0, 1.0))
    print(step is not None)
    return list(sim.register())


def chained(measurement: Any, data: Any) -> sim.Release:
    return sim.read(measurement, measurement(data), d_in=1)


def audited(measurement: Any) -> str:
    report = sim.audit.audit(measurement, 1, budget="quick")
    return str(report)


def main(folder: Path, flow: str, session: str) -> None:
    draw = np.random.default_rng(1)
    table = {
        "x": draw.uniform(size=80),
        "y": draw.uniform(size=80),
        "kind": ["a", "b"] * 40,
        "who": [f"p{at // 2}" for at in range(80)],
    }
    release = recipes(folder, table)
    verbs(folder, {"t": table}, flow)
    print(questions({"t": table}, session), books(folder), len(natively()), release)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
