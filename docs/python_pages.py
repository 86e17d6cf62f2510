"""Reference pages of Python's names: one for each public class and function, made by autodoc.

A name is public when a package of the list lists it; its page needs no entry anywhere else. ``make_*``,
``then_*`` and the questions of a release stand on their mechanisms' pages.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from opendp_sim.accounting.release.release import Release
from opendp_sim.core.mechanism import REGISTRY

DOORS = {
    "opendp_sim": "Plan, run, ask, and keep account",
    "opendp_sim.sklearn": "Estimators in the manner of scikit-learn",
    "opendp_sim.plots": "Pictures",
    "opendp_sim.audit": "The auditor",
    "opendp_sim.testing": "The conformance kit for mechanisms of your own",
}


def names(door: str) -> dict[str, Any]:
    """Return the public names of a package that have a page, with their objects."""
    module = import_module(door)
    found = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    listed = getattr(module, "__all__", found)
    return {n: o for n, o in found.items() if n in listed and not isinstance(o, ModuleType)}


def python_pages(into: Path) -> None:
    """Write a page for each name, and an index for each package."""
    for door, title in DOORS.items():
        (into / door).mkdir(parents=True, exist_ok=True)
        rows = []
        for name, found in names(door).items():
            head = f"---\norphan: true\n---\n# {name}\n\n"
            text = f"{head}```{{eval-rst}}\n{_directive(door, name, found)}\n```\n"
            text += _questions() if found is Release else ""
            text += f"\n[{title}](../{door}.md)\n"
            (into / door / f"{name}.md").write_text(text, encoding="utf-8")
            rows.append(f"| [`{name}`]({door}/{name}.md) | {_first(found)} |")
        if door == "opendp_sim":
            made = sorted(key for key, cls in REGISTRY.items() if cls.room != "queries")
            rows += [
                f"| [`then_{k}`, `make_{k}`](../mechanisms/{k}.md) | {_first(REGISTRY[k])} |"
                for k in made
            ]
        table = "\n".join(["| name | does |", "|---|---|", *rows])
        text = f"# {title}\n\n`import {door}`\n\n{table}\n"
        (into / f"{door}.md").write_text(text, encoding="utf-8")


def _directive(door: str, name: str, found: Any) -> str:
    if inspect.isclass(found):
        return f".. autoclass:: {door}.{name}\n   :members:\n   :inherited-members:"
    if callable(found):
        return f".. autofunction:: {door}.{name}"
    return f".. py:data:: {door}.{name}"


def _questions() -> str:
    asked = sorted(key for key, cls in REGISTRY.items() if cls.room == "queries")
    rows = [f"| [`{key}`](../../mechanisms/{key}.md) | {_first(REGISTRY[key])} |" for key in asked]
    return "\n".join(["\n## Questions\n", "| method | answers |", "|---|---|", *rows]) + "\n"


def _first(found: Any) -> str:
    text = " ".join((inspect.getdoc(found) or "").partition("\n\n")[0].split())
    text = text.replace("``", "`").replace(":math:`", "`")
    return text.replace("|", "\\|") if inspect.isclass(found) or callable(found) else ""


def keep(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leave out members that another library defines (scikit-learn's, pydantic's, Python's own)."""
    del app, what, name, options
    known = member.fget if isinstance(member, property) else member
    known = getattr(known, "__func__", known)
    where = getattr(known, "__module__", None) or getattr(
        getattr(known, "__objclass__", None), "__module__", ""
    )
    return None if str(where).startswith("opendp_sim") and not skip else True
