"""No phrase of the project's old private language is left in what users read."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import opendp_sim

PACKAGE = Path(opendp_sim.__file__).parent
ROOT = PACKAGE.parent
_LIST = YAML(typ="safe").load((ROOT / "docs" / "vocabulary.yaml").read_text("utf-8"))
OLD = re.compile("|".join(_LIST["phrases that users do not see"]), re.IGNORECASE)


def texts_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and text of every string of words that is no docstring or comment.

    Strings that follow each other, with values between them, are one text.
    """
    inner, documented = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [p if isinstance(p, ast.Constant) else None for p in node.values]
            inner |= {id(part) for part in node.values}
            yield node.lineno, "".join("X" if p is None else str(p.value) for p in parts)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            documented.add(id(node.value))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " " in node.value
            and id(node) not in inner | documented
        ):
            yield node.lineno, node.value


def old_phrases(texts: Iterator[tuple[int, str]]) -> list[str]:
    """Return every old phrase with its line."""
    return [f"{line}: {found.group()}" for line, text in texts for found in OLD.finditer(text)]


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "room",
    sorted(
        p.name for p in PACKAGE.iterdir() if p.suffix == ".py" or (p.is_dir() and p.name[0] != "_")
    ),
)
def test_messages_pages_and_helps_have_no_old_phrase(room: str) -> None:
    """Refusals, help, explain pages, reports and printed lines are strings of the code."""
    place = PACKAGE / room
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    found = {
        str(file.relative_to(ROOT)): phrases
        for file in files
        if (phrases := old_phrases(texts_of(ast.parse(file.read_text("utf-8")))))
    }
    assert found == {}


def test_help_and_glossary_have_no_old_phrase() -> None:
    """Help of commands and explain pages of mechanisms are docstrings; the glossary is a file."""
    from opendp_sim.cli import COMMANDS, loaded
    from opendp_sim.core.mechanism import REGISTRY
    from opendp_sim.dsl.explain.explain import explain

    texts = {name: loaded(name).help or "" for name in COMMANDS}
    texts |= {key: explain(key) for key in REGISTRY}
    texts["glossary"] = (PACKAGE / "dsl" / "explain" / "glossary.json").read_text("utf-8")
    assert json.loads(texts["glossary"])
    found = {name: old_phrases(iter([(0, text)])) for name, text in texts.items()}
    assert {name: phrases for name, phrases in found.items() if phrases} == {}


def test_a_share_of_runs_is_a_percentage() -> None:
    """Lemma pages and docstrings too: five of them counted 95 runs of 100, and one nineteen of twenty."""
    (share,) = (re.compile(one) for one in _LIST["phrases that users do not see"] if "100" in one)
    pages = [*PACKAGE.rglob("*.md"), *PACKAGE.rglob("*.py"), ROOT / "README.md"]
    pages += [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "tutorials").glob("*.md")]
    found = {str(page.relative_to(ROOT)): share.findall(page.read_text("utf-8")) for page in pages}
    assert {page: phrases for page, phrases in found.items() if phrases} == {}


@pytest.mark.parametrize(
    "text",
    [
        '"listed in 95 of 100 runs"',
        '"95 errors of 100"',
        '"the history that the ledger was told of"',
        'f"{few:,} records are not told from noise"',
        '"charge what the map says"',
        '"every purse is empty"',
    ],
)
def test_an_old_phrase_is_found(text: str) -> None:
    assert old_phrases(texts_of(ast.parse(f"x = {text}")))
    assert not old_phrases(texts_of(ast.parse('def f():\n    """What it says."""')))
