"""Of several conversations with a queryable of an unknown kind the one that shows most is held."""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import opendp.prelude as dp
import pytest

from opendp_sim.audit import audit
from opendp_sim.audit.adversary.analyst import Driver
from opendp_sim.audit.adversary.default_analysts import costliest_analyst, default_driver
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.state.reachable import functions_of
from opendp_sim.audit.subject import read_subject
from opendp_sim.core.randomness import public_generator
from tests.audit.growing import refuted

dp.enable_features("contrib", "honest-but-curious")
INTS = dp.vector_domain(dp.atom_domain(T="i64"))
WORDS = dp.vector_domain(dp.atom_domain(T=str))


@functools.cache
def noise(scale: float) -> Any:
    return dp.m.make_laplace(dp.atom_domain(T="i64"), dp.absolute_distance(T="i64"), scale)


def service(domain: Any, start: Callable[[list[Any]], Callable[[Any], Any]], claim: float) -> Any:
    return dp.m.make_user_measurement(
        domain,
        dp.symmetric_distance(),
        dp.max_divergence(),
        lambda rows: dp.new_queryable(start(list(rows))),
        lambda d: claim * d,
    )


def batches(*, refunded: bool) -> Any:
    """Several named counts at once; an unknown name gives back what was not answered, or all of it."""
    counts = {"all": lambda _: True, "even": lambda row: row % 2 == 0}

    def start(rows: list[int]) -> Callable[[Any], Any]:
        spent = [Fraction(0)]

        def answer(question: Any) -> Any:
            *names, cost = question
            if not 0.01 <= cost <= 1 or not names:
                return None
            price = Fraction(cost)
            if spent[0] + len(names) * price > 1:
                return "no"
            spent[0] += len(names) * price
            found: list[int] = []
            try:
                for name in names:
                    wanted = counts[name]
                    found.append(noise(1 / cost)(sum(map(wanted, rows))))
            except KeyError:
                spent[0] -= (len(names) - (0 if refunded else len(found))) * price
            return tuple(found)

        return answer

    return service(INTS, start, 1.0)


def kept_answers(*, raw: bool) -> Any:
    """Counts of a word, each once; kept by the word as it was asked, or as it is counted."""

    def start(rows: list[str]) -> Callable[[Any], Any]:
        known: dict[str, int] = {}

        def answer(question: Any) -> Any:
            if type(question) is not str:
                return None
            word = question.strip().lower()
            key = question if raw else word
            if key not in known:
                known[key] = noise(2.0)(sum(row.strip().lower() == word for row in rows))
            return known[key]

        return answer

    return service(WORDS, start, 0.5)


def cells(*, wrapped: bool) -> Any:
    """Counts of the cells of two histograms, each once; a cell of a coarse one has many numbers."""

    def start(rows: list[int]) -> Callable[[Any], Any]:
        known: dict[Any, int] = {}

        def answer(question: Any) -> Any:
            depth, index = question
            if type(depth) is not int or type(index) is not int or not 0 <= depth <= 1:
                return None
            cell = index % 2**depth
            key = (depth, index) if wrapped else (depth, cell)
            if key not in known:
                known[key] = noise(2.0)(sum(row % 2**depth == cell for row in rows))
            return known[key]

        return answer

    return service(INTS, start, 1.0)


def by_label(*, closed: bool) -> Any:
    """Counts of decades, each with a budget of its own; a border belongs to one of them, or to both."""

    def start(rows: list[int]) -> Callable[[Any], Any]:
        spent: dict[int, Fraction] = {}

        def answer(question: Any) -> Any:
            if type(question) is not dict or set(question) != {"bin", "eps"}:
                return None
            label, cost = question["bin"], question["eps"]
            if type(label) is not int or not 0.01 <= cost <= 1:
                return None
            if spent.get(label, 0) + Fraction(cost) > 1:
                return "no"
            spent[label] = spent.get(label, 0) + Fraction(cost)
            last = 10 * label + 10 if closed else 10 * label + 9
            return noise(1 / cost)(sum(10 * label <= row <= last for row in rows))

        return answer

    return service(INTS, start, 1.0)


SERVICES: list[tuple[Callable[..., Any], str]] = [
    (batches, "refunded"),
    (kept_answers, "raw"),
    (cells, "wrapped"),
    (by_label, "closed"),
]


def _held(obj: Any) -> tuple[Driver, Driver]:
    driver = default_driver(obj, 1)
    assert driver is not None
    subject = read_subject(obj, 1, drive=driver)
    ones = [Pair([], [record], 1) for record in (0, 10)]
    pairs = [*driver.pairs, *(ones if obj.input_domain == INTS else [Pair([], ["a"], 1)])]
    rng = public_generator(0, "test")
    return driver, costliest_analyst(subject, driver, 1, functions_of(obj), pairs, rng)


@pytest.mark.parametrize(
    ("make", "option"),
    [*SERVICES[1:3], *(pytest.param(*one, marks=pytest.mark.long) for one in SERVICES[:1])],
)
def test_what_is_charged_too_little_is_asked_again_and_again(
    make: Callable[..., Any], option: str
) -> None:
    driver, held = _held(make(**{option: True}))
    assert held is not driver
    usual, sound = _held(make(**{option: False}))
    assert sound is usual


@pytest.mark.long
@pytest.mark.parametrize(("make", "option"), SERVICES[:3])
def test_a_service_that_charges_too_little_is_refuted(
    make: Callable[..., Any], option: str
) -> None:
    assert refuted(make(**{option: True}), 1).verdict == "refuted"
    assert audit(make(**{option: False}), 1).verdict == "not refuted"


def test_a_mapping_of_pythons_own_is_asked_where_the_type_is_looked_at() -> None:
    driver = default_driver(by_label(closed=True), 1)
    assert driver is not None
    assert "{'bin': 1, 'eps': 0.12}" in driver.words
    assert Pair([], [10], 1) in driver.pairs


def test_the_script_asks_what_the_audit_asked() -> None:
    obj = batches(refunded=True)
    driver, held = _held(obj)
    place = driver.others.index(next(o for o in driver.others if o.words == held.words))
    assert held.place == f".others[{place}]"
    again = default_driver(obj, 1)
    assert again is not None
    assert eval(f"again{held.place}").words == held.words  # noqa: S307 - as the report prints it
