"""Hash the code of a mechanism independently of Python's version."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import FunctionType, ModuleType
from typing import Any

_PROSE = frozenset({"expected", "hint", "unit"})
"""Keywords whose text is for readers: the words of a refusal and of a parameter."""


@cache
def code_hash(module: str) -> str | None:
    """Return the hash of a mechanism's module, or None without source.

    It covers the modules of `closure`, each by its name and its syntax tree without docstrings, comments,
    positions and words for readers (texts under ``expected=``, ``hint=`` and ``unit=``, and the
    description of a ``param``). The form is the same under CPython 3.11 to 3.13. It is computed at the
    first call for a module, from the source files.
    """
    found = hashlib.sha256()
    for name in closure(module):
        source = _read(name)
        if source is None:
            return None
        found.update(f"{name} {source.digest}\n".encode())
    return found.hexdigest()[:16]


@cache
def closure(module: str) -> tuple[str, ...]:
    """Return a module and its imports inside its room, sorted.

    Direct and indirect imports. The room is the package below the top one
    (``opendp_sim.measurements``, ``opendp_sim.transformations``, ``opendp_sim.postprocessing``), so a
    mechanism's ``_impl`` parts and the noise that it draws are covered; imports inside functions too.
    Not covered: ``core``, ``domains`` and ``accounting``, on which everything stands and which have
    tests of their own, and OpenDP and numpy, whose versions a certificate states.
    """
    room = ".".join(module.split(".")[:2])
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            source = _read(name)
            waiting += [n for n in source.imports if n.startswith(f"{room}.")] if source else []
    return tuple(sorted(found))


def package_hash(package: str) -> str:
    """Return the hash of all modules of a package, as `code_hash` does."""
    root = files(package)
    found = hashlib.sha256()
    for name in sorted(_modules(root, package)):
        source = _read(name)
        found.update(f"{name} {source.digest if source else ''}\n".encode())
    return found.hexdigest()[:16]


def _modules(folder: Any, package: str) -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.is_dir() and entry.joinpath("__init__.py").is_file():
            yield from _modules(entry, f"{package}.{entry.name}")
        elif entry.name.endswith(".py"):
            stem = entry.name.removesuffix(".py")
            yield package if stem == "__init__" else f"{package}.{stem}"


@dataclass(frozen=True)
class _Source:
    digest: str
    imports: tuple[str, ...]
    """Modules that it imports, of its own top-level package."""
    defined: tuple[tuple[str, ...], ...]
    """Functions at its top and methods of its classes, as paths of names."""
    taken: tuple[tuple[str, str, str], ...]
    """What it takes at its top from modules of its room: its name here, the module, its name there."""


def _file(module: str) -> Any:
    """Return the source file of a module, or None."""
    top, *names = module.split(".")
    try:
        place = files(top).joinpath(*names) if names else files(top)
    except (ModuleNotFoundError, TypeError):
        return None
    if names:
        plain = files(top).joinpath(*names[:-1], f"{names[-1]}.py")
        if plain.is_file():
            return plain
    inside = place.joinpath("__init__.py")
    return inside if inside.is_file() else None


@cache
def _read(module: str) -> _Source | None:
    file = _file(module)
    if file is None:
        return None
    tree = ast.parse(file.read_text(encoding="utf-8"))
    words: list[str] = []
    _write(tree, words, prose=False)
    digest = hashlib.sha256("\n".join(words).encode()).hexdigest()
    top, room = module.partition(".")[0], ".".join(module.split(".")[:2])
    imports = {name for node in _statements(tree) for name in _imported(node, module, top)}
    taken = (
        (alias.asname or alias.name, node.module or "", alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and f"{node.module}".startswith(f"{room}.")
        for alias in node.names
    )
    return _Source(
        digest, tuple(sorted(imports)), tuple(_defined(tree.body, ())), tuple(sorted(taken))
    )


def _write(node: Any, words: list[str], *, prose: bool) -> None:
    """Append a syntax tree in a form independent of Python's version.

    Fields that are empty or absent are left out, as newer versions add some, and so are empty pieces of
    formatted texts, which CPython 3.12.1 adds; texts are written in ASCII.
    """
    if isinstance(node, ast.AST):
        words.append(type(node).__name__)
        inside = (prose and isinstance(node, (ast.JoinedStr, ast.IfExp, ast.BinOp))) or (
            isinstance(node, ast.keyword) and node.arg in _PROSE
        )
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                called = isinstance(node, ast.Call) and getattr(node.func, "id", None) == "param"
                described = name == "args" and called  # what a parameter means comes first
                value = [e for e in value if not _says_nothing(node, e, prose=inside)][described:]
            if value is None or value == [] or name in {"ctx", "kind", "type_comment"}:
                continue
            words.append(name)
            if not (inside and isinstance(value, ast.Constant) and isinstance(value.value, str)):
                _write(value, words, prose=inside)
    elif isinstance(node, list):
        words.append("[")
        for each in node:
            _write(each, words, prose=prose)
        words.append("]")
    else:
        words.append(ascii(node))


def _says_nothing(above: ast.AST, node: Any, *, prose: bool) -> bool:
    """Return whether an item is a docstring, empty text or prose."""
    if isinstance(node, ast.Expr):
        node, above = node.value, node
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    return isinstance(above, ast.Expr) or (
        isinstance(above, ast.JoinedStr) and (prose or not node.value)
    )


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements below a node; ``ast.walk`` goes through all expressions, too."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for each in getattr(node, field, ()):
            yield each
            yield from _statements(each)


def _imported(node: ast.AST, module: str, top: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name.startswith(f"{top}."))
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            package = module.split(".")[: -node.level]
            base = ".".join([*package, base] if base else package)
        if base.startswith(f"{top}."):
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield base if _file(inner) is None else inner


def _defined(body: list[ast.stmt], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield (*path, node.name)
        elif isinstance(node, ast.ClassDef):
            yield from _defined(node.body, (*path, node.name))


def runs_as_written(module: str) -> bool:
    """Return whether a loaded module's functions are those of its file.

    A method or function that was replaced in memory is seen by the file of its code, one that was
    replaced where it is imported by its identity. Objects other than functions are not compared.
    """
    loaded, source = sys.modules.get(module), _read(module)
    if loaded is None or source is None:
        return source is not None
    own, names = loaded.__file__, vars(loaded)
    for path in source.defined:
        found = names.get(path[0])
        if len(path) > 1:
            found = vars(found).get(path[1]) if isinstance(found, type) else None
        plain = type(found) is FunctionType and found.__code__.co_filename == own  # most are
        if not plain and _made_in(loaded, path) != own:
            return False
    return all(
        names.get(here) is getattr(sys.modules.get(place), there, None)
        for here, place, there in source.taken
    )


def _made_in(loaded: Any, path: tuple[str, ...]) -> str | None:
    """Return the file of a function's code."""
    found: Any = loaded
    for name in path:  # where it is defined, so without what a class inherits
        found = vars(found).get(name) if isinstance(found, ModuleType | type) else None
    for name in ("fget", "__func__", "func", "__wrapped__"):
        code = getattr(found, "__code__", None)
        if code is None or code.co_filename == contextlib.__file__:
            found = getattr(found, name, found)
    code = getattr(found, "__code__", None)
    return None if code is None else str(code.co_filename)
