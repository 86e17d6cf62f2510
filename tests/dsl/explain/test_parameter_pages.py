"""`explain` of a parameter: every one has a page, which names the mechanisms that have it."""

from __future__ import annotations

import pytest

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.mechanism import REGISTRY
from opendp_sim.dsl.explain.explain import explain
from opendp_sim.dsl.explain.glossary import parameter_pages, symbol_of
from tests._tiers import some

NAMES = sorted(parameter_pages(REGISTRY))


@pytest.mark.few(2)
@pytest.mark.parametrize("name", some(NAMES, 3))
def test_every_parameter_is_explained(name: str) -> None:
    page = explain(name)
    for key, about in parameter_pages(REGISTRY)[name].items():
        if name not in REGISTRY and symbol_of(name, REGISTRY) is None:
            assert key in page
            assert about.text.split(".")[0] in page


@pytest.mark.parametrize("word", ["gaussian", "p_stable_l2", "srp", "rbf", "weighted"])
def test_an_option_has_a_page(word):
    """`explain p_stable_l2` asked whether `top_stable` was meant."""
    page = explain(word)
    assert f"{word} (an option of a parameter)" in page
    assert "an option of `" in page


def test_a_ledger_s_page_shows_where_it_stands():
    page = explain("ledger")
    assert page.index("Example") < page.index("ledger: {file: records.ledger")
