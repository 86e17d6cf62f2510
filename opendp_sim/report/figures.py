"""Draw a plan's pictures, and explain its errors.

An attacker's gain, the error at other budgets; "2 of 3", and negative numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from opendp_sim.accounting.measures.attackers import attacker_of
from opendp_sim.core.arithmetic.rounding import up_text
from opendp_sim.core.errors import SimError
from opendp_sim.domains.released import Released
from opendp_sim.dsl.plan.error_units import divisor_of, error_unit, of_one_unit
from opendp_sim.dsl.plan.errors import ANSWERING_KINDS, DRAWN, FIXED
from opendp_sim.dsl.plan.gaussian_facts import is_tight
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.types.error_terms import NEGATIVE
from opendp_sim.report.charts import attack_chart, error_chart

_FEW = 0.01
"""The share of absent people whom a careful attacker accuses."""
_TRIED = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Budgets at which the expected error is shown."""


@dataclass(frozen=True)
class Figure:
    """A picture with its title and a sentence."""

    title: str
    picture: Markup
    caption: str


@dataclass(frozen=True)
class _Named:
    """Describe the two cases of an attacker's guess.

    In the data or not, or one content or another.
    """

    said: str
    ones: str
    others: str
    of_ones: str
    of_others: str
    accused: str
    found: str

    @classmethod
    def of(cls, plan: Plan) -> _Named:
        """Return the words for the unit of a plan."""
        assert plan.privacy is not None  # noqa: S101 - the caller asked
        unit = plan.privacy.unit
        noun = "records" if unit.of == "row" else "people"
        if unit.kind == "replace":
            had = "that said the first" if noun == "records" else "who said the first"
            other = had.replace("first", "second")
            return cls(
                "they said the first of two things that are possible, and not the second",
                f"{noun} {had}",
                f"{noun} {other}",
                f"those {had}",
                f"those {other}",
                "said the second, and are named",
                "said the first, and are named",
            )
        ones, others = f"present {noun}", f"absent {noun}"
        accused, found = f"{others} that are accused", f"{ones} that are found"
        return cls(
            "they are in the data", ones, others, "the present", "the absent", accused, found
        )


def figures_of(plan: Plan) -> Iterator[Figure]:
    """Yield the pictures that a plan has numbers for."""
    if plan.privacy is not None and plan.total:
        attacker = attacker_of(plan.privacy.measure, plan.total)
        worst = min(max((1 - attacker.advantage) / 2, _FEW), 0.5)
        rates = sorted({worst, _FEW, 0.002, *(i / 40 for i in range(1, 40))})
        curve = [(rate, attacker.power(rate)) for rate in rates]
        of = "records" if plan.privacy.unit.of == "row" else "people"
        exact = " (exact: the claim allows so much and no more)" if is_tight(plan) else ""
        named = _Named.of(plan)
        yield Figure(
            "What an attacker gains",
            attack_chart(curve, worst, named.accused, named.found),
            f"A spy who knows all other {of} says of some {of} that {named.said}. The dashed line is "
            f"guessing: it names as many of {named.of_others} as of {named.of_ones}. At the ring the "
            f"release helps most: {up_text(100 * worst, 3)} in 100 of {named.of_others} are named, and "
            f"instead of as many at most {attacker.found(worst)} in 100 of {named.of_ones}{exact}. "
            f"Naming only 1 in 100 of {named.of_others} finds at most {attacker.found(_FEW)} in 100 of "
            f"{named.of_ones}.",
        )
    shown = _errors(plan)
    if shown is not None:
        name, points = shown
        chosen = None if plan.privacy is None else plan.privacy.budget.down("epsilon")
        yield Figure(
            "What accuracy is left",
            error_chart(points, chosen, _curve_title(plan, name)),
            f"Known before any data is opened; noise moves about two of three {_of_what(plan, name)} "
            f"by less than this. {_with_more(name)} What each record adds by rounding, by the draws of "
            "a sketch or by a projection is no noise, has another unit and is not drawn: how wrong "
            "answers will be says it.",
        )


def _errors(plan: Plan) -> tuple[str, list[tuple[float, float]]] | None:
    """Return an output's first error at several budgets."""
    privacy = plan.privacy
    own = None if privacy is None else privacy.budget.down("epsilon")
    if own is None:
        return None
    if not any(output.posts and output.expected for output in plan.outputs.values()):
        return None
    budgets = sorted({*_TRIED, own})
    try:
        curve = plan.errors(budgets)
    except SimError:
        return None
    _, drawn, _ = of_one_unit(plan, curve.errors)
    for name, values in drawn.items():
        if len(values) == len(budgets) and all(v > 0 and math.isfinite(v) for v in values):
            return name, list(zip(budgets, values, strict=True))
    return None


def _with_more(name: str) -> str:
    """Say what more records do to an error that is drawn."""
    if divisor_of(name) != 1:
        return "With ten times the records it is a tenth."
    return "It stays the same however many records there are: with ten times the data it matters a tenth."


def _of_what(plan: Plan, name: str) -> str:
    """Return the unit counted by an error curve."""
    output, _, error = name.partition(": ")
    if divisor_of(name) != 1:
        return f"means of {divisor_of(name):,} records"
    direct = plan.outputs[output].decl.post[-1].key in ANSWERING_KINDS
    return "answers" if direct and error == "noise_error" else "such sums"


def _curve_title(plan: Plan, name: str) -> str:
    """Describe an error curve with its unit."""
    output = name.partition(": ")[0]
    if divisor_of(name) != 1:
        return f"noise of {output}, in {error_unit(plan, name)}"
    of = "of" if _of_what(plan, name) == "answers" else "of sums for"
    return f"noise {of} {output}, in {error_unit(plan, name)}"


# --------------------------------------------------------------------------------------------------

_SIZE = (
    '"2 of 3" tells the size of an error: about one answer of three is off by more, one of twenty by '
    "more than double."
)
_EXAMPLES = (
    "The numbers of records that a line names (100 and 10,000) are examples: nothing is guessed about "
    "this data. They are the records {}. Such a line is an upper limit: to the noise, which is known "
    "exactly, it adds the most that each record can be off by."
)
_OF_CLASS, _OF_ALL = "of one class, not of the whole file", "of the whole file"
_SQUARES = (
    "The parts of an error are not simply summed. {} have nothing to do with one another, so their "
    "squares are summed and the root is taken: 3 and 4 make 5."
)
_ADDED = "What {} may change can all point one way, so it is added to {} in full."
_NOISE_ALONE = (
    "Where a line speaks of noise alone, whatever the method itself gets wrong comes on top."
)
_COUNTS = (
    "A record counts for a density where it is near to what was asked, and for a sum of distances the "
    "more the farther it is."
)
_GUESSED = (
    "The noise of the votes is an estimate: it follows from the number of neighbours that a question "
    "should find, which the program sets from its public guess of the number of records (`size`: {}) "
    "and of questions (`queries`: {}). With fewer neighbours it is a larger share of the votes."
)


def error_notes(plan: Plan, wrong: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield what the errors of this program need to be read rightly."""
    told = " ".join(text for _, text in wrong)
    if "2 of 3" in told:
        yield _SIZE
        if "if there are 100 records" in told or "with 100 records" in told:
            classes = any(getattr(o.domain, "labels", None) for o in plan.outputs.values())
            yield _EXAMPLES.format(_OF_CLASS if classes else _OF_ALL)
            yield from _summed(told)
        if " by noise" in told:
            yield _NOISE_ALONE
    posts = [post for output in plan.outputs.values() for post in output.posts]
    if any(post.of_a_record for post in posts):
        yield _COUNTS
    for release in plan.releases.values():
        facts = {} if release.bound is None else getattr(release.bound.claim, "expected", {})
        if {"relative_vote_noise", "noise_of_votes"} & facts.keys():
            guess = (getattr(release.record, name, None) for name in ("size", "queries"))
            yield _GUESSED.format(*(f"{n:,}" if n is not None else "none" for n in guess))
    if _may_be_negative(plan):
        yield NEGATIVE


def _summed(told: str) -> Iterator[str]:
    """Explain how a line's parts add up."""
    drawn, fixed = ([word for word in words if f"by {word}" in told] for words in (DRAWN, FIXED))
    if drawn:
        yield _SQUARES.format(" and ".join([", ".join(["Noise", *drawn[:-1]]), drawn[-1]]))
    if fixed:
        yield _ADDED.format(" and ".join(fixed), "that root" if drawn else "the noise")


def _may_be_negative(plan: Plan) -> bool:
    """Return whether released numbers may be negative."""
    if plan.privacy is None:
        return False
    for output in plan.outputs.values():
        if any(post.unit or post.of_a_record for post in output.posts):
            return True
        if not output.posts and isinstance(output.domain, Released):
            return True
    return False
