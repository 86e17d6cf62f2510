"""Explain a selection on a page.

The deciding rule, wrong names, and the number of right ones.

The counts are private, so a plan knows none. What it can say is computed from its noise: for a lead of
so many votes, how many of k names are right at least, whatever the other counts are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.randomness import public_generator
from opendp_sim.core.system.lazy_import import special
from opendp_sim.dsl.plan.errors import size
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.plan.release_plan import ReleasePlan
from opendp_sim.dsl.types.error_terms import rank_word

_LEADS = (1.0, 3.0, 6.0)
"""Leads that are told, in deviations of the noise."""
_FIRST = 2.33
"""Deviations by which one of two is ahead in 95 of 100 runs: 1.645 sqrt(2); draws need a little less."""
_RUNS, _MOST = 400, 1000
"""Draws that an expected number is the mean of, and the names for which they take no time."""


def selected(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield sentences for every output that selects items."""
    for name, output in plan.outputs.items():
        release = plan.releases[output.stage.name]
        if output.posts or output.decl.serve is not None or release.bound is None:
            continue
        facts = {k: float(v) for k, v in getattr(release.bound.claim, "expected", {}).items()}
        k = getattr(release.record, "k", None)
        for word, text in (
            ("what decides", _decides(facts, k)),
            ("a wrong name", _wrong(facts, k, release)),
            ("how many names are right", _right(facts, k, release)),
        ):
            if text:
                yield f"{name}: {word}", text


def _decides(facts: Mapping[str, float], k: int | None) -> str:
    threshold = size(facts.get("threshold", 0.0))
    if "gap_for_95_percent" in facts:
        last = "the last item of the set" if k is None else f"the {rank_word(k)} item"
        told = (
            f"By how many votes {last} is ahead of the next one, beside the noise. A test looks at this "
            f"gap with noise on it: a gap of {size(facts['gap_for_95_percent'])} votes passes in 95 of "
            f"100 runs, and one under {threshold} is mostly held back."
        )
        peeled = facts.get("deviation_if_peeled")
        if peeled is None:
            return f"{told} Then nothing is released."
        return (
            f"{told} Then the names are drawn one by one, with noise on each count (standard deviation "
            f"{size(peeled)} votes)."
        )
    if "votes_to_be_listed" in facts:
        reach = size(facts["votes_to_be_listed"] - facts["threshold"])
        return (
            f"Each count by itself: with its noise it has to reach {threshold} votes. In 95 of 100 runs "
            f"the noise takes away at most {reach} votes.{_of_many(k)}"
        )
    if "drop_for_95_percent" in facts:
        return (
            "The drops between neighbouring counts, beside the noise: the number is the rank behind "
            "which the drop is large. A smaller drop may win where two differ by less than is said above."
        )
    if "deviation" in facts and k is not None:
        return _between_counts(facts, k)
    if "threshold" in facts and k is not None:
        return (
            "By how many votes the last item of a set is ahead of the next one, beside the noise: a set "
            f"that is ahead by less than {threshold} votes is held back in most runs."
        )
    return ""


def _of_many(k: int | None) -> str:
    if k is None:
        return ""
    return f" Where more than {k:,} pass, the {k:,} largest of the noisy counts are taken."


def _between_counts(facts: Mapping[str, float], k: int) -> str:
    deviation = facts["deviation"]
    first = facts.get("order_for_95_percent", _FIRST * deviation)
    told = (
        f"By how many votes the {rank_word(k)} item is ahead of the {rank_word(k + 1)}, beside the "
        f"noise: the noise on each count has a standard deviation of {size(deviation)} votes. Of two "
        f"items the one with {size(first)} votes more comes first in 95 of 100 runs."
    )
    if "votes_for_95_percent" not in facts:
        return told
    return (
        f"{told} Besides, an item has to be far ahead of the {rank_word(int(facts['ranks']) + 1)}, as is "
        f"said above, or fewer names are given. Why so far down for {k:,} names: which items the data "
        f"holds is private, so a name is given only of the first {int(facts['ranks']):,} items, and only "
        "if it is ahead of all that come behind by more than noise explains. Where the data holds fewer "
        "items, each missing one counts as an item with 0 votes."
    )


def _wrong(facts: Mapping[str, float], k: int | None, release: ReleasePlan) -> str:
    drawn = "deviation" in facts or "deviation_if_peeled" in facts
    if (
        not drawn
        and "gap_for_95_percent" not in facts
        and {"threshold", "ranks"} <= facts.keys()
        and k
    ):
        last = rank_word(int(facts["ranks"]))
        return (
            f"A set of up to {int(facts['ranks']):,} items may pass, and {k:,} names are drawn from it: "
            f"an item of the {last} rank may stand in the place of the {rank_word(k)}; no lower one can."
        )
    if drawn and k is not None:
        ranks = facts.get("ranks")
        told = (
            f"A name that has fewer votes than one that is left out: noise put it into the place of one "
            f"of the first {k:,}. The closer two counts are, the likelier this is."
        )
        if ranks is None:
            return f"{told} Any item of the catalogue may be such a name."
        last = rank_word(int(ranks))
        return (
            f"{told} An item of the {last} rank may stand in the place of the {rank_word(k)}; no lower "
            "one can."
        )
    if "gap_for_95_percent" in facts and getattr(release.record, "fill", "none") == "none":
        return (
            "There is none: a set that is given holds the items with the most votes. What goes wrong is "
            "that nothing is given."
        )
    if "votes_to_be_listed" in facts:
        return (
            f"A name whose count is below {size(facts['threshold'])}: noise lifted it. An item above it "
            "may be missing. The closer a count is to this number, the likelier both are."
        )
    return ""


def _right(facts: Mapping[str, float], k: int | None, release: ReleasePlan) -> str:
    """State how many names are right at given leads."""
    deviation = facts.get("deviation", facts.get("deviation_if_peeled"))
    others = _others(facts, k, release)
    if deviation is None or k is None or k > _MOST or others < 1:
        return ""
    by_draws = "rounds" in facts or "ranks" in facts
    told = ", ".join(
        f"{right_names(k, others, lead, by_draws=by_draws):.3g} if by {size(lead * deviation)} votes"
        for lead in _LEADS
    )
    return (
        "It depends on the counts, which are private, so no number is promised. "
        f"Of {k:,} names at least so many are expected to be right if the {rank_word(k)} item is ahead "
        f"of the {rank_word(k + 1)}: {told}. "
        f"This is computed from the noise alone, as a mean of {_RUNS} simulated runs, for the worst "
        f"case: the first {k:,} counts are equal, and so are the {others:,} others. "
        "No data and no guess about it is used; with counts that are spread out more names are right."
    )


def _others(facts: Mapping[str, float], k: int | None, release: ReleasePlan) -> int:
    """Return how many items may replace a leading one."""
    assert release.bound is not None  # noqa: S101 - the caller asked
    every = facts.get("ranks", getattr(release.bound.domain, "size", 0) or 0)
    return int(every) - (k or 0)


@lru_cache(maxsize=256)
def right_names(k: int, others: int, lead: float, *, by_draws: bool) -> float:
    """Return the right names among k noisy largest.

    On average, in the worst case for a lead.

    Raising one of the first counts or lowering one of the others never adds a wrong name, so equal
    counts on both sides are the worst. Noise of deviation 1 is of Gumbel's law for draws by the
    exponential mechanism, else normal. The seed is fixed and public: the number is the same each time.

    Args:
        k: how many names are given.
        others: how many items stand behind them.
        lead: by how many deviations of the noise the k-th is ahead of the next.
        by_draws: whether names are drawn one after another.
    """
    generator = public_generator(2026, "right names")
    first = lead + _noise(generator.random((_RUNS, k)), by_draws=by_draws)
    # Only the largest k of the others count: order statistics of uniform numbers by their gaps.
    few = min(k, others)
    steps = generator.exponential(size=(_RUNS, few)).cumsum(axis=1)
    whole = steps[:, -1:] + generator.gamma(others + 1 - few, size=(_RUNS, 1))
    second = _noise(steps / whole, by_draws=by_draws)
    both = np.concatenate([first, second], axis=1)
    chosen = np.argpartition(-both, k - 1, axis=1)[:, :k] if few else np.zeros((_RUNS, k))
    return float((chosen < k).sum(axis=1).mean())


def _noise(above: NDArray[np.float64], *, by_draws: bool) -> NDArray[np.float64]:
    """Return the noise of deviation 1 that is exceeded with this chance."""
    if not by_draws:
        return np.asarray(-special.ndtri(above), dtype=np.float64)
    return np.asarray(-np.log(-np.log1p(-above)) * math.sqrt(6) / math.pi, dtype=np.float64)
