"""A page for each mechanism: a sentence, YAML, Python, parameters, mathematics, figures, reference."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from opendp_sim.accounting.evidence import tier
from opendp_sim.api.recommend import recommend
from opendp_sim.core.about import parameters_of
from opendp_sim.core.mechanism import REGISTRY, Mechanism, page_beside
from opendp_sim.core.system.docstrings import doc_of
from opendp_sim.dsl.explain.explain import partners
from opendp_sim.dsl.plan.expected_error import how_wrong
from opendp_sim.dsl.plan.plan import Plan, plan_file
from opendp_sim.dsl.stubs import _type
from opendp_sim.dsl.text.plain_text import _BLOCK

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "opendp_sim"
_SECTION = re.compile(r"^([A-Z][a-z]+)\n(?:    .*\n|\n)*", re.MULTILINE)
_LEMMA = re.compile(r"^\*\*(?:Lemma|Theorem)[^\n]*\n(?:(?!\n|\*Proof).*\n)*", re.MULTILINE)
_ROWS = 12


def mechanism_page(key: str) -> str:
    """Return the page as MyST."""
    parts = [
        f"# {key}",
        summary(key),
        "\n\n".join(f"```{kind}\n{text}\n```" for kind, text in example(key).items()),
        *_parameters(key),
        *_formulas(key),
        *_lemmas(key),
        *_uses(key),
        *_measured(key),
        "## Reference",
        *_reference(key),
        "[All mechanisms](index.md)",
    ]
    return _math("\n\n".join(parts)) + "\n"


def summary(key: str) -> str:
    """Return one sentence on a mechanism, as MyST."""
    text = REGISTRY[key].in_short or doc_of(REGISTRY[key]).partition("\n\n")[0]
    return _math(" ".join(text.split()))


def _math(text: str) -> str:
    """Write the formulas of docstrings as MyST does; those of reStructuredText blocks stay."""
    parts = text.split("\n```{eval-rst}\n")
    return "\n```{eval-rst}\n".join([re.sub(r":math:`([^`]*)`", r"$\1$", parts[0]), *parts[1:]])


# --- the example: three lines of YAML, three of Python --------------------------------------------

_NOISE = {"from": "sketch", "release": {"noise": "gaussian", "scale": "solve", "spend": "100%"}}
_NOISES = {
    "gaussian": _NOISE,
    "laplace": _NOISE | {"release": _NOISE["release"] | {"noise": "laplace"}},  # type: ignore[operator]
    "rounded_gaussian": _NOISE,  # what `noise: gaussian` is under Gaussian differential privacy
}
_SOLVED = {"epsilon": 1.0, "rho": 0.1, "scale": 20.0, "delta": 1e-6}
"""What a spec leaves out because it is solved from the budget, and Python states."""


def example(key: str) -> dict[str, str]:
    """Return a stage of a spec with this mechanism, and the same step in Python."""
    cls = REGISTRY[key]
    asked = {"from": "noisy", "post": [{key: {}}]}
    name, stage, params = _in_specs().get(key, ("noisy", _NOISES.get(key, asked), {}))
    note = "  # under `measure: gdp`" if key == "rounded_gaussian" else ""
    yaml = "\n  ".join([f"{name}:", *(f"{word}: {_flow(stage[word])}" for word in stage)]) + note
    if cls.room == "queries":
        given = "".join(f", {n}={v!r}" for n, v in params.items())
        asked = f"answers = release.{key}(queries{given})  # None for a question without queries"
        head, last = 'release = sim.load("release.npz")', "print(answers.to_pandas())"
        python = f"{head}\n{asked}\n{last}"
        cls(**params)
    else:
        params = {n: v for n, v in _SOLVED.items() if n in _required(cls)} | params
        cls(**params)
        step = f"sim.then_{key}({', '.join(f'{n}={v!r}' for n, v in params.items())})"
        python = f"import opendp_sim.prelude as sim\n\nmade = space >> {step}"
    return {"yaml": yaml, "python": python}


def _required(cls: type[Mechanism]) -> set[str]:
    return {name for name, info in cls.model_fields.items() if info.is_required()}


@cache
def _in_specs() -> dict[str, tuple[str, dict[str, Any], dict[str, Any]]]:
    """Return for each mechanism the first stage of `specs/` that has it: name, stage, parameters."""
    found: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {}
    for path in sorted((ROOT / "specs").glob("*.yaml")):
        spec = YAML(typ="safe").load(path)
        values = {
            k: v["default"] if isinstance(v, dict) else v
            for k, v in (spec.get("params") or {}).items()
        }
        for name, stage in [*spec["flow"].items(), *spec["outputs"].items()]:
            for key, params, word, shown in _steps_of(stage):
                told = _filled({"from": stage["from"], word: shown}, values)
                found.setdefault(key, (name, told, _filled(params, values)))
    return found


def _steps_of(stage: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], str, Any]]:
    """Yield each mechanism of a stage, its parameters, and the word and value that show it alone."""
    for word in ("steps", "post"):
        for step in stage.get(word, ()):
            ((key, params),) = ({step: {}} if isinstance(step, str) else step).items()
            yield key, params or {}, word, [step]
    release = stage.get("release")
    if isinstance(release, dict) and "mechanism" in release:
        ((key, params),) = release["mechanism"].items()
        yield key, params or {}, "release", release


def _filled(value: Any, values: dict[str, Any]) -> Any:
    """Put the defaults of a spec's parameters where it names them."""
    if isinstance(value, dict):
        return {name: _filled(each, values) for name, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, values) for each in value]
    named = re.fullmatch(r"\$\{(\w+)\}", value) if isinstance(value, str) else None
    return values[named[1]] if named else value


def _flow(value: Any) -> str:
    """Return YAML in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_flow(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return (
        {True: "true", False: "false", None: "null"}[value]
        if isinstance(value, bool | None)
        else str(value)
    )


# --- parameters and reference ---------------------------------------------------------------------


def _parameters(key: str) -> Iterator[str]:
    rows = []
    for name, about in parameters_of(REGISTRY[key]).items():
        default = "required" if about.default == "required" else f"default {about.default}"
        rows.append(f"| `{name}` | {about.range}; {default} | {about.text} {about.hint} |")
    if rows:
        yield "## Parameters"
        yield "\n".join(["| name | values | meaning |", "|---|---|---|", *map(_cells, rows)])


def _cells(row: str) -> str:
    """Keep signs of MyST in a table's cells as they are."""
    parts = re.split(r"(`[^`]*`)", row)
    return "".join(p if i % 2 else re.sub(r"([*$<{_\[])", r"\\\1", p) for i, p in enumerate(parts))


def signature(cls: type[Mechanism], first: str = "", norm: bool = False) -> str:
    """Return the parameters of a record as a signature: types as in the stubs, and defaults."""
    told = [
        f"{name}: {_type(info.annotation)}" + ("" if info.is_required() else f" = {info.default!r}")
        for name, info in cls.model_fields.items()
    ]
    told.sort(key=lambda text: " = " in text)
    told += ['norm: Literal["l1", "l2", "linf"] = "l1"'] if norm else []
    return f"({', '.join([*filter(None, [first]), *(['*', *told] if told else [])])})"


def _reference(key: str) -> Iterator[str]:
    """Yield the constructors, or the method of a release, with their docstring."""
    cls = REGISTRY[key]
    text = doc_of(cls)
    if cls.room == "queries":
        head = [
            f".. py:method:: opendp_sim.Release.{key}{signature(cls, 'queries=None')} -> Answers"
        ]
    else:
        norm = cls.room == "sketches"
        head = [
            f".. py:function:: opendp_sim.then_{key}{signature(cls, norm=norm)}",
            f"                 opendp_sim.make_{key}{signature(cls, 'input_domain, input_metric', norm)}",
        ]
    fields = [f":param {n}: {a.text} {a.hint}" for n, a in parameters_of(cls).items()]
    body = "\n".join(f"   {line}".rstrip() for line in text.splitlines())
    yield "\n".join(
        ["```{eval-rst}", *head, "", body, "", *(f"   {_plain(line)}" for line in fields), "```"]
    )
    with_ = ", ".join(f"[`{name}`]({name}.md)" for name in partners(key))
    goes = f"Goes with {with_}. " if with_ else ""
    yield f"{goes}Evidence: {tier(key)} ([the proofs' tiers](../../glossary.md#evidence))."


def _plain(text: str) -> str:
    """Escape what reStructuredText would read as markup, outside of literals."""
    parts = re.split(r"(``[^`]*``|:\w+:`[^`]*`|`[^`]*`|^:param \w+:)", text)
    return "".join(p if i % 2 else re.sub(r"([*_|])", r"\\\1", p) for i, p in enumerate(parts))


# --- mathematics ----------------------------------------------------------------------------------


def _formulas(key: str) -> Iterator[str]:
    """Yield the formulas of stability and privacy, as they stand in the docstring."""
    text = (inspect.getdoc(REGISTRY[key]) or "") + "\n"
    found = []
    for section in _SECTION.finditer(text):
        for block in _BLOCK.finditer(section[0]):
            found += [f"**{section[1]}**", f"$$\n{' '.join(block[2].split())}\n$$"]
    if found:
        yield "## Mathematics"
        yield from found


def _lemmas(key: str) -> Iterator[str]:
    """Yield the statements of the lemmas; proofs stay on their page."""
    proof = page_beside(REGISTRY[key])
    if proof is None or not Path(str(proof)).is_relative_to(PACKAGE):
        return
    page = Path(str(proof))
    inside = page.relative_to(PACKAGE).as_posix()
    for lemma in list(_LEMMA.finditer(page.read_text("utf-8") + "\n"))[:4]:
        yield lemma[0].strip()
    yield f"The proof: [{inside}](../proofs/{inside})."


@cache
def _plans() -> dict[str, Plan]:
    return {path.stem: plan_file(path) for path in sorted((ROOT / "specs").glob("*.yaml"))}


def predictions() -> str:
    """Return a table of what the repository's programs expect of their answers."""
    rows = [
        f"| `{program}` | `{name}` | {error.replace('_', ' ')} | {value:.4g} |"
        for program, plan in _plans().items()
        for name, output in plan.outputs.items()
        for error, value in output.expected.items()
    ]
    return "\n".join(["| program | output | error | value |", "|---|---|---|---|", *rows]) + "\n"


_ASKED = (("density", (1, 2, 5)), ("distances", (1, 5)), ("means", (5,)), ("quantiles", (1,)))
"""Questions whose errors are known in advance, with numbers of columns."""


def recommended() -> str:
    """Return a table of the least predicted errors, by question and columns."""
    rows = []
    for (question, widths), pure in product(_ASKED, (False, True)):
        for columns in widths:
            words: dict[str, Any] = {"measure": "pure"} if pure else {}
            best = recommend(question, columns, size=20_000, **words).best
            rows.append(
                f"| {question} | {columns} | {'pure' if pure else '1e-6'} | {best.name} | {best.size} |"
            )
    head = "| question | columns | delta | first | 95% within, memory |"
    return "\n".join([head, "|---|---|---|---|---|", *rows]) + "\n"


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
            claim = ", ".join(f"{part:.4g}" for part in plan.claim or plan.total)
            rows += [
                f"| `{program}` | {claim} | `{of}` | {error.line} |"
                for of, error in told.items()
                if key in keys and (of == name or of.endswith(f" of {name}"))
            ]
    if rows:
        yield "## What programs with it predict"
        head = "| program of `specs/` | epsilon, delta | output | how wrong, before data is read |"
        yield "\n".join([head, "|---|---|---|---|", *rows[:_ROWS]])


@cache
def _figures() -> dict[str, dict[str, Any]]:
    folder = ROOT / "benchmarks" / "results"
    held = {
        f.relative_to(folder).with_suffix("").as_posix(): json.loads(f.read_text("utf-8"))
        for f in sorted(folder.glob("*/*.json"))
    }
    return {name: figure for name, figure in held.items() if "what" in figure}


def _value(figure: dict[str, Any]) -> str:
    """Return a figure's value; one that a script has just written holds tables: their first row."""
    value = figure["value"]
    return value if isinstance(value, str) else " ".join(value[0][1])


def figures() -> dict[str, str]:
    """Return each figure as a cell of a table: what, value, base, and the command that measures it."""
    return {
        name: f"{f['what']}: **{_value(f)}** ({f['base']}). `{f['command']}` at {f['commit']}"
        for name, f in _figures().items()
    }


def _measured(key: str) -> Iterator[str]:
    """Yield the table of the figures under `benchmarks/results` that are about it."""
    rows = [
        f"| {f['what']} | {_value(f)} | {f['base']} | `{f['command']}` at {f['commit']} |"
        for f in _figures().values()
        if key in f.get("about", ())
    ]
    if rows:
        yield "## What was measured"
        yield "\n".join(["| what | value | base | command |", "|---|---|---|---|", *rows])
