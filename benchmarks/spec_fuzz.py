"""Mutated specs through ``check``: no OS9xx, no traceback, nothing over 5 CPU s or 1 GiB, no crash.

A thousand run in forks of one warm process (``tests/_forks.py``); a seed makes one spec, whatever ran before.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from benchmarks._results import parser, write_section
from opendp_sim.core.errors import SimError
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.dsl.text.diagnostic import Refused
from opendp_sim.dsl.text.render import as_text
from tests._forks import Tally, tally

WORDS = [
    "-1",
    "0",
    "1e400",
    "65536",
    "2147483648",
    "9223372036854775808",
    ".nan",
    "null",
    "[]",
    "{}",
    "~",
    "'",
    '"',
    "\\x00",
    "true",
    "[/x]",
    "../..",
    "/",
    "${x}",
    "???",
    "!!python",
    "&a",
    "*a",
    "<<: 1",
    "\t",
    "é",
    "\x85",
    "1:1",
    "0x10",
    "100%",
    "-",
    ":",
    "%YAML 1.1",
    "---",
    "|",
    ">",
]


def mutated(text: str, draw: np.random.Generator) -> bytes:
    """Return a spec with one to four edits: of a token, a line, or a byte."""
    for _ in range(int(draw.integers(1, 5))):
        lines = text.split("\n")
        at = int(draw.integers(len(lines)))
        kind = draw.integers(6)
        if kind == 0:
            del lines[at]
        elif kind == 1:
            lines.insert(at, lines[int(draw.integers(len(lines)))])
        elif kind == 2:
            lines[at] = " " * int(draw.integers(8)) + lines[at].lstrip()
        elif ":" in lines[at] and kind < 5:
            key, _, _ = lines[at].rpartition(":")
            lines[at] = f"{key}: {WORDS[int(draw.integers(len(WORDS)))]}"
        else:
            place = int(draw.integers(len(lines[at]) + 1))
            word = WORDS[int(draw.integers(len(WORDS)))]
            lines[at] = lines[at][:place] + word + lines[at][place + int(draw.integers(3)) :]
        text = "\n".join(lines)
        if not text:
            break
    return text.encode("utf-8", "surrogatepass")


def ended(file: Path, raw: bytes) -> str:
    """Return how a spec ends in ``check``."""
    file.write_bytes(raw)
    try:
        plan_file(file)
    except Refused as error:
        said = as_text(error.findings, error.document)  # type: ignore[arg-type]
        if "OS9" in said:
            raise
        return "refused"
    except SimError as error:
        if error.code.startswith("OS9"):
            raise
        return error.code
    return "planned"


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--specs", type=int, default=100_000)
    options.add_argument("--seconds", type=float, default=float("inf"))
    options.add_argument("--first", type=int, default=1, help="the first seed")
    given = options.parse_args()
    folder = Path(__file__).resolve().parents[1] / "specs"
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.yaml"))]
    file, start, found = folder / f".fuzzed-{os.getpid()}.yaml", time.monotonic(), Tally()

    def work(seed: int) -> str:
        draw = np.random.default_rng([14, seed])
        return ended(file, mutated(texts[int(draw.integers(len(texts)))], draw))

    try:
        while found.total < given.specs and time.monotonic() - start < given.seconds:
            first = given.first + found.total
            part = tally(work, range(first, first + min(1000, given.specs - found.total)))
            found.add(part)
            for fault in part.faults:
                print(fault, flush=True)
            print(found.total, found.ends, f"{found.slowest:.2f} s", flush=True)
    finally:
        file.unlink(missing_ok=True)
    ends = ", ".join(f"{end} {count:,}" for end, count in found.ends.most_common())
    text = (
        f"{found.total:,} specs: {ends}; {len(found.faults)} faults (an OS9xx, another exception, a crash, over 5 CPU s or 1 GiB); "
        f"slowest {found.slowest:.2f} CPU s, peak {found.peak:,.0f} MiB, {found.cpu:,.0f} CPU s."
    )
    print(text)
    if given.write:
        write_section(
            "Mutated specs", text, f"python -m benchmarks.spec_fuzz --specs {given.specs} --write"
        )
    raise SystemExit(bool(found.faults))


if __name__ == "__main__":
    main()
