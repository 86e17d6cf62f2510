"""Rows of the auditor's scoreboard: one line of a file for each audit, so that a run can be cut and continued."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

__all__ = ["RowFile", "engine_of", "tree_of"]


_LAYERS = ("structure", "stability", "noise", "enumeration", "accountants", "distribution")
_IMPORTED = re.compile(r"^from opendp_sim\.audit\.([\w.]+) import", flags=re.MULTILINE)


def engine_of(root: Path, *, whole: bool = False) -> str:
    """Return a short hash of the code of the layers and of OpenDP's version: other rows do not count.

    The ``whole`` auditor, with the layer of tapes and all that chooses pairs, decides opaque objects.
    """
    folder = root / "opendp_sim" / "audit"
    if whole:
        code = version("opendp") + "".join(
            f.read_text("utf-8") for f in sorted(folder.rglob("*.py"))
        )
        return hashlib.sha256(code.encode()).hexdigest()[:12]
    texts: dict[str, str] = {}
    waiting = [f"checks.{name}" for name in _LAYERS]
    while waiting:
        name = waiting.pop()
        if name not in texts:
            file = folder / f"{name.replace('.', '/')}.py"
            texts[name] = file.read_text("utf-8") if file.is_file() else ""
            waiting += _IMPORTED.findall(texts[name])
    code = version("opendp") + "".join(texts[name] for name in sorted(texts))
    return hashlib.sha256(code.encode()).hexdigest()[:12]


def tree_of(root: Path) -> str:
    """Return a short hash of the package, the twins and the cases: what a family's rows depend on."""
    found = hashlib.sha256()
    for folder in ("opendp_sim", "tests/audit", "tests/cases"):
        for file in sorted((root / folder).rglob("*.py")):
            found.update(file.relative_to(root).as_posix().encode() + file.read_bytes())
    return found.hexdigest()[:12]


class RowFile:
    """Rows (part, name, seed) with what was measured, appended as they come."""

    def __init__(self, path: Path, engine: str) -> None:
        self._path, self.engine = path, engine
        self._rows: dict[tuple[str, str, int], dict[str, Any]] = {}
        if path.exists():
            for line in path.read_text("utf-8").splitlines():
                row = json.loads(line)
                if row["engine"] == engine:
                    self._rows[row["part"], row["name"], row["seed"]] = row

    def has(self, part: str, name: str, seed: int) -> bool:
        """Say whether this audit is there already."""
        return (part, name, seed) in self._rows

    def add(self, part: str, name: str, seed: int, **measured: Any) -> None:
        """Append one audit."""
        row = {"engine": self.engine, "part": part, "name": name, "seed": seed, **measured}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, sort_keys=True) + "\n")
        self._rows[part, name, seed] = row

    def of(self, part: str) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of a part by name, in the order of seeds."""
        found: dict[str, list[dict[str, Any]]] = {}
        for row in self._sorted(part):
            found.setdefault(row["name"], []).append(row)
        return found

    def _sorted(self, part: str) -> Iterator[dict[str, Any]]:
        keys = sorted(key for key in self._rows if key[0] == part)
        return (self._rows[key] for key in keys)
