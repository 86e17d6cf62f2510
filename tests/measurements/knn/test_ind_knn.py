"""The running service: OpenDP's view of it, noise, failures, updates, and what it predicts."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given, strategies as st
from opendp.mod import OpenDPException
from sklearn.datasets import load_digits

from opendp_sim.accounting.session.session import Session
from opendp_sim.core.errors import (
    BudgetError,
    DataError,
    InternalError,
    ParameterError,
    SimError,
    SpaceError,
)
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps
from opendp_sim.domains.ids import id_array, pack_ids, unpack_ids
from opendp_sim.domains.metrics import IdDistance, Symmetric
from opendp_sim.domains.rows import GridRows, RealRows, Rows
from opendp_sim.dsl.types.error_terms import of_release
from opendp_sim.measurements.knn._impl.calibration import Rule
from opendp_sim.measurements.knn._impl.predictor import Predictor
from opendp_sim.measurements.knn._impl.public_votes import QueryRows, Reference, scores_between
from opendp_sim.measurements.knn._impl.stored import Owners
from opendp_sim.measurements.knn._impl.vote_noise import Stock
from opendp_sim.measurements.knn.ind_knn import IndKnn, make_ind_knn
from opendp_sim.transformations.row_maps.quantize import make_quantize

dp.enable_features("contrib")
GRID = GridRows(width=2, labels=("left", "up"), unit=0.01, lower=(-100,), upper=(100,))
OWNED = GridRows(width=2, labels=("left", "up"), ids=True, unit=0.01, lower=(-100,), upper=(100,))
LEFT, UP = [-100.0, 0.0], [0.0, 100.0]
DATA = Rows(np.repeat([LEFT, UP], 500, axis=0), np.repeat([0, 1], 500))
PLAIN = {"rho": 0.5, "queries": 50, "size": 1000, "threshold": 0.5, "centre": False}


def predictor(data=DATA, grid=GRID, **changed):
    return Predictor(IndKnn(**(PLAIN | changed)), grid, data)


# --- OpenDP's view --------------------------------------------------------------------------------


def test_an_opendp_user_needs_nothing_else():
    space = RealRows(width=2, labels=("left", "up")), Symmetric()
    rows = make_quantize(*space, bits=8, bounds=(-1.0, 1.0))
    chain = rows >> make_ind_knn(rows.output_domain, rows.output_metric, **PLAIN)
    assert [chain.map(d) for d in (0, 1, 2, 3)] == [0.0, 0.5, 2.0, 4.5]
    ask = chain(Rows(DATA.values / 100, DATA.labels))
    assert ask(np.array([[-100.0, 1.0], [3.0, 90.0]])).labels == ("left", "up")


def test_inside_adaptive_composition_children_stay_open_and_are_no_more_than_agreed():
    """Concurrent composition is sound under zCDP, and OpenDP allows it there."""
    space = GRID, Symmetric()
    first, second = make_ind_knn(*space, **PLAIN), make_ind_knn(*space, **(PLAIN | {"rho": 0.25}))
    both = dp.c.make_adaptive_composition(
        first.input_domain, first.input_metric, first.output_measure, d_in=1, d_mids=[0.5, 0.25]
    )
    assert both.map(1) == 0.75
    ask = both(DATA)
    one, two = ask(first), ask(second)
    assert one(np.array([LEFT])).labels == ("left",)
    assert two(np.array([UP])).labels == ("up",)
    with pytest.raises(OpenDPException):
        ask(first)


def test_inside_approximate_composition_an_earlier_child_is_locked():
    made = dp.c.make_approximate(make_ind_knn(GRID, Symmetric(), **PLAIN))
    both = dp.c.make_adaptive_composition(
        made.input_domain, made.input_metric, made.output_measure, d_in=1, d_mids=[(0.5, 0.0)] * 2
    )
    ask = both(DATA)
    one = ask(made)
    assert one(np.array([LEFT])).labels == ("left",)
    assert ask(made)(np.array([UP])).labels == ("up",)
    with pytest.raises(OpenDPException):
        one(np.array([LEFT]))


def test_inside_the_context_api():
    made = make_ind_knn(GRID, Symmetric(), **PLAIN)
    context = dp.Context.compositor(
        data=DATA,
        privacy_unit=(Symmetric().native(), 1),
        privacy_loss=dp.loss_of(rho=1.0),
        split_evenly_over=2,
        domain=made.input_domain,
    )
    assert context(made)(np.array([UP])).labels == ("up",)


def test_by_person_the_distance_counts_persons():
    made = make_ind_knn(OWNED, IdDistance("who"), **PLAIN)
    assert made.map(2) == 2.0
    with pytest.raises(SpaceError, match="OS202"):
        make_ind_knn(OWNED, Symmetric(), **PLAIN)
    with pytest.raises(SpaceError, match="OS202"):
        make_ind_knn(GRID, IdDistance("who"), **PLAIN)


def test_refusals_name_the_fault():
    with pytest.raises(SpaceError, match="OS204"):
        make_ind_knn(GridRows(width=2, upper=(9,)), Symmetric(), **PLAIN)
    for changed in ({"normalise": False}, {"search": "sign_hashes", "normalise": False}):
        with pytest.raises(ParameterError, match=r"OS102 ind_knn\.normalise"):
            make_ind_knn(GRID, Symmetric(), **(PLAIN | changed))


# --- what is answered -----------------------------------------------------------------------------


def test_noise_is_added_where_nobody_is_near():
    """P(40 exact zeros in a row) is below 1e-30 for any scale above 1."""
    empty = Rows(np.empty((0, 2)), np.empty(0, dtype=int))
    for data in (empty, Rows(np.array([LEFT]), np.array([0]))):
        answers = predictor(data).predict(np.array([UP] * 40))
        assert (answers.votes != 0).any()
        assert (answers.counts != 0).any()
        assert set(answers.labels) == {"left", "up"}


def test_measured_vote_noise_is_what_the_answer_and_the_plan_say():
    """2,000 noise values of 2 cells; the band is 5 deviations of a sample deviation: 1e-6."""
    service = predictor(queries=2000, rho=50.0, size=1000, count_scale=5.0, vote_scale=0.3)
    answers = service.predict(np.array([[-70.0, -70.0]] * 1000))  # near to the left half only
    floored = np.maximum(answers.counts, service._scales.minimum)
    ratio = (answers.deviations / 0.3) ** 2 / floored
    assert ((ratio > 1 - 1e-9) & (ratio < 1 + 1 / 32)).all()
    standard = answers.votes[:, 1] / answers.deviations
    assert abs(standard.std() - 1) < 5 / np.sqrt(2 * 1000)
    rule = Rule(0.5, 1000, 10_000, 2)
    scale = rule.vote_scale(0.7) * np.sqrt(rule.neighbours)
    facts = rule.facts(rule.count_scale, None, rule.minimum_count)
    assert facts["relative_vote_noise"] == pytest.approx(scale / (0.7 * rule.neighbours))


def test_a_stated_scale_of_votes_is_told_in_votes():
    """7 % of the votes was told where 14 % was measured on digits: neighbours weigh less than one vote."""
    rule = Rule(0.108, 500, 1300, 10)
    facts = rule.facts(rule.count_scale, 0.88, rule.minimum_count)
    assert "relative_vote_noise" not in facts
    assert facts["noise_of_votes"] == pytest.approx(0.88 * np.sqrt(rule.neighbours))
    told = of_release(facts, lookup("ind_knn"))
    assert told is not None
    assert told.line == f"95% of vote counts within ±24 votes, of {rule.neighbours:.0f} neighbours"


@pytest.mark.parametrize(
    ("given", "others"),
    [
        ({}, True),
        ({}, False),
        ({"vote_scale": 0.4}, False),
        ({"minimum_count": 90}, False),
        ({"count_scale": 40.0, "vote_scale": 0.4, "minimum_count": 200}, True),
    ],
)
def test_a_record_serves_what_the_plan_says(monkeypatch, given, others):
    """With exact counts: spread over its neighbours, or near to every query and alone there."""
    setting = IndKnn(rho=0.2, queries=400, size=4000, threshold=0.5, centre=False, **given)
    facts = setting.bind(GRID, Symmetric()).expected
    if not given:
        assert facts["queries_a_typical_record_serves"] == pytest.approx(400 / 0.55)
    near = round(facts["neighbours"]) if others else 1
    service = Predictor(setting, GRID, Rows(np.array([LEFT] * near), np.zeros(near, dtype=int)))
    service._scales = setting.scales(1.0, 2)  # as a public reference of weight 1 would set them
    monkeypatch.setattr(Stock, "noisy", lambda _, cells, scale: cells)
    served = 0
    while service.predict(np.array([LEFT])).votes[0, 0] >= near:
        served += 1
    if others:
        promised = facts["queries_a_typical_record_serves"] * facts["neighbours"] / 4000
    else:
        promised = facts["queries_a_record_near_to_all_serves"]
    assert served == pytest.approx(promised, rel=0.05, abs=1)


@pytest.mark.parametrize(("size", "queries"), [(100, 30), (400, 100)])
def test_one_query_again_and_again_empties_its_neighbours_when_the_plan_says(size, queries):
    """A run as it is: the lower bounds hold whatever the noise, the upper one but for less than 1e-6."""
    pixels, digit = load_digits(return_X_y=True)
    grid = GridRows(width=64, labels=tuple(range(10)), unit=1 / 16, upper=(256,))
    values = np.rint(pixels * 16)
    setting = IndKnn(rho=0.37, queries=queries, size=size)
    promised = setting.bind(grid, Symmetric()).expected["queries_a_record_near_to_all_serves"]
    service = Predictor(setting, grid, Rows(values[:size], digit[:size]))
    service.refer(values[1297:])
    left, served = [service._purses_now()], np.zeros(size)
    for _ in range(round(4 * promised)):
        service.predict(values[1300:1301])
        left.append(service._purses_now())
        served += left[-1] < left[-2]
    near = served[left[-1] < left[0]]
    assert near.size >= 5
    assert promised / 2 < np.median(near) < 2 * promised
    assert near.min() > promised / 3


def test_a_plan_says_how_long_a_record_near_to_every_query_lasts():
    """Few queries of few records: 54 by the average, three by the record that is asked each time."""
    claim = IndKnn(rho=0.36, queries=30, size=900).bind(GRID, Symmetric())
    spread, near = (
        claim.expected[f"queries_a_{who}_serves"]
        for who in ("typical_record", "record_near_to_all")
    )
    assert f"about {spread:,.0f} queries if each finds" in claim.reason
    assert f"about {near:,.0f} if it is near to all" in claim.reason
    assert near < spread / 10


def test_a_neighbourhood_is_hardly_larger_than_a_class():
    few, many = Rule(0.01, 500, 1300, 2), Rule(0.01, 500, 1300, 10)
    assert few.neighbours == pytest.approx(0.4 * 1300)  # two classes: the old bound holds first
    assert many.neighbours == pytest.approx(1.3 * 130)
    assert Rule(0.1, 100, 60_000, 10).neighbours == pytest.approx(120)  # noise alone asks for 32
    assert Rule(5.0, 10, 1000, 10).neighbours == pytest.approx(10)  # of classes of 100
    assert many.share == pytest.approx(0.13)
    assert Rule(5.0, 500, 1300, 10).neighbours == pytest.approx(4 * np.sqrt(100))
    assert Rule(0.01, 500, 1300, 10, wanted=700).neighbours == 700
    grid = GridRows(width=2, labels=tuple(range(10)), lower=(-9,), upper=(9,))
    setting = IndKnn(rho=0.01, queries=500, size=1300)
    assert setting.bind(grid, Symmetric()).expected["neighbours"] == many.neighbours
    empty = Rows(np.zeros((0, 2)), np.zeros(0, dtype=np.int64))
    assert Predictor(setting, grid, empty)._rule.neighbours == many.neighbours


def test_digits_are_recognised():
    """Accuracy is about 0.94 with a deviation of 0.02; below 0.8 is more than 6 deviations away."""
    pixels, digit = load_digits(return_X_y=True)
    grid = GridRows(width=64, labels=tuple(range(10)), unit=16 / 4096, upper=(4096,))
    values = np.rint(pixels * 256)
    for search in ("exact", {"sign_hashes": {"tables": 24, "bits": 4}}):
        setting = IndKnn(rho=1.0, queries=200, size=1500, search=search)
        service = Predictor(setting, grid, Rows(values[:1500], digit[:1500]))
        answers = service.predict(values[1500:1700])
        assert (np.array(answers.labels) == digit[1500:1700]).mean() > 0.8


def test_batches_and_single_queries_do_the_same(monkeypatch):
    monkeypatch.setattr(Stock, "noisy", lambda _, cells, scale: cells)
    rng = np.random.default_rng(3)
    data = Rows(np.rint(rng.normal(0, 40, (300, 2))).clip(-100, 100), rng.integers(0, 2, 300))
    queries = np.rint(rng.normal(0, 40, (70, 2)))
    for changed in ({}, {"reuse": True}, {"kernel": "student"}, {"search": "sign_hashes"}):
        whole, single = (predictor(data, size=300, rho=0.01, **changed) for _ in range(2))
        together = whole.predict(queries)
        alone = [single.predict(q[None]) for q in queries]
        assert together.labels == tuple(a.labels[0] for a in alone)
        assert np.array_equal(together.votes, np.concatenate([a.votes for a in alone]))
        assert np.array_equal(whole._purses.snapshot(), single._purses.snapshot())


def test_hashing_with_certain_recall_answers_as_exact_search_does(monkeypatch):
    monkeypatch.setattr(Stock, "noisy", lambda _, cells, scale: cells)
    queries = np.array([[-90.0, 10], [5, 80], [-60, 61]])
    hashed = {"sign_hashes": {"tables": 200, "bits": 1}}
    one, two = predictor(), predictor(search=hashed)
    assert np.array_equal(one.predict(queries).votes, two.predict(queries).votes)


def test_earlier_answers_vote_for_free(monkeypatch):
    monkeypatch.setattr(Stock, "noisy", lambda _, cells, scale: cells)
    service = predictor(Rows(np.array([LEFT]), np.array([0])), reuse=True, rho=50.0, vote_scale=1.0)
    first = service.predict(np.array([LEFT, LEFT]))
    assert first.votes[:, 0].tolist() == [1.0, 2.0]
    assert service.predict(np.array([LEFT])).votes[0].tolist() == [3.0, 0.0]
    assert first.counts.tolist() == [1, 1]


# --- messages and failures ------------------------------------------------------------------------


def test_a_small_first_batch_needs_a_reference():
    service = predictor(threshold=None)
    with pytest.raises(DataError, match="OS607"):
        service.ask(np.array([LEFT]))
    public = np.random.default_rng(0).normal(0, 50, (60, 2))
    assert service.ask({"reference": public}) is True
    assert service.ask({"reference": public}) is False
    assert len(service.ask({"predict": np.array([LEFT])}).labels) == 1


@pytest.mark.parametrize(
    "message",
    [
        np.array([1.0, 2.0]),
        np.array([[1.0, np.nan]]),
        np.array([["a", "b"]]),
        {"predict": 3},
        {"delete": [1]},
        {},
        np.zeros((1, 3)),
    ],
)
def test_foreign_messages_are_refused_and_cost_nothing(message):
    service = predictor()
    before = service._purses.snapshot()
    with pytest.raises(DataError, match="OS607"):
        service.ask(message)
    assert np.array_equal(before, service._purses.snapshot())


def test_a_failure_is_charged_in_full_and_says_nothing(monkeypatch):
    service = predictor()

    def broken(*_):
        raise ValueError("record 17 is [1.0, 2.0]")

    monkeypatch.setattr(Stock, "noisy", broken)
    with pytest.raises(InternalError) as caught:
        service.predict(np.array([LEFT]))
    assert "17" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.code == "OS902"
    assert not service._purses.snapshot().any()
    monkeypatch.undo()
    with pytest.raises(BudgetError, match="OS406"):
        service.predict(np.array([LEFT]))


def test_an_interruption_ends_the_release(monkeypatch):
    service = predictor()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Stock, "noisy", interrupted)
    with pytest.raises(KeyboardInterrupt):
        service.predict(np.array([LEFT]))
    monkeypatch.undo()
    with pytest.raises(BudgetError, match="OS406"):
        service.ask(np.array([LEFT]))


def test_reprs_show_nothing():
    small, large = predictor(Rows(np.array([LEFT]), np.array([0]))), predictor()
    for part in ("_purses", "_owners", "_pool"):
        assert repr(getattr(small, part)) == repr(getattr(large, part))
    assert repr(small) == repr(large)


# --- updates --------------------------------------------------------------------------------------


def owned(values, labels, ids):
    return Rows(np.array(values, dtype=float), np.array(labels), np.array(ids))


def test_a_person_has_one_budget_for_life(monkeypatch):
    monkeypatch.setattr(Stock, "noisy", lambda _, cells, scale: cells)
    service = predictor(
        owned([LEFT, LEFT, UP], [0, 0, 1], ["a", "a", "b"]), OWNED, count_scale=3.0, minimum_count=1
    )
    service.predict(np.array([LEFT]))
    spent = service._purses.snapshot()
    assert spent[0] < spent[1] == spent.max()
    service.delete(["a", "nobody"])
    assert service.predict(np.array([LEFT])).counts.tolist() == [0]
    service.insert(owned([LEFT], [1], ["a"]))
    assert service._purses.snapshot()[0] == spent[0]
    service.insert(owned([UP], [1], ["c"]))
    assert service._purses.snapshot()[2] == spent.max()
    service.relabel(owned([LEFT], [0], ["b"]))
    assert service.predict(np.array([UP])).counts.tolist() == [1]
    assert service._purses.snapshot()[0] == spent[0]


def test_two_records_of_one_person_pay_for_both(monkeypatch):
    monkeypatch.setattr(Stock, "noisy", lambda _, cells, scale: cells)
    pair = predictor(owned([LEFT, LEFT], [0, 1], [5, 5]), OWNED, count_scale=9.0, vote_scale=1.0)
    two = predictor(owned([LEFT, LEFT], [0, 1], [5, 6]), OWNED, count_scale=9.0, vote_scale=1.0)
    query = np.array([LEFT])
    assert pair.predict(query).counts.tolist() == two.predict(query).counts.tolist() == [2]
    full = int(predictor()._purses.snapshot()[0])
    cost_pair, cost_one = (full - int(s._purses.snapshot()[0]) for s in (pair, two))
    assert cost_pair == pytest.approx(4 * cost_one, rel=1e-6)


def test_updates_before_the_first_query_and_without_ids():
    service = predictor(owned([LEFT], [0], [1]), OWNED, threshold=None)
    service.insert(owned([UP], [1], [2]))
    service.delete([1])
    service.ask({"reference": np.random.default_rng(0).normal(0, 50, (60, 2))})
    assert service._pool.labels[: service._pool.size].tolist() == [1]
    with pytest.raises(DataError, match="OS607"):
        predictor().delete([1])


@pytest.mark.parametrize(
    "ids",
    [
        np.array(["p", "p\0", "p\0\0"], dtype=object),
        np.array(["1", "1 ", "01"], dtype=object),
        np.array([2**53, 2**53 + 1, -1]),
    ],
)
def test_ids_that_differ_are_different_persons(ids, monkeypatch):
    """One purse each: what happens to one is nothing to the others, now and after a replay."""
    monkeypatch.setattr(Stock, "noisy", lambda _, cells, scale: cells)
    rows = Rows(np.array([LEFT, LEFT, UP]), np.array([0, 0, 1]), ids)
    service = predictor(rows, OWNED, count_scale=9.0, vote_scale=9.0)
    service.predict(np.array([LEFT]))
    purses = service._purses.snapshot()
    assert purses[0] == purses[1] < purses[2] == purses.max()
    service.delete([ids.tolist()[1]])
    assert service.predict(np.array([LEFT])).counts.tolist() == [1]
    assert service._purses.snapshot()[1] == purses[1]
    waiting = predictor(rows, OWNED, threshold=None)
    waiting.delete([ids.tolist()[1]])
    (left, owners) = waiting._waiting[0]
    assert left.ids.tolist() == ids.tolist()[::2]
    assert owners.tolist() == [0, 2]


@pytest.mark.parametrize(("ids", "foreign"), [([1, 2], "1"), (["1", "2"], 1)])
def test_ids_of_the_other_kind_are_refused_and_change_nothing(ids, foreign):
    service = predictor(owned([LEFT, UP], [0, 1], ids), OWNED)
    for update in (
        lambda: service.delete([foreign]),
        lambda: service.insert(owned([UP], [1], [foreign])),
        lambda: service.relabel(owned([UP], [1], [foreign])),
    ):
        with pytest.raises(DataError, match="OS607"):
            update()
    with pytest.raises(DataError, match="OS602"):
        service.delete([ids])
    assert service._pool.alive[:2].all()
    assert service._pool.size == len(service._purses.snapshot()) == 2
    assert service.predict(np.array([LEFT])).labels


@given(
    st.lists(st.text(max_size=3), max_size=6)
    | st.lists(st.integers(-(2**63), 2**64 - 1), max_size=6)
)
def test_kept_ids_come_back_as_they_were(ids):
    assert unpack_ids(pack_ids(ids)).tolist() == ids
    assert len(pack_ids(ids)) == len(pack_ids(id_array(ids)))
    # A store is bound to these bytes: they are JSON's, however they are made.
    written = json.dumps(ids, ensure_ascii=False).encode("utf-8", "surrogatepass")
    assert pack_ids(ids).tobytes() == written
    owners = Owners(id_array(ids))
    first = list(dict.fromkeys(ids))  # purses are numbered as their owners come
    assert owners.meet(ids).tolist() == [first.index(one) for one in ids]
    assert owners.count == len(first)
    assert owners.meet(ids[::-1]).tolist() == [first.index(one) for one in ids[::-1]]


@pytest.mark.parametrize(
    "ids",
    [
        np.zeros(1, dtype=int),
        np.zeros(3, dtype=int),
        np.zeros((2, 2), dtype=int),
        np.array(7),
        np.array([np.nan, 1.0]),
        np.array([b"a", b"b"]),
        np.array([True, False]),
        ["a", "b", "c"],
        np.array(["a", None], dtype=object),
        np.array([1, "1"], dtype=object),
        np.array([1, True], dtype=object),
        np.array([[1], "b"], dtype=object),
    ],
)
def test_ids_that_name_no_person_are_outside_the_domain(ids, tmp_path):
    rows = Rows(np.array([LEFT, UP]), np.array([0, 1]), ids)
    for domain in (OWNED, RealRows(width=2, labels=("left", "up"), ids=True)):
        with pytest.raises(DataError, match="OS602"):
            domain.check(rows)
    stages = bind_steps(OWNED, IdDistance("who"), [IndKnn(**PLAIN)])
    with pytest.raises(SimError, match="OS602" if np.ndim(ids) else "OS902"):
        Session(stages, lambda: [rows], tmp_path / "s.session")
    assert not (tmp_path / "s.session").exists()
    service = predictor(owned([LEFT, UP], [0, 1], [1, 2]), OWNED)
    for update in (service.insert, service.relabel):
        with pytest.raises(DataError, match="OS602"):
            update(rows)
    assert service.predict(np.array([LEFT])).labels


def test_nothing_of_the_records_is_said_while_a_session_opens(tmp_path, monkeypatch):
    def broken(*_):
        raise KeyError("person 17")

    stages = bind_steps(OWNED, IdDistance("who"), [IndKnn(**PLAIN)])
    monkeypatch.setattr(Owners, "meet", broken)
    with pytest.raises(InternalError, match="OS902") as caught:
        Session(stages, lambda: [owned([LEFT], [0], [17])], tmp_path / "s.session")
    assert "17" not in str(caught.value)
    assert caught.value.__context__ is None


def test_the_record_is_json():
    setting = IndKnn(**PLAIN, search={"sign_hashes": {"recall": 0.8}}, kernel="rbf")
    assert IndKnn.from_spec(json.loads(json.dumps(setting.spec()))) == setting


def test_threads_take_turns_at_the_purses(monkeypatch):
    """Eight threads ask about one record at once: its purse pays as often as one thread's would."""
    monkeypatch.setattr(Stock, "noisy", lambda _, cells, scale: cells)
    rows = Rows(np.array([LEFT]), np.array([0]))
    alone = predictor(rows)
    served = sum(alone.predict(np.array([LEFT])).counts[0] for _ in range(64))
    assert 0 < served < 64
    shared = predictor(rows)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: shared.predict(np.array([LEFT])).counts[0], range(64)))
    assert sum(found) == served


def test_a_fork_cannot_ask():
    service = predictor()
    service._process += 1
    with pytest.raises(BudgetError, match="OS407"):
        service.predict(np.array([LEFT]))


REFERENCE = np.random.default_rng(8).integers(-100, 101, (60, 2)).astype(float)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "given",
    [
        {"vote_scale": 1e-300},
        {"count_scale": 1e-300},
        {"count_scale": 2.0**40},
        {"rho": 1e-30},
        {"rho": 1e6},
        {"vote_scale": 2.0**40, "levels": 4096, "minimum_count": 10**9},
        {"threshold": 5e-324},
        {"kernel": {"rbf": {"bandwidth": 1e300}}},
        {"kernel": {"rbf": {"bandwidth": 1e-300}}},
        {"kernel": {"student": {"bandwidth": 1e200}}, "normalise": False},
        {"neighbours": 10**9},
        {"size": 2, "queries": 10**9, "rho": 1e-30},
        {"size": 10**12, "queries": 1, "rho": 1e6},
        {
            "search": {"sign_hashes": {"recall": 0.999999, "bits": 16}},
            "threshold": 1e-9,
            "kernel": {"student": {"bandwidth": 1e-3}},
        },
        {"search": {"sign_codes": {"recall": 1 - 1e-16}}},
    ],
)
@pytest.mark.parametrize("records", [0, 1, 40])
@pytest.mark.parametrize("reference", [None, REFERENCE, np.zeros((2, 2))])
def test_extreme_settings_answer_and_plan(given, records, reference):
    """Scales that cannot be drawn are not used: a session never ends because of its settings."""
    plain = {"rho": 0.5, "queries": 10, "size": 100, "threshold": 0.5, "centre": False} | given
    setting = IndKnn(**plain)
    claim = setting.bind(GRID, Symmetric())
    assert all(np.isfinite(value) and value >= 0 for value in claim.expected.values())
    assert claim.reason
    data = Rows(np.array([LEFT] * records).reshape(-1, 2), np.zeros(records, dtype=int))
    service = Predictor(setting, GRID, data)
    if reference is not None:
        service.refer(reference)
    before = service._purses_now()
    answers = service.predict(np.array([LEFT, [0.0, 0.0]]))
    assert np.isfinite(answers.votes).all()
    assert ((service._purses_now() >= 0) & (service._purses_now() <= before)).all()


@pytest.mark.parametrize(
    ("size", "queries"), [(60_000, 100), (60_000, 500), (10**6, 50), (2000, 3)]
)
def test_being_near_to_one_query_never_takes_the_purse(size, queries):
    """Large sets and few queries: the mean record is near to none, and one that is near still votes."""
    rule = Rule(0.1, queries, size, 10)
    counted = 1 / (2 * rule.count_scale**2)
    voted = 1 / (2 * rule.vote_scale(1.0) ** 2 * rule.neighbours)
    assert counted + voted < 0.3 * rule.rho


def test_thresholds_from_few_queries_are_those_of_all_queries_together():
    """A hundred of them and one record in a thousand: the highest score of each is mostly luck."""
    rng = np.random.default_rng(3)
    rows = np.rint(rng.normal(0, 60, (3100, 40)))
    few, strangers = QueryRows.of(rows[:100]), QueryRows.of(rows[100:])
    own = Reference(few, 0.01, -(2**40))
    for angular in (True, False):
        limits = own.thresholds(few, angular=angular)
        scores = scores_between(few, few, angular=angular)
        np.fill_diagonal(scores, np.iinfo(np.int64).min)
        assert (limits <= scores.max(axis=1)).all()
        found = (scores_between(few, strangers, angular=angular) >= limits[:, None]).mean(axis=1)
        lucky = scores.max(axis=1)[:, None]
        alone = (scores_between(few, strangers, angular=angular) >= lucky).mean(axis=1)
        assert found.min() > alone.min()
        assert 0.005 < np.median(found) < 0.02
        twice = QueryRows.of(np.concatenate([rows[:100], rows[:100]]))
        again = Reference(twice, 0.01, -(2**40)).thresholds(few, angular=angular)
        assert (again <= scores.max(axis=1)).all()  # copies of a query are no strangers


def test_two_halves_of_a_character_are_the_same_person_in_updates() -> None:
    """JSON's escapes joined them into the character: a person who was deleted stayed, and had two purses."""
    space = GridRows(width=2, labels=(0, 1), ids=True, unit=0.01, lower=(-100,), upper=(100,))
    for who in ("\ud83d\ude00", "\U0001f600"):
        rows = Rows(np.array([[100.0, 0.0]]), np.array([0]), id_array([who]))
        service = IndKnn(
            rho=4.0,
            queries=1,
            size=2,
            threshold=0.5,
            centre=False,
            count_scale=1.0,
            vote_scale=1.0,
            levels=1,
        ).resume(space, rows)
        service.relabel(rows)
        assert service._owners.count == 1
        service.delete([who])
        assert not service._pool.alive[: service._pool.size].any()
