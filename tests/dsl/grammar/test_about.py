"""The section for people: it is printed and certified, and no number depends on it."""

from __future__ import annotations

import json

import pytest

import opendp_sim as sim
from opendp_sim.dsl.grammar.about import FORM
from opendp_sim.dsl.verification.verify import verify
from opendp_sim.report.page import page_of
from tests._small import write_small

SAID = {
    "owner": "Registry, <b>room 4</b>",
    "purpose": "to see where delays are",
    "date": "2026-11-22",
}
LABELS = {"date": "Spec dated"}


def told(folder, **words):
    spec = write_small(folder)
    body = "".join(f"  {name}: {json.dumps(text)}\n" for name, text in words.items())
    spec.write_text(spec.read_text() + f"about:\n{body}")
    return spec


def test_a_page_prints_what_is_said_and_leaves_a_line_for_the_rest(tmp_path):
    page = page_of(told(tmp_path, **SAID))
    assert "Registry, &lt;b&gt;room 4&lt;/b&gt;" in page
    assert "to see where delays are" in page
    missing = '</dt><dd class="missing">not stated</dd>'
    for word in FORM:
        assert (f"<dt>{LABELS.get(word, word.capitalize())}{missing}" in page) == (word not in SAID)
    empty = page_of(write_small(tmp_path))
    assert all(f"<dt>{LABELS.get(word, word.capitalize())}{missing}" in empty for word in FORM)
    assert "<h1>Small</h1>" in empty
    assert "<h1>Where delays are</h1>" in page_of(told(tmp_path, title="Where delays are"))


def test_a_certificate_names_the_owner_and_no_other(tmp_path):
    done = sim.apply(told(tmp_path, **SAID))
    path = next(iter(done.certificates.values()))
    assert json.loads(path.read_text())["owner"] == SAID["owner"]
    _, left = verify(path)
    assert any("owner" in text for text in left)
    path.write_text(path.read_text().replace("Registry, <b>room 4</b>", "Somebody", 1))
    with pytest.raises(sim.SimError, match="OS701"):
        verify(path)


def test_the_builder_says_it_too():
    built = sim.program("tiny").about(owner="me")
    assert built._spec["about"] == {"owner": "me"}
