"""Gather a plan's numbers for the page, with data closed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from markupsafe import Markup

from opendp_sim.accounting.composition import Charge, total_of
from opendp_sim.accounting.ledger._entries import counting_entries
from opendp_sim.accounting.ledger.ledger import Ledger, is_there
from opendp_sim.accounting.measures.gaussian import mu_squared_down
from opendp_sim.core.errors import BudgetError
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.plan.records import ledger_path
from opendp_sim.dsl.plan.statements import PlanStatements, tell
from opendp_sim.dsl.run.charge import ledger_terms
from opendp_sim.dsl.run.ledger_status import ledger_status
from opendp_sim.report.charts import dial, round_ticks
from opendp_sim.studio.questions import QUESTIONS, Form

_EPSILONS = (0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
_HALF = 0.5
"""The part of what is left above which a curator writes the file's name to confirm."""


@dataclass(frozen=True)
class Standing:
    """Hold where a ledger stands before and after one run.

    Attributes:
        head: the hash of its last entry, empty for none.
        before, after: used shares of the limit, from 0 to 1 and above.
        fits: whether the run is within the limit.
        room: such runs that still fit.
        limit, left: in words.
        runs: what is counted.
        refused: why it cannot be read, empty where it can.
    """

    head: str = ""
    before: float = 0.0
    after: float = 0.0
    fits: bool = False
    room: int = 0
    limit: str = ""
    left: str = ""
    runs: tuple[dict[str, str], ...] = ()
    refused: str = ""

    @property
    def large(self) -> bool:
        """Whether the run takes more than half of what is left."""
        return self.after - self.before > _HALF * (1.0 - self.before)


def ledger_standing(plan: Plan, told: dict[str, Any] | None) -> Standing | None:
    """Return a plan's ledger in numbers, None without one.

    Args:
        plan: the plan.
        told: what ``ledger_status`` says of it.
    """
    terms, path = ledger_terms(plan), ledger_path(plan)
    if told is None or terms is None or path is None or plan.charge is None:
        return None
    if "refused" in told:
        return Standing(refused=told["refused"])
    head, before = "", total_of((), terms.measure, terms.limit)
    runs: tuple[dict[str, str], ...] = ()
    try:
        if is_there(path):
            with Ledger.open(path, terms) as ledger:
                before, head = ledger.total(), ledger.head
                runs = tuple(
                    _run(entry.body, entry.seq) for entry in counting_entries(ledger.entries)
                )
        after = total_of(
            (Charge(terms.measure, before.exact), plan.charge), terms.measure, terms.limit
        )
    except BudgetError as error:
        return Standing(refused=f"expected {error.expected}; got {error.got}")
    used = before.share if any(before.exact) else 0.0
    return Standing(
        head, used, after.share, after.fits, told["room"], after.limit_text, told["left"], runs
    )


def _run(body: Any, seq: int) -> dict[str, str]:
    when = str(body.get("time", ""))[:16].replace("T", " ")
    return {
        "seq": str(seq),
        "time": when,
        "name": str(body.get("name", "")),
        "cost": Charge.read(body["loss"]).text,
    }


@dataclass(frozen=True)
class Forecast:
    """Hold what a page shows of a plan.

    Attributes:
        told: the plan's statements.
        standing: its ledger, None without one.
        cost: of one run, in words.
        right: right guesses of an attacker, in words.
        dial, curve, near: pictures.
        table: the curve's numbers.
    """

    told: PlanStatements
    standing: Standing | None
    cost: str
    right: str
    dial: Markup | None
    curve: Markup | None
    near: Markup | None
    table: tuple[tuple[str, str], ...]

    @property
    def spent(self) -> str:
        """What is used of the limit, in percent."""
        return _percent(self.standing.before if self.standing else 0.0)

    @property
    def taken(self) -> str:
        """What this run uses of the limit, in percent."""
        return _percent(self.standing.after - self.standing.before if self.standing else 0.0)

    @property
    def after(self) -> str:
        """What is used of the limit after this run, in percent."""
        return _percent(self.standing.after if self.standing else 0.0)

    @property
    def left(self) -> str:
        """What is left after this run, in percent, rounded down."""
        rest = 1.0 - (self.standing.after if self.standing else 1.0)
        return f"{math.floor(100 * max(rest, 0.0))}%"


def _percent(share: float) -> str:
    return f"{math.ceil(100 * share - 1e-9)}%"


def forecast(plan: Plan, form: Form | None) -> Forecast:
    """Return a plan's statements, ledger and pictures; only the ledger is read."""
    ledger = ledger_status(plan)
    told = tell(plan, ledger=ledger)
    points, curve = _relative_errors(plan), None
    if points and plan.privacy is not None:
        curve = _curve(points, float(plan.privacy.budget.epsilon or 1.0))
    near = None
    if form is not None and "near" in QUESTIONS[form.question].uses and len(form.columns) > 1:
        near = _footprint(form)
    right = "" if told.attacker is None else f"{told.attacker.right} of 100"
    return Forecast(
        told,
        ledger_standing(plan, ledger),
        told.cost.value,
        right,
        None if told.attacker is None else dial(told.attacker),
        curve,
        near,
        tuple((f"{e:g}", f"× {share:.3g}") for e, share in points),
    )


@lru_cache(maxsize=1024)
def _mu(epsilon: Fraction, delta: Fraction) -> float:
    return math.sqrt(float(mu_squared_down(epsilon, delta)))


def _relative_errors(plan: Plan) -> tuple[tuple[float, float], ...]:
    """Return noise at other budgets in parts of the plan's.

    Under ``gdp`` noise is a sensitivity over mu, so its ratio is that of two mu's.
    """
    privacy = plan.privacy
    if privacy is None or privacy.measure != "gdp" or privacy.budget.delta is None:
        return ()
    delta = privacy.budget.down("delta")
    if delta is None or not plan.total[0] > 0:
        return ()
    mine = math.sqrt(2.0 * plan.total[0])  # a rho of OpenDP's is half of mu squared
    return tuple((e, mine / _mu(Fraction(e), delta)) for e in _EPSILONS)


# --- pictures -------------------------------------------------------------------------------------

_WIDTH, _HEIGHT = 430, 262
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 18, 26, 40


def _curve(points: Sequence[tuple[float, float]], chosen: float) -> Markup:
    """Draw noise against epsilon, both logarithmic, this plan's marked."""
    low, high = math.log(points[0][0]), math.log(points[-1][0])
    shares = [share for _, share in points]
    bottom, top = math.log(min(*shares, 1.0)), math.log(max(*shares, 1.0))

    def at(epsilon: float, share: float) -> tuple[float, float]:
        x = (math.log(epsilon) - low) / (high - low)
        y = (math.log(share) - bottom) / (top - bottom)
        return (
            _LEFT + x * (_WIDTH - _LEFT - _RIGHT),
            _HEIGHT - _BOTTOM - y * (_HEIGHT - _TOP - _BOTTOM),
        )

    out = Markup("")
    for share in (0.1, 0.25, 0.5, 1, 2, 4, 10, 30):
        if bottom <= math.log(share) <= top:
            _, y = at(1, share)
            out += Markup(
                '<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>'
                '<text x="{}" y="{:.1f}" text-anchor="end">×{:g}</text>'
            ).format(_LEFT, _WIDTH - _RIGHT, y, y, _LEFT - 6, y + 4, share)
    for epsilon in (0.1, 0.3, 1, 3, 8):
        x, _ = at(epsilon, 1)
        out += Markup('<text x="{:.1f}" y="{}" text-anchor="middle">{:g}</text>').format(
            x, _HEIGHT - _BOTTOM + 17, epsilon
        )
    out += Markup('<text x="{}" y="{}" text-anchor="middle">epsilon</text>').format(
        (_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 5
    )
    out += Markup('<text x="4" y="14">noise, in parts of this plan\'s</text>')
    line = "M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in (at(*p) for p in points))
    x, y = at(min(max(chosen, points[0][0]), points[-1][0]), 1.0)
    out += Markup('<path class="line" d="{}"/>').format(line)
    out += Markup('<circle class="hit" cx="{:.1f}" cy="{:.1f}" r="5"/>').format(x, y)
    name = f"Noise at other epsilons, in parts of that at epsilon {chosen:g}"
    return _picture(name, out)


def _footprint(form: Form) -> Markup:
    """Draw how far near reaches in two columns, to scale."""
    (one, a), (two, b) = list(form.columns.items())[:2]

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            _LEFT + (x - a.low) / (a.high - a.low) * (_WIDTH - _LEFT - _RIGHT),
            _HEIGHT - _BOTTOM - (y - b.low) / (b.high - b.low) * (_HEIGHT - _TOP - _BOTTOM),
        )

    out = Markup('<rect class="plot" x="{}" y="{}" width="{}" height="{}"/>').format(
        _LEFT, _TOP, _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    )
    for value in round_ticks(a.low, a.high):
        if a.low <= value <= a.high:
            out += Markup('<text x="{:.1f}" y="{}" text-anchor="middle">{:,g}</text>').format(
                at(value, b.low)[0], _HEIGHT - _BOTTOM + 17, value
            )
    for value in round_ticks(b.low, b.high):
        if b.low <= value <= b.high:
            out += Markup('<text x="{}" y="{:.1f}" text-anchor="end">{:,g}</text>').format(
                _LEFT - 6, at(a.low, value)[1] + 4, value
            )
    out += Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(
        (_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 5, one[:40]
    )
    out += Markup('<text x="4" y="14">{}</text>').format(two[:40])
    x, y = at((a.low + a.high) / 2, (b.low + b.high) / 2)
    wide = a.near / (a.high - a.low) * (_WIDTH - _LEFT - _RIGHT)
    tall = b.near / (b.high - b.low) * (_HEIGHT - _TOP - _BOTTOM)
    for reach in (2.45, 1.79, 1.18, 0.6):  # weights of 5, 20, 50 and 84 in 100
        out += Markup(
            '<ellipse class="halo" cx="{:.1f}" cy="{:.1f}" rx="{:.1f}" ry="{:.1f}"/>'
        ).format(
            x,
            y,
            min(reach * wide, (_WIDTH - _LEFT - _RIGHT) / 2),
            min(reach * tall, (_HEIGHT - _TOP - _BOTTOM) / 2),
        )
    name = f"Near, to scale: {a.near:g} in {one}, {b.near:g} in {two}"
    return _picture(name, out)


def _picture(name: str, body: Markup) -> Markup:
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        _WIDTH, _HEIGHT, name, body
    )
