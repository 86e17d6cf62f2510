"""Write one self-contained page.

Without scripts; it fetches nothing.
"""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

import opendp_sim.prelude  # noqa: F401 - fills the catalogue
from opendp_sim.accounting.budget import Limit
from opendp_sim.accounting.certificate.certificate import Certificate, digest_of, read_certificate
from opendp_sim.accounting.composition import Charge, Total, rest_text, total_of
from opendp_sim.accounting.file_schemas import plain_json
from opendp_sim.accounting.measures.attackers import attacker_of
from opendp_sim.accounting.session.status import standing_of
from opendp_sim.core.errors import SpecError
from opendp_sim.core.system.escape_text import escape
from opendp_sim.core.system.file_kinds import kind_of_file
from opendp_sim.dsl.grammar.reader import draft_of
from opendp_sim.dsl.plan.document import load_plan, spec_of
from opendp_sim.dsl.plan.plan import Plan, plan_file, plan_of
from opendp_sim.dsl.run.ledger_status import room
from opendp_sim.dsl.verification.report import NOT_FOUND, NOT_OPENED
from opendp_sim.dsl.verification.verify import verify
from opendp_sim.report.answer import answered
from opendp_sim.report.answer_spread import spread_of
from opendp_sim.report.audit import audit_facts
from opendp_sim.report.commands import checks_of_certificate, checks_of_plan
from opendp_sim.report.facts import ALONE, CALLS, Facts, plan_facts, promise_ending
from opendp_sim.report.ledger import ledger_facts
from opendp_sim.report.session import session_facts
from opendp_sim.report.tiles import Tile
from opendp_sim.report.trust import assumptions_of

_NO_PAGE = frozenset({"release", "archive", "table", "empty", "folder", "odd"})


def page_of(path: str | Path, spec: str | Path | None = None) -> str:
    """Return the page about a file.

    A spec, a plan, a certificate, a ledger, a session's store or an audit.

    A certificate is verified first: one that does not verify gives no page. ``spec`` is what a store
    was started with: its page says then how many questions are left.

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
        plan = load_plan(file)
        command = f"opendp-sim report {file.name}"
        facts = plan_facts(plan, "Plan: nothing was opened and nothing was spent", command)
        facts.checks = list(checks_of_plan(file, Path(spec_of(file)[0]), plan))
        return render(facts)
    _refuse_others(file)
    plan = plan_file(file)
    facts = plan_facts(plan, "Spec: nothing was opened and nothing was spent", _run(file))
    facts.checks = list(checks_of_plan(file, file, plan))
    return render(facts)


def _refuse_others(file: Path) -> None:
    """Refuse a file that has no page, and name its use."""
    found = kind_of_file(file)
    if found.name in _NO_PAGE:
        raise SpecError(
            "OS304", str(file), expected="a spec, a plan, a certificate, a ledger, a session's store or "
            "an audit", got=found.said, hint=f"{found.then or 'name one of them'}.",
        )  # fmt: skip


def _run(file: Path) -> str:
    return f"opendp-sim plan {file.name}"


def _of_certificate(file: Path) -> Facts:
    checked, left = verify(file)
    record, _ = read_certificate(file)
    draft = draft_of(record.program, folder=str(file.parent))
    plan: Plan = plan_of(draft)
    facts = plan_facts(
        plan,
        f"Certificate of the file {record.file.name} (output {record.output})",
        f"opendp-sim verify {file.name}",
    )
    facts.checks = list(checks_of_certificate(file, plan, record.signature))
    facts.believe = assumptions_of(plan, record.assumptions)
    saved = [o.decl.name for o in plan.outputs.values() if o.decl.save is not None]
    others = " (the others have pages of their own)" if len(saved) > 1 else ""
    facts.decision = f"Decision: may this file be handed out, and to whom{others}"
    released = file.parent / record.file.name
    beside = spread_of(plan, record.output, released)
    facts.wrong = [
        (name, beside.get(name, text))
        for name, text in facts.wrong
        if ": " not in name or name.startswith(f"{record.output}: ")
    ]
    shown_answer = answered(plan, record.output, released)
    if shown_answer is not None:
        facts.figures.append(shown_answer)
    facts.details += [
        ("written", record.time),
        ("handed out", f"{record.file.name}: sha256 {record.file.sha256}, of this file's bytes"),
        ("certificate", f"{file.name}: sha256 {digest_of(file)}, of this file's bytes"),
        ("versions", ", ".join(f"{k} {v}" for k, v in sorted(record.versions.items()))),
        ("checked", f"{len(checked)} statements agree: the command above lists them"),
        ("not checkable", "; ".join(text for text in left if not text.startswith("assumed"))),
    ]
    if record.ledger is not None:
        charge = _charge(record, plan)
        facts.promise = _with_earlier(facts.promise, record.ledger, charge)
        facts.tiles[-1] = _counted(
            record.ledger,
            charge,
            checked=not any(text.endswith((NOT_FOUND, NOT_OPENED)) for text in left),
        )
    return facts


def _with_earlier(promise: str, part: Any, charge: Charge) -> str:
    """State the result of all runs of the ledger."""
    spent = _spent(part)
    if spent.exact == _sum(part, charge).exact:
        return promise
    own, together = attacker_of(charge.measure, charge.loss), attacker_of(spent.measure, spent.loss)
    told = f"{ALONE}, and at most {together.right} from all runs in its ledger up to this one"
    front, _, back = promise.rpartition(CALLS)[0].rpartition(ALONE)
    return f"{front}{told}{back}{CALLS}{promise_ending(own, together)}"


def _charge(record: Certificate, plan: Plan) -> Charge:
    """Return the cost of a run."""
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


def _counted(part: Any, charge: Charge, *, checked: bool) -> Tile:
    """Return the tile of the spent and remaining budget."""
    spent, limit = _spent(part), Limit.read(part.terms["limit"])
    rest = rest_text(spent.measure, part.left, limit)
    told = (
        f"this run cost {charge.text}; all runs of the ledger up to it together "
        f"{part.spent['text']}, of a "
        f"limit of {limit.text}; left {rest}"
    )
    if part.terms["limit"].get("delta") is not None:
        told += " (its epsilon is stated at the limit's delta, so it differs from this run's own)"
    runs = room(lambda *more: _sum(part, spent, *more), charge, spent.measure)
    told += f". It has room for {runs} more such run{'' if runs == 1 else 's'}, then it refuses"
    if checked:
        return Tile("in the ledger", told)
    return Tile("stated, not checked", f"{told}: {NOT_FOUND}", warn=True)


def _visible(value: Any) -> Any:
    return escape(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def render(facts: Facts) -> str:
    """Return the page, with every text escaped."""
    folder = files("opendp_sim.report")
    engine = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, finalize=_visible
    )
    template = engine.from_string(folder.joinpath("page.html").read_text(encoding="utf-8"))
    css = Markup(folder.joinpath("page.css").read_text(encoding="utf-8"))  # noqa: S704 - our own file
    return template.render(facts=facts, css=css)
