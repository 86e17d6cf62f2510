"""Evidence counts for the code that it was recorded of, and for no other."""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import sys
from copy import deepcopy
from importlib import resources
from pathlib import Path
from types import ModuleType

import pytest

import opendp_sim.prelude  # noqa: F401 - fills the registry
from benchmarks._audit_rows import evidence as shipped, recorded
from opendp_sim.accounting import code_hash as hashing, evidence
from opendp_sim.accounting.code_hash import closure, code_hash, package_hash, runs_as_written
from opendp_sim.accounting.evidence import fallen, record, tier
from opendp_sim.core.mechanism import REGISTRY
from opendp_sim.dsl.explain.explain import explain
from opendp_sim.dsl.run.certificate import evidence_of
from opendp_sim.measurements.selection.stable_top_k import StableTopK
from tests._plans import planned

SELECTION = "opendp_sim.measurements.selection"
PEEL = Path(sys.modules[f"{SELECTION}.peel"].__file__)


@pytest.fixture
def fresh(monkeypatch):
    """No hash is kept, before or after; and the record is of the code as it is."""

    def forget():
        for cached in (hashing.closure, hashing.code_hash):
            cached.cache_clear()

    forget()
    lines = deepcopy(dict(evidence._recorded()))
    for key, line in lines.items():
        line["code"] = code_hash(REGISTRY[key].__module__)
    monkeypatch.setattr(evidence, "_recorded", lambda: lines)
    yield lines
    forget()


def replaced(self, domain, metric):
    return None


def test_a_replaced_bind_leaves_the_proof(fresh, monkeypatch):
    assert tier("stable_top_k") == "proved and audited"
    monkeypatch.setattr(StableTopK, "bind", replaced)
    assert tier("stable_top_k") == "proved"
    monkeypatch.setattr(StableTopK, "bind", functools.wraps(StableTopK.bind)(replaced))
    assert tier("stable_top_k") == "proved"
    monkeypatch.setattr(StableTopK, "bind", None)
    assert tier("stable_top_k") == "proved"
    day = fresh["stable_top_k"]["laws"]["date"]
    assert fallen("stable_top_k") == day
    assert f"Evidence  proved (laws and audits of {day} ran on other code)" in explain(
        "stable_top_k"
    )
    assert (fallen("peel"), fallen("no_such_mechanism")) == (None, None)


@pytest.mark.parametrize("name", ["stable_places", "chosen_profile"])
def test_a_replaced_part_leaves_the_proof_of_all_that_use_it(fresh, monkeypatch, name):
    module = sys.modules[f"{SELECTION}._impl.stability"]
    monkeypatch.setattr(module, name, lambda *_: 0)
    assert tier("stable_top_k") == "proved"
    assert tier("gaussian") == "proved and audited"


def test_a_part_replaced_where_it_is_used_leaves_the_proof(fresh, monkeypatch):
    monkeypatch.setattr(sys.modules[StableTopK.__module__], "stable_places", lambda *_: 0)
    assert tier("stable_top_k") == "proved"


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ('"""', '"""Other words. ', True),
        ("\n\n", "\n\n# a remark\n\n", True),
        ("hint=", "hint='do ' 'it' if True else ", False),
        ("return ", "return not ", False),
        ("self", "other", False),
    ],
)
def test_the_hash_is_of_the_code_and_not_of_its_words(fresh, monkeypatch, tmp_path, old, new, same):
    before = code_hash(f"{SELECTION}.peel")
    text = PEEL.read_text("utf-8")
    edited = tmp_path / "peel.py"
    edited.write_text(text.replace(old, new, 1), "utf-8")
    file, read = hashing._file, hashing._read
    monkeypatch.setattr(hashing, "_file", lambda m: edited if m.endswith(".peel") else file(m))
    monkeypatch.setattr(
        hashing, "_read", lambda m: (read.__wrapped__ if m.endswith(".peel") else read)(m)
    )
    for cached in (hashing.closure, hashing.code_hash):
        cached.cache_clear()
    assert (code_hash(f"{SELECTION}.peel") == before) == same
    assert tier("peel") == ("proved and audited" if same else "proved")
    assert tier("limited_domain") == "proved and audited"


def words_of(text):
    words = []
    hashing._write(ast.parse(text), words, prose=False)
    return words


def test_words_of_refusals_are_not_code():
    refusal = "raise E('OS1', expected='a', got=x, hint=f'b{y}')"
    assert words_of(refusal) == words_of(refusal.replace("'a'", "'c'").replace("b{", "d {"))
    for old, new in (("got=x", "got=z"), ("{y}", "{z}"), (", hint=f'b{y}'", ""), ("OS1", "OS2")):
        assert words_of(refusal) != words_of(refusal.replace(old, new))
    described = "x: int = param('{}', symbol='k')"
    assert words_of(described.format("a")) == words_of(described.format("b"))
    assert words_of(described) != words_of(described.replace("'k'", "'m'"))
    assert words_of("def f():\n 'a'\n return 'b'") == words_of("def f():\n 'c'\n return 'b'")
    assert words_of("return_ = 'a'") != words_of("return_ = 'b'")


def test_the_form_is_the_same_in_all_versions_of_python():
    """A text with all that CPython 3.11 to 3.13 write differently; the number was the same under all three."""
    text = """
@d
async def f(a, /, b: int = 1, *c, k=2, **e) -> "x":
    "words"
    async with a as b: pass
    match a:
        case [1, *r] | {"k": v, **w} if v: return f"{a!r:>{b}}{'n'}" "t" f"{c}", b"\\xff", "\\u00e9"
        case C(x=1) as y: pass
    try: x = (yield)
    except* E as g: raise F(1.5, 2j, ..., None, hint="words", got=f"{x=}") from g
    return lambda: [i async for i in a if (n := i) @ 2] or {**a, 1: {2}, 3: a[1:2, ::3]}
class G(H, m=M): x: int = 1
"""
    found = hashlib.sha256("\n".join(words_of(text)).encode()).hexdigest()[:16]
    assert found == "f95a21eb61b75bcf"


def test_the_closure_is_the_room_and_no_more():
    modules = closure(StableTopK.__module__)
    assert f"{SELECTION}._impl.stability" in modules
    assert all(m.startswith("opendp_sim.measurements.") for m in modules)
    assert closure("opendp_sim.transformations.row_maps.select") == (
        "opendp_sim.transformations.row_maps.select",
    )


def test_a_module_without_source_is_of_no_code():
    assert code_hash("no_such_package.module") is None
    assert package_hash("opendp_sim.accounting") == package_hash("opendp_sim.accounting")


@pytest.mark.parametrize("key", sorted(REGISTRY))
def test_the_functions_of_every_mechanism_are_seen_in_its_files(key):
    assert all(runs_as_written(m) for m in closure(REGISTRY[key].__module__))


def test_a_method_that_was_taken_away_is_not_the_one_that_is_inherited():
    """Both are of one file, so its name alone does not tell them apart."""

    class Above:
        def step(self):
            return 1

    class Own(Above):
        def step(self):
            return 2

    loaded = ModuleType("loaded")
    loaded.Own = Own
    assert hashing._made_in(loaded, ("Own", "step")) == __file__
    del Own.step
    assert hashing._made_in(loaded, ("Own", "step")) is None


def test_the_record_has_a_line_a_mechanism_and_is_made_of_the_rows():
    file = resources.files("opendp_sim").joinpath("accounting", "evidence.jsonl")
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert lines == list(shipped(recorded()))
    assert [line["key"] for line in lines] == sorted(REGISTRY)


def test_laws_and_audits_of_different_code_are_of_none():
    rows = recorded()
    rows["laws"]["gaussian"]["code"] = "another"
    (line,) = [line for line in shipped(rows) if line["key"] == "gaussian"]
    assert line["code"] is None


def test_the_tier_falls_when_the_record_does(fresh):
    spoil = {
        "proved": [
            lambda line: line.update(audits=None),
            lambda line: line["audits"].update(verdict="refuted"),
            lambda line: line["laws"]["failed"].append("noise_is_declared"),
            lambda line: line["twins"].update(of=line["twins"]["of"] + 1),
            lambda line: line.update(code="another"),
            lambda line: line.update(code=None),
        ],
        "proved and audited": [lambda line: None],
    }
    sound = deepcopy(fresh["gaussian"])
    for expected, changes in spoil.items():
        for change in changes:
            fresh["gaussian"] = deepcopy(sound)
            change(fresh["gaussian"])
            assert tier("gaussian") == expected
    del fresh["gaussian"]
    assert (tier("gaussian"), record("gaussian")) == ("proved", None)
    assert tier("density") == "post-processing"
    fresh["density"]["code"] = "another"
    assert tier("density") == "proved"
    fresh["density"]["laws"]["held"].remove("post_processing_reads_the_release_alone")
    assert tier("density") == "asserted"
    assert tier("no_such_mechanism") == "asserted"


def test_a_certificate_states_the_tier_of_this_code(fresh, monkeypatch):
    plan = planned(Path(__file__).parents[2] / "specs" / "digit-density.yaml")
    before = evidence_of(plan, "densities")["race_sketch"]
    assert before["tier"] == "proved and audited"
    assert before["record"]["code"] == code_hash(REGISTRY["race_sketch"].__module__)
    monkeypatch.setattr(REGISTRY["race_sketch"], "bind", replaced)
    assert evidence_of(plan, "densities")["race_sketch"]["tier"] == "proved"
    assert plan.outputs["densities"].stage.evidence == "proved"
