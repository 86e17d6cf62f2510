"""Show a report's first numbers with their meanings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from opendp_sim.accounting.budget_warnings import large_delta
from opendp_sim.accounting.claim_text import claim_sentence, delta_in_words, epsilon_in_words, who
from opendp_sim.accounting.measures.attackers import VERY_WEAK, attacker_of
from opendp_sim.core.arithmetic.rounding import up_text
from opendp_sim.dsl.plan.advice import size_guess
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.plan.statements import claimed_loss, unit_of
from opendp_sim.dsl.run.ledger_status import ledger_status


@dataclass(frozen=True)
class Tile:
    """Show a number and its meaning.

    ``warn`` where it is a reason to ask.
    """

    big: str
    small: str
    warn: bool = False


def tiles_of(plan: Plan, unit: Mapping[str, Any]) -> Iterator[Tile]:
    """Yield the loss, who is protected, and whether a ledger counts."""
    if plan.privacy is None:
        yield Tile("public", "declared so by whoever wrote the program", warn=True)
        return
    spent = claimed_loss(plan)
    if spent is not None:
        epsilon, delta = spent[0], spent[1] if len(spent) > 1 else 0.0
        said = (
            epsilon_in_words(epsilon, unit_of(plan)).partition(": ")[2]
            or "so large a number limits hardly anything"
        )
        said = f"{said.removesuffix('.')}.{_of_the_curve(plan, epsilon, delta)}"
        weak = attacker_of(plan.privacy.measure, plan.total).strength == VERY_WEAK
        yield Tile(f"epsilon = {up_text(epsilon, 3)}", said, warn=weak)
        much = large_delta(delta, size_guess(plan))
        yield Tile(
            f"delta = {up_text(delta, 2)}",
            much or delta_in_words(delta, unit_of(plan)).partition(": ")[2],
            warn=bool(much),
        )
    else:
        yield Tile(claim_sentence(plan.promised), "the loss in the measure of the program")
    yield _whom(unit)
    ledgers = [entry.ledger for entry in plan.program.data if not entry.public]
    if all(ledger is not None for ledger in ledgers):
        found = ledger_status(plan) or {}
        runs = f"; it has room for {found['room']} such runs" if "room" in found else ""
        yield Tile(
            "a ledger counts",
            f"it adds up every run on the same data, and refuses the one that passes its limit{runs}",
        )
    else:
        yield Tile(
            "no ledger",
            "nobody counts repeated releases: runs add up, and nothing records them or stops the next "
            "one. Whoever decides limits the runs, or asks for a `ledger` in the spec, which does. This "
            "page cannot say what else was released about the same records",
            warn=True,
        )


def _of_the_curve(plan: Plan, epsilon: float, delta: float) -> str:
    """Explain two programs of one epsilon and different guesses."""
    assert plan.privacy is not None  # noqa: S101 - the caller asked
    measure = plan.privacy.measure
    if measure in ("pure", "approx"):
        return (
            " The number of right guesses at the top is the most that epsilon and delta allow; another "
            "program of the same epsilon, of whose noise more is known, may promise fewer."
        )
    alone = attacker_of("approx", (epsilon, delta))
    if alone.advantage <= attacker_of(measure, plan.total).advantage:
        return ""
    return (
        " Epsilon does not decide the number of right guesses at the top: the noise does, of which more "
        f"is known than epsilon and delta. They alone would allow {alone.right} in 100."
    )


def _whom(unit: Mapping[str, Any]) -> Tile:
    """State who is protected, in two words first."""
    number = unit.get("replace", unit.get("add_remove", 1))
    if unit["of"] != "row":
        done = "replaced by others" if "replace" in unit else "added or removed"
        return Tile(
            f"{'one' if number == 1 else number} `{unit['of']}`",
            f"all rows of {'it' if number == 1 else 'them'} {done}: this is who is protected; a person "
            f"with more `{unit['of']}` is protected less",
        )
    noun = "record"
    big = f"one {noun}" if number == 1 else f"{number} {noun}s"
    rest = who(unit).partition(" replaced")[0].partition(" added")[0].removeprefix(big).strip()
    done = "replaced by another" if "replace" in unit else "added or removed"
    more = "; a person with more records is protected less"
    return Tile(big, f"{rest} {done}: this is who is protected{more}".strip())
