"""The hybrid: what the means cost, who is asked about what, and what a store remembers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from sklearn.datasets import load_digits

from opendp_sim.accounting.session.session import Session
from opendp_sim.core.errors import BudgetError, InternalError, SpaceError
from opendp_sim.core.pipeline import bind_steps
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.measurements.knn._impl import class_means as _knn_means
from opendp_sim.measurements.knn._impl.class_means import ClassMeans, means_scale
from opendp_sim.measurements.knn._impl.features import Lens
from opendp_sim.measurements.knn.hybrid_knn import Doubt, Hybrid, HybridKnn
from opendp_sim.measurements.knn.ind_knn import IndKnn

dp.enable_features("contrib")
PIXELS, DIGIT = load_digits(return_X_y=True)
GRID = GridRows(width=64, labels=tuple(range(10)), unit=1 / 16, upper=(256,))
VALUES = np.rint(PIXELS * 16)
TRAIN, QUERIES = Rows(VALUES[:1297], DIGIT[:1297]), VALUES[1297:1497]
SETTING = HybridKnn(rho=0.5, queries=200, size=1300)


def test_a_record_moves_the_means_by_no_more_than_the_scale_is_for(monkeypatch):
    """Lemma 1, exactly: the noiseless cells of neighbours, against OpenDP's map at the scale."""
    monkeypatch.setattr(_knn_means, "add_rounded_gaussian", lambda cells, scale: cells)
    lens = Lens.plain(GRID, normalise=True).centred_on(QUERIES)
    dtype = lens.dtype("test")
    values = np.concatenate([VALUES[:40], np.zeros((1, 64)), np.full((1, 64), 256.0)])
    labels = np.concatenate([DIGIT[:40], [0, 9]])
    rho = Fraction(1, 7)
    scale = means_scale(lens, rho)
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
    native = dp.m.make_gaussian(*space, scale)
    full = ClassMeans.release(lens, lens.see(values, dtype), labels, 10, rho).cells
    worst = 0.0
    for gone in range(len(values)):
        keep = np.arange(len(values)) != gone
        less = ClassMeans.release(lens, lens.see(values[keep], dtype), labels[keep], 10, rho).cells
        square = int(((full - less) ** 2).sum())
        assert Fraction(square) / (2 * Fraction(scale) ** 2) <= rho
        worst = max(worst, native.map(float(square) ** 0.5))
    assert float(rho) * 0.98 < worst <= float(rho)


def test_the_two_budgets_add_up_to_no_more_than_the_whole():
    for rho, share in ((0.1, 0.7), (1e-3, 1 / 3), (7.3, 0.01)):
        setting = HybridKnn(rho=rho, queries=9, size=99, share=share)
        whole = setting.means_rho + Fraction(setting.neighbours_setting.rho)
        assert Fraction(rho) * (1 - Fraction(1, 2**50)) < whole <= Fraction(rho)


@pytest.mark.parametrize(("strength", "right"), [(0.0, 0.7), (0.4, 0.7), (1.0, 0.6), (4.0, 0.8)])
def test_votes_overturn_the_means_where_that_is_likelier(strength, right):
    """Against the best rule that knows the law; a fixed stream of 4,000 leads in batches."""
    draw = np.random.default_rng(5)
    truth = draw.random(4000) < right
    leads = np.where(truth, strength, -strength) + draw.normal(size=4000)
    doubt, said = Doubt(), []
    for part in np.split(leads, 40):
        doubt.learn(part)
        said.append(~doubt.overturned(part))
    best = 2 * strength * leads > -np.log(right / (1 - right))
    learned, known = ((np.asarray(of).ravel() == truth).mean() for of in (said, best))
    assert learned > known - 0.015
    votes_alone = ((leads > 0) == truth).mean()
    if strength < 1:
        assert learned > votes_alone + 0.05


def test_votes_of_nothing_but_noise_change_nothing():
    doubt = Doubt()
    doubt.learn(np.zeros(1000))
    assert not doubt.overturned(np.array([-40.0, 3.0])).any()


def test_means_are_released_once_and_survive(tmp_path, monkeypatch):
    stages = bind_steps(GRID, Symmetric(), [SETTING])
    with Session(stages, lambda: [TRAIN], tmp_path / "s") as session:
        session.refer(QUERIES)
        cells = session._service._means.cells
        session.ask(QUERIES[:40])
        session.ask(QUERIES[40:90])
        left, learned = session._service._purses_now(), session._service._doubt
    assert learned.seen > Doubt().seen
    monkeypatch.setattr(ClassMeans, "release", lambda *_: 1 / 0)
    with Session(stages, lambda: [TRAIN], tmp_path / "s") as session:
        assert np.array_equal(session._service._means.cells, cells)
        assert np.array_equal(session._service._purses_now(), left)
        assert session._service._doubt == learned
        assert len(session.ask(QUERIES[40:45]).labels) == 5


def test_a_session_counts_easy_answers_and_keeps_its_records(tmp_path):
    stages = bind_steps(GRID, Symmetric(), [SETTING])
    with Session(stages, lambda: [TRAIN], tmp_path / "s") as session:
        session.refer(QUERIES)
        session.ask(QUERIES[:60])
        assert session.answered == 60
        for update, records in (
            (session.insert, TRAIN),
            (session.relabel, TRAIN),
            (session.delete, [1]),
        ):
            with pytest.raises(SpaceError, match="OS201"):
                update(records)
        assert len(session.ask(QUERIES[:3]).labels) == 3


def test_a_failure_ends_it(monkeypatch):
    service = Hybrid(SETTING, GRID, TRAIN)
    service.refer(QUERIES)
    with monkeypatch.context() as patched:
        patched.setattr(ClassMeans, "scores", lambda *_: 1 / 0)
        with pytest.raises(InternalError, match="OS902"):
            service.predict(QUERIES[:3])
    assert not service._purses_now().any()
    with pytest.raises(BudgetError, match="OS406"):
        service.predict(QUERIES[:3])


def test_the_plan_warns_where_a_one_off_release_does_better():
    """Neighbourhoods of 4 sqrt(T / B) records, in classes of n / 10."""

    def said(size, *, hybrid):
        whole = SETTING.model_copy(update={"size": size, "queries": 100})
        setting = whole if hybrid else IndKnn(rho=0.5, queries=100, size=size)
        return setting.bind(GRID, Symmetric()).reason

    for hybrid in (False, True):
        assert "one-off release usually serves better" in said(500, hybrid=hybrid)
        assert "of 1.1 classes" in said(500, hybrid=hybrid)
        assert "one-off" not in said(2000, hybrid=hybrid)
    assert "hybrid" not in said(500, hybrid=False)
    assert "or `hybrid_knn`" in said(1000, hybrid=False)
    assert "`ind_knn` alone" in said(2000, hybrid=True)
    between = said(1000, hybrid=True)
    assert "one-off" not in between
    assert "`ind_knn`" not in between


def test_measured_noise_of_the_means_is_what_the_plan_says(monkeypatch):
    """Against the sum of a class of the guessed size: what is said, and 4 % for the classes' counts."""
    service = Hybrid(SETTING, GRID, TRAIN)
    with monkeypatch.context() as quiet:
        quiet.setattr(_knn_means, "add_rounded_gaussian", lambda cells, scale: cells)
        exact = Hybrid(SETTING, GRID, TRAIN)
        exact.refer(QUERIES)
    service.refer(QUERIES)
    noise = (service._means.cells - exact._means.cells)[:, :-1]
    lengths = service._lens.norm * SETTING.size / 10
    promised = SETTING.bind(GRID, Symmetric()).expected["relative_noise_of_its_means"]
    band = 5 / np.sqrt(2 * noise.size)  # 1e-6
    assert promised * (1 - band) < noise.std() / lengths < promised * 1.05 * (1 + band)
