"""Explain a mechanism, an error code or a stage from declarations."""

from __future__ import annotations

from dataclasses import asdict
from importlib.resources import files
from typing import Any

import opendp_sim.prelude  # noqa: F401 - fills the catalogue
from opendp_sim.accounting.evidence import fallen, record, tier
from opendp_sim.core.about import parameters_of
from opendp_sim.core.arithmetic.rounding import up_text
from opendp_sim.core.errors import CATALOGUE, SpecError
from opendp_sim.core.mechanism import REGISTRY, Mechanism, current_key, page_beside
from opendp_sim.core.system.docstrings import doc_of
from opendp_sim.core.system.escape_text import escape
from opendp_sim.domains.released import asking, offering
from opendp_sim.dsl.explain.glossary import (
    known_as,
    options,
    page_of_a_name,
    page_of_a_parameter,
    page_of_a_symbol,
    page_of_an_option,
    parameter_lines,
    parameter_pages,
    printed_names,
    symbol_of,
    symbols,
)
from opendp_sim.dsl.grammar.pages import word_page, words_of_a_spec
from opendp_sim.dsl.grammar.program import Spec
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.text.diagnostic import suggest
from opendp_sim.dsl.text.plain_text import first_sentence, plain_text
from opendp_sim.dsl.types.describe import stage_plain

_OF_AUDITS = {"audit": "guide.md", "known_limits": "known_limits.md"}
"""Pages of the auditor."""


def catalogue() -> list[dict[str, Any]]:
    """Return every mechanism with its key, room, partners and evidence."""
    order = ("rows", "sketches", "measurements", "queries")
    return [
        {
            "key": key,
            "room": cls.room,
            "what": first_sentence(cls),
            "with": partners(key),
            "evidence": tier(key),
        }
        for key, cls in sorted(REGISTRY.items(), key=lambda kv: (order.index(kv[1].room), kv[0]))
    ]


def partners(key: str) -> list[str]:
    """Return a sketch's queries, or a query's sketches."""
    cls = REGISTRY[key]
    return asking(cls.offers) or sorted({k for name in cls.asks_for for k in offering(name)})


def explain(word: str) -> str:
    """Return the page of a mechanism, error code, word or printed name."""
    if word.upper() in CATALOGUE:
        return _error(word.upper())
    if word in _OF_AUDITS:
        return files("opendp_sim").joinpath("audit", _OF_AUDITS[word]).read_text("utf-8")
    pages, printed = [], known_as(word)
    word = current_key(word)
    words = words_of_a_spec(Spec)
    if word in REGISTRY:
        pages = [_mechanism(REGISTRY[word])]
    elif word in words:
        pages = [word_page(word, words[word])]
    if printed is not None:
        pages.append(page_of_a_name(printed))
    symbol = symbol_of(word) if word not in REGISTRY else None
    if symbol is not None:
        pages.insert(0, page_of_a_symbol(symbol))
    held = page_of_a_parameter(word)
    if held is not None and symbol is None and word not in REGISTRY:
        pages.insert(0 if word in words else len(pages), held)
    option = page_of_an_option(word)
    if option is not None:
        pages.append(option)
    if pages:
        return "\n\n".join(pages)
    known = [*REGISTRY, *words, *printed_names(), *symbols()]
    raise SpecError(
        "OS303",
        "explain",
        expected="a mechanism or a parameter, an error code, a printed name or symbol, or one of "
        f"{', '.join(Spec.words())}",
        got=word,
        hint=suggest(word, [*known, *parameter_pages(), *options()])
        or suggest(word.upper(), CATALOGUE)
        or "`opendp-sim ops` lists the mechanisms.",
    )


def page_facts(word: str) -> dict[str, Any]:
    """Return a page's facts for programs, if it has some."""
    if word.upper() in CATALOGUE:
        code = word.upper()
        return {"error": {"code": code, "means": CATALOGUE[code], "exit": _EXITS[code[2]]}}
    key, printed = current_key(word), known_as(word)
    if key not in REGISTRY:
        if printed is None:
            return (
                {}
                if word not in symbols()
                else {"symbol": dict(zip(("unit", "says"), symbols()[word], strict=True))}
            )
        return {"name": dict(zip(("unit", "says"), printed_names()[printed], strict=True))}
    told = {name: asdict(about) for name, about in parameters_of(REGISTRY[key]).items()}
    (entry,) = (entry for entry in catalogue() if entry["key"] == key)
    return {"mechanism": entry | {"parameters": told}}


_FAMILIES = {
    "1": "a parameter of a mechanism",
    "2": "a space a mechanism was bound to",
    "3": "a spec, or a plan made from one",
    "4": "a budget or a ledger",
    "5": "an audit",
    "6": "data, a file or a query",
    "7": "a release or a certificate",
    "9": "a bug here",
}
_EXITS = {"1": 1, "2": 1, "3": 1, "4": 3, "5": "1, or 2 of `audit`", "6": 4, "7": 5, "9": 70}


def _error(code: str) -> str:
    family = code[2]
    return (
        f"{code}: {CATALOGUE[code]}\n\nAbout {_FAMILIES[family]}. Exit code {_EXITS[family]}"
        " (1 whenever it is found while a spec is checked).\n"
        "The message says the place, what was expected, what came, and what to do."
    )


def _mechanism(cls: type[Mechanism]) -> str:
    lines = [f"{cls.key} ({cls.room})", "", plain_text(doc_of(cls)), "", "Parameters"]
    for name, about in parameters_of(cls).items():
        symbol = f" ({about.symbol})" if about.symbol not in ("-", "") else ""
        form, text = parameter_lines(about)
        lines += [f"    {name}{symbol}: {form}", f"        {text}".rstrip()]
    if found := partners(cls.key):
        lines += ["", f"{'Answers  ' if cls.offers else 'Asks     '} {', '.join(found)}"]
    lines += ["", f"Proof     {page_beside(cls) or 'none beside the code'}"]
    day = fallen(cls.key)
    other = "" if day is None else f" (laws and audits of {day} ran on other code)"
    lines += [
        f"Source    {cls.source.key}, {cls.source.where}",
        f"Evidence  {tier(cls.key)}{other}",
    ]
    return "\n".join([*lines, *(f"          {line}" for line in _behind(cls.key))])


def _behind(key: str) -> list[str]:
    """Return the recorded laws, audits and broken twins."""
    found = record(key)
    if found is None:
        return ["nothing recorded"]
    held, failed = (found["laws"][name] or [] for name in ("held", "failed"))
    lines = [
        f"{len(held)} laws held"
        + (f", {len(failed)} failed" if failed else "")
        + (f" ({found['laws']['date']}): {', '.join(held)}" if held else "")
    ]
    audits, twins = found["audits"], found["twins"]
    if audits:
        lines.append(
            f"{audits['audits']} audits {audits['verdict']} ({audits['date']}): "
            f"{', '.join(audits['layers'])}"
        )
    if twins:
        lines.append(f"{twins['caught']} of {twins['of']} broken twins refuted")
    return lines


def explain_stage(plan: Plan, name: str) -> str:
    """Return the page of one stage, its types and its loss."""
    if name not in plan.types:
        raise SpecError(
            "OS303", "explain", expected=f"a stage: {', '.join(plan.types)}", got=name,
            hint=suggest(name, plan.types) or "name a stage of the flow.",
        )  # fmt: skip
    about = stage_plain(plan.types[name])
    lines = [f"stage {name}", f"    from      {about['from']} (source {about['source']})"]
    for step in about["steps"]:
        facts = ", ".join(f"{k} {v:.6g}" for k, v in step["expected"].items())
        lines.append(
            f"    {step['step']:<18} -> {step['type']}" + (f"  [{facts}]" if facts else "")
        )
    lines.append(f"    stability {about['stability']} under {about['metric']}")
    if about["faces"]:
        norms = about["faces"]
        lines.append(
            f"    sensitivity l1 {up_text(norms['l1'])}, l2 {up_text(norms['l2'])}, "
            f"linf {up_text(norms['linf'])}" + (", monotone" if norms["monotone"] else "")
        )
    lines.append(f"    numerics  {about['numerics']}; evidence {about['evidence']}")
    if name in plan.releases:
        lines += ["    release   " + _release_line(plan, name)]
    return "\n".join(map(escape, lines))


def _release_line(plan: Plan, name: str) -> str:
    release = plan.releases[name].plain()
    if release["mechanism"] == "none":
        return "none: the data is public"
    ((key, params),) = release["mechanism"].items()
    inside = ", ".join(f"{k}={v}" for k, v in params.items())
    return f"{key}({inside}), loss {', '.join(map(up_text, release['loss']))}"
