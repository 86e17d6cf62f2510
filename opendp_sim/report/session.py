"""Report a session's store.

Questions answered and left, its cost, and the rest.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from opendp_sim.accounting.composition import Charge, Total
from opendp_sim.accounting.ledger._entries import Entry, counting_entries, store_for, stores_of
from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.accounting.session.identity import store_refusal
from opendp_sim.accounting.session.status import SessionStanding
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.plan.records import ledger_path
from opendp_sim.report.disclosures import most_questions
from opendp_sim.report.facts import Facts, plan_facts
from opendp_sim.report.tiles import Tile

_PROMISE = (
    "A session answers one question after another from private data. Its whole loss was charged before "
    "the first answer, however many follow: this page says how far it came."
)
_PURSES = (
    "How much single records or people have left is private, as this store is: no page tells it, "
    "and the store stays with the curator."
)


def session_facts(
    file: Path, found: SessionStanding, plan: Plan | None = None, spec: str = ""
) -> Facts:
    """Gather the facts of a store and its spec.

    The spec where one is named.

    Args:
        file: the store.
        found: what it says.
        plan: of the spec; with it the page says how many questions are left and what is promised.
        spec: its file, as seen from the store's folder.

    Raises:
        BudgetError (OS407): the ledger charged this store for another program than the plan's.
    """
    facts = Facts("Session", file.name, _PROMISE, "record", f"opendp-sim report {file.name}")
    if plan is not None:
        facts = plan_facts(
            plan, "Session", f"opendp-sim report {file.name} --spec {shlex.quote(spec)}"
        )
        facts.tiles = facts.tiles[:-1]
    facts.decision = "Decision: may the session go on"
    tiles = [Tile(f"{_questions(found.answered)} answered", "so far, by this store")]
    path = _ledger(file, found, plan)
    own, rest = (None, []) if path is None else _paid(path, found, plan)
    tiles.append(_left(found, plan, own))
    tiles += _money(found, own, rest)
    facts.tiles = [*tiles, *facts.tiles]
    facts.not_promised += [
        _PURSES,
        "That this is the newest copy of the store: a ledger refuses an older one when it is opened.",
    ]
    facts.details += [
        ("store", f"entry {found.place} is the last one; every entry's hash was checked"),
        ("head", found.head),
    ]
    return facts


def _questions(number: int) -> str:
    return "one question" if number == 1 else f"{number:,} questions"


def _left(found: SessionStanding, plan: Plan | None, own: Entry | None) -> Tile:
    """State the questions left."""
    if plan is None:
        return Tile("left: see the spec", "name it with --spec: the store does not hold it")
    limits = [
        most_questions(plan.releases[output.stage.name].record)
        for name, output in plan.outputs.items()
        if output.interactive and (own is None or store_for(own.body, name) == found.mark.name)
    ]
    most = limits[0] if len(limits) == 1 else None
    if most is None:
        return Tile(
            "no last question",
            "each record pays for the questions near to it and takes no part once its own budget is "
            "empty: answers get worse, and the session goes on",
        )
    left = max(most - found.answered, 0)
    told = f"of {most:,}; then the session refuses"
    return Tile(f"{_questions(left)} left", told, warn=left == 0)


def _ledger(file: Path, found: SessionStanding, plan: Plan | None) -> Path | None:
    """Return the ledger's file."""
    if plan is not None:
        path = ledger_path(plan)
        return path if path is not None and path.is_file() else None
    name = found.mark.ledger
    if not name or Path(name).name != name:
        return None
    beside = [folder / name for folder in (file.parent, file.resolve().parent.parent)]
    return next((path for path in beside if path.is_file()), None)


def _paid(path: Path, found: SessionStanding, plan: Plan | None) -> tuple[Entry | None, list[Tile]]:
    """Return the entry that pays for a store, and the rest.

    Raises:
        BudgetError (OS407): another program than the plan's was charged.
    """
    with Ledger.open(path) as ledger:
        total = ledger.total()
        own = _charge(ledger.entries, found)
    if own is not None and plan is not None and own.body.get("program") != plan.program.hash:
        raise store_refusal("the spec that this store was started with", "another one")
    return own, _rest(total)


def _money(found: SessionStanding, own: Entry | None, rest: list[Tile]) -> list[Tile]:
    """Say what the store cost and what its ledger has left."""
    if not rest:
        where = "is not here" if found.mark.ledger else "counts this store"
        noun = "its ledger" if found.mark.ledger else "no ledger"
        return [
            Tile(
                f"{noun} {where}",
                "what was spent and is left cannot be said"
                if found.mark.ledger
                else "every new store is a budget of its own, and nothing stops the next one",
                warn=True,
            )
        ]
    if own is None:
        told = "its ledger does not know this store, which is charged when it is opened"
        return [Tile("not charged", told, warn=True), *rest]
    more = " and the other outputs of its run" if {"files", "stores"} & own.body.keys() else ""
    told = f"for all its questions{more} together: more of them cost nothing more"
    return [Tile(f"spent: {Charge.read(own.body['loss']).text}", told), *rest]


def _rest(total: Total) -> list[Tile]:
    text = f"in the ledger: of {total.limit_text}, where all runs together spent {total.text}"
    return [Tile(f"left: {total.left_text}", text)]


def _charge(entries: tuple[Entry, ...], found: SessionStanding) -> Entry | None:
    """Return the entry that pays for this store."""
    paid = [e for e in counting_entries(entries) if found.mark.name in stores_of(e.body)]
    return paid[-1] if paid else None
