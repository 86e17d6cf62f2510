"""Pages about parameters: which mechanisms have one of that name, and what it is there."""

from __future__ import annotations

from collections.abc import Mapping

from opendp_sim.core.about import About, describe
from opendp_sim.core.mechanism import Mechanism

__all__ = ["page_of_a_parameter", "parameters"]


def parameters(registry: Mapping[str, type[Mechanism]]) -> dict[str, dict[str, About]]:
    """Return every parameter's name, with what it is by mechanism."""
    found: dict[str, dict[str, About]] = {}
    for key, cls in sorted(registry.items()):
        for name, about in describe(cls).items():
            found.setdefault(name, {})[key] = about
    return found


def page_of_a_parameter(name: str, registry: Mapping[str, type[Mechanism]]) -> str | None:
    """Return the page of a parameter; mechanisms that say the same share a paragraph."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for key, about in parameters(registry).get(name, {}).items():
        default = "required" if about.default == "required" else f"default {about.default}"
        said = (f"{about.range}; {default}; in {about.unit}", f"{about.text} {about.hint}".rstrip())
        alike.setdefault(said, []).append(key)
    if not alike:
        return None
    lines = [f"{name} (a parameter)"]
    for (form, text), keys in alike.items():
        lines += ["", f"    of {', '.join(keys)}", f"        {form}.", f"        {text}"]
    return "\n".join(lines)
