"""One page of measurements: each bench script owns a named section and replaces only that one."""

from __future__ import annotations

import argparse
import fcntl
import re
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")
DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"
"""Where `--data` looks by default: measurements only, tests never need it."""

_SECTION = re.compile(r"<!-- begin (.*?) -->\n.*?\n<!-- end \1 -->", flags=re.DOTALL)
_HEAD = """# Measurements

Every section is written by the script named in it (`--write`) and is replaced as a whole by its next
run. Speeds are ratios of CPU time with one BLAS thread on each side unless a section says otherwise.
"""


def write_section(name: str, table_markdown: str, command: str, page: Path = RESULTS) -> None:
    """Replace the section ``name`` of the page, or add it; sections stay sorted by name."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    section = f"{begin}\n## {name}\n\n`{command}`, {when}.\n\n{table_markdown.strip()}\n{end}"
    with page.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # several scripts may end at once
        file.seek(0)
        kept = {found[1]: found[0] for found in _SECTION.finditer(file.read())}
        kept[name] = section
        file.truncate(0)
        file.write("\n\n".join([_HEAD.rstrip(), *(kept[key] for key in sorted(kept))]) + "\n")


def table(head: list[str], rows: list[list[object]]) -> str:
    """Return a markdown table; floats are shown to four significant digits."""
    shown = [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in row] for row in rows]
    lines = [head, ["---"] * len(head), *shown]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def parser(text: str) -> argparse.ArgumentParser:
    """Return a parser with the options every bench script has."""
    out = argparse.ArgumentParser(description=text)
    out.add_argument(
        "--write", action="store_true", help="replace this script's section of RESULTS.md"
    )
    out.add_argument("--data", type=Path, default=DATA, help="folder of the measurement data")
    return out
