"""The package's own mechanisms as audit subjects, one for each face, from the table of cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.bridge import build
from opendp_sim.core.claims import Interactive, Post, Stable
from tests.cases import cases

Subjects = list[tuple[str, Callable[[], Any], dict[str, Any]]]


def audited() -> dict[str, Subjects]:
    """Every mechanism whose claim can be audited: transformations in each norm, and measurements."""
    out: dict[str, Subjects] = {}
    for key, case in cases().items():
        claim = case.claim()
        if isinstance(claim, (Post, Interactive)):
            continue
        norms: tuple[Any, ...] = ("l1", "l2", "linf") if isinstance(claim, Stable) and claim.faces else (None,)
        out[key] = [
            (norm or "itself", lambda c=case, k=key, n=norm: build(c.claim(), k, c.domain, c.metric, n), {})
            for norm in norms
        ]
    return out
