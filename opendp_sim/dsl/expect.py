"""``expect:`` against the derived type: a claim smaller than the truth is OS301."""

from __future__ import annotations

from fractions import Fraction

from opendp_sim.core.claims import Stable
from opendp_sim.core.rounding import float_up, sqrt_up
from opendp_sim.dsl.diagnostic import Cause, Notes, Path
from opendp_sim.dsl.ir import Expect
from opendp_sim.dsl.typed import Typed
from opendp_sim.spaces.metrics import VectorNorm

__all__ = ["check_expect", "rounded_up"]

_NORMS = {"l1": "L1", "l2": "L2", "linf": "L∞"}


def check_expect(typed: Typed, expect: Expect, notes: Notes) -> None:
    """Compare what the author wrote with what the types say."""
    path: Path = ("flow", typed.name, "expect")
    if expect.stability is not None and expect.stability < typed.stability:
        _too_small(typed, notes, (*path, "stability"), str(expect.stability), str(typed.stability),
                   f"write `stability: {typed.stability}`",
                   f"this makes the stability {typed.stability}", _least_stable(typed))  # fmt: skip
    if not expect.faces:
        return
    if typed.faces is None:
        if isinstance(typed.metric, VectorNorm):
            _counts(typed, expect, notes, path, typed.metric.norm)
            return
        notes.error("OS306", f"stage `{typed.name}` has no faces", (*path, "faces"), part="key",
                    label="it does not end in a sketch", help="expect `stability` instead.")  # fmt: skip
        return
    for norm, claimed in expect.faces:
        if norm == "l2":
            square = typed.faces.l2_squared
            short, derived = Fraction(claimed) ** 2 < square, sqrt_up(square)
        else:
            exact: Fraction = getattr(typed.faces, norm)
            short, derived = Fraction(claimed) < exact, float_up(exact)
        if short:
            shown = rounded_up(derived)
            _too_small(typed, notes, (*path, "faces", norm), f"{claimed:g}", shown,
                       f"write `{norm}: {shown}`",
                       f"this makes the {_NORMS[norm]} distance {shown}",
                       len(typed.places) - 1)  # fmt: skip


def _counts(typed: Typed, expect: Expect, notes: Notes, path: Path, norm: str) -> None:
    """A stage whose own metric is a norm (vote counts) has the face of that norm only."""
    for name, claimed in expect.faces:
        if name != norm:
            notes.error("OS306", f"stage `{typed.name}` has no {name} face", (*path, "faces", name),
                        label=f"its metric is {norm}", help=f"expect `{norm}` instead.")  # fmt: skip
        elif claimed < typed.stability:
            _too_small(typed, notes, (*path, "faces", name), f"{claimed:g}", str(typed.stability),
                       f"write `{norm}: {typed.stability}`",
                       f"this makes the {_NORMS[norm]} distance {typed.stability}",
                       len(typed.places) - 1)  # fmt: skip


def _too_small(
    typed: Typed, notes: Notes, path: Path, claimed: str, derived: str, advice: str, why: str,
    step: int,
) -> None:  # fmt: skip
    causes = (Cause(typed.places[step], why),) if typed.places else ()
    notes.error("OS301", f"stage `{typed.name}` is less stable than it claims", path,
                label=f"claimed {claimed}, derived {derived}", help=advice, causes=causes)  # fmt: skip


def _least_stable(typed: Typed) -> int:
    claims = [stage.claim for stage in typed.stages]
    worst = [claim.stability if isinstance(claim, Stable) else 1 for claim in claims]
    return worst.index(max(worst)) if worst else 0


def rounded_up(value: float) -> str:
    """Render a bound shortly, never below it: six digits, the last one up if need be."""
    text = f"{value:.6g}"
    if float(text) >= value:
        return text
    exponent = len(str(int(value))) if value >= 1 else 1
    return f"{float(text) + 10.0 ** (exponent - 6):.6g}"
