"""The published broken and sound mechanisms, claimed epsilon = 1."""

from __future__ import annotations

from typing import Any

from tests.audit.twins import classic as c
from tests.audit.twins.entries import Control, Twin
from tests.audit.twins.faults import named


def _twin(label: str, many: Any, metric: Any = c.EVERY_ANSWER) -> Twin:
    made, options = c.entry(many, metric)
    return Twin(**named(f"classic/{label}"), make=lambda: made, options=options)


def _control(name: str, many: Any, metric: Any = c.EVERY_ANSWER) -> Control:
    made, options = c.entry(many, metric)
    return Control(name=f"classic/{name}", make=lambda: made, options=options)


TWINS = [
    _twin(
        "svt_3_releases_value: the noisy answer above the bar is released from the same noise",
        c.sparse_vector(threshold_scale=4, query_scale=4 / 3, limit=1, value_scale=4 / 3),
    ),
    _twin(
        "svt_4_ignores_limit: query noise does not grow with the number of answers above",
        c.sparse_vector(threshold_scale=4, query_scale=4 / 3, limit=3),
    ),
    _twin(
        "svt_5_no_query_noise: only the bar is noisy",
        c.sparse_vector(threshold_scale=2, query_scale=0, limit=None),
    ),
    _twin(
        "svt_6_never_stops: answers forever on one budget",
        c.sparse_vector(threshold_scale=2, query_scale=2, limit=None),
    ),
    _twin(
        "noisy_max_3_value: releases the largest noisy answer",
        c.noisy_max(exponential=False, value=True),
    ),
    _twin(
        "histogram_inverted_scale: scale epsilon / 2 in place of 2 / epsilon",
        c.histogram(0.5),
        c.ONE_CELL,
    ),
    _twin(
        "prefix_sum_one_cell: prefix sums with the noise of one cell", c.prefix_sum(1.0), c.ONE_CELL
    ),
    _twin("parallel_laplace: twenty copies, each with the whole budget", c.parallel_laplace(4.0)),
]
CONTROLS = [
    _control("svt_1", c.sparse_vector(threshold_scale=2, query_scale=4, limit=1)),
    _control(
        "svt_2_redraws", c.sparse_vector(threshold_scale=4, query_scale=8, limit=2, redraw=True)
    ),
    _control("noisy_max_1", c.noisy_max(exponential=False, value=False)),
    _control("noisy_max_2", c.noisy_max(exponential=True, value=False)),
    _control("histogram", c.histogram(1.0), c.ONE_CELL),
    _control("parallel_laplace_split", c.parallel_laplace(20.0)),
]
