"""Hold a verification's certificate, plan made again, and findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path as File
from typing import Any

from opendp_sim.accounting.certificate.certificate import Certificate
from opendp_sim.core.errors import ReleaseError
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.text.compare_documents import same

NOT_FOUND = "the ledger was not found (--ledger)"
"""How what only a ledger can show is told where there was none."""
NOT_OPENED = "the ledger could not be opened now"
"""The same where there was one: a run has it, or it may not be written to, as every opening does."""

ASSUMED = "assumed: "
"""What begins an assumption, which no file can show, among what was not checked."""
OWN_SPEC = "that a spec file is this program"
UNKNOWN_SIGNER = "whose key that is"
UNSIGNED = "who made it"


def conclusion(spec: object, left: Sequence[str]) -> str:
    """Return the conclusion where nothing was refused, and the first remaining comparison."""
    told = "all that could be compared agrees"
    if any(NOT_FOUND in text or NOT_OPENED in text for text in left):
        told += "; the ledger was not compared"
    if spec is None:
        told += "; no spec was compared: is it the program that you reviewed? --spec FILE says it"
    if any(text.startswith(UNSIGNED) for text in left):
        return f"{told}; nobody signed it, so nothing shows who made it"
    if any(text.startswith(UNKNOWN_SIGNER) for text in left):
        return f"{told}; it is signed, by whom --signer FILE says"
    return told


@dataclass
class Verification:
    """Hold a certificate, its plan made again, and findings."""

    path: File
    plain: dict[str, Any]
    record: Certificate
    plan: Plan
    checked: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def differs(self, what: str) -> ReleaseError:
        """Return the refusal of a certificate whose parts do not agree (OS701)."""
        return ReleaseError(
            "OS701",
            str(self.path),
            expected="a certificate whose parts agree",
            got=f"another value at {what}",
            hint="the certificate or a file beside it was changed, or made by another version of this "
            "package: the version that wrote it can verify it.",
        )

    def equal(self, ours: Any, theirs: Any, what: str) -> None:
        """Refuse two values that are not one (OS701)."""
        if not same(ours, theirs):
            raise self.differs(what)
