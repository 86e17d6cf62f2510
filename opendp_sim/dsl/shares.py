"""How releases share the budget, and that exact programs hold exact stages only."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from opendp_sim.dsl.diagnostic import Notes
from opendp_sim.dsl.ir import Privacy, ReleaseDecl
from opendp_sim.dsl.typed import Typed

__all__ = ["check_numerics", "check_shares", "spend_of"]


def check_shares(private: Mapping[str, Typed], notes: Notes) -> None:
    """Every solved release states its share when there are several; shares add up to at most 1."""
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
    """Return the share of a release: all of the budget unless it is stated."""
    return release.spend if release.spend is not None else Fraction(1)


def check_numerics(private: Mapping[str, Typed], privacy: Privacy, notes: Notes) -> None:
    """Report idealized stages of an exact program."""
    for name, typed in private.items():
        if privacy.numerics == "exact" and typed.numerics == "idealized":
            notes.error("OS306", f"stage `{name}` is idealized, not exact", ("flow", name), part="key",
                        label="a proof over real numbers, run on floats",
                        help="write `numerics: idealized`, or use another step.")  # fmt: skip
