"""Edited, cut and foreign files of every format: how many end in a code, and whether any does not."""

from __future__ import annotations

import random
import resource
import tempfile
import time
from collections import Counter
from pathlib import Path

import opendp.prelude as dp

from tests._edits import Files, fault_of
from tests.bench._results import parser, table, write_section


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, default=20.0, help="for each format")
    args = options.parse_args()
    dp.enable_features("contrib")
    rows, faults = [], []
    with tempfile.TemporaryDirectory() as folder:
        files = Files(Path(folder))
        for kind, (name, edit, read) in files.kinds().items():
            codes: Counter = Counter()
            slowest, begun, seed = 0.0, time.monotonic(), 0
            while time.monotonic() - begun < args.seconds:
                seed += 1
                edit(random.Random(f"{kind} {seed} bench"))  # noqa: S311 - which edit
                start = time.process_time()
                try:
                    codes[fault_of(read) or "passed"] += 1
                except BaseException as error:  # noqa: BLE001 - what the campaign looks for
                    codes["FAULT"] += 1
                    faults.append(f"{kind} {seed}: {type(error).__name__} {error}")
                slowest = max(slowest, time.process_time() - start)
                files.restore(name)
            shown = ", ".join(f"{code} {count}" for code, count in codes.most_common())
            rows.append([kind, seed, codes["FAULT"], slowest, shown])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    text = table(["format", "edits", "faults", "slowest, CPU s", "codes"], rows)
    text += (
        "\n\nOne to three nodes of the JSON replaced, removed, doubled or swapped (hashes of ledgers and releases computed anew, so "
        "that the readers behind them are reached), or bytes flipped, cut, doubled and inserted. `passed` are edits that change "
        f"nothing that is read. A fault is anything but a coded refusal, or a code OS9xx. Peak memory {peak:.2f} GiB."
    )
    print(text)
    print("\n".join(faults[:40]))
    if args.write:
        write_section(
            "Survival: edited files",
            text,
            f"python -m tests.bench.survive_edits --seconds {args.seconds:g} --write",
        )


if __name__ == "__main__":
    main()
