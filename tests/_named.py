"""Which test covers which module: a test file of the same place and name, an import, a name, or a case.

`python -m tests._named` prints the modules that no test names, each with a module that a test names and
that imports it, directly or through others: the lines of `tests/unnamed.txt`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
LIST = TESTS / "unnamed.txt"


@dataclass(frozen=True)
class Read:
    """What both checks ask of a file: it is parsed once for them."""

    imports: frozenset[str]
    """Every dotted name that it imports, wherever in the file, and names in strings."""
    used: frozenset[str]
    """Every name that it uses: variables, attributes, arguments (fixtures), imported names."""
    helpers: tuple[str, ...]
    """Functions at its top that are no tests and no fixtures."""


@cache
def read(file: Path) -> Read:
    """Return the names of a file."""
    found: set[str] = set()
    used: set[str] = set()
    tree = ast.parse(file.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            used.add(node.id)
        elif isinstance(node, ast.Attribute):
            used.add(node.attr)
        elif isinstance(node, ast.arg):
            used.add(node.arg)
        elif isinstance(node, ast.ImportFrom):
            used |= {alias.name for alias in node.names}
            if node.module:
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= _in_text(node.value)
    helpers = (
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("test_")
        if not any("fixture" in ast.dump(d) for d in node.decorator_list)
    )
    return Read(frozenset(found), frozenset(used), tuple(helpers))


def _in_text(text: str) -> set[str]:
    found: set[str] = set()
    if "opendp_sim." in text:
        for name in re.findall(r"\bopendp_sim(?:\.\w+)+", text):
            parts = name.split(".")
            found |= {".".join(parts[: i + 1]) for i in range(1, len(parts))}
    return found


def imports(file: Path) -> frozenset[str]:
    """Return every dotted name that a file imports, wherever in the file, and names in strings."""
    return read(file).imports


@cache
def modules() -> dict[str, Path]:
    """Return every module of the package by its dotted name."""
    files = sorted((ROOT / "opendp_sim").rglob("*.py"))
    return {
        ".".join(f.relative_to(ROOT).with_suffix("").parts): f
        for f in files
        if f.name != "__init__.py"
    }


def in_cases() -> Iterator[str]:
    """Yield the modules of mechanisms that a case puts through every law."""
    import opendp_sim.prelude  # noqa: F401 - fills the catalogue
    from tests.cases import cases as table

    for case in table().values():
        yield type(case.mechanism).__module__


def never_run() -> list[str]:
    """Return the functions of test files that pytest does not collect and no test file names.

    A rename once took the prefix from six tests, and nothing failed.
    """
    files = sorted(TESTS.rglob("*.py"))
    used = frozenset().union(*(read(file).used for file in files))
    return [
        f"{file.relative_to(TESTS)}: {name}"
        for file in files
        if file.name.startswith("test_")
        for name in read(file).helpers
        if name not in used
    ]


def naming() -> dict[str, list[str]]:
    """Return, for each module that a test names, the test files that do."""
    found: dict[str, set[str]] = {}
    tests = sorted(TESTS.rglob("*.py"))
    for file in tests:
        for name in imports(file) & modules().keys():
            found.setdefault(name, set()).add(str(file.relative_to(TESTS)))
    for name in modules():
        *folders, stem = name.split(".")[1:]
        mirror = Path(*folders, f"test_{stem.strip('_')}.py")
        if (TESTS / mirror).is_file():
            found.setdefault(name, set()).add(str(mirror))
    for name in in_cases():
        found.setdefault(name, set()).add("test_laws.py")
    return {name: sorted(files) for name, files in found.items()}


def reached(named: set[str]) -> dict[str, str]:
    """Return, for each module that no test names, the nearest named module that imports it."""
    imported = {name: imports(file) & modules().keys() for name, file in modules().items()}
    through: dict[str, str] = {}
    loaded = {name: by for name in modules() if (by := package(name)) != "nothing"}
    for front in ({name: name for name in sorted(named)}, loaded):
        through |= {name: by for name, by in front.items() if name not in named | through.keys()}
        while front:
            front = {  # noqa: PLW2901 - one import further
                inner: first
                for name, first in front.items()
                for inner in sorted(imported[name])
                if inner not in named and inner not in through
            }
            through |= front
    return {name: through.get(name, "nothing") for name in modules() if name not in named}


@cache
def package(name: str) -> str:
    """Return the package that loads a module by its name, when one of its names is first used."""
    above, _, stem = name.rpartition(".")
    says = (ROOT / Path(*above.split(".")) / "__init__.py").read_text("utf-8")
    return above if re.search(rf"\b{stem}\b", says) else "nothing"


def reaches(name: str) -> set[str]:
    """Return every module that one imports, directly or through others."""
    found = {m for m in modules() if package(m) == name}
    front = found | ({name} & modules().keys())
    while front:
        front = {i for n in front for i in imports(modules()[n]) & modules().keys()} - found
        found |= front
    return found


def lines() -> list[str]:
    """Return the lines of the list."""
    return [f"{name} through {by}" for name, by in sorted(reached(set(naming())).items())]


if __name__ == "__main__":
    print("\n".join(lines()))
