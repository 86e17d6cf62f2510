"""Define the entries of a corpus of broken and sound mechanisms.

One line of a table per entry. A detector that was never shown something broken has proved nothing, and
one that was never shown something sound cannot be trusted when it speaks.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any


@dataclass(frozen=True, kw_only=True)
class _Entry:
    name: str
    """``family/what_is_broken``, unique; the family is the key of the mechanism it imitates."""
    make: Callable[[], Any]
    """Builds the object that is audited: anything ``audit`` takes. Called once for each seed."""
    d_in: Any = 1
    """The input distance of the claim."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further keyword arguments of ``audit``: ``core=``, ``noise=``, ``drive=``, ``pairs=``, ..."""

    @property
    def family(self) -> str:
        """The mechanism this entry imitates."""
        return self.name.split("/", 1)[0]


@dataclass(frozen=True, kw_only=True)
class Twin(_Entry):
    """Describe a mechanism with exactly one fault to refute."""

    why: str
    """One line: what is wrong, in words a reviewer checks against the code."""


@dataclass(frozen=True, kw_only=True)
class Control(_Entry):
    """A sound mechanism; the audit must not refute it."""


def collect(folder: Path, pattern: str = "twins_*.py") -> tuple[list[Twin], list[Control]]:
    """Gather ``TWINS`` and ``CONTROLS`` of every matching file of a folder.

    Args:
        folder: where the tables are.
        pattern: which files of the folder hold tables.

    Returns:
        All twins and all controls, in the order of file name and then of table.

    Raises:
        ValueError: a name is used twice or a table holds something else.
    """
    twins: list[Twin] = []
    controls: list[Control] = []
    for path in sorted(folder.glob(pattern)):
        module = _load(path)
        twins += getattr(module, "TWINS", [])
        controls += getattr(module, "CONTROLS", [])
    entries: list[_Entry] = [*twins, *controls]
    names = [entry.name for entry in entries]
    doubled = sorted({name for name in names if names.count(name) > 1})
    foreign = [entry for entry in entries if not isinstance(entry, (Twin, Control))]
    if doubled or foreign:
        raise ValueError(f"names used twice: {doubled}; no twin or control: {foreign}")
    return twins, controls


def _load(path: Path) -> ModuleType:
    """Import a table by its path."""
    spec = importlib.util.spec_from_file_location(f"audit_corpus_{path.stem}", path)
    if spec is None or spec.loader is None:  # pragma: no cover - a *.py path always has a loader
        raise ImportError(path.name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their own module up
    spec.loader.exec_module(module)
    return module
