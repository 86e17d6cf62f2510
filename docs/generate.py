"""Pages from the code: mechanisms, errors, the language, the command line, Python, proofs, a report.

The texts are those of ``opendp-sim explain`` and ``--help``, so the site cannot say anything else.
Pages below an index are linked from its table and stand in no tree of contents: every page of the site
holds the whole tree, and 200 entries more would cost the reader the overview, and the build a minute.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from mechanism_pages import PACKAGE, ROOT, mechanism_page, predictions, recommended, summary
from python_pages import DOORS, python_pages
from typer.testing import CliRunner

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


ALONE = "---\norphan: true\n---\n"
"""The head of a page that stands in no tree of contents."""


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
    (into / "python").mkdir()
    python_pages(into / "python")
    about = "Every public name, with its signature and parameters."
    _index(into / "python", "Python", about, list(DOORS))
    (into / "parts").mkdir()
    (into / "parts" / "predictions.txt").write_text(predictions(), encoding="utf-8")
    (into / "parts" / "recommended.txt").write_text(recommended(), encoding="utf-8")
    (into / "extra").mkdir()
    page = page_of(ROOT / "specs" / "digit-density.yaml")
    (into / "extra" / "report.html").write_text(page, encoding="utf-8")
    frame = '<iframe src="../report.html" title="A report"></iframe>'
    about = (
        "`opendp-sim report specs/digit-density.yaml` makes this page for the person who decides."
    )
    (into / "report.md").write_text(f"# A report\n\n{about}\n\n{frame}\n", encoding="utf-8")
    shutil.copy(ROOT / "benchmarks" / "RESULTS.md", into / "measurements.md")


def _write(path: Path, title: str, parts: list[str]) -> None:
    path.write_text("\n\n".join([f"# {title}", *parts]) + "\n", encoding="utf-8")


def _entry(name: str, text: str) -> str:
    return f"## `{name}`\n\n````text\n{text.rstrip()}\n````"


def _help(name: str) -> str:
    plain = {"COLUMNS": "90", "TERM": "dumb", "NO_COLOR": "1"}
    shown = CliRunner().invoke(app, [name, "--help"], env=plain, prog_name="opendp-sim")
    return "\n".join(line.rstrip() for line in shown.output.strip().splitlines())


def _proofs(into: Path) -> None:
    """Copy every proof and guide, in the package's own tree: their links to each other hold."""
    rows = []
    for page in sorted(PACKAGE.rglob("*.md")):
        inside = page.relative_to(PACKAGE)
        place = into / inside
        place.parent.mkdir(parents=True, exist_ok=True)
        text = page.read_text(encoding="utf-8")
        title = "" if text.lstrip().startswith("# ") else f"# {page.stem}\n\n"
        place.write_text(f"{ALONE}{title}{text}", encoding="utf-8")
        rows.append(f"- [{inside.with_suffix('').as_posix()}]({inside.as_posix()})")
    about = "# Proofs and guides\n\nEach lies beside the code that it is about."
    (into / "index.md").write_text("\n".join([about, "", *rows]) + "\n", encoding="utf-8")


def _mechanisms(into: Path) -> None:
    parts = ["# Mechanisms", "Every step that a spec can name, and every question of a release."]
    for room, title in _ROOMS.items():
        keys = sorted(entry["key"] for entry in catalogue() if entry["room"] == room)
        for key in keys:
            (into / f"{key}.md").write_text(ALONE + mechanism_page(key), encoding="utf-8")
        rows = [f"| [`{key}`]({key}.md) | {summary(key)} |" for key in keys]
        parts += [f"## {title}", "\n".join(["| name | does |", "|---|---|", *rows])]
    (into / "index.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _index(into: Path, title: str, text: str, pages: list[str]) -> None:
    tree = "```{toctree}\n:maxdepth: 1\n\n" + "\n".join(pages) + "\n```"
    (into / "index.md").write_text(f"# {title}\n\n{text}\n\n{tree}\n", encoding="utf-8")
