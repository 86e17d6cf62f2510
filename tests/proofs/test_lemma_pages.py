"""Every line "Checked:" of a lemma's page names theorems that exist, and proofs/README.md has the same rows."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROOFS = ROOT / "proofs"
PAGES = sorted((ROOT / "opendp_sim").rglob("*.md"))
_CHECKED = re.compile(r"^Checked: `proofs/(\w+)\.v`, theorems? (\w+(?:, \w+)*)(?: \((.*)\))?\.$")
_LEMMA = re.compile(r"^\*\*(Lemma \w+|Theorem|Corollary \d*)\b")
_STATED = re.compile(r"^(?:Theorem|Corollary|Example)\s+(\w+)", re.MULTILINE)
_MANY = ("transformations/row_maps/*.md", {"map_stable", "map_attained"})

Row = tuple[str, str, str, frozenset[str], str]


def stated(file: str) -> set[str]:
    """Return the theorems of a file of proofs, without its comments."""
    text = (PROOFS / f"{file}.v").read_text("utf-8")
    return set(_STATED.findall(re.sub(r"\(\*.*?\*\)", "", text, flags=re.DOTALL)))


def rows_of_page(name: str, text: str) -> list[Row]:
    """Return page, lemma, file, theorems and part of every line "Checked:"."""
    rows, lemma = [], ""
    for line in text.splitlines():
        if found := _LEMMA.match(line):
            lemma = found[1]
        if line.lstrip().startswith("Checked:"):
            read = _CHECKED.match(line)
            assert read, f"{name}: {line}"
            assert lemma, f"{name}: no lemma above {line}"
            rows.append((name, lemma, read[1], frozenset(read[2].split(", ")), read[3] or ""))
    return rows


def rows_of_pages() -> list[Row]:
    return [
        row
        for page in PAGES
        for row in rows_of_page(str(page.relative_to(ROOT / "opendp_sim")), page.read_text("utf-8"))
    ]


def rows_of_readme() -> list[Row]:
    """Return the rows of the README's first table: page, lemma, file, theorems, part."""
    row = r"^\| `([\w/]+\.md)`, (Lemma \w+) \| ([\w, ]+) \| `(\w+)\.v` \| (.*?) ?\|$"
    text = (PROOFS / "README.md").read_text("utf-8")
    return [
        (page, lemma, file, frozenset(names.split(", ")), part)
        for page, lemma, names, file, part in re.findall(row, text, re.MULTILINE)
    ]


def test_every_theorem_that_a_page_names_exists() -> None:
    rows = rows_of_pages()
    assert len(rows) >= 50
    missing = [
        (page, file, sorted(names - stated(file)))
        for page, _, file, names, _ in rows
        if names - stated(file)
    ]
    assert missing == []


def test_the_readme_has_the_rows_of_the_pages() -> None:
    """The seven row maps with the same two theorems share one row."""
    pages = {
        row
        for row in rows_of_pages()
        if not (row[0].startswith("transformations/row_maps/") and set(row[3]) == _MANY[1])
    }
    assert pages == set(rows_of_readme())
    assert sum(set(row[3]) == _MANY[1] for row in rows_of_pages()) == 7


def test_every_theorem_of_the_readme_exists() -> None:
    found = 0
    for line in (PROOFS / "README.md").read_text("utf-8").splitlines():
        if read := re.match(r"\| .+ \| ([\w, ]+) \| `(\w+)\.v` \|", line):
            names = set(read[1].split(", "))
            assert names <= stated(read[2]), (read[2], names - stated(read[2]))
            found += 1
    assert found >= 50


@pytest.mark.parametrize(
    "line",
    [
        "Checked: proofs/top_k.v, theorem kth_moves.",
        "Checked: `proofs/top_k.v` kth_moves.",
        "Checked: `proofs/top_k.v`, theorem kth_moves",
    ],
)
def test_a_line_of_another_form_is_found(line: str) -> None:
    with pytest.raises(AssertionError, match="Checked"):
        rows_of_page("page", f"**Lemma 1.** A sentence.\n{line}\n")


def test_the_readme_is_short_but_for_its_tables() -> None:
    lines = (PROOFS / "README.md").read_text("utf-8").splitlines()
    assert len([line for line in lines if not line.startswith("|")]) <= 60


def test_the_readme_counts_the_theorems() -> None:
    files = sorted(PROOFS.glob("*.v"))
    count = sum(len(stated(file.stem)) for file in files)
    assert f"{count} theorems in {len(files)} files" in (PROOFS / "README.md").read_text("utf-8")


def test_what_is_not_proved_is_refused() -> None:
    check = runpy.run_path(str(PROOFS / "check.py"))
    for text in ("Proof. Admitted.", "Axiom a : False.", "Parameter n : nat.", "admit."):
        assert check["REFUSED"].search(text)
    assert not check["REFUSED"].search("Proof. lia. Qed. (* admits *)")
    said = "Closed under the global context\nAxioms:\nmine : False\nA.b\n  : forall x,\n  y\n"
    assert check["axioms"](said) == {"mine", "A.b"}
