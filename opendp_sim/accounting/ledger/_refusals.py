"""Build the refusals of a ledger."""

from __future__ import annotations

from pathlib import Path

from opendp_sim.core.errors import BudgetError

RESTORE = "restore the ledger from a backup; until then treat the budget as spent."
FORGET = (
    "restore it from a backup, or name where it is now; if it is gone for good, `opendp-sim ledger "
    "new SPEC --forget` begins another one, which says that it forgets what was charged before."
)


class UnavailableError(BudgetError):
    """Refuse a ledger that is unavailable at present, with unknown entries."""


def lost(file: Path, trace: str) -> BudgetError:
    """Return the refusal (OS407) where ``trace`` still knows of a ledger."""
    return BudgetError(
        "OS407", str(file), expected="the ledger that was charged here before",
        got=f"no such file, and {trace}", hint=FORGET,
    )  # fmt: skip


def another_head(path: Path) -> BudgetError:
    """Return the refusal (OS409) of a ledger with another head."""
    return BudgetError(
        "OS409", str(path), expected="the head that was seen when the run was confirmed",
        got="another one", hint="look at what is spent and left now, and confirm the run again.",
    )  # fmt: skip


def refused(path: Path, expected: str, got: str, hint: str) -> BudgetError:
    """Return the refusal of a ledger (OS403)."""
    return BudgetError("OS403", str(path), expected=expected, got=got, hint=hint)


def unavailable(path: Path, expected: str, got: str, hint: str) -> UnavailableError:
    """Return the refusal of a ledger that cannot be had now (OS403)."""
    return UnavailableError("OS403", str(path), expected=expected, got=got, hint=hint)
