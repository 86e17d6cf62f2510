"""Earlier programs keep their meaning and hash: `golden/first-form.txt` lists every parameter and its default.

A default never changes and no line goes, as programs, ledgers, stores and streams of earlier versions depend
on it. A parameter that is added to a mechanism of the list is marked ``LATER``; a new word of a section has no
default but None. ``GOLDEN=write`` adds lines; a line is changed or removed by hand, with a new language.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest

import opendp_sim as sim
import opendp_sim.dsl.grammar.program
import opendp_sim.prelude
from opendp_sim.core.errors import ParameterError
from opendp_sim.core.mechanism import LATER, REGISTRY, Mechanism, Option, param
from opendp_sim.dsl.grammar.section import Section

LIST = Path(__file__).parents[2] / "golden" / "first-form.txt"
SEEN = {"moments": False, "frequencies": 400, "kernel": {"gaussian": {"bandwidth": 0.1}}, "seed": 1}


def below(cls: type[Any]) -> Iterator[type[Any]]:
    for one in cls.__subclasses__():
        if one.__module__.startswith("opendp_sim."):
            yield one
            yield from below(one)


def lines() -> dict[str, str]:
    """Return each parameter and word with its default, as the list has them."""
    found: dict[str, str] = {}
    for cls in (*REGISTRY.values(), *below(Option)):
        if hasattr(cls, "key") and cls.__module__.startswith("opendp_sim."):
            for name, info in cls.model_fields.items():
                default = "required" if info.is_required() else repr(info.default)
                later = " later" if LATER in info.metadata else ""
                found[f"{cls.__name__} {cls.key}.{name}"] = default + later
    for cls in below(Section):
        for word in cls.words().values():
            default = "required" if word.info.is_required() else repr(word.info.default)
            found[f"{cls.__name__} {word.spelled}"] = default
    return found


def broken(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Return what makes an earlier program another one."""
    wrong = [f"{name}: {was} before" for name, was in before.items() if now.get(name) != was]
    owners = {name.rpartition("." if "." in name else " ")[0] for name in before}
    for name in now.keys() - before.keys():
        mechanism = "." in name
        if name.rpartition("." if mechanism else " ")[0] in owners:
            fine = now[name].endswith(" later") if mechanism else now[name] in ("None", "()")
            wrong += [] if fine else [f"{name}: new in an earlier form"]
    return sorted(wrong)


def test_no_earlier_program_means_something_else() -> None:
    written = LIST.read_text("utf-8").splitlines()
    before = dict(line.split(" = ", 1) for line in written)
    now = lines()
    assert broken(before, now) == []
    if os.environ.get("GOLDEN") == "write":
        LIST.write_text("".join(f"{name} = {now[name]}\n" for name in sorted(now)), "utf-8")
    assert now == before, "GOLDEN=write python -m pytest tests/dsl/grammar/test_first_form.py"


def test_what_would_change_an_earlier_program_is_seen() -> None:
    before = {"A a.x": "1", "A a.z": "None later", "S word": "None"}
    assert broken(before, before | {"A a.y": "2 later", "S more": "None", "B b.x": "3"}) == []
    for change in ({"A a.x": "2"}, {"A a.y": "2"}, {"A a.z": "0 later"}, {"S more": "1"}):
        assert len(broken(before, before | change)) == 1
    assert broken(before, {}) != []


def test_a_later_parameter_is_left_out_at_its_default_alone() -> None:
    class First(Mechanism):
        key = "first_form"
        x: Annotated[int, param("A number.", symbol="x", unit="none", hint="write x: 1.")]

        def bind(self, domain: Any, metric: Any) -> Any:
            """Nothing."""

    class Second(First):
        y: Annotated[
            tuple[int, ...],
            LATER,
            param("More.", symbol="y", unit="none", default=(), hint="write y: [1]."),
        ] = ()

    old, new = First(x=1), Second(x=1)
    assert new.spec() == old.spec() == {"x": 1}
    assert Second.from_spec(json.loads(json.dumps(old.spec()))) == new
    assert Second(x=1, y=(2,)).spec() == {"x": 1, "y": [2]}
    assert Second.from_spec({"x": 1, "y": [2]}) == Second(x=1, y=(2,))
    with pytest.raises(ParameterError, match="OS101"):
        First.from_spec(Second(x=1, y=(2,)).spec())


def test_a_sketch_with_a_later_parameter_has_the_hash_of_one_without() -> None:
    def text(**more: Any) -> str:
        return json.dumps(REGISTRY["fourier_sketch"].from_spec(SEEN | more).spec())

    assert "moments" not in text()
    assert '"moments": true' in text(moments=True)
    before = sim.density({"x": (0.0, 1.0)}, bandwidth=0.1).plan
    again = sim.plan(before.to_yaml())
    assert "moments" not in before.program.canonical
    assert again.program.hash == before.program.hash
