"""Make certificates of outputs.

The statement is made before the charge, and bound to it afterwards. A statement says everything about
one output, its digest included. The charge in the ledger holds the digest of the file and of the
statement, and the certificate quotes that entry: one chain from the program through the numbers and
the file to the charge. ``accounting/certificate/certificate.md`` is the public page.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path as File
from typing import Any

from opendp_sim.accounting.certificate.certificate import (
    CERTIFICATE_FORMAT,
    assumptions,
    formula_id,
    quoted,
)
from opendp_sim.accounting.certificate.signature import Signer
from opendp_sim.accounting.composition import Total, plain_loss
from opendp_sim.accounting.evidence import record, tier
from opendp_sim.accounting.ledger.ledger import Entry, Ledger
from opendp_sim.accounting.release.release import Release, library_versions, write_archive
from opendp_sim.core.claims import Stable, Stage
from opendp_sim.core.mechanism import REGISTRY, Mechanism, page_beside
from opendp_sim.core.system.docstrings import doc_of
from opendp_sim.domains.metrics import VectorNorm
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.plan.release_plan import ReleasePlan

_ROWS = ("width", "unit", "lower", "upper", "l2", "norm")
"""What formulas use of a type of rows."""


def claim_about(plan: Plan, release: ReleasePlan) -> dict[str, Any]:
    """Return one release's claim for its header and certificates."""
    privacy = plan.privacy
    if privacy is None or release.bound is None:
        return {"public": True}
    return {
        "unit": privacy.unit.plain(),
        "d_in": privacy.unit.d_in,
        "measure": privacy.measure,
        "total": list(plan.total),
        "claim": None if plan.claim is None else list(plan.claim),
        "program": plan.program.hash,
    }


def certificate_path(saved: File) -> File:
    """Return the path of an output's certificate, beside it."""
    return saved.with_name(saved.name + ".certificate.json")


def derived_statement(
    plan: Plan, output: str, plain: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the statement's part that the program determines.

    ``plain`` is the plan as plain JSON, where it is there already.
    """
    typed = plan.outputs[output].stage
    keys = (*typed.mechanisms, *_asked(plan, output))
    return {
        "format": CERTIFICATE_FORMAT,
        "output": output,
        "names": {"program": plan.program.name, "dataset": typed.entry.name, "output": output},
        "owner": None if plan.program.about is None else plan.program.about.owner,
        "mechanisms": [{"key": key, "what": _sentence(key)} for key in keys],
        "program": plan.program.plain(),
        "plan": plan.plain() if plain is None else plain,
        "derivation": {
            name: _steps(release, plan.privacy.unit.d_in)
            for name, release in plan.releases.items()
            if plan.privacy is not None and release.bound is not None
        },
        "assumptions": assumptions(
            typed.entry.ingest,
            by_person=plan.privacy is not None and plan.privacy.unit.of != "row",
            public=typed.entry.name if typed.entry.public else None,
            handed=not typed.entry.public and typed.entry.source.kind == "memory",
        ),
        "privacy": claim_about(plan, plan.releases[typed.name]),
        "evidence": evidence_of(plan, output),
    }


def _steps(release: ReleasePlan, d_in: int) -> list[dict[str, Any]]:
    """Return the lemma and formula of each step."""
    assert release.bound is not None  # noqa: S101 - the caller filtered
    distance = release.maps[-1][1] if release.maps else d_in
    last = {**_lemma(release.bound.record), "inputs": {"distance": distance}}
    return [*map(_step, release.typed.stages), last]


def _step(stage: Stage) -> dict[str, Any]:
    """Return a step's lemma, inputs and factor.

    Exact numbers are texts.
    """
    claim, about = stage.claim, _lemma(stage.mechanism)
    assert isinstance(claim, Stable)  # noqa: S101 - a release is no step of a chain
    factor = claim.sensitivity
    if factor is None:
        return {**about, "inputs": _inputs(claim), "factor": str(claim.stability)}
    blocks = [
        [b.name, b.size, str(b.l1), str(b.l2_squared), str(b.linf), b.weight]
        for b in getattr(claim.output, "blocks", ())
    ]
    norms = {name: str(getattr(factor, name)) for name in ("l1", "l2_squared", "linf")}
    return {**about, "inputs": {"blocks": blocks}, "factor": norms}


def _inputs(claim: Stable) -> dict[str, Any]:
    """Return the output's width, bounds and items of a user."""
    found = {name: getattr(claim.output, name) for name in _ROWS if hasattr(claim.output, name)}
    metric = claim.output_metric
    return found | ({"touched": metric.touched} if isinstance(metric, VectorNorm) else {})


def _lemma(record: Mechanism) -> dict[str, Any]:
    page = page_beside(type(record))
    return {
        "step": record.key,
        "lemma": record.source.where,
        "page": None if page is None else hashlib.sha256(page.read_bytes()).hexdigest(),
        "formula": formula_id(record.key),
    }


def statement(
    plan: Plan,
    derived: Mapping[str, Any],
    file: Mapping[str, Any],
    *,
    time: str,
    ledger: dict[str, Any] | None,
) -> dict[str, Any]:
    """Return everything that is stated about one output.

    ``derived`` is its ``derived_statement``, ``file`` the name of its complete file, its sha256 and its
    number of bytes, ``time`` the run's begin in ISO 8601, and ``ledger`` what ``ledger_part`` returned.
    """
    return {
        **derived,
        "time": time,
        "values": dict(plan.program.values),
        "versions": library_versions(),
        "file": dict(file),
        "ledger": ledger,
    }


def ledger_part(ledger: Ledger, upto: int) -> dict[str, Any]:
    """Return a ledger's file, start, terms, spent and left after ``upto``."""
    about = {"file": ledger.path.name, "start": ledger.start, "terms": ledger.terms.plain()}
    return {**about, **spent_and_left(ledger.total(upto=upto))}


def spent_and_left(total: Total) -> dict[str, Any]:
    """Return the spent and the remaining budget, without infinite numbers."""
    spent = {
        "measure": total.measure,
        "loss": [_finite(part) for part in total.loss],
        "exact": plain_loss(total.exact),
        "epsilon": _finite(total.epsilon),
        "text": total.text,
    }
    return {"spent": spent, "left": dict(total.left)}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def signed_certificate(
    stated: Mapping[str, Any], charge: Entry | None, signer: Signer | None
) -> dict[str, Any]:
    """Return the statement, the entry that pays for it, and a signature."""
    whole = {**stated, "charge": None if charge is None else quoted(charge), "signature": None}
    if signer is not None:
        whole["signature"] = signer.sign(whole)
    return whole


def certified_release(plan: Plan, output: str, release: Release, time: str) -> dict[str, Any]:
    """Return the certificate of a release in memory."""
    save, stream = plan.outputs[output].decl.save, BytesIO()
    write_archive(stream, release.header, release.arrays)
    data = stream.getvalue()
    file = {"name": save, "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    derived = derived_statement(plan, output)
    return signed_certificate(statement(plan, derived, file, time=time, ledger=None), None, None)


def evidence_of(plan: Plan, output: str) -> dict[str, Any]:
    """Return the evidence of an output's mechanisms and queries."""
    keys = (*plan.outputs[output].stage.mechanisms, *_asked(plan, output))
    return {key: {"tier": tier(key), "record": record(key)} for key in keys}


def _asked(plan: Plan, output: str) -> list[str]:
    """Return the queries behind an output, in order."""
    decl = plan.outputs[output].decl
    before = _asked(plan, decl.source) if decl.source in plan.outputs else []
    return [*before, *(step.key for step in decl.post)]


def _sentence(key: str) -> str:
    """Return the first sentence of a mechanism's page."""
    from opendp_sim.dsl.text.plain_text import plain_text  # noqa: PLC0415 - its reader of formulas is heavy

    first = doc_of(REGISTRY[key]).split("\n\n")[0]
    return plain_text(" ".join(first.split()))
