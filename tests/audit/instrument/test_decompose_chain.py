"""A chain is audited part by part: its transformation is called in Python, its noise is on the tape."""

from __future__ import annotations

import contextlib
import itertools
import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import opendp.prelude as dp
import opendp.transformations
import pytest

from opendp_sim.audit import audit
from opendp_sim.audit.generators import copies as own_data
from opendp_sim.audit.instrument.decompose_chain import (
    draws_nothing,
    handed_on,
    kind_of,
    taken_apart,
)
from opendp_sim.audit.instrument.tape import Tape
from opendp_sim.audit.statistics.sampling import surely_differ
from opendp_sim.audit.trace.scan import direct_function, equal_runs
from tests._tiers import tiered
from tests.audit.growing import refuted
from tests.audit.test_sound_programs import BRIEF

ROWS = dp.vector_domain(dp.atom_domain(T=int, bounds=(0, 10))), dp.symmetric_distance()
WORDS = dp.vector_domain(dp.atom_domain(T=str)), dp.symmetric_distance()
SHORT = replace(
    BRIEF, trace_seconds=3.0, seconds=3.0, scan_seconds=0.5, total=6.0, witness_seconds=0.1
)


NOISE = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 20.0)


def step(function: Any, factor: int = 1, space: Any = ROWS, out: Any = ROWS) -> Any:
    return dp.t.make_user_transformation(*space, *out, function, lambda d: factor * d)


def total(before: Any, scale: float = 10.0) -> Any:
    return before >> dp.t.then_clamp((0, 10)) >> dp.t.then_sum() >> dp.m.then_laplace(scale)


def gaps(rows: list[int]) -> list[int]:
    rows.sort()  # its own list: OpenDP hands every function a new one
    return [10 if b - a == 3 else 0 for a, b in itertools.pairwise(rows)]


def explode(rows: list[str]) -> list[str]:
    return [word for row in rows for word in row.split()]


def sampled(rows: list[int]) -> list[int]:
    return [r for r in rows if random.random() < 0.5]  # noqa: S311 - a sample of the program's own


BROKEN = {
    "a row becomes two": lambda: total(step(gaps)),
    "a text becomes words": lambda: (
        step(explode, space=WORDS, out=WORDS) >> dp.t.then_count() >> dp.m.then_laplace(2.0)
    ),
    "a step deep in a chain": lambda: (
        dp.c.make_pureDP_to_zCDP(total(step(lambda rows: [10 - r for r in rows]) >> step(gaps)))
        >> (lambda out: {"sum": out})
    ),
}
SOUND = {
    "three times": lambda: total(step(gaps, 3)),
    "a sample, without a claim of it": lambda: total(step(sampled)),
    "what is shown is rounded": lambda: total(step(lambda rows: rows)) >> (lambda v: v // 7 * 7),
}


@pytest.mark.parametrize("name", tiered(BROKEN, {"a row becomes two"}.__contains__))
def test_a_chain_with_a_wrong_step_is_priced(name: str) -> None:
    report = refuted(BROKEN[name](), 1, SHORT)
    assert report.verdict == "refuted"


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_chain_is_not_accused(name: str) -> None:
    brief = replace(BRIEF, trace_seconds=0.8, seconds=0.2)
    assert audit(SOUND[name](), 1, budget=brief).verdict == "not refuted"


def test_parts_do_what_the_chain_does() -> None:
    rows = [[], [3], [1, 4, 4, 0], [0, 3, 6]]
    made = [*SOUND.values(), *list(BROKEN.values())[:1]]
    for chain in [one() for one in made]:
        found = taken_apart(chain)
        assert found is not None
        for whole, mine in found[1].stages:
            for data in rows:
                random.seed(5)
                first = whole(data)
                random.seed(5)
                assert mine(list(data)) == first
        assert isinstance(found[0](rows[2]), int)


@pytest.mark.parametrize(
    "returned",
    [np.array([3, 4]), (3, 4), [np.int32(3)], [True, 4], [3, 4.0]],
    ids=["array", "tuple", "numpy's number", "truth value", "float"],
)
def test_what_opendp_would_turn_into_another_type_goes_through_opendp(returned: Any) -> None:
    chain = total(step(lambda _: returned))
    found = taken_apart(chain)
    assert found is not None
    (whole, mine), data = found[1].stages[0], [1]
    out: list[Any] = []
    for run in (whole, mine):
        try:
            out.append(run(data))
        except Exception as error:  # noqa: BLE001 - whatever OpenDP says
            out.append(type(error))
    assert out[0] == out[1]


def test_a_function_that_writes_to_its_records_has_its_own() -> None:
    """OpenDP hands it a new list each time; the same list grew from run to run, and it was accused."""

    def appends(rows: list[int]) -> int:
        rows.append(sum(rows))
        return NOISE(rows[-1])

    def pads(rows: list[int]) -> list[int]:
        rows += [10] * len(rows)
        return rows[: len(rows) // 2]

    own = dp.m.make_user_measurement(
        *ROWS, dp.max_divergence(), appends, lambda d: NOISE.map(10 * d)
    )
    brief = replace(BRIEF, trace_seconds=0.8, seconds=0.2)
    for sound in (own, total(step(pads))):
        assert audit(sound, 1, budget=brief).verdict == "not refuted"
    inner: list[Any] = [[1], {"a": [2]}]
    assert own_data.own(inner) == inner
    assert own_data.own(inner)[0] is not inner[0]


@pytest.mark.parametrize(
    "step",
    [
        lambda floats: floats >> dp.t.then_impute_uniform_float(bounds=(0.0, 1.0)),
        lambda floats: floats >> dp.t.then_impute_constant(0.5) >> dp.t.then_resize(3, 0.5),
    ],
)
def test_a_transformation_of_opendp_s_that_draws_is_not_taken_apart(step: Any) -> None:
    """Its draws are on no tape: kept for a dataset they would be no draws, and a claim may rest on them."""
    floats = dp.vector_domain(dp.atom_domain(T=float, nan=True)), dp.symmetric_distance()
    random_step = step(floats)
    assert not draws_nothing(random_step)
    own = dp.m.make_user_measurement(
        random_step.output_domain,
        random_step.output_metric,
        dp.max_divergence(),
        len,
        lambda d: 1.0 * d,
    )
    assert taken_apart(random_step >> own) is None


def test_every_transformation_of_opendp_s_is_known_or_named_as_random() -> None:
    """A new one of OpenDP's is looked at by a person before it is taken for one that draws nothing."""
    random_ones = {"impute_uniform_float", "ordered_random", "resize", "bounded_float_checked_sum"}
    random_ones |= {"count_by"}  # its order
    not_looked_at = {"stable_expr", "stable_lazyframe", "bounded_float_ordered_sum"}
    made = {n for n in opendp.transformations.__all__ if n.startswith("make_")}
    known = {n for n in made if draws_nothing(SimpleNamespace(__opendp_dict__={"__function__": n}))}
    assert made - known == {f"make_{n}" for n in random_ones | not_looked_at}


def _in_the_order_of(counts: dict[int, int]) -> list[tuple[int, int]]:
    return [(key, seen) for key, count in counts.items() if (seen := NOISE(count)) > 200]


def _of_maps() -> dict[str, Any]:
    counted = dp.t.make_count_by(*ROWS)
    maps = counted.output_domain, counted.output_metric
    shown = dp.m.make_user_measurement(*maps, dp.max_divergence(), _in_the_order_of, lambda _: 1.0)
    counts = dp.m.make_user_measurement(
        *ROWS, dp.max_divergence(), lambda _: COUNTS, lambda _: 1.0, TO="HashMap<i32, i32>"
    )
    return {
        "counted": counted,
        "a map as it is": dp.t.make_identity(*maps),
        "a user's map": dp.t.make_user_transformation(*maps, *maps, lambda d: d, lambda d: d),
        "shown": shown,
        "a chain": counted >> shown,
        "a map shown": counts >> list,
    }


COUNTS = dict.fromkeys(range(30), 1)


def test_the_order_of_a_map_of_opendp_s_is_drawn_anew_at_every_call() -> None:
    """One order was kept for each dataset, and a sound histogram was accused."""
    for name, made in _of_maps().items():
        data: Any = COUNTS if "MapDomain" in str(made.input_domain) else list(COUNTS)
        if name not in ("shown", "a chain"):  # these show what passes a threshold
            assert len({str(list(made(data))) for _ in range(5)}) > 1, name
        if isinstance(made, dp.Transformation):
            assert not draws_nothing(made), name
        else:
            assert taken_apart(made) is None or name == "a map shown", name  # called as it is


def test_a_function_of_a_map_is_not_called_directly() -> None:
    """OpenDP hands it another order at every call; that nothing passes the threshold hides it."""
    shown, tape = _of_maps()["shown"], Tape(None, np.random.default_rng(0))
    space = SimpleNamespace(draw=lambda _: SimpleNamespace(left={1: 1, 2: 1}))
    tape.outer = shown
    assert direct_function(tape, shown, [_in_the_order_of], space, None) is None  # type: ignore[arg-type]


def test_the_order_of_a_mapping_is_compared_between_a_step_and_what_is_called_instead() -> None:
    tape = Tape(None, np.random.default_rng(0))
    orders = [lambda _: {1: 1, 2: 2}, lambda _: {2: 2, 1: 1}]
    assert equal_runs(tape, *orders, [1])
    assert not equal_runs(tape, *orders, [1], ordered=True)
    assert equal_runs(tape, orders[0], orders[0], [1], ordered=True)


def test_what_shows_a_release_is_given_it_as_it_is() -> None:
    """Through OpenDP once more a mapping would come in a random order: parts of it would be others."""
    own = dp.m.make_user_measurement(
        *ROWS, dp.max_divergence(), lambda _: COUNTS, lambda d: 1.0 * d
    )
    own = step(lambda rows: rows) >> own
    found = taken_apart(own >> list)
    assert found is not None
    assert all(found[0]([1]) == (own >> list)([1]) == list(COUNTS) for _ in range(5))
    assert taken_apart(own >> dp.new_function(len, TO=int)) is None


def test_a_random_step_is_not_run_again_for_what_it_returned() -> None:
    """Run again whenever it returns a truth value, it would have another law than OpenDP's object."""
    calls: list[int] = []

    def flips(_: list[int]) -> list[Any]:
        calls.append(1)
        return [len(calls) % 2 == 0] if len(calls) % 2 else [3]

    found = taken_apart(total(step(flips)))
    assert found is not None
    mine = found[1].stages[0][1]
    for _ in range(10):
        with contextlib.suppress(dp.OpenDPException):  # what OpenDP says of a truth value
            mine([1])
    assert len(calls) == 11


def test_texts_that_opendp_cuts_or_refuses_are_not_handed_on() -> None:
    assert handed_on(["a", "b c"], "Vec<String>")
    assert not handed_on(["a\0b"], "Vec<String>")
    assert not handed_on(["\ud800"], "Vec<String>")
    assert [kind_of(k) for k in (None, "ExtrinsicObject", int, "Vec<i32>")] == [
        None,
        None,
        "i32",
        "Vec<i32>",
    ]


def test_two_laws_are_told_apart_and_one_is_not() -> None:
    rng = np.random.default_rng(0)
    samples = [[float(v) for v in rng.normal(at, 1, 100)] for at in (0, 0, 3)]
    assert not surely_differ(samples[0], samples[1], 1e-6)
    assert surely_differ(samples[0], samples[2], 1e-6)
    assert surely_differ([[v, v] for v in samples[0]], [[v, v + 9] for v in samples[0]], 1e-6)
