"""The documentation's sources: pages are made from the code, none is forgotten, and every cell is Python."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from opendp_sim.cli import COMMANDS
from opendp_sim.core.errors import CATALOGUE
from opendp_sim.dsl.explain.explain import catalogue
from opendp_sim.plots.choose import display_of

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
from links import broken

from tests._tiers import some

DOCS = Path(__file__).parents[1] / "docs"
WRITTEN = sorted(
    p for p in DOCS.rglob("*.md") if not {"generated", "_build", "changelog.d"} & {*p.parts}
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    spec = importlib.util.spec_from_file_location("site_pages", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    into = tmp_path_factory.mktemp("site") / "generated"
    module.generate(into)
    return into


@pytest.mark.long
def test_every_mechanism_error_command_and_proof_has_its_place(made):
    for entry in catalogue():
        page = (made / "mechanisms" / f"{entry['key']}.md").read_text(encoding="utf-8")
        assert page.startswith(f"# {entry['key']}\n")
        for link in re.findall(r"\]\((\.\./proofs/[^)]*)\)", page):
            assert (made / "mechanisms" / link).resolve().exists(), link
    assert all(
        f"## `{code}`" in (made / "errors.md").read_text(encoding="utf-8") for code in CATALOGUE
    )
    commands = (made / "commands.md").read_text(encoding="utf-8")
    assert all(f"Usage: opendp-sim {name}" in commands for name in COMMANDS)
    assert (made / "proofs" / "audit" / "known_limits.md").exists()
    assert "Content-Security-Policy" in (made / "extra" / "report.html").read_text(encoding="utf-8")


@pytest.mark.long
def test_every_page_is_in_a_table_of_contents(made):
    listed = set()
    for page in [*WRITTEN, *made.rglob("*.md")]:
        base = page.parent if page.is_relative_to(made) else DOCS
        for tree in re.findall(
            r"```\{toctree\}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL
        ):
            for line in filter(None, (x.strip() for x in tree.splitlines())):
                if not line.startswith(":"):
                    name = line[line.find("<") + 1 :].rstrip(">") if "<" in line else line
                    place = (
                        made / name.removeprefix("generated/")
                        if name.startswith("generated/")
                        else base / name
                    )
                    listed.add(Path(f"{place}.md").resolve())
    every = {page.resolve() for page in [*WRITTEN, *made.rglob("*.md")]} - {
        (DOCS / "index.md").resolve()
    }
    assert every - listed == set()
    assert listed - every == set()


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.stem)
def test_every_cell_is_python(page):
    text = page.read_text(encoding="utf-8")
    cells = re.findall(r"```\{code-cell\} ipython3\n(.*?)```", text, re.DOTALL)
    assert bool(cells) == text.startswith("---\nfile_format: mystnb")
    for cell in cells:
        lines = (line for line in cell.splitlines() if not line.startswith((":tags:", "!")))
        ast.parse("\n".join(lines))


@pytest.mark.long
def test_a_mechanism_s_page_has_formulas_lemmas_predictions_and_measurements(made):
    page = (made / "mechanisms" / "race_sketch.md").read_text(encoding="utf-8")
    for part in (
        "$$\nL_1 = R + w",
        "**Lemma 1 (stability).**",
        "within 6.5 of 100 records",
        "## What was measured",
        "| what | value | base | commit |",
        "````text\nrace_sketch (sketches)",
    ):
        assert part in page
    assert str(DOCS.parent) not in page


@pytest.mark.long
def test_every_formula_has_mathml(made):
    formulas = pytest.importorskip("latex2mathml", reason="the extra `docs`") and __import__(
        "formulas"
    )
    found = [
        block
        for page in (made / "mechanisms").glob("*.md")
        for block in re.findall(r"^\$\$\n(.*?)\n\$\$$", page.read_text("utf-8"), re.MULTILINE)
    ]
    assert len(found) >= 25
    for tex in found:
        assert formulas.mathml(tex, "block").startswith("<math")
    with pytest.raises(ValueError, match="no MathML"):
        formulas.mathml(r"\nosuchthing x", "block")


def test_broken_links_and_fetches_are_found(tmp_path):
    good = '<a href="b.html#there">x</a><a href="https://example.org">y</a><img src="p.png">'
    (tmp_path / "a.html").write_text(good)
    (tmp_path / "b.html").write_text('<h2 id="there">z</h2><a href="#there">z</a>')
    (tmp_path / "p.png").write_bytes(b"")
    assert broken(tmp_path) == []
    bad = '<a href="c.html"></a><a href="b.html#no"></a><script src="https://cdn.example/x.js"></script>'
    (tmp_path / "a.html").write_text(bad)
    assert sorted(broken(tmp_path)) == [
        "a.html: fetches https://cdn.example/x.js",
        "a.html: no file c.html",
        "a.html: no place b.html#no",
    ]
    assert broken(tmp_path / "empty") != []


@pytest.mark.parametrize("name", some(["error", "privacy"], 2))
def test_pictures_of_the_interfaces_are_those_of_their_own_example(name, tmp_path):
    """The same words and numbers; ``opendp-sim plot specs/digit-density.yaml --kind KIND`` makes them."""
    pytest.importorskip("matplotlib")
    kept = DOCS / "pictures" / f"{name}.svg"
    assert f"(pictures/{name}.svg)" in (DOCS / "interfaces.md").read_text(encoding="utf-8")
    display_of(DOCS.parent / "specs" / "digit-density.yaml", name).save(tmp_path / "new.svg")
    words = [
        re.findall(r"<text[^>]*>([^<]*)</text>", p.read_text("utf-8"))
        for p in (kept, tmp_path / "new.svg")
    ]
    assert words[0] == words[1]
    assert words[0]


@pytest.mark.long
def test_every_notebook_is_run_and_one_that_fails_is_not_kept(tmp_path):
    """They run side by side before pages are read; what failed is left to the build, which it stops."""
    pytest.importorskip("myst_nb", reason="the extra `docs`")
    module = __import__("notebooks")
    found = module.notebooks(DOCS)
    marked = {
        page for page in WRITTEN if page.read_text("utf-8").startswith("---\nfile_format: mystnb")
    }
    assert set(found) == marked
    assert len(found) == len(marked) >= 8
    head = "---\nfile_format: mystnb\nkernelspec: {name: python3}\n---\n"
    for name, code in (("good", "print(6 * 7)"), ("bad", "1 / 0")):
        (tmp_path / f"{name}.md").write_text(f"{head}\n```{{code-cell}} ipython3\n{code}\n```\n")
    # A process of its own: kernels' event loops are those of threads, and last as long as they do.
    code = (
        "import sys; from pathlib import Path; from types import SimpleNamespace as Config\n"
        f"sys.path.insert(0, {str(DOCS)!r}); import notebooks; from jupyter_cache import get_cache\n"
        "config = Config(nb_execution_mode='cache', nb_execution_timeout=120)\n"
        "notebooks.run_all(Path(), Path('kept'), config)\n"
        "(kept,) = get_cache('kept').list_cache_records()\n"
        "print(Path(kept.uri).name, '42' in str(get_cache('kept').get_cache_bundle(kept.pk).nb))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout.splitlines()[-1:] == ["good.md True"], done.stderr
