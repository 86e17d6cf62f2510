"""What a report says, gathered from a plan and, where there is one, its certificate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from opendp_sim.accounting.attackers import attacker_of
from opendp_sim.accounting.certificate import assumptions
from opendp_sim.accounting.evidence import record, tier
from opendp_sim.accounting.promise import belief, promise, who
from opendp_sim.accounting.wear import wear
from opendp_sim.core.rounding import up_text
from opendp_sim.dsl.advice import advised_of
from opendp_sim.dsl.grammar.about import FORM
from opendp_sim.dsl.how_wrong import asked_later, how_wrong, size
from opendp_sim.dsl.loss_in_words import delta_in_words, epsilon_in_words, of_whom, spent_of
from opendp_sim.dsl.plan import Plan
from opendp_sim.dsl.release_plan import ReleasePlan
from opendp_sim.dsl.standing import standing
from opendp_sim.report.believed import believed, not_promised
from opendp_sim.report.figures import Figure, figures_of
from opendp_sim.report.handed_out import handed_out
from opendp_sim.report.plain_steps import in_words
from opendp_sim.spaces.metrics import VectorNorm

__all__ = ["Box", "Facts", "Figure", "Flow", "Tile", "facts_of"]


@dataclass(frozen=True)
class Tile:
    """A number and what it means; ``warn`` where it is a reason to ask."""

    big: str
    small: str
    warn: bool = False


@dataclass(frozen=True)
class Box:
    """One place on a record's way: ``work`` is private, ``door`` is the noise, ``free`` is public."""

    kind: str
    name: str
    text: str
    bound: str = ""


@dataclass(frozen=True)
class Flow:
    """The way to one release."""

    name: str
    boxes: tuple[Box, ...]


@dataclass
class Facts:
    """Everything that the page prints; only ``picture`` is markup, all else is escaped."""

    kind: str
    title: str
    promise: str
    unit: str
    command: str
    tiles: list[Tile] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    wrong: list[tuple[str, str]] = field(default_factory=list)
    handed: list[tuple[str, str]] = field(default_factory=list)
    wear: list[tuple[str, str]] = field(default_factory=list)
    about: list[tuple[str, str]] = field(default_factory=list)
    blank: list[str] = field(default_factory=list)
    decision: str = "Decision"
    free: str = "public: any number of questions, at no further cost"
    warnings: list[str] = field(default_factory=list)
    not_promised: list[str] = field(default_factory=list)
    believe: list[str] = field(default_factory=list)
    evidence: list[dict[str, str]] = field(default_factory=list)
    charges: list[tuple[str, str, str]] = field(default_factory=list)
    audits: list[Any] = field(default_factory=list)
    details: list[tuple[str, str]] = field(default_factory=list)


def facts_of(plan: Plan, kind: str, command: str) -> Facts:
    """Gather the facts of a plan; nothing is opened and nothing is spent."""
    plain = plan.plain()
    privacy = plain["privacy"]
    unit = {} if privacy is None else privacy["unit"]
    by_person = unit.get("of", "row") != "row"
    noun = "person" if by_person else "record"
    out = Facts(kind, plan.program.name, _promise(plan, unit, noun), noun, command)
    out.tiles = list(_tiles(plan, plain, unit))
    out.flows = [_flow(plan, name) for name in plan.releases]
    out.figures = list(figures_of(plan))
    told = how_wrong(plan) or asked_later(plan)
    out.wrong = [(name, f"{error.whole}.") for name, error in told.items()]
    out.handed = list(handed_out(plan))
    if any(output.decl.serve is not None for output in plan.outputs.values()):
        out.free = "public: answers; each one of a session reads the private data, and is paid for"
    out.wear = list(_wear(plan))
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
    out.believe = believed(plan, [*assumed])
    out.evidence = [_evidence(key) for key in _keys(plan)]
    out.details = [
        ("formal claim", _claim(plain)),
        ("program", f"sha256 {plain['program']}, of its canonical text and not of a spec's file"),
    ]
    return out


def _promise(plan: Plan, unit: Mapping[str, Any], noun: str) -> str:
    privacy = plan.privacy
    if privacy is None:
        return "All data is declared public: nothing is protected."
    number = unit.get("replace", unit.get("add_remove", 1))
    several = f"{number} {noun}s of somebody's choice" if number != 1 else f"one {noun}"
    was = "were" if number != 1 else "was"
    done = f"what {several} said" if "replace" in unit else f"whether {several} {was} in the data"
    attacker = attacker_of(privacy.measure, plan.total)
    word = "hardly worth the name" if attacker.strength == "hardly any" else attacker.strength
    return (
        f"{_noun(plan)} Even somebody who sees everything that is released here, knows every other "
        f"{noun}, and starts at 50:50 about {done}, then guesses right at most {attacker.right} times "
        f"in 100, from this run alone; tossing a coin would be right 50 times. This package calls the "
        f"protection {word} ({attacker.words})."
    )


def _noun(plan: Plan) -> str:
    """Say what the page calls a record or a person: the first question of every reader."""
    assert plan.privacy is not None  # noqa: S101 - the caller asked
    names = [entry.name for entry in plan.program.data if not entry.public]
    data = " and ".join(f"`{name}`" for name in names)
    of = plan.privacy.unit.of
    if of == "row":
        return (
            f"One record is one row of {data}, and this page protects rows: whoever has several is "
            "protected less."
        )
    return (
        f"One person is here everything in {data} with the same `{of}`, however many rows that is. "
        f"Whoever has several `{of}` is protected less."
    )


def _claim(plain: Mapping[str, Any]) -> str:
    privacy = plain["privacy"]
    return promise(
        {"public": True}
        if privacy is None
        else privacy | {"total": plain["total"], "claim": plain["claim"]}
    )


def _tiles(plan: Plan, plain: Mapping[str, Any], unit: Mapping[str, Any]) -> Iterator[Tile]:
    privacy = plain["privacy"]
    if privacy is None or plan.privacy is None:
        yield Tile("public", "declared so by whoever wrote the program", warn=True)
        return
    spent = spent_of(plan)
    if spent is not None:
        epsilon, delta = spent[0], spent[1] if len(spent) > 1 else 0.0
        said = (
            epsilon_in_words(
                epsilon, replaced="replace" in unit, of=of_whom(plan.privacy.unit)
            ).partition(": ")[2]
            or "so large a number limits hardly anything"
        )
        if not delta and epsilon <= 20:  # under a pure claim alone is a suspicion bounded
            most = up_text(100 * belief(epsilon), 3)
            said = f"{said.removesuffix('.')}; a suspicion of 50% can rise to at most {most}%."
        yield Tile(f"epsilon = {up_text(epsilon, 3)}", said, warn=epsilon > 10)
        yield Tile(f"delta = {up_text(delta, 2)}", _delta(delta, unit))
    else:
        yield Tile(_claim(plain), "the loss in the measure of the program")
    yield _whom(unit)
    ledgers = [entry.ledger for entry in plan.program.data if not entry.public]
    if all(ledger is not None for ledger in ledgers):
        found = standing(plan) or {}
        runs = f"; it has room for {found['room']} such runs" if "room" in found else ""
        yield Tile(
            "a ledger counts",
            f"it adds up every run on the same data, and refuses the one that passes its limit{runs}",
        )
    else:
        yield Tile(
            "no ledger",
            "runs add up, but nothing counts them and nothing stops the next one; nor can this page "
            "say what else was released about the same records",
            warn=True,
        )


def _delta(delta: float, unit: Mapping[str, Any]) -> str:
    of = "records" if unit.get("of", "row") == "row" else "people"
    return delta_in_words(delta, of).partition(": ")[2]


def _whom(unit: Mapping[str, Any]) -> Tile:
    """Say who is protected, in two words first."""
    number = unit.get("replace", unit.get("add_remove", 1))
    person = unit["of"] != "row"
    noun = "person" if person else "record"
    big = f"one {noun}" if number == 1 else f"{number} {noun}s"
    rest = who(unit).partition(" replaced")[0].partition(" added")[0].removeprefix(big).strip()
    done = "replaced by another" if "replace" in unit else "added or removed"
    more = "" if person else "; a person with more records is protected less"
    return Tile(big, f"{rest} {done}: this is who is protected{more}".strip())


def _flow(plan: Plan, name: str) -> Flow:
    release = plan.releases[name]
    typed = release.typed
    bounds = dict(release.maps)
    unit = {} if plan.privacy is None else plan.privacy.plain()["unit"]
    noun = "record" if unit.get("of", "row") == "row" else "person"
    changed = f"one {noun} {'replaced' if 'replace' in unit else 'more or less'}"
    boxes = [Box("work", typed.entry.name, "the private records", changed)]
    if typed.entry.public:
        boxes = [Box("free", typed.entry.name, "public records")]
    for stage in typed.stages:
        key = stage.mechanism.key
        bound = (
            _bound(stage.mechanism.room, bounds[key], release, replaced="replace" in unit)
            if key in bounds
            else ""
        )
        boxes.append(Box("work", key, in_words(stage.mechanism), bound))
    record_ = release.record
    if record_ is not None:
        text = f"{in_words(record_)}{_typical(release)}"
        boxes.append(Box("door", record_.key, text, _cost(plan, tuple(release.loss))))
    for output in plan.outputs.values():
        if output.stage.name == typed.name:
            steps = [in_words(post).removesuffix(".") for post in output.decl.post[-1:]]
            told = f"{steps[0]}: reads" if steps else "The release itself: reads"
            told += " only what was released"
            if output.decl.serve is not None:
                told = "One answer after another: each reads the private data, and its noise is paid for"
            boxes.append(Box("free", output.decl.name, told))
    return Flow(name, tuple(boxes))


def _cost(plan: Plan, loss: tuple[float, ...]) -> str:
    """Say what part of a run's loss a release is: in the measure's own number, which adds up."""
    if plan.privacy is None:
        return ""
    if len(plan.releases) == 1 or not plan.total[0]:
        return "this is all that this run costs"
    return f"this is about {100 * loss[0] / plan.total[0]:.2g}% of what this run costs"


def _bound(room: str, most: float, release: ReleasePlan, *, replaced: bool = False) -> str:
    """Say the most that what comes out of a stage changes, in the norm that the noise is made for."""
    text = up_text(most)
    if 1000 <= float(text) < 1e12:
        text = f"{float(text):,.0f}"
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
    """Say how large the noise is, in the numbers of the bound before it."""
    noise = None if release.bound is None else getattr(release.bound.claim, "noise", None)
    if noise is None:
        return ""
    weight = " times the weight" if noise.weights else ""
    return f" Its typical size (deviation): {size(noise.deviation)}{weight}."


def _wear(plan: Plan) -> Iterator[tuple[str, str]]:
    privacy = plan.privacy
    if privacy is not None and plan.total:
        attacker = attacker_of(privacy.measure, plan.total)
        yield from wear(attacker, rows=privacy.unit.of == "row" and privacy.unit.count == 1)


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
