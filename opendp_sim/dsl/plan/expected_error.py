"""State expected errors in plain words, from facts of questions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    WIDE,
    WITHIN,
    Wrong,
    at_least,
    few_digits,
    of_release,
    size,
    wide,
)
from opendp_sim.dsl.types.outputs import OutputType, is_predicted

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
    """Hold the parts of a sum's error, in its unit.

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

    def within(self, records: int) -> float:
        """Bound what 95 errors of 100 are within, with ``records`` records."""
        fixed = records * sum(self.fixed.values())
        return WIDE * (self.at(records) - fixed) + fixed

    @property
    def has_parts(self) -> bool:
        """Whether anything but noise is known of."""
        return any(self.drawn.values()) or any(self.fixed.values())

    def parts(self) -> Iterator[tuple[str, float]]:
        """Yield what each record adds at most within 95%, the largest first."""
        named = [(_DRAWN[word], WIDE * value) for word, value in self.drawn.items()]
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
    """Bound a projection's effect on a record's kernel (Lemma 3 of ``jl_projection.md``).

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
_UNKNOWN = "not known in advance: it depends on the data"
_ROWS = f"({BESIDE[0]} rows assumed)"
_LIKE = "`opendp-sim plan --like POINTS` says how large it is for data like public points"
_WORST = (
    "Noise is that of the query where it is largest; column `noise_error` has each answer's own"
)
"""The noise of a sum of distances depends on where the query is, and a plan opens no queries."""
_SUMS_OF_PRODUCTS = "noise of a sum of products"
"""One record adds at most 1 to such a sum: columns are scaled to [-1, 1] (``regress.md``)."""


def how_wrong(plan: Planned) -> dict[str, Wrong]:
    """Return each answered output's expected error, by name.

    Noise is in records wherever it is known what one record can add: every reader has that scale.
    """
    told = {}
    for name, output in plan.outputs.items():
        found = _stated_error(output, plan.releases[output.stage.name])
        if found is not None:
            told[name] = found
    return told


def asked_later(plan: Planned) -> dict[str, Wrong]:
    """Return the errors of a saved release's questions, by question and release.

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
        return Wrong("no noise: the data is public", "", "none")
    stated = of_release(release.bound.claim.expected)
    if output.posts:
        return (
            next(_of_posts(output, output.posts, output.decl.post[-1]), None)
            or stated
            or Wrong(_UNKNOWN)
        )
    if output.decl.serve is None and release.asked_stages is not None:
        return None  # asked later: what it answers is told where it is asked
    return stated or Wrong(_UNKNOWN)


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
        near = wide(value)
        if name == _SUMS_OF_PRODUCTS:
            line = f"not known in advance; sums behind the fit: ±{near} rows' worth"
            yield Wrong(line, f", by noise: not of a coefficient. {_NO_COEFFICIENT}")
        if name.startswith((_NOISY, "noise")):
            yield Wrong(
                f"not known in advance; noise in the fitted loss: ±{near}", f" in {WITHIN} of runs"
            )


def _of_sums(whole: Whole, record: float, unit: str, *, direct: bool, can_predict: bool) -> Wrong:
    """State a sum's whole error, in its own unit, and its noise."""
    counted = "answers" if direct else "counts"
    decide = "" if direct else "; they decide the answer"
    noise, counts = whole.noise, unit in ("", RECORDS)
    rows = " rows" if counts else ""
    last = _worst(can_predict) if not counts else _LIKE if can_predict else ""
    last = f"{decide}{f'. {last}' if last else ''}"
    if not whole.has_parts:
        value = f"±{wide(noise)}{rows}"
        if counts:
            line = f"{WITHIN} of {counted} within {value}, however many there are"
            return Wrong(line, f", by noise{decide}", value)
        line = f"{WITHIN} of sums within {value}: what the {wide(noise / record)} farthest rows add"
        return Wrong(line, f", by noise, in {unit}{last}", value)
    first, second = (f"±{few_digits(whole.within(of))}{rows}" for of in BESIDE)
    line = f"{WITHIN} of {counted} within {first} {_ROWS}"
    if not counts:
        line = (
            f"{WITHIN} of sums within {first} of at most {few_digits(BESIDE[0] * record)} {_ROWS}"
        )
    each = ", ".join(
        f"{_percent(value) if counts else f'{size(value)} for each row'} by {word}"
        for word, value in whole.parts()
    )
    of = "" if counts else f", in {unit}"
    more = (
        f", {second} with {BESIDE[1]:,}{of}: noise ±{wide(noise)}{rows} whatever their number, and "
        f"at most{' of all rows' if counts else ''} {each}{whole.cut_off()}{last}"
    )
    return Wrong(line, more, first)


def _worst(can_predict: bool) -> str:
    """Add that noise is stated at its largest."""
    return f"{_WORST}{f', and {_LIKE}' if can_predict else ''}"


def _percent(share: float) -> str:
    return f"{float(f'{100 * share:.2g}'):g}%"


def _of_shares(whole: Whole, expected: Mapping[str, float], *, decides: bool) -> Wrong:
    """State a mean kernel value's error at two sizes (``density.md``, Lemma 7).

    The number that sums are divided by is noisy too, and never below ``least records``.
    """
    least, counted = expected["least records"], expected["noise of the number of records"]
    decide = "; they decide the answer" if decides else ""
    more = (
        f"{decide}: {_divided(whole, _percent)}. The number that a sum is divided by is noisy too "
        f"({WITHIN} within ±{wide(counted)}), which moves an answer by as large a share of itself. "
        f"{_pulled(least)}"
    )
    return _mean(whole, least, None, more)


def _of_means(
    whole: Whole, least: float, farthest: float, unit: str, *, can_predict: bool
) -> Wrong:
    """State the error of a mean distance at two sizes."""
    more = (
        f", in {unit}: {_divided(whole, size)}. The noise of the number of rows comes on top. "
        f"{_pulled(least)}. {_worst(can_predict)}"
    )
    return _mean(whole, least, farthest, more)


def _divided(whole: Whole, shown: Callable[[float], str]) -> str:
    """State the noise of a mean, and what each row adds."""
    each = ", ".join(f"{shown(value)} by {word}" for word, value in whole.parts())
    most = f", and at most {each} whatever their number" if each else ""
    return f"noise ±{size(WIDE * whole.noise)} divided by the number of rows{most}{whole.cut_off()}"


def _pulled(least: float) -> str:
    few = f"{math.ceil(least):,}"
    return (
        f"A class of fewer than {few} rows is divided by that number: its answers are too near to 0"
    )


def _mean(whole: Whole, least: float, scale: float | None, more: str) -> Wrong:
    """State a mean's error at two sizes, and ``more`` after it.

    A mean of few rows is pulled to 0 by the floor ``least`` of its divisor, by more than noise moves
    it. ``scale`` is the greatest mean; None for a share of all rows.
    """
    few = f"under {math.ceil(least):,}"
    if least > BESIDE[1]:
        return Wrong(f"{few} rows only noise", more)
    values = [whole.within(of) / of for of in BESIDE]
    first, second = (f"±{_percent(v) if scale is None else few_digits(v)}" for v in values)
    most = f" of at most {size(scale)}" if scale is not None else ""
    if least > BESIDE[0]:
        line = f"{WITHIN} within {second}{most}, with {BESIDE[1]:,} rows; {few} only noise"
        return Wrong(line, more, second)
    told = (
        f"{WITHIN} of answers within {first} of all rows"
        if scale is None
        else f"{WITHIN} within {first}{most}"
    )
    return Wrong(f"{told} {_ROWS}", f", {second} with {BESIDE[1]:,}{more}", first)


def _compares_sums(last: Any) -> bool:
    """Return whether an answer is the largest sum's class."""
    return last.key == "classify" and getattr(last, "rule", "") == "map"


def safe_deviations(classes: int) -> float:
    """Return the safe lead among so many classes, in deviations."""
    rivals = max(classes - 1, 1)
    return 2.0 if rivals == 1 else -float(special.ndtri(special.ndtr(-2.0) / rivals))


def _lead(records: float, own: str, classes: int) -> Wrong:
    """State the safe lead among a release's classes (Lemma 3 of ``classify.md``).

    The difference of two sums has sqrt(2) times the noise of one, and beyond two of its deviations a
    normal variable goes in 2.3 of 100 cases, on one side: that chance is shared among all rivals.
    """
    rivals = max(classes - 1, 1)
    lead = safe_deviations(classes) * math.sqrt(2.0) * records
    value = f"{at_least(lead)} rows"
    own = f", in their own unit {own}" if own else ""
    more = (
        f"; below it noise may have decided, above it noise alone puts a wrong one of the "
        f"{rivals + 1:,} classes first in fewer than 3 of 100 questions, however near all of them are "
        f"({WITHIN} of counts are within ±{wide(records)} rows{own}). Column `margin` is the lead"
    )
    line = f"the chosen class is safe when it leads by {value} or more"
    return Wrong(line, more, value, lead)
