"""Define a ledger's terms, entries and hash chain."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, RootModel

from opendp_sim.accounting.budget import Limit, MeasureName, as_written
from opendp_sim.accounting.composition import Charge
from opendp_sim.accounting.file_schemas import Digest, Strict, Time, read_both, read_strictly
from opendp_sim.core.errors import SimError

LEDGER_FORMAT = "opendp_sim/ledger/2"


@dataclass(frozen=True)
class Entry:
    """One line of the ledger.

    Attributes:
        seq: its number, from 1.
        body: what it records. ``kind`` is ``reserve``, ``charge``, ``refusal``, ``void``, ``session`` or
            ``outcome`` (``dsl/run/charge.md`` says what each means).
        hash: the chained hash of everything up to here.
        text: the body as it was hashed.
        previous: the hash before it.
    """

    seq: int
    body: dict[str, Any]
    hash: str
    text: str = ""
    previous: str = ""

    @property
    def kind(self) -> str:
        """What the entry records."""
        return str(self.body["kind"])

    def is_row(self, row: tuple[Any, Any, Any], previous: str) -> bool:
        """Return whether a row (number, body, hash) is this entry after ``previous``."""
        return (*row, previous) == (self.seq, self.text, self.hash, self.previous)


@dataclass(frozen=True)
class Terms:
    """What the ledger was opened with, fixed for its life."""

    measure: MeasureName
    unit: str
    limit: Limit

    def plain(self) -> dict[str, Any]:
        """The JSON form."""
        return {"measure": self.measure, "unit": self.unit, "limit": self.limit.plain()}

    @property
    def words(self) -> dict[str, str]:
        """Each term in words."""
        return {"measure": self.measure, "unit": self.unit, "limit": self.limit.text}


def canonical_json(value: Any) -> str:
    """Return JSON that is the same for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def entry_hash(previous: str, body: str) -> str:
    """Return an entry's hash, which includes the previous one."""
    return hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()


def counting_entries(entries: Sequence[Entry]) -> list[Entry]:
    """Return the charges and unsettled reserves, whose losses count."""
    settled = {
        e.body["of"]
        for e in entries
        if e.kind in ("charge", "refusal", "void") and e.body.get("of") is not None
    }
    return [
        e for e in entries if e.kind == "charge" or (e.kind == "reserve" and e.seq not in settled)
    ]


def stores_of(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the stores that an entry pays for."""
    one = body.get("store")
    return (*([] if one is None else [one]), *(body.get("stores") or {}).values())


def store_for(body: Mapping[str, Any], output: str) -> str | None:
    """Return the store of ``output`` that an entry pays for, or None."""
    return (body.get("stores") or {}).get(output, body.get("store"))


# --- reading what a file says ---------------------------------------------------------------------


def _readable(loss: dict[str, Any]) -> dict[str, Any]:
    try:
        Charge.read(loss)
    except SimError:
        raise ValueError("a loss") from None
    return loss


_Loss = Annotated[dict[str, Any], AfterValidator(_readable)]


class _Body(Strict):
    time: Time
    token: str | None = None
    name: str | None = None
    program: str | None = None
    dataset: str | None = None
    unit: str | None = None
    store: str | None = None
    """What the run's session is called."""
    stores: dict[str, str] | None = None
    """The same where a run has several sessions: output to name."""


class _Reserve(_Body):
    kind: Literal["reserve"]
    loss: _Loss
    seal: Digest | None = None
    """Of the files that the run will leave (``lamport_signature.py``)."""


class _Written(Strict):
    sha256: Digest
    statement: Digest


class _Charge(_Body):
    kind: Literal["charge"]
    loss: _Loss
    of: int | None = None
    files: dict[str, _Written] | None = None


class _Settled(_Body):
    kind: Literal["refusal", "void"]
    of: int | None = None
    code: str
    ingest: Literal["enforce"] | None = None


class _Session(_Body):
    kind: Literal["session"]
    store: str
    turn: str
    place: int | None = None
    head: Digest | None = None
    ended: Literal[True] | None = None
    answered: int | None = None
    """Questions that the store has answered in all, at its end."""


class _Outcome(_Body):
    kind: Literal["outcome"]
    of: int
    files: dict[str, Digest] | None = None


class _AnyBody(
    RootModel[
        Annotated[_Reserve | _Charge | _Settled | _Session | _Outcome, Field(discriminator="kind")]
    ]
):
    """One line of a ledger."""


def _ratio(text: str) -> str:
    if "/" not in text or as_written(text) is text:
        raise ValueError("a bound")
    return text


_Bound = float | Annotated[str, AfterValidator(_ratio)]
"""A decimal, or a ratio such as "1/7"."""


class _Limit(Strict):
    epsilon: _Bound | None = None
    delta: _Bound | None = None
    rho: _Bound | None = None
    mu: _Bound | None = None
    reserve: dict[Literal["mechanisms"], _Bound] | None = None


class _Genesis(Strict):
    format: Literal["opendp_sim/ledger/2"]
    measure: MeasureName
    unit: str
    limit: _Limit
    name: str | None = None
    """Drawn when it was made, so that no other ledger's chain starts as this one's; before, none was."""
    anew: Time | None = None
    """When it took the place of a lost ledger, whose charges are forgotten; nothing is decided by it."""


class _Head(Strict):
    count: int
    hash: Digest


def read_entry(seq: int, text: str, previous: str, refusal: Callable[[str], SimError]) -> Entry:
    """Return the entry in a ledger's line, or refuse it."""
    _, body = read_both(_AnyBody, text, lambda came: refusal(f"no entry at {seq} ({came})"))
    return Entry(seq, body, entry_hash(previous, text), text, previous)


def read_terms(text: str, refusal: Callable[[str], SimError]) -> Terms:
    """Return the terms that a ledger's first record holds."""
    found = read_strictly(_Genesis, text, lambda came: refusal(f"terms that are none ({came})"))
    return Terms(found.measure, found.unit, Limit.read(found.limit.model_dump()))


def read_birth(text: str, refusal: Callable[[str], SimError]) -> tuple[str | None, str | None]:
    """Return a ledger's name and its time of replacement, if any."""
    found = read_strictly(_Genesis, text, lambda came: refusal(f"terms that are none ({came})"))
    return found.name, found.anew


def read_head(text: str, refusal: Callable[[str], SimError]) -> tuple[int, str]:
    """Return (number of entries, last hash) as a ledger states them."""
    found = read_strictly(_Head, text, lambda _: refusal("a cut or changed tail"))
    return found.count, found.hash
