"""The counterexample of a finding: where an event is looked for, what its script says of the object."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from opendp_sim.audit.driver import Driver
from opendp_sim.audit.findings import Evidence
from opendp_sim.audit.layers import Case
from opendp_sim.audit.members import quiet_member
from opendp_sim.audit.repeated import repeated
from opendp_sim.audit.sampling import differ
from opendp_sim.audit.scripts import Shown, imported
from opendp_sim.audit.subject import Subject
from opendp_sim.audit.witness import Witness, find_witness, outcome
from opendp_sim.core import dp

__all__ = ["witness_of"]

_LONGER = 3
"""How many times its seconds the search for a plain event gets, where the layers left them."""


def witness_of(
    case: Case, evidence: Evidence | None, origin: str, driver: Any, spent: float
) -> Witness | None:
    """Look for a plain event of the refuted pair; for a transformation there are the outputs.

    An error in that search is said beside the finding, which stands without an event.
    """
    if evidence is None:
        return None
    try:
        return _event(case, evidence, origin, driver, spent)
    except Exception as error:  # noqa: BLE001 - odd outputs may upset a look at them
        evidence.extra["event"] = f"none; the search for one ended with {type(error).__name__}"
        return None


def _event(
    case: Case, evidence: Evidence, origin: str, driver: Any, spent: float
) -> Witness | None:
    subject, seconds = case.subject, case.budget.witness_seconds
    alone = driver is None or isinstance(subject.outer, dp.Measurement)
    if (
        evidence.pair is None
        or not differ(evidence.pair.left, evidence.pair.right)  # of one dataset: no event tells
        or not subject.private
        or seconds <= 0
        or not alone
    ):
        return None
    drive = "" if driver is None else "drive"
    if isinstance(driver, Driver):
        drive = f"default_driver(M, {case.d_in!r}{driver.options}){driver.place}"
    elif drive:
        drive = imported(driver) or drive
    subject = replace(subject, run=getattr(subject.run, "raw", subject.run))
    if evidence.extra.get("first") and case.kept is not None:
        subject = replace(subject, run=case.kept.first(subject.run))
        with case.kept.lent():
            return _found(case, evidence, subject, origin, drive, spent)
    return _found(case, evidence, subject, origin, drive, spent)


def _found(
    case: Case, evidence: Evidence, subject: Subject, origin: str, drive: str, spent: float
) -> Witness | None:
    """Look for an event in a subject's own releases."""
    pair, seconds = evidence.pair, case.budget.witness_seconds
    calls = int(evidence.extra.get("calls", 1))
    if pair is None:
        return None
    together = subject if calls == 1 else repeated(subject, calls) or subject
    for _ in range(calls):  # what is taken back at every second call may be out of step with runs
        found = find_witness(
            together.run,
            pair,
            together.curve(pair.distance),
            max(seconds, min(_LONGER * seconds, case.budget.total - spent)),
            member=quiet_member(subject.input_domain),
            steps=calls,
            shown=Shown(
                origin=origin,
                drive=drive,
                note=_calculated(evidence),
                calls=calls,
                first=bool(evidence.extra.get("first")),
            ),
        )
        if calls == 1 or (found is not None and found.certified):
            break
        outcome(subject.run, pair.left)
    return found


def _calculated(evidence: Evidence) -> str:
    """Return what a script says of a finding that its draws do not show."""
    return (
        f"{evidence.kind}: {evidence.detail}\nclaimed {evidence.claimed}\n"
        f"measured {evidence.measured} ({evidence.confidence})"
    )
