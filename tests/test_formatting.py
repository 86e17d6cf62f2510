"""The formatter decides every line but those of parameters and refusals, which stay as written."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MARK = "# fmt: " + "skip"
_KEPT = re.compile(r"\bparam\(|\braise\b|\w*(?:Error|[Rr]efus\w*)\(|\bOS\d{3}\b|\bhint=")


def against(text: str) -> list[int]:
    """Return the marked lines of statements that are no parameters and no refusals."""
    lines = text.splitlines()
    statements = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    out = []
    for number, line in enumerate(lines, 1):
        if not line.endswith(MARK):
            continue
        around = [n for n in statements if n.lineno <= number <= (n.end_lineno or 0)]
        own = min(around, key=lambda n: (n.end_lineno or 0) - n.lineno)
        if not _KEPT.search("\n".join(lines[own.lineno - 1 : own.end_lineno])):
            out.append(number)
    return out


@pytest.mark.parametrize("folder", ["opendp_sim", "tests", "docs"])
def test_only_parameters_and_refusals_are_kept_from_the_formatter(folder: str) -> None:
    found = {}
    for file in sorted((ROOT / folder).rglob("*.py")):
        text = file.read_text("utf-8")
        if MARK in text and (lines := against(text)):
            found[str(file.relative_to(ROOT))] = lines
    assert found == {}


def test_a_table_kept_from_the_formatter_is_found() -> None:
    assert against(f"x = [1,\n     2]  {MARK}\n") == [2]
    assert against(f'raise ValueError("OS101",\n    got=1)  {MARK}\n') == []
