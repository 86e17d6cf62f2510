"""Compose all five systems adaptively by OpenDP: distances, densities, classes, neighbours, top-k.

``python examples/five_systems.py`` plans ``specs/five-systems.yaml``, and runs it as a chain of OpenDP
measurements: each is asked after the answers before it, and the neighbours are a queryable inside the
composition. OpenDP adds up the losses, to the plan's total. The data is public (digits).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import opendp.prelude as dp

import opendp_sim as sim
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.dsl.plan.plan import Plan, plan_file
from opendp_sim.io.builtin import builtin_source

SPEC = Path(__file__).parent.parent / "specs" / "five-systems.yaml"


def digits(name: str) -> dict[str, Any]:
    """Return a built-in dataset as columns."""
    return dict(next(iter(builtin_source(name).blocks(4096))))


def measurements(plan: Plan) -> dict[str, dp.Measurement]:
    """Return the five releases of the plan as measurements, by name."""
    dp.enable_features("contrib")
    found: dict[str, Any] = {name: release.record for name, release in plan.releases.items()}
    space = plan.types["grid"].entry.records, Symmetric()
    grid = sim.make_select(*space, features="pixels", label="label") >> sim.then_quantize(bits=14)
    tree = grid >> sim.then_distance_tree(levels=4, norm="l2")
    waves = (
        grid
        >> sim.then_jl_projection(dimension=32, seed=5)
        >> sim.then_fourier_sketch(
            frequencies=1000,
            kernel={"gaussian": {"bandwidth": 21.21 * math.sqrt(2.0)}},
            seed=7,
            norm="l2",
        )
    )
    buckets = grid >> sim.then_race_sketch(
        repetitions=100, buckets=128, seed=3, family={"p_stable_l2": {"width": 30.0}}, norm="l2"
    )
    votes = sim.make_vote_counts(*space, item="label", norm="linf")
    common = found["common"]
    zcdp = {
        "tree": tree >> sim.then_gaussian(scale=found["tree"].scale),
        "waves": waves >> sim.then_gaussian(scale=found["waves"].scale),
        "buckets": buckets >> sim.then_gaussian(scale=found["buckets"].scale),
        "neighbours": grid >> sim.then_ind_knn(rho=found["neighbours"].rho, queries=50, size=1300),
    }
    top = votes >> sim.then_stable_top_k(k_max=9, scale=common.scale, delta=common.delta)
    return {name: dp.c.make_approximate(each) for name, each in zcdp.items()} | {"common": top}


def composition(five: dict[str, dp.Measurement]) -> dp.Measurement:
    """Return an adaptive composition with room for the five, in their order."""
    common = five["common"]
    return dp.c.make_adaptive_composition(
        common.input_domain,
        common.input_metric,
        common.output_measure,
        d_in=1,
        d_mids=[each.map(1) for each in five.values()],
    )


def main() -> None:
    """Ask the five one after another, and print what each released."""
    plan = plan_file(SPEC)
    five = measurements(plan)
    composed = composition(five)
    print(f"OpenDP's total {composed.map(1)}, the plan's {plan.total}")
    ask = composed(digits("digits"))
    for name in ("tree", "waves", "buckets"):
        print(f"{name}: {len(ask(five[name])):,} noisy numbers")
    served = ask(five["neighbours"])
    print(f"neighbours: {served(digits('digits_test')['pixels'][:60]).labels}")
    print(f"common: {ask(five['common'])}")


if __name__ == "__main__":
    main()
