"""Write one self-contained page, without scripts or fetches."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

import opendp_sim.prelude  # noqa: F401 - fills the catalogue
from opendp_sim.accounting.budget import Limit
from opendp_sim.accounting.certificate.certificate import Certificate, digest_of, read_certificate
from opendp_sim.accounting.claim_text import Statement, claim_sentence, odds_statement
from opendp_sim.accounting.composition import Charge, Total, total_of
from opendp_sim.accounting.file_schemas import plain_json
from opendp_sim.accounting.measures.attackers import attacker_of
from opendp_sim.accounting.session.status import standing_of
from opendp_sim.core.errors import SpecError
from opendp_sim.core.system.file_kinds import kind_of_file
from opendp_sim.dsl.grammar.reader import draft_of
from opendp_sim.dsl.plan.document import load_plan, spec_of
from opendp_sim.dsl.plan.plan import Plan, plan_file, plan_of
from opendp_sim.dsl.plan.statements import PlanStatements, tell, unit_of
from opendp_sim.dsl.verification.report import NOT_FOUND, NOT_OPENED
from opendp_sim.dsl.verification.verify import verify
from opendp_sim.report.answer import released_parts, spread_of
from opendp_sim.report.audit import audit_facts
from opendp_sim.report.commands import Check, checks_of_certificate, checks_of_plan
from opendp_sim.report.facts import Facts, Judgement, Part, judgement, plan_facts
from opendp_sim.report.ledger import ledger_facts
from opendp_sim.report.session import session_facts
from opendp_sim.report.templates import page_engine

_NO_PAGE = frozenset({"release", "archive", "table", "empty", "folder", "odd"})


def page_of(path: str | Path, spec: str | Path | None = None) -> str:
    """Return the page about a file.

    A spec, a plan, a certificate, a ledger, a session's store or an audit. A certificate is verified
    first: one that does not verify gives no page. ``spec`` is what a store was started with: its page
    says then how many questions are left.

    Raises:
        Refused: the spec does not type. ReleaseError (OS701): the certificate does not verify.
        BudgetError (OS403): no readable ledger. (OS407): a store that is open, damaged or of another
            spec. AuditError (OS501): no audit's file.
    """
    file = Path(path)
    if file.suffix == ".ledger":
        return render(ledger_facts(file))
    if kind_of_file(file).name == "certificate":
        return render(_of_certificate(file))
    if file.suffix == ".json":
        return render(audit_facts(file))
    store = standing_of(file) if file.suffix == ".session" else None
    if store is not None:
        plan = None if spec is None else plan_file(Path(spec))
        beside = "" if spec is None else Path(os.path.relpath(spec, file.parent)).as_posix()
        return render(session_facts(file, store, plan, beside))
    if file.suffix == ".plan":
        return render(_of_plan(load_plan(file), file, Path(spec_of(file)[0]), "Plan", "report"))
    _refuse_others(file)
    return render(_of_plan(plan_file(file), file, file, "Spec", "plan"))


def _of_plan(plan: Plan, file: Path, spec: Path, kind: str, command: str) -> Facts:
    commands = [
        Part("code", [f"opendp-sim {command} {file.name}"]),
        *_checks(checks_of_plan(file, spec, plan)),
    ]
    whole = f"sha256 {plan.program.hash}, of its canonical text and not of a spec's file"
    commands.append(Part("pairs", [("program", whole)]))
    return plan_facts(
        plan, f"{kind} `{file.name}`: nothing was opened, nothing is spent", commands=commands
    )


def _checks(checks: Iterable[Check]) -> list[Part]:
    return [Part("code", lines.split("\n"), why) for why, lines in checks]


def _refuse_others(file: Path) -> None:
    """Refuse a file that has no page, and name its use."""
    found = kind_of_file(file)
    if found.name in _NO_PAGE:
        raise SpecError(
            "OS304", str(file), expected="a spec, a plan, a certificate, a ledger, a session's store or "
            "an audit", got=found.said, hint=f"{found.then or 'name one of them'}.",
        )  # fmt: skip


def _of_certificate(file: Path) -> Facts:
    checked, left = verify(file)
    record, _ = read_certificate(file)
    plan: Plan = plan_of(draft_of(record.program, folder=str(file.parent)))
    released = file.parent / record.file.name
    told = tell(plan)
    if record.ledger is not None:
        found = not any(text.endswith((NOT_FOUND, NOT_OPENED)) for text in left)
        told = _counted(told, plan, record, checked=found)
    beside = spread_of(plan, record.output, released)
    told = replace(
        told,
        errors={
            name: replace(e, more=f"{e.more}. {beside[name]}") if name in beside else e
            for name, e in told.errors.items()
        },
    )
    saved = [o.decl.name for o in plan.outputs.values() if o.decl.save is not None]
    commands = [
        Part("code", [f"opendp-sim verify {file.name}"], "In the folder of these files"),
        *_checks(checks_of_certificate(file, plan, record.signature)),
        Part(
            "pairs",
            [
                ("program", f"sha256 {plan.program.hash}, of its canonical text"),
                (
                    "handed out",
                    f"{record.file.name}: sha256 {record.file.sha256}, of this file's bytes",
                ),
                ("certificate", f"{file.name}: sha256 {digest_of(file)}, of this file's bytes"),
                ("versions", ", ".join(f"{k} {v}" for k, v in sorted(record.versions.items()))),
                ("checked", f"{len(checked)} statements agree: the command above lists them"),
                (
                    "not checkable",
                    "; ".join(text for text in left if not text.startswith("assumed")),
                ),
            ],
            "Hashes and versions",
        ),
    ]
    facts = plan_facts(
        plan,
        f"Certificate of `{record.file.name}`"
        + (", one of several outputs, whose privacy is counted together" if len(saved) > 1 else ""),
        told=told,
        assumed=record.assumptions,
        released=released_parts(plan, record.output, released),
        only=record.output,
        commands=commands,
    )
    facts.about.append(("Run", record.time[:10]))
    facts.choices = (
        "results may be handed out",
        "only to ________________",
        "results may not be handed out",
    )
    if record.ledger is not None:
        facts.verdict = _with_earlier(facts.verdict, plan, record.ledger, _charge(record, plan))
    return facts


def _with_earlier(own: Judgement | None, plan: Plan, part: Any, charge: Charge) -> Judgement | None:
    """Return the verdict on all runs of the ledger."""
    spent = _spent(part)
    if own is None or spent.exact == _sum(part, charge).exact:
        return own
    together = attacker_of(spent.measure, spent.loss)
    alone = attacker_of(charge.measure, charge.loss)
    said = odds_statement(together, unit_of(plan), several=False)
    note = f"This run alone: {alone.strength}, {alone.right} of 100. Formally, this run: "
    formal = claim_sentence(plan.promised)
    return judgement(said, together, "Privacy of this run and all before it", f"{note}{formal}.")


def _charge(record: Certificate, plan: Plan) -> Charge:
    if record.charge is not None:
        return Charge.read(plain_json(record.charge.body)["loss"])
    assert plan.charge is not None  # noqa: S101 - the program names a ledger
    return plan.charge


def _spent(part: Any) -> Charge:
    """Return the exact loss of all runs in a certificate."""
    measure, exact = part.spent["measure"], part.spent.get("exact")
    if exact is None:
        return Charge(measure, tuple(part.spent["loss"]))
    return Charge.read({"measure": measure, "loss": exact})


def _sum(part: Any, *charges: Charge) -> Total:
    return total_of(charges, part.spent["measure"], Limit.read(part.terms["limit"]))


def _counted(
    told: PlanStatements, plan: Plan, record: Certificate, *, checked: bool
) -> PlanStatements:
    """Return the statements with the spent and remaining budget."""
    part: Any = record.ledger
    charge, spent, limit = _charge(record, plan), _spent(part), Limit.read(part.terms["limit"])
    runs = _sum(part, spent).room(charge)
    value = f"{runs} more run{'' if runs == 1 else 's'} fit{'s' if runs == 1 else ''}"
    text = (
        f"The ledger's runs together spent {part.spent['text']}, of {limit.text}; it refuses more."
    )
    if not checked:
        value, text = "Stated, not checked", f"{text} It was not found."
    return replace(told, room=runs, repeat=Statement("repeat", value, "", text))


def render(facts: Facts) -> str:
    """Return the page, with every text escaped."""
    folder = files("opendp_sim.report")
    files_ = (
        folder.joinpath(name).read_text(encoding="utf-8") for name in ("tokens.css", "page.css")
    )
    css = Markup("".join(files_))  # noqa: S704 - our own files
    return page_engine().get_template("page.html").render(facts=facts, css=css)
