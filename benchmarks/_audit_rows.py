"""Rows of the auditor's scoreboard: one line of a file for each audit, so that a run can be cut and continued."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from opendp_sim.accounting.atomic_files import replacing
from opendp_sim.accounting.code_hash import code_hash, package_hash
from opendp_sim.core.mechanism import REGISTRY

RECORD = Path(__file__).with_name("results") / "audit"
"""What the scoreboard measured: a file for each part with a row a line, and ``runs.json``."""
ROWS = ("laws", "mechanisms", "twins", "deep", "controls", "opaque", "power", "defects")
EVIDENCE = Path(__file__).parents[1] / "opendp_sim" / "accounting" / "evidence.jsonl"
"""What ships of it: a line a mechanism."""

_LAYERS = ("structure", "stability", "noise", "distribution")
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


def code_of(key: str) -> str | None:
    """Return the hash of a mechanism's code."""
    return code_hash(REGISTRY[key].__module__)


def auditor() -> str:
    """Return the hash of the whole auditor."""
    return package_hash("opendp_sim.audit")


def recorded() -> dict[str, Any]:
    """Return the whole record: engines, dates and commands of its parts, and the rows of each by name."""
    runs = RECORD / "runs.json"
    found: dict[str, Any] = json.loads(runs.read_text("utf-8")) if runs.is_file() else {}
    for part in ROWS:
        file = RECORD / f"{part}.jsonl"
        if file.is_file():
            rows = map(json.loads, file.read_text("utf-8").splitlines())
            found[part] = {row.pop("name"): row for row in rows}
    return found


def write_record(record: dict[str, Any]) -> None:
    """Write the record, and of it the evidence that ships."""
    RECORD.mkdir(parents=True, exist_ok=True)
    runs = {name: value for name, value in record.items() if name not in ROWS}
    _write(RECORD / "runs.json", json.dumps(runs, indent=1, sort_keys=True) + "\n")
    for part in ROWS:
        if part in record:
            rows = [{"name": name, **row} for name, row in sorted(record[part].items())]
            _write_lines(RECORD / f"{part}.jsonl", rows)
    _write_lines(EVIDENCE, list(evidence(record)))


def evidence(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what ships of each mechanism: laws, audits, twins, and the code that they are of.

    No code stands where laws and audits ran on different ones.
    """
    for key, laws in sorted(record["laws"].items()):
        audits = record["mechanisms"].get(key)
        codes = {row.get("code") for row in (laws, audits) if row is not None}
        yield {
            "key": key,
            "kind": laws["kind"],
            "code": codes.pop() if len(codes) == 1 else None,
            "auditor": audits and audits.get("auditor"),
            "laws": {name: laws[name] for name in ("held", "failed", "excused", "date")},
            "audits": audits
            and {name: value for name, value in audits.items() if name not in {"code", "auditor"}},
            "twins": _twins(record.get("twins", {}), key),
        }


def _twins(rows: dict[str, Any], key: str) -> dict[str, Any] | None:
    mine = [row for name, row in rows.items() if name.split("/", 1)[0] == key]
    if not mine:
        return None
    return {
        "of": len(mine),
        "caught": sum(row["caught"] > 0 for row in mine),
        "caught_at_every_seed": sum(row["caught"] == row["seeds"] for row in mine),
        "seeds": min(row["seeds"] for row in mine),
    }


def _write_lines(file: Path, rows: list[dict[str, Any]]) -> None:
    _write(file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _write(file: Path, text: str) -> None:
    """Replace a file in one step: an audit beside this one read half of it, and wrote that back."""
    with replacing(file) as stream:
        stream.write(text.encode("utf-8"))
