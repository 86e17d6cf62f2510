#!/usr/bin/env python3
"""Check a certificate without opendp_sim.

One file of Python's standard library, from 3.11 on. It imports nothing of the package that wrote the
certificate, and its formulas are written from the public page ``certificate.md`` alone. What it cannot
derive it names as a gap; what no arithmetic can show (who made the file, whether this is the program
that somebody reviewed) it names as taken on trust.

    python check_certificate.py NAME.certificate.json
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import itertools
import json
import math
import re
import sqlite3
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

Json = dict[str, Any]

DERIVED, REFUSED, USAGE, GAPS = 0, 1, 2, 3
"""Exit codes."""
FORMATS = ("opendp_sim/certificate/2", "opendp_sim/certificate/3")
FIELDS = {
    *("format", "output", "time", "names", "owner", "mechanisms", "program", "values", "plan"),
    *("derivation", "assumptions", "privacy", "evidence", "versions", "file", "ledger", "charge"),
    "signature",
}
PART_FIELDS = {
    "names": {"program", "dataset", "output"},
    "mechanisms": {"key", "what"},
    "evidence": {"tier", "record"},
    "plan": {
        *("name", "program", "privacy", "stages", "releases", "total", "conversion_delta", "claim"),
        *("gaussian", "attackers", "outputs", "memory_bytes"),
    },
    "plan.stages": {
        *("from", "source", "public", "own_steps", "steps", "type", "metric", "stability", "faces"),
        *("numerics", "evidence", "released"),
    },
    "plan.stages.steps": {"step", "type", "expected", "advice"},
    "plan.stages.faces": {"l1", "l2", "linf", "monotone"},
    "plan.releases": {
        *("mechanism", "norm", "maps", "spend", "own", "loss", "sampler", "deviation", "cells"),
        *("expected", "reason"),
    },
    "plan.releases.own": {"measure", "loss"},
    "plan.outputs": {"from", "stage", "expected", "save", "serve"},
    "plan.attackers": {"one", "unit"},
    "plan.attackers.each": {"exact", "advantage", "tpr_at_fpr"},
}
"""Fields of a certificate's parts; no other field may stand there."""
CLOSE = 1e-9
"""Relative room between a stated number and its formula here."""
SEARCH = 1e-6
"""The same where both sides search for the number, or sum a long table."""


class WrongError(Exception):
    """Refuse a certificate that breaks a rule of the page."""


class GapError(Exception):
    """Report a number that this file cannot derive."""


def must(holds: object, what: str) -> None:
    """Refuse the certificate unless ``holds``."""
    if not holds:
        raise WrongError(what)


def near(stated: float, derived: float, room: float = CLOSE) -> bool:
    """Return whether two numbers agree but for rounding."""
    largest = max(abs(stated), abs(derived))
    return stated == derived or (largest < math.inf and abs(stated - derived) <= room * largest)


def covers(stated: float, derived: float) -> bool:
    """Return whether a loss lies between its formula and what searches leave."""
    return near(stated, derived) or (stated > derived and near(stated, derived, SEARCH))


def printable(text: str) -> str:
    """Return a text in printable ASCII."""
    return "".join(c if " " <= c <= "~" else ascii(c)[1:-1] for c in text)


def read_fraction(text: Any) -> Fraction:
    """Return an exact number from its text."""
    spelt = r"-?\d{1,3000}(/\d{1,3000}|(\.\d{1,99})?(e[-+]?\d{1,3})?)"
    fits = isinstance(text, str) and re.fullmatch(spelt, text, re.ASCII)
    must(fits, f"{str(text)[:40]} is no fraction")
    return Fraction(text)


# --------------------------------------------------------------------------------------------------
# Reading: canonical JSON and digests.


def sha256(data: bytes | str) -> str:
    """Return a sha256 in hexadecimal."""
    return hashlib.sha256(data.encode("ascii") if isinstance(data, str) else data).hexdigest()


def canonical(value: Any) -> str:
    """Return canonical JSON, members sorted and no white space."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def parsed(data: bytes) -> Json:
    """Parse a certificate whose numbers and texts have the one spelling."""

    def members(pairs: list[tuple[str, Any]]) -> Json:
        must(len({name for name, _ in pairs}) == len(pairs), "a name stands twice in one object")
        return dict(pairs)

    def constant(text: str) -> float:
        raise WrongError(f"{text} is no JSON number")

    must(len(data) <= 2**26, "longer than any certificate")
    try:
        text = data.decode("ascii")
        found = json.loads(text, object_pairs_hook=members, parse_constant=constant)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise WrongError(f"no JSON in ASCII ({type(error).__name__})") from None
    tight = re.sub(r'("(?:[^"\\]|\\.)*")|\s+', lambda match: match[1] or "", text)
    spelt = json.dumps(found, separators=(",", ":"), ensure_ascii=True)
    must(tight == spelt, "a number or text is not spelt as the shortest that reads back")
    must(isinstance(found, dict), "no JSON object")
    return dict(found)


# --------------------------------------------------------------------------------------------------
# Conversions between measures.

PURE, ZCDP, RANGE = "max_divergence", "zero_concentrated_divergence", "approx_max_divergence"
APPROX_ZCDP, CURVE = "approx_zero_concentrated_divergence", "smoothed_max_divergence"
Loss = tuple[float, ...]
Curve = Callable[[float], float]


def normal_tail(x: float) -> float:
    """Return Q(x), the normal law's upper tail."""
    return 0.5 * math.erfc(x / math.sqrt(2))


def scaled_tail(log_factor: float, x: float) -> float:
    """Return ``exp(log_factor) Q(x)`` without overflow."""
    if x < 26:
        return math.exp(min(log_factor, 700.0)) * normal_tail(x)
    series = 1 - x**-2 + 3 * x**-4 - 15 * x**-6
    return math.exp(log_factor - x * x / 2) * series / (x * math.sqrt(2 * math.pi))


def curve_at(square: float, epsilon: float) -> float:
    """Return delta of mu-Gaussian DP at an epsilon, from ``mu**2``."""
    if square == 0:
        return 0.0
    mu = math.sqrt(square)
    return max(
        0.0, normal_tail(epsilon / mu - mu / 2) - scaled_tail(epsilon, epsilon / mu + mu / 2)
    )


def least_number(fits: Callable[[float], bool]) -> float:
    """Return the least number at which a condition holds."""
    low, high = 0.0, 1.0
    while not fits(high):
        low, high = high, 2 * high
        must(high < 1e9, "no finite epsilon fits")
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return the epsilon of rho at delta.

    Canonne, Kamath and Steinke, Proposition 12.
    """
    if rho == 0:
        return 0.0

    def at(more: float) -> float:  # more = order - 1
        return (
            (1 + more) * rho
            + math.log(more / (1 + more))
            - (math.log(delta) + math.log1p(more)) / more
        )

    low, high, part = -23.0, 46.0, (math.sqrt(5) - 1) / 2
    for _ in range(160):
        left, right = high - part * (high - low), low + part * (high - low)
        low, high = (low, right) if at(math.exp(left)) < at(math.exp(right)) else (left, high)
    return max(0.0, at(math.exp((low + high) / 2)))


def pure_as_gaussian(epsilon: float) -> float:
    """Return ``mu**2 / 2`` with ``Q(mu / 2) = 1 / (1 + e**epsilon)``."""
    if epsilon > 700:
        raise GapError("an epsilon above 700 has no Gaussian equal in doubles")
    chance = 1 / (1 + math.exp(epsilon))
    return (2 * least_number(lambda x: normal_tail(x) <= chance)) ** 2 / 2 if epsilon else 0.0


GAUSSIAN = {"rounded_gaussian", "ind_knn", "hybrid_knn", "linear_model", "linear_regression"}
"""Mechanisms whose lemma states Gaussian DP."""


def in_measure(key: str, have: str, own: Loss, want: str, loss: Loss) -> Loss:
    """Return a release's loss in the program's measure.

    Under ``approx`` the delta of a conversion is the one that ``loss`` pays for.
    """
    if want == "gdp" and have == ZCDP and key in GAUSSIAN:
        return own
    if want == "gdp" and have == PURE:
        return (pure_as_gaussian(own[0]),)
    if have == PURE and want in ("pure", "approx"):
        return own if want == "pure" else (own[0], 0.0)
    if have == PURE and want in ("zcdp", "approx_zcdp"):
        have, own = ZCDP, (own[0] ** 2 / 2,)
    if have == ZCDP and want in ("zcdp", "approx_zcdp"):
        return own if want == "zcdp" else (own[0], 0.0)
    if have == APPROX_ZCDP and want == "approx_zcdp":
        return own
    if have in (CURVE, RANGE) and want == "approx":
        return own
    if have in (ZCDP, APPROX_ZCDP) and want == "approx":
        delta = loss[1] - (own[1] if have == APPROX_ZCDP else 0.0)
        must(0 < delta < 1, "no delta is left for the conversion of rho")
        return zcdp_epsilon(own[0], delta), loss[1]
    raise WrongError(f"`{key}` has no loss under {want}")


# --------------------------------------------------------------------------------------------------
# Types between steps, and the row maps.


@dataclass(frozen=True)
class RowType:
    """Describe rows of numbers, in real units or in steps of ``unit``."""

    width: int
    lower: tuple[float, ...] | None = None
    upper: tuple[float, ...] | None = None
    norm: tuple[str, float] | None = None
    unit: float | None = None
    l2: int | None = None
    lattice: Fraction | None = None

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """Return each column's bounds in steps."""
        if self.lower is None or self.upper is None:
            raise GapError("bounds of rows that a seed's matrix projects are not derived here")
        return [(int(low), int(high)) for low, high in zip(self.lower, self.upper, strict=True)]


@dataclass(frozen=True)
class VoteType:
    """Describe counts of votes, and the items that a user touches."""

    candidates: int | None
    listed: bool
    touched: int | None


@dataclass(frozen=True)
class Block:
    """Bound one record's part of an array of a sketch."""

    l1: int
    l2_squared: int
    linf: int
    weight: int = 1


@dataclass(frozen=True)
class State:
    """Hold a chain's type, its stability and, after a sketch, its blocks."""

    data: Json
    by: str
    type: Any = None
    stability: int = 1
    blocks: tuple[Block, ...] = ()
    gap: str = ""

    def known(self) -> State:
        """Return it, or report a step before that has no formula."""
        if self.gap:
            raise GapError(self.gap)
        return self

    def norm(self, name: str) -> Fraction:
        """Return one record's bound in a norm, the square for ``l2_squared``."""
        if name == "l1":
            return sum((Fraction(b.l1, b.weight) for b in self.blocks), Fraction(0))
        if name == "linf":
            return max(Fraction(b.linf, b.weight) for b in self.blocks)
        return sum((Fraction(b.l2_squared, b.weight**2) for b in self.blocks), Fraction(0))


ARRAY = re.compile(r"array\[\s*(f32|f64|i32|i64|u8)\s*,\s*([1-9][0-9]{0,6})\s*\]")
"""How a column of vectors is spelt."""
_WIDEST = 2**20


def select(p: Json, state: State) -> Any:
    """Return the rows of the chosen columns."""
    names = [p["features"]] if isinstance(p["features"], str) else p["features"]
    lower: list[float] = []
    upper: list[float] = []
    whole = True
    for name in names:
        column = state.data["columns"][name]
        array = ARRAY.fullmatch(column["dtype"])
        kind, width = (array[1], int(array[2])) if array else (column["dtype"], 1)
        bounds = (0, 1) if kind == "bool" else column.get("bounds")
        if not bounds or not (array or kind in ("int64", "float64", "bool")):
            raise GapError(f"column {name}: no numeric bounds")
        must(len(bounds) == 2 and bounds[0] < bounds[1], f"column {name}: bounds that do not rise")
        if len(lower) + width > _WIDEST:
            raise GapError(f"select: rows of more than {_WIDEST} columns")
        lower += [float(bounds[0])] * width
        upper += [float(bounds[1])] * width
        whole = whole and re.fullmatch(r"u?int\d+|[iu]\d+", kind) is not None
    whole = whole and all(v.is_integer() for v in (*lower, *upper))
    return RowType(len(lower), tuple(lower), tuple(upper), lattice=Fraction(1) if whole else None)


def rescale(p: Json, state: State) -> Any:
    """Return rows less a centre, over a scale, column by column."""
    rows = state.type
    low, high = rows.lower, rows.upper

    def given(value: Any) -> list[float]:
        values = [float(v) for v in (value if isinstance(value, list) else [value])]
        return values * int(rows.width // len(values))

    centre, scale = p["centre"], p["scale"]
    if (low is None) and ("middle" in str(centre) or "range" in str(scale)):
        raise GapError("rescale: no bounds")
    middle = (
        [0.0] * rows.width
        if centre == "none"
        else [a / 2 + b / 2 for a, b in zip(low, high, strict=True)]
        if centre == "middle"
        else given(centre)
    )
    size = (
        [1.0] * rows.width
        if scale == "unit"
        else [b - a for a, b in zip(low, high, strict=True)]
        if scale == "range"
        else given(scale)
    )
    must(all(v > 0 for v in size), "rescale: a scale that is not above 0")
    moved = [
        tuple((v - c) / s + 0.0 for v, c, s in zip(end, middle, size, strict=True))
        for end in (low, high)
    ]
    norm = None
    if rows.norm is not None:
        order, bound = rows.norm
        size_of = [abs(c) for c in middle]
        away = max(size_of) if order == "linf" else math.fsum(size_of)
        away = math.hypot(*size_of) if order == "l2" else away
        norm = order, (bound + away) * (1 + 2.0**-40) / min(size) + 2.0**-900
    lattice = None
    if rows.lattice is not None and len(set(size)) == 1 and math.frexp(size[0])[0] == 0.5:
        step = rows.lattice
        while any((Fraction(c) / step).denominator != 1 for c in middle) and step > 2.0**-60:
            step /= 2
        lattice = step / Fraction(size[0])
    return RowType(rows.width, moved[0], moved[1], norm=norm, lattice=lattice)


def clip_rows(p: Json, state: State) -> Any:
    """Return rows of a bounded norm, whose bounds hold 0."""
    must(p["norm"] in ("l1", "l2", "linf"), "clip_rows: another norm")
    rows, bound = state.type, p["bound"]
    low = rows.lower or (-bound,) * rows.width
    high = rows.upper or (bound,) * rows.width
    return RowType(
        rows.width,
        tuple(max(min(v, 0.0), -bound) for v in low),
        tuple(min(max(v, 0.0), bound) for v in high),
        norm=(p["norm"], bound),
    )


def quantize(p: Json, state: State) -> Any:
    """Return rows on a grid, rounded to the nearest step."""
    rows = state.type
    given = p["bounds"] if p["bounds"] is not None else (rows.lower, rows.upper)
    ends = [list(v) if isinstance(v, list | tuple) else [v] for v in given]
    lower, upper = ([float(x) for x in v] * (rows.width // len(v)) for v in ends)
    rise = len(lower) == len(upper) == rows.width and all(map(float.__le__, lower, upper))
    must(rise and min(lower) < max(upper), "quantize: bounds that do not rise, or of other columns")
    unit = (max(upper) - min(lower)) / 2.0 ** p["bits"]
    if rows.lattice is not None and rows.lattice / 2**64 < unit < 2 * rows.lattice:
        own = float(rows.lattice)
        unit = own * 2.0 ** min(0, math.floor(math.log2(unit / own)))
    low = tuple(math.floor(v / unit + 0.5) for v in lower)
    high = tuple(math.floor(v / unit + 0.5) for v in upper)
    l2 = None
    if rows.norm is not None and rows.norm[0] != "linf" and max(low) <= 0 <= min(high):
        slack = 1 + max(1e-12, (rows.width + 8) * 2.0**-50)
        l2 = math.ceil(rows.norm[1] / unit * slack + math.sqrt(rows.width) / 2) + 1
    return RowType(rows.width, low, high, unit=unit, l2=l2)


def normal_length(d: int) -> float:
    """Return the mean length of a normal vector of d coordinates."""
    return math.sqrt(2) * math.exp(math.lgamma((d + 1) / 2) - math.lgamma(d / 2))


def jl_projection(p: Json, state: State) -> Any:
    """Return projected rows, whose bounds depend on the seed."""
    return RowType(p["dimension"], unit=state.type.unit / math.sqrt(p["dimension"]))


def l1_embedding(p: Json, state: State) -> Any:
    """Return one level a direction, within half the levels either way."""
    half, count, rows = 2 ** (p["bits"] - 1), p["directions"], state.type
    clip = p["clip"]
    if clip is None:
        clip = min(4.0, normal_length(rows.width)) * math.sqrt(centred(rows)[1]) * rows.unit
    unit = math.sqrt(math.pi / 2) * clip / half / count
    return RowType(count, (-half,) * count, (half,) * count, unit=unit)


def fourier_features(p: Json, state: State) -> Any:
    """Return pairs of a known length."""
    width, size = 2 * p["frequencies"], 1024
    return RowType(
        width,
        (-size,) * width,
        (size,) * width,
        unit=1 / (size * math.sqrt(width / 2)),
        l2=math.isqrt(width // 2 * size**2 - 1) + 1,
    )


def vote_counts(p: Json, state: State) -> Any:
    """Return counts, of listed candidates or of whatever occurs."""
    column = state.data["columns"][p["item"]]
    keys, by_row = column.get("keys"), state.by in ("row", "bounded")
    must(column["dtype"] in ("str", "int64", "category"), "vote_counts: a column of no items")
    items, universe = p["items"], p["universe"]
    known = keys if items is None and universe is None and keys else None
    known = items if items is not None and universe is None and not keys else known
    if known is None:
        return VoteType(universe, False, 1 if by_row else p["max_items"])
    bound = 1 if by_row else min(p["max_items"] or len(known), len(known))
    return VoteType(len(known), True, None), (Block(bound, bound, 1),)


# --------------------------------------------------------------------------------------------------
# The sketches: what one record adds, block by block.


def count_block(weight: int) -> Block:
    """Return the block of a count's own cell."""
    return Block(weight, weight**2, weight)


def race_sketch(p: Json, state: State) -> Any:
    """One bucket of each repetition, and the count."""
    R = p["repetitions"]
    w = p["count_weight"]
    w = max(1, round(math.sqrt(R / 50))) if w is None else w
    return None, (Block(R, R, 1), *([count_block(w)] if w else []))


def paired_projections(p: Json, state: State) -> Any:
    """One bucket of each repetition, no count."""
    return None, (Block(p["repetitions"], p["repetitions"], 1),)


def threshold_sketch(p: Json, state: State) -> Any:
    """One sign at each threshold of each column, and the count."""
    spans = [high - low for low, high in state.type.bounds]
    M = sum(-(-p["thresholds"] * span // max(spans)) for span in spans)
    return None, (Block(M, M, 1), count_block(p["count_weight"] or max(1, round(math.sqrt(M)))))


def distance_tree(p: Json, state: State) -> Any:
    """One node of each level of each column."""
    spans = [high - low + 1 for low, high in state.type.bounds]
    same = len(set(spans)) == 1
    u = [1 if same else round(16 * math.sqrt(span / min(spans))) for span in spans]
    depth = p["levels"] + 1
    return None, (Block(depth * sum(u), depth * sum(v * v for v in u), max(u)),)


def moment_tree(p: Json, state: State) -> Any:
    """Moments of one node of each level and column."""
    if state.type.width * p["levels"] * p["p"] > 2**20:
        raise GapError("moment_tree: more moments than this file enumerates")
    power = 2 / 3 if p["tuned_for"] == "laplace" else 1 / 2
    cells = []  # (largest moment, ideal share)
    for low, high in state.type.bounds:
        for level in range(1, p["levels"] + 1):
            width = -(-(high - low + 1) // 2**level)
            for k in range(p["p"] + 1):
                most = (width - 1) ** k
                steep = math.comb(p["p"], k) * (3 * width) ** (p["p"] - k) / 2 ** p["p"]
                cells.append((most, (steep * most) ** power / most if most else 0.0))
    smallest = min(share for most, share in cells if most)
    largest = max(share / smallest * most for most, share in cells)
    fine = min(64, 2 ** int(math.log2(2**32 / largest)))
    parts = [max(1, round(share / smallest * fine)) * most for most, share in cells]
    return None, (Block(sum(parts), sum(v * v for v in parts), max(parts)),)


def centred(rows: RowType) -> tuple[list[int], int]:
    """Return the columns' reach from the centre, and the squared norm."""
    bounds = rows.bounds

    def about(point: list[int]) -> tuple[list[int], int]:
        reach = [max(high - c, c - low) for (low, high), c in zip(bounds, point, strict=True)]
        longest = sum(v * v for v in reach)
        if rows.l2 is not None:
            square = sum(c * c for c in point)
            longest = min(longest, (rows.l2 + (math.isqrt(square - 1) + 1 if square else 0)) ** 2)
        return reach, longest

    zero, middle = about([0] * rows.width), about([(a + b) // 2 for a, b in bounds])
    return middle if middle[1] < zero[1] else zero


def moments_sketch(p: Json, state: State) -> Any:
    """The row, the count and the squared norm."""
    reach, square = centred(state.type)
    if p["radius"] is not None:
        square = min(square, int(min(p["radius"] / state.type.unit, 2.0**40)) ** 2)
    drop = max(0, (2 * square).bit_length() - 32)
    fine = max(1, min(64, 2**32 // (2 * max(square, 1))))
    if p["squares"]:
        u = (
            round(square * fine / 2**drop),
            round(math.sqrt(2) * math.sqrt(square) * fine / 2**drop),
            fine,
        )
    else:
        u = round(16 * math.sqrt(square) * math.sqrt(0.05 / 0.95)), 16, 0
    u0, u1, u2 = max(u[0], 1), max(u[1], 1), u[2]
    l1 = min(math.isqrt(state.type.width * square), sum(reach))
    blocks = [
        Block(u1 * l1, u1**2 * square, u1 * min(math.isqrt(square), max(reach))),
        count_block(u0),
    ]
    return None, (*blocks, *([count_block(u2 * (square >> drop))] if p["squares"] else []))


def second_moments(p: Json, state: State) -> Any:
    """The products of every pair of scaled columns, the constant among them."""
    return None, (products(state.type.width, p["radius"]),)


def products(width: int, radius: float | None) -> Block:
    """Return the block of the products of this many columns."""
    A2, wide = 1024**2, width + 1
    N = wide * A2
    N = N if radius is None else min(N, math.floor((radius * 1024) ** 2))
    V, m = math.isqrt(wide * N), min(A2, N)
    return Block((V**2 + N) // 2, (N**2 + m * N) // 2, m)


def moments_beside(width: int, l2_squared: int) -> Block:
    """Return the block of products beside features of this norm."""
    one, share = products(width, math.sqrt(1 + width / 3)), max(1, l2_squared // 20)
    t = min(math.isqrt(share // one.l2_squared), 2**32 // one.linf)
    c = 1 if t else math.isqrt((one.l2_squared - 1) // share) + 1
    t = max(t, 1)
    return Block(one.l1 * t, one.l2_squared * t**2, one.linf * t, c)


def gauss_transform_sketch(p: Json, state: State) -> Any:
    """The moments of a residual in its cell."""
    if state.type.width * math.log(p["order"]) > math.log(2**22):
        raise GapError("gauss_transform_sketch: more moments than this file enumerates")
    exponents = itertools.product(range(p["order"]), repeat=state.type.width)
    most = [2**16 >> sum(each) for each in exponents]
    l2 = sum(m * m for m in most)
    w = p.get("count_weight") or max(1, round(math.sqrt(l2 / 20)))
    return None, (Block(sum(most), l2, 2**16), count_block(w))


def random_waves(D: int, phases: int, w: int | None) -> tuple[Block, Block]:
    """Return the blocks of D drawn frequencies, from the table of pairs."""
    S, angles = 4096, [(j + 0.5) * 2 * math.pi / phases for j in range((phases // 4 + 1) // 2)]
    pairs = [(math.floor(S * math.cos(a)), math.floor(S * math.sin(a))) for a in angles]
    a, m = max(c + s for c, s in pairs), max(itertools.chain(*pairs))
    w = max(1, round(S * math.sqrt(D / 20))) if w is None else w
    return Block(D * a, D * S**2, m), count_block(w)


def fourier_sketch(p: Json, state: State) -> Any:
    """Pairs of drawn frequencies, or of a lattice's."""
    ((kernel, about),) = p["kernel"].items()
    few = state.type.width <= 16 and kernel == "gaussian"
    D, w = p["frequencies"], p["count_weight"]
    if p["features"] in ("random", "orthogonal") or (p["features"] == "auto" and not few):
        waves, halves = random_waves(D, p["phases"], w), D >= 200 and p["features"] != "orthogonal"
        if not (p.get("moments") and halves):
            return None, waves
        if kernel == "weighted":
            raise GapError("fourier_sketch: moments beside a weighted kernel are not derived")
        return None, (*waves, moments_beside(state.type.width, waves[0].l2_squared))
    must(few, "a lattice needs a gaussian kernel in at most 16 columns")
    spans = [high - low for low, high in state.type.bounds]
    for accuracy in (1e-6, 1e-5, 1e-4, 1e-3):
        found = lattice(spans, about["bandwidth"] / state.type.unit, D, accuracy)
        if found is not None:
            return None, lattice_blocks(*found, w)
    raise GapError(
        "fourier_sketch: a head with a drawn tail, or random frequencies, is not derived"
    )


def lattice(
    spans: list[int], sigma: float, D: int, accuracy: float
) -> tuple[int, float, list[float]] | None:
    """Return a lattice's turn and weights, or None."""
    reach = math.sqrt(math.log(4.4 * len(spans) / accuracy)) * sigma
    needs = [math.ceil(span + reach) for span in spans]
    turn = max(2**12, 4 * 2 ** math.ceil(math.log2(max(needs))))
    if turn > 2**26 or sigma < 0.5:
        return None
    steps = [turn // need for need in needs]
    decay = (math.pi * sigma / turn) ** 2
    zero = math.prod(sigma * math.sqrt(math.pi) * j / turn for j in steps)
    whole = math.prod(
        1 + 2 * math.fsum(math.exp(-((turn / j * z / sigma) ** 2)) for z in range(1, 40))
        for j in steps
    )
    limit = max(steps) ** 2
    while True:
        squares = sorted(shells(steps, limit, 2 * D + 2))
        left, most = whole - zero, 0
        while most < len(squares) and left > accuracy / 2:
            shell = squares[most]
            while most < len(squares) and squares[most] == shell:
                left -= 2 * zero * math.exp(-decay * shell)
                most += 1
        if left <= accuracy / 2 and most <= D:
            return turn, zero, [2 * zero * math.exp(-decay * q) for q in squares[:most]]
        if most > D or limit > 45 / decay:
            return None
        limit *= 2


def shells(steps: list[int], limit: int, most: int) -> Iterable[int]:
    """Return ``sum (m_i j_i)**2`` up to a limit, one of each pair m, -m."""
    sums = [0]
    for j in steps:
        reach = math.isqrt(limit) // j
        if reach * len(sums) > 2**24:
            raise GapError("fourier_sketch: a lattice of many vectors is not enumerated here")
        squares = [(m * j) ** 2 for m in range(-reach, reach + 1)]
        sums = [a + b for a in sums for b in squares if a + b <= limit]
        if len(sums) > 64 * most:
            raise GapError("fourier_sketch: a lattice of many columns is not enumerated here")
    sums.sort()
    return sums[1::2]  # after 0 they come in equal pairs


def lattice_blocks(turn: int, zero: float, shares: list[float], w: int | None) -> Any:
    """Return the blocks of a lattice's frequencies and its count."""
    S, size = 2**18, min(turn, 2**16)
    start = 0.5 if turn > size else 0.0
    angles = [(j + start) * 2 * math.pi / size for j in range(size)]
    pairs = [(abs(round(S * math.cos(a))), abs(round(S * math.sin(a)))) for a in angles]
    top = max(zero, *shares)
    v = [max(1, round(1024 * math.sqrt(share / top))) for share in shares]
    block = Block(
        sum(v) * max(a + b for a, b in pairs),
        sum(m * m for m in v) * max(a * a + b * b for a, b in pairs),
        max(v) * max(itertools.chain(*pairs)),
    )
    own = S * max(1, round(1024 * math.sqrt(zero / top)))
    count = math.isqrt(block.l2_squared // 20) + 1 if w is None else w
    return block, count_block(max(own, min(count, 2**32 - 1)))


def exponential_sum(p: Json, state: State) -> Any:
    """One structure a term, each with its noise weight."""

    def aliasing(h: float) -> float:
        q = [2 * math.pi**2 * j / h for j in range(1, 60)]
        return 2 * sum(math.sqrt(2 * x / -math.expm1(-2 * x)) * math.exp(-x / 2) for x in q)

    low, high, alpha = 0.05, 10.0, p["accuracy"]
    for _ in range(100):
        h = (low + high) / 2
        low, high = (h, high) if aliasing(h) <= alpha / 2 else (low, h)
    h, A = low, math.log(4 / alpha)
    terms = range(-math.ceil(A / h), math.ceil(math.log(A) / h) + 1)
    weights = [h * math.exp(j * h - math.exp(j * h)) for j in terms]
    ((kind, about),) = p["structure"].items()
    blocks: list[Block] = []
    for weight in weights:
        m = 1
        if p["split"] != "equal":
            m = round(1000 * min(math.sqrt(max(weights) / weight), 1e6))
        one = (
            random_waves(about["frequencies"], 64, None)
            if kind == "fourier"
            else gauss_transform_sketch({"order": about["order"]}, state)[1]
        )
        blocks += [replace(block, weight=m) for block in one]
    return None, tuple(blocks)


def public_words(seed: int, *purpose: str) -> Iterator[int]:
    """Yield the 32-bit words of a public Philox stream."""
    text = "\x1f".join(("opendp_sim/1", str(seed), *purpose))
    start = struct.unpack("<2Q", hashlib.sha256(text.encode()).digest()[:16])
    for place in itertools.count(1):
        (k0, k1), (c0, c1, c2, c3) = start, (place, 0, 0, 0)
        for _ in range(10):
            first, second = 0xD2E7470EE14C6C93 * c0, 0xCA5A826395121157 * c2
            c0, c1 = (second >> 64) ^ c1 ^ k0, second % 2**64
            c2, c3 = (first >> 64) ^ c3 ^ k1, first % 2**64
            k0, k1 = (k0 + 0x9E3779B97F4A7C15) % 2**64, (k1 + 0xBB67AE8584CAA73B) % 2**64
        for word in (c0, c1, c2, c3):
            yield from (word % 2**32, word >> 32)


def slice_sketch(p: Json, state: State) -> Any:
    """Features of public directions, the count and the squared length."""
    d, T = state.type.width, p["thresholds"]
    if T > 2**12:
        raise GapError("slice_sketch: more thresholds than this file enumerates")
    k = p["directions"] // d * d or p["directions"]
    m = normal_length(d)
    e = min(4.0, m)
    f = 2 ** min(6, (33 - (k * T).bit_length()) // 2)
    shares = [round(f * normal_tail(((t + 0.5) / T * 2 - 1) * e)) for t in range(T)]
    features = [[f * (s > t) - share for t, share in enumerate(shares)] for s in range(T + 1)]
    words = itertools.islice(public_words(p["seed"], "slice_sketch", "dithers"), k)
    dithers = [word >> 28 for word in words]  # the sixteenth of [0, 1) that a dither is in
    n = [dithers.count(i) for i in range(16)]
    limit = math.ceil(-(-k // d) * (16 * m * T / (2 * e)) ** 2 * (1 + 2.0**-13))

    def longest(values: list[int]) -> int:
        far: list[list[int]] = [
            [
                max(16 * (s - T // 2) - i - 1, i - 16 * (s - T // 2 + 1), 0) ** 2
                for s in range(T + 1)
            ]
            for i in range(16)
        ]
        fine = [value << 16 for value in values]

        def bound(C: int) -> int:
            tops = (max(v - C * q for v, q in zip(fine, row, strict=True)) for row in far)
            return int(sum(a * b for a, b in zip(n, tops, strict=True)) + C * limit)

        low, high = 0, max(fine) * 64 // (16 * T) ** 2 + 1
        while high - low > 2:
            third = (high - low) // 3
            left = bound(low + third) <= bound(high - third)
            low, high = (low, high - third) if left else (low + third, high)
        return min(map(bound, range(low, high + 1))) >> 16

    squares = [sum(v * v for v in row) for row in features]
    S, least_ = longest(squares), k * min(squares)
    middle = (S + least_) // 2
    half = max(S - middle, middle - least_, 1)
    u0 = max(1, round(math.sqrt(middle + S) * math.sqrt(half)))
    u1 = max(1, round(math.sqrt(2 * half)))
    l1 = longest([sum(map(abs, row)) for row in features])
    largest = max(abs(v) for row in features for v in row)
    return None, (Block(u1 * l1, u1**2 * S, u1 * largest), count_block(u0), count_block(half))


def unchanged(p: Json, state: State) -> Any:
    """Return the type as it was."""
    return state.type


WHOLE = {
    *("max_rows", "repetitions", "count_weight", "buckets", "thresholds", "levels", "bits"),
    *("dimension", "directions", "frequencies", "phases", "k", "k_max", "labels", "queries"),
    *("max_items", "steps", "tau", "p", "order"),
}
"""Parameters that are whole numbers above 0."""
REAL = {
    *("scale", "bandwidth", "bound", "rho", "epsilon", "delta", "share", "accuracy", "radius"),
    "side",
}
"""Parameters that are numbers above 0."""
MOST = {
    **dict.fromkeys(("bits", "levels", "p", "order"), 64),
    **dict.fromkeys(("phases", "directions", "frequencies"), 2**17),
}
"""The most of a step that this file enumerates; beyond it names a gap."""


def in_range(key: str, p: Json) -> None:
    """Refuse parameters of another kind than the page states."""
    for word, value in p.items():
        if isinstance(value, dict):
            in_range(key, value)
        elif word in WHOLE and value is not None:
            least_ = 0 if (key, word) == ("race_sketch", "count_weight") else 1
            must(type(value) is int and least_ <= value <= 2**62, f"{key}: {word} is {value}")
            if key in STEPS and value > MOST.get(word, value):
                raise GapError(f"{key}: {word} of more than {MOST[word]} takes this file too long")
        elif word == "distance" and not isinstance(value, str):
            must(type(value) is int and value >= 1, f"{key}: distance is {value}")
        elif word in REAL and isinstance(value, int | float):
            must(type(value) is not bool and 0 < value < math.inf, f"{key}: {word} is {value}")
            must(word not in ("delta", "share") or value < 1, f"{key}: {word} is {value}")


def step_after(key: str, p: Json, state: State) -> Any:
    """Return the type, or the type and blocks, after a step."""
    if key not in STEPS:
        raise GapError(f"{key}: no formula on the page")
    in_range(key, p)
    raw = key in ("select", "vote_counts")
    anywhere = key == "bound_contributions"
    must(anywhere or raw == (state.type is None), f"{key}: it stands in another place than it may")
    if isinstance(state.type, RowType) and not anywhere:
        grid = key not in ("rescale", "clip_rows", "quantize")
        must(grid == (state.type.unit is not None), f"{key}: rows of another kind")
    made = STEPS[key](p, state)
    if isinstance(made, RowType) and made.width > _WIDEST:
        raise GapError(f"{key}: rows of {made.width} columns")
    return made


def by_name(*functions: Any) -> dict[str, Any]:
    """Return functions by their names."""
    return {function.__name__: function for function in functions}


STEPS: dict[str, Callable[[Json, State], Any]] = {
    "bound_contributions": unchanged,
    **by_name(select, rescale, clip_rows, quantize, jl_projection, l1_embedding, fourier_features),
    **by_name(vote_counts, race_sketch, paired_projections, threshold_sketch, distance_tree),
    **by_name(moment_tree, moments_sketch, slice_sketch, second_moments, fourier_sketch),
    **by_name(gauss_transform_sketch, exponential_sum),
}
"""By key: the type after a row map, or (type, blocks) of a sketch."""


# --------------------------------------------------------------------------------------------------
# Laws of integer noise, and profiles: sup P(E) - e**x Q(E).


@cache
def gaussian_tail(s: float) -> Callable[[int], float]:
    """Return ``Pr[N >= j]`` of the discrete Gaussian of parameter s."""
    if s > 2**14:
        return lambda j: normal_tail((j - 0.5) / s)
    masses = [math.exp(-((n / s) ** 2) / 2) for n in range(math.ceil(38 * s) + 2)]
    above = list(itertools.accumulate(reversed(masses)))[::-1]
    whole = 2 * above[0] - 1

    def tail(j: int) -> float:
        if j < 1:
            return 1 - tail(1 - j)
        return above[j] / whole if j < len(above) else 0.0

    return tail


def least_level(tail: Callable[[int], float], delta: float, room: float = 1e-9) -> int:
    """Return the least integer j >= 1 with ``tail(j) (1 + room) <= delta``."""
    low, high, delta = 0, 1, delta / (1 + room)
    while tail(high) > delta:
        low, high = high, 2 * high
        must(high < 2**62, "no threshold is rare enough")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if tail(middle) <= delta else (middle, high)
    return high


def stable(s: float, T: int, d: int) -> Curve:
    """Return one stability test's profile at x >= 0."""
    tail = gaussian_tail(s)

    def at(x: float) -> float:
        j = math.ceil(min(x * s * s / d - d / 2, 2.0**60))
        stick = max(
            tail(i) - (math.exp(min(x, 700.0)) * tail(i + d) if tail(i + d) else 0.0)
            for i in (j - 1, j, j + 1)
        )
        return min(1.0, max(stick, tail(T - d)))

    return at


@dataclass(frozen=True)
class DrawProfile:
    """Hold a profile on the grid ``0, step, 2 step, ...``, flat beyond."""

    step: float
    values: list[float]

    def at_grid(self, i: int) -> float:
        """Return the value at grid point i, mirrored below 0."""
        value = self.values[min(abs(i), len(self.values) - 1)]
        if i >= 0:
            return value
        x = -i * self.step
        return min(1.0, -math.expm1(-x) + math.exp(-x) * value)

    def __call__(self, x: float) -> float:
        """Return the chord in ``e**x`` between grid points."""
        size = abs(x)
        place = min(size / self.step, len(self.values) - 1.0)
        left = min(int(place), max(len(self.values) - 2, 0))
        u = min(place - left, 1.0) * self.step
        part = math.exp(u - self.step) * math.expm1(-u) / math.expm1(-self.step)
        value = self.values[left] * (1 - part) + self.at_grid(left + 1) * part
        return value if x >= 0 else min(1.0, -math.expm1(-size) + math.exp(-size) * value)

    def after_draw(self, cells: int) -> DrawProfile:
        """Return the profile with one draw of bounded range before it."""
        h, e = self.step, cells * self.step
        alpha, chord = -1 / math.expm1(-e), -math.expm1(-h)
        size = len(self.values)
        wide = [self.at_grid(i) for i in range(-cells, size + cells)]  # wide[cells + i] is at i h
        chance = [min(1.0, max(0.0, -math.expm1(a * h - e) * alpha)) for a in range(cells + 1)]
        beta = [alpha * math.exp(a * h - e) for a in range(cells)]
        found = []
        for i in range(size):
            best = 0.0
            for a in range(cells + 1):
                near_, far = wide[cells + i - a], wide[2 * cells + i - a]
                best = max(best, chance[a] * near_ + (1 - chance[a]) * far)
                if a == cells:
                    continue
                # Inside the cell: D(x - t) = near_ + b (v - 1), D(x - t + e) likewise, v = e**(a h - t).
                b = (near_ - wide[cells + i - a - 1]) / chord
                b2 = (far - wide[2 * cells + i - a - 1]) / chord
                c1 = alpha * b + (1 - alpha) * b2
                c2 = beta[a] * ((far - b2) - (near_ - b))
                if c1 < 0 and c2 < 0 and math.exp(-h) < (v := math.sqrt(c2 / c1)) < 1:
                    p = alpha - beta[a] / v
                    best = max(best, p * (near_ + b * (v - 1)) + (1 - p) * (far + b2 * (v - 1)))
            found.append(min(best, 1.0))
        return DrawProfile(h, found)


@cache
def peeling(r: int, e: float) -> DrawProfile:
    """Return the profile of r adaptive draws of bounded range e."""
    if r > 256:
        raise GapError("peeling of more than 256 rounds takes this file too long")
    cells = 32 if r <= 16 else 16 if r <= 128 else 8
    top = min(r * e, r * e * e / 8 + 6 * math.sqrt(r) * e)
    found = DrawProfile(e / cells, [0.0] * min(math.ceil(top / e * cells) + 2, 2**15))
    for _ in range(r):
        found = found.after_draw(cells)
    return found


# --------------------------------------------------------------------------------------------------
# The losses of mechanisms at a distance: (measure, loss), or (CURVE, delta of epsilon).


def noise(p: Json, state: State, d: float) -> Any:
    """Return (distance / scale)**2 / 2."""
    square = (d / p["scale"]) ** 2
    if p.get("accounting") == "curve":
        return CURVE, lambda epsilon: curve_at(square, epsilon)
    return ZCDP, (square / 2,)


def laplace(p: Json, state: State, d: float) -> Any:
    """Return distance / scale."""
    return PURE, (d / p["scale"],)


def purse(p: Json, state: State, d: float) -> Any:
    """Return rho d**2, which the mechanism was given."""
    return ZCDP, (p["rho"] * d * d,)


def linear_model(p: Json, state: State, d: float) -> Any:
    """Return rho d**2 less a part in 2**40."""
    return ZCDP, (p["rho"] * d * d * (1 - 2.0**-40),)


def choose_k(p: Json, state: State, d: int) -> Any:
    """Return d**2 / (2 s**2)."""
    return ZCDP, (d * d / (2 * p["scale"] ** 2),)


def rounds(p: Json, votes: VoteType) -> int:
    """Return the draws that choose k candidates."""
    must(votes.candidates, "peeling needs a public catalogue")
    fewer = not p.get("ranked") and votes.listed
    return min(p["k"], int(votes.candidates or 0) - p["k"]) if fewer else int(p["k"])


def peel(p: Json, state: State, d: int) -> Any:
    """Return r d**2 / (8 s**2), or the profile of r draws."""
    r, s = rounds(p, state.type), p["scale"]
    if p["accounting"] == "curve":
        return CURVE, peeling(r, d / s)
    return ZCDP, (r * d * d / (8 * s * s),)


def gaussian_top_k(p: Json, state: State, d: float) -> Any:
    """Return (distance / scale)**2 / 2 at an L2 distance."""
    return ZCDP, ((d / p["scale"]) ** 2 / 2,)


def stable_set(p: Json, state: State, d: int) -> Any:
    """Return a test's loss, and its tail beyond the threshold."""
    s, tail = p["scale"], gaussian_tail(p["scale"])
    T = least_level(tail, p["delta"]) + p["distance"]
    must(d < T, "the threshold does not cover the distance")
    if p["accounting"] == "curve":
        return CURVE, stable(s, T, d)
    return APPROX_ZCDP, (d * d / (2 * s * s), tail(T - d))


def stable_top_k(p: Json, state: State, d: int) -> Any:
    """Return a drawn rank's and a test's loss, and a filling's."""
    s, tail, single = p["scale"], gaussian_tail(p["scale"]), p["accounting"] == "curve"
    T = least_level(tail, p["delta"] / (2 if single else 1)) + p["distance"]
    must(d < T, "the threshold does not cover the distance")
    if not single:
        return APPROX_ZCDP, ((1 + (p["fill"] == "peel")) * d * d / (s * s), tail(T - d))
    mu, e = d / s, 2 * d / s
    top, test = mu * mu / 2 + 12 * mu + e * e / 8 + 6 * e, stable(s, T, d)
    size = min(math.ceil(top / (e / 64)) + 2, 2**16)
    return CURVE, DrawProfile(e / 64, [test(i * e / 64) for i in range(size)]).after_draw(64)


def gated_peel(p: Json, state: State, d: int) -> Any:
    """Return a test's loss and that of the draws after a failure."""
    r, s, w, c = rounds(p, state.type), p["scale"], p["share"], p["distance"]
    must(r, "gated_peel: nothing to choose")
    t = 2 * s * math.sqrt((1 - w) / (w * r))
    if p["accounting"] == "curve" and t > 2**13:
        raise GapError("gated_peel: noise of so many votes takes this file too long")
    if p["accounting"] != "curve":
        tail = gaussian_tail(t)
        T = least_level(tail, p["delta"]) + c
        must(d < T, "the threshold does not cover the distance")
        return APPROX_ZCDP, (d * d / (2 * t * t) + r * d * d / (8 * s * s), tail(T - d))
    alone, e = peeling(r, c / s), c / s
    low, high = e * math.sqrt(r) / 8, e * r
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if alone(middle) <= p["delta"] else (middle, high)
    passes, fails = gate(c / high, t)
    T = least_level(passes, p["delta"] / 10, 3e-9) + c
    must(d < T, "the threshold does not cover the distance")
    rest, far = peeling(r, d / s), math.floor(1.5 * t) + math.ceil(12 * t) + d

    def delta(x: float) -> float:
        z = passes(T - d)
        worst = max(z + (1 - z) * rest(x), 2 * fails(d - far))
        for j in range(-far, T + 1):
            for other in (j - d, j + d):
                lost, kept = fails(j), fails(other)
                first = max(0.0, passes(j) - math.exp(x) * passes(other))
                after = rest(x - math.log(lost / kept)) if kept > 1e-300 and lost else 1.0
                worst = max(worst, first + lost * after)
        return min(1.0, worst)

    return CURVE, delta


@cache
def gate(b: float, t: float) -> tuple[Callable[[int], float], Callable[[int], float]]:
    """Return ``Pr[N >= j]`` and ``Pr[N < j]`` of N = G - H."""
    m, q = math.floor(1.5 * t), math.exp(-1 / b)
    h = [math.exp(-(((z - m) / t) ** 2) / 2) for z in range(m + math.ceil(38 * t) + 2)]
    whole = math.fsum(h)
    A = list(itertools.accumulate(reversed([v / whole for v in h]), lambda a, v: v + q * a))[::-1]
    mass = [(1 - q) * a for a in A]  # of N = -n
    below = [*list(itertools.accumulate(reversed(mass)))[::-1][1:], 0.0, 0.0]  # Pr[N < -n]
    above = list(itertools.accumulate([A[0], *mass[1:]]))  # Pr[N >= -n]

    def passes(j: int) -> float:
        return A[0] * q**j if j >= 0 else above[min(-j, len(above) - 1)]

    def fails(j: int) -> float:
        down = min(max(-j, 0), len(below) - 1)
        return below[down] + (A[0] * -math.expm1(-j / b) if j > 0 else 0.0)

    return passes, fails


def limited_domain(p: Json, state: State, d: int) -> Any:
    """Return k draws' loss and what one side's items add."""
    s, k, K, c = p["scale"], p["k"], p["k_max"], p["distance"]

    def swaps(users: int) -> int:
        return int(min(K, users * (state.type.touched or K)))

    def escape(users: int, height: int) -> float:
        return -math.expm1(-k * math.log1p(swaps(users) * math.exp((users - height) / s)))

    def appear(users: int, height: int) -> float:
        odds = sum(1 / (1 + math.exp(min((height - v) / s, 700))) for v in (users, 0))
        return swaps(users) * odds

    if p["accounting"] != "curve":
        height = c + least_level(lambda j: escape(c, c + j), p["delta"])
        must(d < height, "the threshold does not cover the distance")
        return APPROX_ZCDP, (k * d * d / (8 * s * s), escape(d, height))
    height = c + least_level(lambda j: appear(c, c + j), p["delta"] / 2)
    must(d < height, "the threshold does not cover the distance")
    draws = peeling(k, d / s)
    return CURVE, lambda x: min(1.0, draws(x) + appear(d, height))


def noise_threshold(p: Json, state: State, d: int) -> Any:
    """Return the loss of noisy counts, and of items of one side."""
    s, votes, plain = p["scale"], state.type, p["noise"] == "laplace"
    known = [v for v in (votes.touched, votes.candidates if votes.listed else None) if v]
    must(known, "noise_threshold needs a bound on a user's items")
    L = min(known)

    def tail(j: int) -> float:
        if plain:
            return math.exp(-j / s) / (1 + math.exp(-1 / s))
        return normal_tail((j - 0.5) / s)

    def one_side(users: int, T: int, u: int) -> float:
        rate = max(-math.log1p(-tail(T - 1)), -math.log1p(-tail(T - users)) / users)
        return -math.expm1(-u * rate) if u else 0.0

    c = p["distance"]
    T = c + least_level(lambda j: one_side(c, c + j, c * L), p["delta"], 2e-12)
    must(d < T, "the threshold does not cover the distance")
    if p["accounting"] != "curve":
        rho = (L * d / s) ** 2 / 2 if plain else L * d * d / (2 * s * s)
        return APPROX_ZCDP, (rho, one_side(d, T, L * d))

    def both(w: int, x: float) -> float:
        if not plain:
            return curve_at(d * w / (s * s), x)
        return max(0.0, -math.expm1(x - w / s)) / (1 + math.exp(-w / s))

    def delta(x: float) -> float:
        worst, first = both(L * d, x), 1
        while first <= L * d:
            last = min(2 * first - 1, L * d if first == L * d else L * d - 1)
            z = one_side(d, T, last)
            worst, first = max(worst, z + (1 - z) * both(L * d - first, x)), last + 1
        return min(1.0, worst)

    return CURVE, delta


def noisy_max_gaussian(p: Json, state: State, d: int) -> Any:
    """Return K d**2 / (2 s**2), or a Renyi bound's curve."""
    K, square = p["k_max"], (d / p["scale"]) ** 2
    if p["accounting"] == "zcdp":
        return ZCDP, (K * square / 2,)
    must(p["accounting"] == "curve", "no budget is a Renyi curve")
    orders = [1 + 1e-3 * 1e9 ** (i / 1499) for i in range(1500)]

    def delta(x: float) -> float:
        best = 0.0
        for a in orders:
            loss = min(K * a * square / 2, 2 * a * square + math.log(K) / (a - 1))
            best = min(best, (a - 1) * (loss - x) + (a - 1) * math.log1p(-1 / a) - math.log(a))
        return math.exp(best)

    return CURVE, delta


def top_stable(p: Json, state: State, d: int) -> Any:
    """Return epsilon d, and K times the tail of two noises' difference."""
    if min(p["share"], 1 - p["share"]) * p["epsilon"] < 1e-3:
        raise GapError("top_stable: noise of more than a thousand votes takes this file too long")
    gap, bar = 2 / ((1 - p["share"]) * p["epsilon"]), 1 / (p["share"] * p["epsilon"])

    def above(j: int, scale: float) -> float:
        q = math.exp(-1 / scale)
        return math.exp(-j / scale) / (1 + q) if j >= 1 else 1 - above(1 - j, scale)

    @cache
    def difference(j: int) -> float:
        reach, part = math.ceil(45 * bar), math.tanh(1 / (2 * bar))
        weights = (math.exp(-abs(y) / bar) * above(j + y, gap) for y in range(-reach, reach + 1))
        return math.fsum(weights) * part + 2 * math.exp(-45)

    C = p["distance"] + least_level(lambda j: p["k_max"] * difference(j), p["delta"])
    must(d < C, "the threshold does not cover the distance")
    return RANGE, (p["epsilon"] * d, p["k_max"] * difference(C - d))


def pate_labels(p: Json, state: State, d: int) -> Any:
    """Return the loss of stable sets, or of noisy counts."""
    must(state.type.width % p["labels"] == 0, "pate_labels: a width that is no multiple of labels")
    s, T = p["scale"], state.type.width // p["labels"]
    ((rule, about),) = p["rule"].items()
    if rule == "gaussian":
        n = min(about["tau"] or p["labels"], p["labels"])
        return ZCDP, (T * n * d * d / (2 * s * s),)
    tail = gaussian_tail(s)
    C = p["distance"] + least_level(tail, p["delta"] / T)
    must(d < C, "the threshold does not cover the distance")
    return APPROX_ZCDP, (T * d * d / (s * s), T * tail(C - d))


def top_k(p: Json, state: State, d: int) -> Any:
    """Return the loss of the mechanism that the public rule chooses."""
    votes, k = state.type, p["k"]
    own = {**p, "fill": "none", "share": 0.1, "noise": "gaussian"}
    if k is None:
        return stable_top_k(own, state, d)
    if votes.candidates is None:
        items = votes.touched
        if items is not None and p["k_max"] is None:
            if p["accounting"] == "curve" and items <= min(2, k):
                return noise_threshold({**own, "noise": "laplace"}, state, d)
            if items <= 1.5 * k:
                return noise_threshold(own, state, d)
        return limited_domain({**own, "k_max": p["k_max"] or min(20 * k, 10**6)}, state, d)
    r = rounds(p, votes)
    if votes.listed and votes.touched and votes.touched < 0.41 * r:
        return gaussian_top_k(p, state, d * math.sqrt(votes.touched))
    if not p["ranked"] and r >= 50:
        return gated_peel(own, state, d)
    return peel(own, state, d)


LOSSES: dict[str, Callable[[Json, State, Any], Any]] = {
    "gaussian": noise,
    "rounded_gaussian": noise,
    "ind_knn": purse,
    "hybrid_knn": purse,
    "linear_regression": linear_model,
    **by_name(laplace, linear_model, choose_k, peel, gaussian_top_k, stable_set, stable_top_k),
    **by_name(gated_peel, limited_domain, noise_threshold, noisy_max_gaussian, top_stable),
    **by_name(pate_labels, top_k),
}
NORMS = {
    **dict.fromkeys(("laplace",), ("l1",)),
    **dict.fromkeys(("gaussian", "rounded_gaussian", "gaussian_top_k"), ("l2",)),
}
"""The norm that a mechanism's distance is in; others take records, or users."""
ON_GRID = {"ind_knn", "hybrid_knn", "linear_model", "linear_regression"}
"""Mechanisms on rows on a grid."""
BY_PERSON = {"ind_knn"}
"""Mechanisms on rows that take a person with all of their records."""


# --------------------------------------------------------------------------------------------------
# What has to hold.

PERSON_COLUMN = "The column that names the person names the same person every time."
ALWAYS = (
    "The privacy unit is the one that the program states: rows, or all rows of one name.",
    "The columns' declarations (widths, bounds, keys) come from public knowledge, not from the data.",
    "The queries are public: they are not made from the private data.",
    "The seeds of public matrices are not chosen after a look at the data.",
    "OpenDP's samplers and this package's bulk samplers draw from the operating system's entropy.",
    "There are fewer than 2**31 records: they are counted while they are read, and more are refused.",
    "The lemmas beside each mechanism hold, and the code does what they say.",
)
INGEST = {
    "refuse": "Data that breaks its declaration is refused before the charge; that there is no refusal "
    "is not protected.",
    "enforce": "Records are clamped or dropped by the declared rule, record by record.",
    "assume": "Nobody checks that the data keeps its declared bounds and keys; the claim is void if it "
    "does not.",
}
HANDED = (
    "The table is taken as it is handed over: its preparation, copies of its records and weights are not "
    "covered."
)
TIERS = {"proved and audited", "proved", "asserted", "post-processing"}
PARTS = {"pure": 1, "zcdp": 1, "gdp": 1, "approx": 2, "approx_zcdp": 2}


@dataclass
class Checked:
    """Hold a certificate and what was found about it."""

    whole: Json
    gaps: list[str] = field(default_factory=list)
    trust: list[str] = field(default_factory=list)
    states: dict[str, list[tuple[str, Json, State]]] = field(default_factory=dict)
    columns: int = 0
    """Columns of rows so far, over all steps."""

    @property
    def plan(self) -> Json:
        """Return the plan."""
        return dict(self.whole["plan"])

    @property
    def program(self) -> Json:
        """Return the program."""
        return dict(self.whole["program"])

    def steps(self, stage: str) -> list[tuple[str, Json, State]]:
        """Return each step of a stage's chain with the state after it."""
        if stage not in self.states:
            node = self.program["flow"][stage]
            source = node["from"]
            before = self.steps(source) if source in self.program["flow"] else []
            self.states[stage] = self._further(before, node, self.source(stage))
        return self.states[stage]

    def source(self, stage: str) -> Json:
        """Return the data entry that a stage reads."""
        flow, at = self.program["flow"], stage
        for _ in flow:
            if at in flow:
                at = flow[at]["from"]
        must(at in self.program["data"], f"{stage}: it comes from no data entry")
        return dict(self.program["data"][at])

    def start(self, entry: Json) -> State:
        """Return the state before any step."""
        by = self.program["privacy"]["unit"]["of"] if "privacy" in self.program else "row"
        if entry.get("public"):
            return State(entry, "row")
        role = entry["columns"].get(by, {}).get("role")
        must(
            by == "row" or role == "privacy_id", f"the unit `{by}` is no column that names persons"
        )
        return State(entry, by)

    def _further(
        self, before: list[tuple[str, Json, State]], node: Json, entry: Json
    ) -> list[tuple[str, Json, State]]:
        found = list(before)
        for step in node.get("steps", []):
            ((key, p),) = step.items()
            state = found[-1][2] if found else self.start(entry)
            must(not state.blocks, f"{key}: a step after a sketch")
            try:
                if self.columns > 4 * _WIDEST:
                    raise GapError("more columns over all steps than this file reads")
                made = step_after(key, p, state.known())
                self.columns += made.width if isinstance(made, RowType) else 0
            except GapError as gap:
                made, state = None, replace(state, gap=str(gap))
            kind, blocks = made if isinstance(made, tuple) else (made, ())
            by, stability = state.by, state.stability
            if key == "bound_contributions":
                must(by != "row" and p["by"] in (None, by), "bound_contributions by another column")
                by, stability = "bounded", stability * p["max_rows"]
            if key == "vote_counts":
                by = "users"
            must(
                not blocks or by in ("row", "bounded", "users"),
                f"{key}: a person's rows have no bound",
            )
            after = replace(state, type=kind, blocks=tuple(blocks), by=by, stability=stability)
            found.append((key, p, after))
        return found


def check_words(found: Checked) -> None:
    """Compare names, fields and repeated numbers."""
    c, plan, program = found.whole, found.plan, found.program
    fields = FIELDS - ({"derivation"} if c["format"] == FORMATS[0] else set())
    must(c["format"] in FORMATS, f"another format than {' and '.join(FORMATS)}")
    must(set(c) == fields, f"fields: {', '.join(sorted(set(c) ^ fields))}")
    must(program["spec"] == "opendp_sim/1", "a program in another language")
    digest = sha256(canonical(program))
    must(digest == plan["program"], "plan.program is not the sha256 of the program")
    output = c["output"]
    must(
        output in program["outputs"] and set(plan["outputs"]) == set(program["outputs"]), "outputs"
    )
    must(plan["name"] == program["name"] == c["names"]["program"], "the program's name")
    must(c["names"]["output"] == output, "names.output")
    about = program.get("about") or {}
    must(c["owner"] == about.get("owner"), "owner is not the program's")
    for name, told in plan["outputs"].items():
        mine = program["outputs"][name]
        for word in ("from", "save", "serve"):
            must(told[word] == mine.get(word), f"plan.outputs.{name}.{word}")
        at = mine["from"]
        for _ in program["outputs"]:
            at = program["outputs"][at]["from"] if at in program["outputs"] else at
        must(at not in program["outputs"], f"{name}: outputs that come from each other")
        must(told["stage"] == at, f"plan.outputs.{name}.stage")
        must(at in plan["releases"], f"output {name} is of a stage that is not released")
    saved = program["outputs"][output].get("save")
    must(saved and Path(saved).name == c["file"]["name"], "file.name is not the output's")
    stage = plan["outputs"][output]["stage"]
    dataset = next(n for n, e in program["data"].items() if e == found.source(stage))
    must(c["names"]["dataset"] == dataset, "names.dataset")
    keys = [*(key for key, _, _ in found.steps(stage))]
    release = plan["releases"][stage]["mechanism"]
    keys += [] if release == "none" else list(release)
    keys += queries(program, output)
    must([m["key"] for m in c["mechanisms"]] == keys, "mechanisms are not the steps of the output")
    must(set(c["evidence"]) == set(keys), "evidence is not about the mechanisms")
    must(all(e["tier"] in TIERS for e in c["evidence"].values()), "a tier of evidence that is none")
    asked = sorted({key for name in program["outputs"] for key in queries(program, name)})
    must(not {*STEPS, *LOSSES} & {*asked}, "a mechanism among the queries of an output")
    if asked:
        found.trust.append(f"that queries read releases and public data alone: {', '.join(asked)}")
    found.trust.append(
        "the evidence, the sentences about mechanisms, `values`, `versions` and `time`"
    )
    found.trust.append(
        "expected errors, samplers, sizes and types in words, which are no privacy claim"
    )


def check_fields(found: Checked) -> None:
    """Refuse fields that the format does not have."""
    c, plan = found.whole, found.plan
    stages, releases = [*plan["stages"].values()], [*plan["releases"].values()]
    attackers = plan["attackers"] or {}
    parts: dict[str, list[Any]] = {
        "names": [c["names"]],
        "mechanisms": c["mechanisms"],
        "evidence": [*c["evidence"].values()],
        "plan": [plan],
        "plan.stages": stages,
        "plan.stages.steps": [step for stage in stages for step in stage["steps"]],
        "plan.stages.faces": [stage["faces"] for stage in stages],
        "plan.releases": releases,
        "plan.releases.own": [release.get("own") for release in releases],
        "plan.outputs": [*plan["outputs"].values()],
        "plan.attackers": [attackers],
        "plan.attackers.each": [*attackers.values()],
    }
    for name, those in parts.items():
        for part in those:
            other = set(part or {}) - PART_FIELDS[name]
            must(not other, f"{name}: fields that are none: {', '.join(sorted(map(str, other)))}")
    lemmas = [line["lemma"] for lines in c.get("derivation", {}).values() for line in lines]
    must(
        all(lemma is None or isinstance(lemma, str) for lemma in lemmas), "a lemma that is no text"
    )


def queries(program: Json, output: str) -> list[str]:
    """Return the queries behind an output."""
    mine = program["outputs"][output]
    before = queries(program, mine["from"]) if mine["from"] in program["outputs"] else []
    return [*before, *(key for step in mine.get("post", []) for key in step)]


def check_assumptions(found: Checked) -> None:
    """Compare the assumptions with those of the program."""
    c, entry = found.whole, found.source(found.plan["outputs"][found.whole["output"]]["stage"])
    public, memory = bool(entry.get("public")), "memory" in entry["source"]
    wanted = [*ALWAYS, INGEST[entry["ingest"]]]
    wanted += [HANDED] if memory and not public else []
    if public:
        name = c["names"]["dataset"]
        wanted.append(f"Dataset `{name}` is declared public: nothing is claimed about its records.")
    privacy = found.program.get("privacy")
    by = privacy and found.plan["privacy"] is not None and privacy["unit"]["of"] != "row"
    wanted += [PERSON_COLUMN] if by else []
    if c["format"] == FORMATS[0] and len(c["assumptions"]) >= len(wanted) - memory:
        known = set(c["assumptions"]) == set(wanted)
        found.gaps += [] if known else ["assumptions in the words of an earlier version"]
        return
    must(c["assumptions"] == wanted, "assumptions are not those of the program")


def check_privacy(found: Checked) -> None:
    """Derive every release, the total, the claim and the attackers."""
    c, plan, program = found.whole, found.plan, found.program
    check_sources(found)
    for name, node in program["flow"].items():
        must(
            ("release" in node) == (name in plan["releases"]),
            f"{name} is released in one place alone",
        )
    if plan["privacy"] is None:
        used = [found.source(name) for name in plan["releases"]]
        must(all(entry.get("public") for entry in used), "private data without a privacy claim")
        must(c["privacy"] == {"public": True} and not plan["total"], "a claim about public data")
        return
    own = program["privacy"]
    unit = own["unit"]
    d_in = 2 * unit["replace"] if "replace" in unit else unit["add_remove"]
    must(type(d_in) is int and d_in >= 1 and len(unit) == 2 and "of" in unit, "the unit")
    must(plan["privacy"] == {**own, "d_in": d_in}, "plan.privacy is not the program's")
    must(set(plan["stages"]) == set(program["flow"]), "plan.stages are not the program's")
    private = {name for name, r in plan["releases"].items() if r["mechanism"] != "none"}
    must(set(c.get("derivation", private)) == private, "a derivation of what is no private release")
    for name in plan["stages"]:
        or_gap(found, check_stage, name)
    ones = [or_gap(found, check_release, name, d_in) for name in plan["releases"]]
    measure, total_ = own["measure"], plan["total"]
    losses = [r["loss"] for r in plan["releases"].values() if r["mechanism"] != "none"]
    must(len(total_) == PARTS[measure], "plan.total has the wrong parts")
    must(all(len(loss) == PARTS[measure] for loss in losses), "a loss has the wrong parts")
    for place, part in enumerate(total_):
        must(
            near(part, math.fsum(loss[place] for loss in losses), 1e-11),
            "plan.total is no sum of losses",
        )
    check_claim(plan, own["budget"], measure)
    check_solved(found, own["budget"], measure)
    repeated = {name: plan[name] for name in ("total", "claim", "program")}
    whole = {**repeated, "unit": unit, "d_in": d_in, "measure": measure}
    stage = plan["outputs"][c["output"]]["stage"]
    public = plan["releases"][stage]["mechanism"] == "none"
    must(c["privacy"] == ({"public": True} if public else whole), "privacy")
    exact = measure == "gdp" and all(
        r["mechanism"] == "none" or next(iter(r["mechanism"])) in GAUSSIAN
        for r in plan["releases"].values()
    )
    check_attacker(plan["attackers"]["unit"], measure, total_, exact, "unit")
    if any(one is None for one in ones):
        found.gaps.append("attackers.one: of a release that is not derived")
    else:
        one = [math.fsum(parts) for parts in zip(*(o for o in ones if o), strict=True)]
        check_attacker(plan["attackers"]["one"], measure, one, exact, "one")


def check_sources(found: Checked) -> None:
    """Refuse public data and queries of a private source."""
    data, outputs = found.program["data"], found.program["outputs"]
    for entry in data.values():
        must(type(entry.get("public", False)) is bool, "a dataset is public, or it is not")
    private = [entry["source"] for entry in data.values() if not entry.get("public")]
    shared = [entry["source"] for entry in data.values() if entry.get("public")]
    words = ("query", "queries", "public_queries", "public")
    shared += [o[word] for o in outputs.values() for word in words if o.get(word) is not None]
    must(not any(source in private for source in shared), "private data is read as public")
    public = sorted(name for name, entry in data.items() if entry.get("public"))
    found.trust += [f"that these datasets are public: {', '.join(public)}"] if public else []
    mine = found.source(found.plan["outputs"][found.whole["output"]]["stage"])
    others = {entry["ingest"] for entry in data.values()} - {mine["ingest"], "refuse"}
    found.trust += [INGEST[ingest] for ingest in sorted(others)]
    privacy = found.program.get("privacy") or {}
    if privacy.get("numerics", "exact") != "exact":
        found.trust.append("that doubles do what real numbers would: the program's numerics")


def or_gap(found: Checked, test: Callable[..., Any], *what: Any) -> Any:
    """Run a check, and keep what it cannot derive as a gap."""
    try:
        return test(found, *what)
    except GapError as gap:
        text = f"{what[0]}: {gap}"
        found.gaps += [text] if text not in found.gaps else []
        return None


def check_stage(found: Checked, name: str) -> None:
    """Compare a stage's stability and sensitivities."""
    told, steps = found.plan["stages"][name], found.steps(name)
    node, entry = found.program["flow"][name], found.source(name)
    must(told["from"] == node["from"], f"{name}: it comes from elsewhere")
    must(found.program["data"].get(told["source"]) == entry, f"{name}: another source")
    must(told["public"] is bool(entry.get("public")), f"{name}: public")
    must(told["released"] is ("release" in node), f"{name}: released")
    must([step["step"] for step in told["steps"]] == [key for key, _, _ in steps], f"{name}: steps")
    state = (steps[-1][2] if steps else found.start(found.source(name))).known()
    must(told["stability"] == state.stability, f"{name}: stability {told['stability']}")
    must((told["faces"] is not None) == bool(state.blocks), f"{name}: faces")
    if state.blocks:
        k = state.stability
        must(
            near(told["faces"]["l1"], float(k * state.norm("l1")), 1e-12), f"{name}: L1 sensitivity"
        )
        must(near(told["faces"]["linf"], float(k * state.norm("linf")), 1e-12), f"{name}: Linf")
        l2 = math.sqrt(k * k * state.norm("l2_squared"))
        must(near(told["faces"]["l2"], l2, 1e-12), f"{name}: L2 sensitivity is not {l2!r}")


def check_release(found: Checked, name: str, d_in: int) -> Any:
    """Derive one release, and return its loss at distance 1."""
    r, node, steps = found.plan["releases"][name], found.program["flow"][name], found.steps(name)
    if r["mechanism"] == "none":
        must(found.source(name).get("public") and not r["loss"], f"{name}: released without noise")
        return ()
    must(not found.source(name).get("public"), f"{name}: noise on public data")
    ((key, p),) = r["mechanism"].items()
    in_range(key, p)
    state = (steps[-1][2] if steps else found.start(found.source(name))).known()
    check_parameters(name, key, p, node["release"], found.plan["privacy"], state)
    check_maps(name, r, steps, d_in)
    if found.whole["format"] != FORMATS[0]:
        check_derivation(found.whole["derivation"][name], name, key, steps, r, d_in)
    if key not in LOSSES:
        raise GapError(f"{key}: no formula on the page")
    if key == "top_k" and r["norm"] == "l2":  # the rule's choice where a user has few items
        must(state.blocks[0].l1 < 0.41 * rounds(p, state.type), f"{name}: top_k at an L2 distance")
        key = "gaussian_top_k"
    kind = state.type
    fits = (
        bool(state.blocks)
        if key in NORMS
        else isinstance(kind, RowType) and (key not in ON_GRID or kind.unit is not None)
        if key in ON_GRID or key == "pate_labels"
        else isinstance(kind, VoteType)
    )
    must(fits, f"{name}: `{key}` on what it does not take")
    want = NORMS.get(key, ("linf", None))
    must(r["norm"] in want, f"{name}: `{key}` at a distance in {r['norm']}")
    whole = isinstance(state.type, VoteType) or r["norm"] is None
    must(whole or r["norm"] != "linf", f"{name}: a selection of what is no count")
    bounded = state.by in ("row", "bounded", "users") or key in BY_PERSON
    must(bounded, f"{name}: a person's rows have no bound")
    measure = found.plan["privacy"]["measure"]

    def at(d: int) -> Any:
        return LOSSES[key](p, state, distance_after(state, r["norm"], d * state.stability))

    have, derived = at(d_in)
    own = tuple(r["own"]["loss"])
    check_own_loss(name, key, r["own"]["measure"], own, have, derived)
    must(all(math.isfinite(v) and v >= 0 for v in r["loss"]), f"{name}: a loss below 0")
    loss = in_measure(key, have, own, measure, tuple(r["loss"]))
    must(len(loss) == len(r["loss"]), f"{name}: loss has the wrong parts")
    for stated, value in zip(r["loss"], loss, strict=True):
        must(covers(stated, value), f"{name}: loss {stated!r} is not {value!r}")
    if d_in == 1:
        return loss
    have, one = at(1)
    return in_measure(key, *at_delta(have, one, own), measure, tuple(r["loss"]))


def at_delta(have: str, one: Any, own: Loss) -> tuple[str, Loss]:
    """Return a loss, a curve's at the delta of ``own``."""
    if have != CURVE:
        return have, tuple(one)
    return have, (0.0 if one(0.0) <= own[1] else least_number(lambda x: one(x) <= own[1]), own[1])


def check_own_loss(name: str, key: str, told: str, own: Loss, have: str, derived: Any) -> None:
    """Compare a release's own loss with its formula."""
    must(told == have, f"{name}: own.measure is not {have}")
    must(all(math.isfinite(v) and v >= 0 for v in own), f"{name}: a loss below 0")
    if have == CURVE:
        check_curve(name, derived, own)
        return
    must(len(own) == len(derived), f"{name}: own.loss has the wrong parts")
    for room, stated, value in zip((CLOSE, SEARCH), own, derived, strict=False):
        must(near(stated, value, room), f"{name}: own.loss {stated!r} is not {value!r} ({key})")


def distance_after(state: State, norm: str | None, d: int) -> Any:
    """Return the distance after a chain, at d records or users."""
    if norm == "l1":
        return float(state.norm("l1") * d)
    return math.sqrt(state.norm("l2_squared") * d * d) if norm == "l2" else d


def check_curve(name: str, curve: Curve, own: Loss) -> None:
    """Require the least epsilon at which a curve is at most delta."""
    epsilon, delta = own
    must(
        curve(epsilon) <= delta * (1 + SEARCH), f"{name}: own.loss epsilon {epsilon!r} is too small"
    )
    looser = epsilon * (1 - 1e-5)
    must(
        epsilon < 1e-9 or curve(looser) > delta * (1 - 1e-3),
        f"{name}: own.loss epsilon {epsilon!r} is not the least",
    )


DEFAULTS: Json = {"ranked": False, "fill": "none", "noise": "gaussian", "k": None, "k_max": None}
SHARES = {"gated_peel": 0.1, "top_stable": 0.37}
SOLVED = {
    **dict.fromkeys(("ind_knn", "hybrid_knn", "linear_model", "linear_regression"), "rho"),
    **dict.fromkeys(("top_stable", "private_knn"), "epsilon"),
}
"""The parameter that is solved, where it is not `scale`."""


def check_parameters(name: str, key: str, p: Json, node: Json, privacy: Json, state: State) -> None:
    """Compare a mechanism's parameters with the program's and with defaults."""
    if "mechanism" in node:
        ((wanted, given),) = node["mechanism"].items()
    else:
        wanted = node["noise"]
        given = {k: v for k, v in node.items() if k not in ("noise", "spend") and v != "solve"}
    must(wanted == key, f"{name}: the program releases it by {wanted}")
    for word, value in given.items():
        told = p.get(word)
        real = isinstance(value, int | float) and isinstance(told, int | float)
        same_ = told == value or (real and near(float(told or 0), value))
        must(same_, f"{name}: {word} is not the program's")
    if key not in LOSSES:
        return
    step = state.norm("linf") if state.blocks else 1
    users = math.ceil(step * privacy["d_in"] * state.stability)
    fixed: Json = DEFAULTS | {"distance": users if users <= 1000 else 1}
    fixed |= {"share": SHARES[key]} if key in SHARES else {}
    delta = delta_of(key, p, node, privacy)
    fixed |= {} if delta is None else {"delta": delta}
    for word in p.keys() & fixed.keys() - given.keys():
        told, value = p[word], fixed[word]
        same_ = near(told, value) if word == "delta" else told == value
        must(same_, f"{name}: {word} is {told}, and the program's default is {value}")
    solved = {SOLVED.get(key, "scale")} if node.get("spend") else set()
    unsaid = {"scale", "epsilon", "rho", "labels", "rule"} & (p.keys() - given.keys() - solved)
    must(not unsaid, f"{name}: the program does not state {', '.join(sorted(unsaid))}")
    by = p.get("accounting", "zcdp")
    must(
        by == "zcdp" or "accounting" in given or privacy["measure"] == "approx",
        f"{name}: accounting",
    )


def delta_of(key: str, p: Json, node: Json, privacy: Json) -> float | None:
    """Return a threshold's share of the budget's delta."""
    budget, measure = privacy["budget"], privacy["measure"]
    if measure not in ("approx", "approx_zcdp") or "delta" not in budget:
        return None
    delta, spend = amount(budget["delta"]), read_fraction(node.get("spend", "1"))
    if measure == "approx":
        whole = key == "top_stable" or p.get("accounting") == "curve"
        return delta * float(spend) / (1 if whole else 2)
    reserve = budget.get("reserve")
    own = delta / 2 if "epsilon" in budget else delta
    return float(spend) * (amount(reserve["mechanisms"]) if reserve else own)


def amount(value: Any) -> float:
    """Return a part of a budget."""
    return float(read_fraction(value) if isinstance(value, str) else value)


def check_maps(name: str, r: Json, steps: list[tuple[str, Json, State]], d_in: int) -> None:
    """Follow the distance through the chain, each factor once."""
    must([step for step, _ in r["maps"]] == [key for key, _, _ in steps], f"{name}: maps")
    for (key, after), (_, _, state) in zip(r["maps"], steps, strict=True):
        norm = r["norm"] if state.blocks else None
        d = distance_after(state, norm, d_in * state.stability)
        if norm == "linf" and not isinstance(state.type, VoteType):
            d = float(state.norm("linf") * d_in * state.stability)
        must(near(after, d, 1e-12), f"{name}: {after} after {key} is not {d}")


def check_derivation(
    told: list[Json], name: str, key: str, steps: list[tuple[str, Json, State]], r: Json, d_in: int
) -> None:
    """Compare the stated lemmas' formulas, inputs and factors."""
    must(
        [t["step"] for t in told] == [*(k for k, _, _ in steps), key], f"{name}: derivation's steps"
    )
    before = 1
    for line, (step, _, state) in zip(told[:-1], steps, strict=True):
        where = f"{name}: derivation of {step}"
        if state.blocks:
            must(line["inputs"].keys() == {"blocks"}, f"{where}: a fact that is none")
            blocks = [[int(v) for v in b[2:5]] + [b[5]] for b in line["inputs"]["blocks"]]
            mine = [[b.l1, b.l2_squared, b.linf, b.weight] for b in state.blocks]
            same_ = len(blocks) == len(mine) and all(map(all_near, blocks, mine))
            must(same_, f"{where}: blocks are not {mine}")
            factor = {n: state.norm(n) for n in ("l1", "l2_squared", "linf")}
            told_ = {n: read_fraction(v) for n, v in line["factor"].items()}
            must(told_.keys() == factor.keys(), f"{where}: norms")
            must(all_near(told_.values(), factor.values()), f"{where}: factor")
        else:
            once = str(state.stability // before)
            facts(where, line["inputs"], state.type)
            must(line["factor"] == once, f"{where}: factor is not {once}")
        before = state.stability
    last = r["maps"][-1][1] if r["maps"] else d_in
    must(told[-1]["inputs"] == {"distance": last}, f"{name}: derivation's distance")
    for line in told:
        must(line.keys() <= LINE, f"{name}: a field of the derivation that is none")
        key, page = line["step"], line["page"]
        known = key in STEPS or key in LOSSES
        must(
            line["formula"] == (f"{key}/1" if known else None), f"{name}: another formula of {key}"
        )
        a_page = page is None and not known
        must(a_page or re.fullmatch(r"[0-9a-f]{64}", page or ""), f"{name}: no page of {key}")


LINE = {"step", "lemma", "page", "formula", "inputs", "factor"}


FACTS = {"width", "lower", "upper", "norm", "unit", "l2"}


def all_near(stated: Iterable[Any], derived: Iterable[Any]) -> bool:
    """Return whether exact numbers agree but for a table's last digits."""
    return all(near(float(a), float(b), 1e-12) for a, b in zip(stated, derived, strict=True))


def facts(where: str, told: Json, rows: Any) -> None:
    """Compare the stated facts about rows."""
    if not isinstance(rows, RowType):
        touched = rows.touched if isinstance(rows, VoteType) else None
        must(told.get("touched") == touched, f"{where}: touched")
        must(told.keys() <= {"touched"}, f"{where}: a fact that is none")
        return
    must(told["width"] == rows.width, f"{where}: width is not {rows.width}")
    norm, stated = rows.norm, told.get("norm")
    must((stated is None) == (norm is None), f"{where}: norm is not {norm}")
    if norm is not None and stated is not None:
        must(stated[0] == norm[0] and near(stated[1], norm[1]), f"{where}: norm is not {norm}")
    must(told.keys() <= FACTS, f"{where}: a fact that is none")
    for word in ("lower", "upper", "unit", "l2"):
        mine, stated = getattr(rows, word), told.get(word)
        if mine is None and rows.lower is not None:
            must(stated is None, f"{where}: {word} is not derived")
        if mine is None or word not in told:
            continue
        if isinstance(stated, list):
            stated = stated * (rows.width // max(len(stated), 1))
            must(len(stated) == rows.width and all(map(near, stated, mine)), f"{where}: {word}")
        else:
            must(stated is not None and near(stated, mine), f"{where}: {word} is not {mine}")


def check_claim(plan: Json, budget: Json, measure: str) -> None:
    """Derive the claim from the total, and compare both with the budget."""
    total_, claim, delta = plan["total"], plan["claim"], plan["conversion_delta"]
    g = plan["gaussian"]
    must((g is not None) == (measure == "gdp"), "plan.gaussian")
    if g is not None:
        square = read_fraction(g["mu_squared"])
        must(square == 2 * Fraction(total_[0]), "mu_squared is not twice the total")
        must(near(float(read_fraction(g["by_types"])), float(square)), "gaussian.by_types")
    must((claim is None) == (delta is None), "a claim and a conversion_delta come together")
    states = {"epsilon", "delta"} <= budget.keys() and measure not in ("pure", "approx")
    must(claim is not None or not states, "no claim, and the budget is an epsilon")
    stated = total_ if measure in ("pure", "approx") else claim
    must(measure not in ("pure", "approx") or claim is None, "a claim beside an epsilon")
    if claim is not None:
        must(0 < delta < 1, "conversion_delta")
        extra = total_[1] if len(total_) > 1 else 0.0
        must(near(claim[1], delta + extra, 1e-12), "the claimed delta")
        if g is not None:
            square = 2 * total_[0]
            fits = curve_at(square, claim[0]) <= delta * (1 + CLOSE)
            must(fits, f"the curve is above {delta} at epsilon {claim[0]}")
            loose = claim[0] * (1 - SEARCH)
            must(curve_at(square, loose) > delta * (1 - CLOSE), "epsilon is not the least")
            must(
                near(g["epsilon_by_zcdp"], zcdp_epsilon(total_[0], delta), SEARCH),
                "epsilon_by_zcdp",
            )
        else:
            epsilon = zcdp_epsilon(total_[0], delta)
            must(covers(claim[0], epsilon), f"claimed epsilon {claim[0]} is not {epsilon}")
    room = 1 + 2.0**-40
    for word, part in (("epsilon", 0), ("delta", 1)):
        if word in budget and stated is not None and part < len(stated):
            most_ = amount(budget[word]) * room
            must(stated[part] <= most_, f"{word} {stated[part]} is above the budget")
    if "rho" in budget:
        must(total_[0] <= amount(budget["rho"]) * room, "rho is above the budget")
    if "mu" in budget:
        must(2 * total_[0] <= amount(budget["mu"]) ** 2 * room, "mu is above the budget")


def check_solved(found: Checked, budget: Json, measure: str) -> None:
    """Require that a solved release uses its share of the budget."""
    plan, limits = found.plan, []
    budget = {word: amount(budget[word]) for word in ("epsilon", "rho", "mu") if word in budget}
    delta, epsilon = plan["conversion_delta"], budget.get("epsilon")
    if measure in ("pure", "approx"):
        limits = [epsilon] if epsilon is not None else []
    else:
        limits += [budget["rho"]] if "rho" in budget else []
        limits += [budget["mu"] ** 2 / 2] if "mu" in budget else []
        if epsilon is not None and delta is not None:

            def fits(rho: float) -> bool:
                if measure == "gdp":
                    return bool(curve_at(2 * rho, epsilon) > delta)
                return bool(zcdp_epsilon(rho, delta) > epsilon)

            limits.append(least_number(fits))
    for name, r in plan["releases"].items():
        node = found.program["flow"][name].get("release")
        if r["mechanism"] == "none":
            continue
        given = node["mechanism"] if "mechanism" in node else {node["noise"]: node}
        ((key, p),) = given.items()
        solved = SOLVED.get(key, "scale")
        is_solved = p.get(solved, "solve") == "solve"
        must(
            is_solved == (r["spend"] is not None),
            f"{name}: a share of the budget for what is given",
        )
        if not is_solved or not limits:
            continue
        must(
            read_fraction(r["spend"]) == read_fraction(node["spend"]),
            f"{name}: spend is not the program's",
        )
        share = min(limits) * float(read_fraction(r["spend"]))
        room = 1e-5 if PARTS[measure] == 1 else 0.02
        used = r["loss"][0] >= share * (1 - room)
        must(used, f"{name}: its loss {r['loss'][0]} is not its share {share} of the budget")


def check_attacker(told: Json, measure: str, loss: list[float], exact: bool, who: str) -> None:
    """Derive the greatest advantage and power that a loss allows."""
    must(told["exact"] is exact, f"attackers.{who}.exact")
    first, delta = loss[0], loss[1] if len(loss) > 1 else 0.0

    def box(rate: float) -> float:
        slope = math.exp(min(first, 700.0))
        return min(1.0, slope * rate + delta, 1 - (1 - delta - rate) / slope)

    if measure == "gdp":
        mu = math.sqrt(2 * first)
        advantage = 1 - 2 * normal_tail(mu / 2)

        def power(rate: float) -> float:
            return normal_tail(normal_quantile(rate) - mu)

    elif measure in ("pure", "approx"):
        advantage = math.tanh(first / 2) + 2 * delta / (math.exp(min(first, 700.0)) + 1)
        power = box
    else:
        advantage = (1 - delta) * most(
            lambda v: coins_keep((1 + v) / 2, (1 - v) / 2, first), 0.0
        ) + delta

        def power(rate: float) -> float:
            inner = min(1.0, rate / (1 - delta))
            both = most(
                lambda t: coins_keep(t, inner, first) and coins_keep(inner, t, first), inner
            )
            return (1 - delta) * both + delta

    must(near(told["advantage"], min(1.0, advantage), 1e-7), f"attackers.{who}.advantage")
    rates = {"0.0001", "0.001", "0.01", "0.05", "0.1", "0.25", "0.5"}
    must(set(told["tpr_at_fpr"]) == rates, f"attackers.{who}.tpr_at_fpr: other rates")
    for rate, value in told["tpr_at_fpr"].items():
        must(near(value, min(1.0, power(float(rate))), 1e-7), f"attackers.{who}: power at {rate}")


def normal_quantile(rate: float) -> float:
    """Return z with ``Q(z) = rate``."""
    low, high = -40.0, 40.0
    for _ in range(100):
        z = (low + high) / 2
        low, high = (z, high) if normal_tail(z) >= rate else (low, z)
    return low


def most(fits: Callable[[float], bool], low: float) -> float:
    """Return the largest number up to 1 until which a condition holds."""
    high = 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return high


def coins_keep(p: float, q: float, rho: float) -> bool:
    """Return whether two coins keep rho at all listed orders."""
    if not (0 < p < 1 and 0 < q < 1):
        return False
    for i in range(160):
        more = 1e-3 * 1e7 ** (i / 159)
        order = 1 + more
        heads = order * math.log(p) - more * math.log(q)
        tails = order * math.log1p(-p) - more * math.log1p(-q)
        top = max(heads, tails)
        both = top + math.log1p(math.exp(min(heads, tails) - top))
        if both > more * order * rho + 1e-13:
            return False
    return True


# --------------------------------------------------------------------------------------------------
# The charge, the ledger, the file and the signature.


def charged_part(text: str) -> Fraction:
    """Return a part of a charge, a hexadecimal float or a fraction."""
    return read_fraction(text) if "/" in text else Fraction(float.fromhex(text))


def statement_of(c: Json) -> str:
    """Return the sha256 of all but the charge and the signature."""
    return sha256(canonical({k: v for k, v in c.items() if k not in ("charge", "signature")}))


def check_entry(found: Checked) -> None:
    """Compare the quoted entry with program, file, statement and total."""
    c, plan, program = found.whole, found.plan, found.program
    named = [n for n, entry in program["data"].items() if entry.get("ledger")]
    paid = bool(named) and plan["privacy"] is not None
    must((c["charge"] is not None) == paid == (c["ledger"] is not None), "a ledger and no charge")
    if not paid:
        if plan["privacy"] is not None:
            found.trust.append("what else was spent on this data: the program names no ledger")
        return
    charge, ledger = c["charge"], c["ledger"]
    must(set(charge) == {"entry", "previous", "body", "hash"} and charge["entry"] >= 1, "charge")
    must(sha256(charge["previous"] + "\n" + charge["body"]) == charge["hash"], "charge.hash")
    body = parsed(charge["body"].encode())
    mine = {"sha256": c["file"]["sha256"], "statement": statement_of(c)}
    must(body["files"][c["output"]] == mine, "the charge holds another file or statement")
    unit = plan["privacy"]["unit"]
    kind = "replace" if "replace" in unit else "add_remove"
    must(body["kind"] == "charge" and body["name"] == program["name"], "the charge's name")
    must(body["unit"] == f"{kind} {unit[kind]} of {unit['of']}", "the charge's unit")
    must(body["program"] == plan["program"] and body["dataset"] == named[0], "the charge's program")
    of = body.get("of")
    must(
        of is None or (type(of) is int and 1 <= of < charge["entry"]), "the charge settles no entry"
    )
    must(body["loss"]["measure"] == plan["privacy"]["measure"], "the charge's measure")
    parts = [charged_part(text) for text in body["loss"]["loss"]]
    must(len(parts) == len(plan["total"]), "the charge's parts")
    for part, total_ in zip(parts, map(Fraction, plan["total"]), strict=True):
        must(total_ <= part <= total_ * (1 + Fraction(1, 2**36)), "the charge is not the total")
    must(Path(program["data"][named[0]]["ledger"]["file"]).name == ledger["file"], "ledger.file")
    limit = program["data"][named[0]]["ledger"]["limit"]
    must(
        ledger["terms"]["limit"] == limit and ledger["terms"]["unit"] == body["unit"],
        "ledger.terms",
    )
    measure = ledger["terms"]["measure"]
    must(ledger["spent"]["measure"] == measure, "ledger.spent is in another measure")
    spent = [charged_part(text) for text in ledger["spent"]["exact"]]
    must(len(spent) == PARTS[measure] and min(spent) >= 0, "ledger.spent has the wrong parts")
    must(within(measure, [*map(float, spent)], limit), "ledger.spent is above the ledger's limit")
    found.trust.append("what of the limit is left, and what was spent in words")
    if measure == body["loss"]["measure"]:
        must(all(a >= b for a, b in zip(spent, parts, strict=True)), "less was spent than this run")


def within(measure: str, spent: list[float], limit: Json) -> bool:
    """Return whether a sum keeps a limit."""
    most = {word: amount(value) * (1 + 2.0**-30) for word, value in limit.items()}
    epsilon, delta = most.get("epsilon"), most.get("delta", 0.0)
    own = spent[1] if len(spent) > 1 else 0.0
    keeps = own <= delta or not own
    if measure in ("pure", "approx"):
        return keeps and (epsilon is None or spent[0] <= epsilon)
    keeps = keeps and spent[0] <= min(most.get("rho", math.inf), most.get("mu", math.inf) ** 2 / 2)
    if epsilon is None or not keeps:
        return keeps
    if measure == "gdp":
        return curve_at(2 * spent[0], epsilon) <= delta
    return own < delta and zcdp_epsilon(spent[0], delta - own) <= epsilon


def check_ledger_file(found: Checked, path: Path | None) -> None:
    """Compare the quoted entry, and the sum, with the ledger's file."""
    charge, told = found.whole["charge"], found.whole["ledger"]
    if charge is None:
        return
    if path is None:
        found.trust.append("the ledger: that it has this entry, and what was spent (--ledger FILE)")
        return
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            rows = db.execute("SELECT seq, body, hash FROM entries ORDER BY seq").fetchall()
            ((genesis,),) = db.execute("SELECT value FROM meta WHERE key = 'genesis'")
    except (sqlite3.Error, ValueError) as error:
        raise WrongError(f"{path} is no ledger that can be read ({error})") from None
    last = sha256("\n" + genesis)
    must(told["start"] == last, "ledger.start is another ledger's")
    for place, (seq, body, digest) in enumerate(rows, 1):
        must(
            seq == place and sha256(last + "\n" + body) == digest, f"entry {place} breaks the chain"
        )
        if place == charge["entry"]:
            quoted = {"entry": seq, "previous": last, "body": body, "hash": digest}
            must(quoted == charge, f"entry {place} is another one")
        last = digest
    must(charge["entry"] <= len(rows), "the ledger has no such entry")
    upto = json.loads(charge["body"]).get("of") or charge["entry"]
    bodies = [json.loads(body) for _, body, _ in rows[:upto]]
    settled = {b["of"] for b in bodies if b["kind"] == "charge" and "of" in b}
    paying = [
        b
        for n, b in enumerate(bodies, 1)
        if b["kind"] == "charge" or (b["kind"] == "reserve" and n not in settled)
    ]
    if any(b["loss"]["measure"] != told["spent"]["measure"] for b in paying):
        found.gaps.append("ledger.spent: entries under several measures")
        return
    sums = [
        sum(map(charged_part, parts))
        for parts in zip(*(b["loss"]["loss"] for b in paying), strict=True)
    ]
    must(
        sums == [charged_part(text) for text in told["spent"]["exact"]],
        "ledger.spent is not the sum",
    )


def check_file(found: Checked, folder: Path) -> None:
    """Compare the output's digest and size, where it is there."""
    told = found.whole["file"]
    must(
        re.fullmatch(r"[^/\\\x00]+", told["name"]) and told["name"] not in (".", ".."), "file.name"
    )
    path = folder / told["name"]
    if not path.is_file():
        found.trust.append(f"the file {told['name']}, which is not beside the certificate")
        return
    data = path.read_bytes()
    must(
        sha256(data) == told["sha256"] and len(data) == told["bytes"], f"{told['name']} was changed"
    )


P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
ORDER = 2**252 + 27742317777372353535851937790883648493
Point = tuple[int, int, int, int]


def add_points(a: Point, b: Point) -> Point:
    """Add two points of the twisted Edwards curve of RFC 8032."""
    A, B = (a[1] - a[0]) * (b[1] - b[0]) % P, (a[1] + a[0]) * (b[1] + b[0]) % P
    C, E = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    e, f, g, h = B - A, E - C, E + C, B + A
    return e * f % P, g * h % P, f * g % P, e * h % P


def multiple(k: int, a: Point) -> Point:
    """Return k times a point."""
    out: Point = (0, 1, 1, 0)
    while k:
        out = add_points(out, a) if k & 1 else out
        a, k = add_points(a, a), k >> 1
    return out


def point(data: bytes) -> Point:
    """Decode a point, or refuse it."""
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & (2**255 - 1)
    must(y < P and len(data) == 32, "a key or signature that is no point")
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    x = x if (x * x - square) % P == 0 else x * pow(2, (P - 1) // 4, P) % P
    must((x * x - square) % P == 0 and not (x == 0 and sign), "a key or signature that is no point")
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P


def equal_points(a: Point, b: Point) -> bool:
    """Return whether two points are one."""
    return (a[0] * b[2] - b[0] * a[2]) % P == 0 and (a[1] * b[2] - b[1] * a[2]) % P == 0


def signed(key: bytes, text: bytes, value: bytes) -> bool:
    """Return whether an Ed25519 signature holds (RFC 8032, 5.1.7)."""
    R, A, s = point(value[:32]), point(key), int.from_bytes(value[32:], "little")
    if s >= ORDER or len(value) != 64 or equal_points(multiple(8, A), (0, 1, 1, 0)):
        return False
    base = point((4 * pow(5, -1, P) % P).to_bytes(32, "little"))
    k = int.from_bytes(hashlib.sha512(value[:32] + key + text).digest(), "little") % ORDER
    return equal_points(multiple(s, base), add_points(R, multiple(k, A)))


def check_signed(found: Checked, signer: str | None) -> None:
    """Verify the signature, and whose it is."""
    c = found.whole
    told = c["signature"]
    if told is None:
        must(signer is None, "nobody signed it, and a signer was named")
        found.trust.append(
            "who made it: there is no signature, so whoever can write files could have"
        )
        return
    must(set(told) == {"scheme", "key", "value"} and told["scheme"] == "ed25519", "signature")
    paid = "none" if c["charge"] is None else c["charge"]["hash"]
    text = f"{c['format']} {statement_of(c)} {paid}".encode()
    holds = signed(bytes.fromhex(told["key"]), text, bytes.fromhex(told["value"]))
    must(holds, "signature.value is no signature of it by signature.key")
    if signer is None:
        found.trust.append(f"whose key signed it: {told['key']} (--signer KEY)")
    else:
        must(key_of(signer) == told["key"], "somebody else signed it")


def key_of(signer: str) -> str:
    """Return a public key in hexadecimal."""
    if re.fullmatch(r"[0-9a-f]{64}", signer):
        return signer
    lines = Path(signer).read_text("ascii").split("-----")
    must(len(lines) == 5 and lines[1] == "BEGIN PUBLIC KEY", f"{signer}: no public key in PEM")
    return base64.b64decode("".join(lines[2].split()))[-32:].hex()


# --------------------------------------------------------------------------------------------------


def check_certificate(
    path: str | Path,
    *,
    ledger: str | Path | None = None,
    signer: str | None = None,
    program: str | None = None,
    pages: str | Path | None = None,
) -> Checked:
    """Check one certificate.

    Args:
        path: the certificate; its output is looked for beside it.
        ledger: the ledger's SQLite file.
        signer: a public key, in hexadecimal or a PEM file; then its signature is demanded.
        program: the sha256 of the program that somebody reviewed.
        pages: a folder with the lemmas' pages, ``KEY.md``, at any depth.

    Returns:
        What could not be derived (``gaps``) and what no arithmetic shows (``trust``).

    Raises:
        WrongError: a rule of the page does not hold.
    """
    try:
        found = Checked(parsed(Path(path).read_bytes()))
        check_words(found)
        check_fields(found)
        check_assumptions(found)
        check_privacy(found)
        check_file(found, Path(path).parent)
        check_entry(found)
        check_ledger_file(found, None if ledger is None else Path(ledger))
        check_signed(found, signer)
        check_pages(found, pages)
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        StopIteration,
    ) as error:
        raise WrongError(f"a part is missing or of another kind ({error!r:.80})") from None
    except RecursionError:
        raise WrongError("stages that come from each other") from None
    except MemoryError:
        raise WrongError("it asks for more memory than there is") from None
    if program is None:
        found.trust.append(
            "that this is the program that somebody reviewed (--program, its sha256)"
        )
    else:
        must(program == found.plan["program"], "another program than the one that was reviewed")
    found.trust.append(
        "the assumptions, the lemmas, and that the data and the noise were as declared"
    )
    return found


def check_pages(found: Checked, pages: str | Path | None) -> None:
    """Compare the lemmas' digests with pages."""
    if "derivation" not in found.whole:
        return
    if pages is None:
        found.trust.append("the lemmas' pages: which texts those sha256 are of (--pages FOLDER)")
        return
    steps = [step for chain in found.whole["derivation"].values() for step in chain]
    named = {f"{step['step']}.md" for step in steps}
    known = {
        (path.stem, sha256(path.read_bytes()))
        for path in Path(pages).rglob("*.md")
        if path.name in named
    }
    for step in steps:
        must((step["step"], step["page"]) in known, f"{step['step']}.md is another page")


def claim_line(found: Checked) -> str:
    """Return the claim in one line."""
    plan = found.plan
    if plan["privacy"] is None:
        return "public data, no claim"
    unit, measure = plan["privacy"]["unit"], plan["privacy"]["measure"]
    kind = "replace" if "replace" in unit else "add_remove"
    total_ = plan["claim"] or plan["total"]
    first = "mu^2 / 2" if measure == "gdp" else "rho"
    first = "epsilon" if plan["claim"] or measure in ("pure", "approx") else first
    words = (first, "delta")
    parts = ", ".join(f"{word} {value!r}" for word, value in zip(words, total_, strict=False))
    return f"{parts} per {kind} {unit[kind]} of {unit['of']}"


def main(given: list[str] | None = None) -> int:
    """Check certificates from the command line."""
    parser = argparse.ArgumentParser(
        description="Check certificates of opendp_sim without opendp_sim: the claim is derived from the "
        "certified program by the formulas of the public page; values on trust are listed.",
        epilog="exit codes: 0 all derived; 1 refused; 2 wrong usage; 3 nothing wrong, but gaps",
    )
    parser.add_argument("certificate", nargs="+", help="a file NAME.certificate.json")
    parser.add_argument("--ledger", help="the ledger's file: is the quoted entry in it?")
    parser.add_argument("--signer", help="a public key, hexadecimal or PEM: did it sign?")
    parser.add_argument("--program", help="the sha256 of the program that you reviewed")
    parser.add_argument("--pages", help="a folder with the lemmas' pages, to compare their sha256")
    args = parser.parse_args(given)
    code = DERIVED
    for path in args.certificate:
        try:
            found = check_certificate(
                path, ledger=args.ledger, signer=args.signer, program=args.program, pages=args.pages
            )
        except OSError as error:
            print(f"{path}: cannot be read: {error.strerror}", file=sys.stderr)
            return USAGE
        except WrongError as error:
            print(f"REFUSED {path}\n  {printable(str(error))}")
            code = REFUSED
            continue
        print(f"{'GAPS' if found.gaps else 'DERIVED'} {path}\n  {printable(claim_line(found))}")
        for gap in found.gaps:
            print(f"  not derived: {printable(gap)}")
        for text in found.trust:
            print(f"  on trust: {printable(text)}")
        code = code or (GAPS if found.gaps else DERIVED)
    return code


if __name__ == "__main__":
    sys.exit(main())
