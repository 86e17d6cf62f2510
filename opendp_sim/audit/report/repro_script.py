"""Write scripts that count a finding's event and print the bound."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.outputs.predicates import PlainEvent, imports_of, literal
from opendp_sim.audit.statistics.clopper_pearson import certified_delta
from opendp_sim.core import dp

LARGEST = 2_000_000
_RISK = 1e-3


@dataclass(frozen=True)
class Shown:
    """What a script says beside its event."""

    point: tuple[float, float] = (0.0, 0.0)
    """Epsilon and delta of the claim that the event is compared to."""
    count: int = 0
    """Runs a side."""
    origin: str = ""
    drive: str = ""
    """The expression of what asks an interactive release."""
    note: str = ""
    """A comment: what was calculated, where draws do not show it."""
    raised: bool = False
    """Whether a release raised."""
    read: bool = False
    """Whether outputs are objects whose parts are read."""
    calls: int = 1
    """How many calls one run makes, whose releases are looked at together."""
    first: bool = False
    """Whether each run is a first call: what the object keeps is put back before it."""
    same: bool = False
    """Whether the event is what the left side of one object always releases."""


def imported(function: Any) -> str:
    """Return the line that imports a module's function as ``drive``."""
    module, name = (getattr(function, f"__{part}__", "") for part in ("module", "qualname"))
    home = sys.modules.get(module or "")
    if home is None or module == "__main__" or getattr(home, name, None) is not function:
        return ""
    return f"from {module} import {name} as drive"


def is_object(origin: str) -> bool:
    """Return whether ``module:name`` names an OpenDP object, no factory."""
    module, _, name = origin.partition(":")
    found = getattr(sys.modules.get(module), name, None)
    return isinstance(found, (dp.Transformation, dp.Measurement, dp.Odometer))


def _made(origin: str, name: str) -> tuple[str, str]:
    """Return the import and the expression of an object."""
    if ":" in origin and not origin.endswith((".yaml", ".yml")):
        module, factory = origin.split(":", 1)
        return f"from {module} import {factory} as make", f"make{'' if is_object(origin) else '()'}"
    return f"# {name}: the object that was audited", f"{name}"


def event_script(pair: Pair, event: PlainEvent, shown: Shown, outputs: Sequence[Any]) -> str:
    """Return lines that count an event on both sides.

    They print frequencies and the certified bound.

    Args:
        pair: the datasets.
        event: the event.
        shown: what is said beside it.
        outputs: releases that the event must be able to look at.
    """
    first, made = _made(shown.origin, "obj")
    drawn, names = _drawn(event, shown)
    loading = f"from opendp_sim.audit import {', '.join(names)}; from random import Random"
    x, y = literal(pair.left), literal(pair.right)
    needed = imports_of(x, y, event.text)
    epsilon, delta = shown.point
    whose = "" if shown.calls == 1 else f" of each of the {shown.calls} calls"
    allowed = f', "which allows {epsilon:.4g} at this delta"' if delta else ""
    lines = [f"{first}; {loading}" if not first.startswith("#") else f"{loading}  {first}"]
    lines += [needed] if needed else []
    lines += [f"x, y, n, M = {x}, {y}, {shown.count}, {made}"]
    if shown.first:
        lines += [
            "M = first_call(M)  # as it is now, made anew and not called yet, before each call"
        ]
    if shown.drive.startswith("default_driver"):
        lines += [
            "from opendp_sim.audit.adversary.default_analysts import default_driver",
            f"drive = {shown.drive}  # what the audit asked",
        ]
    elif shown.drive:
        passed = "# drive: the function that was passed to the audit"
        lines += [shown.drive if shown.drive.startswith("from ") else passed]
    if shown.same:
        lines += [
            "# One object, made once: what it adds to its answers may be kept, and another's differs.",
            f"same = repr({drawn.replace('{}', 'x')})",
            "hit = lambda output: repr(output) == same",
        ]
    else:
        lines += _hit(event, outputs)
    lines += [f"# {line}" for line in shown.note.split("\n") if line]
    return "\n".join(
        [
            *lines,
            (
                "hits = [side for side in Random(1).sample((0, 1), counts=(n, n), k=2 * n) "
                f"if hit({drawn.replace('{}', '(x, y)[side]')})]  # in random order"
            ),
            "p, q = hits.count(0), hits.count(1)",
            (
                'print(p / n, q / n, "epsilon is at least", certified_epsilon((p, q), (n, n), '
                f'{delta:.6g}, 1e-3), "at delta {delta:.3g} (risk 1e-3 a run); claimed{whose}", '
                f"M.map({pair.distance!r}){allowed})"
            ),
        ]
    )


def _drawn(event: PlainEvent, shown: Shown) -> tuple[str, list[str]]:
    """Return the expression of an output, and its imports."""
    one = "drive(M({}))" if shown.drive else "M({})"
    names = ["certified_epsilon", *(["first_call"] if shown.first else [])]
    drawn = one if shown.calls == 1 else f"[{', '.join([one] * shown.calls)}]"
    if event.exceptions or shown.raised:
        called = f"lambda data: {drawn.replace('{}', 'data')}" if drawn != "M({})" else "M"
        drawn, names = f"outcome({called}, {{}})", [*names, "outcome"]
    return (f"read({drawn})", [*names, "read"]) if shown.read else (drawn, names)


def _hit(event: PlainEvent, outputs: Sequence[Any]) -> list[str]:
    """Return the event as a function that takes each of these outputs."""
    names: dict[str, Any] = {}
    plain = f"hit = lambda output: {event.text}"
    try:
        exec(f"{imports_of(event.text)}\n{plain}", names)  # noqa: S102 - the event's own text
        for output in outputs:
            bool(names["hit"](output))
    except Exception:  # noqa: BLE001 - outputs of several kinds
        return [
            "def hit(output):  # what the event does not fit is not in it",
            f"    try: return {event.text}",
            "    except Exception: return False",
        ]
    return [plain]


def planned(rates: tuple[float, float], point: tuple[float, float]) -> int:
    """Return the runs to certify the event, by three standard errors."""
    n = 200
    while n < LARGEST:
        p, q = (n * rate for rate in rates)
        low = int(max(0, p - 3 * math.sqrt(p + 1)))
        high = int(min(n, q + 3 * math.sqrt(q + 1)))
        if certified_delta((low, high), (n, n), point[0], _RISK) > point[1]:
            break
        n = int(1.5 * n)
    return n


def stability_script(pair: Pair, origin: str, claimed: Any) -> str:
    """Return lines that show a violation of the stability map."""
    first, made = _made(origin, "obj")
    x, y = literal(pair.left), literal(pair.right)
    needed = imports_of(x, y)
    return "\n".join(
        [
            first,
            *([needed] if needed else []),
            f"T, x, y = {made}, {x}, {y}",
            (
                f'print(T(x), T(y), "at distance {pair.distance!r}; '
                f'claimed at most", T.map({pair.distance!r}))  # {claimed}'
            ),
        ]
    )
