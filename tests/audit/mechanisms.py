"""The package's own mechanisms as audit subjects, one for each norm, from the table of cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.bridge import build
from opendp_sim.core.claims import Interactive, Post, Stable
from opendp_sim.testing import Case
from tests.cases import cases

Subjects = list[tuple[str, Callable[[], Any], dict[str, Any]]]


def audited() -> dict[str, Subjects]:
    """Every mechanism with a claim of its own: transformations in each norm, releases, and interactive
    releases, which the default driver talks to."""
    out: dict[str, Subjects] = {}
    for key, case in cases().items():
        claim = case.claim()
        if isinstance(claim, Post) or "/" in key:
            continue
        options = {} if isinstance(claim, Interactive) else {"pairs": _pairs(case)}
        norms: tuple[Any, ...] = (
            ("l1", "l2", "linf") if isinstance(claim, Stable) and claim.sensitivity else (None,)
        )
        out[key] = [
            (
                norm or "itself",
                lambda c=case, k=key, n=norm: build(c.claim(), k, c.domain, c.metric, n),
                options,
            )
            for norm in norms
        ]
    return out


def _pairs(case: Case) -> list[tuple[Any, Any]]:
    """Some of the case's own neighbours at distance at most one, drawn once and for all."""
    found: list[tuple[Any, Any]] = []
    if case.pairs is None:
        return found

    @settings(
        max_examples=60,
        database=None,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case.pairs)
    def gather(pair: Any) -> None:
        left, right, distance = pair
        if distance <= 1:
            found.append((left, right))

    gather()
    return found[:40]
