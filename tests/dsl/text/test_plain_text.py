"""Explain pages read as text: no LaTeX and no markup is left in any of them."""

from __future__ import annotations

import re

import pytest

from opendp_sim.core.mechanism import REGISTRY
from opendp_sim.dsl.explain.explain import catalogue, explain
from opendp_sim.dsl.text.plain_text import formula_text

MARKUP = re.compile(r":math:|\.\. math|``|\\[a-zA-Z]{2,}")


def prose(page: str) -> str:
    return page.partition("Example")[0] + page.partition("\nParameters")[2]


@pytest.mark.few(3)
@pytest.mark.parametrize("key", sorted(REGISTRY))
def test_no_markup_is_left_in_a_page(key):
    assert not MARKUP.search(prose(explain(key)))


def test_no_markup_is_left_in_the_catalogue():
    assert not any(MARKUP.search(entry["what"]) for entry in catalogue())


@pytest.mark.parametrize(
    ("latex", "text"),
    [
        (r"\frac{\ln K}{\alpha - 1}", "(ln K) / (α - 1)"),
        (r"\tfrac12 (V^2 + N)", "½ (V^2 + N)"),
        (r"j \in \{0..r-1\}^d", "j ∈ {0..r-1}^d"),
        (r"(w_{jl} - 1)^{2k}", "(w_jl - 1)^(2k)"),
        (r"\lfloor \|x\|^2 / 2^t \rfloor", "⌊‖x‖^2 / 2^t⌋"),
        (r"\Pr[N \ge T - d_{in}]", "Pr[N ≥ T - d_in]"),
        (r"\sqrt{\pi/2}\, \zeta / k", "√(π/2) ζ / k"),
    ],
)
def test_formulas_keep_their_grouping(latex, text):
    assert formula_text(latex) == text
