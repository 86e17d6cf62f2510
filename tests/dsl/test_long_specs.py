"""Specs of absurd lengths: what is printed has a bound, and what is done grows with the length only."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from opendp_sim.cli import app
from opendp_sim.core.system.escape_text import cut
from opendp_sim.dsl.files import paths as places
from opendp_sim.dsl.grammar.flow import StageDecl
from opendp_sim.dsl.grammar.parse import read_words
from opendp_sim.dsl.grammar.reader import draft_of
from opendp_sim.dsl.plan.plan import plan_file, plan_of
from opendp_sim.dsl.plan.solve import solve
from opendp_sim.dsl.text.diagnostic import Notes, Refused
from opendp_sim.dsl.types import outputs as output_types
from tests._small import write_small


def _checked(path, *words):
    return CliRunner().invoke(app, ["check", str(path), *words])


@pytest.mark.few(5)
@pytest.mark.parametrize("length", [10**5, 3 * 10**7])
@pytest.mark.parametrize("text", ["WORD", "spec: WORD", "spec: [WORD", "a: b: WORD"])
def test_what_is_printed_of_a_long_line_has_a_bound(tmp_path, length, text):
    file = tmp_path / "long.yaml"
    file.write_text(text.replace("WORD", "x" * length))
    for words in ([], ["--json"]):
        done = _checked(file, *words)
        assert done.exit_code == 1
        assert 20 < len(done.output) < 10_000
        assert "OS903" not in done.output


@pytest.mark.long
def test_a_thousand_outputs_take_steps_in_proportion(tmp_path, monkeypatch):
    """Counted, not timed: every place is looked at a few times, and a release is bound once."""
    outputs = "".join(f"  r{k}: {{from: noisy, save: out/r{k}.npz}}\n" for k in range(1000))
    spec = write_small(tmp_path, ("outputs:\n", "outputs:\n" + outputs))
    counts = dict.fromkeys(("_keys", "bind_release"), 0)
    for module, name in ((places, "_keys"), (output_types, "bind_release")):
        real = getattr(module, name)

        def counted(*given, _name=name, _real=real):
            counts[_name] += 1
            return _real(*given)

        monkeypatch.setattr(module, name, counted)
    assert len(plan_file(spec).outputs) == 1002
    assert counts["_keys"] < 10 * 1000
    assert counts["bind_release"] < 10


@pytest.mark.parametrize(
    "guess", [None, 2.0, 3.0, 5.0, math.nextafter(3.0, 0.0), math.nextafter(3.0, 4.0)]
)
def test_a_guess_changes_no_answer(guess):
    assert solve(lambda v: (9.0 / v**2,), (1.0,), "here", guess=guess) == 3.0


def test_cut_keeps_both_ends():
    assert cut("short", 20) == "short"
    assert cut("a" * 50 + "b" * 50, 25) == "a" * 10 + " ... " + "b" * 10
    assert len(cut("x" * 10**6, 600)) <= 600


def test_a_spec_that_is_wrong_everywhere_is_told_so_briefly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each finding looks for the nearest word: 20,000 took 6 seconds of CPU and said 4 MB."""
    spec = tmp_path / "wrong.yaml"
    spec.write_text("".join(f"k{i}: 1\n" for i in range(4000)), "utf-8")
    looked: list[str] = []

    def counted(word: str, *_: object, **__: object) -> list[str]:
        looked.append(word)
        return []

    monkeypatch.setattr("opendp_sim.dsl.text.diagnostic.get_close_matches", counted)
    with pytest.raises(Refused) as caught:
        plan_file(spec)
    assert 1000 <= len(looked) <= 2000
    assert len(caught.value.findings) == 1001
    assert "more than 1000 findings" in caught.value.findings[-1].title


@pytest.mark.parametrize("strange", [0, 1200])
def test_what_is_objected_to_twice_is_no_value(strange: int) -> None:
    """A tag on a list is refused by the document, and the list by the grammar: one finding, and no stage.

    The grammar counted findings, so that a place that had one already, or one finding too many, passed as a
    value: pydantic's own error came out.
    """
    text = Path("specs/digit-density.yaml").read_text("utf-8")
    body = YAML(typ="safe").load(text.replace("from: sketch", "from: [sketch]"))
    body = {"outputs": {f"k{i}": {"x": 1} for i in range(strange)} | body.pop("outputs"), **body}
    notes = Notes()
    notes.error("OS302", "a tag", ("flow", "noisy", "from"), label="here", help="leave it out.")
    found, whole = read_words(StageDecl, body["flow"]["noisy"], ("flow", "noisy"), notes)
    assert not whole
    assert "source" not in found
    with pytest.raises(Refused):
        plan_of(draft_of(body))


@pytest.mark.parametrize("order", [5, "east", [1, 2], [{"a": 1}, "east"], ["east", None], [{}, {}]])
def test_an_order_that_names_no_columns_is_refused(order: object) -> None:
    """Edited certificates held such a list: names and mappings were sorted together (OS903)."""
    body = YAML(typ="safe").load(Path("specs/cities-lattice.yaml").read_text("utf-8"))
    body["data"]["cities"]["order"] = order
    with pytest.raises(Refused) as caught:
        plan_of(draft_of(body))
    assert caught.value.findings[0].code == "OS304"
