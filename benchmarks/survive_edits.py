"""Edited, cut and foreign files of every format: how many end in a code, and whether any does not.

The cases run in forks of one process (``tests/_forks.py``), so that a crash, over 5 CPU seconds and over 1 GiB are seen.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import opendp.prelude as dp

from benchmarks._results import parser, table, write_figure
from tests._edited_stores import MECHANISMS, EditedStores
from tests._edits import Files, fault_of
from tests._forks import tally

COSTLY = {"spec": 1, "certificate": 2, "certificate, bytes": 2, "plan": 2}
"""Of a hundred edits; a certificate takes twenty times what a ledger takes."""
BATCH = 500


def works(folder: Path) -> dict[str, Callable[[int], str]]:
    """Return, by format, what edits a file, reads it, and says how that ended."""
    (folder / "files").mkdir()
    (folder / "stores").mkdir()
    files = Files(folder / "files")

    def work_of(
        kind: str, name: str, edit: Callable[[random.Random], None], read: Callable[[], object]
    ) -> Callable[[int], str]:
        def work(seed: int) -> str:
            edit(random.Random(f"{kind} {seed} bench"))  # noqa: S311 - which edit
            try:
                return fault_of(read) or "passed"
            finally:
                if name:
                    files.restore(name)

        return work

    found = {kind: work_of(kind, *parts) for kind, parts in files.kinds().items()}
    for mechanism in MECHANISMS:
        key = mechanism.split(":")[0]
        stores = EditedStores(folder / "stores" / key, mechanism)
        found[f"store of {key}, whole hashes"] = work_of(key, "", stores.edit, stores.read)
    return found


def shares(kinds: list[str]) -> dict[str, int]:
    """Return how many edits of a hundred each format has."""
    cheap = [kind for kind in kinds if kind not in COSTLY]
    left = 100 - sum(COSTLY.get(kind, 0) for kind in kinds)
    return {kind: COSTLY.get(kind, left // max(1, len(cheap))) for kind in kinds}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--edits", type=int, default=100_000)
    options.add_argument("--first", type=int, default=1, help="the first seed")
    options.add_argument("--seconds", type=float, default=float("inf"))
    options.add_argument("--kinds", nargs="*", help="only these formats")
    options.add_argument("--folder", help="where files lie; in memory, no disk is waited for")
    args = options.parse_args()
    dp.enable_features("contrib")
    begun, name = time.monotonic(), tempfile.mkdtemp(dir=args.folder)
    rows: dict[str, list[object]] = {}
    totals = {}
    try:
        kinds = works(Path(name))
        share = shares([kind for kind in kinds if args.kinds is None or kind in args.kinds])
        done = 0
        while done < args.edits and time.monotonic() - begun < args.seconds:
            for kind, part in share.items():
                size = part * BATCH // 100
                start = args.first + done * part // 100
                found = tally(kinds[kind], range(start, start + size))
                whole = totals.setdefault(kind, found)
                if whole is not found:
                    whole.add(found)
                for fault in found.faults:
                    print(kind, fault, flush=True)
                codes = ", ".join(f"{code} {n}" for code, n in whole.ends.most_common())
                rows[kind] = [
                    kind,
                    whole.total,
                    whole.ends["FAULT"],
                    whole.slowest,
                    whole.cpu,
                    codes,
                ]
            done += sum(share.values()) * BATCH // 100
            if done // BATCH % 10 == 0:
                print(done, table(HEAD, list(rows.values())), sep="\n", flush=True)
    finally:
        shutil.rmtree(name)
    peak = max(found.peak for found in totals.values())
    text = table(HEAD, list(rows.values())) + (
        f"\n\n{sum(found.total for found in totals.values()):,} edits in {sum(found.cpu for found in totals.values()):,.0f} CPU s; peak memory {peak:.0f} MiB. One to three nodes "
        "of the JSON replaced, removed, doubled or swapped (hashes of ledgers and releases computed anew, so that the readers "
        "behind them are reached), or bytes flipped, cut, doubled and inserted; `whole hashes`: rows and arrays of a served session's "
        "store, the chain computed anew. `passed` are edits that change nothing that is read. A fault is anything but a coded "
        "refusal, a code OS9xx, a process that crashes, over 5 CPU s or 1 GiB."
    )
    print(text)
    if args.write:
        write_figure(
            "survival/edits",
            text,
            f"python -m benchmarks.survive_edits --edits {args.edits} --write",
        )
    raise SystemExit(any(found.faults for found in totals.values()))


HEAD = ["format", "edits", "faults", "slowest, CPU s", "CPU s", "codes"]

if __name__ == "__main__":
    main()
