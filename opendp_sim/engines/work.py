"""Run a job's pure functions.

Bytes in, bytes out, and no exception ever leaves one. An exception's text may quote a record, and
engines write such texts into their logs; so a task that fails returns a code. What the functions
compute and why it adds up: ``engines.md``.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from opendp_sim.core.claims import Stable
from opendp_sim.core.device import Device, device_named, using_device
from opendp_sim.core.errors import DataError, InternalError, SimError
from opendp_sim.domains.ids import partition_of
from opendp_sim.domains.rows import take
from opendp_sim.dsl.types.records import Typed
from opendp_sim.engines.job import gathered_by, source_of_task, typed_of
from opendp_sim.engines.messages import Message, pack, read_message, unpack
from opendp_sim.io.blocks import Block, length_of
from opendp_sim.io.checked import no_record
from opendp_sim.io.fold import build_sketch, fold_whole
from opendp_sim.io.gate import gated_blocks

_BROKEN = 903


def whole(text: str, task: str) -> bytes:
    """Run a task whose records may be anybody's, to its partial result."""
    told, no = json.loads(text), json.loads(task)["no"]
    gate = _Gate()

    def go() -> list[bytes]:
        typed = typed_of(text)
        blocks = gate.blocks(typed, task, told["folder"])
        value = pack(_partial(typed, blocks, told))
        return [Message(told["job"], "sum", (no,), value).bytes()]

    return _safe(go, told, "sum", (no,), gate)[0]


def route(text: str, task: str) -> list[bytes]:
    """Send a task's records to their persons' buckets, one message each."""
    told, no = json.loads(text), json.loads(task)["no"]
    gate, count = _Gate(), told["buckets"]

    def go() -> list[bytes]:
        typed = typed_of(text)
        column = gathered_by(typed)
        held = [[_travelling(typed, typed.entry.records.no_records())] for _ in range(count)]
        for gated in gate.blocks(typed, task, told["folder"])():
            block = _travelling(typed, gated)
            at = partition_of(np.asarray(block[column]), count)  # type: ignore[index]
            order = np.argsort(at, kind="stable")
            cuts = np.searchsorted(at[order], np.arange(count + 1))
            for i in np.flatnonzero(np.diff(cuts)).tolist():
                held[i].append(take(block, order[cuts[i] : cuts[i + 1]]))
        return [
            Message(told["job"], "rows", (no,), pack(_joined(rows)), bucket=i).bytes()
            for i, rows in enumerate(held)
        ]

    found = _safe(go, told, "rows", (no,), gate)
    return found if len(found) == count else found * count


def bucket(text: str, number: int, messages: Sequence[bytes]) -> bytes:
    """Run a bucket, all records of its persons, to a partial result.

    That every task's records came, once, and are of this bucket's persons is checked, not believed.
    """
    told = json.loads(text)

    def go() -> list[bytes]:
        found = [read_message(message) for message in messages]
        if bad := _first_bad(found):
            return [bad.bytes()]
        parts = sorted(part for one in found for part in one.parts)
        mine = all(
            (one.job, one.kind, one.bucket) == (told["job"], "rows", number) for one in found
        )
        if not mine or parts != list(range(told["tasks"])):
            raise _broken()
        typed = typed_of(text)
        column = gathered_by(typed)
        blocks = [unpack(one.payload) for one in sorted(found, key=lambda one: one.parts)]
        if any((partition_of(b[column], told["buckets"]) != number).any() for b in blocks):
            raise _broken()
        value = pack(_partial(typed, lambda: iter(blocks), told))
        return [Message(told["job"], "sum", (number,), value).bytes()]

    return _safe(go, told, "sum", (number,), _Gate())[0]


def merge(text: str, messages: Sequence[bytes]) -> bytes:
    """Add partial results of one job, or refuse a task twice."""
    told = json.loads(text)

    def go() -> list[bytes]:
        found = [read_message(message) for message in messages]
        if bad := _first_bad(found):
            return [bad.bytes()]
        parts = sorted(part for one in found for part in one.parts)
        if len(set(parts)) != len(parts) or any(
            (one.job, one.kind) != (told["job"], "sum") for one in found
        ):
            raise _broken()
        claim = typed_of(text).stages[-1].claim
        values = [unpack(one.payload) for one in found]
        if isinstance(claim, Stable) and claim.merge is not None:
            total = claim.merge(values)
        else:
            total = np.sum(values, axis=0, dtype=np.int64)
        return [Message(told["job"], "sum", tuple(parts), pack(total)).bytes()]

    return _safe(go, told, "sum", (), _Gate())[0]


# --- helpers --------------------------------------------------------------------------------------


class _Gate:
    """Open a task's records behind the gate, and remember its refusal."""

    def __init__(self) -> None:
        self.refused = False

    def blocks(self, typed: Typed, task: str, folder: str) -> Callable[[], Iterator[Block]]:
        """Return what opens the records."""
        mode = typed.entry.ingest
        alone = json.loads(task)["parts"] is None  # else the footers told the driver

        def opened() -> Iterator[Block]:
            records = 0
            try:
                for block in gated_blocks(source_of_task(typed, task, folder), mode)():
                    records += length_of(block)
                    yield block
                if alone and mode == "refuse" and not records:
                    raise no_record()
            except DataError:
                self.refused = True
                raise

        return opened


def _partial(typed: Typed, blocks: Callable[[], Iterable[Block]], told: dict[str, Any]) -> Any:
    """Return the sum of some records, by card or CPU."""
    last = typed.stages[-1]
    if not isinstance(last.claim, Stable) or last.claim.fold is None:
        with using_device(_card(told)):
            return build_sketch(typed.stages, blocks, workers=1)
    return fold_whole(typed.stages, blocks, workers=1)


def _card(told: dict[str, Any]) -> Device | None:
    """Return the job's card, or None for the CPU."""
    try:
        return device_named(told["device"])
    except SimError:
        if told["public"]:
            raise
        return None  # the CPU's bits are the same


def _travelling(typed: Typed, block: Block) -> Block:
    """Return the columns a bucket needs, all before whole-record maps."""
    claim = typed.stages[0].claim
    reads = claim.reads if isinstance(claim, Stable) else None
    if reads is None or len(typed.stages) > 1:
        return block
    return {name: column for name, column in block.items() if name in reads}


def _joined(rows: Sequence[Block]) -> Block:
    return {name: np.concatenate([block[name] for block in rows]) for name in rows[0]}


def _first_bad(found: Sequence[Message]) -> Message | None:
    """Return the first task's failure in the order of files."""
    return min((one for one in found if one.code), key=lambda one: one.parts, default=None)


def _broken() -> InternalError:
    return InternalError(
        "OS903", "engine", expected="every task's result once, and persons in their own bucket",
        got="another result", hint="report this, with the engine's version.",
    )  # fmt: skip


def _safe(
    go: Callable[[], list[bytes]], told: Any, kind: str, parts: tuple[int, ...], gate: _Gate
) -> list[bytes]:
    text = ""
    try:
        return go()
    except SimError as error:
        code = int(error.code[2:])
        text = str(error)
    except Exception:  # noqa: BLE001 - whatever it says may be about the data
        code = 902
        text = traceback.format_exc() if told["public"] else ""
    said = text if told["public"] else ""
    return [Message(told["job"], kind, parts, code=code, gate=gate.refused, told=said).bytes()]
