"""Advise on plans that are allowed but seldom meant."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from opendp_sim.accounting.budget_warnings import large_delta, little_protection
from opendp_sim.core.sample_size import needed_records
from opendp_sim.domains.rows import GridRows
from opendp_sim.dsl.grammar.bandwidths import (
    CANONICAL,
    VERSION,
    canonical_bandwidths,
    exact_bandwidth,
    shown_bandwidth,
)
from opendp_sim.dsl.plan.records import Planned, ledger_path
from opendp_sim.dsl.plan.release_plan import ReleasePlan
from opendp_sim.dsl.types.column_scales import unlike_columns
from opendp_sim.dsl.types.describe import stage_plain
from opendp_sim.dsl.types.outputs import OutputType

_LEFT = 0.02
_WHAT = {"gdp": "mu squared", "zcdp": "rho", "approx_zcdp": "rho"}
_RECORDS = 1000
_FEW = 100
"""Records from which on a number that a mean needs is worth a line."""
_TABLE = 50
"""Columns up to which `linear_model` takes rows for a table, and features for it were measured."""


def advice(plan: Planned) -> list[str]:
    """Return one sentence for each thing that is allowed and seldom meant."""
    return [
        *warnings_of(plan),
        *_former(plan),
        *_unspent(plan),
        *_single(plan),
        *unlike_columns(
            plan.types.values(), (r.bound for r in plan.releases.values() if not r.typed.is_sketch)
        ),
        *_by_a_model(plan),
        *_by_features(plan),
        *(text for o in plan.outputs.values() for text in _loud(o)),
        *(text for name, o in plan.outputs.items() for text in _too_few(name, o)),
    ]


def warnings_of(plan: Planned) -> list[str]:
    """Return warnings of claims that promise next to nothing, the first lines."""
    if plan.privacy is None:
        return []
    budget = plan.privacy.budget
    stated = (dict(t.release.params).get("size") for t in plan.types.values() if t.release)
    guess = max((n for n in stated if isinstance(n, int) and n > 0), default=None)
    told = (little_protection(budget), large_delta(budget.down("delta"), guess))
    return [text for text in told if text is not None]


def advised_of(plan: Planned) -> list[str]:
    """Return the advice of steps and plan, once each."""
    steps = (step for typed in plan.types.values() for step in stage_plain(typed)["steps"])
    told = [f"{step['step']}: {text}" for step in steps for text in step.get("advice", ())]
    return list(dict.fromkeys([*told, *advice(plan)]))


def _former(plan: Planned) -> Iterator[str]:
    """Yield how to upgrade a spec whose bandwidths mean another kernel."""
    found = canonical_bandwidths(plan.program.plain()) if plan.program.former else []
    if found:
        told = ", ".join(map(_upgraded, dict.fromkeys(found)))
        yield (
            f"`spec: {CANONICAL}` reads a Gaussian kernel's bandwidth h as exp(-(r / h)**2), and "
            f"`{VERSION}` as exp(-r**2 / (2 h**2)), as Python and scikit-learn do. To upgrade write "
            f"`spec: {VERSION}` and divide by sqrt(2): {told}"
        )


def _upgraded(former: float) -> str:
    """Return the bandwidth of the same program, or that there is none."""
    h = exact_bandwidth(former)
    if h is None:
        return (
            f"{former!r} has no h that is the same program (nearest: {shown_bandwidth(former)!r})"
        )
    return f"{former!r} becomes {h!r}"


def _single(plan: Planned) -> Iterator[str]:
    if plan.privacy is None or plan.privacy.measure not in {"zcdp", "approx_zcdp"}:
        return
    budget, releases = plan.privacy.budget, list(plan.releases.values())
    if len(releases) != 1 or releases[0].record is None or None in (budget.epsilon, budget.delta):
        return
    if "accounting" in type(releases[0].record).model_fields and ledger_path(plan) is None:
        yield (
            f"`{releases[0].typed.name}` is the only release and has an exact (epsilon, delta) curve: "
            "`measure: approx` reads it and needs less noise for the same claim"
        )


def _unspent(plan: Planned) -> Iterator[str]:
    if plan.target is None or ledger_path(plan) is not None:
        return  # a ledger keeps what is left
    left = 1.0 - plan.total[0] / plan.target.whole[0]
    more = " or ".join(_ways(plan))
    if left > _LEFT and more:
        yield (
            f"{left:.0%} of the budget's {_WHAT.get(plan.target.measure, 'epsilon')} is "
            f"left: {more} would use it for less noise and less protection"
        )


def _ways(plan: Planned) -> Iterator[str]:
    """Yield ways to use the remaining budget."""
    solved = [r for r in plan.releases.values() if r.spend is not None]
    stated = [name for name, r in plan.releases.items() if r.spend is None]
    if solved and sum(r.spend or 0 for r in solved) < 1:
        yield "larger shares (`spend`)"
    if stated:
        named = ", ".join(f"`{name}`" for name in stated[:3])
        more = f" and {len(stated) - 3} more" if len(stated) > 3 else ""
        yield f"smaller scales (of {named}{more}, whose scales the spec states)"


def _too_few(name: str, output: OutputType) -> Iterator[str]:
    """Return the people that a mean needs."""
    least = output.expected.get("least records", 0.0)
    kept = (s.mechanism for s in output.stage.stages if s.mechanism.key == "bound_contributions")
    bound: Any = next(kept, None)
    if bound is None or least <= _FEW:
        return
    yield (
        f"`{name}`: a mean of fewer than {math.ceil(least):,} records is pulled to 0; at most "
        f"{bound.max_rows} of each `{bound.by}` are kept, so {math.ceil(least / bound.max_rows):,} of "
        "them are needed at least. If there are fewer, ask for sums, or allow a larger loss"
    )


def _by_a_model(plan: Planned) -> Iterator[str]:
    """Advise `linear_model` for releases that only classify (``benchmarks/results/linear``)."""
    for name, release in plan.releases.items():
        asked = {m.key for o in plan.outputs.values() if o.stage.name == name for m in o.decl.post}
        silent = any(o.stage.name == name and not o.decl.post for o in plan.outputs.values())
        rho = _rho(plan, release)
        if silent or not asked or rho is None or not asked <= {"classify", "nearest_class"}:
            continue
        behind = " behind `fourier_features`" if "classify" in asked else ""
        yield (
            f"`{name}` serves nothing but to classify: `linear_model`{behind} was usually right more "
            "often at the same loss, with classes of equal and of unequal sizes, from about "
            f"{needed_records(rho):,} records on; below, no classifier works well"
        )


def _by_features(plan: Planned) -> Iterator[str]:
    """Advise public random features where a linear model has plain columns.

    They gained on tables of 16 and 36 columns, little on pixels (``benchmarks/results/linear``).
    """
    for name, release in plan.releases.items():
        record, rows = release.record, release.typed.domain
        if getattr(record, "key", "") != "linear_model" or not isinstance(rows, GridRows):
            continue
        steps = {stage.mechanism.key for stage in release.typed.stages}
        if "fourier_features" not in steps and 1 < rows.width <= _TABLE:
            yield (
                f"`{name}`: `fourier_features` (public random features) before `linear_model` was right "
                "more often on tables of 16 and 36 columns at the same loss, by 4 to 18 points, and as "
                "often or more on unequal classes; it asks for a bandwidth, about the distance of two "
                "records that are alike"
            )


def _rho(plan: Planned, release: ReleasePlan) -> float | None:
    """Return a release's loss in zCDP, or None."""
    measure = None if plan.privacy is None else plan.privacy.measure
    if measure not in ("zcdp", "approx_zcdp", "gdp") or not release.loss or release.loss[0] <= 0:
        return None
    return release.loss[0] / (2.0 if measure == "gdp" else 1.0)


def _loud(output: OutputType) -> Iterator[str]:
    for post in output.posts:
        noise = next((v for k, v in post.expected.items() if k.startswith("noise_error")), 0.0)
        if post.of_a_record and noise / post.of_a_record >= _RECORDS:
            yield (
                f"{output.decl.name}: the noise is as large as what {noise / post.of_a_record:,.0f} "
                "records can add at most: with fewer, answers are noise"
            )
