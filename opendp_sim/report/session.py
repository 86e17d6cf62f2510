"""Report a session's questions, cost and rest from its store."""

from __future__ import annotations

import shlex
from pathlib import Path

from opendp_sim.accounting.claim_text import ProtectedUnit, odds_statement
from opendp_sim.accounting.composition import Charge, Total
from opendp_sim.accounting.ledger._entries import Entry, counting_entries, store_for, stores_of
from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.accounting.measures.attackers import attacker_of
from opendp_sim.accounting.session.identity import store_refusal
from opendp_sim.accounting.session.status import SessionStanding
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.plan.records import ledger_path
from opendp_sim.report.disclosures import most_questions
from opendp_sim.report.facts import Card, Facts, Judgement, Part, Tile, judgement, plan_facts

_LEAD = (
    "Answers one question after another from private data. Its whole loss was charged before the first "
    "answer, however many follow."
)
_RELEASED = (
    "For each question a label, with noisy votes of the rows near to it. Whoever asks may choose a "
    "question by the answers before it: the claim covers that."
)
_PURSES = (
    "To tell how much single rows or people have left: that is private, as this store is, and the store "
    "stays with the curator."
)
_CHOICES = ("may go on", "at most ____ questions", "ends now")


def session_facts(
    file: Path, found: SessionStanding, plan: Plan | None = None, spec: str = ""
) -> Facts:
    """Gather the facts of a store, and of its spec's ``plan``.

    ``file`` is seen from here, ``spec`` from the store's folder.

    Raises:
        BudgetError (OS407): the ledger charged this store for another program than the plan's.
    """
    path = _ledger(file, found, plan)
    own, total, unit = (None, None, ProtectedUnit()) if path is None else _paid(path, found, plan)
    command = f"opendp-sim report {file.name}"
    command += f" --spec {shlex.quote(spec)}" if plan is not None else ""
    verify = [
        Part("code", [command]),
        Part(
            "pairs",
            [
                ("store", f"entry {found.place} is the last one; every entry's hash was checked"),
                ("head", found.head),
            ],
        ),
    ]
    kind = f"Session `{file.name}`"
    if plan is None:
        facts = Facts(kind, file.name)
        facts.about = [("Owner", ""), ("Purpose", ""), ("Expires", "")]
        facts.verdict = _verdict(own, unit)
        facts.cards = [
            Card("What is released", [Part("text", [_RELEASED])]),
            Card("Not promised", [Part("list", [])]),
        ]
        facts.folds = [Card("Verify", verify, "command and hash")]
    else:
        facts = plan_facts(plan, kind, commands=verify)
    facts.lead, facts.choices = facts.lead or _LEAD, _CHOICES
    whom = [tile for tile in facts.tiles if tile.head in ("Who is protected", "How wrong")]
    answered = Tile("Answered", f"{_questions(found.answered)} answered", "So far, by this store.")
    facts.tiles = [answered, _left(found, plan, own), *_money(found, own, total), *whom][:4]
    newest = "That this is the newest copy of the store: a ledger refuses an older one when it is opened."
    first, promised = facts.cards
    listed = [*promised.parts[0].body, _PURSES, newest]
    facts.cards = [first, Card(promised.title, [Part("list", listed)])]
    return facts


def _verdict(own: Entry | None, unit: ProtectedUnit) -> Judgement | None:
    """Return the verdict on a store's charge, where its ledger is there."""
    if own is None:
        return None
    charge = Charge.read(own.body["loss"])
    attacker = attacker_of(charge.measure, charge.loss)
    said = odds_statement(attacker, unit)
    return judgement(said, attacker, "Privacy of the whole session", f"Formally: {charge.text}.")


def _questions(number: int) -> str:
    return "one question" if number == 1 else f"{number:,} questions"


def _left(found: SessionStanding, plan: Plan | None, own: Entry | None) -> Tile:
    if plan is None:
        return Tile("Left", "See the spec", "Name it with --spec: the store does not hold it.")
    limits = [
        most_questions(plan.releases[output.stage.name].record)
        for name, output in plan.outputs.items()
        if output.interactive and (own is None or store_for(own.body, name) == found.mark.name)
    ]
    most = limits[0] if len(limits) == 1 else None
    if most is None:
        return Tile(
            "Left",
            "No last question",
            "Each row pays for the questions near to it, and takes no part once its budget is empty.",
        )
    left = max(most - found.answered, 0)
    told = f"Of {most:,}; then the session refuses."
    return Tile("Left", f"{_questions(left)} left", told, warn=left == 0)


def _ledger(file: Path, found: SessionStanding, plan: Plan | None) -> Path | None:
    if plan is not None:
        path = ledger_path(plan)
        return path if path is not None and path.is_file() else None
    name = found.mark.ledger
    if not name or Path(name).name != name:
        return None
    beside = [folder / name for folder in (file.parent, file.resolve().parent.parent)]
    return next((path for path in beside if path.is_file()), None)


def _paid(
    path: Path, found: SessionStanding, plan: Plan | None
) -> tuple[Entry | None, Total, ProtectedUnit]:
    """Return a store's charge, and its ledger's total and unit (OS407)."""
    with Ledger.open(path) as ledger:
        total = ledger.total()
        own, unit = _charge(ledger.entries, found), ProtectedUnit.of_text(str(ledger.terms.unit))
    if own is not None and plan is not None and own.body.get("program") != plan.program.hash:
        raise store_refusal("the spec that this store was started with", "another one")
    return own, total, unit


def _money(found: SessionStanding, own: Entry | None, total: Total | None) -> list[Tile]:
    """State what the store cost and what its ledger has left."""
    if total is None and found.mark.ledger:
        told = "Neither the spent nor the remaining budget is known."
        return [Tile("Spent", "Its ledger is not here", told, warn=True)]
    if total is None:
        told = "Every new store is a budget of its own, and nothing stops the next one."
        return [Tile("Spent", "No ledger counts this store", told, warn=True)]
    left = Tile("Ledger", f"{total.left_text.partition(' (')[0]} left", f"Of {total.limit_text}.")
    if own is None:
        told = "Its ledger does not know this store, which is charged when it is opened."
        return [Tile("Spent", "Not charged", told, warn=True), left]
    more = " and the other outputs of its run" if {"files", "stores"} & own.body.keys() else ""
    told = f"For all its questions{more} together: more of them cost nothing more."
    return [Tile("Spent", Charge.read(own.body["loss"]).text, told), left]


def _charge(entries: tuple[Entry, ...], found: SessionStanding) -> Entry | None:
    """Return the entry that pays for this store."""
    paid = [e for e in counting_entries(entries) if found.mark.name in stores_of(e.body)]
    return paid[-1] if paid else None
