"""Report a ledger.

The spent budget, its runs, and the rest.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opendp_sim.accounting.claim_text import who
from opendp_sim.accounting.composition import Charge, Total
from opendp_sim.accounting.ledger._entries import Entry, counting_entries
from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.accounting.measures.attackers import attacker_of
from opendp_sim.core.arithmetic.rounding import up_text
from opendp_sim.report.charts import burn_chart
from opendp_sim.report.facts import Facts
from opendp_sim.report.figures import Figure
from opendp_sim.report.tiles import Tile

_DRAWN = 64
"""Runs in the picture: each needs a composition of its own."""


_HEADLINE = 30
"""Letters of a box's headline; what is longer stands below it."""
_KINDS = {
    "reserve": "`reserve` (a loss set aside before its run, settled by a later entry: it counts once)",
    "refusal": "`refusal` (a run that was refused, and cost nothing)",
    "void": "`void` (a run that could not open its data, and cost nothing)",
    "session": "`session` (a session's progress, at no further loss)",
    "outcome": "`outcome` (what a run left behind)",
}
"""Entries that are no loss, in words."""
_UNITS = {
    "pure": "What is spent is epsilon, a number without a unit: 0 is no loss, and the epsilons of "
    "several runs add up.",
    "approx": "What is spent is epsilon and delta, two numbers without a unit: 0 is no loss. Delta is a "
    "probability, and both add up over runs.",
    "zcdp": "What is spent is rho, the loss of zero-concentrated differential privacy (zCDP), a number "
    "without a unit: 0 is no loss, and the rhos of several runs add up. An epsilon beside it is what "
    "that rho comes to at the limit's delta.",
    "approx_zcdp": "What is spent is rho, the loss of zero-concentrated differential privacy (zCDP), and "
    "a delta, a probability, both without a unit: 0 is no loss, and both add up over runs. An epsilon "
    "beside them is what they come to at the limit's delta.",
    "gdp": "What is spent is mu, the loss of Gaussian differential privacy (GDP), a number without a "
    "unit: 0 is no loss. The squares of mu (mu^2) add up over runs, so two runs of mu 0.3 make mu 0.42. "
    "An epsilon beside it is what that mu comes to at the limit's delta.",
}
"""What a ledger counts, in words, by its measure."""


def ledger_facts(file: Path) -> Facts:
    """Gather a ledger's facts.

    Every number is OpenDP's composition of its entries.

    Raises:
        BudgetError (OS403): no readable ledger.
    """
    with Ledger.open(file) as ledger:
        total, entries, terms = ledger.total(), ledger.entries, ledger.terms
        runs = counting_entries(entries)
        shares = [0.0, *(max(ledger.total(upto=run.seq).share, 0.0) for run in runs[:_DRAWN])]
    facts = Facts(
        "Ledger",
        file.name,
        "Every run that was made with this ledger is added up here, and none of them may pass the "
        f"limit. Runs on the same data without this ledger are not in it. {_UNITS[terms.measure]}",
        "record",
        f"opendp-sim ledger verify {file.name}",
    )
    facts.tiles = [
        Tile(
            f"{up_text(100 * total.share, 2)}% spent",
            f"so far: {total.text}{_right(total)}",
            warn=not total.fits,
        ),
        _left(total),
        Tile(total.limit_text, "the limit, which no run may pass"),
        Tile(
            _whole(len(runs)),
            f"in {len(entries)} entries, each bound to the one before by a hash{_others(entries, runs)}",
        ),
    ]
    if len(shares) > 1:
        facts.figures = [
            Figure("Where the budget went", burn_chart(shares), _chart_note(len(runs)))
        ]
    facts.charges = [_row(entry) for entry in runs]
    facts.not_promised = [
        "That no run was made past this ledger: it counts only what it was asked.",
        "That anybody notices an older copy of this file, unless its head (below) was written down.",
    ]
    facts.details = [
        ("measure", str(terms.measure)),
        ("unit", _protected(str(terms.unit))),
        ("head", _head(entries)),
    ]
    return facts


def _protected(unit: str) -> str:
    """State the protected unit of a ledger in words."""
    kind, number, _, of = (*unit.split(" ", 3), "", "", "")[:4]
    if kind not in ("add_remove", "replace") or not number.isdigit():
        return unit
    return f"{who({'of': of, kind: int(number)})} (`{unit}`)"


def _left(total: Total) -> Tile:
    """Explain the rest of a limit in mu."""
    of_rest = "for later runs on the same data"
    more = ""
    if "mu" in total.left:
        more = "; of spent, left and limit the squares add up, not the numbers themselves"
    big = total.left_text
    if len(big) <= _HEADLINE:
        return Tile(big, f"left {of_rest}{more}")
    share = max(math.floor(1000 * (1 - total.share)) / 10, 0.0)
    return Tile(f"{share:g}% left", f"of the limit, {of_rest}: {big}{more}")


def _others(entries: Sequence[Entry], runs: Sequence[Entry]) -> str:
    """Explain the entries that are no runs."""
    counted = {run.seq for run in runs}
    kinds = Counter(entry.kind for entry in entries if entry.seq not in counted)
    told = [f"{n:,} {_KINDS.get(kind, kind)}" for kind, n in kinds.items()]
    return f"; besides the runs: {', '.join(told)}" if told else ""


def _right(total: Total) -> str:
    """State the attacker's guess after all runs of the ledger."""
    if not any(total.loss):
        return ""
    together = attacker_of(total.measure, total.loss)
    return f"; after all these runs a 50:50 guess is right at most {together.right} times in 100"


def _whole(runs: int) -> str:
    return "one run" if runs == 1 else f"{runs:,} runs"


def _chart_note(runs: int) -> str:
    first = f"The first {_DRAWN} of {runs:,} runs. " if runs > _DRAWN else ""
    return (
        f"{first}The part of the limit that is used up after each run. A run beyond it is refused."
    )


def _row(entry: Entry) -> tuple[str, str, str]:
    """Return a row for a charge, or for an unsettled reserve."""
    name = str(entry.body.get("name") or entry.body.get("program") or "")
    return str(entry.seq), f"{entry.kind} {name[:80]}".strip(), Charge.read(entry.body["loss"]).text


def _head(entries: tuple[Any, ...]) -> str:
    """Return the hash of the last entry."""
    return str(entries[-1].hash) if entries else "no entry yet"
