"""Declare budgets, and ledgers that bound all runs on a dataset."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, ClassVar

from opendp_sim.accounting.budget import (
    WRITTEN,
    Limit,
    MeasureName,
    Number,
    as_written,
    number_text,
)
from opendp_sim.core.arithmetic.rounding import decimal_of
from opendp_sim.core.errors import SimError
from opendp_sim.dsl.grammar.parse import read_section, wrong
from opendp_sim.dsl.grammar.pydantic_schema import Schema
from opendp_sim.dsl.grammar.section import Section, ValueReader, word
from opendp_sim.dsl.text.diagnostic import Notes, Path


def _amount(value: Any, path: Path, notes: Notes) -> Number | None:
    """Read a bound as a number, a decimal text or a ratio."""
    found = as_written(value)
    if isinstance(found, int) and not isinstance(found, bool) and abs(found) < 2**1023:
        return float(found)
    if isinstance(found, float | Fraction):
        return found
    wrong(value, "float", path, notes)
    return None


def _amount_schema() -> Schema:
    return {
        "anyOf": [
            {"type": "number", "exclusiveMinimum": 0},
            {"type": "string", "pattern": f"^{WRITTEN}$"},
        ]
    }


_AMOUNT = ValueReader(_amount, _amount_schema, expected="float")
Amount = Annotated[Number, _AMOUNT]
Maybe = Annotated[Number | None, _AMOUNT]


class Reserve(Section):
    """What part of delta is kept for what, under approx_zcdp."""

    mechanisms: Amount = word("For mechanisms with a delta of their own, such as top_k.")
    conversion: Maybe = word("For converting rho to epsilon: the rest unless stated.", None)


def _bound(text: str) -> Any:
    return word(text, None)


class BudgetWords(Section):
    """Bound the privacy loss.

    {epsilon: 1.0}, {epsilon: 1.0, delta: 1.0e-6}, {rho: 0.1}, or several at once.
    """

    epsilon: Maybe = _bound("Bound on epsilon, at `delta` where that is given.")
    delta: Maybe = _bound("The delta at which epsilon holds; below one over the people.")
    rho: Maybe = _bound("Bound on the zCDP parameter.")
    mu: Maybe = _bound("Bound on the parameter of Gaussian DP.")
    reserve: Reserve | None = word("How delta is split under approx_zcdp; else in halves.", None)

    def budget(self) -> Limit:
        """The budget of the accountant."""
        kept = None if self.reserve is None else self.reserve.mechanisms
        return Limit(self.epsilon, self.delta, self.rho, kept, self.mu)

    def rules(self, notes: Notes, path: Path) -> None:
        """The reserves are within delta, and the budget is one."""
        r = self.reserve
        if (
            r is not None
            and r.conversion is not None
            and self.delta is not None
            and (decimal_of(r.mechanisms) + decimal_of(r.conversion) > decimal_of(self.delta))
        ):
            told = [number_text(part) for part in (r.mechanisms, r.conversion, self.delta)]
            notes.error("OS401", "the reserves exceed delta", (*path, "reserve"),
                        label=f"{told[0]} + {told[1]} > {told[2]}",
                        help="split delta between `mechanisms` and `conversion`.")  # fmt: skip
            return
        check_bounds(self.budget(), None, path, notes)


def check_bounds(budget: Limit, measure: Any, path: Path, notes: Notes) -> bool:
    """Report a budget that bounds nothing or does not fit ``measure``."""
    try:
        budget.check(measure)
    except SimError as error:
        said = error.got.split(" ")[0] if isinstance(error.got, str) else ""
        notes.from_error(error, (*path, said) if said in budget.stated() else path)
        return False
    return True


def _budget(value: Any, path: Path, notes: Notes) -> Limit | None:
    found = read_section(BudgetWords, value, path, notes)
    return None if found is None else found.budget()


BUDGET = ValueReader(_budget, BudgetWords.schema_of, BudgetWords)


class LedgerRef(Section):
    """Name a file that adds up a dataset's losses.

    It refuses a loss beyond its limit.

    `file: "postgresql:SERVICE/LEDGER"` keeps it in a database, for several machines: SERVICE stands in
    libpq's service file, LEDGER is any name, and a password is never written here.
    All runs that name it are counted. `plan` says what is spent and what would be left;
    `opendp-sim ledger show FILE` lists every charge. The limit, stated in advance, is the claim; what was
    spent at a moment that answers decided is none (under gdp a running sum is not even a bound).
    With `measure: zcdp` programs under gdp, zcdp and pure can share a ledger.
    """

    template: ClassVar[str] = """\
data:
  records:
    source: {npz: records.npz}
    columns: {x: {dtype: float64, bounds: [0.0, 1.0]}}
    ledger: {file: records.ledger, limit: {epsilon: 3.0, delta: 1.0e-5}}   # beside `source`
"""
    file: str = word(
        "Where it is, from the spec's folder, or postgresql:SERVICE/LEDGER; `ledger new` makes it.",
        min_length=1,
    )
    limit: Annotated[Limit, BUDGET] = word("What all runs together may lose: a budget.")
    measure: MeasureName | None = word("What it adds up in; the program's own unless stated.", None)

    def rules(self, notes: Notes, path: Path) -> None:
        """The limit is one for the measure."""
        if self.measure is not None:
            check_bounds(self.limit, self.measure, (*path, "limit"), notes)
