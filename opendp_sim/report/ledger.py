"""Report a ledger's spent budget, its runs, and the rest."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from opendp_sim.accounting.budget import Limit, MeasureName
from opendp_sim.accounting.claim_text import (
    ProtectedUnit,
    odds_statement,
    short_number,
    unit_statement,
    who,
)
from opendp_sim.accounting.composition import Charge, Total, total_of
from opendp_sim.accounting.ledger._entries import Entry, counting_entries
from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.accounting.measures.attackers import attacker_of
from opendp_sim.report.charts import share_bar
from opendp_sim.report.facts import Card, Facts, Part, Tile, judgement

_DRAWN, _SHOWN, _ROWS = 12, 8, 500
"""Runs in the picture, in the open table, and in all."""


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
    """Gather a ledger's facts, all numbers OpenDP's composition (OS403)."""
    with Ledger.open(file) as ledger:
        total, entries, terms = ledger.total(), ledger.entries, ledger.terms
        runs, charges = counting_entries(entries), ledger.charges
        names = [_name(entry, ledger.answered_of(entry)) for entry in runs]
    sums = _sums(charges, terms.measure, terms.limit)
    alone = [total_of([charge], terms.measure, terms.limit) for charge in charges[-_ROWS:]]
    parts = [after.share - before.share for before, after in pairwise(sums)]
    percents = whole_percents([*parts, 1 - sums[-1].share])
    unit = ProtectedUnit.of_text(str(terms.unit))
    facts = Facts(f"Ledger `{file.name}`", f"What `{file.stem}` has spent".replace("`", ""))
    facts.lead = (
        "Every run on these data is recorded before its result leaves. None may pass the limit."
    )
    stamps = [str(entry.body.get("time", ""))[:10] for entry in runs]
    facts.about = [
        ("First run", stamps[0] if runs else "none"),
        ("Last run", stamps[-1] if runs else "none"),
    ]
    facts.about += [("Owner", ""), ("Expires", "")]
    attacker = attacker_of(total.measure, total.loss)
    said = odds_statement(attacker, unit, several=False)
    formal = f"Formally: {total.text}, of a limit of {total.limit_text}."
    facts.verdict = judgement(said, attacker, f"Privacy after {_whole(len(runs))}", formal)
    facts.tiles = [
        Tile("Who is protected", (who := unit_statement(unit)).value, who.text),
        Tile(
            "Used so far",
            f"{100 - percents[-1]}% of the limit",
            f"{total.text} of {total.limit_text}.",
            warn=not total.fits,
        ),
        _left(total),
        Tile("Who adds up", "This file", "Runs that did not name this ledger are not in it."),
    ]
    drawn = list(zip([f"run {at}" for at in range(1, len(runs) + 1)], parts, strict=True))
    if len(drawn) > _DRAWN:
        earlier = sum(share for _, share in drawn[: 1 - _DRAWN])
        drawn = [("earlier runs", earlier), *drawn[1 - _DRAWN :]]
    rows = [
        (
            str(entry.body.get("time", ""))[:16].replace("T", " "),
            name,
            _loss(own),
            _loss(after),
            f"{percent}%",
        )
        for entry, name, own, after, percent in zip(
            runs[-_ROWS:],
            names[-_ROWS:],
            alone,
            sums[1:][-_ROWS:],
            percents[:-1][-_ROWS:],
            strict=True,
        )
    ]
    more = len(runs) - _SHOWN
    note = f"The last {_SHOWN} of {len(runs):,} runs; the others stand below. " if more > 0 else ""
    note += f"{percents[-1]}% is left."
    by = "epsilon" if total.epsilon is not None else total.text.partition(" ")[0]
    head = ("time", "program", f"{by} of this run", f"{by} of all so far", "share of limit")
    table = Part("table", rows[-_SHOWN:], "", note, head, (2, 3, 4))
    bar = Part("picture", share_bar(drawn, f"{percents[-1]}% left"))
    promised = (
        "That no run was made past this ledger: it counts only what it was asked.",
        "That anybody notices an older copy of this file, unless its head was written down.",
    )
    facts.cards = [
        Card("Where the budget went", [bar, table]),
        Card("Not promised", [Part("list", promised)]),
    ]
    told = [Part("text", [_UNITS[terms.measure], _entries(entries, runs)])]
    if more > 0:
        told.append(Part("table", rows[:-_SHOWN], "Earlier runs", "", head, (2, 3, 4)))
    facts.folds = [
        Card("Understand the numbers", told, "why losses add up as they do"),
        Card(
            "Verify",
            [
                Part("code", [f"opendp-sim ledger verify {file.name}"]),
                Part(
                    "pairs",
                    [
                        ("measure", str(terms.measure)),
                        ("unit", _protected(str(terms.unit))),
                        ("head", _head(entries)),
                    ],
                ),
            ],
            "command and hash",
        ),
    ]
    facts.choices = ("the limit stays", "raise the limit to ____", "close the data")
    return facts


def _sums(charges: Sequence[Charge], measure: MeasureName, limit: Limit) -> list[Total]:
    """Return the total before the first charge and after each."""
    sums = [total_of((), measure, limit)]
    for charge in charges:
        sums.append(total_of((Charge(measure, sums[-1].exact), charge), measure, limit))
    return sums


def whole_percents(shares: Sequence[float]) -> list[int]:
    """Return whole percentages with the right sum, by largest remainders."""
    exact = [100 * max(share, 0.0) for share in shares]
    found = [math.floor(share) for share in exact]
    missing = round(sum(exact)) - sum(found)
    by_rest = sorted(range(len(exact)), key=lambda at: found[at] - exact[at])
    for at in by_rest[:missing]:
        found[at] += 1
    return found


def _loss(total: Total) -> str:
    """Return a sum's epsilon, or its loss in the ledger's measure."""
    if total.epsilon is not None:
        return short_number(total.epsilon)
    return total.text.partition(" ")[2]


def _name(entry: Entry, answered: int | None) -> str:
    name = str(entry.body.get("name") or entry.body.get("program") or "")[:80]
    name += "" if answered is None else f", {answered:,} answered"
    return f"{name} (not ended)" if entry.kind == "reserve" else name


def _protected(unit: str) -> str:
    """State a ledger's unit in words; `add_remove 1 of row` is one record."""
    kind, number, _, of = (*unit.split(" ", 3), "", "", "")[:4]
    if kind not in ("add_remove", "replace") or not number.isdigit():
        return unit
    return f"{who({'of': of, kind: int(number)})} (`{unit}`)"


def _left(total: Total) -> Tile:
    """State what still fits."""
    more = "Or several smaller ones. " if "room for one more run" in total.left_text else ""
    big = total.left_text.partition(" under ")[0].replace("room for one more run of", "one run of")
    return Tile(
        "What still fits", big, f"{more}A run that does not fit is refused.", warn=not total.fits
    )


def _entries(entries: Sequence[Entry], runs: Sequence[Entry]) -> str:
    """Explain the entries that are no runs."""
    counted = {run.seq for run in runs}
    kinds = Counter(entry.kind for entry in entries if entry.seq not in counted)
    told = [f"{n:,} {_KINDS.get(kind, kind)}" for kind, n in kinds.items()]
    text = f"{_whole(len(runs)).capitalize()} in {len(entries)} entries, chained by hashes"
    return f"{text}; besides the runs: {', '.join(told)}." if told else f"{text}."


def _whole(runs: int) -> str:
    return "one run" if runs == 1 else f"{runs:,} runs"


def _head(entries: tuple[Any, ...]) -> str:
    """Return the hash of the last entry."""
    return str(entries[-1].hash) if entries else "no entry yet"
