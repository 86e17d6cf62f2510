"""Draw a record's way to one release, one box a step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from opendp_sim.core.arithmetic.rounding import up_text
from opendp_sim.core.mechanism import Mechanism
from opendp_sim.core.system.docstrings import doc_of
from opendp_sim.domains.metrics import VectorNorm
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.plan.release_plan import ReleasePlan
from opendp_sim.dsl.plan.statements import unit_of
from opendp_sim.dsl.text.plain_text import plain_text
from opendp_sim.dsl.types.error_terms import size


@dataclass(frozen=True)
class FlowBox:
    """Describe one step on a record's way.

    ``work`` is private, ``door`` is the noise, ``free`` is public.
    """

    kind: str
    name: str
    text: str
    bound: str = ""


def step_sentence(mechanism: Mechanism) -> str:
    """Return what a step does, in one sentence without formulas."""
    if mechanism.in_short:
        return mechanism.in_short
    first = doc_of(type(mechanism)).partition("\n\n")[0]
    return " ".join(plain_text(first).split())


def flow_of(plan: Plan, name: str) -> tuple[FlowBox, ...]:
    """Return the boxes from the data to the public release."""
    release = plan.releases[name]
    typed = release.typed
    bounds, unit = dict(release.maps), unit_of(plan)
    changed = f"{unit.one} {'replaced' if unit.replaced else 'more or less'}"
    boxes = [FlowBox("work", typed.entry.name, "the private rows", changed)]
    if typed.entry.public:
        boxes = [FlowBox("free", typed.entry.name, "public rows")]
    for stage in typed.stages:
        key = stage.mechanism.key
        bound = (
            _bound(stage.mechanism.room, bounds[key], release, replaced=unit.replaced)
            if key in bounds
            else ""
        )
        boxes.append(FlowBox("work", key, step_sentence(stage.mechanism), bound))
    record_ = release.record
    if record_ is not None:
        text = f"{step_sentence(record_)}{_typical(release)}"
        boxes.append(FlowBox("door", record_.key, text, _cost(plan, tuple(release.loss))))
    for output in plan.outputs.values():
        if output.stage.name == typed.name:
            steps = [step_sentence(post).removesuffix(".") for post in output.decl.post[-1:]]
            told = f"{steps[0]}: reads" if steps else "The release itself: reads"
            told += " only what was released"
            if output.decl.serve is not None:
                told = "One answer after another: each reads the private data, and its noise is paid for"
            boxes.append(FlowBox("free", output.decl.name, told))
    return tuple(boxes)


def _cost(plan: Plan, loss: tuple[float, ...]) -> str:
    """State a release's part of the run's loss."""
    if plan.privacy is None:
        return ""
    if len(plan.releases) == 1 or not plan.total[0]:
        return "this is all that this run costs"
    share = 100 * loss[0] / plan.total[0]
    return f"this is about {share:.2g}% of what this run costs"


def _bound(room: str, most: float, release: ReleasePlan, *, replaced: bool = False) -> str:
    """State the largest change of a stage's output."""
    text = up_text(most) if not 1000 <= most < 1e12 else f"{math.ceil(most):,}"
    metric = None if release.bound is None else release.bound.metric
    if room == "rows" or not isinstance(metric, VectorNorm):
        two = " (one that is replaced goes out, and another comes in)" if replaced else ""
        return f"changes by at most {text} row{'' if text == '1' else 's'}{two}"
    weighed = ", once each is divided by its public weight" if metric.weights else ""
    if metric.norm == "linf":
        touched = "" if metric.touched is None else _touched(metric.touched * math.ceil(most))
        return f"no number changes by more than {text}{touched}{weighed} (L∞ norm)"
    ways = {
        "l1": "add up the changes of all numbers (L1 norm)",
        "l2": "square the changes of all numbers, add them up, take the root (L2 norm)",
    }
    return f"changes by at most {text}{weighed}: {ways[metric.norm]}"


def _touched(most: int) -> str:
    return f", and no more than {most:,} of them change{'s' if most == 1 else ''}"


def _typical(release: ReleasePlan) -> str:
    """State the noise in the numbers of the bound before it."""
    noise = None if release.bound is None else getattr(release.bound.claim, "noise", None)
    if noise is None:
        return ""
    weight = " times the weight" if noise.weights else ""
    return f" Its typical size (deviation): {size(noise.deviation)}{weight}."
