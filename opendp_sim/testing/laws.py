"""Check laws of every mechanism's record, words and space."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opendp_sim.core.about import parameters_of
from opendp_sim.core.errors import InternalError, ParameterError, SimError
from opendp_sim.core.mechanism import Mechanism, lookup
from opendp_sim.core.space import Domain, Metric
from opendp_sim.testing.case import Case

__all__ = [
    "check_docstring_has_every_section",
    "check_every_bound_is_enforced",
    "check_foreign_space_is_refused",
    "check_key_is_the_file",
    "check_proof_names_lemma_and_symbols",
    "check_record_round_trips",
    "check_unknown_parameter_suggests",
    "proof_of",
]


@dataclass(frozen=True)
class _Nowhere(Domain):
    """A domain that no mechanism has a proof for."""

    def check(self, data: Any) -> None:
        """Nothing."""


@dataclass(frozen=True)
class _Nohow(Metric):
    """A metric that no mechanism has a proof for."""


def check_every_bound_is_enforced(case: Case) -> None:
    """Check that one step outside each bound is refused.

    By name, with the declared hint.
    """
    cls, good = type(case.mechanism), case.mechanism.spec()
    for name, about in parameters_of(cls).items():
        for bad in (*_outside(cls, name), object()):
            try:
                cls.from_spec(good | {name: bad})
            except ParameterError as error:
                assert f"{cls.key}.{name}" == error.where, error
                assert error.hint == about.hint, error
            else:
                raise AssertionError(f"{cls.key}.{name} accepted {bad!r}")


def check_unknown_parameter_suggests(case: Case) -> None:
    """A misspelt parameter is refused, and the nearest name is offered."""
    for name in parameters_of(type(case.mechanism)):
        try:
            type(case.mechanism).from_spec(case.mechanism.spec() | {name + "x": 1})
        except ParameterError as error:
            assert f"did you mean {name!r}" in error.hint, error
        else:
            raise AssertionError(f"accepted {name}x")


def check_record_round_trips(case: Case) -> None:
    """Check that the record survives JSON.

    It stays equal and hashable, and dumps to the same bytes.
    """
    cls, record = type(case.mechanism), case.mechanism
    text = json.dumps(record.spec(), sort_keys=True)
    again = cls.from_spec(json.loads(text))
    assert again == record, f"{cls.key}: the record is another after JSON: {again!r}"
    assert hash(again) == hash(record), f"{cls.key}: equal records have other hashes"
    assert json.dumps(again.spec(), sort_keys=True) == text, (
        f"{cls.key}: the spec is another text after JSON"
    )
    assert lookup(cls.key) is cls, f"{cls.key} is not the registered class of its key"


def check_foreign_space_is_refused(case: Case) -> None:
    """Check that a space without proof is refused.

    With a coded error that names the mechanism.
    """
    spaces: list[tuple[Domain, Metric]] = [(_Nowhere(), case.metric)]
    if case.mechanism.room != "queries":
        spaces.append((case.domain, _Nohow()))
    for domain, metric in spaces:
        try:
            case.mechanism.bind(domain, metric)
        except InternalError as error:
            raise AssertionError("refused by accident, not by a check") from error
        except SimError as error:
            assert case.mechanism.key in error.where, error
            assert error.code.startswith(("OS2", "OS7")), error
        else:
            raise AssertionError("bound to a foreign space")


def check_docstring_has_every_section(case: Case) -> None:
    """Check the docstring's sections.

    Space, Stability, Privacy, Raises, Source and Example, in this order.
    """
    text = type(case.mechanism).__doc__ or ""
    headings = ("Space", "Stability", "Privacy", "Raises", "Source", "Example")
    places = [text.find(f"\n    {heading}\n") for heading in headings]
    assert min(places) >= 0, dict(zip(headings, places, strict=True))
    assert places == sorted(places), "sections out of order"


def check_key_is_the_file(case: Case) -> None:
    """Check that the key is the file's stem.

    And, in camel case, the class's name.
    """
    cls = type(case.mechanism)
    assert _file(cls).stem == cls.key, f"{cls.key} stands in {_file(cls).name}"
    assert "".join(part.title() for part in cls.key.split("_")).lower() == cls.__name__.lower(), (
        f"class {cls.__name__} has the key {cls.key}"
    )


def check_proof_names_lemma_and_symbols(case: Case) -> None:
    """Check that the proof contains lemma and symbols.

    It stands beside the code, with every parameter's symbol.
    """
    cls = type(case.mechanism)
    proof = proof_of(cls)
    if cls.source.key == "own":
        assert f"**{cls.source.where}" in proof, f"{cls.source.where} is not in {cls.key}.md"
    missing = {
        name: symbol
        for name, about in parameters_of(cls).items()
        for symbol in about.symbol.split(",")
        if symbol != "-" and f"`{symbol}`" not in proof
    }
    assert not missing, f"symbols without a place in {cls.key}.md: {missing}"


def proof_of(cls: type[Mechanism]) -> str:
    """Return the text of the proof beside a mechanism's file."""
    proof = _file(cls).with_suffix(".md")
    assert proof.exists(), f"{proof.name} is missing"
    return proof.read_text("utf-8")


def _file(cls: type[Mechanism]) -> Path:
    return Path(sys.modules[cls.__module__].__file__ or "")


def _outside(cls: type[Mechanism], name: str) -> Iterator[float]:
    """Values one step outside each numeric limit of a parameter."""
    step = {"ge": -1, "gt": 0, "le": 1, "lt": 0}
    for limit in cls.model_fields[name].metadata:
        for sign, size in step.items():
            if hasattr(limit, sign):
                value = getattr(limit, sign)
                yield value * 2 if sign == "le" and abs(value) > 2**52 else value + size
