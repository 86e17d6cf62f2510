"""``opendp-sim report``: one self-contained page, without scripts, that fetches nothing."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

import opendp_sim.prelude  # noqa: F401 - fills the catalogue
from opendp_sim.accounting._entries import Entry, counted
from opendp_sim.accounting.certificate import read_certificate
from opendp_sim.accounting.ledger import Ledger
from opendp_sim.accounting.totals import Charge
from opendp_sim.core.shown import shown
from opendp_sim.dsl.plan import Plan, plan_file, plan_of
from opendp_sim.dsl.plan_document import load_plan
from opendp_sim.dsl.reader import draft_of
from opendp_sim.dsl.verification import NOT_FOUND, verify
from opendp_sim.report.answered import answered
from opendp_sim.report.audited import audit_facts
from opendp_sim.report.facts import Facts, Tile, facts_of

__all__ = ["page_of", "render"]


def page_of(path: str | Path) -> str:
    """Return the page about a spec, a plan document, a certificate, a ledger or an audit (``.json``).

    A certificate is verified first: one that does not verify gives no page.

    Raises:
        Refused: the spec does not type. ReleaseError (OS701): the certificate does not verify.
        BudgetError (OS403): no readable ledger. AuditError (OS501): no audit's file.
    """
    file = Path(path)
    if file.suffix == ".ledger":
        return render(_of_ledger(file))
    if file.name.endswith(".certificate.json"):
        return render(_of_certificate(file))
    if file.suffix == ".json":
        return render(audit_facts(file))
    if file.suffix == ".plan":
        plan = load_plan(file)
        return render(facts_of(plan, "Plan: nothing was opened and nothing was spent", _run(file)))
    plan = plan_file(file)
    return render(facts_of(plan, "Spec: nothing was opened and nothing was spent", _run(file)))


def _run(file: Path) -> str:
    return f"opendp-sim plan {file.name}"


def _of_certificate(file: Path) -> Facts:
    checked, left = verify(file)
    record, _ = read_certificate(file)
    draft = draft_of(record.program, folder=str(file.parent))
    plan: Plan = plan_of(draft)
    facts = facts_of(
        plan, f"Certificate of output {record.output}", f"opendp-sim verify {file.name}"
    )
    facts.believe = [*record.assumptions]
    shown_answer = answered(plan, record.output, file.parent / record.file.name)
    if shown_answer is not None:
        facts.figures.append(shown_answer)
    facts.details += [
        ("written", record.time),
        ("file", f"{record.file.name}, sha256 {record.file.sha256}"),
        ("versions", ", ".join(f"{k} {v}" for k, v in sorted(record.versions.items()))),
        ("checked", f"{len(checked)} statements agree"),
        ("not checkable", "; ".join(text for text in left if not text.startswith("assumed"))),
    ]
    if record.owner is not None:
        facts.details.insert(0, ("owner", record.owner))
    if record.ledger is not None:
        facts.tiles[-1] = _standing(
            record.ledger, checked=not any(text.endswith(NOT_FOUND) for text in left)
        )
    return facts


def _standing(part: Any, *, checked: bool) -> Tile:
    """Return the tile of what was spent and left, and whether the ledger was there to say so."""
    rest = ", ".join(f"{name} {value:.6g}" for name, value in part.left.items()) or "nothing"
    told = f"with this run, spent {part.spent['text']}; left {rest}"
    if checked:
        return Tile("in the ledger", told)
    return Tile("stated, not checked", f"{told}: {NOT_FOUND}", warn=True)


def _of_ledger(file: Path) -> Facts:
    with Ledger.open(file) as ledger:
        total, entries, terms = ledger.total(), ledger.entries, ledger.terms
    facts = Facts(
        "Ledger",
        file.name,
        "Every run on the protected data is added up here, and no run may pass the limit.",
        "record",
        f"opendp-sim ledger verify {file.name}",
    )
    facts.tiles = [
        Tile(total.text, "spent so far"),
        Tile(total.left_text, "left"),
        Tile(total.limit_text, "the limit"),
        Tile(str(len(entries)), "entries, each bound to the one before it by a hash"),
    ]
    facts.charges = [_row(entry) for entry in counted(entries)]
    facts.not_promised = [
        "That no run was made past this ledger: it counts only what it was asked.",
        "That an older copy of the file is noticed without the head that was written down.",
    ]
    facts.details = [
        ("measure", str(terms.measure)),
        ("unit", str(terms.unit)),
        ("head", ledger_head(entries)),
    ]
    return facts


def _row(entry: Entry) -> tuple[str, str, str]:
    """Return a row for an entry whose loss counts: a charge, or a reserve that nothing has settled."""
    name = str(entry.body.get("name") or entry.body.get("program") or "")
    return str(entry.seq), f"{entry.kind} {name[:80]}".strip(), Charge.read(entry.body["loss"]).text


def ledger_head(entries: tuple[Any, ...]) -> str:
    """Return the hash of the last entry."""
    return str(entries[-1].hash) if entries else "no entry yet"


def _visible(value: Any) -> Any:
    return shown(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def render(facts: Facts) -> str:
    """Return the page; every text is escaped, and control characters are shown as such."""
    folder = files("opendp_sim.report")
    engine = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, finalize=_visible
    )
    template = engine.from_string(folder.joinpath("page.html").read_text(encoding="utf-8"))
    css = Markup(folder.joinpath("page.css").read_text(encoding="utf-8"))  # noqa: S704 - our own file
    return template.render(facts=facts, css=css)
