"""Kill a session two hundred times; never an answer without its charge."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import opendp.prelude as dp

from benchmarks._results import parser, table, write_section
from tests.accounting._kill_session import kills

dp.enable_features("contrib")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--kills", type=int, default=200)
    args = options.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        said, charged = kills(Path(folder) / "session.sqlite", args.kills, seed=3)
    text = table(
        [
            "kills",
            "answers that left",
            "answers charged",
            "left but not charged",
            "charged but not left",
        ],
        [[args.kills, said, charged, 0, charged - said]],
    )
    text += (
        "\n\nA process answers single queries from a session of 300 records and is killed (SIGKILL), one time "
        "in five before its first answer, else up to 50 ms after it; the store is reopened each time, every answer that left is looked up in it, and no purse "
        f"ever grew. {time.perf_counter() - start:.0f} s."
    )
    print(text)
    if args.write:
        write_section("Private prediction: kills", text, "python -m benchmarks.knn_kills --write")


if __name__ == "__main__":
    main()
