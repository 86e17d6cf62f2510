"""What `plan` says first: who is protected, how sure, how wrong, at what cost; then a tree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from textwrap import wrap

from rich.console import Console
from rich.text import Text

from opendp_sim.accounting.attackers import attacker_of
from opendp_sim.accounting.totals import loss_text
from opendp_sim.cli.show_tree import tree
from opendp_sim.core.rounding import up_text
from opendp_sim.core.shown import shown
from opendp_sim.dsl.advice import advised_of
from opendp_sim.dsl.how_wrong import how_wrong
from opendp_sim.dsl.plan import Plan
from opendp_sim.dsl.standing import standing

__all__ = ["show_first"]

_WIDE, _MARGIN = 80, 11
_NAME = 20
"""Letters of a name that the first lines show; `-v` has the rest."""


def show_first(plan: Plan, spec: str, out: Console, *, whole: bool = False) -> None:
    """Print five lines of one row each, a tree, and advice where there is any.

    Args:
        plan: the plan.
        spec: its file, for the command that comes next.
        out: where to.
        whole: whether each line goes on over several rows, with the error of every output.
    """
    wide = min(out.width, _WIDE)
    for word, text in _answers(plan, whole=whole):
        _row(out, word, text, wide, whole=whole)
    last = f"{_command(plan)} {shown(spec)}" + ("" if whole else "; more: -v")
    # A command is never cut: somebody will copy it.
    out.print(Text(f"{'next':<{_MARGIN}}", style="bold") + Text(last), soft_wrap=True)
    out.print()
    for line in tree(plan):
        row = Text(shown(line))
        row.truncate(wide, overflow="ellipsis")
        out.print(row)
    advised = advised_of(plan)
    if advised:
        out.print()
    for text in advised:
        _row(out, "advice", text, wide, whole=True)


def _row(out: Console, word: str, text: str, wide: int, *, whole: bool) -> None:
    room = wide - _MARGIN
    lines = wrap(shown(text), room, break_on_hyphens=False) if whole else [shown(text)]
    for at, line in enumerate(lines):
        row = Text(line)
        row.truncate(room, overflow="ellipsis")
        out.print(Text(f"{'' if at else word:<{_MARGIN}}", style="bold") + row)


def _command(plan: Plan) -> str:
    """Return the command that runs this plan: a session is served, not applied."""
    asked = any(output.decl.serve == "session" for output in plan.outputs.values())
    return "opendp-sim session" if asked else "opendp-sim apply"


def _answers(plan: Plan, *, whole: bool) -> Iterator[tuple[str, str]]:
    if plan.privacy is None:
        yield "protected", "nobody: all data is declared public"
    else:
        yield "protected", _who(plan)
        yield "how sure", _sure(plan)
    yield "how wrong", _wrong(plan, whole=whole)
    if plan.privacy is not None:
        yield "cost", _cost(plan)


def _short(name: str, most: int = _NAME) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _who(plan: Plan) -> str:
    assert plan.privacy is not None  # noqa: S101 - the caller asked
    unit = plan.privacy.plain()["unit"]
    of, replaced = str(unit["of"]), "replace" in unit
    number = unit.get("replace", unit.get("add_remove", 1))
    noun = "record" if of == "row" else "person"
    whom = f"each {noun}" if number == 1 else f"any {number} {noun}s together"
    whom += " (one row)" if of == "row" and number == 1 else ""
    whom += "" if of == "row" else f" (each `{_short(of, 9)}`)"
    if replaced:
        return f"{whom}, from having its content found out"
    return f"{whom}, from being found out to be in the data"


def _sure(plan: Plan) -> str:
    assert plan.privacy is not None  # noqa: S101 - the caller asked
    attacker = attacker_of(plan.privacy.measure, plan.total)
    return (
        f"{attacker.strength}: a spy's 50:50 guess becomes right in at most {attacker.right} of 100"
    )


def _wrong(plan: Plan, *, whole: bool) -> str:
    """Tell the errors, of outputs alike at once; the first error alone unless ``whole``."""
    alike = defaultdict(list)
    for name, text in how_wrong(plan).items():
        alike[text].append(name if whole else _short(name))
    told = [f"{', '.join(names if whole else names[:2])}: {text}" for text, names in alike.items()]
    if not told:
        return "not stated: it depends on what the release is asked"
    if whole or len(alike) == 1:
        return "; ".join(told)
    more = sum(map(len, alike.values())) - min(2, len(next(iter(alike.values()))))
    return f"{told[0]} (+{more})"


def _cost(plan: Plan) -> str:
    """Tell what a run would spend, and who counts it."""
    assert plan.privacy is not None  # noqa: S101 - the caller asked
    measure, spent = plan.privacy.measure, plan.claim
    if spent is None and measure in {"pure", "approx"}:
        spent = plan.total
    if spent is None:
        loss = loss_text(measure, plan.total)
    else:
        loss = f"epsilon {up_text(spent[0], 3)}"
        loss += "".join(f", delta {up_text(delta, 2)}" for delta in spent[1:])
    found = standing(plan)
    if found is None:
        return f"none yet; a run takes {loss}; nobody keeps count"
    if "refused" in found:
        return f"none yet; a run takes {loss}; its ledger cannot be read"
    told = f"leaves {found['left']}" if found["fits"] else "is refused: too little is left"
    return f"none yet; a run takes {loss}; {told}"
