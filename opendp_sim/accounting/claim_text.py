"""State a privacy claim in numbers and sentences.

Terminal, page and notebook lay these statements out and word nothing themselves.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opendp_sim.accounting.budget_warnings import MOST_EPSILON
from opendp_sim.accounting.composition import loss_text
from opendp_sim.accounting.measures.attackers import Attacker, attacker_of
from opendp_sim.accounting.measures.group_and_repeat import after_runs, of_units
from opendp_sim.core.arithmetic.rounding import up_text
from opendp_sim.core.system.escape_text import escape

LINE = 71
"""Letters of a statement's line: a terminal of 80 columns, less the word before it."""
_SEVERAL = (2, 10)
"""Numbers of rows and of runs beside which a claim is stated."""


@dataclass(frozen=True)
class Statement:
    """State one fact in four lengths, with its numbers.

    Attributes:
        topic: who, privacy, error, cost, ...
        value: the number alone, or two words: a headline.
        line: one line of a terminal.
        text: one or two sentences, of at most 25 words.
        more: what else there is to know.
        numbers: what the sentences were made from.
    """

    topic: str
    value: str
    line: str
    text: str = ""
    more: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def whole(self) -> str:
        """All sentences."""
        return " ".join(part for part in (self.text, self.more) if part)


def first_that_fits(*lines: str) -> str:
    """Return the first line that has room, else the last."""
    return next((line for line in lines if len(line) <= LINE), lines[-1])


def html_card(title: str, statements: Iterable[Statement]) -> str:
    """Return statements as a notebook's table; every text is escaped."""
    rows = "".join(
        f'<tr><th style="text-align:left;vertical-align:top">{html.escape(escape(one.topic))}</th>'
        f'<td style="text-align:left">{html.escape(escape(one.line))}</td></tr>'
        for one in statements
    )
    head = html.escape(escape(title))
    return f'<table><caption style="text-align:left">{head}</caption>{rows}</table>'


def claim_sentence(privacy: Mapping[str, Any]) -> str:
    """Return the claim of a certificate's ``privacy``, without missing parts."""
    if privacy.get("public"):
        return "public data: nothing is protected and nothing is spent"
    if "holders" in privacy:
        told = (claim_sentence(holder["privacy"]) for holder in privacy["holders"])
        return "; ".join(f"holder {place}: {one}" for place, one in enumerate(told, 1))
    parts = []
    claim, measure, total = (privacy.get(name) for name in ("claim", "measure", "total"))
    loss = loss_text(measure, tuple(total)) if measure and total is not None else ""
    if claim:
        parts.append(f"({', '.join(up_text(part) for part in claim)})-DP")
        parts.append(f"[{loss}]" if loss else "")
    elif loss:
        parts.append(loss)
    unit = privacy.get("unit")
    if isinstance(unit, Mapping):
        parts.append(f"for {who(unit)}")
    if "stream" in privacy:
        parts.append(_periods_of_a_unit(privacy))
    return " ".join(part for part in parts if part) or "no claim is stated"


def who(unit: Mapping[str, Any]) -> str:
    """Return whom a unit protects, and how many."""
    of = str(unit.get("of", "row"))
    kind = "replace" if "replace" in unit else "add_remove"
    number = unit.get(kind, 1)
    done = "replaced" if kind == "replace" else "added or removed"
    if of == "row":
        return f"one record {done}" if number == 1 else f"up to {number} records {done}"
    which = f"one `{of}`" if number == 1 else f"up to {number} of `{of}`"
    return f"all rows of {which} {done}"


@dataclass(frozen=True)
class ProtectedUnit:
    """Name what neighbouring datasets differ by.

    Attributes:
        of: ``row``, or the column whose names are protected.
        count: how many of them.
        replaced: whether their content differs, not their presence.
    """

    of: str = "row"
    count: int = 1
    replaced: bool = False

    @classmethod
    def read(cls, unit: Mapping[str, Any]) -> ProtectedUnit:
        """Read a unit as certificates and plans hold it."""
        kind = "replace" if "replace" in unit else "add_remove"
        return cls(str(unit.get("of", "row")), int(unit.get(kind, 1)), kind == "replace")

    @classmethod
    def of_text(cls, text: str) -> ProtectedUnit:
        """Read a unit as a ledger states it, such as ``add_remove 1 of row``."""
        kind, number, _, of = (*text.split(" ", 3), "", "", "")[:4]
        return cls(of or "row", int(number) if number.isdigit() else 1, kind == "replace")

    @property
    def by_row(self) -> bool:
        """Whether rows are protected, and not all rows of one name."""
        return self.of == "row"

    @property
    def noun(self) -> str:
        """One of them, in a sentence."""
        return "row" if self.by_row else f"`{self.of}`"

    @property
    def others(self) -> str:
        """All the other ones, in a sentence."""
        return "all other rows" if self.by_row else f"the rows of each other {self.noun}"

    @property
    def one(self) -> str:
        """The whole unit, in a sentence."""
        return f"one {self.noun}" if self.count == 1 else f"{self.count} of `{self.of}`"

    @property
    def doubt(self) -> str:
        """What an attacker guesses about it."""
        given = f"one given {self.noun}" if self.count == 1 else f"{self.count} given {self.noun}s"
        if self.replaced:
            return f"which of two things {given} {'says' if self.count == 1 else 'say'}"
        return f"whether {given} {'is' if self.count == 1 else 'are'} in the data"


def unit_statement(unit: ProtectedUnit, attacker: Attacker | None = None) -> Statement:
    """State who is protected, and how several rows weaken that."""
    one = unit.count == 1
    what = f"that {'it is' if one else 'they are'} in the data"
    if unit.replaced:
        what = f"of {'its' if one else 'their'} values"
    name = unit.of if len(unit.of) <= 9 else f"{unit.of[:8]}…"
    if unit.by_row:
        value = "Each row" if unit.count == 1 else f"Any {unit.count} rows"
        each = "each row, not each person" if unit.count == 1 else f"any {unit.count} rows"
    else:
        value = f"Each `{unit.of}`" if unit.count == 1 else f"Any {unit.count} of `{unit.of}`"
        each = f"each {name}, all its rows" if unit.count == 1 else f"any {unit.count} of {name}"
    several = _SEVERAL if attacker is not None and unit.by_row and unit.count == 1 else ()
    found = [(n, of_units(attacker, n)) for n in several if attacker is not None]
    odds = {n: one.right for n, one in found if one is not None}
    told = ", ".join(f"with {n} rows {right}" for n, right in odds.items())
    if unit.by_row:
        text = "A person with more rows is protected less"
        text += f" ({told} of 100 guesses are right at most)." if told else "."
    else:
        text = f"All rows of one `{unit.of}` count as one. "
        text += f"A person with several values of `{unit.of}` is protected less."
    more = "The number of them is public." if unit.replaced else ""
    numbers = {f"right with {n} rows of a person": float(odd) for n, odd in odds.items()}
    return Statement("who", value, f"{each}: nobody can be sure {what}", text, more, numbers)


def odds_statement(
    attacker: Attacker, unit: ProtectedUnit, *, said: str = "", several: bool = True
) -> Statement:
    """State how often an attacker guesses right at most.

    ``said`` are the runs that the verdict is about, after its word; ``several``: further runs follow.
    """
    word, right = attacker.strength, attacker.right
    line = first_that_fits(
        f"{word}{said}: attackers guess right {right}% of the time at most (coin: 50%)",
        f"{word}{said}: attackers guess right {right}% at most (coin: 50%)",
        f"{word}{said}: attackers guess right {right}% at most",
    )
    again = {n: after_runs(attacker, n).right for n in _SEVERAL} if several else {}
    text = (
        f"Somebody who sees everything that is released, and knows {unit.others}, guesses "
        f"{unit.doubt}. Of 100 such guesses at most {right} are right; a coin is right 50 times."
    )
    told = ", ".join(f"after {n} such runs {odds}" for n, odds in again.items())
    numbers = {f"right after {n} such runs": float(odds) for n, odds in again.items()}
    more = f"Runs on the same data add up: {told}." if told else ""
    return Statement("privacy", word, line, text, more, {"right": float(right), **numbers})


def loss_statement(unit: ProtectedUnit, claim: Sequence[float] | None, loss: str) -> Statement:
    """State a loss, and explain its epsilon and delta.

    ``claim`` is (epsilon,) or (epsilon, delta); None in another measure, whose ``loss`` is a text.
    """
    if claim is None:
        return Statement("cost", loss, loss)
    epsilon, delta = claim[0], claim[1] if len(claim) > 1 else 0.0
    loss = f"epsilon {short_number(epsilon)}"
    loss += f", delta {short_number(delta, 2)}" if len(claim) > 1 else ""
    more = f"{epsilon_in_words(epsilon, unit)} {delta_in_words(delta, unit)}"
    return Statement("cost", loss, loss, "", more, {"epsilon": epsilon, "delta": delta})


def epsilon_in_words(epsilon: float, unit: ProtectedUnit | None = None) -> str:
    """Explain epsilon as a factor between two likelihoods."""
    unit = unit or ProtectedUnit()
    if epsilon > MOST_EPSILON:
        return f"epsilon {up_text(epsilon, 3)} limits hardly anything."
    factor = up_text(math.exp(epsilon) * (1 + 1e-12), 3)
    if 1000 <= float(factor) < 1e12:
        factor = f"{float(factor):,.0f}"
    of = unit.one if unit.by_row and unit.count == 1 else f"all rows of {unit.one}"
    given, other = f"with {of} in the data", "without"
    if unit.replaced:
        given, other = f"with the values of {unit.one}", "with any others in their place"
    return (
        f"Epsilon {up_text(epsilon, 3)}: {given}, anything that is released, and anything that is done "
        f"because of it, is at most {factor} times as likely as {other}, or the other way round; "
        "epsilon 0 would reveal nothing."
    )


def delta_in_words(delta: float, unit: ProtectedUnit | None = None) -> str:
    """Explain a delta."""
    if not delta:
        return "Delta 0: that limit has no exceptions."
    of = "rows" if unit is None or unit.by_row else f"values of `{unit.of}`"
    return (
        f"Delta {short_number(delta, 2)}: so much is added to that limit, as a probability; it should be "
        f"far below one over the number of {of}."
    )


def short_number(value: float, digits: int = 3) -> str:
    """Return a number rounded up, with a short exponent."""
    return re.sub(r"e-0(\d)", r"e-\1", up_text(value, digits))


def claim_statements(privacy: Mapping[str, Any]) -> tuple[Statement, ...]:
    """State protection and loss of a certificate's ``privacy``."""
    if "holders" in privacy:
        return _holder_statements([holder["privacy"] for holder in privacy["holders"]])
    unit, measure, total = (privacy.get(name) for name in ("unit", "measure", "total"))
    if privacy.get("public") or not unit or not measure or not total:
        return (Statement("who", "Nobody", claim_sentence(privacy)),)
    whom, claim = ProtectedUnit.read(unit), privacy.get("claim")
    attacker = attacker_of(measure, tuple(total))
    return (
        unit_statement(whom, attacker),
        odds_statement(attacker, whom),
        loss_statement(whom, claim, loss_text(measure, tuple(total))),
        *_stream_statements(privacy),
    )


def _stream_statements(privacy: Mapping[str, Any]) -> tuple[Statement, ...]:
    """State which periods of a stream a release is about."""
    stream = privacy.get("stream")
    if stream is None:
        return ()
    nodes, periods = stream["nodes"], stream["periods"]
    value = _periods_text(nodes)
    noises = "1 noise" if len(nodes) == 1 else f"{len(nodes)} noises"
    each = stream.get("person_periods", 1)
    several = each > 1 or not ProtectedUnit.read(privacy["unit"]).by_row
    of = f", of whoever is in {each} of them at most" if several else ""
    line = f"{value} of {periods}, with {noises}; the cost is that of all {periods} together{of}"
    return (Statement("periods", value, line),)


def _periods_of_a_unit(privacy: Mapping[str, Any]) -> str:
    """Return the periods of a stream that a unit may be in."""
    stream, by_row = privacy["stream"], privacy.get("unit", {}).get("of", "row") == "row"
    each, periods = stream.get("person_periods", 1), stream["periods"]
    if each == periods or (by_row and each == 1):
        return f"in all {periods} periods together"
    return f"in {each} of {periods} periods at most"


def _periods_text(nodes: Sequence[Sequence[int]]) -> str:
    """Return periods in words, such as ``periods 1 to 5``."""
    runs: list[list[int]] = []
    for first, last in sorted((node[0], node[1]) for node in nodes):
        if runs and runs[-1][1] + 1 == first:
            runs[-1][1] = last
        else:
            runs.append([first, last])
    told = ", ".join(f"{a} to {b}" if a < b else f"{a}" for a, b in runs)
    return f"period{'' if told.isdigit() else 's'} {told}"


def _holder_statements(claims: Sequence[Mapping[str, Any]]) -> tuple[Statement, ...]:
    """State each holder's claim, and how they meet in one record."""
    each = [
        Statement(f"holder {place}", f"Holder {place}", claim_sentence(claim))
        for place, claim in enumerate(claims, 1)
    ]
    line = "each holder's claim is about its own records; in several, losses add up"
    return (*each, Statement("who", f"{len(claims)} holders", line))
