"""Print a plan's first screen in six labelled lines."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from rich.console import Console
from rich.text import Text

from opendp_sim.accounting.ledger.standing import LedgerStanding
from opendp_sim.cli._run import plural
from opendp_sim.core.system.escape_text import escape
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.plan.statements import PlanStatements, serves

_WIDE, _MARGIN = 80, 9


def show_first(
    told: PlanStatements, then: str | None, out: Console, *, whole: bool = False
) -> None:
    """Print plan, who, privacy, error, cost and the next command ``then``.

    ``whole``: each line is followed by its sentences.
    """
    for text in told.warnings:
        show_text(out, "warning", text)
    for one in told.first:
        _row(out, one.topic, one.line)
        if whole and one.whole:
            show_text(out, "", one.whole)
    if whole and told.repeat.whole:
        show_text(out, "", told.repeat.whole)
    if then is not None:  # a command is never cut: somebody will copy it
        out.print(Text(f"{'next':<{_MARGIN}}", style="bold") + Text(escape(then)), soft_wrap=True)


def show_advice(advice: Sequence[str], out: Console, *, whole: bool = True) -> None:
    """Print the advice on a plan, or its number of remarks."""
    if not whole and advice:
        advice = (f"{plural(len(advice), 'remark')} on this plan; `-v` shows all",)
    for text in advice:
        show_text(out, "advice", text)


def next_command(
    plan: Plan, told: PlanStatements, spec: str, ledger: LedgerStanding | None = None
) -> str:
    """Return the command after a plan, by its ledger."""
    if ledger is not None and told.room == 0:
        return f"opendp-sim ledger show {ledger.file}"
    if ledger is not None and not (ledger.head or ledger.refused):
        return f"opendp-sim ledger new {spec}"
    return f"opendp-sim {'session' if serves(plan) else 'apply'} {spec}"


def show_text(out: Console, word: str, text: str) -> None:
    """Print sentences beside a word, over several rows."""
    room = min(out.width, _WIDE) - _MARGIN
    for at, line in enumerate(wrap(escape(text), room, break_on_hyphens=False)):
        _row(out, "" if at else word, line)


def _row(out: Console, word: str, text: str) -> None:
    row = Text(escape(text))
    row.truncate(min(out.width, _WIDE) - _MARGIN, overflow="ellipsis")
    out.print(Text(f"{word:<{_MARGIN}}", style="bold") + row)
