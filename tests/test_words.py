"""Check words and layout: first lines of docstrings, names with one meaning, sizes of folders."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import opendp_sim

PACKAGE = Path(opendp_sim.__file__).parent
ROOT = PACKAGE.parent
WORDS = YAML(typ="safe").load((ROOT / "docs" / "vocabulary.yaml").read_text("utf-8"))


@cache
def files() -> dict[Path, ast.Module]:
    """Return the syntax tree of every file of the package."""
    return {file: ast.parse(file.read_text("utf-8")) for file in sorted(PACKAGE.rglob("*.py"))}


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield every statement below a node; what is within an expression holds none."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, name, ()):
            yield child
            yield from statements(child)


def first_lines(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the name and the docstring's first line of everything in a module."""
    for node in (tree, *statements(tree)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (
            text := ast.get_docstring(node)
        ):
            yield getattr(node, "name", "the module"), text.partition("\n")[0]


def is_plain(line: str) -> bool:
    """Return whether a first line has at most 12 words, no colon, and ends."""
    plain = re.sub(r"``[^`]*``|`[^`]*`", "X", line)
    return ":" not in plain and len(plain.split()) <= 12 and plain.endswith((".", "?", "!"))


def test_first_lines_are_plain() -> None:
    found = {
        f"{file.relative_to(ROOT)}::{name}": line
        for file, tree in files().items()
        for name, line in first_lines(tree)
        if not is_plain(line)
    }
    assert found == {}


@pytest.mark.parametrize("line", ["The map: how far.", "Return " + "a " * 12 + "map.", "Return"])
def test_a_line_to_be_read_twice_is_found(line: str) -> None:
    assert not is_plain(line)


def defined(tree: ast.Module) -> Iterator[str]:
    """Yield the public classes and functions at a module's top."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name


def test_a_public_name_has_one_meaning() -> None:
    places = defaultdict(list)
    for file, tree in files().items():
        for name in defined(tree):
            places[name].append(str(file.relative_to(PACKAGE)))
    several = {name: where for name, where in places.items() if len(where) > 1}
    known = {*WORDS["names with several places"]}
    assert several.keys() == known, several


def test_old_words_name_nothing() -> None:
    old = WORDS["terms"].keys()
    stems = {file.stem.strip("_") for file in files()} | {file.parent.name for file in files()}
    names = {name.strip("_").lower() for tree in files().values() for name in defined(tree)}
    assert not old & stems
    assert not old & names


def test_a_folder_has_at_most_twenty_files() -> None:
    sizes: dict[str, int] = defaultdict(int)
    for file in files():
        if file.stem != "__init__":
            sizes[str(file.parent.relative_to(ROOT))] += 1
    assert {folder: size for folder, size in sizes.items() if size > 20} == {}


def importers() -> dict[str, set[str]]:
    """Return the modules that import each module."""
    known = {".".join(f.relative_to(ROOT).with_suffix("").parts): f for f in files()}
    users: dict[str, set[str]] = defaultdict(set)
    for name, file in known.items():
        for node in statements(files()[file]):
            if isinstance(node, ast.ImportFrom) and node.module:
                for other in (node.module, *(f"{node.module}.{a.name}" for a in node.names)):
                    users[other].add(name)
    return users


def test_a_small_file_has_several_importers() -> None:
    """Files of up to 100 lines with one importer belong in it, unless the list gives a reason."""
    users = importers()
    small = {
        str(file.relative_to(PACKAGE))
        for file in files()
        if file.stem != "__init__"
        and len(file.read_text("utf-8").splitlines()) <= 100
        and len(users[".".join(file.relative_to(ROOT).with_suffix("").parts)]) == 1
    }
    assert small == WORDS["small files with one importer"].keys()
