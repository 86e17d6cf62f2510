"""Check the author's expectations, shares and exactness against the types."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from opendp_sim.accounting.budget import number_text
from opendp_sim.core.arithmetic.rounding import float_up, sqrt_up, up_text
from opendp_sim.core.claims import Sensitivity, Stable
from opendp_sim.core.errors import repr_text
from opendp_sim.domains.metrics import VectorNorm
from opendp_sim.dsl.grammar.program import Expect, Privacy, ReleaseDecl
from opendp_sim.dsl.text.diagnostic import Cause, Notes, Path
from opendp_sim.dsl.types.records import Typed


def check_shares(private: Mapping[str, Typed], notes: Notes) -> None:
    """Check that several solved releases have shares of at most 1 together."""
    solved = {n: t.release for n, t in private.items() if t.release and t.release.solve}
    if len(solved) > 1:
        for name, release in solved.items():
            if release.spend is None:
                notes.error("OS305", "several releases share the budget", ("flow", name, "release"),
                            label="no `spend`", help="write for example `spend: 50%`.")  # fmt: skip
    shares = {name: spend_of(release) for name, release in solved.items()}
    if (whole := sum(shares.values(), Fraction(0))) > 1:
        last = list(shares)[-1]
        notes.error("OS401", "the releases spend more than the budget",
                    ("flow", last, "release", "spend"),
                    label=f"{float(whole) * 100:g} % in all",
                    help="let the shares add up to 100 %.")  # fmt: skip


def spend_of(release: ReleaseDecl) -> Fraction:
    """Return a release's share, all of the budget unless stated."""
    return release.spend if release.spend is not None else Fraction(1)


def check_numerics(private: Mapping[str, Typed], privacy: Privacy, notes: Notes) -> None:
    """Report idealized stages of an exact program."""
    for name, typed in private.items():
        if privacy.numerics == "exact" and typed.numerics == "idealized":
            notes.error("OS306", f"stage `{name}` is idealized, not exact", ("flow", name), part="key",
                        label="a proof over real numbers, run on floats",
                        help="write `numerics: idealized`, or use another step.")  # fmt: skip


_NORMS = {"l1": "L1", "l2": "L2", "linf": "L∞"}


def check_expect(typed: Typed, expect: Expect, notes: Notes) -> None:
    """Compare what the author wrote with what the types say."""
    path: Path = ("flow", typed.name, "expect")
    if expect.stability is not None and expect.stability < typed.stability:
        claims = [stage.claim for stage in typed.stages]
        each = [claim.stability if isinstance(claim, Stable) else 1 for claim in claims]
        worst = each.index(max(each)) if each else 0
        claimed, derived = repr_text(expect.stability, 60), str(typed.stability)
        _too_small(typed, notes, (*path, "stability"), claimed, derived, "stability", worst)
    if not expect.claimed:
        return
    if typed.sensitivity is None:
        if isinstance(typed.metric, VectorNorm):
            _counts(typed, expect, notes, path, typed.metric.norm)
            return
        notes.error("OS306", f"stage `{typed.name}` has no sensitivity", (*path, "sensitivity"),
                    part="key", label="it does not end in a sketch",
                    help="expect `stability` instead.")  # fmt: skip
        return
    _norms(typed, expect, notes, path, typed.sensitivity)


def _norms(
    typed: Typed, expect: Expect, notes: Notes, path: Path, sensitivity: Sensitivity
) -> None:
    """Check claimed norms against the derived ones."""
    for norm, claimed in expect.claimed:
        if norm == "l2":
            square = sensitivity.l2_squared
            short, derived = Fraction(claimed) ** 2 < square, sqrt_up(square)
        else:
            exact: Fraction = getattr(sensitivity, norm)
            short, derived = Fraction(claimed) < exact, float_up(exact)
        if short:
            where, what = (*path, "sensitivity", norm), f"{_NORMS[norm]} distance"
            _too_small(typed, notes, where, number_text(claimed), up_text(derived), what)


def _counts(typed: Typed, expect: Expect, notes: Notes, path: Path, norm: str) -> None:
    """Check a norm on a stage whose metric is one."""
    for name, claimed in expect.claimed:
        if name != norm:
            notes.error("OS306", f"stage `{typed.name}` has no {name} sensitivity",
                        (*path, "sensitivity", name),
                        label=f"its metric is {norm}", help=f"expect `{norm}` instead.")  # fmt: skip
        elif claimed < typed.stability:
            where, what = (*path, "sensitivity", name), f"{_NORMS[norm]} distance"
            _too_small(typed, notes, where, number_text(claimed), str(typed.stability), what)


def _too_small(
    typed: Typed, notes: Notes, path: Path, claimed: str, derived: str, what: str, step: int = -1
) -> None:
    """Report a bound above the claimed one, and its step."""
    why = f"this makes the {what} {derived}"
    causes = (Cause(typed.places[step], why),) if typed.places else ()
    notes.error("OS301", f"stage `{typed.name}` is less stable than it claims", path,
                label=f"claimed {claimed}, derived {derived}",
                help=f"write `{path[-1]}: {derived}`", causes=causes)  # fmt: skip
