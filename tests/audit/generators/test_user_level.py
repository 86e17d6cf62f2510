"""Pairs by person: never further apart than they say, and near enough to break a wrong map."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit import Effort, Subject, audit
from opendp_sim.audit.generators.spaces import space_of
from opendp_sim.core.bridge import to_dp_domain, to_dp_metric
from opendp_sim.core.randomness import public_generator
from opendp_sim.domains.metrics import IdDistance
from opendp_sim.domains.rows import GridRows, Rows

DOMAIN = to_dp_domain(GridRows(width=1, labels=(0, 1), ids=True, lower=(-4,), upper=(4,)))
METRIC = to_dp_metric(IdDistance("user"))


def owned(rows: Rows) -> dict[Any, Counter[Any]]:
    """Return what each person holds."""
    out: dict[Any, Counter[Any]] = {}
    for value, label, who in zip(rows.values, rows.labels, rows.ids, strict=True):
        out.setdefault(who, Counter())[(*value, label)] += 1
    return out


@pytest.mark.parametrize("d_in", [1, 2])
def test_pairs_are_no_further_apart_than_they_say(d_in: int):
    rng = public_generator(3, "test", "persons")
    space = space_of(DOMAIN, METRIC, d_in)
    pairs = [*space.corners(rng), *(space.draw(rng) for _ in range(200))]
    pairs += [space.mutate(pair, rng) for pair in pairs]
    pairs += [small for pair in pairs[:60] for small in space.simpler(pair)]
    spent = Counter()
    for pair in pairs:
        left, right = owned(pair.left), owned(pair.right)
        apart = sum(
            (who in left) + (who in right)
            for who in left.keys() | right.keys()
            if left.get(who) != right.get(who)
        )
        assert apart <= pair.distance
        spent[apart] += 1
    assert spent[d_in] > 100


def test_a_map_that_counts_records_as_persons_is_refuted():
    def subject(rows_of_a_person: int) -> Subject:
        def first(rows: Rows) -> int:
            kept: Counter[Any] = Counter(rows.ids.tolist())
            return sum(min(count, 3) for count in kept.values())

        return Subject(
            run=first,
            input_domain=DOMAIN,
            input_metric=METRIC,
            stability_map=lambda d: rows_of_a_person * d,
            output_metric=dp.absolute_distance(T=int),
            name="rows kept",
        )

    brief = replace(Effort.of("quick"), stability_seconds=0.3, stability_trials=800)
    broken = audit(subject(2), 1, brief)
    assert broken.layer == "L1 stability"
    assert broken.evidence.measured == 3
    assert np.abs(len(broken.evidence.pair.left) - len(broken.evidence.pair.right)) == 3
    assert audit(subject(3), 1, brief).verdict == "not refuted"
