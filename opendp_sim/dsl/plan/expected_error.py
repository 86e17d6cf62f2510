"""State expected errors in plain words, from facts of questions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from opendp_sim.core.claims import Post, Quantity
from opendp_sim.core.mechanism import Mechanism, lookup
from opendp_sim.core.system.lazy_import import special
from opendp_sim.domains.released import Released, asking
from opendp_sim.dsl.plan.records import Planned
from opendp_sim.dsl.plan.release_plan import ReleasePlan
from opendp_sim.dsl.types.error_terms import (
    BESIDE,
    BY_ROWS,
    RECORDS,
    ROWS,
    WIDE,
    WITHIN,
    ErrorForecast,
    Whole,
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


def whole_of(output: OutputType, noise: float) -> Whole:
    """Return the parts of an output's errors, as its claims state them."""
    expected = output.expected
    fixed = {word: expected.get(f"{word}{_ENDING}", 0.0) for word in BY_ROWS}
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
    likely = {word: value for post in output.posts for word, value in post.likely.items()}
    return Whole(noise, drawn, fixed, tuple(key for key in _CUTS if key in cuts), likely)


def _cut_off(whole: Whole) -> str:
    """Return the sentence about steps of unknown share, or an empty text."""
    return "".join(f". What `{key}` {_CUTS[key]} comes on top" for key in whole.cuts)


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
_ASKED_LATER = ("totals", "quantiles", *sorted(DIRECT))
"""Questions of a saved release that a plan states the errors of, tables of columns first."""
_DECIDING = {"classify", "modes", "outliers", "sample"}
"""Questions whose answers are decided by the sums that their error is of."""
_SHARES = {"density", "outliers"}
"""Questions that answer by shares of the records where they divide."""
_VOTES = "votes"
_UNKNOWN = "not known in advance: it depends on the data"
_SHARE, _RANGE = "share of all rows", "parts of "
_LIKE = "`opendp-sim plan --like POINTS` says how large it is for data like public points"
_WORST = (
    "Noise is that of the query where it is largest; column `noise_error` has each answer's own"
)
"""The noise of a sum of distances depends on where the query is, and a plan opens no queries."""
_SUMS_OF_PRODUCTS = "noise of a sum of products"
"""One record adds at most 1 to such a sum: columns are scaled to [-1, 1] (``regress.md``)."""


def _sizes(output: OutputType) -> tuple[int, int]:
    """Return the numbers of rows that an error is stated for.

    The number that the release expects, and ten times as many; else ``BESIDE``.
    """
    rows = output.stage.expected_records
    return BESIDE if rows is None else (rows, 10 * rows)


def _if_rows(sizes: tuple[int, int]) -> str:
    return "(if there is 1 row)" if sizes[0] == 1 else f"(if there are {sizes[0]:,} rows)"


def error_forecasts(plan: Planned) -> dict[str, ErrorForecast]:
    """Return the errors of all outputs, and of questions asked later."""
    return how_wrong(plan) | asked_later(plan)


def how_wrong(plan: Planned) -> dict[str, ErrorForecast]:
    """Return each answered output's expected error, by name.

    Noise is in records wherever it is known what one record can add: every reader has that scale. A
    question that answers with several quantities has an error for each, ``QUANTITY of OUTPUT``.
    """
    told: dict[str, ErrorForecast] = {}
    for name, output in plan.outputs.items():
        release = plan.releases[output.stage.name]
        if release.bound is not None and output.posts and output.posts[-1].quantities:
            told |= _of_quantities(output.posts[-1], name, _sizes(output))
            continue
        found = _stated_error(output, release)
        if found is not None:
            told[name] = found
    return told


def asked_later(plan: Planned) -> dict[str, ErrorForecast]:
    """Return the errors of a saved release's questions, by question and release.

    A program that only saves a release, as the recipes do, says nothing of answers by itself.
    """
    told: dict[str, ErrorForecast] = {}
    for output in plan.outputs.values():
        released = output.domain
        if output.posts or not isinstance(released, Released):
            continue
        offered = set(asking(released.capabilities))
        for key in (key for key in _ASKED_LATER if key in offered):
            told |= error_of(output, lookup(key)())
    return told


def error_of(output: OutputType, asked: Mechanism) -> dict[str, ErrorForecast]:
    """Return the errors of one question to a saved release, by name.

    Nothing where none is known in advance; a ``SimError`` where the release cannot be asked it.
    """
    post = None if output.domain is None else asked.bind(output.domain, output.stage.metric)
    if not isinstance(post, Post):
        return {}
    if post.quantities:
        return _of_quantities(post, output.decl.name, _sizes(output))
    found = next(_of_posts(replace(output, posts=(post,)), (post,), asked), None)
    return {} if found is None else {f"{asked.key} of {output.decl.name}": found}


def _stated_error(output: OutputType, release: ReleasePlan) -> ErrorForecast | None:
    if release.bound is None:
        none = Whole(0.0, {}, {})
        return ErrorForecast("no noise: the data is public", "", "none", errors=none)
    stated = of_release(release.bound.claim.expected, release.bound.record)
    if output.posts:
        return (
            next(_of_posts(output, output.posts, output.decl.post[-1]), None)
            or stated
            or ErrorForecast(_UNKNOWN)
        )
    if output.decl.serve is None and release.asked_stages is not None:
        return None  # asked later: what it answers is told where it is asked
    return stated or ErrorForecast(_UNKNOWN)


def _of_posts(output: OutputType, posts: Sequence[Post], last: Any) -> Iterator[ErrorForecast]:
    expected = {name: float(v) for post in posts for name, v in post.expected.items()}
    noise = next((v for k, v in expected.items() if k.startswith(_NOISY)), None)
    record = max((post.of_a_record for post in posts), default=0.0)
    sizes = _sizes(output)
    if noise is not None and record:
        whole, likes = whole_of(output, noise), is_predicted(output)
        unit = next((post.unit for post in reversed(posts) if post.unit), "")
        if last.key == "classify" and getattr(last, "rule", "") == "map":  # the largest sum's class
            classes = len(getattr(output.domain, "labels", None) or ())
            yield _lead(whole.times(1 / record), size(noise) if record != 1 else "", classes)
        if last.key in _SHARES and "least records" in expected:
            decide = "" if last.key in DIRECT else "; they decide the answer"
            yield _mean(
                whole, expected, 1.0, _SHARE, (decide, ""), sizes
            )  # ``density.md``, Lemma 7
        if getattr(last, "mean", False):
            yield _of_means(whole, expected, record, unit, sizes, can_predict=likes)
        direct = last.key not in _DECIDING
        yield _of_sums(whole, record, unit, sizes, direct=direct, can_predict=likes)
    for name, value in expected.items():
        near = wide(value)
        if name == _SUMS_OF_PRODUCTS:
            line = f"not known in advance; sums behind the fit: ±{near} rows' worth"
            yield ErrorForecast(line, f", by noise: not of a coefficient. {_NO_COEFFICIENT}")
        elif name == _NOISY:
            yield _of_answers(value, next((post.unit for post in reversed(posts) if post.unit), ""))
        elif name.startswith("noise"):
            named = name.replace("_", " ")
            yield ErrorForecast(f"not known in advance; {named}: ±{near}", f" in {WITHIN} of runs")


def _of_answers(noise: float, unit: str) -> ErrorForecast:
    """State the noise of answers of which no more is known."""
    counts = unit == RECORDS
    value = f"±{wide(noise)}{f' {ROWS}' if counts else ''}"
    more = f", by noise{f', in {unit}' if unit and not counts else ''}"
    return ErrorForecast(
        f"{WITHIN} of answers within {value}",
        more,
        value,
        ROWS if counts else unit,
        Whole(noise, {}, {}),
    )


def _of_quantities(post: Post, output: str, sizes: tuple[int, int]) -> dict[str, ErrorForecast]:
    """State the error of each quantity in its own unit."""
    return {
        f"{name} of {output}": _of_quantity(name, known, sizes)
        for name, known in post.quantities.items()
    }


def _of_quantity(name: str, known: Quantity, sizes: tuple[int, int]) -> ErrorForecast:
    """State one quantity's error, of a mean at two sizes."""
    whole = Whole(known.noise, {}, {"rounding": known.moved})
    counts = known.unit == RECORDS
    found = ErrorForecast("", unit=ROWS if counts else known.unit, errors=whole, sizes=sizes)
    said = "" if counts or known.unit.startswith(_RANGE) else f", in {known.unit}"
    if known.least is None:
        value = _sized(WIDE * known.noise, known.unit)
        moved = _sized(known.moved, known.unit).removeprefix("±")
        each = f", and at most {moved} for each row by {BY_ROWS['rounding']}" if known.moved else ""
        line = f"{WITHIN} of {name}s within {value}, however many rows"
        return replace(found, line=line, more=f", by noise{said}{each}", value=value)
    found = replace(
        found,
        least=known.least,
        divisor=known.divisor,
        largest=known.largest,
        centres=known.centres,
        independent=True,
    )
    few = f"{math.ceil(known.least):,}"
    more = (
        f"{said}: noise ±{size(WIDE * known.noise)} of the sum and ±{wide(known.divisor)} of the number "
        f"of rows that it is divided by, for a {name} at an end of the bounds. A class of fewer than "
        f"{few} rows is divided by that number: its {name} is too near to the middle"
    )
    first, second = (None if at is None else _sized(at, known.unit) for at in map(found.at, sizes))
    if second is None:
        return replace(found, line=f"under {few} rows only noise", more=more)
    if first is None:
        line = f"{WITHIN} within {second}, with {sizes[1]:,} rows; under {few} only noise"
        return replace(found, line=line, more=more, value=second)
    line, more = (
        f"{WITHIN} of {name}s within {first} {_if_rows(sizes)}",
        f", {second} with {sizes[1]:,}{more}",
    )
    return replace(found, line=line, more=more, value=first)


def _sized(value: float, unit: str) -> str:
    """Return an error in rows, ranges, or units named beside it."""
    if unit.startswith(_RANGE):
        return f"±{_percent(value)} of the range" if value < 1.0 else f"±{few_digits(value)} ranges"
    return f"±{few_digits(value)}{' rows' if unit == RECORDS else ''}"


def _of_sums(
    whole: Whole,
    record: float,
    unit: str,
    sizes: tuple[int, int],
    *,
    direct: bool,
    can_predict: bool,
) -> ErrorForecast:
    """State a sum's whole error, in its own unit, and its noise."""
    counted = "answers" if direct else "counts"
    decide = "" if direct else "; they decide the answer"
    noise, counts = whole.noise, unit in ("", RECORDS, _VOTES)
    rows = "" if not counts else f" {_VOTES}" if unit == _VOTES else " rows"
    last = _worst(can_predict) if not counts else _LIKE if can_predict else ""
    last = f"{decide}{f'. {last}' if last else ''}"
    if not whole.has_parts:
        value = f"±{wide(noise)}{rows}"
        if counts:
            line = f"{WITHIN} of {counted} within {value}, however many there are"
            return ErrorForecast(line, f", by noise{decide}", value, rows.strip(), whole)
        line = f"{WITHIN} of sums within {value}: what the {wide(noise / record)} farthest rows add"
        return ErrorForecast(line, f", by noise, in {unit}{last}", value, unit, whole)
    found = ErrorForecast("", unit=rows.strip() or unit, errors=whole, sizes=sizes)
    first, second = (f"±{few_digits(found.at(of) or 0.0)}{rows}" for of in sizes)
    near = _likely(found, lambda value: f"±{few_digits(value)}")
    line = f"{WITHIN} of {counted} within {first}{near} {_if_rows(sizes)}"
    if not counts:
        most = few_digits(sizes[0] * record)
        line = f"{WITHIN} of sums within {first} of at most {most}{near} {_if_rows(sizes)}"
    each = ", ".join(
        f"{_percent(value) if counts else f'{size(value)} for each row'} by {word}"
        for word, value in whole.parts()
    )
    of = "" if counts else f", in {unit}"
    more = (
        f", {second} with {sizes[1]:,}{of}: noise ±{wide(noise)}{rows} whatever their number, and "
        f"at most{' of all rows' if counts else ''} {each}{_cut_off(whole)}{_SURE if near else ''}{last}"
    )
    return replace(found, line=line, more=more, value=first, near=near)


_SURE = (
    ". The first is sure, however roundings fall; the likely one holds where they are in no order, as "
    "they are unless values have few digits"
)
"""What the two errors of a line promise."""


def _likely(found: ErrorForecast, shown: Callable[[float], str]) -> str:
    """Return the words of the likely error, or an empty text."""
    near = found.likely(found.sizes[0])
    return "" if near is None else f", likely {shown(near)}"


def _worst(can_predict: bool) -> str:
    """Add that noise is stated at its largest."""
    return f"{_WORST}{f', and {_LIKE}' if can_predict else ''}"


def _percent(share: float) -> str:
    return f"{float(f'{100 * share:.2g}'):g}%"


def _of_means(
    whole: Whole,
    expected: Mapping[str, float],
    farthest: float,
    unit: str,
    sizes: tuple[int, int],
    *,
    can_predict: bool,
) -> ErrorForecast:
    """State the error of a mean distance at two sizes."""
    of = f", in {unit}, of at most {size(farthest)}"
    return _mean(whole, expected, farthest, unit, (of, f". {_worst(can_predict)}"), sizes)


def _mean(
    whole: Whole,
    expected: Mapping[str, float],
    largest: float,
    unit: str,
    around: tuple[str, str],
    sizes: tuple[int, int],
) -> ErrorForecast:
    """State a mean's error at two sizes, between two texts.

    The number that a sum is divided by is noisy too, and moves an answer by a share of itself. A mean
    of few rows is pulled to 0 by the least of its divisor, by more than noise moves it.
    """
    of, last = around
    least, divisor = expected["least records"], expected["noise of the number of records"]
    shares = unit == _SHARE
    shown, rows = (_percent, " of all rows") if shares else (few_digits, "")
    few = f"{math.ceil(least):,}"
    each = ", ".join(f"{shown(value)} by {word}" for word, value in whole.parts())
    most = f", and at most {each} whatever their number" if each else ""
    more = (
        f"{of}: noise ±{size(WIDE * whole.noise)} divided by the number of rows{most}"
        f"{_cut_off(whole)}. That number is noisy too, by ±{wide(divisor)}: the part of the answer. A "
        f"class of fewer than {few} rows is divided by that number: its answers are too near to 0"
    )
    found = ErrorForecast(
        "",
        f"{more}{last}",
        unit=unit,
        errors=whole,
        least=least,
        divisor=divisor,
        largest=largest,
        sizes=sizes,
    )
    if least > sizes[1]:
        return replace(found, line=f"under {few} rows only noise")
    first, second = (
        f"±{shown(found.at(n, 0.0) or 0.0)}{rows} plus {_percent(WIDE * divisor / n)}"
        for n in sizes
    )
    if least > sizes[0]:
        line = f"{WITHIN} within {second} of the answer, with {sizes[1]:,} rows; under {few} only noise"
        return replace(found, line=line, value=second)
    near = _likely(found, lambda value: f"±{shown(value)}")
    line = f"{WITHIN} within {first} of the answer{near} {_if_rows(sizes)}"
    more = f", {second} with {sizes[1]:,}{more}{_SURE if near else ''}{last}"
    return replace(found, line=line, more=more, value=first, near=near)


def safe_deviations(classes: int) -> float:
    """Return the safe lead among so many classes, in deviations."""
    rivals = max(classes - 1, 1)
    return 2.0 if rivals == 1 else -float(special.ndtri(special.ndtr(-2.0) / rivals))


def _lead(whole: Whole, own: str, classes: int) -> ErrorForecast:
    """State the safe lead among a release's classes (Lemma 3 of ``classify.md``).

    The difference of two sums has sqrt(2) times the noise of one, and beyond two of its deviations a
    normal variable goes in 2.3 of 100 cases, on one side: that chance is shared among all rivals.
    """
    rivals = max(classes - 1, 1)
    lead = safe_deviations(classes) * math.sqrt(2.0) * whole.noise
    value = f"{at_least(lead)} rows"
    own = f", in their own unit {own}" if own else ""
    more = (
        f"; below it noise may have decided, above it noise alone puts a wrong one of the "
        f"{rivals + 1:,} classes first in fewer than 3 of 100 questions, however near all of them are "
        f"({WITHIN} of counts are within ±{wide(whole.noise)} rows{own}). Column `margin` is the lead"
    )
    line = f"the chosen class is safe when it leads by {value} or more"
    return ErrorForecast(line, more, value, ROWS, whole, safe_from=lead)
