"""List a folder's verified releases, started sessions and ledgers once.

Names come from here: no path is ever made from a request. Links are left out, as is a release whose
certificate does not verify and a session that was not started or that no ledger counts. A release is
held in memory with its file's sha256: a file that is exchanged later changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from opendp_sim.accounting.certificate.certificate import digest_of
from opendp_sim.accounting.ledger.ledger import Ledger, is_there
from opendp_sim.accounting.release.query import features_of
from opendp_sim.accounting.release.release import Release
from opendp_sim.accounting.session.postgres import mark_at
from opendp_sim.core.errors import BudgetError, DataError, ReleaseError, SimError
from opendp_sim.domains.records import Column, Records
from opendp_sim.dsl.plan.plan import Plan, plan_file
from opendp_sim.dsl.plan.records import ledger_path
from opendp_sim.dsl.run.certificate import certificate_path
from opendp_sim.dsl.run.charge import is_paid
from opendp_sim.dsl.run.stores import sessions_of, store_path
from opendp_sim.dsl.text.diagnostic import Refused
from opendp_sim.dsl.verification.verify import load_checked, verify
from opendp_sim.serve.questions import FreeQuestion


@dataclass(frozen=True)
class SavedRelease:
    """Hold a verified release and the digest of its file."""

    name: str
    path: Path
    release: Release
    sha256: str
    features: Records

    @cached_property
    def questions(self) -> dict[str, FreeQuestion]:
        """Return the questions that it answers, by name."""
        return {op: FreeQuestion(self.release, op, self.features) for op in self.release.ops}

    @property
    def certificate(self) -> Path:
        """Return the certificate's path."""
        return certificate_path(self.path)

    def bounds(self, column: Column) -> list[float] | None:
        """Return the declared public bounds of a column, or None."""
        domain = self.release.stages[0].domain
        found = domain.column(column.name) if isinstance(domain, Records) else None
        bounds = () if found is None else found.bounds
        return [float(bound) for bound in bounds] if len(bounds) == 2 else None


@dataclass(frozen=True)
class SpecSession:
    """Name a session of a spec that was started."""

    name: str
    plan: Plan
    output: str


@dataclass(frozen=True)
class Folder:
    """List everything that is served, by name.

    Attributes:
        sessions: those that were started. startable: those that an operator may start.
        left_out: files that are not served, with the reason in words.
    """

    releases: dict[str, SavedRelease] = field(default_factory=dict)
    sessions: dict[str, SpecSession] = field(default_factory=dict)
    startable: dict[str, SpecSession] = field(default_factory=dict)
    ledgers: dict[str, Path] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def list_folder(folder: str | Path, *, without_ledger: bool = False) -> Folder:
    """List a folder.

    Args:
        folder: where releases (``.npz`` with certificate), specs (``.yaml``) and ledgers are.
        without_ledger: whether sessions are served that no ledger counts, where a copy of the store has
            a budget of its own.

    Raises:
        DataError (OS601): no such folder. BudgetError (OS407): a session is open elsewhere.
    """
    root, found = Path(folder), Folder()
    if not root.is_dir():
        raise DataError(
            "OS601", str(folder), expected="a folder", got="none", hint="name an existing folder."
        )
    for path in _files(root, ".npz", found):
        try:
            found.releases[path.stem] = _release(path)
        except SimError as error:
            found.left_out[path.name] = f"{error.code}: no release whose certificate verifies"
    for path in _files(root, ".yaml", found):
        try:
            plan = plan_file(path)
        except (SimError, Refused):
            found.left_out[path.name] = "a spec with findings: see `opendp-sim check`"
            continue
        for session in _sessions(path, plan):
            why = _why_not(session, without_ledger=without_ledger)
            if why:
                found.left_out[f"{path.name}, {session.output}"] = why
            elif is_started(session):
                found.sessions[session.name] = session
            else:
                found.startable[session.name] = session
                found.left_out[f"{path.name}, {session.output}"] = _NOT_STARTED
    found.ledgers.update({path.stem: path for path in _files(root, ".ledger", found)})
    return found


def _files(root: Path, ending: str, found: Folder) -> Iterator[Path]:
    for path in sorted(root.glob(f"*{ending}")):
        if path.is_symlink() or not path.is_file():
            found.left_out[path.name] = "a link, or no file"
        else:
            yield path


def _release(path: Path) -> SavedRelease:
    verify(certificate_path(path))
    digest, release = digest_of(path), load_checked(path)
    if digest_of(path) != digest:
        raise ReleaseError(
            "OS701", path.name, expected="the file that was verified", got="another one",
            hint="start again when nothing writes into the folder.",
        )  # fmt: skip
    _ = release.ops  # bound once, before anybody asks
    saved = SavedRelease(path.stem, path, release, digest, features_of(release))
    _ = saved.questions
    return saved


def _sessions(path: Path, plan: Plan) -> Iterator[SpecSession]:
    outputs = sessions_of(plan)
    for output in outputs:
        name = path.stem if len(outputs) == 1 else f"{path.stem}.{output}"
        yield SpecSession(name, plan, output)


def _why_not(session: SpecSession, *, without_ledger: bool) -> str:
    """Return why a session is not served, or nothing."""
    plan = session.plan
    if ledger_path(plan) is None and not without_ledger:
        return "a session that no ledger counts: name a `ledger`, or serve with --without-ledger"
    return ""


_NOT_STARTED = (
    "a session that was not started: run `opendp-sim apply`, or let an operator start it over HTTP"
)


def is_started(session: SpecSession) -> bool:
    """Return whether a session's store was paid for.

    By its ledger, where there is one.
    """
    plan = session.plan
    mark, path = mark_at(store_path(plan, plan.outputs[session.output])), ledger_path(plan)
    if mark is None or path is None or not is_there(path):
        return mark is not None and path is None
    with Ledger.open(path) as ledger, suppress(BudgetError):  # which opening it reports
        return is_paid(ledger, mark)
    return True
