"""Gather a report's facts, and lay out those of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from markupsafe import Markup

from opendp_sim.accounting.certificate.certificate import assumptions
from opendp_sim.accounting.claim_text import Statement, claim_sentence
from opendp_sim.accounting.evidence import record, tier
from opendp_sim.accounting.measures.attackers import Attacker, attacker_of
from opendp_sim.core.arithmetic.rounding import up_text
from opendp_sim.dsl.grammar.about import FORM
from opendp_sim.dsl.plan.gaussian_facts import is_tight
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.plan.statements import PlanStatements, tell, unit_of
from opendp_sim.dsl.run.charge import standing
from opendp_sim.dsl.types.error_terms import NEGATIVE
from opendp_sim.report.charts import attack_chart, dial
from opendp_sim.report.disclosures import Disclosure, disclosures, selected
from opendp_sim.report.flows import flow_of
from opendp_sim.report.trust import assumptions_of, not_promised

PartKind = Literal["text", "list", "order", "names", "pairs", "table", "picture", "flow", "code"]
_SHOWN = 4
"""Outputs that are described before anything is opened."""
_EVIDENCE = (
    "A program tried to refute each step on data that it made; that it found nothing is no proof. The "
    "proof is a text beside the code of the step. Planted faults are broken copies of a step that the "
    "program should refute."
)


@dataclass(frozen=True)
class Part:
    """Describe one piece of a page; only a picture is markup.

    Attributes:
        kind: how it is laid out.
        body: lines, pairs, rows, boxes, or a picture.
        title, note: above and below it.
        head: the columns of a table.
        numbers: columns that hold numbers.
    """

    kind: PartKind
    body: Any
    title: str = ""
    note: str = ""
    head: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Card:
    """Group parts under a title, open or folded with a hint."""

    title: str
    parts: Sequence[Part]
    hint: str = ""


@dataclass(frozen=True)
class Tile:
    """Show a number and its meaning in at most 25 words.

    ``warn`` where it is a reason to ask.
    """

    head: str
    big: str
    small: str
    warn: bool = False


@dataclass(frozen=True)
class Judgement:
    """State the verdict in a word, a sentence and a picture."""

    of: str
    word: str
    text: str
    note: str = ""
    picture: Markup | str = ""


@dataclass
class Facts:
    """Hold everything that the page prints.

    Only pictures are markup, all else is escaped.
    """

    kind: str
    title: str
    lead: str = ""
    about: list[tuple[str, str]] = field(default_factory=list)
    verdict: Judgement | None = None
    warnings: list[Part] = field(default_factory=list)
    tiles: list[Tile] = field(default_factory=list)
    cards: list[Card] = field(default_factory=list)
    folds: list[Card] = field(default_factory=list)
    choices: tuple[str, ...] = ()


def judgement(said: Statement, attacker: Attacker, of: str, note: str = "") -> Judgement:
    """Return the verdict on a claim, with its dial."""
    scale = "This tool's scale: strong up to 60, moderate up to 75, weak up to 90, very weak above."
    text = f"{scale} {note}".strip()
    return Judgement(of, said.value.capitalize(), said.text, text, dial(attacker))


def plan_facts(
    plan: Plan,
    kind: str,
    *,
    told: PlanStatements | None = None,
    assumed: Sequence[str] = (),
    released: Sequence[Part] = (),
    only: str = "",
    commands: Sequence[Part] = (),
) -> Facts:
    """Gather the facts of a plan, opening and spending nothing.

    ``told`` are its statements (default its ledger's today), ``assumed`` a certificate's assumptions,
    ``released`` what it released, ``only`` the output of the page, ``commands`` how to verify.
    """
    said = tell(plan, ledger=standing(plan)) if told is None else told
    about = {} if plan.program.about is None else dict(plan.program.about.said())
    out = Facts(kind, about.pop("title", "") or _readable(plan.program.name))
    out.lead = about.get("purpose", "")
    out.about = [
        (word.capitalize() if word != "date" else "Spec dated", about.get(word, ""))
        for word in FORM
        if word != "purpose"
    ]
    if not out.lead:
        out.about.insert(1, ("Purpose", ""))
    if "bounds" in about:
        out.about.append(("Bounds stated by", about["bounds"]))
    formal = f"Formally: {claim_sentence(plan.promised)}."
    if said.attacker is None:
        out.verdict = Judgement("Privacy", "Public data", "Nothing is protected.", formal)
    else:
        out.verdict = judgement(said.privacy, said.attacker, "Privacy of one run", formal)
    out.warnings = [Part("text", said.warnings)] if said.warnings else []
    shown = list(disclosures(plan))
    outputs = [one for one in shown if one.out and only in ("", one.name)]
    out.tiles = list(_tiles(plan, said, outputs, only))
    more = len(outputs) - _SHOWN
    note = f"{more} more outputs are described under the data's treatment." if more > 0 else ""
    listed = Part("pairs", [(one.name, one.text) for one in outputs[:_SHOWN]], note=note)
    title = "What is released" if released else "What will be released"
    promised = list(not_promised(plan))
    out.cards = [
        Card(title, released or [listed]),
        Card("Not promised", [Part("list", [short for short, _ in promised])]),
    ]
    out.folds = [
        _understand(plan, said, only),
        _believe(plan, assumed, [more for _, more in promised if more]),
        _treated(plan, said, [(one.word, one.text) for one in shown]),
        Card("Verify", commands, "commands, hashes, versions"),
    ]
    out.choices = ("may be run", "at most ____ times", "may not be run")
    return out


def _readable(name: str) -> str:
    """Return a program's name as a title."""
    text = name.replace("-", " ").replace("_", " ")
    return f"{text[:1].upper()}{text[1:]}"


def _tiles(
    plan: Plan, said: PlanStatements, outputs: Sequence[Disclosure], only: str
) -> Iterator[Tile]:
    yield Tile("Who is protected", said.who.value, said.who.text or said.who.line)
    big = outputs[0].big if len(outputs) == 1 else f"{len(outputs)} results"
    small = outputs[0].small if len(outputs) == 1 else ", ".join(one.name for one in outputs[:6])
    yield Tile("What leaves", big, small)
    own = said.errors.get(only)
    value, line = said.error.value, said.error.line
    if own is not None:
        value, line = own.value.capitalize(), f"{only}: {own.line}"
    yield Tile("How wrong", value, f"{line}.")
    if plan.privacy is not None:
        warn = said.repeat.value in ("Not counted", "Ledger unreadable") or said.room == 0
        yield Tile("If it is repeated", said.repeat.value, said.repeat.text, warn=warn)


def _understand(plan: Plan, said: PlanStatements, only: str) -> Card:
    """Explain the odds, the errors and the repeats."""
    wrong = [
        (name, f"{error.whole}.")
        for name, error in said.errors.items()
        if not only or only == name or name not in plan.outputs
    ]
    wrong += [pair for pair in selected(plan) if not only or pair[0].startswith(f"{only}:")]
    parts = [Part("text", [said.cost.more, *_of_the_curve(plan, said)])] if said.cost.more else []
    if said.attacker is not None:
        found = {**tell(plan).privacy.numbers, **said.who.numbers}
        rows = [("this run, as claimed", f"{found.pop('right'):g}")]
        rows += [(f"this run, {name[6:]}", f"{odds:g}") for name, odds in found.items()]
        head = ("what happens", "of 100 guesses right, at most")
        parts.append(Part("table", rows, "Repeats", head=head, numbers=(1,)))
    parts.append(Part("pairs", wrong, "Errors", error_notes(plan)))
    parts += attack_picture(plan)
    return Card("Understand the numbers", parts, "odds, errors, repeats")


def _of_the_curve(plan: Plan, said: PlanStatements) -> Iterator[str]:
    """Explain two programs of one epsilon and different guesses."""
    if plan.privacy is None or said.claim is None:
        return
    own = attacker_of(plan.privacy.measure, plan.total)
    if plan.privacy.measure in ("pure", "approx"):
        yield "The number of right guesses is the most that epsilon and delta allow."
        return
    alone = attacker_of("approx", (said.claim[0], said.claim[1] if len(said.claim) > 1 else 0.0))
    if alone.advantage > own.advantage:
        yield (
            "Epsilon does not decide the number of right guesses: the noise does, of which more is "
            f"known than epsilon and delta. They alone would allow {alone.right} in 100."
        )


def _believe(plan: Plan, assumed: Sequence[str], more: Sequence[str]) -> Card:
    """List assumptions, evidence, and what is not promised in full."""
    privacy = plan.privacy
    by_person = privacy is not None and privacy.unit.of != "row"
    own = [
        text
        for entry in plan.program.data
        for text in assumptions(
            entry.ingest, by_person=by_person, public=entry.name if entry.public else None
        )
    ]
    believe = assumptions_of(plan, list(assumed) or [*dict.fromkeys(own)])
    head = ("step", "evidence", "properties tested", "planted faults found", "tries to refute it")
    rows = [_evidence(key) for key in _keys(plan)]
    parts = [
        Part("order", believe),
        Part("list", more, "What is not promised, in full"),
        Part("table", rows, "What stands behind each step", _EVIDENCE, head),
    ]
    return Card("What you are asked to believe", parts, f"{len(believe)} assumptions")


def _treated(plan: Plan, said: PlanStatements, shown: Sequence[tuple[str, str]]) -> Card:
    """Show the data, its way to each release, and the advice."""
    parts = [Part("pairs", shown, "Data and results")]
    unit = unit_of(plan)
    free = "Results are public: any number of questions, at no further cost."
    if any(output.decl.serve is not None for output in plan.outputs.values()):
        free = "Each answer of a session reads the private data, and is paid for."
    note = (
        f"Everything before the noise is private and never leaves. In bold: the most that {unit.one} "
        f"can change there; compare it with the size of the noise. {free}"
    )
    parts += [
        Part("flow", flow_of(plan, name), f"The way to `{name}`", "" if at else note)
        for at, name in enumerate(plan.releases)
    ]
    if said.advice:
        parts.append(Part("list", said.advice, "Advice to the author"))
    steps = sum(len(release.typed.stages) for release in plan.releases.values())
    return Card(
        "How the data is treated", parts, f"{steps} step{'' if steps == 1 else 's'}, then noise"
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


def _evidence(key: str) -> tuple[str, ...]:
    found: Mapping[str, Any] = record(key) or {}
    twins, audits = found.get("twins"), found.get("audits")
    held = (found.get("laws") or {}).get("held") or ()
    none = "none recorded"
    return (
        key,
        tier(key),
        str(len(held)),
        f"{twins['caught']} of {twins['of']}" if twins else none,
        f"{audits['verdict']}, {audits['audits']} tried" if audits else none,
    )


_FEW = 0.01
"""The share of innocent rows that a careful attacker accuses."""
_NOTES = (
    '"95%" tells the size of an error: 5% of answers are off by more. 100 and 10,000 rows are '
    "examples, of one class where there are classes: nothing is guessed about this data. Noise, draws "
    "and projections are independent, so their squares add up: 3 and 4 make 5. Rounding and bias may "
    "all point one way, so they are added in full."
)


def attack_picture(plan: Plan) -> Iterator[Part]:
    """Yield the best attack against a plan's claim, beside guessing."""
    if plan.privacy is None or not plan.total:
        return
    attacker = attacker_of(plan.privacy.measure, plan.total)
    worst = min(max((1 - attacker.advantage) / 2, _FEW), 0.5)
    rates = sorted({worst, _FEW, 0.002, *(i / 40 for i in range(1, 40))})
    curve = [(rate, attacker.power(rate)) for rate in rates]
    exact = " (exact: the claim allows so much and no more)" if is_tight(plan) else ""
    yield Part(
        "picture",
        attack_chart(curve, worst),
        "What an attacker gains",
        f"An attacker who knows {unit_of(plan).others} accuses some of being in the data, or "
        "of saying the first of two things. The dashed line is guessing. At the ring the release helps "
        f"most: with {up_text(100 * worst, 3)} of 100 wrong accusations, at most {attacker.found(worst)} "
        f"of 100 are found{exact}; with 1 of 100, at most {attacker.found(_FEW)}.",
    )


def error_notes(plan: Plan) -> str:
    """Return what a plan's errors need to be read rightly."""
    released = plan.privacy is not None and any(o.posts for o in plan.outputs.values())
    return f"{_NOTES} {NEGATIVE}" if released else _NOTES
