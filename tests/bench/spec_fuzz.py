"""Mutated specs through ``check``: no OS903, no traceback, nothing over 5 s, memory under 1 GiB.

``python -m tests.bench.spec_fuzz --specs 100000`` is the full size; ``--seconds`` stops earlier.
"""

from __future__ import annotations

import argparse
import collections
import resource
import time
from pathlib import Path

import numpy as np

from opendp_sim.core.errors import SimError
from opendp_sim.dsl.diagnostic import Refused
from opendp_sim.dsl.plan import plan_file
from opendp_sim.dsl.render import as_text
from tests.bench._results import write_section

WORDS = ["-1", "0", "1e400", "65536", "2147483648", "9223372036854775808", ".nan", "null", "[]", "{}", "~", "'", '"',
         "\\x00", "true", "[/x]", "../..", "/", "${x}", "???", "!!python", "&a", "*a", "<<: 1", "\t", "é", "\x85",
         "1:1", "0x10", "100%", "-", ":", "%YAML 1.1", "---", "|", ">"]  # fmt: skip


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


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--specs", type=int, default=100_000)
    options.add_argument("--seconds", type=float, default=1e9)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--write", action="store_true")
    given = options.parse_args()
    draw, ends, slow = np.random.default_rng(given.seed), collections.Counter[str](), 0.0
    folder = Path(__file__).resolve().parents[2] / "specs"
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.yaml"))]
    file, start, done = folder / ".fuzzed.yaml", time.monotonic(), 0
    try:
        while done < given.specs and time.monotonic() - start < given.seconds:
            file.write_bytes(mutated(texts[int(draw.integers(len(texts)))], draw))
            begun = time.process_time()  # the machine may be shared
            try:
                plan_file(file)
                end = "planned"
            except Refused as error:
                as_text(error.findings, error.document)  # type: ignore[arg-type]
                end = "refused"
            except SimError as error:
                end = error.code
            except Exception as error:  # noqa: BLE001
                end = f"RAW {type(error).__name__}"
            took = time.process_time() - begun
            if end.startswith(("RAW", "OS9")) or took > 5:
                kept = Path("fuzzed") / f"{done}.yaml"
                kept.parent.mkdir(exist_ok=True)
                kept.write_bytes(file.read_bytes())
                print(kept, end, f"{took:.1f} s", flush=True)
            slow, done = max(slow, took), done + 1
            ends[end] += 1
    finally:
        file.unlink(missing_ok=True)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    text = (
        f"{done:,} specs: {dict(ends.most_common())}; slowest {slow:.2f} CPU s, peak {memory:,.0f} MiB, "
        f"{time.process_time():,.0f} CPU s"
    )
    print(text)
    if given.write:
        write_section(
            "Mutated specs",
            text,
            f"python -m tests.bench.spec_fuzz --specs {given.specs} --seconds {given.seconds:.0f} --seed {given.seed}",
        )


if __name__ == "__main__":
    main()
