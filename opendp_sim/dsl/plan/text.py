"""Write a plan as a spec, and its errors at other budgets."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opendp_sim.dsl.grammar.bandwidths import written_program
from opendp_sim.dsl.plan.records import Planned


@dataclass(frozen=True)
class ErrorCurve:
    """Hold ``errors`` by output and error at several budgets ``epsilon``."""

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


def as_yaml(plan: Planned) -> str:
    """Return the program as a spec of equal hash, every default included."""
    return yaml_text(written_program(plan.program.plain()))


def yaml_text(value: Mapping[str, Any]) -> str:
    """Return plain data as YAML, in blocks."""
    from ruamel.yaml import YAML  # noqa: PLC0415 - slow to import, seldom needed

    stream = io.StringIO()
    writer = YAML()
    writer.default_flow_style = False
    writer.dump(value, stream)
    return stream.getvalue()
