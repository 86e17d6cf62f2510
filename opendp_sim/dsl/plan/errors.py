"""State expected errors in plain words, from facts of questions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opendp_sim.core.claims import Post
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.system.lazy_import import special
from opendp_sim.domains.released import Released, asking
from opendp_sim.dsl.plan.records import Planned
from opendp_sim.dsl.plan.release_plan import ReleasePlan
from opendp_sim.dsl.types.error_terms import (
    BESIDE,
    RECORDS,
    Wrong,
    at_least,
    few_digits,
    of_release,
    size,
)
from opendp_sim.dsl.types.outputs import OutputType, is_predicted

__all__ = [
    "ANSWERING_KINDS",
    "DIRECT",
    "DRAWN",
    "FIXED",
    "Whole",
    "Wrong",
    "asked_later",
    "how_wrong",
    "safe_deviations",
    "size",
    "whole_of",
]


# --------------------------------------------------------------------------------------------------
# The whole error of a sum: its noise, and what each record adds to it at most.
#
# Noise, the sketch's draws and a random projection are independent, so their squares add up; the
# deviation
# of a sum over records is at most the sum of their deviations (Minkowski). Bias and rounding may
# all point
# one way.

_ENDING = ", per record at most"
_PROJECTED = "jl_error_"
_KERNELS = {"gauss_transform_sketch": "gaussian", "exponential_sum": "rational"}
"""Kernels of sketches that have only one, by the names of a projection's numbers."""
_RELATIVE = "relative deviation of the projection"
_CUTS = {"clip_rows": "cuts off", "l1_embedding": "cuts off", "jl_projection": "changes"}
"""Steps that may move records by what no plan knows, and what they do."""
_DRAWN = {"sampling": "the draws of the sketch", "projection": "the projection"}
_FIXED = {"bias": "the structure itself", "rounding": "rounding to the grid"}


DRAWN, FIXED = tuple(_DRAWN.values()), tuple(_FIXED.values())
"""Parts of which squares are added up with those of the noise, and those that are added as they are."""


@dataclass(frozen=True)
class Whole:
    """Hold the parts of a sum's error.

    Each in the sum's own unit.

    Attributes:
        noise: its deviation, the same for any number of records.
        drawn: by word, the most that the deviation grows with each record.
        fixed: by word, the most that the sum is moved with each record.
        cuts: steps whose share is not known.
    """

    noise: float
    drawn: Mapping[str, float]
    fixed: Mapping[str, float]
    cuts: tuple[str, ...] = ()

    def at(self, records: int) -> float:
        """Bound the whole root mean square error with ``records`` records."""
        drawn = (records * value for value in self.drawn.values())
        return math.hypot(self.noise, *drawn) + records * sum(self.fixed.values())

    @property
    def has_parts(self) -> bool:
        """Whether anything but noise is known of."""
        return any(self.drawn.values()) or any(self.fixed.values())

    def parts(self) -> Iterator[tuple[str, float]]:
        """Yield what each record adds at most, in words, the largest first."""
        named = [(_DRAWN[word], value) for word, value in self.drawn.items()]
        named += [(_FIXED[word], value) for word, value in self.fixed.items()]
        yield from sorted((part for part in named if part[1]), key=lambda part: -part[1])

    def cut_off(self) -> str:
        """Return the sentence about steps of unknown share, or an empty text."""
        return "".join(f". What `{key}` {_CUTS[key]} comes on top" for key in self.cuts)


def whole_of(output: OutputType, noise: float) -> Whole:
    """Return the parts of an output's errors, as its claims state them."""
    expected = output.expected
    fixed = {word: expected.get(f"{word}{_ENDING}", 0.0) for word in _FIXED}
    fixed["bias"] += expected.get("bias per record", 0.0)
    farthest = max((post.of_a_record for post in output.posts), default=0.0)
    drawn = {
        "sampling": expected.get(f"sampling{_ENDING}", 0.0),
        "projection": max(
            _projected(output),
            expected.get(_RELATIVE, 0.0) * farthest
            + expected.get("deviation of the projection, per record", 0.0),
        ),
    }
    cuts = {stage.mechanism.key for stage in output.stage.stages}
    if drawn["projection"]:
        cuts.discard("jl_projection")
    return Whole(noise, drawn, fixed, tuple(key for key in _CUTS if key in cuts))


def _projected(output: OutputType) -> float:
    """Bound a projection's effect on a record's kernel.

    Lemma 3 of ``jl_projection.md``.

    0 where there is none, and for kernels that the lemma has no number of.
    """
    mechanism = output.stage.stages[-1].mechanism
    sketch = f"{mechanism.spec()} {_KERNELS.get(mechanism.key, '')}"
    return max(
        (
            float(value)
            for stage in output.stage.stages
            for name, value in getattr(stage.claim, "expected", {}).items()
            if name.startswith(_PROJECTED) and name.removeprefix(_PROJECTED) in sketch
        ),
        default=0.0,
    )


# --------------------------------------------------------------------------------------------------

_NOISY = "noise_error"
_NO_COEFFICIENT = (
    "That is not stated, because the fit shrinks slopes by as much as the noisy sums call for, and "
    "by how much that moves them depends on the true slopes, which nothing released bounds"
)
DIRECT = {"density", "distance"}
"""Questions whose answers are the sums themselves; others decide or fit something by them."""
ANSWERING_KINDS = DIRECT | {"interval_count", "counts"}
"""The same with those that need a parameter, or no question."""
_SHARES = {"density", "outliers"}
"""Questions that answer by shares of the records where they divide."""
_UNKNOWN = "not stated: it depends on the data"
_IN_ADVANCE = "not known in advance: it depends on the data"
_ROWS = f"with {BESIDE[0]} rows of data"
_LIKE = "`opendp-sim plan --like POINTS` says how large it is for data like public points"
_WORST = (
    "Noise is that of the query where it is largest; column `noise_error` has each answer's own"
)
"""The noise of a sum of distances depends on where the query is, and a plan opens no queries."""
_SUMS_OF_PRODUCTS = "noise of a sum of products"
"""One record adds at most 1 to such a sum: columns are scaled to [-1, 1] (``regress.md``)."""


def how_wrong(plan: Planned) -> dict[str, Wrong]:
    """Return each output's expected error, by name.

    A release that is asked later is left out.

    Noise is told in records wherever it is known what one record can add: that is the one scale which
    every reader has.
    """
    told = {}
    for name, output in plan.outputs.items():
        found = _stated_error(output, plan.releases[output.stage.name])
        if found is not None:
            told[name] = found
    return told


def asked_later(plan: Planned) -> dict[str, Wrong]:
    """Return the errors of a saved release's questions.

    By question and release.

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
            found = next(_of_posts(replace(output, posts=(post,)), (post,), asked), None)
            told |= {} if found is None else {f"{key} of {output.decl.name}": found}
    return told


def _stated_error(output: OutputType, release: ReleasePlan) -> Wrong | None:
    if release.bound is None:
        return Wrong("no noise: the data is public", value="none")
    stated = of_release(release.bound.claim.expected)
    if output.posts:
        return (
            next(_of_posts(output, output.posts, output.decl.post[-1]), None)
            or stated
            or Wrong(_UNKNOWN, short=_IN_ADVANCE)
        )
    if output.decl.serve is None and release.asked_stages is not None:
        return None  # asked later: what it answers is told where it is asked
    return stated or Wrong(_UNKNOWN, short=_IN_ADVANCE)


def _of_posts(output: OutputType, posts: Sequence[Post], last: Any) -> Iterator[Wrong]:
    expected = {name: float(v) for post in posts for name, v in post.expected.items()}
    noise = next((v for k, v in expected.items() if k.startswith(_NOISY)), None)
    record = max((post.of_a_record for post in posts), default=0.0)
    if noise is not None and record:
        whole, likes = whole_of(output, noise), is_predicted(output)
        unit = next((post.unit for post in reversed(posts) if post.unit), "")
        if _compares_sums(last):
            classes = len(getattr(output.domain, "labels", None) or ())
            yield _lead(noise / record, size(noise) if record != 1 else "", classes)
        if last.key in _SHARES and "least records" in expected:
            yield _of_shares(whole, expected, decides=last.key not in DIRECT)
        if getattr(last, "mean", False):
            yield _of_means(whole, expected["least records"], record, unit, can_predict=likes)
        yield _of_sums(whole, record, unit, direct=last.key in ANSWERING_KINDS, can_predict=likes)
    for name, value in expected.items():
        if name == _SUMS_OF_PRODUCTS:
            told = f"2 of 3 released sums within {size(value)}, where a record adds at most 1"
            more = f", by noise: the error of the sums, not of a coefficient. {_NO_COEFFICIENT}"
            short = f"not known in advance; sums behind the fit: ±{few_digits(value)} rows' worth"
            yield Wrong(told, more=more, short=short)
        if name.startswith((_NOISY, "noise")):
            told = f"fitted to a summed loss that noise moves by up to {size(value)} in 2 of 3 runs"
            yield Wrong(
                told, short=f"not known in advance; noise in the fitted loss: ±{few_digits(value)}"
            )


def _of_sums(whole: Whole, record: float, unit: str, *, direct: bool, can_predict: bool) -> Wrong:
    """Tell a sum's whole error, in its own unit, and its noise."""
    counted = "answers" if direct else "counts"
    decide = "" if direct else "; they decide the answer"
    noise, counts = whole.noise, unit in ("", RECORDS)
    if not whole.has_parts:
        if counts:
            told = f"2 of 3 {counted} within {size(noise)} records"
            value = f"±{few_digits(noise)} rows"
            short = f"2 in 3 {counted} within {value}, however many there are"
            return Wrong(told, noise, RECORDS, f" by noise{decide}", short=short, value=value)
        told = f"2 of 3 {counted} within {size(noise)} {unit} at most"
        value, worth = f"±{few_digits(noise)}", few_digits(noise / record)
        short = f"2 in 3 sums within {value}: what the {worth} farthest rows add"
        more = f", by noise{_farthest(noise, record)}{decide}. {_worst(can_predict)}"
        return Wrong(told, more=more, short=short, value=value)
    first, second = (size(whole.at(of)) for of in BESIDE)
    named = RECORDS if counts else unit
    most = "" if counts else " at most"
    told = (
        f"2 of 3 {counted} within {first} {named}{most} if there are {BESIDE[0]:,} records, within "
        f"{second} if there are {BESIDE[1]:,}"
    )
    each = ", ".join(
        f"{_percent(value) if counts else f'{size(value)} for each of them'} by {word}"
        for word, value in whole.parts()
    )
    of = " of all records" if counts else ""
    last = _worst(can_predict) if not counts else _LIKE if can_predict else ""
    more = (
        f": noise {size(noise)}{'' if counts else _farthest(noise, record)} whatever their number, and "
        f"at most{of} {each}{whole.cut_off()}{decide}{f'. {last}' if last else ''}"
    )
    value = f"±{few_digits(whole.at(BESIDE[0]))}"
    if counts:
        value += " rows"
        return Wrong(
            told, more=more, short=f"2 in 3 {counted} within {value}, {_ROWS}", value=value
        )
    most = few_digits(BESIDE[0] * record)
    return Wrong(
        told, more=more, short=f"2 in 3 sums within {value} of at most {most}, {_ROWS}", value=value
    )


def _worst(can_predict: bool) -> str:
    """Add that noise is stated at its largest."""
    return f"{_WORST}{f', and {_LIKE}' if can_predict else ''}"


def _farthest(noise: float, record: float) -> str:
    """Say how many records that add most the noise is worth."""
    return (
        "" if record == 1 else f" (as much as {size(noise / record)} of the farthest records add)"
    )


def _percent(share: float) -> str:
    return f"{float(f'{100 * share:.2g}'):g}%"


def _of_shares(whole: Whole, expected: Mapping[str, float], *, decides: bool) -> Wrong:
    """State a mean kernel value's error at two sizes.

    Lemma 7 of ``density.md``.

    The number that sums are divided by is noisy too, and never below ``least records``.
    """
    least, counted = expected["least records"], expected["noise of the number of records"]
    told = _at_sizes(whole, least)
    each = "".join(f", {size(value)} by {word}" for word, value in whole.parts())
    more = (
        f", where 1 stands for all records{'; they decide the answer' if decides else ''}: noise "
        f"{size(whole.noise)} divided by their number{', and at most' if each else ''}"
        f"{each.removeprefix(',')} whatever their number{whole.cut_off()}. The "
        f"number that a sum is divided by is noisy too (in 2 of 3 runs within {size(counted)}), "
        f"which moves "
        f"an answer by as large a share of itself. A class that counts fewer than "
        f"{math.ceil(least):,} is "
        "divided by that number: its answers are too near to 0"
    )
    if not each:
        more = more.replace(" whatever their number", "", 1)
    short, value = _mean_in_one_line(whole, least, None)
    return Wrong(told, more=more, short=short, value=value)


def _mean_in_one_line(whole: Whole, least: float, scale: float | None) -> tuple[str, str]:
    """Return a mean's error in one line, and its number alone.

    Args:
        whole: the error of the sum.
        least: the number that a sum is divided by at least.
        scale: the greatest mean; None for one that is a share of all rows.
    """
    few = f"under {math.ceil(least):,} rows"
    if least > BESIDE[1]:
        return f"{few} only noise", "not known"
    of = BESIDE[0] if least <= BESIDE[0] else BESIDE[1]
    error = whole.at(of) / of
    value = f"±{few_digits(error)}" if scale is not None else f"±{_percent(error)}"
    most = f" of at most {size(scale)}" if scale is not None else ""
    if of == BESIDE[0]:
        told = "2 in 3 answers" if scale is None else "2 in 3"
        rows = " of all rows" if scale is None else most
        return f"{told} within {value}{rows}, {_ROWS}", value
    return (
        f"2 in 3 within {value}{most}, with {of:,} rows; {few.removesuffix(' rows')} only noise",
        value,
    )


def _of_means(
    whole: Whole, least: float, farthest: float, unit: str, *, can_predict: bool
) -> Wrong:
    """Tell the error of a mean distance at two numbers of records."""
    told = _at_sizes(whole, least)
    each = ", ".join(f"{size(value)} by {word}" for word, value in whole.parts())
    more = (
        f" at most, in {unit}: noise {size(whole.noise)} divided by their number"
        f"{f', and at most {each} whatever their number' if each else ''}{whole.cut_off()}. The noise "
        "of the number of records comes on top. A class that counts "
        f"fewer than {math.ceil(least):,} is divided by that number: its answers are too near to 0. "
        f"{_worst(can_predict)}"
    )
    short, value = _mean_in_one_line(whole, least, farthest)
    return Wrong(told, more=more, short=short, value=value)


def _at_sizes(whole: Whole, least: float) -> str:
    """State a mean's error at two numbers of records.

    Or that noise hides so few.

    Such a mean is pulled to 0 by the floor of its divisor, by more than noise moves it.
    """
    few = f"fewer than {math.ceil(least):,} records are not told from noise"
    first, second = (f"{size(whole.at(of) / of)} with {of:,}" for of in BESIDE)
    if least > BESIDE[1]:
        return few
    if least > BESIDE[0]:
        return f"{few}, 2 of 3 answers within {second} records"
    return f"2 of 3 answers within {first} records, {second}"


def _compares_sums(last: Any) -> bool:
    """Return whether an answer is the largest sum's class."""
    return last.key == "classify" and getattr(last, "rule", "") == "map"


def safe_deviations(classes: int) -> float:
    """Return the lead, in deviations, that is safe.

    Among so many classes, of two sums' difference.
    """
    rivals = max(classes - 1, 1)
    return 2.0 if rivals == 1 else -float(special.ndtri(special.ndtr(-2.0) / rivals))


def _lead(records: float, own: str, classes: int) -> Wrong:
    """State the safe lead among a release's classes.

    Lemma 3 of ``classify.md``.

    The difference of two sums has sqrt(2) times the noise of one, and beyond two of its deviations a
    normal variable goes in 2.3 of 100 cases, on one side: that chance is shared among all rivals.
    """
    rivals = max(classes - 1, 1)
    lead = safe_deviations(classes) * math.sqrt(2.0) * records
    counts = (
        f"2 of 3 counts are within {size(records)}{f', in their own unit {own}' if own else ''}"
    )
    more = (
        f"; below it noise may have decided, above it noise alone puts a wrong one of the "
        f"{rivals + 1:,} classes first in fewer than 3 of 100 questions, however near all of them are "
        f"({counts}). Column `margin` is the lead"
    )
    value = f"{at_least(lead)} rows"
    short = f"the chosen class is safe when it leads by {value} or more"
    told = f"a lead is safe from {size(lead)} records on"
    return Wrong(told, lead, RECORDS, more, of_leads=True, short=short, value=value)
