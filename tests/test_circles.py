"""No two modules need each other, not even at the time of a call or for a type."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]


def modules() -> dict[str, Path]:
    """Return every module of the package by its dotted name."""
    files = sorted((ROOT / "opendp_sim").rglob("*.py"))
    return {
        ".".join(file.relative_to(ROOT).with_suffix("").parts): file
        for file in files
        if file.name != "__init__.py"
    }


def needed(node: ast.AST) -> Iterator[str]:
    """Yield what a module imports, in functions and for types too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ImportFrom) and child.module:
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
            yield child.module
        elif isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        else:
            yield from needed(child)


def circle(needs: dict[str, set[str]]) -> list[str]:
    """Return the modules of one circle; none where there is no circle."""
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_needs_one_that_needs_it() -> None:
    known = modules()
    needs = {
        name: {
            each
            for each in needed(ast.parse(file.read_text("utf-8")))
            if each in known and each != name
        }
        for name, file in known.items()
    }
    assert sum(map(len, needs.values())) > 2 * len(known)
    assert circle(needs) == []


def test_a_circle_is_found() -> None:
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}
