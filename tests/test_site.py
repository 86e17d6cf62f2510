"""The documentation's sources: pages are made from the code, none is forgotten, and every cell is Python."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML

from opendp_sim import prelude
from opendp_sim.cli import COMMANDS
from opendp_sim.core.errors import CATALOGUE
from opendp_sim.core.mechanism import REGISTRY
from opendp_sim.dsl.builder import program
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
        assert page.startswith(f"---\norphan: true\n---\n# {entry['key']}\n")
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
def test_every_page_is_in_the_tree_of_contents_or_linked_from_an_index(made):
    """Those of a tree stand on every page; the others say so at their head, and an index links to them."""
    listed, linked = set(), set()
    for page in [*WRITTEN, *made.rglob("*.md")]:
        base = page.parent if page.is_relative_to(made) else DOCS
        text = page.read_text(encoding="utf-8")
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL):
            for line in filter(None, (x.strip() for x in tree.splitlines())):
                if not line.startswith(":") and "gallery" not in line:
                    name = line[line.find("<") + 1 :].rstrip(">") if "<" in line else line
                    inside = name.removeprefix("generated/")
                    listed.add(
                        Path(
                            f"{(base if inside == name else made.parent / 'generated') / inside}.md"
                        ).resolve()
                    )
        if page.is_relative_to(made):
            linked |= {
                (page.parent / link).resolve() for link in re.findall(r"\]\(([^):]+\.md)\)", text)
            }
    every = {page.resolve() for page in [*WRITTEN, *made.rglob("*.md")]} - {
        (DOCS / "index.md").resolve()
    }
    alone = {page for page in every if page.read_text("utf-8").startswith("---\norphan: true\n")}
    assert every - listed - alone == set()
    assert listed - every == set()
    assert alone - linked - listed == set()
    assert len(alone) > 200


@pytest.mark.long
def test_every_public_name_has_a_signature_and_a_place(made):
    pages = __import__("python_pages")
    for door in pages.DOORS:
        assert {"audit": 10, "plots": 7, "sklearn": 20, "testing": 4}.get(
            door.partition(".")[2], 20
        ) <= len(pages.names(door))
        for name in pages.names(door):
            assert f":: {door}.{name}\n" in (made / "python" / door / f"{name}.md").read_text(
                "utf-8"
            )
    for key, cls in REGISTRY.items():
        page = (made / "mechanisms" / f"{key}.md").read_text("utf-8")
        query = cls.room == "queries"
        for head in [f"Release.{key}("] if query else [f"then_{key}(", f"make_{key}("]:
            assert f" opendp_sim.{head}" in page
        assert all(f"   :param {name}:" in page for name in cls.model_fields)


@pytest.mark.long
def test_a_mechanism_s_example_is_a_stage_of_a_spec_and_python_with_its_parameters(made):
    shown = __import__("mechanism_pages").example
    for key, cls in REGISTRY.items():
        example = shown(key)
        ((_, stage),) = YAML(typ="safe").load(example["yaml"]).items()
        assert "from" in stage
        assert len(stage) == 2
        called = ast.parse(example["python"])
        if cls.room != "queries":
            step = called.body[-1].value.right
            given = {each.arg: ast.literal_eval(each.value) for each in step.keywords}
            assert getattr(prelude, step.func.attr)(**given) is not None


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
        "95% of answers within ±14 rows (if there are 100 rows)",
        "## What was measured",
        "| what | value | base | command |",
        "```yaml\nsketch:\n  from: vectors\n",
        ".. py:function:: opendp_sim.then_race_sketch(*, repetitions: int, ",
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


HOW_TO = re.findall(
    r"## (.*?)\n.*?```(\w+)\n(.*?)```", (DOCS / "how_to.md").read_text("utf-8"), re.DOTALL
)


def test_how_to_has_short_tasks_of_which_each_is_python_yaml_or_a_command():
    assert len(HOW_TO) >= 20
    for title, kind, text in HOW_TO:
        assert title.endswith("?")
        assert len(text.splitlines()) <= 3
        if kind == "python":
            ast.parse(text)
        elif kind == "yaml":
            ((_, stage),) = YAML(typ="safe").load(text).items()
            assert {key for step in stage["steps"] for key in step} <= {*REGISTRY}
        else:
            assert kind == "sh"
            assert all(
                re.match(r"opendp-sim (\w+) ", line)[1] in COMMANDS for line in text.splitlines()
            )


@pytest.mark.long
def test_the_lines_of_how_to_run_one_after_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(DOCS.parent / "specs", "specs")
    pd, made = pytest.importorskip("pandas"), np.random.default_rng(0)
    people = {"age": made.uniform(0, 100, 300), "income": made.uniform(0, 2e5, 300)}
    whose = {"team": made.choice(["a", "b"], 300), "who": np.arange(300) // 2}
    bindings = (
        "import numpy as np, opendp.prelude as dp, opendp_sim.prelude as prelude, opendp_sim as sim\n"
        "from opendp.extras.numpy import array2_domain\nfrom opendp_sim.audit import audit\n"
        "from opendp_sim.sklearn import *\ndp.enable_features('contrib')\n"
    )
    known = {
        "people": pd.DataFrame(people | whose),
        "X": made.uniform(0, 16, (200, 4)),
        "y": made.integers(0, 10, 200),
    }
    exec(bindings, known)  # noqa: S102
    for _, kind, text in HOW_TO:
        if kind == "python":
            exec(text, known)  # noqa: S102
        elif kind == "sh":
            for line in text.splitlines():
                code = "import sys; from opendp_sim.cli import app; app(sys.argv[1:])"
                done = subprocess.run(
                    [sys.executable, "-c", code, *line.split()[1:]],
                    check=False,
                    capture_output=True,
                    timeout=120,
                )
                assert done.returncode == 0, done.stderr
    assert Path("report.html").exists()
    assert str(known["report"].verdict) == "not refuted"


def test_papers_name_mechanisms_and_figures_that_exist():
    """A figure is taken from its file when the page is made; Jinja refuses one that has none."""
    text = (DOCS / "papers.md").read_text("utf-8")
    figures = re.findall(r'\{\{ figures\["([^"]+)"\] \}\}', text)
    assert len(figures) >= 25
    for figure in figures:
        held = json.loads(
            (DOCS.parent / "benchmarks" / "results" / f"{figure}.json").read_text("utf-8")
        )
        assert held["command"]
    assert text.count("figures[") == len(figures)
    assert {*re.findall(r"generated/mechanisms/(\w+)\.md", text)} <= {*REGISTRY}


@pytest.mark.parametrize(
    "file", sorted((DOCS.parent / "examples" / "gallery").glob("*.py")), ids=lambda f: f.stem
)
def test_an_example_of_the_gallery_is_python_with_a_title(file):
    """The site's build runs them, and stops where one fails."""
    tree = ast.parse(file.read_text("utf-8"))
    title, line, *_ = ast.get_docstring(tree).splitlines()
    assert line == "=" * len(title)


def test_every_fragment_of_the_chooser_can_be_planned():
    text = (DOCS / "choose.md").read_text("utf-8")
    fragments = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert len(fragments) >= 4
    plain = {"dtype": "float64", "bounds": [0.0, 1.0]}
    for fragment in fragments:
        steps = YAML(typ="safe").load(fragment)
        columns = {"x": plain, "y": plain, "kind": {"dtype": "category", "keys": ["a", "b"]}}
        made = (
            program("chosen")
            .data("t", source={"memory": "t"}, columns=columns)
            .privacy(
                unit={"add_remove": 1, "of": "row"},
                measure="gdp",
                budget={"epsilon": 1.0, "delta": 1e-6},
            )
            .stage("noisy", "t", steps=steps, release={"noise": "gaussian", "spend": "100%"})
            .output("found", "noisy", save="found.npz")
        )
        assert made.plan().claim == (1.0, 1e-6)
    assert {*re.findall(r"`(\w+)`", text)} >= {
        e["key"] for e in catalogue() if e["room"] == "sketches"
    }


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
    assert len(found) == len(marked) >= 7
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
