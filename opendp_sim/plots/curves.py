"""Draw a plan's error and attacker curves, before anything is spent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from textwrap import wrap
from typing import Any, Self

from opendp_sim.accounting.measures.attackers import Attacker, attacker_of
from opendp_sim.accounting.measures.gaussian import epsilon_up
from opendp_sim.accounting.measures.second_opinion import zcdp_to_epsilon
from opendp_sim.core.errors import ParameterError
from opendp_sim.dsl.plan.error_units import divisor_of, of_one_unit
from opendp_sim.dsl.plan.gaussian_facts import is_tight
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.plots.canvas import COLORS, MARKERS, Display, label

_WIDE, _LINES, _HIGH = 58, 3, 32
"""Letters of a line below a picture, and such lines."""
_TRIED = (0.25, 0.5, 1.0, 2.0, 4.0)
_RATES = (0.001, 0.002, 0.005, 0.01, 0.02, *(i / 20 for i in range(1, 20)), 0.99)
_DELTAS = tuple(10.0**-i for i in range(2, 13))


class ErrorDisplay(Display):
    """The errors that a program would have at several budgets.

    Attributes:
        epsilon: the budgets, rising.
        errors: name of output and error to one value for each budget.
        chosen: the program's own budget, or None.
        unit: what all these errors are counted in; nothing where that is not known.
        left_out: other errors of the program, which have another unit and are not drawn.
    """

    def __init__(
        self,
        epsilon: Sequence[float],
        errors: Mapping[str, Sequence[float]],
        chosen: float | None,
        unit: str = "",
        left_out: Sequence[str] = (),
    ) -> None:
        self.epsilon, self.errors, self.chosen = list(epsilon), dict(errors), chosen
        self.unit, self.left_out = unit, tuple(left_out)

    @classmethod
    def from_plan(cls, plan: Plan, epsilon: Sequence[float] = _TRIED) -> Self:
        """Plan the program again at every budget.

        Nothing is opened and nothing is spent.

        Raises:
            ParameterError (OS101): the program states no error, or its budget is not an epsilon.
        """
        own = None if plan.privacy is None else plan.privacy.budget.down("epsilon")
        budgets = sorted({*map(float, epsilon), *(() if own is None else (own,))})
        curve = plan.errors(budgets) if own is not None else None
        found = (
            {}
            if curve is None
            else {
                name: values
                for name, values in curve.errors.items()
                if len(values) == len(budgets) and all(v > 0 and math.isfinite(v) for v in values)
            }
        )
        unit, kept, others = of_one_unit(plan, found)
        if not kept:
            raise ParameterError(
                "OS101", "plot", expected="a private program with a budget in epsilon and an output "
                "that states an expected error", got="another",
                hint="`opendp-sim plan` shows its errors; `--kind privacy` draws what an attacker gains.",
            )  # fmt: skip
        return cls(budgets, kept, own, unit, others)

    def _draw(self, ax: Any) -> None:
        for i, (name, values) in enumerate(self.errors.items()):
            color, marker = COLORS[i % len(COLORS)], MARKERS[i % len(MARKERS)]
            said = label(_named(name))
            ax.plot(self.epsilon, values, color=color, marker=marker, markersize=4.5, label=said)
        if self.chosen is not None:
            ax.axvline(self.chosen, color="black", linewidth=0.8, linestyle=":")
            ax.annotate(
                "chosen",
                (self.chosen, 1),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                xytext=(4, -10),
                fontsize=9,
            )
        ax.set_xscale("log")
        ax.set_xticks(self.epsilon, [f"{e:g}" for e in self.epsilon])
        ax.minorticks_off()
        ax.set_ylim(0, None)
        ax.set_xlabel("\n".join(["epsilon (smaller is more private)", *self._others()]))
        ax.set_ylabel("\n".join(self._of_what()))
        ax.legend(frameon=False, fontsize=8)

    def _of_what(self) -> list[str]:
        """Return the label of the vertical axis, in lines."""
        if not self.unit:
            return ["expected error"]
        return ["expected error,", *(label(line) for line in wrap(f"in {self.unit}", _HIGH))]

    def _others(self) -> list[str]:
        """Return lines that name the omitted errors."""
        if not self.left_out:
            return []
        named = dict.fromkeys(name.partition(": ")[2] for name in self.left_out)
        text = f"not drawn, as it has another unit: {'; '.join(named)}".replace("_", " ")
        return [label(line) for line in wrap(text, _WIDE)[:_LINES]]


def _named(name: str) -> str:
    if divisor_of(name) == 1:
        return name.replace("_", " ")
    return f"{name.partition(': ')[0]}: noise of a mean of {divisor_of(name):,} records"


class PrivacyDisplay(Display):
    """Draw the attacker's trade-off, and epsilon at every delta.

    Attributes:
        rates: false-positive rates.
        power: the greatest true-positive rate at each (an upper bound; see ``exact``).
        deltas: from large to small.
        epsilons: the epsilon that the claim gives at each delta.
        exact: whether the trade-off is the curve itself.
        of: what is protected, as the axes call it: records or people.
    """

    size = (8.0, 3.6)

    def __init__(
        self, measure: Any, loss: tuple[float, ...], *, exact: bool = False, of: str = "records"
    ) -> None:
        attacker: Attacker = attacker_of(measure, loss)
        self.measure, self.loss, self.exact, self.of = measure, loss, exact, of
        self.rates = list(_RATES)
        self.power = [attacker.power(rate) for rate in _RATES]
        self.deltas, self.epsilons = _profile(measure, loss)

    @classmethod
    def from_plan(cls, plan: Plan) -> Self:
        """Take the total of a plan.

        Raises:
            ParameterError (OS101): all data is public.
        """
        if plan.privacy is None or not plan.total:
            raise ParameterError(
                "OS101", "plot", expected="a program that protects something", got="public data only",
                hint="there is nothing for an attacker to gain.",
            )  # fmt: skip
        of = "records" if plan.privacy.unit.of == "row" else "people"
        return cls(plan.privacy.measure, plan.total, exact=is_tight(plan), of=of)

    def plot(self, ax: Any = None, profile_ax: Any = None) -> Self:
        """Draw the trade-off on ``ax``, with the profile of a curve."""
        self._profile_ax = profile_ax
        return super().plot(ax)

    def _draw(self, ax: Any) -> None:
        ax.plot([0, 1], [0, 1], color="black", linewidth=0.9, linestyle="--", label="guessing")
        said = "best attack" if self.exact else "no attack is better"
        ax.plot([0, *self.rates, 1], [self.power[0], *self.power, 1], color=COLORS[0], label=said)
        ax.fill_between(
            self.rates, self.rates, self.power, color=COLORS[0], alpha=0.15, linewidth=0
        )
        ax.set(
            xlim=(0, 1),
            ylim=(0, 1.01),
            xlabel=f"absent {self.of} that are accused",
            ylabel=f"present {self.of} that are found",
        )
        ax.legend(frameon=False, loc="lower right", fontsize=8)
        other = self._profile_ax
        if other is None and len(ax.figure.axes) == 1:
            spec = ax.figure.add_gridspec(1, 2)
            ax.set_subplotspec(spec[0])
            other = ax.figure.add_subplot(spec[1])
        if other is not None:
            other.plot(self.deltas, self.epsilons, color=COLORS[1], marker=MARKERS[1], markersize=4)
            other.set(xscale="log", xlabel="delta", ylabel="epsilon", ylim=(0, None))


def _profile(measure: str, loss: tuple[float, ...]) -> tuple[list[float], list[float]]:
    """Return a claim's deltas and epsilons."""
    first, own = loss[0], loss[1] if len(loss) > 1 else 0.0
    if measure == "gdp":
        return list(_DELTAS), [epsilon_up(2 * Fraction(first), delta) for delta in _DELTAS]
    if "zcdp" in measure:
        deltas = [delta for delta in _DELTAS if delta > own]
        return deltas, [zcdp_to_epsilon(first, delta - own) for delta in deltas]
    return (list(_DELTAS), [first] * len(_DELTAS)) if own == 0.0 else ([own], [first])
