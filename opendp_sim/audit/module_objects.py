"""Find the OpenDP objects and factories without arguments in a module."""

from __future__ import annotations

import importlib
import inspect
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from opendp_sim.core import dp

_OBJECTS = (dp.Transformation, dp.Measurement)
_LIBRARIES = (
    *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")),
    Path(__file__).parents[1],
)
"""Folders of code that is not the user's."""
_FACTORIES = ("make_", "build_", "create_", "get_", "release_")


def makers(module: str) -> list[tuple[str, Callable[[], Any]]]:
    """Return name and maker of every object of a module.

    Objects that it holds, and those of its factories. A function counts when it is the module's own,
    public, has no required argument, and either is named like a factory (``make_``, ``build_``,
    ``create_``, ``get_``, ``release_``) or is annotated to return a Measurement or Transformation.
    Nothing else is called.
    """
    out: list[tuple[str, Callable[[], Any]]] = []
    for name, value in _public(module):
        if isinstance(value, _OBJECTS):
            out.append((name, partial(_itself, value)))
        elif _is_factory(name, value, module) and not needed(value):
            out.append((name, value))
    return out


def left_out(module: str) -> list[tuple[str, str]]:
    """Return name and reason of each skipped callable."""
    out = []
    for name, value in _public(module):
        if _is_factory(name, value, module) and (missing := needed(value)):
            some = ", ".join(f"`{one}`" for one in missing)
            out.append((name, f"needs {some}: write a factory without arguments that calls it"))
        elif inspect.isfunction(value) and value.__module__ == module and not needed(value):
            if not _is_factory(name, value, module):
                out.append(
                    (name, f"not named like a factory: ask for `{module}:{name}` if it is one")
                )
        elif inspect.isclass(value) and value.__module__ == module:
            out.append((name, "a class: write a factory that returns the OpenDP object around it"))
    return out


def needed(function: Any) -> list[str]:
    """Return the names of the arguments that a function cannot do without."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    variable = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    return [p.name for p in found if p.default is p.empty and p.kind not in variable]


def place_of(error: BaseException) -> str:
    """Return kind and place of an exception.

    Its text could quote private data that the factory read. The place is the last line of the user's
    own code, where there is one, and none of a library.
    """
    kind = type(error).__name__
    if isinstance(error, SyntaxError) and error.filename:
        return f"{kind} at {Path(error.filename).name}:{error.lineno}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        kind = f"{kind}, no module named {error.name},"
    frames = traceback.extract_tb(error.__traceback__)
    ours = __file__, str(Path(__file__).parents[1] / "cli" / "_audit_module.py")
    met = [f for f in frames if f.filename not in ours and "importlib" not in f.filename]
    own = [f for f in met if not any(map(Path(f.filename).is_relative_to, _LIBRARIES))] or met
    return f"{kind} at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else kind


def _public(module: str) -> list[tuple[str, Any]]:
    found = importlib.import_module(module)
    return [(name, value) for name, value in sorted(vars(found).items()) if name[:1] != "_"]


def _itself(value: Any) -> Any:
    return value


def _is_factory(name: str, function: Any, module: str) -> bool:
    if not inspect.isfunction(function) or function.__module__ != module:
        return False
    told = str(function.__annotations__.get("return", ""))
    return "Measurement" in told or "Transformation" in told or name.startswith(_FACTORIES)


# --------------------------------------------------------------------------------------------------


class CalledObjects:
    """Collect the OpenDP objects that code calls, and their distances.

    What an object calls inside is a part of it, and left out; so is what raised at every call.
    """

    def __init__(self) -> None:
        self._called: dict[int, Any] = {}
        self._asked: dict[int, list[Any]] = {}
        self._depth = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note calls in the block."""
        wrappers = ("__call__", self._calling), ("invoke", self._calling), ("map", self._mapping)
        kept = [
            (kind, name, getattr(kind, name), wrap)
            for kind in _OBJECTS
            for name, wrap in wrappers
            if hasattr(kind, name)
        ]
        for kind, name, real, wrap in kept:
            setattr(kind, name, wrap(real))
        try:
            yield
        finally:
            for kind, name, real, _ in kept:
                setattr(kind, name, real)

    def found(self) -> Iterator[tuple[Any, Any, Any]]:
        """Yield a key, an object and a distance."""
        for number, obj in self._called.items():
            asked = self._asked.get(number) or [1]
            for d_in in {repr(d): d for d in asked}.values():
                told = getattr(obj, "__opendp_dict__", None)
                yield (repr(told) if told else number, repr(d_in)), obj, d_in

    def _calling(self, real: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def call(obj: Any, data: Any) -> Any:
            self._depth += 1
            try:
                out = real(obj, data)
            finally:
                self._depth -= 1
            if not self._depth:
                self._called.setdefault(id(obj), obj)
            return out

        return call

    def _mapping(self, real: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def loss(obj: Any, d_in: Any) -> Any:
            if not self._depth:
                self._asked.setdefault(id(obj), []).append(d_in)
            return real(obj, d_in)

        return loss
