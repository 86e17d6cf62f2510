"""Gather a plan's numbers for the page, with data closed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from opendp_sim.accounting.composition import Charge
from opendp_sim.accounting.ledger.ledger import Entry
from opendp_sim.accounting.ledger.standing import LedgerStanding
from opendp_sim.dsl.plan.gaussian_facts import noise_ratios
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.plan.statements import PlanStatements, serves, tell
from opendp_sim.dsl.run.charge import standing
from opendp_sim.report.charts import dial, round_ticks
from opendp_sim.studio.questions import QUESTIONS, Form

_EPSILONS = (0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
_HALF = 0.5
"""The part of what is left above which a curator writes the file's name to confirm."""


@dataclass(frozen=True)
class Panel:
    """Hold what a page shows of a plan.

    Attributes:
        told: the plan's statements.
        standing: where its ledger stands, None without one.
        runs: what the ledger counts.
        cost: of one run, in words.
        right: right guesses of an attacker, in words.
        dial, curve, near: pictures.
        table, reach: the numbers of the curve and of what is near.
        asked: the question and its columns.
        drops: when the gate drops a row, empty if it drops none.
        again: when the same plan was released, empty if never.
    """

    told: PlanStatements
    standing: LedgerStanding | None
    runs: tuple[dict[str, str], ...]
    cost: str
    right: str
    dial: Markup | None
    curve: Markup | None
    near: Markup | None
    table: tuple[tuple[str, str], ...]
    reach: tuple[tuple[str, str, str], ...]
    asked: str
    drops: str
    again: str

    @property
    def spent(self) -> str:
        """What is used of the limit, in percent."""
        return _percent(self._shares[0])

    @property
    def after(self) -> str:
        """What is used of the limit after this run, in percent."""
        return _percent(self._shares[1])

    @property
    def left(self) -> str:
        """What is left of the limit now, in percent, rounded down."""
        return self._rest(self._shares[0])

    @property
    def leaves(self) -> str:
        """What is left after this run, in percent, rounded down."""
        return self._rest(self._shares[1])

    @property
    def room(self) -> str:
        """How many runs fit, or why this one does not."""
        ledger = self.standing
        if ledger is None or ledger.before is None or ledger.after is None:
            return ""
        rest, after = ledger.before.rest, ledger.after
        delta = after.exact[1] - ledger.before.exact[1] if len(after.exact) > 1 else 0
        left = rest.get("delta", 0)
        if not ledger.fits:
            part = "delta" if delta > left else " or ".join(n for n in rest if n != "delta")
            if not any(rest.get(name, 0) for name in part.split(" or ")):
                why = f"no {part} is left, and the limit is fixed since the first run"
            else:
                why = f"lower {'Delta of one run' if part == 'delta' else part}"
            return f"This run does not fit: {why}. Left now: {ledger.before.left_text}."
        if delta and delta == left:
            mend = "lower Delta of one run" + (
                "" if ledger.head else ", or raise the limit's delta"
            )
            return f"This run uses all delta that is left: no run fits after it. Else {mend}."
        return f"{self.told.repeat.value}."

    def _rest(self, share: float) -> str:
        known = self.standing is not None and not self.standing.refused
        return f"{math.floor(100 * (1.0 - share)) if known else 0}%"

    @property
    def large(self) -> bool:
        """Whether the run takes more than half of what is left."""
        before, after = self._shares
        return after - before > _HALF * (1.0 - before)

    @property
    def _shares(self) -> tuple[float, float]:
        ledger = self.standing
        return (0.0, 0.0) if ledger is None else (ledger.share_before, ledger.share_after)


def _percent(share: float) -> str:
    return f"{math.ceil(100 * share - 1e-9)}%"


def panel_of(plan: Plan, form: Form | None) -> Panel:
    """Return a plan's statements, ledger and pictures; only the ledger is read."""
    ledger = standing(plan)
    told = tell(plan, ledger=ledger)
    points, curve = noise_ratios(plan, _EPSILONS), None
    reach: tuple[tuple[str, str, str], ...] = ()
    if points and plan.privacy is not None:
        curve = _curve(points, float(plan.privacy.budget.epsilon or 1.0))
    near = None
    if form is not None and "near" in QUESTIONS[form.question].uses and len(form.columns) > 1:
        near = _footprint(form)
        shown = list(form.columns.items())[:2]
        reach = tuple((n, f"{c.low:,g} to {c.high:,g}", f"±{c.near:,g}") for n, c in shown)
    right = "" if told.attacker is None else f"{told.attacker.right} of 100"
    return Panel(
        told,
        ledger,
        () if ledger is None else tuple(map(_run, ledger.runs)),
        told.cost.value,
        right,
        None if told.attacker is None else dial(told.attacker),
        curve,
        near,
        tuple((f"{e:g}", f"× {share:.3g}") for e, share in points),
        reach,
        _asked(plan, form),
        _drops(plan),
        _again(plan, ledger),
    )


def _asked(plan: Plan, form: Form | None) -> str:
    """Return the question and its columns."""
    if form is None:
        return f"{plan.program.name}: a spec of its own"
    uses = QUESTIONS[form.question].uses
    names = [form.item] if "item" in uses else list(form.columns)
    of = form.label if {"label", "any_label"} & uses else form.target if "target" in uses else ""
    return f"{QUESTIONS[form.question].name}: {', '.join(names)}{f' by {of}' if of else ''}"


def _drops(plan: Plan) -> str:
    """Return in one sentence when the gate drops a row."""
    columns = [
        c
        for e in plan.program.data
        if e.ingest == "enforce" and not e.public
        for c in e.records.columns
    ]
    numbers = [c.name for c in columns if not c.keys and c.numpy_dtype.kind != "O"]
    why = [f"{' or '.join(numbers)} holds no number"] if numbers else []
    why += [f"{c.name} holds none of its classes" for c in columns if c.keys]
    return f"A row is dropped where {', or '.join(why)}." if why else ""


def _again(plan: Plan, ledger: LedgerStanding | None) -> str:
    """Return when the ledger was last charged for this program."""
    if ledger is None or serves(plan):
        return ""
    same = [
        r for r in ledger.runs if r.kind == "charge" and r.body.get("program") == plan.program.hash
    ]
    return f"{_run(same[-1])['time']} UTC" if same else ""


def _run(entry: Entry) -> dict[str, str]:
    return {
        "seq": str(entry.seq),
        "time": str(entry.body.get("time", ""))[:16].replace("T", " "),
        "name": str(entry.body.get("name", "")),
        "cost": Charge.read(entry.body["loss"]).text,
    }


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
