"""Answer outputs from releases, and rehearse them before the charge.

A run that is charged and gives no answer has spent its budget for nothing. So before the charge the
whole run is made once on a dataset without records: what a query, a mechanism of a package, or the
form of an answer makes fail, fails there. No record is read, so a refusal tells nothing (``charge.md``,
Lemma 9). After the charge, an output that fails all the same leaves the others as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path as File
from tempfile import TemporaryDirectory
from typing import Any

from opendp_sim.accounting.release.release import Release
from opendp_sim.core.errors import DataError, InternalError, SimError
from opendp_sim.core.space import Domain
from opendp_sim.domains.released import AnswerColumns
from opendp_sim.domains.rows import with_points
from opendp_sim.dsl.files.write import write_output
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.plan.release_plan import ReleasePlan
from opendp_sim.dsl.run.inputs import Inputs
from opendp_sim.dsl.run.stores import open_session
from opendp_sim.dsl.types.outputs import OutputType
from opendp_sim.io.blocks import Block

Make = Callable[[ReleasePlan, Inputs], Any]
"""From a release's plan and blocks of data to what is released."""


def answer(release: Release, posts: Any, queries: Any, points: Any = None) -> Any:
    """Answer public queries from a release alone, by its steps in order.

    ``points`` are public points, for questions with ``public: points``.
    """
    mapped = None if queries is None else release.queries(queries)
    if points is not None:
        mapped = with_points(mapped, release.queries(points))
    value: Any = None
    for place, post in enumerate(posts):
        first = place == 0 or post.takes == "release"
        value = post.function(release.arrays, mapped) if first else post.function(value)
    return value


def result_of(output: OutputType, value: Any, inputs: Inputs) -> Any:
    """Return the result of one output, a release or answers from it."""
    queries, points = (of.get(output.decl.name) for of in (inputs.queries, inputs.points))
    if isinstance(value, Release):
        silent = all(post.takes == "answer" or not post.asks for post in output.posts)
        if output.posts and (queries is not None or silent):
            return without_classes(answer(value, output.posts, queries, points), output.domain)
        return value
    for post in output.posts:
        value = post.function(value) if post.takes == "answer" else post.function(value, queries)
    return without_classes(value, output.domain)


def without_classes(value: Any, domain: Domain | None) -> Any:
    """Return answers, of shape (q,) where their domain has no classes."""
    return domain.without_classes(value) if isinstance(domain, AnswerColumns) else value


def results_of(
    plan: Plan, made: Mapping[str, Any], inputs: Inputs
) -> tuple[dict[str, Any], SimError | None]:
    """Return the results of outputs, and the first refusal."""
    found: dict[str, Any] = {}
    first: SimError | None = None
    for name, output in plan.outputs.items():
        if output.interactive:
            continue  # asked later, from its store
        refused: SimError | None = None
        try:
            found[name] = result_of(output, made[output.stage.name], inputs)
        except SimError as error:
            refused = error.with_traceback(None)
            refused.__cause__ = refused.__context__ = None
        except Exception:  # noqa: BLE001 - whatever it says may be about the data
            refused = InternalError(
                "OS902", f"outputs.{name}", expected="a result",
                got="a failure inside a post-processing step",
                hint="the charge stands; run the spec on public data to reproduce the failure.",
            )  # fmt: skip
        first = first or refused
    return found, first


def rehearse(plan: Plan, public: Inputs, make: Make, references: Mapping[str, Block]) -> None:
    """Make every release and output of an empty dataset, before the charge.

    ``make`` makes one release; ``references`` are what sessions' queries look like, by output.

    Raises:
        DataError (OS607): queries that the release cannot answer. InternalError (OS903): a mechanism or
            a step fails where there is no record, or its result cannot be written. SimError: as it says.
    """
    made: dict[str, Any] = {}
    for name, release in plan.releases.items():
        if not release.interactive:
            made[name] = _tried(f"flow.{name}", lambda: make(release, _nothing(release)))  # noqa: B023 - called at once
    for name, output in plan.outputs.items():
        if output.stage.name in made:
            _tried(f"outputs.{name}", lambda: _finished(output, made, public))  # noqa: B023 - called at once
        elif output.interactive:
            where = f"flow.{output.stage.name}"
            _tried(where, lambda: _opened(plan, output, references.get(name)))  # noqa: B023 - called at once


def _nothing(release: ReleasePlan) -> Inputs:
    """Return a dataset without records for a release."""
    entry = release.typed.entry
    return Inputs({entry.name: lambda: iter([entry.records.no_records()])}, {})


def _opened(plan: Plan, output: OutputType, reference: Block | None) -> None:
    """Open a temporary session and set its reference."""
    with suppress(OSError), TemporaryDirectory() as folder:  # of this disk, not of the run's
        path = File(folder) / "rehearsed.session"
        with open_session(
            plan, output, _nothing(plan.releases[output.stage.name]), path
        ) as session:
            if reference is not None:
                session.refer(reference)


def _finished(output: OutputType, made: Mapping[str, Any], public: Inputs) -> None:
    """Make a result, and write answers into a temporary folder."""
    found, save = result_of(output, made[output.stage.name], public), output.decl.save
    if save is not None and not isinstance(found, Release):
        with suppress(OSError), TemporaryDirectory() as folder:  # of this disk, not of the run's
            write_output(
                File(folder) / f"output{File(save).suffix}",
                found,
                output.domain,
                spreadsheet=output.decl.texts is not None,
            )


def _tried(where: str, step: Callable[[], Any]) -> Any:
    """Return a step's result, or its public failure."""
    failed: SimError
    try:
        return step()
    except MemoryError:
        failed = DataError(
            "OS607", where, expected="queries whose answers this machine's memory holds", got="more",
            hint="ask fewer at once, or release the sketch and ask it with `opendp-sim answer`. Nothing "
            "was charged.",
        )  # fmt: skip
    except SimError as error:
        if error.code != "OS902":
            hint = error.hint if "charge" in error.hint else f"{error.hint} Nothing was charged."
            place = where if error.where.startswith(where) else f"{where}: {error.where}"
            failed = error.restated(where=place, hint=hint)
        else:
            failed = _broken(where, "a failure inside the mechanism")
    except Exception as error:  # noqa: BLE001 - a package's step may raise anything
        failed = _broken(where, f"{type(error).__name__}: {error}"[:200])
    raise failed


def _broken(where: str, got: str) -> InternalError:
    return InternalError(
        "OS903", where, expected="a step that also works where there is no record", got=got,
        hint="nothing was charged and no record was read; report it to whoever made the mechanism.",
    )  # fmt: skip
