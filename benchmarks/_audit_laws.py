"""Which laws hold of which mechanism, for the record behind the evidence tier."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import HealthCheck, settings

import opendp_sim.prelude  # noqa: F401 - fills the registry
from benchmarks._audit_rows import code_of
from opendp_sim.core.claims import Interactive, Private, Stable
from opendp_sim.testing import Case, laws_about
from tests.cases import cases


def laws(family: str | None = None) -> dict[str, Any]:
    """Every law that concerns a mechanism, on its case; what holds idly is not counted."""
    load_profile()
    rows: dict[str, Any] = {}
    for key, case in sorted(cases().items()):
        if "/" in key or family not in (None, key):
            continue  # a second case of a mechanism runs the laws in the suite
        held, failed = [], []
        for law in laws_about(case):
            name = law.__name__.removeprefix("check_")
            if law.__name__ in case.excused:
                continue
            try:
                law(case)
            except Exception as error:  # noqa: BLE001 - whatever a law raises, it did not hold
                failed.append(name)
                print(key, name, type(error).__name__, flush=True)
            else:
                held.append(name)
        rows[key] = {
            "kind": kind_of(case),
            "held": held,
            "failed": failed,
            "excused": {n.removeprefix("check_"): why for n, why in case.excused.items()},
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "code": code_of(key),
        }
        print(
            f"{key:24} {rows[key]['kind']:20} {len(held)} laws held, {len(failed)} failed",
            flush=True,
        )
    return rows


def kind_of(case: Case) -> str:
    """Return what sort of thing a mechanism is, in the words of the record."""
    if case.is_sketch:
        return "sketch"
    claim = case.claim()
    names = {Stable: "row map", Private: "release", Interactive: "interactive release"}
    return names.get(type(claim), "post-processing")


def load_profile() -> None:
    """Hypothesis as in the tests: the same examples each time."""
    settings.register_profile(
        "record",
        max_examples=40,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    settings.load_profile("record")
