"""Open a stream by its folder, which names its spec and tree."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any, Literal

from opendp_sim.accounting.atomic_files import write_json
from opendp_sim.accounting.file_schemas import PathText, Plain, Strict, read_strictly
from opendp_sim.accounting.release.continual import PeriodTree, mean_error
from opendp_sim.accounting.session.periods import stream_refusal
from opendp_sim.core.errors import SpecError
from opendp_sim.core.system.regular_files import regular
from opendp_sim.dsl.plan.plan import Plan, plan_file
from opendp_sim.dsl.run.charge import refuse_unbegun
from opendp_sim.dsl.run.stream import STORE, Stream, is_laplace, streamed
from opendp_sim.io.file_spec import ENDINGS, kind_by_name
from opendp_sim.io.open import open_source

ABOUT = "stream.json"
"""The public file of a stream's spec, periods and base, in its folder."""
Charged = Callable[[str], None]


class _About(Strict):
    format: Literal["opendp_sim/stream_folder/1"]
    spec: PathText
    values: Plain
    periods: int
    base: int
    person_periods: int = 1


@dataclass(frozen=True)
class StreamFolder:
    """Read the public facts of a stream's folder, without lock or charge.

    Attributes:
        folder: of the stream. spec: its path. plan: of the spec as it is now. tree: the nodes.
    """

    folder: File
    spec: File
    plan: Plan
    tree: PeriodTree

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> StreamFolder:
        """Read a stream's folder.

        Raises:
            SpecError (OS309): no stream was begun there, or its file was edited.
        """
        place = File(folder)
        try:
            text = regular(place / ABOUT).read_bytes()
        except (OSError, ValueError):
            text = b""
        found = read_strictly(_About, text, lambda came: _no_stream(place, came if text else ""))
        spec = File(os.path.normpath(place / found.spec))
        tree = PeriodTree(found.periods, found.base, found.person_periods)
        return cls(place, spec, plan_file(spec, found.values), tree)

    def open(self, charged: Charged = lambda _text: None) -> Stream:
        """Go on with the stream, charged before if it was begun whole.

        Raises:
            BudgetError (OS407): its store is not there. And as ``Stream``.
        """
        if not (self.folder / STORE).exists():
            raise stream_refusal(f"{STORE} in the folder", "none")
        refuse_unbegun(self.plan, str(self.spec))
        return Stream(
            self.plan,
            self.tree.periods,
            self.folder,
            base=self.tree.base,
            person_periods=self.tree.person_periods,
            charged=charged,
        )

    def plain(self) -> dict[str, Any]:
        """Return the public facts, of released files, as plain JSON."""
        width = max(4, len(str(self.tree.periods)))
        named = {
            f"{first:0{width}d}-{last:0{width}d}.npz": last
            for period in range(1, self.tree.periods + 1)
            for first, last in self.tree.ending(period)
        }
        files = sorted(found.name for found in self.folder.glob("*.npz") if found.name in named)
        return {
            "spec": str(self.spec),
            "period": max((named[name] for name in files), default=0),
            "periods": self.tree.periods,
            "base": self.tree.base,
            "person_periods": self.tree.person_periods,
            "levels": self.tree.levels,
            "error": mean_error(self.tree, laplace=is_laplace(streamed(self.plan))),
            "files": files,
        }


def begin_stream(
    plan: Plan,
    periods: int,
    into: str | os.PathLike[str],
    *,
    base: int | None = None,
    person_periods: int | None = None,
    charged: Charged = lambda _text: None,
) -> Stream:
    """Begin a stream of a spec, named in its folder.

    Called again it goes on with the same stream, so that a call which died is repeated.

    Raises:
        SpecError (OS309): a plan that was made of no file. BudgetError (OS403): its ledger is not there.
            And as ``Stream``.
    """
    if plan.path is None:
        raise SpecError(
            "OS309", "stream", expected="a plan that was made from a spec file",
            got="a program written in Python", hint="`sim.stream` takes it.",
        )  # fmt: skip
    refuse_unbegun(plan, plan.path)
    found = Stream(plan, periods, into, base=base, person_periods=person_periods, charged=charged)
    try:
        write_json(
            File(into) / ABOUT,
            {
                "format": "opendp_sim/stream_folder/1",
                "spec": os.path.relpath(File(plan.path).resolve(), File(into).resolve()),
                "values": dict(plan.program.values),
                "periods": found.tree.periods,
                "base": found.tree.base,
            }
            | found.each,
        )
    except BaseException:
        found.close()
        raise
    return found


def add_file(stream: Stream, file: str | os.PathLike[str], period: int | None = None) -> bool:
    """Add a file's rows as the next period, unless ``period`` is over.

    Returns:
        whether it was added. A file of a period that is over is not opened.
    """
    if period is not None and 1 <= period <= stream.period:
        return False
    entry = next(iter(stream.plan.releases.values())).typed.entry
    source = open_source(_kind(File(file)), str(File(file).resolve()), entry.records, File())
    tables: Mapping[str, Any] = {str(entry.source.argument): source}
    stream.add(tables, period)
    return True


def _kind(file: File) -> str:
    kind = kind_by_name(file)
    if kind is None:
        raise SpecError(
            "OS304", "FILE", got=file.suffix or "another name",
            expected=f"a file {', '.join(ends[0] for ends in ENDINGS.values())}",
            hint="name it by its kind.",
        )  # fmt: skip
    return kind


def _no_stream(folder: File, came: str) -> SpecError:
    return SpecError(
        "OS309", str(folder), expected=f"the folder of a stream, with its {ABOUT}", got=came or "none",
        hint="`opendp-sim stream new SPEC --periods 12 --into FOLDER` begins one, and writes it again.",
    )  # fmt: skip
