"""Render docstrings for a terminal, formulas in Unicode without markup."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from pylatexenc.latex2text import LatexNodes2Text, MacroTextSpec, get_default_latex_context_db

from opendp_sim.core.system.docstrings import doc_of

_BLOCK = re.compile(r"^( *)\.\. math::((?:.*\n)(?:\1 +\S.*\n|\n(?=\1 +\\))*)", re.MULTILINE)
_INLINE = re.compile(r":math:`([^`]*)`")
_LITERAL = re.compile(r"``([^`]*)``")
_SCRIPT = re.compile(r"([\^_])\{([^{}]*)\}")
_SPACED = re.compile(r"(\\(?!sqrt|hat|mathrm|text)[a-zA-Z]+) ")  # TeX would eat the space
_GAPS = ((" ,", ","), ("( ", "("), (" )", ")"), ("⌊ ", "⌊"), (" ⌋", "⌋"), ("⌈ ", "⌈"), (" ⌉", "⌉"))


@cache
def _converter() -> LatexNodes2Text:
    known = get_default_latex_context_db()
    ours = [
        MacroTextSpec("frac", simplify_repl=_fraction),
        MacroTextSpec("tfrac", simplify_repl=_fraction),
        MacroTextSpec("Pr", "Pr"),
        MacroTextSpec("{", "⦃"),
        MacroTextSpec("}", "⦄"),
        MacroTextSpec("|", "‖"),
        *(MacroTextSpec(size, "") for size in ("Big", "big", "Bigl", "Bigr", "bigl", "bigr")),
    ]
    known.add_context_category("ours", prepend=True, macros=ours)
    return LatexNodes2Text(
        math_mode="text", keep_braced_groups=True, strict_latex_spaces=True, latex_context=known
    )


def _fraction(node: Any, l2tobj: LatexNodes2Text) -> str:
    above, below = (
        re.sub(r"^\{(.*)\}$", r"\1", l2tobj.nodelist_to_text([part])).strip()
        for part in node.nodeargd.argnlist
    )
    return " / ".join(part if len(part) == 1 else f"({part})" for part in (above, below))


def formula_text(latex: str) -> str:
    r"""Return a formula as one line of text.

    >>> formula_text(r"\rho(d_{in}) = \frac{d_{in}^2}{2 s^2} e^{-|k| / s}")
    'ρ(d_in) = (d_in^2) / (2 s^2) e^(-|k| / s)'
    """
    latex = latex.replace(r"\tfrac12", "½ ")
    text = _converter().latex_to_text(_SPACED.sub(r"\1{} ", latex))
    while _SCRIPT.search(text):
        text = _SCRIPT.sub(_script, text)
    text = text.replace("{", "").replace("}", "").replace("⦃", "{").replace("⦄", "}")
    text = " ".join(text.split())
    for loose, tight in _GAPS:
        text = text.replace(loose, tight)
    return text


def _script(found: re.Match[str]) -> str:
    sign, inside = found[1], found[2]
    bare = inside.isalnum() if sign == "_" else inside.isdigit() or len(inside) == 1
    return sign + (inside if bare else f"({inside})")


def plain_text(text: str) -> str:
    """Return reStructuredText, as docstrings here use it, without markup."""
    text = _BLOCK.sub(lambda m: f"{m[1]}    {formula_text(m[2])}\n\n", text + "\n")
    text = _INLINE.sub(lambda m: formula_text(m[1]), text)
    text = _LITERAL.sub(r"\1", text)
    return re.sub(r"\n{3,}", "\n\n", text).rstrip("\n")


def first_sentence(cls: type[Any]) -> str:
    """Return the first sentence of a class's docstring."""
    paragraph = doc_of(cls).split("\n\n")[0]
    return " ".join(plain_text(paragraph).split())
