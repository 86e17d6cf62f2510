"""Verify certificates.

Every number again, and every word of the report a comparison. What follows from the program is derived
again and compared. What was bound by the charge is compared with the entry that the certificate
quotes, and that entry with the ledger's own, if the ledger is there. Each line of the report is
written by the comparison that it tells of.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path as File
from typing import Any

from opendp_sim.accounting.certificate.certificate import (
    FORMER_FORMAT,
    HANDED,
    Certificate,
    as_worded_now,
    digest_of,
    read_certificate,
)
from opendp_sim.accounting.certificate.signature import check_signature, public_key
from opendp_sim.accounting.release.release import Release, library_versions
from opendp_sim.core.errors import ReleaseError, SimError, refusing
from opendp_sim.dsl.grammar.reader import draft_of, draft_of_file
from opendp_sim.dsl.plan.plan import Plan, plan_of
from opendp_sim.dsl.run.certificate import certificate_path, derived_statement
from opendp_sim.dsl.text.compare_documents import same, told_differences
from opendp_sim.dsl.text.diagnostic import Refused
from opendp_sim.dsl.verification.charge import check_charge, check_ledger, ledger_file
from opendp_sim.dsl.verification.report import (
    ASSUMED,
    OWN_SPEC,
    UNKNOWN_SIGNER,
    UNSIGNED,
    Verification,
)


def verify(
    path: str | File,
    spec: str | File | None = None,
    *,
    ledger: str | File | None = None,
    signer: str | File | None = None,
) -> tuple[list[str], list[str]]:
    """Derive a certificate's numbers again and compare all parts.

    Args:
        path: the certificate.
        spec: the spec file, to check that it is the program that was certified.
        ledger: the ledger's file; default where the program's paths put it, if it is there.
        signer: the curator's public key (PEM): then a signature by it is demanded.

    Returns:
        (what was checked, what could not be).

    Raises:
        ReleaseError (OS701): a number, a hash or a file does not agree. DataError (OS606): a signature,
            and the package ``cryptography`` is not installed.
    """
    record, plain = read_certificate(path)
    report = Verification(File(path), plain, record, _replayed(record, File(path)))
    _derive(report)
    _spec(report, spec)
    _file(report)
    check_charge(report)
    check_ledger(report, ledger_file(report, spec, ledger))
    _signature(report, signer)
    if record.charge is None and record.signature is None:
        report.left.append(
            "the time and the values that it states: no ledger and no signature holds them"
        )
    report.left += [
        "that the data was what the spec names, and was checked when it was read",
        "that the noise was drawn as declared (the audit looks at that)",
        *(f"{ASSUMED}{text}" for text in as_worded_now(record.assumptions)),
    ]
    return report.checked, report.left


def load_checked(path: str | File) -> Release:
    """Load a release, refusing a foreign certificate beside it (OS701)."""
    saved = File(path)
    beside = certificate_path(saved)
    if beside.exists():
        record, _ = read_certificate(beside)
        if not saved.is_file() or digest_of(saved) != record.file.sha256:
            raise ReleaseError(
                "OS701", str(saved), expected=f"the file that {beside.name} certifies", got="another one",
                hint="the next `apply` finishes an interrupted run; else see `opendp-sim verify`.",
            )  # fmt: skip
    return Release.load(saved)


def _replayed(record: Certificate, path: File) -> Plan:
    """Plan the certified program again."""
    refusal = ReleaseError(
        "OS701", str(path), expected="the canonical form of a program that has this output",
        got="another value at program or output", hint="the certificate was changed, or made by another "
        "version of this package.",
    )  # fmt: skip
    with refusing(lambda _: refusal, SimError, KeyError):
        plan = plan_of(draft_of(record.program))
        plan.releases[plan.outputs[record.output].stage.name]
        return plan


def _derive(report: Verification) -> None:
    """Compare all that follows from the program and this package."""
    found, plan = report.plain, report.plan
    own = json.loads(json.dumps(derived_statement(plan, report.record.output)))
    found = found | {"assumptions": as_worded_now(report.record.assumptions)}
    if report.record.format == FORMER_FORMAT:
        del own["derivation"]
    report.equal("derivation" in own, "derivation" in found, "derivation")
    same = report.record.versions == library_versions()
    if not same and HANDED not in found["assumptions"]:  # certificates of before do not have it
        own["assumptions"] = [text for text in own["assumptions"] if text != HANDED]
    report.equal(plan.program.hash, found["plan"].get("program"), "plan.program")
    report.checked.append(f"the program has the hash {plan.program.hash[:16]}...")
    for name in (
        *("program", "plan", "derivation", "privacy", "names", "owner"),
        *("mechanisms", "assumptions", "evidence"),
    ):
        if name in own and (name != "evidence" or same):
            _compare(report, own[name], found[name], name, evidence=same)
    report.checked.append(
        "every type, map, scale, loss, conversion and expected error follows from the program"
    )
    report.checked.append("the claim, the names and the assumptions are those of the program")
    if same:
        report.checked.append("the evidence is what this package recorded for these mechanisms")
    else:
        report.left.append(
            "the evidence, and that other versions of OpenDP or numpy give the same "
            "numbers: versions differ"
        )
    if report.record.owner is not None:
        report.left.append("that the owner is who the certificate says")


def _compare(report: Verification, ours: Any, theirs: Any, where: str, *, evidence: bool) -> None:
    if isinstance(ours, dict) and isinstance(theirs, dict) and set(ours) == set(theirs):
        for key in ours:
            _compare(report, ours[key], theirs[key], f"{where}.{key}", evidence=evidence)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for place, (own, their) in enumerate(zip(ours, theirs, strict=True)):
            _compare(report, own, their, f"{where}[{place}]", evidence=evidence)
    elif (not same(ours, theirs) or type(ours) is not type(theirs)) and (
        evidence or not where.endswith((".evidence", ".page"))
    ):
        raise report.differs(where)


def _spec(report: Verification, spec: str | File | None) -> None:
    if spec is None:
        report.left.append(f"{OWN_SPEC} (name it with --spec)")
        return
    again = _replanned(spec, report.record.values)
    if again.program.hash != report.plan.program.hash:
        raise ReleaseError(
            "OS701", str(spec), expected=f"the certified program {report.plan.program.hash[:16]}",
            got=f"the program {again.program.hash[:16]}: "
            f"{told_differences(again.program.plain(), report.plan.program.plain())}",
            hint="another spec, or it was edited since; leave --spec out to check the "
            "certificate by itself.",
        )  # fmt: skip
    report.checked.append(f"{spec} with the certified parameters is that program")


def _replanned(spec: str | File, values: Mapping[str, Any]) -> Plan:
    try:
        return plan_of(draft_of_file(spec, values))
    except Refused as error:
        if error.code != "OS308":
            raise
        return plan_of(draft_of_file(spec))


def _file(report: Verification) -> None:
    """Compare the output beside the certificate."""
    about = report.record.file
    saved = report.path.with_name(about.name)
    decl = report.plan.outputs[report.record.output].decl
    report.equal(File(decl.save or "").name, about.name, "file.name")
    if os.path.lexists(saved) and not saved.is_file():  # a folder, a pipe, a link in a ring
        raise report.differs(f"the file {about.name}")
    if not saved.exists():
        report.left.append(f"the file {about.name}, which is not beside the certificate")
        return
    report.equal(digest_of(saved), about.sha256, f"the file {about.name}")
    report.equal(saved.stat().st_size, about.bytes, "file.bytes")
    report.checked.append(f"{about.name} is the file that was certified")
    if about.name.endswith(".npz") and not decl.post:
        _header(report, saved)


def _header(report: Verification, saved: File) -> None:
    """Compare a release's own claim with the certificate's."""
    name = report.plan.outputs[report.record.output].stage.name
    stages = report.plan.releases[name].asked_stages
    if stages is None:
        return
    header = Release.load(saved).header
    report.equal(header["privacy"], report.plain["privacy"], "privacy in the release's header")
    steps = [{bound.mechanism.key: bound.mechanism.spec()} for bound in stages]
    report.equal(header["steps"], json.loads(json.dumps(steps)), "steps in the release's header")
    report.checked.append("the release's header states the same claim and the same steps")


def _signature(report: Verification, signer: str | File | None) -> None:
    signature = report.record.signature
    if signature is None:
        if signer is not None:
            raise report.differs("signature: the file has no signature")
        report.left.append(
            f"{UNSIGNED}: there is no signature, and whoever can rewrite all files can "
            "rewrite all hashes"
        )
        return
    if signer is not None:
        report.equal(public_key(signer), signature.key, "signature.key")
    if not check_signature(report.plain):
        raise report.differs("signature.value")
    report.checked.append(
        f"the statement and the charge are signed by the key {signature.key[:16]}..."
    )
    if signer is None:
        report.left.append(f"{UNKNOWN_SIGNER} (name the curator's public key with --signer)")
