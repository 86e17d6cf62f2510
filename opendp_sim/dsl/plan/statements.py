"""Tell a plan once; terminal, page and notebook lay statements out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opendp_sim.accounting.claim_text import (
    LINE,
    ProtectedUnit,
    Statement,
    claim_sentence,
    first_that_fits,
    html_card,
    loss_statement,
    odds_statement,
    unit_statement,
)
from opendp_sim.accounting.composition import loss_text
from opendp_sim.accounting.ledger.standing import LedgerStanding
from opendp_sim.accounting.measures.attackers import Attacker, attacker_of
from opendp_sim.accounting.measures.group_and_repeat import after_runs
from opendp_sim.core.arithmetic.rounding import up_text
from opendp_sim.dsl.plan.advice import advised_of, warnings_of
from opendp_sim.dsl.plan.expected_error import error_forecasts
from opendp_sim.dsl.plan.records import Planned
from opendp_sim.dsl.types.describe import keys_text
from opendp_sim.dsl.types.error_terms import ErrorForecast

_SHOWN = 12
"""Outputs whose errors stand on a first screen, a line each."""
_NAME, _LEAST = 20, 6
"""Letters of a name that a line shows, and in a full line; the whole name stands in the sentences."""


@dataclass(frozen=True)
class PlanStatements:
    """Hold what is to be said of a plan, numbers first.

    Attributes:
        attacker: of the plan's total, or of all known runs together; None for public data.
        claim: (epsilon,) or (epsilon, delta) of one run; None in another measure.
        room: how many more such runs the ledger allows; None where none counts.
        errors: the expected error of each output and of each question asked later, by name.
        plan, who, privacy, error, cost, repeat: the statements, in the order of a reader's questions.
        each_error: a line for each output, of which ``error`` is the first.
        data: of the claim, the data, its steps and the noise.
        warnings: of claims that promise next to nothing.
        advice: what is allowed and seldom meant, the warnings left out.
    """

    attacker: Attacker | None
    claim: tuple[float, ...] | None
    room: int | None
    errors: Mapping[str, ErrorForecast]
    plan: Statement
    who: Statement
    privacy: Statement
    error: Statement
    each_error: tuple[Statement, ...]
    cost: Statement
    repeat: Statement
    data: tuple[Statement, ...]
    warnings: tuple[str, ...]
    advice: tuple[str, ...]

    @property
    def first(self) -> tuple[Statement, ...]:
        """The lines of a first screen, without the command that comes next."""
        return self.plan, self.who, self.privacy, *self.each_error, self.cost

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield (topic, line) of everything."""
        yield "plan", self.plan.line
        yield from (("warning", text) for text in self.warnings)
        yield from ((one.topic, one.line) for one in self.first[1:3])
        yield from (("error", f"{name}: {error.line}") for name, error in self.errors.items())
        yield "cost", self.cost.line
        yield from ((one.topic, one.line) for one in self.data)

    def card(self) -> str:
        """Return the first screen as a notebook's table."""
        warned = (Statement("warning", "", text) for text in self.warnings)
        return html_card(self.plan.line, [*warned, *self.first[1:], *self.data])


def tell(
    plan: Planned,
    *,
    ledger: LedgerStanding | None = None,
    runs: int = 0,
    predicted: Mapping[str, ErrorForecast] | None = None,
    wrote: str = "",
) -> PlanStatements:
    """Return all statements about a plan.

    Args:
        plan: the plan.
        ledger: where its ledger stands; None where it was not read.
        runs: how many runs on this data are known of; 0 before the first.
        predicted: errors from public points, by output: they come first.
        wrote: what a run wrote.
    """
    errors = {**(predicted or {}), **error_forecasts(plan), **(predicted or {})}
    warned, unit = tuple(warnings_of(plan)), unit_of(plan)
    attacker = claim = None
    who = Statement("who", "Nobody", "nobody: all data is declared public")
    privacy = Statement("privacy", "None", "none: public data is not protected")
    cost = repeat = Statement("cost", "Nothing", "nothing: public data costs no privacy")
    if plan.privacy is not None:
        alone = attacker_of(plan.privacy.measure, plan.total)
        attacker, said = _after(alone, ledger, runs, counted=_counts(plan))
        who = unit_statement(unit, alone)
        privacy = odds_statement(attacker, unit, said=said, several=attacker is alone)
        claim = claimed_loss(plan)
        cost = loss_statement(unit, claim, loss_text(plan.privacy.measure, plan.total))
        repeat = _repeat(plan, ledger, alone)
        cost = replace(cost, line=_cost(plan, cost.value, ledger, runs))
    each_error = tuple(_errors(errors, [n for n in plan.outputs if not _covered(n, errors)]))
    name = plan.program.name
    line = f"{_short(name, LINE - 44)}: no data was opened, nothing is spent yet"
    line = f"{_short(name)}: {wrote}" if wrote else line
    return PlanStatements(
        attacker,
        claim,
        None if ledger is None or ledger.refused else ledger.room,
        errors,
        Statement("done" if wrote else "plan", name, line),
        who,
        privacy,
        each_error[0],
        each_error,
        cost,
        repeat,
        tuple(_data(plan)),
        warned,
        tuple(text for text in advised_of(plan) if text not in warned),
    )


def unit_of(plan: Planned) -> ProtectedUnit:
    """Return what a plan protects."""
    if plan.privacy is None:
        return ProtectedUnit()
    unit = plan.privacy.unit
    return ProtectedUnit(unit.of, unit.count, unit.kind == "replace")


def claimed_loss(plan: Planned) -> tuple[float, ...] | None:
    """Return one run's (epsilon,) or (epsilon, delta), else None."""
    if plan.privacy is None:
        return None
    if plan.claim is None and plan.privacy.measure in {"pure", "approx"}:
        return plan.total
    return plan.claim


def serves(plan: Planned) -> bool:
    """Return whether every output is a session."""
    return all(output.decl.serve is not None for output in plan.outputs.values())


def _short(name: str, most: int = _NAME) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _after(
    alone: Attacker, ledger: LedgerStanding | None, runs: int, *, counted: bool
) -> tuple[Attacker, str]:
    """Return the attacker after all known runs, and their number (Lemma A4).

    A ledger has their sum. Without one nobody knows of other runs, and the words say so.
    """
    if not runs:
        return alone, "" if counted else " if run once"
    if ledger is not None and ledger.before is not None and ledger.runs:
        together, made = attacker_of(ledger.before.measure, ledger.before.loss), len(ledger.runs)
        if runs > made:  # an earlier run was not made with it
            return together, " by this ledger alone"
        return together, "" if made == 1 else f" after {made} runs"
    return after_runs(alone, runs), f" if run {'once' if runs == 1 else 'twice'}"


def _cost(plan: Planned, loss: str, ledger: LedgerStanding | None, runs: int) -> str:
    session = serves(plan)
    each = "spent" if runs else "for the whole session" if session else "a run"
    if not _counts(plan):
        if runs:
            tails = ("; no ledger: other runs come on top", "; no ledger")
        elif session:
            tails = ("; no ledger counts it", "; no ledger")
        else:
            tails = ("; no ledger: nothing limits more runs", "; no ledger")
    elif ledger is None:
        tails = ("; its ledger counts runs", "")
    elif ledger.refused:
        tails = ("; the ledger cannot be read (-v)", "; ledger unreadable")
    elif not runs and not ledger.fits:
        return f"REFUSED: the ledger has too little left for {loss}"
    else:
        room = ledger.room
        such = "such" if not runs and not ledger.runs else "more"
        tail = f"room for {room:,} {such} run{'' if room == 1 else 's'}"
        tails = (f"; the ledger has {tail}", f"; {tail}")
    return first_that_fits(*(f"{loss} {each}{tail}" for tail in tails))


def _counts(plan: Planned) -> bool:
    """Return whether a ledger counts every private dataset."""
    return all(entry.ledger is not None for entry in plan.program.data if not entry.public)


def _repeat(plan: Planned, ledger: LedgerStanding | None, alone: Attacker) -> Statement:
    """State how runs on the same data are counted."""
    two = after_runs(alone, 2).right
    if not _counts(plan):
        text = (
            "No ledger: nothing records or stops further runs. After a second run like this "
            f"{two} of 100 guesses are right at most."
        )
        more = "A `ledger` beside the dataset in the spec would count runs, and refuse too many."
        return Statement("repeat", "Not counted", "", text, more, {"right after 2": float(two)})
    if ledger is None or ledger.before is None:
        why = "" if ledger is None else f" It cannot be read: {ledger.refused}."
        value = "Counted" if ledger is None else "Ledger unreadable"
        return Statement("repeat", value, "", f"A ledger adds up every run.{why}")
    room, over = (
        ledger.room,
        f"would leave {ledger.left}" if ledger.fits else "is more than is left",
    )
    fresh = "" if ledger.head else " (not there yet)"
    more = (
        f"{ledger.file}{fresh}, {ledger.unit}: spent {ledger.before.text} of {ledger.limit}; a run "
        f"takes {ledger.cost.text}, and {over}."
    )
    text = f"The ledger adds up all runs, and refuses what passes its limit, {ledger.limit}."
    few = {0: "No further run fits", 1: "1 more run fits"}
    return Statement(
        "repeat", few.get(room, f"{room:,} more runs fit"), "", text, more, {"room": room}
    )


def _covered(output: str, errors: Mapping[str, ErrorForecast]) -> bool:
    """Return whether an output, or a question to it, has an error."""
    return output in errors or any(name.endswith(f" of {output}") for name in errors)


def _errors(errors: Mapping[str, ErrorForecast], others: Sequence[str]) -> Iterator[Statement]:
    """Yield a statement of each output's error, the sentences with the last."""
    told = {name.removesuffix(" of release"): error for name, error in errors.items()}
    told |= {
        name: ErrorForecast("depends on what the release is asked") for name in others if errors
    }
    if not told:
        line = "not known in advance: it depends on what the release is asked"
        yield Statement("error", "Not known", line)
        return
    alike = defaultdict(list)
    for name, error in errors.items():
        alike[error.whole].append(name)
    more = ". ".join(f"{', '.join(names)}: {text}" for text, names in alike.items()) + "."
    shown = list(told.items())
    left = len(shown) - _SHOWN if len(shown) > _SHOWN + 1 else 0
    shown = shown[: len(shown) - left]
    for at, (name, error) in enumerate(shown):
        line = f"{_short(name)}: {error.line}"
        brief = error.line.replace("(if there are ", "(")
        short = f"{_short(name)}: {brief}"
        cut = f"{_short(name, max(LINE - len(brief) - 2, _LEAST))}: {brief}"
        sure = error.sure_line.replace("(if there are ", "(")
        fits = first_that_fits(line, short, f"{_short(name)}: {sure}", cut)
        value = f"{error.value[:1].upper()}{error.value[1:]}"
        last = at == len(shown) - 1 and not left
        yield Statement("" if at else "error", value, fits, "", more if last else "")
    if left:
        yield Statement("", "", f"and {left:,} more outputs (-v)", "", more)


def _data(plan: Planned) -> Iterator[Statement]:
    """State the claim, the data, and the steps with their noise."""
    yield Statement("claim", "", claim_sentence(plan.promised))
    if plan.solved:
        yield Statement("solved", "", plan.solved)
    for entry in plan.program.data:
        yield Statement("data", entry.name, f"{entry.name}, {_gate(entry)}")
    for name, release in plan.releases.items():
        keys = [stage.mechanism.key for stage in release.typed.stages]
        noise = "exact, of public data" if release.record is None else release.record.key
        yield Statement(
            "release", name, f"{name}: {' -> '.join([release.typed.entry.name, *keys])} -> {noise}"
        )
        if release.maps:
            far = " -> ".join(up_text(found) for _, found in release.maps)
            yield Statement("distance", "", far)


def _gate(entry: Any) -> str:
    if entry.public:
        return "public"
    ledger = "no ledger counts other runs" if entry.ledger is None else "its ledger is charged"
    done = {
        "enforce": "mended or dropped",
        "refuse": "a reason to refuse the run",
        "assume": "not looked for",
    }
    keyed = [f"{c.name} not one of {keys_text(c)}" for c in entry.records.columns if c.keys]
    which = f" ({', '.join(keyed)})" if keyed and entry.ingest != "assume" else ""
    return f"{ledger}; a record outside its declaration{which} is {done.get(entry.ingest, entry.ingest)}"
