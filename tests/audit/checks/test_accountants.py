"""L5: closed forms, dp-accounting and our own quadrature agree, and refute a claim that is too small."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from opendp_sim.audit import NoiseLaw, Subject
from opendp_sim.audit.checks.accountants import (
    accounting_layer,
    attained_delta,
    pld_delta,
    quadrature_delta,
)
from opendp_sim.audit.claims.curves import gaussian_delta
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.core.errors import AuditError
from tests.audit.stand_ins import LINE, PURE, SYMMETRIC


def test_accountants_agree_with_closed_forms():
    epsilons = np.array([0.0, 0.5, 1.0])
    attained, how = attained_delta(NoiseLaw("gaussian", 2.0), np.array([2.0]), epsilons)
    assert how == "the closed form"
    ours = quadrature_delta(NoiseLaw("discrete_gaussian", 40.0), np.array([40.0]), epsilons)
    assert np.allclose(ours, attained, atol=2e-3)
    assert (ours <= attained + 1e-6).all()
    laplace_law = quadrature_delta(NoiseLaw("laplace", 1.0), np.array([1.0]), epsilons)
    exact = np.maximum(0, 1 - np.exp((epsilons - 1) / 2))
    assert np.allclose(laplace_law, exact, atol=2e-3)


EPSILONS = np.array([0.25, 0.5, 1.0, 1.5])
ACCOUNTED = {
    "gaussian": (NoiseLaw("gaussian", 2.0), np.array([2.0])),
    "laplace": (NoiseLaw("laplace", 1.0), np.array([2.0])),
    "composition": (NoiseLaw("laplace", 2.0), np.array([1.0, 1.0, 2.0])),
    "gaussian composition": (NoiseLaw("gaussian", 4.0), np.array([4.0, 2.0])),
}


@pytest.mark.parametrize("name", ACCOUNTED)
def test_dp_accounting_agrees_with_closed_form_or_quadrature(name: str):
    """Closed forms where there are some, to the grid of the losses (1e-3); else our quadrature."""
    pytest.importorskip("dp_accounting")
    law, shift = ACCOUNTED[name]
    theirs = pld_delta(law, shift, EPSILONS)
    if law.gaussian:
        mu = float(np.linalg.norm(shift)) / float(law.scale)
        exact = np.array([gaussian_delta(mu, float(e)) for e in EPSILONS])
    elif len(shift) == 1:
        exact = np.maximum(0, 1 - np.exp((EPSILONS - float(shift[0] / law.scale)) / 2))
    else:
        exact = quadrature_delta(law, shift, EPSILONS)
    assert np.allclose(theirs, exact, atol=3e-3)
    if law.gaussian or len(shift) == 1:
        assert (theirs <= exact + 1e-6).all()


def _claims(share: float) -> Subject:
    """Two Laplace cells of scale 1, moved by one each: the loss is 2, the claim ``share`` of that."""
    return Subject(
        run=lambda x: None,
        input_domain=LINE,
        input_metric=SYMMETRIC,
        measure=PURE,
        privacy_map=lambda d: 2.0 * share * d,
        core=lambda x: np.array([len(x)] * 2, float),
        noise=NoiseLaw("laplace", 1.0),
    )


def test_dp_accounting_refutes_a_claim_two_percent_too_small():
    pytest.importorskip("dp_accounting")
    found = accounting_layer(_claims(0.98), Pair([], [1], 1))
    assert found.status == "refuted"
    assert found.facts["accountant"] == "dp-accounting"
    for fine in (1.0, 1.02):
        assert accounting_layer(_claims(fine), Pair([], [1], 1)).status == "not refuted"


def test_without_dp_accounting_the_error_says_so_and_the_quadrature_decides(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    law, shift = ACCOUNTED["laplace"]
    with pytest.raises(AuditError, match="OS503") as error:
        pld_delta(law, shift, EPSILONS)
    assert "pip install" in str(error.value)
    missing = lambda name, *rest: None  # noqa: E731
    monkeypatch.setattr("opendp_sim.audit.checks.accountants.importlib.util.find_spec", missing)
    found = accounting_layer(_claims(0.98), Pair([], [1], 1))
    assert found.status == "refuted"
    assert found.facts["accountant"] == "quadrature of our own"
