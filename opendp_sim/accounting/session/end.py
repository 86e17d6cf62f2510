"""Note a session's end beside its ledger.

For a ledger that could not be written. A ledger may be in use by another run for long. Then the end of
a store's chain is written into a file of its own beside the ledger, named after a digest of the
store's name, while the lock of that name is held. The next opening asks the ledger and this note:
whichever belongs to the ledger's last turn of the store says what its chain must end with. Law:
``store.md``, Lemma 5.
"""

from __future__ import annotations

from pathlib import Path

from opendp_sim.accounting.atomic_files import write_json
from opendp_sim.accounting.file_schemas import Digest, Strict, read_strictly
from opendp_sim.accounting.ledger.postgres_connection import is_shared
from opendp_sim.accounting.session.identity import beside_ledger, store_refusal
from opendp_sim.core.system.regular_files import regular

_NOTE = ".end"


class End(Strict):
    """Where the chain of a store ended, and in which turn."""

    turn: str
    place: int
    head: Digest


def note_end(ledger: Path, name: str, end: End) -> None:
    """Write the note, holding the store's name; raises OSError."""
    write_json(beside_ledger(ledger, name, _NOTE), end.model_dump())


def noted_end(ledger: Path, name: str) -> End | None:
    """Return the note, None without one; another file is refused (OS407)."""
    if is_shared(ledger):
        return None
    try:
        text = regular(beside_ledger(ledger, name, _NOTE)).read_bytes()
    except FileNotFoundError:
        return None
    except OSError:
        text = b""
    return read_strictly(
        End, text, lambda _: store_refusal("the note of a session's end", "another file")
    )


def remove_note(ledger: Path, name: str) -> None:
    """Remove the note, which the ledger has replaced."""
    beside_ledger(ledger, name, _NOTE).unlink(missing_ok=True)
