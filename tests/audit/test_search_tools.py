"""What the search of opaque functions is made of: tables of noise, laws, records found by asking."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit.generators.datasets import guessed_source, records_of
from opendp_sim.audit.instrument.native_laws import Law
from opendp_sim.audit.instrument.noise_pool import NoiseTable, Pools
from opendp_sim.audit.outputs.encoding import Raised, unordered
from opendp_sim.audit.outputs.predicates import plain_events
from opendp_sim.audit.statistics.score_bets import text_of
from opendp_sim.audit.trace.bets import guard_runs
from opendp_sim.audit.work import charge
from opendp_sim.core.errors import AuditError

ROOM = Fraction(1, 2**63)


@pytest.mark.parametrize("family", ["laplace", "gaussian"])
@pytest.mark.parametrize("scale", [0.3, 1.0, 7.5])
def test_a_table_is_the_law_to_2_to_the_minus_63(family: str, scale: float) -> None:
    table = NoiseTable(Law(family, scale, whole=True, vector=False))
    reach = -table.low
    weigh = {
        "laplace": lambda z: _power(-abs(z) / Fraction(scale)),
        "gaussian": lambda z: _power(-Fraction(z * z) / (2 * Fraction(scale) ** 2)),
    }[family]
    weights = [weigh(z) for z in range(-reach, reach + 1)]
    assert len(table.cuts) == len(weights) - 1
    total, so_far = sum(weights), Fraction(0)
    for cut, weight in zip(table.cuts.tolist(), weights, strict=False):
        so_far += weight
        assert abs(Fraction(cut, 2**64) - so_far / total) < ROOM


def test_noise_drawn_ahead_is_handed_out_once() -> None:
    pools, law = Pools(), Law("laplace", 5.0, whole=True, vector=False)
    pools.whole(law, 1)
    before = [*pools.pools[law.family, law.scale]]
    taken = pools.whole(law, 3) + pools.whole(law, 2)
    assert pools.pools[law.family, law.scale] + taken[3:] + taken[:3] == before


def _power(exponent: Fraction) -> Fraction:
    """Return e to a power that is not positive, to 2^-90 of itself, by halving and its series."""
    halvings = max(0, math.ceil(-exponent)).bit_length() + 4
    small, term, total = exponent / 2**halvings, Fraction(1), Fraction(0)
    for n in range(1, 30):
        total += term
        term = term * small / n
    grid = 2**260
    for _ in range(halvings):
        total = Fraction(round(total * total * grid), grid)
    return total


def test_a_mapping_and_a_set_have_no_order_and_a_list_has() -> None:
    assert text_of({"a": 1, "b": {3, 1}}) == text_of({"b": {1, 3}, "a": 1})
    assert text_of([{"a": 1, "b": 2}]) == text_of([{"b": 2, "a": 1}])
    assert text_of([("a", 1), ("b", 2)]) != text_of([("b", 2), ("a", 1)])
    assert unordered([1, "x", None, 2.5]) == [1, "x", None, 2.5]


def test_guards_take_fewer_releases_of_a_slow_object() -> None:
    assert len(guard_runs(lambda: charge(1.0))) == 120
    assert len(guard_runs(lambda: True)) == 400


def test_two_texts_of_one_exception_are_a_plain_event() -> None:
    left, right = (
        [Raised("ValueError: -7 is not representable")] * 60,
        [Raised("ValueError: -9")] * 60,
    )
    events = list(plain_events(left, right))
    told = [e for e in events if all(map(e.holds, left)) and not any(map(e.holds, right))]
    seen = [eval(told[0].text, {"output": v}) for v in (left[0], right[0], 3)]  # noqa: S307
    assert seen == [True, False, False]
    assert told[0].exceptions


def _pairs_of_a_person(record: object) -> bool:
    if not (isinstance(record, tuple) and len(record) == 2):
        return False
    return isinstance(record[0], int) and isinstance(record[1], float) and record[0] > 0


def test_records_of_a_domain_that_only_says_what_a_member_is_are_found_by_asking() -> None:
    dp.enable_features("contrib", "honest-but-curious")
    inside = dp.vector_domain(dp.user_domain("(person, value)", _pairs_of_a_person))
    whole = dp.user_domain(
        "a list of such", lambda x: isinstance(x, list) and all(map(_pairs_of_a_person, x))
    )
    for domain in (inside, whole):
        records = records_of(domain)
        rng = np.random.default_rng(0)
        drawn = [*records.source.corners, *(records.source.draw(rng) for _ in range(50))]
        assert all(map(_pairs_of_a_person, drawn))
        assert len({person for person, _ in drawn}) > 2
        assert domain.member(records.build(drawn))
    assert guessed_source(lambda _: False) is None
    with pytest.raises(AuditError, match="generator="):
        records_of(dp.user_domain("nothing", lambda _: False))
