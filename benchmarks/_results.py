"""Figures: one JSON file each under ``results/``, and the page that is made of them.

A figure has ``what`` was measured, ``value``, ``base`` (what it is compared with), ``commit`` (the code that
was measured), ``date``, ``machine``, ``command`` and ``about`` (keys of mechanisms). ``value`` is a sentence, or,
as a script's ``--write`` leaves it, a list of tables (rows, the head first).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).with_name("results")
PAGE = Path(__file__).with_name("RESULTS.md")
DATA = ROOT.parent / "shared" / "data"
"""Where `--data` looks by default: measurements only, tests never need it."""
FIELDS = ("what", "value", "base", "about", "command", "commit", "date", "machine")
_HEAD = """# Measurements

Made by `python -m benchmarks` of the files in `results/`, one a figure; edit those. A script of this folder
measures again and, with `--write`, replaces its figure. `commit` is the code that was measured; where that was
not recorded (before 26 November 2026), the commit that recorded the figure. A command whose script is gone
runs at that commit. Machine: two x86-64 cores with other work beside it, unless the file says otherwise; speeds are CPU time.
"""


def figures(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Return every figure by its path below ``results/``, without the suffix."""
    files = sorted(folder.glob("*/*.json"))
    found = {f.relative_to(folder).with_suffix("").as_posix(): f for f in files}
    read = {name: json.loads(file.read_text("utf-8")) for name, file in found.items()}
    return {name: figure for name, figure in read.items() if "what" in figure}


def write_figure(name: str, text: str, command: str) -> None:
    """Record a run: the tables of its text as the figure's value, with commit, day and machine."""
    file = RESULTS / f"{name}.json"
    found = json.loads(file.read_text("utf-8")) if file.is_file() else {"what": name, "about": []}
    found |= {
        "value": _tables(text),
        "base": "in the table",
        "command": command,
        "commit": _commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores of {platform.machine()}, load {os.getloadavg()[0]:.1f}",
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    ordered = {field: found[field] for field in FIELDS}
    file.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", "utf-8")


def _commit() -> str:
    return _git("rev-parse", "--short=9", "HEAD").strip() or "none"


def _git(*words: str, given: str = "") -> str:
    """Return what git prints; nothing where there is no git."""
    try:
        return subprocess.run(
            ["git", *words], check=True, cwd=ROOT, input=given, capture_output=True, text=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def _tables(text: str) -> list[list[list[str]]]:
    out: list[list[list[str]]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            if not set("".join(cells)) <= set("-: "):
                out[-1].append(cells)
        elif out[-1]:
            out.append([])
    return [rows for rows in out if rows]


def page() -> str:
    """Return the page of all figures: a table for each folder of ``results/``."""
    lines, folder = [_HEAD.rstrip()], ""
    for name, figure in figures().items():
        if name.partition("/")[0] != folder:
            folder = name.partition("/")[0]
            lines += ["", f"## {folder}", "", "| figure | what | value | base | commit |"]
            lines += ["|---|---|---|---|---|"]
        value = shown(figure["value"])
        cells = (f"`{name.partition('/')[2]}`", figure["what"], value, figure["base"])
        lines.append(f"| {' | '.join(cells)} | {figure['commit']} |")
    return "\n".join(lines) + "\n"


def shown(value: str | list[list[list[str]]]) -> str:
    """Return a figure's value as a sentence: of tables, the first row under its head."""
    if isinstance(value, str):
        return value
    head, first = value[0][:2]
    return "; ".join(f"{name} {cell}".strip() for name, cell in zip(head, first, strict=False))


def table(head: list[str], rows: list[list[object]]) -> str:
    """Return a markdown table; floats are shown to four significant digits."""
    shown = [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in row] for row in rows]
    lines = [head, ["---"] * len(head), *shown]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def parser(text: str) -> argparse.ArgumentParser:
    """Return a parser with the options every bench script has."""
    out = argparse.ArgumentParser(description=text)
    out.add_argument(
        "--write", action="store_true", help="replace this script's figure in results/"
    )
    out.add_argument("--data", type=Path, default=DATA, help="folder of the measurement data")
    return out


def cited() -> list[tuple[str, str]]:
    """Return every commit that a figure, or a document behind the word "commit", names: (place, commit)."""
    found = [(f"results/{name}.json", figure["commit"]) for name, figure in figures().items()]
    for file in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("opendp_sim/**/*.md")]:
        text = file.read_text("utf-8")
        found += [
            (file.relative_to(ROOT).as_posix(), commit)
            for commit in re.findall(r"\bcommit `?([0-9a-f]{7,40})\b", text)
        ]
    return found


def missing(commits: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return those that the history does not hold; none where there is no whole history to ask."""
    if _git("rev-parse", "--is-shallow-repository").strip() != "false":
        return []
    names = "".join(f"{commit}^{{commit}}\n" for _, commit in commits)
    lines = _git("cat-file", "--batch-check", given=names).splitlines()
    return [one for one, line in zip(commits, lines, strict=True) if line.split()[1] != "commit"]
