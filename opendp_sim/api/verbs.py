"""Provide the verbs plan, apply, run, load, verify, session, stream."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import opendp_sim.prelude  # noqa: F401 - fills the catalogue
from opendp_sim.accounting.ledger.standing import LedgerStanding
from opendp_sim.accounting.release.release import Release
from opendp_sim.api.recipe import Recipe, check_word
from opendp_sim.core.device import Device
from opendp_sim.core.errors import DataError, ParameterError
from opendp_sim.dsl.builder import Builder
from opendp_sim.dsl.grammar.reader import Draft, draft_of
from opendp_sim.dsl.plan.plan import Plan, plan_file, plan_of
from opendp_sim.dsl.run.charge import standing as ledger_standing
from opendp_sim.dsl.run.execute import apply as apply_plan
from opendp_sim.dsl.run.records import Applied
from opendp_sim.dsl.run.session import Served, serve
from opendp_sim.dsl.run.stream import Stream
from opendp_sim.dsl.text.diagnostic import Notes
from opendp_sim.dsl.text.yaml_document import parse
from opendp_sim.dsl.verification.verify import verify as verify_certificate

Spec = Plan | Builder | Draft | Mapping[str, Any] | str | PathLike[str]
"""A plan, a program in the making, a spec as a dict, as YAML text (with a line break), or its path."""


def plan(spec: Spec, **values: Any) -> Plan:
    """Check and plan a program without opening its data.

    Args:
        spec: a path, YAML text that has a line break, a dict, a ``Builder``, or a plan (returned as
            it is).
        **values: values of the spec's ``params``, of a path, text or dict.

    Raises:
        Refused: every independent finding, each with its place and what to do. ParameterError (OS102):
            values beside a plan or a ``Builder``, which are resolved already.
    """
    if values and isinstance(spec, Plan | Builder | Draft):
        raise ParameterError(
            "OS102", "plan", expected="no values of `params` beside a plan or a Builder",
            got=", ".join(values), hint="give them where the spec is read: plan(spec, name=value).",
        )  # fmt: skip
    if isinstance(spec, Plan):
        return spec
    if isinstance(spec, Builder):
        return spec.plan()
    if isinstance(spec, Draft):
        return plan_of(spec)
    if isinstance(spec, Mapping):
        return plan_of(draft_of(dict(spec), values, written=True))
    if isinstance(spec, str) and "\n" in spec:
        notes = Notes()
        document = parse(spec, "spec", notes)
        notes.raise_if_any(document)
        return plan_of(draft_of(document.data, values, written=True))
    return plan_file(Path(spec), values)


def apply(
    spec: Spec,
    data: Any = None,
    *,
    into: str | PathLike[str] | None = None,
    workers: int | None = None,
    device: str | Device | None = None,
    replace: bool = False,
    expected_head: str | None = None,
) -> Applied:
    """Run a plan.

    One data gate, one durable charge, then releases, outputs and certificates.

    Args:
        spec: what ``plan`` takes; a plan that was reviewed is run exactly as it is.
        data: for every source of kind ``memory``: its name to a data frame, a dict of columns or an
            array; the frame or array itself where there is one such source.
        into: the folder that ``save:`` paths start from; default the spec's own.
        workers: threads that build sketches, default one a core; any number gives the same bits.
        device: ``cuda``, ``cuda:1``, ... for sums on a card (extra ``gpu``); default the CPU. The same
            bits.
        replace: let an output take the place of one that another program released and paid for.
        expected_head: the ledger's head (``standing(spec).head``) when the run was
            confirmed: if another run was charged since, this one is not (OS409).

    Raises:
        Refused, DataError, BudgetError: before the charge; nothing was spent. InternalError (OS902):
            a private function failed after the charge, which stands.
    """
    made, folder = plan(spec), None if into is None else Path(into)
    return apply_plan(
        made,
        memory=_named(made, data),
        into=folder,
        workers=workers,
        device=device,
        replace=replace,
        expected_head=expected_head,
    )


def _named(made: Plan, data: Any) -> Mapping[str, Any] | None:
    """Return tables by their sources' names."""
    if data is None or isinstance(data, Mapping):
        return data
    asked = (output.decl.query for output in made.outputs.values())
    refs = [
        *(entry.source for entry in made.program.data),
        *(ref for ref in asked if ref is not None),
    ]
    names = list(dict.fromkeys(str(ref.argument) for ref in refs if ref.kind == "memory"))
    if len(names) == 1:
        return {names[0]: data}
    raise DataError(
        "OS601", "data",
        expected=f"tables by name: {', '.join(names) or 'none, this program reads files'}",
        got="a table without a name",
        hint="give a dict: {name: table}, for every source and query of kind `memory`.",
    )  # fmt: skip


def run(spec: Spec, data: Any = None, **values: Any) -> Applied:
    """Plan and apply at once; ``values`` are those of the spec's ``params``."""
    return apply(plan(spec, **values), data)


def standing(spec: Spec, **values: Any) -> LedgerStanding | None:
    """Return where a program's ledger stands, before anything is spent.

    Returns:
        Its head, its sum beside the limit before and after one run (exact losses, and shares of the
        limit), and how many runs fit; None for a program whose ledger nobody keeps. A ledger that
        cannot be read has ``refused``. Nothing is written, and no data is opened.
    """
    return ledger_standing(plan(spec, **values))


def load(path: str | PathLike[str]) -> Release:
    """Read a saved release.

    Its public matrices are drawn again and compared at first use.

    Raises:
        ReleaseError (OS701): no such file, or a damaged or foreign one.
    """
    return Release.load(path)


def verify(certificate: str | PathLike[str]) -> tuple[list[str], list[str]]:
    """Derive every number of a certificate again, and compare; see ``opendp-sim verify``."""
    return verify_certificate(Path(certificate))


def session(
    spec: Spec, data: Any = None, output: str | None = None, *, device: str | Device | None = None
) -> Served:
    """Open a spec's session.

    A context manager with ``ask`` and ``update``.

    Args:
        spec: what ``plan`` takes; one output says ``serve: session``.
        data: as for ``apply``.
        output: which output, where several are served.
        device: ``cuda``, ``cuda:1``, ... to compare queries with records on a card; default the CPU.
    """
    made = plan(spec)
    return serve(made, output, memory=_named(made, data), device=device)


def stream(
    spec: Spec | Recipe[Any],
    periods: int,
    *,
    into: str | PathLike[str],
    base: int | None = None,
    person_periods: int | None = None,
) -> Stream:
    """Begin a sketch that grows, or go on with it.

    A context manager with ``add`` and ``release``. All periods together cost what the plan says of one
    release, of each record in one of them, or of each person in a stated number of them. The noise of
    periods 1 to t is less than a release of each would have (``continual.md``). The command
    ``opendp-sim stream`` does the same with files.

    Args:
        spec: a recipe such as ``sim.density(...)``, or what ``plan`` takes: one sketch with noise.
        periods: the most that will ever come, from public knowledge.
        into: the folder of the stream: exact sums in ``stream.private``, which is as secret as the data,
            and released nodes beside it.
        base: of the tree; default the one of least error. 2 is the binary tree.
        person_periods: in how many periods a person is, at most, with all rows of the plan's unit in
            each. Nothing checks it, and who is in more is less protected: ``periods`` holds whatever
            anybody does. To be stated where the unit is a person; else one.

    Returns:
        the stream, which is closed at the end of its block and opened again by the same call.

    Raises:
        SpaceError (OS201, OS202): a plan that makes no stream. ParameterError (OS101): periods or base.
        BudgetError (OS402): the ledger refuses. (OS407): open elsewhere, another plan's, an older copy.

    Example:
        >>> import tempfile
        >>> import opendp_sim as sim
        >>> fit = sim.density({"x": (0, 1)}, bandwidth=0.1, epsilon=100.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with sim.stream(fit, periods=12, into=folder) as months:
        ...         for month in range(3):
        ...             release = months.add({"x": [0.5] * 1000})
        ...         last = months.release(2, 3)
        >>> release.density([0.5])["density"].round(-2).tolist()
        [3000.0]
        >>> last.density([0.5])["density"].round(-2).tolist()
        [2000.0]
    """
    check_word("into", into, (str, PathLike), "a folder", 'into="growing".')
    if isinstance(spec, Recipe):
        made, tables = spec.plan, spec.tables
    else:
        made, tables = plan(spec), None
    return Stream(made, periods, into, base=base, person_periods=person_periods, tables=tables)
