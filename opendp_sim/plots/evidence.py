"""Draw an audit's evidence, runs and distances of layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from opendp_sim.plots.canvas import COLORS, MARKERS, Display, label
from opendp_sim.report.audit import read_audits

_ANSWERS = {"refuted": COLORS[1], "not refuted": COLORS[0], "skipped": "#777777"}


class AuditDisplay(Display):
    """Draw one audited object, a row a layer.

    With its runs and, where it bet, its wealth.

    Attributes:
        subject: what was audited.
        layers: names of layers, in the order they ran.
        answers: ``refuted``, ``not refuted`` or ``skipped``, a layer.
        runs: releases or pairs that each looked at.
        wealth: layer to the e-value that betting ended with.
        line: the e-value at which the claim would have been refuted: 1 over the risk.
    """

    def __init__(
        self,
        subject: str,
        layers: Sequence[str],
        answers: Sequence[str],
        runs: Sequence[int],
        wealth: Mapping[str, float],
        line: float,
    ) -> None:
        self.subject, self.layers, self.answers = subject, list(layers), list(answers)
        self.runs, self.wealth, self.line = list(runs), dict(wealth), line

    @classmethod
    def from_report(cls, report: Any) -> Self:
        """Take a ``Report`` of ``audit``, or one part of its file."""
        facts = {layer.layer: layer.facts.get("log_wealth") for layer in report.layers}
        wealth = {
            name: math.exp(min(float(v), 700.0)) for name, v in facts.items() if v is not None
        }
        layers = list(report.layers)
        return cls(
            getattr(report, "origin", "") or report.subject,
            [layer.layer for layer in layers],
            [layer.status for layer in layers],
            [layer.runs for layer in layers],
            wealth,
            1 / report.beta,
        )

    @classmethod
    def from_file(cls, path: str | Path, number: int = 0) -> Self:
        """Read one object of what ``opendp-sim audit --format json`` printed.

        Raises:
            AuditError (OS501): no such file, or another format.
        """
        audits = read_audits(Path(path)).audits
        return cls.from_report(audits[min(number, len(audits) - 1)])

    def _draw(self, ax: Any) -> None:
        places = range(len(self.layers))
        for place, answer, runs, name in zip(
            places, self.answers, self.runs, self.layers, strict=True
        ):
            marker = MARKERS[list(_ANSWERS).index(answer)]
            ax.plot(
                [max(runs, 1)], [place], marker=marker, color=_ANSWERS[answer], linestyle="none"
            )
            said = (
                answer
                if name not in self.wealth
                else (f"{answer}; evidence {self.wealth[name]:.3g}, refutes at {self.line:,.0f}")
            )
            ax.annotate(
                said, (max(runs, 1), place), textcoords="offset points", xytext=(7, -3), fontsize=8
            )
        ax.set_yticks(list(places), [label(name) for name in self.layers])
        ax.invert_yaxis()
        ax.set(
            xscale="log", xlim=(0.7, max([*self.runs, 10]) * 60), xlabel="runs and pairs looked at"
        )
        ax.set_title(label(self.subject), fontsize=9, loc="left")
