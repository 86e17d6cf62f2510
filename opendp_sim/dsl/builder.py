"""Build programs in Python that equal their YAML in hash."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Signature, signature
from typing import Any, TypeVar

from opendp_sim.core.about import keyword_of
from opendp_sim.core.arithmetic.plain_numbers import python_value
from opendp_sim.core.mechanism import Mechanism, Option
from opendp_sim.dsl.grammar.bandwidths import CANONICAL, canonical_stage, written_program
from opendp_sim.dsl.grammar.program import (
    DataEntry,
    OutputDecl,
    Privacy,
    Program,
    Provenance,
    StageDecl,
)
from opendp_sim.dsl.grammar.reader import Draft, draft_of
from opendp_sim.dsl.grammar.section import Section
from opendp_sim.dsl.plan.plan import Plan, plan_of
from opendp_sim.dsl.plan.text import spec_order, yaml_text

M = TypeVar("M", bound=Callable[..., Any])


def program(name: str, folder: str = ".") -> Builder:
    """Start a program.

    Args:
        name: its name.
        folder: what paths of sources, outputs and the ledger are relative to.

    Example:
        >>> import opendp_sim.prelude as sim
        >>> from opendp_sim.dsl import program
        >>> from opendp_sim.transformations.row_maps.quantize import Quantize
        >>> p = (program("tiny")
        ...     .data("rows", source={"memory": "rows"}, columns={
        ...         "x": {"dtype": "array[f64, 2]", "bounds": [0, 1]}})
        ...     .privacy(unit={"add_remove": 1, "of": "row"}, measure="pure",
        ...              budget={"epsilon": 1.0})
        ...     .stage("sketch", "rows", steps=[
        ...         {"select": {"features": "x"}}, Quantize(bits=8),
        ...         {"race_sketch": {"repetitions": 4, "buckets": 16, "seed": 1,
        ...                          "family": {"p_stable_l2": {"width": 0.5}}}}])
        ...     .stage("noisy", "sketch", release={"noise": "laplace"})
        ...     .output("density", "noisy", post=[{"density": {}}], save="tiny.npz"))
        >>> round(p.plan().total[0], 12)
        1.0
    """
    return Builder(name, folder)


def _declared_by(section: type[Section]) -> Callable[[M], M]:
    """Give a method a section's words as keywords."""

    def declare(method: M) -> M:
        given = list(signature(method).parameters.values())[:-1]
        taken = {parameter.name for parameter in given}
        words = [w for w in section.words().values() if w.field not in taken]
        keywords = [keyword_of(w.spelled, w.info) for w in words]
        method.__dict__["__signature__"] = Signature([*given, *keywords])
        method.__doc__ = f"{method.__doc__}\n\n{section.__doc__}"
        return method

    return declare


class Builder:
    """A program in the making; every method returns the builder.

    The keywords of a method are the words of its section: ``help(Builder.data)`` lists them. Steps are
    names, ``{name: {parameters}}`` of the language's version 2, or records, whose Gaussian bandwidth is
    ``h sqrt(2)``, as in their ``spec()``, which is read as what it is. In JSON the version stands at a
    whole program alone (``spec:``); a record's own JSON becomes a record again by ``from_spec``.
    """

    def __init__(self, name: str, folder: str = ".") -> None:
        self._folder = folder
        self._spec: dict[str, Any] = {"spec": CANONICAL, "name": name}

    @_declared_by(DataEntry)
    def data(self, name: str, **words: Any) -> Builder:
        """Declare a dataset."""
        return self._put("data", name, words)

    @_declared_by(Privacy)
    def privacy(self, **words: Any) -> Builder:
        """State unit, measure and budget."""
        self._spec["privacy"] = _given_words(words)
        return self

    @_declared_by(Provenance)
    def about(self, **words: Any) -> Builder:
        """Say who answers for the data, and what the results are for."""
        self._spec["about"] = _given_words(words)
        return self

    @_declared_by(StageDecl)
    def stage(self, name: str, source: str, **words: Any) -> Builder:
        """Add a stage."""
        return self._put("flow", name, canonical_stage({"from": source} | words))

    @_declared_by(OutputDecl)
    def output(self, name: str, source: str, **words: Any) -> Builder:
        """Add an output."""
        return self._put("outputs", name, canonical_stage({"from": source} | words))

    def _put(self, section: str, name: str, words: dict[str, Any]) -> Builder:
        self._spec.setdefault(section, {})[name] = _given_words(words)
        return self

    # --- what it is ------------------------------------------------------------------------------

    def draft(self) -> Draft:
        """Read it, with every finding so far."""
        return draft_of(self._spec, folder=self._folder)

    def build(self) -> Program:
        """Return the typed form, or raise ``Refused``."""
        draft = self.draft()
        draft.notes.raise_if_any()
        return draft.program if draft.solve is None else plan_of(draft).program

    def to_yaml(self) -> str:
        """Return a spec of its written words, with equal hash."""
        return yaml_text(spec_order(written_program(self._spec)), inline=True)

    def plan(self) -> Plan:
        """Check and plan it, or raise ``Refused``."""
        return plan_of(self.draft())


def _given_words(words: Mapping[str, Any]) -> dict[str, Any]:
    return {word: _plain(value) for word, value in words.items() if value is not None}


def _plain(value: Any) -> Any:
    """Return the value's form in YAML."""
    if isinstance(value, Mechanism | Option):
        return {value.key: _plain(value.spec())}
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    value = python_value(value)
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
