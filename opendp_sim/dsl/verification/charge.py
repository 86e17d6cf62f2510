"""Verify a certificate's charge against program, files and the ledger itself.

Each line of the report is written by the comparison that it tells of.
"""

from __future__ import annotations

import json
import os
from pathlib import Path as File
from typing import Any

from opendp_sim.accounting.certificate.certificate import (
    Certificate,
    Quoted,
    quoted,
    statement_digest,
)
from opendp_sim.accounting.composition import Charge, Total, total_of
from opendp_sim.accounting.file_schemas import plain_json
from opendp_sim.accounting.ledger._entries import Entry
from opendp_sim.accounting.ledger._refusals import UnavailableError
from opendp_sim.accounting.ledger.ledger import Ledger, Terms
from opendp_sim.accounting.ledger.postgres_connection import is_shared
from opendp_sim.core.arithmetic.rounding import decimal_of
from opendp_sim.core.errors import BudgetError
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.plan.records import ledger_path
from opendp_sim.dsl.run.certificate import ledger_part, spent_and_left
from opendp_sim.dsl.run.charge import ledger_terms, unit_text
from opendp_sim.dsl.text.compare_documents import ROOM, same
from opendp_sim.dsl.verification.report import NOT_FOUND, NOT_OPENED, Verification

# --------------------------------------------------------------------------------------------------
# What a certificate says of its ledger, compared with all that follows without the ledger.


def stated_wrongly(
    plan: Plan, terms: Terms, record: Certificate, body: dict[str, Any]
) -> str | None:
    """Return a false statement about the program's ledger, or None.

    That the sum is right only the ledger shows. Without it: the ledger is the one that the program
    names, an entry has a number and settles one before it, the sum is one of the ledger's measure,
    holds this run's loss and keeps the limit, and epsilon, text and rest are those of the sum.
    """
    part, charge, path = record.ledger, record.charge, ledger_path(plan)
    if part is None or charge is None or path is None or plan.charge is None:
        return "ledger"
    if part.file != File(path).name:
        return "ledger.file"
    if charge.entry < 1:
        return f"charge: entry {charge.entry}, and the first is 1"
    of = body.get("of")
    if of is not None and not (type(of) is int and 1 <= of < charge.entry):
        return "charge.body.of"
    total = _total(part.spent, terms)
    if total is None:
        return "ledger.spent.loss"
    again = _as_stated(spent_and_left(total), part.spent)
    if not same(part.spent, again["spent"]):
        return "ledger.spent"
    own = total_of((plan.charge,), terms.measure, terms.limit).loss
    if not total.fits or any(
        all_ < one * (1 - ROOM) for all_, one in zip(total.loss, own, strict=True)
    ):
        return "ledger.spent.loss"
    return None if same(part.left, again["left"]) else "ledger.left"


def _total(spent: Any, terms: Terms) -> Total | None:
    """Return the stated total beside the limit, or None."""
    if not isinstance(spent, dict):
        return None
    exact, loss = spent.get("exact"), spent.get("loss")
    try:
        if exact is not None:
            found = Charge.read({"measure": terms.measure, "loss": exact})
        else:  # of a certificate of before: its floats count as their texts say
            found = Charge(terms.measure, tuple(map(decimal_of, loss)) if loss else ())
        return total_of((found,), terms.measure, terms.limit)
    except (BudgetError, TypeError, ValueError, OverflowError):
        return None


def _as_stated(found: dict[str, Any], stated: dict[str, Any]) -> dict[str, Any]:
    """Return spent and left as JSON, in the certificate's form."""
    if "exact" not in stated:
        del found["spent"]["exact"]
    return json.loads(json.dumps(found))


# --------------------------------------------------------------------------------------------------


def check_charge(report: Verification) -> None:
    """Compare the quoted entry with the certificate's program, claim, file and statement."""
    plan, record = report.plan, report.record
    terms = ledger_terms(plan) if plan.charge is not None else None
    if terms is None:
        report.equal(record.charge, None, "charge")
        report.equal(record.ledger, None, "ledger")
        if plan.privacy is not None:
            report.checked.append("the program names no ledger, and the certificate no charge")
            report.left.append("what else was spent on this data: nobody counts it")
        return
    if record.charge is None or record.ledger is None or plan.charge is None:
        raise report.differs("charge: the program names a ledger")
    report.equal(record.ledger.terms, json.loads(json.dumps(terms.plain())), "ledger.terms")
    if not record.charge.follows:
        raise report.differs("charge.hash")
    body = _body(report, record.charge)
    dataset = next(entry.name for entry in plan.program.data if entry.ledger is not None)
    for name, ours in (
        ("kind", "charge"),
        ("program", plan.program.hash),
        ("name", plan.program.name),
        ("loss", plan.charge.plain()),
        ("unit", unit_text(plan)),
        ("dataset", dataset),
    ):
        report.equal(body.get(name), ours, f"charge.body.{name}")
    _check_digests(report, body)
    report.checked.append(
        f"the quoted entry {record.charge.entry} charges this program {plan.charge.text} under "
        f"`{plan.charge.measure}`, per {unit_text(plan)}, for dataset {dataset}"
    )
    report.checked.append("the quoted entry holds the digests of this file and of this statement")
    wrong = stated_wrongly(plan, terms, record, body)
    if wrong is not None:
        raise report.differs(wrong)
    report.checked.append("the ledger that it names is the program's, and its sum is possible")


def _body(report: Verification, charge: Quoted) -> dict[str, Any]:
    """Return what the quoted entry says, or refuse what is no entry."""
    try:
        body = plain_json(charge.body)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise report.differs("charge.body")
    return body


def _check_digests(report: Verification, body: dict[str, Any]) -> None:
    """Compare the entry's digests with file and statement."""
    record, files = report.record, body.get("files")
    mine = files.get(record.output) if isinstance(files, dict) else None
    wanted = {"sha256": record.file.sha256, "statement": statement_digest(report.plain)}
    for name, value in wanted.items():
        found = mine.get(name) if isinstance(mine, dict) else None
        report.equal(found, value, f"charge.body.files.{record.output}.{name}")


def ledger_file(
    report: Verification, spec: str | File | None, ledger: str | File | None
) -> File | None:
    """Return the ledger's probable file.

    As named, beside the spec, or at the base of relative paths. Without a name or a spec it is looked
    for from where the certificate lies, and told as such: whoever can write to the folder of the
    outputs (``apply --into``) could have put one there.
    """
    if ledger is not None:
        return File(ledger)
    entry = next((e for e in report.plan.program.data if e.ledger is not None), None)
    if entry is None or entry.ledger is None:
        return None
    if is_shared(entry.ledger.file):
        return File(entry.ledger.file)
    if spec is not None:
        return File(spec).parent / entry.ledger.file
    save = File(report.plan.outputs[report.record.output].decl.save or "")
    homes = [*report.path.resolve().parents[len(save.parts) - 1 :][:1], report.path.parent]
    found = next((f for home in homes if (f := home / entry.ledger.file).exists()), None)
    if found is not None:
        place = os.path.relpath(found, report.path.parent)
        report.left.append(
            f"that {place} is the curator's ledger: it was found from where the certificate lies (name "
            "the ledger with --ledger)"
        )
    return found


def check_ledger(report: Verification, file: File | None) -> None:
    """Compare the quoted entry, spent and left with the ledger itself."""
    record = report.record
    if record.charge is None or record.ledger is None:
        return
    if file is None or not (is_shared(file) or file.exists()):
        report.left.append(
            f"that entry {record.charge.entry} is in {record.ledger.file}, and what "
            f"was spent and left: {NOT_FOUND}"
        )
        return
    try:
        with Ledger.open(file) as ledger:
            _in_ledger(report, ledger, file)
    except UnavailableError as error:
        report.left.append(
            f"that entry {record.charge.entry} is in {file}, which is {error.got}, and what was "
            f"spent and left: {NOT_OPENED}"
        )
    except BudgetError as error:
        raise report.differs(f"the ledger ({error.got})") from None


def _in_ledger(report: Verification, ledger: Ledger, file: File) -> None:
    record, entries = report.record, ledger.entries
    assert record.charge is not None  # noqa: S101 - the caller asked
    assert record.ledger is not None  # noqa: S101 - the caller asked
    report.equal(ledger.terms, ledger_terms(report.plan), "ledger.terms")
    number = record.charge.entry
    if not 1 <= number <= len(entries):
        raise report.differs(f"charge.entry: {file.name} has no entry {number}")
    entry: Entry = entries[number - 1]
    report.equal(quoted(entry), report.plain["charge"], f"charge: entry {number} of {file.name}")
    reserve = entry.body.get("of")
    stated = report.plain["ledger"]
    again = _as_stated(
        ledger_part(ledger, number if reserve is None else int(reserve)), record.ledger.spent
    )
    for name in ("terms", "spent", "left", *({"start"} & stated.keys())):
        report.equal(again[name], stated[name], f"ledger.{name}")
    report.checked.append(
        f"entry {number} of {file.name}, whose chain is whole, is the quoted entry"
    )
    report.checked.append(
        f"with it {again['spent']['text']} was spent of the ledger's limit, as stated"
    )
