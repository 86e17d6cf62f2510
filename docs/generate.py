"""Pages from the code: mechanisms, errors, the language, the command line, Python, proofs, a report.

The texts are those of ``opendp-sim explain`` and ``--help``, so the site cannot say anything else.
"""

from __future__ import annotations

import inspect
import shutil
from pathlib import Path

from mechanism_pages import PACKAGE, ROOT, mechanism_page
from typer.testing import CliRunner

import opendp_sim as sim
import opendp_sim.prelude
from opendp_sim.cli import COMMANDS, app
from opendp_sim.core.errors import CATALOGUE
from opendp_sim.dsl.explain.explain import catalogue, explain
from opendp_sim.dsl.grammar.pages import words_of_a_spec
from opendp_sim.dsl.grammar.program import Spec
from opendp_sim.report.page import page_of

_ROOMS = {
    "rows": "Row maps",
    "sketches": "Sketches",
    "measurements": "Releases",
    "queries": "Questions",
}


def generate(into: Path) -> None:
    """Write every page under ``into``, from nothing."""
    shutil.rmtree(into, ignore_errors=True)
    (into / "mechanisms").mkdir(parents=True)
    _proofs(into / "proofs")
    _mechanisms(into / "mechanisms")
    _write(into / "errors.md", "Errors", [_entry(code, explain(code)) for code in CATALOGUE])
    words = sorted(words_of_a_spec(Spec))
    _write(
        into / "language.md", "The language, word by word", [_entry(w, explain(w)) for w in words]
    )
    _write(
        into / "commands.md", "The command line", [_entry(name, _help(name)) for name in COMMANDS]
    )
    _write(into / "python.md", "Python", [_entry(name, _doc(name)) for name in dir(sim)])
    (into / "extra").mkdir()
    page = page_of(ROOT / "specs" / "digit-density.yaml")
    (into / "extra" / "report.html").write_text(page, encoding="utf-8")


def _write(path: Path, title: str, parts: list[str]) -> None:
    path.write_text("\n\n".join([f"# {title}", *parts]) + "\n", encoding="utf-8")


def _entry(name: str, text: str) -> str:
    return f"## `{name}`\n\n````text\n{text.rstrip()}\n````"


def _help(name: str) -> str:
    plain = {"COLUMNS": "90", "TERM": "dumb", "NO_COLOR": "1"}
    shown = CliRunner().invoke(app, [name, "--help"], env=plain, prog_name="opendp-sim")
    return "\n".join(line.rstrip() for line in shown.output.strip().splitlines())


def _doc(name: str) -> str:
    found = getattr(sim, name)
    if isinstance(found, str):
        return found
    head = name
    if callable(found) and not inspect.ismodule(found):
        try:
            head += str(inspect.signature(found))
        except ValueError:
            pass
    return f"{head}\n\n{inspect.getdoc(found) or ''}"


def _proofs(into: Path) -> None:
    """Copy every proof and guide, in the package's own tree: their links to each other hold."""
    pages = []
    for page in sorted(PACKAGE.rglob("*.md")):
        place = into / page.relative_to(PACKAGE)
        place.parent.mkdir(parents=True, exist_ok=True)
        text = page.read_text(encoding="utf-8")
        place.write_text(
            text if text.lstrip().startswith("# ") else f"# {page.stem}\n\n{text}", encoding="utf-8"
        )
        pages.append(place.relative_to(into).with_suffix("").as_posix())
    _index(into, "Proofs and guides", "Each lies beside the code that it is about.", pages)


def _mechanisms(into: Path) -> None:
    rooms: dict[str, list[str]] = {}
    for entry in catalogue():
        key = entry["key"]
        rooms.setdefault(entry["room"], []).append(key)
        (into / f"{key}.md").write_text(mechanism_page(key), encoding="utf-8")
    for room, keys in rooms.items():
        title = _ROOMS.get(room, room.capitalize())
        _index(
            into,
            title,
            "From records, lemmas, plans and measurements.",
            sorted(keys),
            f"room_{room}",
        )
    _index(
        into, "Mechanisms", "Every step that a spec can name.", [f"room_{room}" for room in rooms]
    )


def _index(into: Path, title: str, text: str, pages: list[str], name: str = "index") -> None:
    tree = "```{toctree}\n:maxdepth: 1\n\n" + "\n".join(pages) + "\n```"
    (into / f"{name}.md").write_text(f"# {title}\n\n{text}\n\n{tree}\n", encoding="utf-8")
