"""Explain parameters by name, in each mechanism that has one."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

from opendp_sim.core.about import ParameterInfo, options_of, parameters_of
from opendp_sim.core.mechanism import Mechanism
from opendp_sim.dsl.text.plain_text import plain_text


def parameter_pages(registry: Mapping[str, type[Mechanism]]) -> dict[str, dict[str, ParameterInfo]]:
    """Return every parameter's name, with what it is by mechanism."""
    found: dict[str, dict[str, ParameterInfo]] = {}
    for key, cls in sorted(registry.items()):
        for name, about in parameters_of(cls).items():
            found.setdefault(name, {})[key] = about
    for option, places in _options(registry).items():
        for inside, record in places:
            for name, about in parameters_of(record).items():
                found.setdefault(name, {})[f"{option} ({inside})"] = about
    return found


def options(registry: Mapping[str, type[Mechanism]]) -> dict[str, list[str]]:
    """Return the options of parameters, such as `gaussian`, with their pages."""
    return {name: [_option(cls, at) for at, cls in of] for name, of in _options(registry).items()}


def _options(
    registry: Mapping[str, type[Mechanism]],
) -> dict[str, list[tuple[str, type[BaseModel]]]]:
    """Return options by name with owner and record."""
    found: dict[str, list[tuple[str, type[BaseModel]]]] = {}
    for key, cls in sorted(registry.items()):
        for name, info in cls.model_fields.items():
            for option, record in options_of(info).items():
                found.setdefault(option, []).append((f"`{name}` of {key}", record))
    return found


def _option(cls: type[BaseModel], inside: str) -> str:
    first = plain_text(" ".join((cls.__doc__ or "").partition("\n\n")[0].split()))
    lines = [f"    an option of {inside}{f': {first}' if first else ''}"]
    for name, about in parameters_of(cls).items():
        default = "required" if about.default == "required" else f"default {about.default}"
        lines += [
            f"        {name}: {about.range}; {default}; in {about.unit}",
            f"            {about.text} {about.hint}".rstrip(),
        ]
    return "\n".join(lines)


def page_of_an_option(word: str, registry: Mapping[str, type[Mechanism]]) -> str | None:
    """Return the page of an option, its owners and parameters."""
    found = options(registry).get(word)
    return None if found is None else "\n\n".join([f"{word} (an option of a parameter)", *found])


def page_of_a_parameter(name: str, registry: Mapping[str, type[Mechanism]]) -> str | None:
    """Return a parameter's page; mechanisms with equal texts share a paragraph."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for key, about in parameter_pages(registry).get(name, {}).items():
        default = "required" if about.default == "required" else f"default {about.default}"
        said = (f"{about.range}; {default}; in {about.unit}", f"{about.text} {about.hint}".rstrip())
        alike.setdefault(said, []).append(key)
    if not alike:
        return None
    lines = [f"{name} (a parameter)"]
    for (form, text), keys in alike.items():
        lines += ["", f"    of {', '.join(keys)}", f"        {form}.", f"        {text}"]
    return "\n".join(lines)
