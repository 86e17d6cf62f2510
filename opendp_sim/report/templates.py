"""Fill in the templates of pages, escaping every text."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from opendp_sim.core.system.escape_text import escape


def _code(text: Any) -> Markup:
    """Return an escaped text, with code between backticks."""
    parts = str(escape(str(text))).split("`")
    if len(parts) % 2 == 0:
        return Markup("{}").format("`".join(parts))
    plain, code = Markup("{}"), Markup("<code>{}</code>")
    return Markup("").join((code if at % 2 else plain).format(p) for at, p in enumerate(parts))


def page_engine(*more: Traversable) -> Environment:
    """Return the templates of pages, which escape every text.

    Args:
        more: folders of further templates, beside the report's.
    """
    folders = (files("opendp_sim.report"), *more)

    def load(name: str) -> str | None:
        found = (folder.joinpath(name) for folder in folders)
        return next((f.read_text(encoding="utf-8") for f in found if f.is_file()), None)

    engine = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=lambda v: escape(v) if isinstance(v, str) and not isinstance(v, Markup) else v,
        loader=FunctionLoader(load),
    )
    engine.filters["code"] = _code
    return engine
