"""A page for each mechanism: its record, its lemma, what it predicts, what was measured of it."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from opendp_sim.core.mechanism import REGISTRY, page_beside
from opendp_sim.dsl.explain.explain import explain
from opendp_sim.dsl.plan.errors import how_wrong
from opendp_sim.dsl.plan.plan import Plan, plan_file
from opendp_sim.dsl.text.plain_text import _BLOCK

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "opendp_sim"
_SECTION = re.compile(r"^([A-Z][a-z]+)\n(?:    .*\n|\n)*", re.MULTILINE)
_LEMMA = re.compile(r"^\*\*(?:Lemma|Theorem)[^\n]*\n(?:(?!\n|\*Proof).*\n)*", re.MULTILINE)
_ROWS = 12


def mechanism_page(key: str) -> str:
    """Return the page as MyST."""
    parts = [f"# {key}", _first(key), *_formulas(key), *_lemmas(key), *_uses(key), *_measured(key)]
    return "\n\n".join([*parts, "## Reference", f"````text\n{_reference(key)}\n````"]) + "\n"


def _reference(key: str) -> str:
    """Return the page of `explain`; paths begin at the package, wherever it lies."""
    return explain(key).rstrip().replace(f"{PACKAGE.parent}/", "")


def _first(key: str) -> str:
    return REGISTRY[key].in_short or (inspect.getdoc(REGISTRY[key]) or "").partition("\n\n")[0]


def _formulas(key: str) -> Iterator[str]:
    """Yield the formulas of stability and privacy, as they stand in the docstring."""
    text = (inspect.getdoc(REGISTRY[key]) or "") + "\n"
    found = []
    for section in _SECTION.finditer(text):
        for block in _BLOCK.finditer(section[0]):
            found += [f"**{section[1]}**", f"$$\n{' '.join(block[2].split())}\n$$"]
    if found:
        yield "## What one record can do"
        yield from found


def _lemmas(key: str) -> Iterator[str]:
    """Yield the statements of the lemmas; proofs stay on their page."""
    proof = page_beside(REGISTRY[key])
    if proof is None or not Path(str(proof)).is_relative_to(PACKAGE):
        return
    page = Path(str(proof))
    inside = page.relative_to(PACKAGE).as_posix()
    yield "## Why"
    for lemma in list(_LEMMA.finditer(page.read_text("utf-8") + "\n"))[:4]:
        yield lemma[0].strip()
    yield f"The proof: [{inside}](../proofs/{inside})."


@cache
def _plans() -> dict[str, Plan]:
    return {path.stem: plan_file(path) for path in sorted((ROOT / "specs").glob("*.yaml"))}


def _uses(key: str) -> Iterator[str]:
    """Yield what the repository's own programs predict of the outputs that come through it."""
    rows = []
    for program, plan in _plans().items():
        told = how_wrong(plan)
        for name, output in plan.outputs.items():
            release = plan.releases[output.stage.name]
            keys = {stage.mechanism.key for stage in release.typed.stages}
            keys |= {post.key for post in output.decl.post}
            keys |= {release.record.key} if release.record is not None else set()
            if key in keys and name in told:
                claim = ", ".join(f"{part:.4g}" for part in plan.claim or plan.total)
                rows.append(f"| `{program}` | {claim} | `{name}` | {told[name].brief} |")
    if rows:
        yield "## What programs with it predict"
        head = "| program of `specs/` | epsilon, delta | output | how wrong, before data is read |"
        yield "\n".join([head, "|---|---|---|---|", *rows[:_ROWS]])


@cache
def _figures() -> list[dict[str, Any]]:
    files = sorted((ROOT / "benchmarks" / "results").glob("*/*.json"))
    return [json.loads(file.read_text("utf-8")) for file in files]


def _measured(key: str) -> Iterator[str]:
    """Yield the table of the figures under `benchmarks/results` that are about it."""
    mine = [figure for figure in _figures() if key in figure.get("about", ())]
    # a figure that a script has just written holds tables; its first row stands for them
    shown = [f if isinstance(f, str) else " ".join(f[0][1]) for f in (m["value"] for m in mine)]
    rows = [
        f"| {m['what']} | {value} | {m['base']} | {m['commit']} |"
        for m, value in zip(mine, shown, strict=True)
    ]
    if rows:
        yield "## What was measured"
        yield "\n".join(["| what | value | base | commit |", "|---|---|---|---|", *rows])
