"""Compute verdicts from closed forms of traced noise.

And from the whole tree of an opaque function's draws. Nothing here samples, except for the guard:
releases of the object itself must fit the law that the calculation uses. The logic, and what is
assumed, is in ``layer.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import stats

from opendp_sim.audit.claims.losses import attained_delta, claim_ratio
from opendp_sim.audit.claims.noise_laws import NoiseLaw
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.compare_tapes import Decoded, numbers
from opendp_sim.audit.instrument.tape import Draw
from opendp_sim.audit.trace.bets import guard_runs

_RISK = 1e-7
_ROUNDING, _BESIDE = {True: 1e-9, False: 1e-6}, {True: 1e-6, False: 1e-5}
"""How far a calculated loss, or a delta, must exceed the claim: whole numbers, floats."""


@dataclass(frozen=True)
class Shift:
    """Describe noise of one family with shifted arguments.

    The arguments differ by ``shift``; known cells of the output equal the noisy values.
    """

    law: NoiseLaw
    first: Any
    second: Any
    whole: bool
    decoded: Decoded

    @property
    def moved(self) -> Any:
        """Arguments of the right minus those of the left."""
        return self.second - self.first

    def score(self, rows: Any) -> Any:
        """Return log p(left) - log p(right) of rows of output numbers."""
        if rows.shape[1] < self.decoded.width:
            return np.zeros(len(rows))
        values = rows[:, list(self.decoded.cells)] / np.array(self.decoded.factors)
        return self.law.llr(np.clip(values, -1e15, 1e15) - self.first, self.moved)


def shift_of(draws: tuple[Draw, ...], other: tuple[Draw, ...], decoded: Decoded) -> Shift | None:
    """Return the shift of a pair of one known family, or None."""
    laws = [draw.law or draw.free for draw in draws]
    if (
        not draws
        or any(law is None for law in laws)
        or len({(law.family, law.whole) for law in laws if law}) != 1
    ):
        return None
    parts = [np.ravel(np.asarray(d.argument, dtype=float)) for d in draws]
    others = [np.ravel(np.asarray(d.argument, dtype=float)) for d in other]
    if [p.size for p in parts] != [p.size for p in others]:
        return None
    scales = np.concatenate(
        [np.full(p.size, law.scale) for p, law in zip(parts, laws, strict=True) if law]
    )
    first, second = np.concatenate(parts), np.concatenate(others)
    if first.size != len(decoded.cells):
        return None
    first, second = first + decoded.offsets[0], second + decoded.offsets[1]
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        return None
    law = laws[0]
    assert law is not None  # noqa: S101 - said above
    return Shift(NoiseLaw(law.noise.family, scales), first, second, law.whole, decoded)


def closed_form(shift: Shift, measure: Any, claimed: Any) -> tuple[Any, Any] | None:
    """Return (claimed, attained) of a shift with exact excess, or None."""
    moved = shift.moved
    if not moved.any():
        return None
    if isinstance(claimed, tuple):
        if "MaxDivergence" not in str(getattr(measure, "inner_measure", measure).type):
            return None  # beside a delta a rho says nothing of one epsilon
        return _delta_beside(shift, claimed)
    with np.errstate(over="ignore"):
        size = claim_ratio(shift.law, moved, measure, claimed)
    if not size > 1 + _ROUNDING[shift.whole]:
        return None
    return claimed, f"{size:.6g} times the claim"


def _delta_beside(shift: Shift, claimed: tuple[Any, ...]) -> tuple[Any, Any] | None:
    """Return (claimed, attained) by hockey-stick divergences, or None."""
    if len(claimed) != 2 or isinstance(claimed[0], tuple):
        return None
    epsilon, allowed = float(claimed[0]), float(claimed[1])
    with np.errstate(over="ignore"):
        attained = attained_delta(shift.law, shift.moved, epsilon)
    if attained <= allowed * (1 + _BESIDE[shift.whole]) + 1e-12:
        return None
    return claimed, f"delta {attained:.6g} at epsilon {epsilon:.6g}"


def fits(shift: Shift, pair: Pair, obj: Callable[[Any], Any], rng: np.random.Generator) -> bool:
    """Return whether releases less traced arguments follow the traced law."""
    for data, arguments in ((pair.left, shift.first), (pair.right, shift.second)):
        rows = guard_runs(partial(_numbers_of, obj, data))
        if any(row is None or len(row) != shift.decoded.width for row in rows):
            return False
        cells = np.array(rows)[:, list(shift.decoded.cells)] / np.array(shift.decoded.factors)
        residuals = cells - arguments
        scales = shift.law.scales(residuals.shape[1])
        for j in list(range(residuals.shape[1]))[:8]:
            if stats.ks_2samp(residuals[:, j], _reference(shift, scales[j], rng)).pvalue < _RISK:
                return False
    return True


def _numbers_of(obj: Callable[[Any], Any], data: Any) -> list[float] | None:
    try:
        return numbers(obj(data))
    except Exception:  # noqa: BLE001
        return None


def _reference(shift: Shift, scale: float, rng: np.random.Generator) -> Any:
    from opendp_sim.audit.instrument.native_laws import Law  # noqa: PLC0415

    family = shift.law.family.removeprefix("discrete_")
    return Law(family, float(scale), shift.whole, vector=False).reference(rng)
