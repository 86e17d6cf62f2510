"""The same language in Python: a fluent program that ends in the same typed form and hash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opendp_sim.core.mechanism import Mechanism, Option
from opendp_sim.dsl.ir import VERSION, Program
from opendp_sim.dsl.plan import Plan, plan_of
from opendp_sim.dsl.reader import Draft, draft_of

__all__ = ["Builder", "program"]

Step = Mechanism | str | Mapping[str, Any]


def program(name: str, folder: str = ".") -> Builder:
    """Start a program.

    Args:
        name: its name.
        folder: what paths of sources, outputs and the ledger are relative to.

    Example:
        >>> import opendp_sim.prelude as sim
        >>> from opendp_sim.dsl import program
        >>> from opendp_sim.rows.quantize import Quantize
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


class Builder:
    """A program in the making; every method returns the builder."""

    def __init__(self, name: str, folder: str = ".") -> None:
        self._folder = folder
        self._spec: dict[str, Any] = {"spec": VERSION, "name": name}

    def _put(self, section: str, name: str, entry: dict[str, Any]) -> Builder:
        kept = {key: _plain(value) for key, value in entry.items() if value is not None}
        self._spec.setdefault(section, {})[name] = kept
        return self

    def data(
        self, name: str, *, source: Mapping[str, Any], columns: Mapping[str, Any],
        ingest: str | None = None, ledger: Mapping[str, Any] | None = None,
        public: bool | None = None,
    ) -> Builder:  # fmt: skip
        """Declare a dataset; the words are those of the spec's ``data`` entries."""
        entry = {"source": source, "columns": columns, "ingest": ingest, "ledger": ledger,
                 "public": public}  # fmt: skip
        return self._put("data", name, entry)

    def privacy(
        self, *, unit: Mapping[str, Any], measure: str, budget: Mapping[str, Any],
        numerics: str | None = None,
    ) -> Builder:  # fmt: skip
        """State unit, measure and budget."""
        entry = {"unit": unit, "measure": measure, "budget": budget, "numerics": numerics}
        self._spec["privacy"] = {k: _plain(v) for k, v in entry.items() if v is not None}
        return self

    def stage(
        self, name: str, source: str, *, steps: Sequence[Step] | None = None,
        release: Mapping[str, Any] | str | None = None, expect: Mapping[str, Any] | None = None,
    ) -> Builder:  # fmt: skip
        """Add a stage; steps are records, names, or ``{name: {parameters}}``."""
        entry = {"from": source, "steps": steps, "release": release, "expect": expect}
        return self._put("flow", name, entry)

    def output(
        self, name: str, source: str, *, post: Sequence[Step] | None = None,
        query: Mapping[str, Any] | None = None, save: str | None = None, serve: str | None = None,
        store: str | None = None, public_queries: Mapping[str, Any] | None = None,
    ) -> Builder:  # fmt: skip
        """Add an output."""
        entry = {"from": source, "post": post, "query": query, "save": save, "serve": serve,
                 "store": store, "public_queries": public_queries}  # fmt: skip
        return self._put("outputs", name, entry)

    # --- what it is ------------------------------------------------------------------------------

    def draft(self) -> Draft:
        """Read it, with every finding so far."""
        return draft_of(self._spec, folder=self._folder)

    def build(self) -> Program:
        """Return the typed form, or raise ``Refused``."""
        draft = self.draft()
        draft.notes.raise_if_any()
        return draft.program

    def plan(self) -> Plan:
        """Check and plan it, or raise ``Refused``."""
        return plan_of(self.draft())


def _plain(value: Any) -> Any:
    """Return what YAML would hold: records become ``{key: {parameters}}``, tuples become lists."""
    if isinstance(value, Mechanism | Option):
        return {value.key: _plain(value.spec())}
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value.item() if isinstance(value, np.generic) else value
