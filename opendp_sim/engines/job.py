"""Cut one release's sum into tasks without data."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from opendp_sim.accounting.release.release import library_versions
from opendp_sim.core.arithmetic.countable import need_countable
from opendp_sim.core.claims import Stable
from opendp_sim.core.errors import DataError
from opendp_sim.core.randomness import fingerprint
from opendp_sim.domains.metrics import IdDistance
from opendp_sim.dsl.grammar.program import Program
from opendp_sim.dsl.grammar.reader import draft_of
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.types.infer import type_stages
from opendp_sim.dsl.types.records import Typed
from opendp_sim.io.checked import no_record
from opendp_sim.io.file_spec import PORTABLE, read_place
from opendp_sim.io.open import open_source
from opendp_sim.io.parquet import FilePart, parquet_of, parquet_parts
from opendp_sim.io.protocol import Source


@dataclass(frozen=True)
class Job:
    """What the driver knows of a job, and what of it travels.

    Attributes:
        text: JSON, the same for every task: program, release, token, versions, fingerprints of the public
            matrices and claims, buckets. Public.
        tasks: JSON of each task: files, row groups, sizes and times of their last change.
        buckets: how many parts of the persons there are; None where any partition will do.
    """

    text: str
    token: str
    tasks: tuple[str, ...]
    buckets: int | None


def cannot(where: str, expected: str, got: str, hint: str) -> DataError:
    """Return the refusal of a plan or engine, before reading (OS611)."""
    return DataError("OS611", where, expected=expected, got=got, hint=hint)


def gathered_by(typed: Typed) -> str | None:
    """Return the column whose equal values stay together, or None (OS611)."""
    last = typed.stages[-1].claim if typed.stages else None
    adds = isinstance(last, Stable) and (last.accumulate is not None or last.merge is not None)
    if not adds:
        raise cannot(
            f"flow.{typed.name}", "a sum over records", "a mechanism that needs all rows in one place",
            "leave the engine out: one machine does it.",
        )  # fmt: skip
    if typed.entry.source.kind == "memory":
        raise cannot(
            f"flow.{typed.name}",
            "a sum over records that stand in files",
            "data in memory",
            "leave the engine out, or write the frame to Parquet files in a folder that every worker "
            "sees, and name them: `source: {parquet: folder}`.",
        )
    claims = [stage.claim for stage in typed.stages if isinstance(stage.claim, Stable)]
    names = {claim.gather for claim in claims if claim.gather is not None}
    metric = typed.stages[0].metric
    if isinstance(metric, IdDistance):
        names.add(metric.identifier_column)
    surveyed = any(claim.survey is not None for claim in claims)
    if len(names) > 1 or (surveyed and not names):
        raise cannot(
            f"flow.{typed.name}", "records gathered by one column", "several columns, or none",
            "leave the engine out: one machine does it.",
        )  # fmt: skip
    return next(iter(names), None)


def job_of(
    plan: Plan, release: str, parts: int, *, device: str | None = None, public: bool = False
) -> Job:
    """Cut a release's sum into about ``parts`` tasks.

    Reads footers of Parquet files, and no record.

    Args:
        plan: whose release it is.
        release: its name.
        parts: tasks to aim at, and buckets of persons. Other sources than Parquet are one task.
        device: the card of each worker, by its name.
        public: whether the data is public, so that failures may be told in words.

    Raises:
        DataError (OS601): no readable file. (OS608): no record, when refusing. (OS610): 2**31 records.
            (OS611): a plan that engines cannot run.
    """
    typed = plan.releases[release].typed
    column = gathered_by(typed)
    folder = str(Path(plan.program.folder).resolve())
    tasks: list[Any] = [None]
    if typed.entry.source.kind == "parquet":
        place = read_place(typed.entry.source.argument, Path(folder), "parquet")
        runs, rows = parquet_parts(place, parts)
        need_countable(rows)
        if not rows and typed.entry.ingest == "refuse":
            raise no_record()
        tasks = [[_plain(part) for part in run] for run in runs] or [[]]
    token = secrets.token_hex(8)
    buckets = None if column is None else max(1, parts)
    told = {
        "program": json.dumps(
            plan.program.plain()
        ),  # columns in their order: contents are hashed in it
        "folder": folder,
        "release": release,
        "job": token,
        "same": _sameness(plan.program, typed),
        "tasks": len(tasks),
        "buckets": buckets,
        "device": device,
        "public": public,
    }
    texts = (json.dumps({"no": no, "parts": task}) for no, task in enumerate(tasks))
    return Job(json.dumps(told), token, tuple(texts), buckets)


def _plain(part: FilePart) -> dict[str, Any]:
    file, pinned = str(part.file.resolve()), part.pinned[:PORTABLE]
    return asdict(part) | {"file": file, "keys": dict(part.keys), "pinned": pinned}


def _claims(typed: Typed) -> str:
    """Return the workers' own matrices, integer features and sensitivities.

    Seeds draw the matrices, and generators differ by version; the integers are rounded from reals, whose
    last bits differ by processor.
    """
    names = json.dumps(
        [
            (
                fingerprint(claim.matrices),
                claim.constants,
                claim.output.identifier,
                str(claim.sensitivity),
            )
            for claim in (stage.claim for stage in typed.stages)
            if isinstance(claim, Stable)
        ]
    )
    return hashlib.sha256(names.encode()).hexdigest()


# --- in a worker ----------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def _typed(program: str, folder: str, release: str) -> tuple[Typed | None, dict[str, Any]]:
    """Return a release's type, and the facts equal everywhere."""
    draft = draft_of(json.loads(program), folder=folder)
    types = type_stages(draft.program, draft.broken, draft.notes, draft.unit)
    typed = types.get(release)
    return typed, {} if typed is None else _sameness(draft.program, typed)


def _sameness(program: Program, typed: Typed) -> dict[str, Any]:
    return {"hash": program.hash, "versions": library_versions(), "claims": _claims(typed)}


def plans_made() -> int:
    """Return this process's number of plans of foreign programs."""
    return _typed.cache_info().misses


def typed_of(text: str) -> Typed:
    """Type the driver's program again, once, refusing a different one (OS611)."""
    told = json.loads(text)
    typed, own = _typed(told["program"], told["folder"], told["release"])
    if typed is None or own != told["same"]:
        raise cannot(
            "worker", "the driver's versions, program and public matrices", "others",
            "install the same versions on every machine; see `opendp-sim engine check`.",
        )  # fmt: skip
    return typed


def source_of_task(typed: Typed, task: str, folder: str) -> Source:
    """Open a task's source, row groups of pinned files or everything."""
    parts = json.loads(task)["parts"]
    entry = typed.entry
    if parts is None:
        return open_source(entry.source.kind, entry.source.argument, entry.records, Path(folder))
    place = read_place(entry.source.argument, Path(folder), "parquet")
    return parquet_of(place, entry.records, [_part(part) for part in parts])


def _part(told: dict[str, Any]) -> FilePart:
    return FilePart(Path(told["file"]), told["keys"], told["groups"], tuple(told["pinned"]))
