"""Explain a page's errors in sentences.

"2 of 3", the origin of numbers, and negative numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opendp_sim.domains.released import Released
from opendp_sim.dsl.plan.errors import DRAWN, FIXED
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.types.error_terms import NEGATIVE

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
