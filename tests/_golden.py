"""Golden files: compared on every run, rewritten with ``GOLDEN=write``."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def compare(name: str, text: str) -> None:
    """Compare ``text`` with the golden file, or write it."""
    path = FOLDER / name
    text = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    if os.environ.get("GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"no golden file {name}; run with GOLDEN=write and review it"
    assert text == path.read_text(encoding="utf-8")
