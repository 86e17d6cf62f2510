"""Make pages of symbols, printed names and parameters.

``glossary.json`` has units and sentences of the first two, and is read at the first page. Parameters of
mechanisms have their symbols in the catalogue, and a page lists whose they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import BaseModel

from opendp_sim.accounting.measures.attackers import WORDS
from opendp_sim.core.about import ParameterInfo, options_of, parameters_of
from opendp_sim.core.mechanism import REGISTRY
from opendp_sim.dsl.text.plain_text import plain_text

Page = tuple[str, str]
"""A unit, and one plain sentence."""
_LISTED = 12
"""Parameters that a page of a symbol names."""


@cache
def _glossary() -> dict[str, dict[str, Any]]:
    text = files("opendp_sim.dsl.explain").joinpath("glossary.json").read_text(encoding="utf-8")
    return json.loads(text)


@cache
def printed_names() -> dict[str, Page]:
    """Return the pages of names beside numbers in plans, reports, answers."""
    return {name: (unit, said) for name, (unit, said) in _glossary()["printed"].items()}


@cache
def symbols() -> dict[str, Page]:
    """Return the pages of symbols, attackers and words of the field."""
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


def symbol_of(word: str) -> str | None:
    """Return the symbol of a word or Greek letter, or None."""
    for said in (_spellings().get(word, word), word.lower()):
        if said in symbols() or any(_parameters(said)):
            return said
    return None


def page_of_a_symbol(symbol: str) -> str:
    """Return the page of a symbol, with its parameters."""
    lines = [f"{symbol} (a symbol or word of plans, reports and proofs)", ""]
    if symbol in symbols():
        unit, said = symbols()[symbol]
        lines += [f"    in {unit}", f"    {said}"]
    found = list(_parameters(symbol))
    if found:
        more = f", and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        lines += [f"    In proofs it stands for {', '.join(found[:_LISTED])}{more}."]
    return "\n".join(lines)


def _spellings() -> Mapping[str, str]:
    return _glossary()["spellings"]


def _parameters(symbol: str) -> Iterator[str]:
    known = {symbol, *(greek for greek, plain in _spellings().items() if plain == symbol)}
    for key, cls in sorted(REGISTRY.items()):
        for name, about in parameters_of(cls).items():
            if known & set(about.symbol.split(",")) and about.symbol != "-":
                yield f"`{name}` of `{key}`"


# --------------------------------------------------------------------------------------------------
# Parameters and their options, by name, in each mechanism that has one.


def parameter_pages() -> dict[str, dict[str, ParameterInfo]]:
    """Return every parameter's name, with what it is by mechanism."""
    found: dict[str, dict[str, ParameterInfo]] = {}
    for key, cls in sorted(REGISTRY.items()):
        for name, about in parameters_of(cls).items():
            found.setdefault(name, {})[key] = about
    for option, places in _options().items():
        for inside, record in places:
            for name, about in parameters_of(record).items():
                found.setdefault(name, {})[f"{option} ({inside})"] = about
    return found


def options() -> dict[str, list[str]]:
    """Return the options of parameters, such as `gaussian`, with their pages."""
    return {name: [_option(cls, at) for at, cls in of] for name, of in _options().items()}


def _options() -> dict[str, list[tuple[str, type[BaseModel]]]]:
    """Return options by name with owner and record."""
    found: dict[str, list[tuple[str, type[BaseModel]]]] = {}
    for key, cls in sorted(REGISTRY.items()):
        for name, info in cls.model_fields.items():
            for option, record in options_of(info).items():
                found.setdefault(option, []).append((f"`{name}` of {key}", record))
    return found


def _option(cls: type[BaseModel], inside: str) -> str:
    first = plain_text(" ".join((cls.__doc__ or "").partition("\n\n")[0].split()))
    lines = [f"    an option of {inside}{f': {first}' if first else ''}"]
    for name, about in parameters_of(cls).items():
        form, text = parameter_lines(about)
        lines += [f"        {name}: {form}", f"            {text}"]
    return "\n".join(lines)


def page_of_an_option(word: str) -> str | None:
    """Return the page of an option, its owners and parameters."""
    found = options().get(word)
    return None if found is None else "\n\n".join([f"{word} (an option of a parameter)", *found])


def page_of_a_parameter(name: str) -> str | None:
    """Return a parameter's page; mechanisms with equal texts share a paragraph."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for key, about in parameter_pages().get(name, {}).items():
        alike.setdefault(parameter_lines(about), []).append(key)
    if not alike:
        return None
    lines = [f"{name} (a parameter)"]
    for (form, text), keys in alike.items():
        lines += ["", f"    of {', '.join(keys)}", f"        {form}.", f"        {text}"]
    return "\n".join(lines)


def parameter_lines(about: ParameterInfo) -> tuple[str, str]:
    """Return a parameter's form, and its meaning with advice."""
    default = "required" if about.default == "required" else f"default {about.default}"
    return f"{about.range}; {default}; in {about.unit}", f"{about.text} {about.hint}".rstrip()
