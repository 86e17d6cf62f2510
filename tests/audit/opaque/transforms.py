"""Transformations of strangers: Python behind ``make_user_transformation``."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import opendp.prelude as dp

from tests.audit.opaque.kit import CHANGE_ONE, SYMMETRIC, pair, text, whole

L1 = dp.l1_distance(T=int)
ABSOLUTE = dp.absolute_distance(T=int)


def stable(domain: Any, metric: Any, out: Any, out_metric: Any, function: Any, rate: int) -> Any:
    """A Python transformation whose stability map is ``rate * d_in``."""
    return dp.t.make_user_transformation(
        domain, metric, out, out_metric, function, lambda d: rate * d
    )


def cells(size: int) -> Any:
    """A vector of counts."""
    return dp.vector_domain(dp.atom_domain(T=int), size=size)


@pair(
    "contribution bounds",
    fault="the sum of squares of [-9, 9] is charged 9",
    sound="the sum of absolute values is charged 9",
)
def squares(broken: bool) -> Any:
    def squared(rows):
        return sum(row * row for row in rows)

    def absolute(rows):
        return sum(abs(row) for row in rows)

    return stable(
        whole(-9, 9), SYMMETRIC, dp.atom_domain(T=int), ABSOLUTE, squared if broken else absolute, 9
    )


@pair("sentinels", fault="code 90210 counts 20 times", sound="every code counts once")
def zip_code(broken: bool) -> Any:
    def odd(rows):
        return sum(20 if row == 90210 else 1 for row in rows)

    def count(rows):
        return sum(1 if row == 90210 else 1 for row in rows)

    return stable(whole(), SYMMETRIC, dp.atom_domain(T=int), ABSOLUTE, odd if broken else count, 1)


@pair("rare categories", fault="'other' is added to all cells", sound="'other' has its own cell")
def other_category(broken: bool) -> Any:
    names = ("north", "south", "other")

    def spread(rows):
        count = Counter(rows)
        return [count[name] + count["other"] for name in names]

    def own(rows):
        count = Counter(rows)
        return [count[name] for name in names]

    return stable(text(), SYMMETRIC, cells(3), L1, spread if broken else own, 1)


@pair(
    "chunk borders",
    fault="pairs of neighbours in chunks of 50: one row moves all the borders",
    sound="counts of sorted rows",
)
def run_starts(broken: bool) -> Any:
    def borders(rows):
        return [sum(rows[i] for i in range(0, len(rows), 50))]

    def count(rows):
        return [len(rows)]

    return stable(whole(0, 9), SYMMETRIC, cells(1), L1, borders if broken else count, 1)


@pair("integer overflow", fault="16 bits", sound="64 bits")
def narrow_total(broken: bool) -> Any:
    def narrow(rows):
        return int(np.array(rows, dtype=np.int64).astype(np.int16).sum(dtype=np.int16))

    def wide(rows):
        return sum(rows)

    return stable(
        whole(0, 1000), SYMMETRIC, dp.atom_domain(T=int), ABSOLUTE, narrow if broken else wide, 1000
    )


@pair(
    "truncation",
    fault="the rarest category gets the rest of the rows: a replaced row moves three cells",
    sound="a replaced row moves two cells",
)
def rest_cell(broken: bool) -> Any:
    def rest(rows):
        count = [rows.count(k) for k in range(4)]
        count[count.index(min(count))] += len(rows) % 7
        return count

    def plain(rows):
        return [rows.count(k) for k in range(4)]

    return stable(whole(0, 3), CHANGE_ONE, cells(4), L1, rest if broken else plain, 2)


@pair(
    "quantiles",
    fault="the distance of ranks is charged 1 under change-one, ranks move by 2",
    sound="under change-one a difference of two counts moves by 2",
)
def rank_gap(broken: bool) -> Any:
    def gap(rows):
        return sum(row < 5 for row in rows) - sum(row > 5 for row in rows)

    return stable(
        whole(0, 10), CHANGE_ONE, dp.atom_domain(T=int), ABSOLUTE, gap, 1 if broken else 2
    )
