"""The checker's formulas, written from the page alone, give what OpenDP's maps give."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path

import opendp.prelude as dp
import pytest

import opendp_sim
import opendp_sim.prelude
from opendp_sim.accounting.certificate import check_certificate as checker
from opendp_sim.accounting.certificate.certificate import FORMULAS
from opendp_sim.accounting.certificate.check_certificate import (
    CURVE,
    LOSSES,
    STEPS,
    GapError,
    RowType,
    State,
    VoteType,
    near,
    step_after,
)
from opendp_sim.core.bridge import build
from opendp_sim.core.claims import Private, Stable
from opendp_sim.core.errors import BudgetError
from opendp_sim.core.mechanism import REGISTRY
from opendp_sim.domains.counts import OpenCounts
from opendp_sim.domains.metrics import IdDistance
from opendp_sim.domains.records import Records
from opendp_sim.domains.rows import GridRows, RealRows
from tests._tiers import tiered
from tests.cases import cases

CASES = {key: case for key, case in cases().items() if case.mechanism.room != "queries"}
PAGE = Path(opendp_sim.__file__).parent / "accounting" / "certificate" / "certificate.md"
WITHOUT = {"private_knn"}
"""Mechanisms whose loss has no formula on the page: a certificate names each as a gap."""


def state_of(case) -> State:
    """Return what the checker would know before a step, from the case's space."""
    domain, metric = case.domain, case.metric
    by = metric.identifier_column if isinstance(metric, IdDistance) else "row"
    if isinstance(domain, Records):
        columns = {
            c.name: {
                "dtype": c.dtype,
                "bounds": list(c.bounds) or None,
                "keys": list(c.keys),
                "role": c.role,
            }
            for c in domain.columns
        }
        return State({"columns": columns}, by)
    if isinstance(domain, OpenCounts):
        return State({}, "users", VoteType(domain.universe, False, metric.touched))
    if not isinstance(domain, GridRows | RealRows):
        return State({}, "users", VoteType(domain.size, True, getattr(metric, "touched", None)))
    ends = [
        tuple(end) * (domain.width // max(len(end), 1)) or None
        for end in (domain.lower, domain.upper)
    ]
    if isinstance(domain, GridRows):
        return State({}, by, RowType(domain.width, *ends, unit=domain.unit, l2=domain.l2))
    lattice = None if domain.lattice is None else Fraction(domain.lattice)
    return State({}, by, RowType(domain.width, *ends, norm=domain.norm, lattice=lattice))


def test_every_mechanism_has_a_formula_in_the_package_the_checker_and_the_page() -> None:
    known = {key for key, cls in REGISTRY.items() if cls.room != "queries"} - WITHOUT
    rows = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE))
    assert set(FORMULAS) == known == set(STEPS) | set(LOSSES)
    assert known <= rows, sorted(known - rows)


@pytest.mark.parametrize("key", tiered(sorted(CASES), lambda key: "/" not in key))
def test_formula_is_the_map(key: str) -> None:
    case = CASES[key]
    if case.mechanism.key in WITHOUT:
        return
    for record in variants(case.mechanism):
        claim = record.bind(case.domain, case.metric)
        p, state = record.spec(), state_of(case)
        checker.in_range(record.key, p)
        if isinstance(claim, Stable):
            compare_step(record.key, p, state, claim)
            continue
        for d in (1, 2, 5):
            compare_loss(case, record, claim, p, state, d)


def variants(record):
    """Yield the mechanism with each accounting that a budget can state."""
    known = type(record).model_fields
    if "accounting" not in known:
        yield record
        return
    given = {name: getattr(record, name) for name in known}
    fill = {"fill": "none"} if "fill" in known else {}
    yield type(record)(**{**given, "accounting": "zcdp"})
    yield type(record)(**{**given, **fill, "accounting": "curve"})


def compare_step(key, p, state, claim) -> None:
    try:
        made = step_after(key, p, state)
    except GapError as gap:
        assert "not derived" in str(gap) or "bounds" in str(gap)  # noqa: PT017 - named, not silent
        return
    kind, blocks = made if isinstance(made, tuple) else (made, ())
    if claim.sensitivity is None:
        assert claim.stability == (p["max_rows"] if key == "bound_contributions" else 1)
    else:
        found = State({}, "row", kind, blocks=tuple(blocks))
        for norm in ("l1", "l2_squared", "linf"):
            assert found.norm(norm) == getattr(claim.sensitivity, norm), norm
        assert [b.weight for b in blocks] == [b.weight for b in claim.output.blocks]
    output = claim.output
    if isinstance(kind, RowType):
        assert kind.width == output.width
        for name in ("lower", "upper", "unit", "l2", "norm"):
            mine = getattr(kind, name)
            if mine is not None and hasattr(output, name):
                stated = getattr(output, name)
                wide = (
                    stated * (kind.width // len(stated)) if name in ("lower", "upper") else stated
                )
                assert tuple(mine) == tuple(wide) if isinstance(mine, tuple) else mine == wide, name
    if isinstance(kind, VoteType):
        touched = claim.output_metric.touched
        assert (kind.listed, kind.touched) == (claim.sensitivity is not None, touched)


def compare_loss(case, record, claim, p, state, d) -> None:
    key, steps = (
        record.key,
        math.sqrt(state.type.candidates) if record.key == "gaussian_top_k" else 1,
    )
    try:
        found = build(claim, key, case.domain, case.metric).map(d)
        d *= steps  # d users move all candidates at most
    except (BudgetError, dp.OpenDPException):
        with pytest.raises((checker.WrongError, GapError)):
            LOSSES[key](p, state, d)
        return
    measure, derived = LOSSES[key](p, state, d)
    assert measure == claim.measure
    if measure == CURVE:
        for epsilon in (0.01, 0.1, 0.5, 1.0, 3.0):
            stated = found.delta(epsilon)
            assert near(stated, derived(epsilon), 1e-6) or max(stated, derived(epsilon)) < 1e-12
        return
    parts = found if isinstance(found, tuple) else (found,)
    for stated, value in zip(parts, derived, strict=True):
        assert near(float(stated), value, 2e-9 if isinstance(claim, Private) else 1e-11), (
            stated,
            value,
        )
        assert stated >= value * (1 - 1e-11)
