"""Gather a report's facts from plan and certificate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from opendp_sim.accounting.certificate.certificate import assumptions
from opendp_sim.accounting.claim_text import claim_sentence
from opendp_sim.accounting.evidence import record, tier
from opendp_sim.accounting.measures.attackers import Attacker, attacker_of
from opendp_sim.accounting.measures.group_and_repeat import after_runs, of_units, weaker_situations
from opendp_sim.dsl.grammar.about import FORM
from opendp_sim.dsl.plan.advice import advised_of
from opendp_sim.dsl.plan.errors import asked_later, how_wrong
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.report.disclosures import handed_out
from opendp_sim.report.figures import Figure, figures_of
from opendp_sim.report.flows import Flow, flow_of
from opendp_sim.report.notes import error_notes
from opendp_sim.report.selection import selected
from opendp_sim.report.tiles import Tile, tiles_of
from opendp_sim.report.trust import assumptions_of, not_promised

ALONE, CALLS = "from this run alone", "calls the protection "
"""Of what a promise speaks without a ledger, and what stands before its verdict."""


@dataclass
class Facts:
    """Hold everything that the page prints, escaped except ``picture``."""

    kind: str
    title: str
    promise: str
    unit: str
    command: str
    tiles: list[Tile] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    wrong: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    handed: list[tuple[str, str]] = field(default_factory=list)
    wear: list[tuple[str, str]] = field(default_factory=list)
    about: list[tuple[str, str]] = field(default_factory=list)
    blank: list[str] = field(default_factory=list)
    structured: bool = False
    decision: str = "Decision"
    free: str = "public: any number of questions, at no further cost"
    warnings: list[str] = field(default_factory=list)
    not_promised: list[str] = field(default_factory=list)
    believe: list[str] = field(default_factory=list)
    evidence: list[dict[str, str]] = field(default_factory=list)
    charges: list[tuple[str, str, str]] = field(default_factory=list)
    audits: list[Any] = field(default_factory=list)
    checks: list[tuple[str, str]] = field(default_factory=list)
    details: list[tuple[str, str]] = field(default_factory=list)


def plan_facts(plan: Plan, kind: str, command: str) -> Facts:
    """Gather the facts of a plan, without data or loss."""
    plain = plan.plain()
    privacy = plain["privacy"]
    unit = {} if privacy is None else privacy["unit"]
    by_person = unit.get("of", "row") != "row"
    noun = "person" if by_person else "record"
    out = Facts(kind, plan.program.name, _claim_lines(plan, unit, noun), noun, command)
    out.tiles = list(tiles_of(plan, unit))
    out.flows = [flow_of(plan, name) for name in plan.releases]
    out.structured = any(release.typed.is_sketch for release in plan.releases.values())
    out.figures = list(figures_of(plan))
    told = how_wrong(plan) or asked_later(plan)
    out.wrong = [(name, f"{error.whole}.") for name, error in told.items()]
    out.notes = list(error_notes(plan, out.wrong))
    out.wrong += selected(plan)
    out.handed = list(handed_out(plan))
    if any(output.decl.serve is not None for output in plan.outputs.values()):
        out.free = "public: answers; each one of a session reads the private data, and is paid for"
    out.wear = list(_weaker_protection(plan))
    about = plan.program.about
    out.about = [] if about is None else list(about.said())
    out.blank = [word for word in FORM if word not in dict(out.about)]
    out.warnings = advised_of(plan)
    out.not_promised = list(not_promised(plan))
    out.decision = "Decision: may it be run, and how often"
    entries = plan.program.data
    assumed = dict.fromkeys(
        text
        for entry in entries
        for text in assumptions(
            entry.ingest, by_person=by_person, public=entry.name if entry.public else None
        )
    )
    out.believe = assumptions_of(plan, [*assumed])
    out.evidence = [_evidence(key) for key in _keys(plan)]
    out.details = [
        ("formal claim", claim_sentence(plan.promised)),
        ("program", f"sha256 {plain['program']}, of its canonical text and not of a spec's file"),
    ]
    return out


def _claim_lines(plan: Plan, unit: Mapping[str, Any], noun: str) -> str:
    privacy = plan.privacy
    if privacy is None:
        return "All data is declared public: nothing is protected."
    number = unit.get("replace", unit.get("add_remove", 1))
    several = f"{number} {noun}s of somebody's choice" if number != 1 else f"one {noun}"
    was = "were" if number != 1 else "was"
    done = f"what {several} said" if "replace" in unit else f"whether {several} {was} in the data"
    attacker = attacker_of(privacy.measure, plan.total)
    return (
        f"{_noun(plan)} Even somebody who sees everything that is released here, knows every other "
        f"{noun}, and starts at 50:50 about {done}, then guesses right at most {attacker.right} times "
        f"in 100, {ALONE}; tossing a coin would be right 50 times. {_uncounted(plan)}"
        f"This package {CALLS}"
        f"{promise_ending(attacker)}"
    )


def promise_ending(attacker: Attacker, together: Attacker | None = None) -> str:
    """Return the promise's word for the protection.

    Of all runs where there were others.
    """
    if together is None:
        return f"{attacker.strength} ({attacker.words})."
    alone = f"this run alone: {attacker.strength}"
    return f"after all these runs {together.strength} ({alone}; {attacker.words})."


def _noun(plan: Plan) -> str:
    """Return the page's word for a record or a person."""
    assert plan.privacy is not None  # noqa: S101 - the caller asked
    names = [entry.name for entry in plan.program.data if not entry.public]
    data = " and ".join(f"`{name}`" for name in names)
    of = plan.privacy.unit.of
    if of == "row":
        return (
            f"One record is one row of {data}. Is a row a person? The program does not say, and this "
            "page protects rows: where every person has one row, every person is protected as is said "
            f"here; whoever has several is protected less{_of_several(plan)}."
        )
    return (
        f"What is protected is one `{of}`: all rows of {data} with the same `{of}`, however many. Is one "
        f"`{of}` one person? The program does not say: where every person has one `{of}`, every person "
        "is protected as is said here; whoever has several is protected less. Where this page says "
        f'"person" it means one `{of}`.'
    )


def _of_several(plan: Plan) -> str:
    """Say how much less somebody with two or ten rows is protected."""
    assert plan.privacy is not None  # noqa: S101 - the caller asked
    if plan.privacy.unit.count != 1:
        return ""
    attacker = attacker_of(plan.privacy.measure, plan.total)
    found = [(count, of_units(attacker, count)) for count in (2, 10)]
    told = [f"with {count} rows {one.right}" for count, one in found if one is not None]
    return f" ({' and '.join(told)} such guesses in 100 are right at most)" if told else ""


def _uncounted(plan: Plan) -> str:
    """State that without a ledger runs are not counted."""
    assert plan.privacy is not None  # noqa: S101 - the caller asked
    if all(entry.ledger is not None for entry in plan.program.data if not entry.public):
        return ""
    two = after_runs(attacker_of(plan.privacy.measure, plan.total), 2).right
    return (
        f"There is no ledger, so nobody counts repeated releases: after a second run like this {two} "
        "guesses in 100 are right at most, and nothing records or stops it. "
    )


def _weaker_protection(plan: Plan) -> Iterator[tuple[str, str]]:
    privacy = plan.privacy
    if privacy is not None and plan.total:
        attacker = attacker_of(privacy.measure, plan.total)
        yield from weaker_situations(
            attacker, rows=privacy.unit.of == "row" and privacy.unit.count == 1
        )


def _keys(plan: Plan) -> list[str]:
    keys: dict[str, None] = {}
    for release in plan.releases.values():
        keys |= dict.fromkeys(stage.mechanism.key for stage in release.typed.stages)
        if release.record is not None:
            keys[release.record.key] = None
    for output in plan.outputs.values():
        keys |= dict.fromkeys(post.key for post in output.decl.post)
    return list(keys)


def _evidence(key: str) -> dict[str, str]:
    found = record(key) or {}
    twins, audits = found.get("twins"), found.get("audits")
    held = (found.get("laws") or {}).get("held") or ()
    none = "none recorded"
    return {
        "key": key,
        "tier": tier(key),
        "laws": str(len(held)),
        "twins": f"{twins['caught']} of {twins['of']}" if twins else none,
        "audits": f"{audits['verdict']}, {audits['audits']} tried" if audits else none,
    }
