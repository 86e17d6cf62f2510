"""How wrong answers will be, in plain words, from what questions and releases state."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opendp_sim.core.claims import Post
from opendp_sim.core.mechanism import lookup
from opendp_sim.dsl.output_types import OutputType
from opendp_sim.dsl.planned import Planned
from opendp_sim.dsl.release_plan import ReleasePlan
from opendp_sim.spaces.released import Released, asking

__all__ = ["ANSWERS", "DIRECT", "Wrong", "asked_later", "how_wrong", "size"]

_NOISY = "noise_error"
DIRECT = {"density", "distance"}
"""Questions whose answers are the sums themselves; others decide or fit something by them."""
ANSWERS = DIRECT | {"interval_count"}
"""The same with those that cannot be asked without a parameter."""
_SHARES = {"density", "outliers"}
"""Questions that answer by shares of the records where they divide."""
_RECORDS, _VOTES = "records", "votes"
_STATED = (
    ("votes_to_be_listed", "an item is listed in 95 of 100 runs from {} votes on", _VOTES),
    (
        "votes_for_95_percent",
        "listed in 95 of 100 runs if {} votes above rank {next_rank:.0f}",
        _VOTES,
    ),
    (
        "gap_for_95_percent",
        "a set that leads by {} votes passes its test in 95 of 100 runs",
        _VOTES,
    ),
    (
        "drop_for_95_percent",
        "of two drops the one larger by {} votes wins in 95 of 100 runs",
        _VOTES,
    ),
    ("deviation", "2 of 3 noisy vote counts within {}", _VOTES),
    (
        "relative_vote_noise",
        "2 of 3 vote counts within {:.0%} of the votes if some {neighbours:.0f} vote",
        "",
    ),
    ("vote_noise", "2 of 3 vote counts within {}, of {voters:.0f} votes at most", _VOTES),
    ("threshold", "a set leading by under {} votes is held back in most runs", _VOTES),
    (
        "noise_of_a_gradient_in_records",
        "2 of 3 numbers of a step of the fit within {} records",
        _RECORDS,
    ),
)
"""What a release states of its own accuracy, the most telling first, and what its number counts."""
_FACTS = ("ranks", "neighbours", "voters")
"""Other facts of a release that such a sentence names."""
_MORE = {
    "votes_to_be_listed": ", unless others take all places",
    "votes_for_95_percent": ", unless others take all places: that rank's item cannot be listed",
    "gap_for_95_percent": ": its last item is so far ahead of the next one",
    "drop_for_95_percent": "; a drop is by how many votes an item is ahead of the next one",
    "relative_vote_noise": "; with fewer voters the share is larger",
}
_SHORT = {
    "drop_for_95_percent": "a drop larger by {} votes wins 95 in 100",
    "gap_for_95_percent": "a set ahead by {} votes passes 95 in 100",
    "threshold": "a set ahead by under {} votes is mostly held back",
    "relative_vote_noise": "2 of 3 vote counts within {:.0%} of the votes",
    "noise_of_a_gradient_in_records": "2 of 3 parts of a step within {} records",
}
"""The same in a terminal's one line."""
_UNKNOWN = "not stated: it depends on the data"
_SUMS_OF_PRODUCTS = "noise of a sum of products"
"""One record adds at most 1 to such a sum: columns are scaled to [-1, 1] (``regress.md``)."""
_BESIDE = (100, 10_000)
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
        share = _share(self.size / 100)
        return f"{text} ({share.removesuffix(' as much')}{'' if 'times' in share else ' of'} 100)"

    @property
    def whole(self) -> str:
        """The size beside two numbers that it may be the error of."""
        text = f"{self.text}{self.more}"
        if not self._known:
            return text
        first, second = (_share(self.size / of) for of in _BESIDE)
        return (
            f"{text}. Beside 100 {self.noun} that count for an answer this is {first}, beside 10,000 it "
            f"is {second}"
        )

    @property
    def _known(self) -> bool:
        return self.noun == _RECORDS and 0 < self.size < 1e12


def _share(share: float) -> str:
    if share >= 1:
        return f"{size(float(f'{share:.2g}'))} times as much"
    return f"{float(f'{100 * share:.2g}'):g}%" if share > 1e-6 else "hardly anything"


def how_wrong(plan: Planned) -> dict[str, Wrong]:
    """Return what is expected of each output's error, by name; a release that is asked later is left out.

    Noise is told in records wherever it is known what one record can add: that is the one scale which
    every reader has.
    """
    told = {}
    for name, output in plan.outputs.items():
        found = _told(output, plan.releases[output.stage.name])
        if found is not None:
            told[name] = found
    return told


def asked_later(plan: Planned) -> dict[str, Wrong]:
    """Return the errors of the questions that a saved release answers, by question and release.

    A program that only saves a release, as the recipes do, says nothing of answers by itself.
    """
    told: dict[str, Wrong] = {}
    for output in plan.outputs.values():
        released = output.domain
        if output.posts or not isinstance(released, Released):
            continue
        for key in sorted(DIRECT & set(asking(released.capabilities))):
            asked = lookup(key)()
            post = asked.bind(released, output.stage.metric)
            found = next(_of_posts((post,), asked), None)
            told |= {} if found is None else {f"{key} of {output.decl.name}": found}
    return told


def size(value: float) -> str:
    """Return a number to three digits, without an exponent where a reader would stumble over one."""
    near = float(f"{value:.3g}")
    return f"{near:,.0f}" if 1000 <= abs(near) < 1e12 else f"{near:.3g}"


def _told(output: OutputType, release: ReleasePlan) -> Wrong | None:
    if release.bound is None:
        return Wrong("no noise: the data is public")
    stated = _of_release(release.bound.claim.expected)
    if output.posts:
        return (
            next(_of_posts(output.posts, output.decl.post[-1]), None) or stated or Wrong(_UNKNOWN)
        )
    if output.decl.serve is None and release.asked_stages is not None:
        return None  # asked later: what it answers is told where it is asked
    return stated or Wrong(_UNKNOWN)


def _of_posts(posts: Sequence[Post], last: Any) -> Iterator[Wrong]:
    expected = {name: float(v) for post in posts for name, v in post.expected.items()}
    noise = next((v for k, v in expected.items() if k.startswith(_NOISY)), None)
    record = max((post.of_a_record for post in posts), default=0.0)
    if noise is not None and record:
        records = noise / record
        if _compares_sums(last):
            yield _lead(records, size(noise) if record != 1 else "")
        if last.key in _SHARES and "least records" in expected:
            yield _of_shares(noise, expected, decides=last.key not in DIRECT)
        if getattr(last, "mean", False):
            yield _of_means(noise, expected["least records"])
        yield _of_sums(noise, record, direct=last.key in ANSWERS)
    for name, value in expected.items():
        if name == _SUMS_OF_PRODUCTS:
            told = f"2 of 3 released sums within {size(value)} records"
            more = " by noise: the error of the sums, not of a coefficient, which is not stated"
            yield Wrong(
                told, more=more, short=f"2 of 3 sums, not coefficients, within {size(value)}"
            )
        if name.startswith((_NOISY, "noise")):
            told = f"fitted to a sum that noise moves by up to {size(value)} in 2 of 3 runs"
            yield Wrong(told, short=f"fitted to a sum within {size(value)} in 2 of 3 runs")


def _of_sums(noise: float, record: float, *, direct: bool) -> Wrong:
    """Tell a sum's noise in records: of a sum of distances in those that add most."""
    counted = "answers" if direct else "counts"
    more = " by noise" if direct else " by noise; they decide the answer"
    if record == 1:
        told = f"2 of 3 {counted} within {size(noise)} records"
        return Wrong(told, noise, _RECORDS, more)
    told = f"2 of 3 {counted} within {size(noise / record)} of the farthest records"
    more += f"; in the answer's own unit, {size(noise)}"
    short = f"2 of 3 {counted} within {size(noise / record)} farthest records"
    return Wrong(told, noise / record, _RECORDS, more, short=short)


def _of_shares(noise: float, expected: Mapping[str, float], *, decides: bool) -> Wrong:
    """Tell the noise of a mean kernel value at two numbers of records (Lemma 7 of ``density.md``).

    The number that sums are divided by is noisy too, and never below ``least records``.
    """
    least, counted = expected["least records"], expected["noise of the number of records"]
    told = _at_sizes(noise, least)
    more = (
        f", by noise alone, where 1 stands for all "
        f"records{'; they decide the answer' if decides else ''}. The "
        f"number that a sum is divided by is noisy too (in 2 of 3 runs within {size(counted)}), "
        f"which moves "
        f"an answer by as large a share of itself. A class that counts fewer than "
        f"{math.ceil(least):,} is "
        "divided by that number: its answers are too near to 0"
    )
    return Wrong(told, more=more, short=told.partition(", ")[0])


def _of_means(noise: float, least: float) -> Wrong:
    """Tell the noise of a mean distance at two numbers of records."""
    told = _at_sizes(noise, least)
    more = (
        ", by the noise of the sum; that of the number of records comes on top. A class that counts "
        f"fewer than {math.ceil(least):,} is divided by that number: its answers are too near to 0"
    )
    return Wrong(told, more=more, short=told.partition(", ")[0])


def _at_sizes(noise: float, least: float) -> str:
    """Tell the noise of a mean at two numbers of records, or that so few are not told from noise.

    Such a mean is pulled to 0 by the floor of its divisor, by more than noise moves it.
    """
    few = f"fewer than {math.ceil(least):,} records are not told from noise"
    first, second = (f"{size(noise / of)} with {of:,}" for of in _BESIDE)
    if least > _BESIDE[1]:
        return few
    if least > _BESIDE[0]:
        return f"{few}, 2 of 3 answers within {second} records"
    return f"2 of 3 answers within {first} records, {second}"


def _compares_sums(last: Any) -> bool:
    """Say whether an answer is the class of the largest sum: so is ``classify`` by its rule ``map``."""
    return last.key == "classify" and getattr(last, "rule", "") == "map"


def _lead(records: float, own: str) -> Wrong:
    """Say how large a lead is safe: the difference of two sums has sqrt(2) times the noise of one.

    Beyond two of its deviations a normal variable goes in 2.3 of 100 cases, on one side.
    """
    lead = 2.0 * math.sqrt(2.0) * records
    counts = (
        f"2 of 3 counts are within {size(records)}{f', in their own unit {own}' if own else ''}"
    )
    more = (
        f"; below it noise may have decided, above it noise alone turns fewer than 3 of 100 ({counts}). "
        "Column `margin` is the lead"
    )
    return Wrong(
        f"a lead is safe from {size(lead)} records on", lead, _RECORDS, more, of_leads=True
    )


def _of_release(expected: Mapping[str, Any]) -> Wrong | None:
    for name, text, noun in _STATED:
        if name in expected:
            value = float(expected[name])
            facts = {key: float(expected[key]) for key in _FACTS if key in expected}
            facts["next_rank"] = facts.get("ranks", 0.0) + 1
            told = text.format(size(value) if noun else value, **facts)
            short = _SHORT.get(name, "").format(size(value) if noun else value)
            return Wrong(told, value if noun else 0.0, noun, _MORE.get(name, ""), short=short)
    return None
