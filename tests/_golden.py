"""Golden files: compared on every run, rewritten with ``GOLDEN=write``."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"
_LONG = re.compile(r"(-?[0-9]+\.[0-9]{12,}(?:e[+-]?[0-9]+)?)")
"""Floats in full: their last digits are another processor's (`opendp_sim/dsl/text/compare_documents.py`)."""


class _Float(float):
    """A float that equals those within a part in 1e12."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and math.isclose(self, other, rel_tol=1e-12)

    __hash__ = None  # type: ignore[assignment]


def _words(text: str) -> list[str]:
    return _LONG.split(text)[::2]


def _floats(text: str) -> list[_Float]:
    return [_Float(found) for found in _LONG.findall(text)]


def compare(name: str, text: str) -> None:
    """Compare ``text`` with the golden file, or write it."""
    path = FOLDER / name
    text = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    if os.environ.get("GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"no golden file {name}; run with GOLDEN=write and review it"
    assert _words(text) == _words(path.read_text(encoding="utf-8"))
    assert _floats(text) == _floats(path.read_text(encoding="utf-8"))
