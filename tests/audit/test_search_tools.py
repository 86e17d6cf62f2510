"""What the search of opaque functions is made of: tables of noise, glances at pairs, joined words."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit.claims.curves import approx_curve
from opendp_sim.audit.generators.datasets import guessed_source, records_of
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.native_laws import Law, Laws
from opendp_sim.audit.instrument.noise_pool import NoiseTable, Pools
from opendp_sim.audit.outputs.encoding import Raised, unordered
from opendp_sim.audit.outputs.predicates import plain_events
from opendp_sim.audit.statistics.score_bets import text_of
from opendp_sim.audit.trace import draw_tree
from opendp_sim.audit.trace.output_sample import Glance, excess
from opendp_sim.audit.work import charge
from opendp_sim.core.errors import AuditError

UNIT = approx_curve(1.0, 0.0)
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


@pytest.mark.parametrize("bulk", [False, True])
def test_noise_drawn_ahead_is_handed_out_once(bulk: bool) -> None:
    pools, law = Pools(np.random.default_rng(0)), Law("laplace", 5.0, whole=True, vector=False)
    pools.whole(law, 1, bulk=bulk)
    before = [*pools.pools[law.family, law.scale, bulk]]
    taken = pools.whole(law, 3, bulk=bulk) + pools.whole(law, 2, bulk=bulk)
    assert pools.pools[law.family, law.scale, bulk] + taken[3:] + taken[:3] == before


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


def test_a_glance_sees_symbols_places_and_numbers_that_never_repeat() -> None:
    rng = np.random.default_rng(5)
    noise = {
        "symbols": lambda side: bool(rng.random() < (0.9, 0.1)[side]),
        "places": lambda side: "".join(
            "T-"[int(rng.random() < (0.2, 0.7)[side])] for _ in "123456789012"
        ),
        "numbers": lambda side: [float(rng.normal(3.0 * side)), float(rng.normal())],
    }
    for run in noise.values():
        assert Glance().more(run, Pair(0, 1, 1), 400).worth(UNIT) > 3
        # within the claim: the best of many events of equal sides stays below what is bet on at length
        same = Glance().more(run, Pair(0, 0, 1), 400)
        assert same.worth(UNIT) < 2.5
    fresh = Glance().more(noise["numbers"], Pair(0, 1, 1), 400)
    assert fresh.fresh
    assert fresh.table() is None
    score = fresh.score(noise["numbers"])
    left, right = ([score(side)[0] for _ in range(200)] for side in (0, 1))
    assert np.mean(left) > 1
    assert np.mean(right) < -1


def test_an_exception_is_an_output_of_a_glance() -> None:
    def run(side: int) -> int:
        if side:
            raise ValueError
        return 1

    seen = Glance().more(run, Pair(0, 1, 1), 60)
    assert seen.worth(UNIT) > 3
    assert seen.score(run)(0)[0] > 0 > seen.score(run)(1)[0]
    assert excess(UNIT, [], []) < 1


class _Made:
    """What the laws read of a measurement, and how often it was released."""

    def __init__(self, *, honest: bool = True) -> None:
        made = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 2.0)
        self.input_domain, self.input_metric = made.input_domain, made.input_metric
        self.output_measure, self.map = made.output_measure, made.map
        self.__opendp_dict__, self.releases = made.__opendp_dict__, 0
        self.rng, self.honest = np.random.default_rng(7), honest

    def real(self, _: object, argument: int) -> int:
        self.releases += 1
        return argument + Law("laplace", 2.0, True, False).scout(1, self.rng)[0] * self.honest


def test_noise_is_compared_to_its_law_when_it_is_met_again_and_not_at_each_call() -> None:
    laws = Laws(np.random.default_rng(3))
    fresh = [_Made() for _ in range(20)]  # a function that makes its noise at each call
    assert [laws.of(m, m.real)[1] for m in fresh] == [False] * 20
    assert sum(m.releases for m in fresh) == 0
    law, tested = laws.of(fresh[0], fresh[0].real)
    assert (law, tested) == (Law("laplace", 2.0, whole=True, vector=False, carrier="i32"), True)
    assert fresh[0].releases == 240 + 2  # and far from zero, on both sides
    laws.of(fresh[0], fresh[0].real)
    assert fresh[0].releases == 240 + 2


def test_an_object_whose_releases_do_not_fit_has_no_law_nor_have_later_ones_of_its_kind() -> None:
    laws = Laws(np.random.default_rng(3))
    silent, later = _Made(honest=False), _Made()
    laws.of(silent, silent.real)
    assert laws.of(silent, silent.real) == (None, True)
    assert laws.of(later, later.real) == (None, False)


def test_guards_take_fewer_releases_of_a_slow_object() -> None:
    assert len(draw_tree.guard_runs(lambda: charge(1.0))) == 120
    assert len(draw_tree.guard_runs(lambda: True)) == 400


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


def test_what_was_never_seen_is_outside_of_what_was() -> None:
    """Hundreds of rare outputs, none of them twice: only "not the usual one" tells the sides apart."""
    left = ["nothing"] * 2000
    right = [f"key {i}" if i % 40 == 0 else "nothing" for i in range(2000)]
    assert excess(approx_curve(1.0, 0.0), right, left) > 3
    assert excess(approx_curve(1.0, 0.0), left, right) == 0
    assert excess(approx_curve(1.0, 0.0), left, left) == 0
