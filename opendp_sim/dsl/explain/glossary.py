"""Serve the glossary of symbols and of names printed beside numbers.

``glossary.json`` has their units and sentences, and is read at the first page. Parameters of
mechanisms have their symbols in the catalogue, and a page lists whose they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from opendp_sim.accounting.measures.attackers import WORDS
from opendp_sim.core.about import parameters_of
from opendp_sim.core.mechanism import Mechanism

Page = tuple[str, str]
"""A unit, and one plain sentence."""
_LISTED = 12
"""Parameters that a page of a symbol names."""


@cache
def _glossary() -> dict[str, dict[str, Any]]:
    text = files("opendp_sim.dsl.explain").joinpath("glossary.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = json.loads(text)
    return found


@cache
def printed_names() -> dict[str, Page]:
    """Return the pages of all printed names.

    Names beside a number in a plan, a report or an answer.
    """
    return {name: (unit, said) for name, (unit, said) in _glossary()["printed"].items()}


@cache
def symbols() -> dict[str, Page]:
    """Return the pages of all symbols and words of the field.

    The words for attackers are those of the table.
    """
    found = {name: (unit, said) for name, (unit, said) in _glossary()["symbols"].items()}
    limits = ", ".join(f"{word} up to {most}" for most, word in WORDS)
    said = f"A verdict on a claim: a spy at 50:50 guesses right up to so often in 100 ({limits})."
    return found | {word: ("right guesses in 100", said) for _, word in WORDS}


def known_as(word: str) -> str | None:
    """Return the printed name of a word, also of ``density:a``, or None."""
    plain = {name.replace("_", " "): name for name in printed_names()}
    for said in (word, word.partition(":")[0].strip()):
        if said in printed_names():
            return said
        if said.replace("_", " ") in plain:
            return plain[said.replace("_", " ")]
    return None


def page_of_a_name(name: str) -> str:
    """Return the page of a printed name."""
    unit, said = printed_names()[name]
    return f"{name} (printed beside a number)\n\n    in {unit}\n    {said}"


def symbol_of(word: str, registry: Mapping[str, type[Mechanism]]) -> str | None:
    """Return the symbol of a word or Greek letter, or None."""
    for said in (_spellings().get(word, word), word.lower()):
        if said in symbols() or any(_parameters(said, registry)):
            return said
    return None


def page_of_a_symbol(symbol: str, registry: Mapping[str, type[Mechanism]]) -> str:
    """Return the page of a symbol, with its parameters."""
    lines = [f"{symbol} (a symbol or word of plans, reports and proofs)", ""]
    if symbol in symbols():
        unit, said = symbols()[symbol]
        lines += [f"    in {unit}", f"    {said}"]
    found = list(_parameters(symbol, registry))
    if found:
        more = f", and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        lines += [f"    In proofs it stands for {', '.join(found[:_LISTED])}{more}."]
    return "\n".join(lines)


def _spellings() -> Mapping[str, str]:
    return _glossary()["spellings"]


def _parameters(symbol: str, registry: Mapping[str, type[Mechanism]]) -> Iterator[str]:
    """Yield the parameters with this symbol."""
    known = {symbol, *(greek for greek, plain in _spellings().items() if plain == symbol)}
    for key, cls in sorted(registry.items()):
        for name, about in parameters_of(cls).items():
            if known & set(about.symbol.split(",")) and about.symbol != "-":
                yield f"`{name}` of `{key}`"
