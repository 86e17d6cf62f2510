"""Read and write certificates, each one output's claim to check again.

The format is a public page, ``certificate.md`` beside this file: every field, the canonical JSON, and
how each number follows from which, so that somebody who does not trust this code can check it.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import StringConstraints

from opendp_sim.accounting.file_schemas import (
    Digest,
    FileName,
    Plain,
    Strict,
    Time,
    is_heavy,
    read_both,
)
from opendp_sim.accounting.ledger._entries import Entry, canonical_json, entry_hash
from opendp_sim.core.errors import ReleaseError
from opendp_sim.core.system.file_kinds import kind_of_file
from opendp_sim.core.system.regular_files import regular

CERTIFICATE_FORMAT = "opendp_sim/certificate/3"
FORMER_FORMAT = "opendp_sim/certificate/2"
"""Without a ``derivation``; it is read and verified, and written no more."""
_LONGEST = 2**26
"""Bytes of a certificate: a program and its plan with all keys."""
BINDS = ("charge", "signature")
"""The fields that are about the statement, which is everything else."""

FORMULAS = dict.fromkeys(
    (
        *("bound_contributions", "select", "rescale", "clip_rows", "quantize"),
        *("jl_projection", "l1_embedding", "fourier_features", "vote_counts"),
        *("race_sketch", "paired_projections", "threshold_sketch", "distance_tree", "moment_tree"),
        *("moments_sketch", "slice_sketch", "second_moments", "fourier_sketch"),
        *("gauss_transform_sketch", "exponential_sum"),
        *("laplace", "gaussian", "rounded_gaussian", "ind_knn", "hybrid_knn"),
        *("linear_model", "linear_regression"),
        *("choose_k", "peel", "gated_peel", "gaussian_top_k", "limited_domain", "noise_threshold"),
        *("noisy_max_gaussian", "stable_set", "stable_top_k", "top_k", "top_stable", "pate_labels"),
    ),
    1,
)
"""Version of each mechanism's row in the table of formulas of ``certificate.md``."""


def formula_id(key: str) -> str | None:
    """Return the published formula of a mechanism, or None."""
    return f"{key}/{FORMULAS[key]}" if key in FORMULAS else None


_ALWAYS = (
    "The privacy unit is the one that the program states: rows, or all rows of one name.",
    "The columns' declarations (widths, bounds, keys) come from public knowledge, not from the data.",
    "The queries are public: they are not made from the private data.",
    "The seeds of public matrices are not chosen after a look at the data.",
    "OpenDP's samplers and this package's bulk samplers draw from the operating system's entropy.",
    "There are fewer than 2**31 records: they are counted while they are read, and more are refused.",
    "The lemmas beside each mechanism hold, and the code does what they say.",
)
_INGEST = {
    "refuse": "Data that breaks its declaration is refused before the charge; that there is no refusal "
    "is not protected.",
    "enforce": "Records are clamped or dropped by the declared rule, record by record.",
    "assume": "Nobody checks that the data keeps its declared bounds and keys; the claim is void "
    "if it does not.",
}


_FORMER = {
    "The privacy unit is the one stated: one record (or one person with the stated number of "
    "them).": _ALWAYS[0],
    "The queries are public: they were not made from the private data.": _ALWAYS[2],
    "The seeds of public matrices were not chosen after looking at the data.": _ALWAYS[3],
    "There were fewer than 2**31 records: they were counted while they were read, and more are "
    "refused.": _ALWAYS[5],
    "Data that broke its declaration would have been refused before the charge; that there "
    "was no refusal is not protected.": _INGEST["refuse"],
    "Records were clamped or dropped by the declared rule, record by record.": _INGEST["enforce"],
    "Nobody checked that the data keeps its declared bounds and keys; the claim is void "
    "if it does not.": _INGEST["assume"],
}
"""Each assumption as earlier certificates word it. Whoever rewords one adds the old words here."""
_FORMERLY_PUBLIC = re.compile(
    r"(Dataset `.*`) was (declared public: nothing is claimed about its records\.)", re.DOTALL
)


def as_worded_now(texts: list[str]) -> list[str]:
    """Return a certificate's assumptions in this version's words, where it knows them."""
    known = (_FORMER.get(text, text) for text in texts)
    return [_FORMERLY_PUBLIC.sub(r"\1 is \2", text) for text in known]


HANDED = (
    "The table is taken as it is handed over: its preparation, copies of its records and weights are not "
    "covered."
)
"""Of a table in memory: nothing tells how it was made."""


def assumptions(
    ingest: str, *, by_person: bool, public: str | None = None, handed: bool = False
) -> list[str]:
    """Return the assumptions of a claim, in words.

    ``public`` names a dataset that is declared public; ``handed``: the private table is one in memory.
    """
    out = [*_ALWAYS, _INGEST[ingest], *([HANDED] if handed else [])]
    if public is not None:
        out.append(f"Dataset `{public}` is declared public: nothing is claimed about its records.")
    if by_person:
        out.append("The column that names the person names the same person every time.")
    return out


def digest_of(path: Path) -> str:
    """Return the sha256 of a file."""
    with regular(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class Quoted(Strict):
    """An entry of a ledger as a certificate quotes it."""

    entry: int
    previous: Digest
    body: str
    hash: Digest

    @property
    def follows(self) -> bool:
        """Return whether the hash follows from the previous one."""
        return entry_hash(self.previous, self.body) == self.hash


class Signature(Strict):
    """A signature over the statement's digest and the quoted entry (``signature.py``)."""

    scheme: Literal["ed25519"]
    key: Digest
    value: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]


class _File(Strict):
    name: FileName
    sha256: Digest
    bytes: int


class _LedgerPart(Strict):
    file: str
    terms: Plain
    spent: Plain
    left: Plain
    start: Digest | None = None
    """The hash before its first entry; certificates from before ledgers had names have none."""


class Certificate(Strict):
    """Hold a certificate file, a statement with its ``charge`` and ``signature``."""

    format: Literal["opendp_sim/certificate/2", "opendp_sim/certificate/3"]
    output: str
    time: Time
    names: dict[str, str]
    owner: str | None
    mechanisms: list[dict[str, str]]
    program: Plain
    values: Plain
    plan: Plain
    derivation: Plain | None = None
    """None in the former format alone, which had none."""
    assumptions: list[str]
    privacy: Plain
    evidence: Plain
    versions: dict[str, str]
    file: _File
    ledger: _LedgerPart | None
    charge: Quoted | None
    signature: Signature | None


def quoted(entry: Entry) -> dict[str, Any]:
    """Return what a certificate quotes of a ledger's entry."""
    return {"entry": entry.seq, "previous": entry.previous, "body": entry.text, "hash": entry.hash}


def statement_digest(certificate: dict[str, Any]) -> str:
    """Return the sha256 of the statement's canonical JSON."""
    stated = {name: value for name, value in certificate.items() if name not in BINDS}
    return hashlib.sha256(canonical_json(stated).encode()).hexdigest()


def read_certificate(path: str | Path) -> tuple[Certificate, dict[str, Any]]:
    """Read a certificate as a record and as plain JSON, for digests.

    Raises:
        ReleaseError (OS701): no such file, or no certificate of this format.
    """

    def refusal(came: str) -> ReleaseError:
        found = kind_of_file(Path(path))
        own = found.name == "certificate"
        other = f"; {found.then}" if found.then and not own else ""
        return ReleaseError(
            "OS701", str(path), got=came if own and came else found.said,
            expected=f"a certificate of format {CERTIFICATE_FORMAT}, as `apply` writes it",
            hint=f"name the file that ends in .certificate.json{other}. Its format is on the page "
            "`accounting/certificate/certificate.md`.",
        )  # fmt: skip

    try:
        long = Path(path).stat().st_size > _LONGEST
        text = b"" if long else regular(path).read_bytes()
    except (OSError, ValueError):
        raise refusal("") from None
    if long or is_heavy(text):
        raise refusal("a longer file than any certificate")
    return read_both(Certificate, text, refusal)
