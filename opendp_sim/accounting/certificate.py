"""Certificates: what was claimed about one output, with everything needed to check it again."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from opendp_sim.core.errors import ReleaseError

__all__ = ["FORMAT", "assumptions", "digest_of", "read_certificate", "write_json"]

FORMAT = "opendp_sim/certificate/1"

_ALWAYS = (
    "The privacy unit is the one stated: one record (or one person with the stated number of them).",
    "The columns' declarations (widths, bounds, keys) come from public knowledge, not from the data.",
    "The queries are public: they were not made from the private data.",
    "The seeds of public matrices were not chosen after looking at the data.",
    "OpenDP's samplers and this package's bulk samplers draw from the operating system's entropy.",
    "The lemmas beside each mechanism hold, and the code does what they say.",
)
_INGEST = {
    "refuse": "Data that broke its declaration would have been refused before the charge; that there "
    "was no refusal is not protected.",
    "enforce": "Records were clamped or dropped by the declared rule, record by record.",
    "assume": "Nobody checked that the data keeps its declared bounds and keys; the claim is void "
    "if it does not.",
}


def assumptions(ingest: str, *, by_person: bool, public: str | None = None) -> list[str]:
    """Return what a reader has to believe, in words; ``public`` names a dataset declared so."""
    out = [*_ALWAYS, _INGEST[ingest]]
    if public is not None:
        out.append(f"Dataset `{public}` was declared public: nothing is claimed about its records.")
    if by_person:
        out.append("The column that names the person names the same person every time.")
    return out


def digest_of(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically: a temporary file beside it, flushed, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as stream:
        json.dump(value, stream, indent=1, sort_keys=True)
        stream.write("\n")
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(path)


def read_certificate(path: str | Path) -> dict[str, Any]:
    """Read a certificate, or refuse what is none (OS701)."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ReleaseError(
            "OS701", str(path), expected="a certificate as `opendp-sim apply` writes it",
            got="no such file, or another one", hint="name the file that ends in .certificate.json.",
        )  # fmt: skip
    return found
