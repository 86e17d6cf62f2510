"""What `plan` says first: who is protected, how sure, how wrong answers will be, and the way there."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from rich.console import Console
from rich.text import Text

from opendp_sim.accounting.attackers import attacker_of
from opendp_sim.accounting.promise import who
from opendp_sim.accounting.totals import loss_text
from opendp_sim.core.rounding import up_text
from opendp_sim.core.shown import shown
from opendp_sim.dsl.advice import advice
from opendp_sim.dsl.describe import stage_plain
from opendp_sim.dsl.plan import Plan, ReleasePlan
from opendp_sim.dsl.standing import standing

__all__ = ["show_first"]

_WIDE, _MARGIN = 80, " " * 11
_MORE = "; all numbers: plan -v"


def show_first(plan: Plan, spec: str, out: Console) -> None:
    """Print five lines, advice where there is any, and a tree."""
    wide = min(out.width, _WIDE)
    for word, text in (
        *_answers(plan),
        *(("advice", text) for text in _advices(plan)),
        ("next", f"{_command(plan)} {spec}" + _MORE),
    ):
        first, *more = wrap(shown(text), wide - len(_MARGIN), break_on_hyphens=False)
        out.print(Text(f"{word:<{len(_MARGIN)}}", style="bold") + Text(first))
        for line in more:
            out.print(Text(_MARGIN + line))
    for name, release in plan.releases.items():
        out.print()
        for text in _tree(plan, name, release):
            out.print(Text(shown(text)))


def _command(plan: Plan) -> str:
    """Return the command that runs this plan: a session is served, not applied."""
    asked = any(output.decl.serve == "session" for output in plan.outputs.values())
    return "opendp-sim session" if asked else "opendp-sim apply"


def _advices(plan: Plan) -> Iterator[str]:
    """Yield what the steps and the plan advise: a setting that costs accuracy is said at once."""
    for typed in plan.types.values():
        for step in stage_plain(typed)["steps"]:
            yield from (f"{step['step']}: {text}" for text in step.get("advice", ()))
    yield from advice(plan)


def _answers(plan: Plan) -> Iterator[tuple[str, str]]:
    privacy = plan.privacy
    if privacy is None:
        yield "protected", "nobody: all data is declared public"
    else:
        unit = privacy.plain()["unit"]
        yield "protected", f"{who(unit)}: whoever knows all others can hardly tell which it was"
        yield "how sure", " ".join(_sure(plan))
    yield ("how wrong", "; ".join(_wrong(plan)) or "no error is stated: it depends on the question")
    yield "spent", _spent(plan)


def _sure(plan: Plan) -> Iterator[str]:
    assert plan.privacy is not None  # noqa: S101 - the caller asked
    if plan.claim is not None:
        epsilon, *delta = plan.claim
        told = "".join(f", delta {up_text(part, 2)}" for part in delta)
        yield f"epsilon {up_text(epsilon, 3)}{told}:"
    else:
        yield f"{loss_text(plan.privacy.measure, plan.total)}:"
    yield attacker_of(plan.privacy.measure, plan.total).sentence


def _wrong(plan: Plan) -> Iterator[str]:
    for name, output in plan.outputs.items():
        for error, value in list(output.expected.items())[:1]:
            yield f"{name} by about {value:.3g} ({error.replace('_', ' ')})"


def _spent(plan: Plan) -> str:
    found = standing(plan)
    if found is None:
        return "nothing: no data was opened; no ledger adds this up with other runs"
    if "refused" in found:
        return f"nothing: no data was opened; {found['file']} cannot be read"
    told = "leave " + found["left"] if found["fits"] else "pass the limit, and be refused"
    return (
        f"nothing: no data was opened; {found['file']} holds {found['spent']}; a run would {told}"
    )


def _tree(plan: Plan, name: str, release: ReleasePlan) -> Iterator[str]:
    """One stage a line, with the most that whoever is protected changes there."""
    bounds = dict(release.maps)
    yield f"{release.typed.entry.name}"
    for stage in release.typed.stages:
        key = stage.mechanism.key
        yield f"├─ {key:<24}" + (f"changes by at most {bounds[key]:.6g}" if key in bounds else "")
    if release.record is not None and plan.privacy is not None:
        cost = loss_text(plan.privacy.measure, tuple(release.loss))
        yield f"├═ {release.record.key:<24}noise; costs {cost}"
    answered = [o.decl.name for o in plan.outputs.values() if o.stage.name == name]
    yield f"└─ {', '.join(answered) or name:<24} costs nothing more"
