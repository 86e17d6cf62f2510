"""Certificates of outputs, and ``verify``: every number again, from the program alone."""

from __future__ import annotations

from pathlib import Path as File
from typing import Any

from opendp_sim.accounting.certificate import (
    FORMAT,
    assumptions,
    digest_of,
    read_certificate,
    write_json,
)
from opendp_sim.accounting.evidence import record, tier
from opendp_sim.accounting.ledger import Entry, Ledger
from opendp_sim.accounting.release import versions
from opendp_sim.core.errors import BudgetError, ReleaseError
from opendp_sim.dsl.diagnostic import Refused
from opendp_sim.dsl.plan import Plan, ReleasePlan, plan_of
from opendp_sim.dsl.reader import draft_of, draft_of_file

__all__ = ["certificate", "certificate_path", "claim_about", "evidence_of", "verify"]


def claim_about(plan: Plan, release: ReleasePlan) -> dict[str, Any]:
    """Return what is claimed about one release: it travels in its header and certificates."""
    privacy = plan.privacy
    if privacy is None or release.bound is None:
        return {"public": True}
    return {
        "unit": privacy.unit.plain(), "d_in": privacy.unit.d_in, "measure": privacy.measure,
        "total": list(plan.total), "claim": None if plan.claim is None else list(plan.claim),
        "program": plan.program.hash,
    }  # fmt: skip


def certificate_path(saved: File) -> File:
    """Return where the certificate of an output lies: beside it."""
    return saved.with_name(saved.name + ".certificate.json")


def certificate(
    plan: Plan, output: str, saved: File, ledger: Ledger | None, charge: Entry | None
) -> File:
    """Write the certificate of one output and return its path."""
    typed = plan.outputs[output].stage
    body: dict[str, Any] = {
        "format": FORMAT,
        "output": output,
        "program": plan.program.plain(),
        "values": dict(plan.program.values),
        "plan": plan.plain(),
        "assumptions": assumptions(
            typed.entry.ingest,
            by_person=plan.privacy is not None and plan.privacy.unit.of != "row",
            public=typed.entry.name if typed.entry.public else None,
        ),
        "privacy": claim_about(plan, plan.releases[typed.name]),
        "evidence": evidence_of(plan, output),
        "versions": versions(),
        "file": {"name": saved.name, "sha256": digest_of(saved)},
        "ledger": None,
    }
    if ledger is not None and charge is not None:
        body["ledger"] = {"file": ledger.path.name, "entry": charge.seq, "head": charge.hash}
    path = certificate_path(saved)
    write_json(path, body)
    return path


def evidence_of(plan: Plan, output: str) -> dict[str, Any]:
    """Return what stands behind every mechanism of an output, queries included: laws, audits, twins."""
    keys = (*plan.outputs[output].stage.mechanisms, *_asked(plan, output))
    return {key: {"tier": tier(key), "record": record(key)} for key in keys}


def _asked(plan: Plan, output: str) -> list[str]:
    """Return the queries behind an output, in order; those of an output that it starts from first."""
    decl = plan.outputs[output].decl
    before = _asked(plan, decl.source) if decl.source in plan.outputs else []
    return [*before, *(step.key for step in decl.post)]


def verify(path: str | File, spec: str | File | None = None) -> tuple[list[str], list[str]]:
    """Re-derive every number of a certificate.

    Args:
        path: the certificate.
        spec: the spec file, to check that it is the program that was certified.

    Returns:
        (what was checked, what could not be).

    Raises:
        ReleaseError (OS701): a number, a hash or a file does not agree. Refused: the certified
            program does not even type.
    """
    found = read_certificate(path)
    checked, left = [], []
    plan = plan_of(draft_of(found["program"]))
    if found["plan"].get("program") != plan.program.hash:
        raise _differs("the hash of the program", path)
    checked.append(f"the program has the hash {plan.program.hash[:16]}...")
    _compare(plan.plain(), found["plan"], "plan", path)
    checked.append("every type, map, scale, loss, conversion and expected error follows from it")
    release = plan.releases[plan.outputs[found["output"]].stage.name]
    if found.get("privacy") != claim_about(plan, release):
        raise _differs("privacy", path)
    if spec is not None:
        again = _replanned(spec, found["values"])
        if again.program.hash != plan.program.hash:
            raise ReleaseError(
                "OS701", str(spec), expected=f"the certified program {plan.program.hash[:16]}",
                got=f"the program {again.program.hash[:16]}",
                hint="another spec, or it was edited since; leave --spec out to check the "
                "certificate by itself.",
            )  # fmt: skip
        checked.append(f"{spec} with the certified parameters is that program")
    else:
        left.append("that a spec file is this program (name it with --spec)")
    _file(found, File(path), checked, left)
    _ledger(found, plan, File(path), spec, checked, left)
    if found["versions"] != versions():
        left.append("that other versions of OpenDP or numpy give the same numbers: versions differ")
    left += [
        "that the data was what the spec names and passed the gate",
        "that the noise was drawn as declared (the audit looks at that)",
        *(f"assumed: {text}" for text in found["assumptions"]),
    ]
    return checked, left


def _replanned(spec: str | File, values: dict[str, Any]) -> Plan:
    """Plan a spec with the certified parameters; without them where it declares others."""
    try:
        return plan_of(draft_of_file(spec, values))
    except Refused as error:
        if error.code != "OS308":
            raise
        return plan_of(draft_of_file(spec))


def _compare(ours: Any, theirs: Any, where: str, path: str | File) -> None:
    if isinstance(ours, dict) and isinstance(theirs, dict) and set(ours) == set(theirs):
        for key in ours:
            _compare(ours[key], theirs[key], f"{where}.{key}", path)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for place, (own, their) in enumerate(zip(ours, theirs, strict=True)):
            _compare(own, their, f"{where}[{place}]", path)
    elif ours != theirs and not where.endswith(".evidence"):
        raise _differs(where, path)


def _differs(what: str, path: str | File) -> ReleaseError:
    return ReleaseError(
        "OS701", str(path), expected="numbers that follow from the certified program",
        got=f"another value at {what}",
        hint="the certificate was changed, or made by another version of this package.",
    )  # fmt: skip


def _file(found: dict[str, Any], path: File, checked: list[str], left: list[str]) -> None:
    saved = path.with_name(found["file"]["name"])
    if not saved.exists():
        left.append(f"the file {saved.name}, which is not beside the certificate")
    elif digest_of(saved) != found["file"]["sha256"]:
        raise _differs(f"the file {saved.name}", path)
    else:
        checked.append(f"{saved.name} is the file that was certified")


def _ledger(
    found: dict[str, Any], plan: Plan, path: File, spec: str | File | None, checked: list[str],
    left: list[str],
) -> None:  # fmt: skip
    if found["ledger"] is None:
        if plan.privacy is not None:
            left.append("what else was spent on this data: the spec names no ledger")
        return
    place = File(spec).parent if spec is not None else path.parent
    entry = next(e for e in plan.program.data if e.ledger is not None)
    file = place / (entry.ledger.file if entry.ledger is not None else "")
    if not file.exists():
        left.append(f"the charge in {found['ledger']['file']}, which was not found")
        return
    try:
        with Ledger.open(file) as ledger:
            ledger.verify(found["ledger"]["head"])
    except BudgetError as error:
        raise _differs(f"the ledger ({error.got})", path) from None
    checked.append(f"entry {found['ledger']['entry']} of {file.name} is its charge")
