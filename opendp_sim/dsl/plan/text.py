"""Show a plan in some ten lines.

Promise, expected errors, cost; and its errors at other budgets.
"""

from __future__ import annotations

import html
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from opendp_sim.accounting.budget_warnings import large_delta, little_protection
from opendp_sim.accounting.claim_text import claim_sentence
from opendp_sim.core.arithmetic.rounding import up_text
from opendp_sim.dsl.plan.errors import asked_later, how_wrong
from opendp_sim.dsl.plan.records import Planned
from opendp_sim.dsl.types.describe import bytes_a_record, labels, memory_a_core, memory_of


@dataclass(frozen=True)
class ErrorCurve:
    """Hold a program's errors at several budgets.

    Before anything is spent.

    Attributes:
        epsilon: the budgets.
        errors: name of an output and of its error to one value for each budget, in that order.
    """

    epsilon: tuple[float, ...]
    errors: dict[str, tuple[float, ...]]

    def table(self) -> dict[str, list[float]]:
        """Return columns of one length."""
        return {"epsilon": list(self.epsilon)} | {k: list(v) for k, v in self.errors.items()}

    def __repr__(self) -> str:
        """Return the table as text."""
        rows = [f"{'epsilon':>10}  " + "  ".join(self.errors)]
        for place, epsilon in enumerate(self.epsilon):
            values = (f"{v[place]:>{len(k)}.4g}" for k, v in self.errors.items())
            rows.append(f"{epsilon:>10g}  " + "  ".join(values))
        return "\n".join(rows)


def lines_of(plan: Planned) -> list[tuple[str, str]]:
    """Return (topic, line) of a plan.

    Promise, data, steps, noise, errors, cost.
    """
    return [(word, text) for word, text in _lines(plan) if text]


def _lines(plan: Planned) -> Iterator[tuple[str, str]]:
    yield "plan", f"{plan.program.name}: no data was opened and nothing was spent"
    yield "promise", claim_sentence(plan.promised)
    budget = None if plan.privacy is None else plan.privacy.budget
    yield "warning", little_protection(budget) or ""
    yield "warning", large_delta(None if budget is None else budget.down("delta")) or ""
    for entry in plan.program.data:
        yield "data", f"{entry.name}, {_gate(entry)}"
    for name, release in plan.releases.items():
        keys = [stage.mechanism.key for stage in release.typed.stages]
        record = release.record
        noise = "exact, of public data" if record is None else record.key
        yield "release", f"{name}: {' -> '.join([release.typed.entry.name, *keys])} -> {noise}"
        if release.maps:
            yield "distance", " -> ".join(up_text(found) for _, found in release.maps)
    for name, output in plan.outputs.items():
        where = output.decl.save or output.decl.serve or ""
        yield "output", f"{name}" + (f" -> {where}" if where else "")
    told = how_wrong(plan) or asked_later(plan)
    for name, error in told.items():
        yield "error", f"{name}: {error.whole}"
    yield "memory", f"about {memory_of(plan.types.values()) / 2**20:.0f} MiB{each_record(plan)}"


def each_record(plan: Planned) -> str:
    """State the memory of all rows together.

    Where a mechanism needs them; and further cores.
    """
    held = sum(
        bytes_a_record(typed)
        for typed in plan.types.values()
        if typed.release is not None and not typed.is_sketch
    )
    more = memory_a_core(plan.types.values())
    told = f", and {held:,} bytes a record" if held else ""
    return told + (f", and {more / 2**20:,.0f} for each core beyond two" if more >= 2**20 else "")


def _gate(entry: Any) -> str:
    if entry.public:
        return "public"
    ledger = "no ledger counts other runs" if entry.ledger is None else "its ledger is charged"
    done = {
        "enforce": "mended or dropped",
        "refuse": "a reason to refuse the run",
        "assume": "not looked for",
    }
    keyed = [f"{c.name} not one of {labels(c)}" for c in entry.records.columns if c.keys]
    which = f" ({', '.join(keyed)})" if keyed and entry.ingest != "assume" else ""
    return f"{ledger}; a record outside its declaration{which} is {done.get(entry.ingest, entry.ingest)}"


def as_html(plan: Planned) -> str:
    """Return the lines as a notebook table, with escaped texts."""
    rows = "".join(
        f"<tr><th>{html.escape(word)}</th><td>{html.escape(text)}</td></tr>"
        for word, text in lines_of(plan)
    )
    return f"<table>{rows}</table>"


def as_yaml(plan: Planned) -> str:
    """Return the program as a spec.

    Every default is written out; it has the same hash.
    """
    return yaml_text(plan.program.plain())


def yaml_text(value: Mapping[str, Any]) -> str:
    """Return plain data as YAML, in blocks."""
    from ruamel.yaml import YAML  # noqa: PLC0415 - slow to import, seldom needed

    stream = io.StringIO()
    writer = YAML()
    writer.default_flow_style = False
    writer.dump(value, stream)
    return stream.getvalue()
