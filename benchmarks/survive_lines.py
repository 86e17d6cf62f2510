"""Edited lines to a session: one coded answer each, whatever comes in."""

from __future__ import annotations

import resource
import tempfile
import time
from collections import Counter
from pathlib import Path

import opendp.prelude as dp

from benchmarks._results import parser, table, write_section
from tests.cli.test_session_lines import campaign


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--lines", type=int, default=100_000)
    options.add_argument("--first", type=int, default=1, help="the first seed")
    options.add_argument("--folder", help="where the store lies")
    args = options.parse_args()
    dp.enable_features("contrib")
    took: list[float] = []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        codes = Counter(campaign(Path(folder), range(args.first, args.first + args.lines), took))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    text = table(["answer", "lines"], [[code, count] for code, count in codes.most_common()])
    text += (
        f"\n\n{args.lines:,} lines (structural edits and scratched bytes of seven good ones, updates allowed), one answer each, in "
        f"{time.process_time():.0f} CPU s, the slowest in {max(took):.2f}; the session answered a good question afterwards. Peak memory {peak:.2f} GiB."
    )
    print(text)
    if args.write:
        write_section(
            "Survival: session lines",
            text,
            f"python -m benchmarks.survive_lines --lines {args.lines} --write",
        )


if __name__ == "__main__":
    main()
