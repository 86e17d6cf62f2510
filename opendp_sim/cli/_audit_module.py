"""Find the objects of a module to audit, or its errors."""

from __future__ import annotations

import importlib
import inspect
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opendp_sim.audit.module_objects import left_out, makers, needed, place_of
from opendp_sim.core import dp
from opendp_sim.core.errors import AuditError

_OUTPUT = 1
"""The descriptor of standard output."""


@dataclass
class ModuleTargets:
    """What of a target is audited, and what is not and why."""

    subjects: list[tuple[str, Any, dict[str, Any]]] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    failed: int = 0
    """How many of those ended in an error."""
    module: bool = False
    """Whether all that a module makes was asked for."""


class PrintCounter(io.TextIOBase):
    """Count the audited code's printed output."""

    lines = 0

    def write(self, text: str) -> int:
        """Count the lines."""
        self.lines += text.count("\n")
        return len(text)

    def writable(self) -> bool:
        """It takes whatever is printed."""
        return True


@contextmanager
def listening(heard: PrintCounter) -> Iterator[None]:
    """Keep the audited code's output, children included, out of the report."""
    with redirect_stdout(heard), redirect_stderr(heard), _elsewhere():
        yield


@contextmanager
def _elsewhere() -> Iterator[None]:
    """Send what is written to the descriptor of standard output nowhere."""
    try:
        kept = os.dup(_OUTPUT)
    except OSError:  # it is closed
        yield
        return
    if sys.__stdout__ is not None:
        sys.__stdout__.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, _OUTPUT)
    os.close(nowhere)
    try:
        yield
    finally:
        os.dup2(kept, _OUTPUT)
        os.close(kept)


def module_members(module: str) -> ModuleTargets:
    """Return every object that a module holds or makes, despite failing factories.

    Raises:
        AuditError: OS501, the module cannot be imported, or nothing in it can be audited.
    """
    _imported(module, module)
    found = ModuleTargets(left_out=left_out(module), module=True)
    for name, make in makers(module):
        target = f"{module}:{name}"
        try:
            made = _made(make, target)
        except AuditError as error:
            found.left_out.append((name, f"could not be made: {error.got}"))
            found.failed += 1
            continue
        if isinstance(made, (dp.Transformation, dp.Measurement, dp.Odometer)):
            found.subjects.append((target, made, {}))
        else:
            kind = type(made).__name__
            found.left_out.append((name, f"returned {kind}, which is no OpenDP object"))
    if not found.subjects:
        why = "; ".join(f"{name}: {reason}" for name, reason in found.left_out)
        raise _unmade(
            module, "a module that holds or makes measurements", why or "none in it",
            "name factories make_..., without required arguments, or use module:factory.",
        )  # fmt: skip
    return found


def of_factory(module: str, name: str, target: str) -> Any:
    """Return the object, or the function's result, of a name."""
    found = _imported(module, target)
    if not hasattr(found, name):
        raise _unmade(
            target, "a name of that module", f"no {name} in it",
            "name a function without arguments, or an OpenDP object.",
        )  # fmt: skip
    value = getattr(found, name)
    if isinstance(value, (dp.Transformation, dp.Measurement, dp.Odometer)) or not callable(value):
        return value
    return _made(value, target)


def source_place(origin: str) -> tuple[str, int]:
    """Return a factory's file, relative to here, and line."""
    module, _, name = origin.partition(":")
    found = sys.modules.get(module)
    guess = module.replace(".", "/") + ".py"
    file = getattr(found, "__file__", None)
    if file is None:
        return guess, 1
    path, value = Path(file), getattr(found, name, None)
    code = getattr(inspect.unwrap(value) if callable(value) else None, "__code__", None)
    line = code.co_firstlineno if code is not None else _line_of(path, name)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path), line


def _line_of(file: Path, name: str) -> int:
    """Return the line on which a module gives something that name."""
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return 1
    return next((n for n, line in enumerate(lines, 1) if line.startswith(name)), 1)


def _imported(module: str, target: str) -> Any:
    dp.enable_features("contrib", "honest-but-curious")
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or "") in module:
            raise _unmade(
                target, "an importable module", f"no module named {error.name}",
                "run from the folder the module is in, or install it.",
            ) from error  # fmt: skip
        raise _unmade(
            target, "a module that imports", place_of(error), "run it in Python to see why."
        ) from error


def _made(factory: Any, target: str) -> Any:
    """Call the user's factory."""
    missing = [] if inspect.isclass(factory) else needed(factory)
    if missing:
        raise _unmade(
            target, "a factory that works without arguments",
            f"one that needs {', '.join(missing)}",
            "write a function without arguments that calls it, and name that one.",
        )  # fmt: skip
    try:
        return factory()
    except (Exception, SystemExit) as error:
        raise _unmade(
            target, "a factory that works without arguments", place_of(error),
            "call it in Python to see the whole message.",
        ) from error  # fmt: skip


def _unmade(target: str, expected: str, got: str, hint: str) -> AuditError:
    return AuditError("OS501", target, expected=expected, got=got, hint=hint)
