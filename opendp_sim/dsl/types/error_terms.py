"""State the size of an error in words, beside numbers of records."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from opendp_sim.core.arithmetic.rounding import up_text
from opendp_sim.core.claims import Accuracy
from opendp_sim.core.errors import InternalError
from opendp_sim.core.mechanism import Mechanism

RECORDS, ROWS = "records", "rows"
NEGATIVE = (
    "A count, a sum or a mean may be below 0: noise of both signs is added, and the result is not cut "
    "off at 0. Cut off, small numbers would be too large on average, and nobody would be protected "
    "better."
)
"""Why an answer may be negative, in the words of a page and of a terminal."""
WITHIN = "95%"
"""How often an answer is within the error that a line states, on every first screen."""
WIDE = 2.12
"""Deviations within which that share of an error is: 1.96 of a normal one, 2.12 of a Laplace one."""
_NEARER = 0.9
"""Part of the sure error below which a likely one is stated beside it."""
BESIDE = (100, 10_000)
"""Numbers of records that an error is stated for where the program expects none."""


BY_DRAWS = {"sampling": "the draws of the sketch", "projection": "the projection"}
BY_ROWS = {"bias": "the structure itself", "rounding": "rounding to the grid"}


@dataclass(frozen=True)
class Whole:
    """Hold the parts of a sum's error, in its unit.

    Attributes:
        noise: its deviation, the same for any number of records.
        drawn: by word, the most that the deviation grows with each record.
        fixed: by word, the most that the sum is moved with each record.
        cuts: steps whose share is not known.
        likely: by word of ``fixed``, the root mean square of the move where roundings are in no order.
    """

    noise: float
    drawn: Mapping[str, float]
    fixed: Mapping[str, float]
    cuts: tuple[str, ...] = ()
    likely: Mapping[str, float] = field(default_factory=dict)

    def at(self, records: int) -> float:
        """Bound the whole root mean square error with ``records`` records."""
        drawn = (records * value for value in self.drawn.values())
        return math.hypot(self.noise, *drawn) + records * sum(self.fixed.values())

    def within(self, records: int) -> float:
        """Return the bound of 95% of errors, with ``records`` records."""
        fixed = records * sum(self.fixed.values())
        return WIDE * (self.at(records) - fixed) + fixed

    def likely_within(self, records: int) -> float:
        """Return the same for roundings in no order.

        Lemma 9 of ``density.md``.
        """
        moved = sum(min(self.likely.get(word, most), most) for word, most in self.fixed.items())
        drawn = (records * value for value in self.drawn.values())
        near = WIDE * math.hypot(self.noise, records * moved, *drawn)
        return min(near, self.within(records))

    def times(self, factor: float) -> Whole:
        """Return the errors in another unit."""
        drawn, fixed, likely = (
            {word: factor * value for word, value in part.items()}
            for part in (self.drawn, self.fixed, self.likely)
        )
        return Whole(factor * self.noise, drawn, fixed, self.cuts, likely)

    @property
    def has_parts(self) -> bool:
        """Whether anything but noise is known of."""
        return any(self.drawn.values()) or any(self.fixed.values())

    def parts(self) -> Iterator[tuple[str, float]]:
        """Yield what each record adds at most within 95%, the largest first."""
        named = [(BY_DRAWS[word], WIDE * value) for word, value in self.drawn.items()]
        named += [(BY_ROWS[word], value) for word, value in self.fixed.items()]
        yield from sorted((part for part in named if part[1]), key=lambda part: -part[1])


@dataclass(frozen=True)
class ErrorForecast:
    """How wrong a question's answers will be, as numbers and in words.

    Numbers are what 95% of errors are within; terminal, page and notebook lay out ``line``, which is
    made of them.

    Attributes:
        line: the size of the error, in one line of a terminal.
        more: what follows it: its parts, and what they depend on.
        value: the number alone, for a headline.
        unit: what the numbers are counted in; empty where nothing is known in advance.
        errors: the parts of the error; None where nothing is known in advance.
        least: of a mean, the number of rows below which it is only noise; None for a sum.
        divisor: of a mean, the deviation of the noisy number of rows that it is divided by.
        largest: the largest mean, from where the sum's terms are counted.
        centres: of a mean, from where they are counted, column by column; one where all are alike.
        independent: whether the noises of sum and number are known to be independent.
        safe_from: the lead, or the votes, from which an answer is safe; None where it is no choice.
        sizes: the numbers of rows that the line speaks of.
        near: the words of the line about a likely error.
    """

    line: str
    more: str = ""
    value: str = "not known"
    unit: str = ""
    errors: Whole | None = None
    least: float | None = None
    divisor: float = 0.0
    largest: float = 0.0
    centres: tuple[float, ...] = (0.0,)
    independent: bool = False
    safe_from: float | None = None
    sizes: tuple[int, int] = BESIDE
    near: str = ""

    @property
    def sure_line(self) -> str:
        """Return the line without its likely error."""
        return self.line.replace(self.near, "", 1)

    @property
    def noise(self) -> float | None:
        """Bound 95% of the errors by noise alone.

        Of a mean: of the sum before it is divided.
        """
        return None if self.errors is None else WIDE * self.errors.noise

    @property
    def parts(self) -> dict[str, float]:
        """Return what each row adds at most within 95%, by cause.

        Of a mean: whatever the number of rows.
        """
        return {} if self.errors is None else dict(self.errors.parts())

    def at(self, records: int, answer: float | Sequence[float] | None = None) -> float | None:
        """Bound 95% of the errors with ``records`` rows.

        A mean is a noisy sum by a noisy number: ``(S + X) / (N + Y)`` is off by ``(X - A Y) / N`` to
        first order in Y / N, where A is the mean, counted as S is: from the middle of a column's bounds.
        Squares of the deviations of X and A Y are added where they are independent, else the deviations.

        Args:
            records: the number of rows.
            answer: of a mean, itself, in ``unit`` (parts of a range from the lower bound), or one for
                each column, of which the one that errs most counts; left out for the largest error.

        Returns:
            The bound, in ``unit``; None where it is not known in advance, or the answer only noise.
        """
        if self.errors is None or self.least is None:
            return None if self.errors is None else self.errors.within(records)
        if records < max(self.least, 1.0):
            return None
        own = self.divisor * (self.largest if answer is None else self._from_centre(answer))
        alone = self.errors.noise
        noise = math.hypot(alone, own) if self.independent else alone + own
        return replace(self.errors, noise=noise).within(records) / records

    def likely(self, records: int) -> float | None:
        """Return what 95% of the errors are likely within, with ``records`` rows.

        ``at`` holds however roundings fall, all the same way too; this where they are in no order, as
        they are unless values have few digits (Lemma 9 of ``density.md``). Of a mean, without what its
        noisy number of rows adds.

        Returns:
            The bound, in ``unit``; None where it is not known in advance, or not below ``at``.
        """
        if self.errors is None or not self.errors.likely or records < max(self.least or 0.0, 1.0):
            return None
        divisor = 1 if self.least is None else records
        sure, likely = (
            bound(records) / divisor for bound in (self.errors.within, self.errors.likely_within)
        )
        return likely if likely < _NEARER * sure else None

    def _from_centre(self, answer: float | Sequence[float]) -> float:
        """Return how far a mean is from its centre, within bounds."""
        far = np.abs(np.asarray(answer, dtype=float) - np.array(self.centres))
        return min(float(np.max(far)), self.largest)

    def plain(self) -> dict[str, Any]:
        """Return the numbers and the line as plain JSON."""
        return {
            "unit": self.unit,
            "noise": self.noise,
            "parts": self.parts,
            "at": {str(records): self.at(records) for records in self.sizes},
            "likely": {str(records): self.likely(records) for records in self.sizes},
            "least": self.least,
            "divisor": None if self.least is None else WIDE * self.divisor,
            "largest": None if self.least is None else self.largest,
            "centres": None if self.least is None else list(self.centres),
            "safe_from": self.safe_from,
            "line": self.line,
        }

    @property
    def whole(self) -> str:
        """The line and all that follows it."""
        return f"{self.line}{self.more}"


def size(value: float) -> str:
    """Return a number to three digits, without an exponent if easy."""
    near = float(f"{value:.3g}")
    return f"{near:,.0f}" if 1000 <= abs(near) < 1e12 else f"{near:.3g}"


def few_digits(value: float) -> str:
    """Return a number to two digits, and from 100 on to three."""
    return size(float(f"{value:.2g}")) if abs(value) < 100 else size(value)


def wide(deviation: float) -> str:
    """Return the bound of the error of 95% of answers."""
    return few_digits(WIDE * deviation)


def at_least(value: float) -> str:
    """Return a number that is not below the value, in few digits."""
    return size(float(up_text(value, 2 if abs(value) < 100 else 3)))


def as_predicted(total: float, noise: float, records: int, unit: str = "") -> ErrorForecast:
    """State the whole error predicted from public points, in its unit."""
    value = f"±{wide(total)}{' rows' if unit == RECORDS else ''}"
    line = f"{WITHIN} within {value}, with {records:,} rows like these points"
    counted = "" if unit in ("", RECORDS) else f", in {unit}"
    return ErrorForecast(line, f"{counted}; noise alone is ±{wide(noise)}", value, unit)


# --------------------------------------------------------------------------------------------------
# What a release states of its own accuracy, in sentences: votes, selections, steps of a fit.

_VOTES = "{up} votes"
_NEAR = "±{wide} votes"
STATED = {
    "votes_to_be_listed": Accuracy(
        "an item with {up} votes or more is listed in 95% of runs",
        _VOTES,
        ", unless others take all places",
    ),
    "votes_for_95_percent": Accuracy(
        "items {up} votes above no. {ranks} are listed in 95% of runs",
        _VOTES,
        (
            ", unless other items fill the list before them. Why so far down: which items the data holds "
            "is private, so a name is given only of the first ones, and only if it is ahead of all "
            "behind them by more than noise explains; a missing item counts as one with 0 votes"
        ),
    ),
    "gap_for_95_percent": Accuracy(
        "sets {up} votes ahead pass the test in 95% of runs",
        _VOTES,
        ": their last item is so far ahead of the next one",
    ),
    "drop_for_95_percent": Accuracy(
        "of two gaps, one {up} votes larger wins in 95% of runs",
        _VOTES,
        "; a gap is by how many votes an item is ahead of the next one",
    ),
    "lead_for_95_percent": Accuracy(
        "items {up} votes above no. {places} are listed in 95% of runs", _VOTES, ""
    ),
    "deviation": Accuracy("95% of vote counts, not released, within ±{wide} votes", _NEAR, ""),
    "relative_vote_noise": Accuracy(
        "95% of vote counts within ±{share}, when about {neighbours:.0f} rows vote",
        "±{share} of votes",
        ": an estimate; with fewer voters the share is larger",
        ROWS,
    ),
    "noise_of_votes": Accuracy(
        "95% of vote counts within ±{wide} votes, of {neighbours:.0f} neighbours",
        _NEAR,
        (
            ": an estimate, for as many neighbours as are aimed at. How much less than one each of them "
            "weighs depends on the data, so no share is stated"
        ),
    ),
    "vote_noise": Accuracy(
        "95% of vote counts within ±{wide} of at most {voters:.0f} votes", _NEAR, ""
    ),
    "threshold": Accuracy(
        "not known in advance; leads under {near} votes mostly unanswered",
        "{near} votes",
        ". How often what is answered is right depends on how votes agree",
    ),
    "records_of_a_rare_class": Accuracy(
        "not known in advance; classes under {near} rows seldom predicted",
        "not known",
        (
            ". Where classes are far apart smaller ones are found. To see how often it is right, run the "
            "same steps on public rows like the data and count, class by class"
        ),
        ROWS,
    ),
    "noise_of_a_residual_sum_in_records": Accuracy(
        "not known in advance; sums behind the fit: ±{wide} rows' worth",
        "not known",
        (
            ", by noise, in each step; of the largest residual that counts. How far the line is off "
            "depends on the true slopes, which nothing released bounds"
        ),
        ROWS,
    ),
    "noise_of_a_gradient_in_records": Accuracy(
        "95% of parts of a step within ±{wide} rows", "±{wide} rows", "", ROWS
    ),
}
"""How a release's facts are stated as its error, the most telling first; a mechanism adds its own."""


def accuracy_of(expected: Mapping[str, Any], record: Mechanism) -> dict[str, float]:
    """Return what a release states of its own accuracy, by name."""
    names = {*record.stated_errors, *STATED, "order_for_95_percent", "deviation_of_counts"}
    return {name: float(value) for name, value in expected.items() if name in names}


def of_release(expected: Mapping[str, Any], record: Mechanism) -> ErrorForecast | None:
    """Return a release's most useful error fact, or None.

    Raises:
        InternalError (OS903): a mechanism's text names a fact that its claim does not state.
    """
    known = {**record.stated_errors, **STATED}
    name = next((name for name in known if name in expected), None)
    return None if name is None else _worded(name, known[name], expected, record.key)


def _worded(name: str, told: Accuracy, expected: Mapping[str, Any], key: str) -> ErrorForecast:
    value = float(expected[name])
    facts: dict[str, Any] = {fact: float(number) for fact, number in expected.items()}
    facts |= {of: f"{int(expected.get(of, 0)) + 1:,}" for of in ("ranks", "places")}
    facts |= {"up": at_least(value), "near": few_digits(value)}
    facts |= {"wide": wide(value), "share": f"{WIDE * value:.0%}"}
    try:
        line, number, more = (part.format(**facts) for part in (told.line, told.value, told.more))
    except (KeyError, IndexError, ValueError) as error:
        raise InternalError(
            "OS903", f"{key}.stated_errors", expected=f"texts of {name} that name facts of the claim",
            got=f"{type(error).__name__}: {error}", hint="the package that brings it has to be mended.",
        ) from None  # fmt: skip
    errors = Whole(value, {}, {}) if "{wide}" in told.line else None
    safe = value if "{up}" in told.line else None
    return ErrorForecast(
        line, f"{more}{_ranked(expected)}", number, told.unit, errors, safe_from=safe
    )


def _ranked(expected: Mapping[str, Any]) -> str:
    """State a ranking's order and counts."""
    if "order_for_95_percent" not in expected:
        return ""
    order, noise = expected["order_for_95_percent"], expected.get("deviation_of_counts")
    counts = "no counts are released"
    if noise is not None:
        counts = f"{WITHIN} of counts within ±{wide(float(noise))} votes"
    return (
        f"; of two items the one that has {size(float(order))} votes more comes first in "
        f"{WITHIN} of runs; {counts}"
    )


def rank_word(rank: int) -> str:
    """Return a rank as a word."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(rank % 10, "th")
    return f"{rank:,}{'th' if rank % 100 in (11, 12, 13) else ending}"
