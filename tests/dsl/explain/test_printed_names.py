"""Every name that is printed beside a number has a page: ``opendp_sim.dsl.explain.glossary``."""

from __future__ import annotations

from pathlib import Path

import opendp.prelude as dp
import pytest

from opendp_sim.core.about import parameters_of
from opendp_sim.core.errors import SpecError
from opendp_sim.core.mechanism import REGISTRY
from opendp_sim.dsl.explain.explain import explain, page_facts
from opendp_sim.dsl.explain.glossary import printed_names, symbols
from tests._plans import planned
from tests.cases import cases

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
