"""The size of an error in words: what it is, and what it is beside numbers of records."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BESIDE", "NEGATIVE", "RECORDS", "VOTES", "Wrong", "as_predicted", "share_of", "size"]

RECORDS, VOTES = "records", "votes"
NEGATIVE = (
    "A count, a sum or a mean may be below 0: noise of both signs is added, and the result is not cut "
    "off at 0. Cut off, small numbers would be too large on average, and nobody would be protected "
    "better."
)
"""Why an answer may be negative, in the words of a page and of a terminal."""
BESIDE = (100, 10_000)
"""Numbers of records that an error is told beside: a plan knows none."""


@dataclass(frozen=True)
class Wrong:
    """How wrong an output's answers will be.

    Attributes:
        text: the size of the error, in words.
        size: the same as a number of records or votes; 0 where that is not known.
        noun: which of them.
        more: what the error is of, where a line has room for it.
        of_leads: whether it is how far two sums have to be apart.
        short: the text in fewer words, for the one line of a terminal; the text itself where empty.
    """

    text: str
    size: float = 0.0
    noun: str = ""
    more: str = ""
    of_leads: bool = False
    short: str = ""

    @property
    def brief(self) -> str:
        """The size, and what it is beside 100: the same number for every program, so they compare."""
        text = self.short or self.text
        if not self._known:
            return text
        share = share_of(self.size / 100)
        return f"{text} ({share.removesuffix(' as much')}{'' if 'times' in share else ' of'} 100)"

    @property
    def whole(self) -> str:
        """The size beside two numbers that it may be the error of."""
        text = f"{self.text}{self.more}"
        if not self._known:
            return text
        first, second = (share_of(self.size / of) for of in BESIDE)
        return (
            f"{text}. Beside 100 {self.noun} that count for an answer this is {first}, beside 10,000 it "
            f"is {second}"
        )

    @property
    def _known(self) -> bool:
        return self.noun == RECORDS and 0 < self.size < 1e12


def share_of(share: float) -> str:
    """Return a share as a percentage or, from 1 on, as a number of times."""
    if share >= 1:
        return f"{size(float(f'{share:.2g}'))} times as much"
    return f"{float(f'{100 * share:.2g}'):g}%" if share > 1e-6 else "hardly anything"


def size(value: float) -> str:
    """Return a number to three digits, without an exponent where a reader would stumble over one."""
    near = float(f"{value:.3g}")
    return f"{near:,.0f}" if 1000 <= abs(near) < 1e12 else f"{near:.3g}"


def as_predicted(total: float, noise: float, records: int, unit: str = "") -> Wrong:
    """Tell the whole error that public points and a public number of records let expect, in its unit."""
    few = unit.partition(" of ")[0].partition(",")[0]
    beside = f"of {records:,}" if unit == RECORDS else f"{few} with {records:,}".strip()
    short = f"2 of 3 within {size(total)} {beside} such records (noise {size(noise)})"
    named = f"{size(total)} {unit}".strip()
    told = f"2 of 3 answers within {named} if there are {records:,} records like these points"
    return Wrong(told, more=f", of which noise alone is {size(noise)}", short=short)
