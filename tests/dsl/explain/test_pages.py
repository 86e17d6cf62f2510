"""Pages of `explain`: every parameter, option and printed name has one, and none holds markup."""

from __future__ import annotations

import re
from pathlib import Path

import opendp.prelude as dp
import pytest

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.about import parameters_of
from opendp_sim.core.errors import SpecError
from opendp_sim.core.mechanism import REGISTRY
from opendp_sim.dsl.explain.explain import catalogue, explain, page_facts
from opendp_sim.dsl.explain.glossary import parameter_pages, printed_names, symbol_of, symbols
from opendp_sim.dsl.text.plain_text import formula_text
from tests._plans import planned
from tests._tiers import some
from tests.cases import cases

NAMES = sorted(parameter_pages())


@pytest.mark.few(2)
@pytest.mark.parametrize("name", some(NAMES, 3))
def test_every_parameter_is_explained(name: str) -> None:
    page = explain(name)
    for key, about in parameter_pages()[name].items():
        if name not in REGISTRY and symbol_of(name) is None:
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


SPECS = sorted((Path(__file__).parents[3] / "specs").glob("*.yaml"))


def _names(claim):
    yield from getattr(claim, "expected", {})
    yield from getattr(getattr(claim, "output", None), "columns", None) or ()


def _stated():
    dp.enable_features("contrib")
    for case in cases().values():
        yield from _names(case.mechanism.bind(case.domain, case.metric))
    for plan in map(planned, SPECS):
        for release in plan.releases.values():
            yield from () if release.bound is None else _names(release.bound.claim)
        for typed in plan.types.values():
            yield from (name for stage in typed.stages for name in _names(stage.claim))
        for output in plan.outputs.values():
            yield from (name for post in output.posts for name in _names(post))


def test_no_printed_name_is_without_its_page():
    names = {name for name in _stated() if isinstance(name, str)}
    assert {"least_records", "noise_error", "sampling, per record at most"} <= names
    assert names - set(printed_names()) == set()


@pytest.mark.parametrize("names", [printed_names, symbols])
def test_a_page_has_the_unit_and_one_sentence(names):
    for name, (unit, said) in list(names().items())[::4]:
        page = explain(name)
        assert f"{name} (a symbol or word of plans" in page or names is printed_names
        assert unit in page
        assert said in page
        assert said.endswith(".")
        assert ". " not in said or names is symbols


def test_every_symbol_of_a_parameter_has_a_page():
    symbols = {
        part
        for cls in REGISTRY.values()
        for about in parameters_of(cls).values()
        for part in about.symbol.split(",")
    }
    for symbol in symbols - {"-", ""}:
        assert "In proofs it stands for" in explain(symbol), symbol
    assert explain("δ") == explain("delta").partition("\n\ndelta (a word")[0]
    assert page_facts("d_in")["symbol"]["unit"] == "records or persons"


def test_a_name_is_found_as_people_write_it():
    assert explain("least records:a") == explain("least records")
    assert explain("noise error") == explain("noise_error")
    assert page_facts("upper")["name"]["unit"] == "the answer's own unit"
    assert explain("density").startswith("density (queries)")
    with pytest.raises(SpecError, match="did you mean `least_records`"):
        explain("lest_records")
