"""Draw small SVG charts of escaped text, without fetches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from textwrap import shorten, wrap

from markupsafe import Markup

from opendp_sim.accounting.measures.attackers import Attacker
from opendp_sim.core.system.escape_text import escape

_WIDTH, _HEIGHT = 430, 262
_LETTERS = 54
"""Letters that a line over a picture has room for, on a narrow page too."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 18, 36, 40


@dataclass(frozen=True)
class Chart:
    """A frame of 430 by 262 units with linear axes.

    Attributes:
        x: least and greatest value from left to right.
        y: least and greatest value from bottom to top.
    """

    x: tuple[float, float]
    y: tuple[float, float]

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the place of a point."""
        low, high = self.x
        share = (x - low) / (high - low)
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        return (
            _LEFT + share * (_WIDTH - _LEFT - _RIGHT),
            _HEIGHT - _BOTTOM - up * (_HEIGHT - _BOTTOM - _TOP),
        )

    def path(self, points: Sequence[tuple[float, float]]) -> str:
        """Return the path through points given in the chart's values."""
        places = (self.at(*point) for point in points)
        return "M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in places)

    def axes(
        self, x_ticks: dict[float, str], y_ticks: dict[float, str], x_label: str, y_label: str
    ) -> Markup:
        """Return grid lines, ticks and labels."""
        out = Markup("")
        for value, text in y_ticks.items():
            _, y = self.at(self.x[0], value)
            out += Markup(
                '<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>'
                '<text x="{}" y="{:.1f}" text-anchor="end">{}</text>'
            ).format(_LEFT, _WIDTH - _RIGHT, y, y, _LEFT - 6, y + 4, text)
        for value, text in x_ticks.items():
            x, _ = self.at(value, self.y[0])
            out += Markup('<text x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
                x, _HEIGHT - _BOTTOM + 17, text
            )
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        out += Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(
            middle, _HEIGHT - 5, escape(x_label)
        )
        for line, text in enumerate(_lines(escape(y_label))):
            out += Markup('<text x="4" y="{}">{}</text>').format(14 + 13 * line, text)
        return out

    def figure(self, title: str, *parts: Markup) -> Markup:
        """Return the whole picture."""
        body = Markup("").join(parts)
        return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
            _WIDTH, _HEIGHT, title, body
        )


def _lines(label: str) -> list[str]:
    """Return a label in up to two lines."""
    found = wrap(label, _LETTERS) or [""]
    rest = " ".join(found[1:])
    return [found[0], shorten(rest, _LETTERS, placeholder="...")] if rest else found


def round_ticks(low: float, high: float) -> list[float]:
    """Return round ticks around both ends."""
    span = max(high - low, 1e-300)
    unit = 10.0 ** math.floor(math.log10(span / 4))
    step = next(f * unit for f in (1, 2, 2.5, 5, 10) if span / (f * unit) <= 6)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [i * step for i in range(first, last + 1)]


def _line(path: str, kind: str = "line") -> Markup:
    return Markup('<path class="{}" d="{}"/>').format(kind, path)


def _dot(place: tuple[float, float], kind: str = "hit", radius: float = 5.0) -> Markup:
    return Markup('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="{}"/>').format(
        kind, *place, radius
    )


def attack_chart(curve: Sequence[tuple[float, float]], marked: float) -> Markup:
    """Draw power against false alarms, with the text's rate ``marked``.

    ``curve``: (false-positive rate, greatest true-positive rate), rising, strictly between 0 and 1.
    """
    chart = Chart((0, 1), (0, 1))
    ticks = {v / 4: f"{v * 25}%" for v in range(5)}
    top = [(0.0, curve[0][1]), *curve, (1.0, 1.0)]
    band = chart.path(top) + " L" + chart.path([(1, 1), (0, 0)])[1:] + " Z"
    ring = min(curve, key=lambda point: abs(point[0] - marked))
    x, y = chart.at(0.55, 0.42)
    return chart.figure(
        "The best attack against the promise, beside guessing",
        chart.axes(ticks, ticks, "accused wrongly", "found"),
        _line(band, "band"),
        _line(chart.path([(0, 0), (1, 1)]), "diag"),
        _line(chart.path(top)),
        _dot(chart.at(*ring)),
        Markup('<text x="{:.0f}" y="{:.0f}">guessing</text>').format(x, y),
    )


_ENDS = (50, 60, 75, 90, 100)


def dial(attacker: Attacker) -> Markup:
    """Draw the right guesses in 100 on a dial."""
    right = float(attacker.right)

    def place(value: float, radius: float) -> tuple[float, float]:
        angle = math.pi * (1 - (value - 50) / 50)
        return 125 + radius * math.cos(angle), 118 - radius * math.sin(angle)

    out = Markup("")
    for at, (low, high) in enumerate(pairwise(_ENDS), 1):
        here = low < right <= high or (at == 1 and right <= low)
        start, end = place(low + 0.4, 85), place(high - 0.4, 85)
        out += Markup('<path class="b{}{}" d="M{:.1f},{:.1f} A85 85 0 0 1 {:.1f},{:.1f}"/>').format(
            at, "" if here else " off", *start, *end
        )
    for value in _ENDS[1:-1]:
        out += _text(str(value), place(value, 103), middle=True)
    for left, words in ((40.0, ("50", "coin")), (210.0, ("100", "certain"))):
        for line, word in enumerate(words):
            out += _text(word, (left, 136.0 + 13 * line), middle=True)
    x, y = place(min(max(right, 50.0), 100.0), 62)
    out += Markup('<path class="needle" d="M125,118 L{:.1f},{:.1f}"/>').format(x, y)
    out += _dot((125, 118), "hub", 5.5) + _text(attacker.right, (125, 148), "big", middle=True)
    label = f"{attacker.right} of 100 guesses are right at most; a coin is right 50 times"
    return Markup(
        '<svg class="dial" viewBox="0 0 250 156" role="img" aria-label="{}">{}</svg>'
    ).format(label, out)


def _text(word: str, at: tuple[float, float], kind: str = "", *, middle: bool = False) -> Markup:
    return Markup('<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(
        kind, *at, "middle" if middle else "start", escape(word)
    )


def share_bar(parts: Sequence[tuple[str, float]], left: str) -> Markup:
    """Draw a limit's parts (name, share) beside the rest, ``left`` in words."""
    out, x = Markup(""), 0.0
    for at, (name, share) in enumerate(parts):
        wide = min(share, 1 - x) * 700
        out += Markup(
            '<rect class="bar{}" x="{:.1f}" y="2" width="{:.1f}" height="44" rx="3"/>'
        ).format(" on" if at % 2 == 0 else "", 700 * x + 1, max(wide - 2, 0.5))
        if wide > 7 * len(name):
            out += _text(name, (700 * x + wide / 2, 69), middle=True)
        x = min(x + share, 1.0)
    out += Markup('<rect class="frame" x="1" y="2" width="698" height="44" rx="3"/>')
    if (1 - x) * 700 > 8 * len(left):
        out += _text(left, (350 * (1 + x), 29), "say", middle=True)
    label = f"Parts of the limit, run by run: {left}"
    return Markup(
        '<svg class="wide" viewBox="0 0 700 76" role="img" aria-label="{}">{}</svg>'
    ).format(label, out)


def heat_map(
    values: Sequence[Sequence[float]],
    sure: Sequence[Sequence[bool]],
    sides: tuple[tuple[str, float, float], tuple[str, float, float]],
) -> Markup:
    """Draw numbers over two columns, hatched where not ``sure``.

    Rows go from the lowest place of the second column; ``sides`` are each one's name and ends.
    """
    (x_name, x_low, x_high), (y_name, y_low, y_high) = sides
    chart = Chart((x_low, x_high), (y_low, y_high))
    ticks = [
        {v: f"{v:,.6g}" for v in round_ticks(low, high) if low <= v <= high}
        for _, low, high in sides
    ]
    most = max((max(row) for row in values), default=0.0) or 1.0
    wide, high = (x_high - x_low) / len(values[0]), (y_high - y_low) / len(values)
    cells: dict[int, list[str]] = {}
    hatched = []
    for j, row in enumerate(values):
        for i, value in enumerate(row):
            (x, y), (x2, y2) = (
                chart.at(x_low + (i + d) * wide, y_low + (j + d) * high) for d in (0, 1)
            )
            if sure[j][i]:
                shade = max(1, math.ceil(_SHADES * value / most))
                cells.setdefault(shade, []).append(f"M{x:.1f},{y:.1f}V{y2:.1f}H{x2:.1f}V{y:.1f}z")
            else:
                hatched.append(f"M{x:.1f},{y:.1f}L{x2:.1f},{y2:.1f}")
    parts = [
        Markup('<path class="cell" opacity="{:.2f}" d="{}"/>').format(k / _SHADES, "".join(d))
        for k, d in sorted(cells.items())
    ]
    parts.append(Markup('<path class="hatch" d="{}"/>').format("".join(hatched)))
    return chart.figure(
        "A map of what was released", *parts, chart.axes(ticks[0], ticks[1], x_name, y_name)
    )


_SHADES = 7


def curve_chart(
    points: Sequence[tuple[float, float, float, float]], name: str, label: str
) -> Markup:
    """Draw a curve over rising (place, lower, value, upper) points."""
    up = round_ticks(min(0.0, *(p[1] for p in points)), max(p[3] for p in points))
    chart = Chart((points[0][0], points[-1][0]), (up[0], up[-1]))
    across = {v: f"{v:,.6g}" for v in round_ticks(*chart.x) if chart.x[0] <= v <= chart.x[1]}
    band = chart.path([(x, high) for x, _, _, high in points])
    band += " L" + chart.path([(x, low) for x, low, _, _ in reversed(points)])[1:] + " Z"
    return chart.figure(
        "A curve of what was released",
        chart.axes(across, {v: f"{v:,.6g}" for v in up}, name, label),
        _line(band, "band"),
        _line(chart.path([(x, value) for x, _, value, _ in points])),
    )


def bars_chart(rows: Sequence[tuple[str, float, float, float]], label: str) -> Markup:
    """Draw (class, value, lower, upper) of one question, 12 rows at most."""
    rows = rows[:12]
    up = round_ticks(
        min(0.0, *(lower for _, _, lower, _ in rows)), max(*(upper for *_, upper in rows), 1e-300)
    )
    low, high = up[0], up[-1]
    chart = Chart((-0.6, len(rows) - 0.4), (low, high))
    best = max(range(len(rows)), key=lambda i: rows[i][1])
    ticks = {v: f"{v:,.6g}" for v in up}
    names = {float(i): escape(name[:9]) for i, (name, *_) in enumerate(rows)}
    parts = [chart.axes(names, ticks, "", label)]
    for i, (_, value, lower, upper) in enumerate(rows):
        x, y = chart.at(i, value)
        _, zero = chart.at(i, 0.0)
        _, y_low = chart.at(i, lower)
        _, y_high = chart.at(i, upper)
        parts.append(
            Markup(
                '<rect class="bar{}" x="{:.1f}" width="18" y="{:.1f}" height="{:.1f}" rx="2"/>'
                '<path class="whisk" d="M{:.1f},{:.1f} V{:.1f}"/>'
            ).format(
                " on" if i == best else "", x - 9, min(y, zero), abs(zero - y), x, y_low, y_high
            )
        )
    return chart.figure("One answered question", *parts)
