"""What stands where a run will write: files of an earlier run, and whether it was of the same program.

Certificates are public, and only they are read: data is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from os.path import exists
from pathlib import Path as File

from opendp_sim.accounting.certificate import read_certificate
from opendp_sim.core.errors import SimError
from opendp_sim.dsl.certify import certificate_path
from opendp_sim.dsl.plan import Plan
from opendp_sim.dsl.reader import draft_of

__all__ = ["Earlier", "earlier_of"]


@dataclass(frozen=True)
class Earlier:
    """Outputs whose files are there already, and what is known about the run that wrote them.

    Attributes:
        names: the outputs.
        same: whether a certificate beside one of them says that the same program ran, on the same source
            with the same losses.
    """

    names: tuple[str, ...] = ()
    same: bool = False


def earlier_of(plan: Plan, into: str | None) -> Earlier:
    """Return what an earlier run left where ``plan`` will write."""
    folder = File(plan.program.folder if into is None else into)
    saved = {name: output.decl.save for name, output in plan.outputs.items()}
    there = {
        name: folder / save
        for name, save in saved.items()
        if save is not None and exists(folder / save)  # noqa: PTH110 - false of a name too long
    }
    return Earlier(tuple(there), any(_ran(plan, file) for file in there.values()))


def _ran(plan: Plan, file: File) -> bool:
    """Say whether a file's certificate is of this program."""
    try:
        record, _ = read_certificate(certificate_path(file))
        draft = draft_of(record.program, folder=str(plan.program.folder))
    except SimError:
        return False
    return draft.program.hash == plan.program.hash
