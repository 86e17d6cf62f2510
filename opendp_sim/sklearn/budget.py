"""A budget that estimators share: clones and copies are the same budget, and it refuses.

A fit is charged, durably, before a record is read. scikit-learn's searches turn an exception of one
fit into a score of NaN and go on, so fits can be reserved beforehand, all of them or none.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, Self

from opendp_sim.accounting.budget import Budget as Limit, MeasureName
from opendp_sim.accounting.ledger import Entry, Ledger, Terms
from opendp_sim.accounting.little_protection import little_protection
from opendp_sim.accounting.totals import Charge, Total
from opendp_sim.core.errors import BudgetError
from opendp_sim.core.shown import shown
from opendp_sim.sklearn.defaults import MEASURE
from opendp_sim.sklearn.reserved_fits import charges_of, new_token, not_covered, pay, unused
from opendp_sim.sklearn.terms import terms_of, unit_of
from opendp_sim.sklearn.waiting import HeldOverForks, open_when_free

__all__ = ["Budget"]

_HERE: dict[str, tuple[int, weakref.ref[Budget]]] = {}
"""Budgets in memory by their folder, each with the process that it lives in."""


class Budget:
    """The loss that all fits together may have; shared by every clone of an estimator.

    ``Budget(...)`` lives and ends with this process. ``Budget.open(path, ...)`` is a ledger file, the
    same as the command line's: it outlives the process, and other processes (``n_jobs``) wait for it.

    Args:
        epsilon: bound on epsilon at ``delta``.
        delta: the delta at which epsilon is stated.
        rho: bound on rho, for ``measure="zcdp"``.
        mu: bound on mu, for ``measure="gdp"``.
        measure: ``gdp``, ``zcdp`` or ``pure``: the measure in which losses add up.
        unit: ``row``, or ``groups`` for estimators that protect persons.

    Raises:
        BudgetError (OS401): no budget, or none of this measure.

    Example:
        >>> budget = Budget(epsilon=1.0, delta=1e-6)
        >>> budget.fits, budget.total.left
        (0, {'epsilon': 1.0})
    """

    def __init__(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        mu: float | None = None,
        measure: MeasureName = MEASURE,
        unit: str = "row",
    ) -> None:
        limit = Limit(epsilon=epsilon, delta=delta, rho=rho, mu=mu)
        terms = terms_of(measure, unit, limit)
        self._folder: str | None = tempfile.mkdtemp(prefix="budget")
        weakref.finalize(self, _removed, self._folder, os.getpid())
        _HERE[self._folder] = os.getpid(), weakref.ref(self)
        self._start(Path(self._folder) / "budget.ledger", terms)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        mu: float | None = None,
        measure: MeasureName = MEASURE,
        unit: str = "row",
        forget: bool = False,
    ) -> Self:
        """Open a ledger file, or make it; with a limit, the file must have been made with the same.

        Args:
            path: the ledger's file.
            epsilon: as in ``Budget``, and so are the others.
            delta: see ``Budget``.
            rho: see ``Budget``.
            mu: see ``Budget``.
            measure: see ``Budget``.
            unit: see ``Budget``.
            forget: begin another ledger where one was and is lost; what it was charged is forgotten.

        Raises:
            BudgetError (OS403): missing and no limit given, locked, broken, or made with other terms.
                (OS407): it was there before and is gone.
        """
        limit = Limit(epsilon=epsilon, delta=delta, rho=rho, mu=mu)
        terms = terms_of(measure, unit, limit) if limit.stated() else None
        if forget and terms is not None:
            Ledger.open(Path(path).absolute(), terms, forget=True).close()
        made = cls.__new__(cls)
        made.__setstate__((Path(path).absolute(), terms))
        return made

    def __setstate__(self, state: tuple[Path, Terms | None]) -> None:
        """Become the budget of a ledger file."""
        self._folder = None
        self._start(*state)

    def _start(self, path: Path, terms: Terms | None) -> None:
        self.path, self._lock = path, HeldOverForks()
        with self._opened(terms) as ledger:
            self.terms = ledger.terms

    # --- one budget, however often it is copied -----------------------------------------------------

    def __sklearn_clone__(self) -> Self:
        """Return itself: clones of an estimator spend from one budget."""
        return self

    def __copy__(self) -> Self:
        """Return itself."""
        return self

    def __deepcopy__(self, memo: object) -> Self:
        """Return itself."""
        return self

    def __reduce__(self) -> Any:
        """Pickle a ledger file's budget as its path; one in memory as what refuses everywhere else.

        It refuses where it is used and not here: joblib tells what a worker raised, and hides what
        pickling does.
        """
        if self._folder is not None:
            return _unpickled, (self._folder, self.terms)
        return _reopened, (str(self.path),)

    @property
    def in_memory(self) -> bool:
        """Whether it lives and ends with this process."""
        return self._folder is not None

    # --- what is spent -------------------------------------------------------------------------------

    @property
    def total(self) -> Total:
        """What was spent and reserved, beside the limit."""
        with self._opened() as ledger:
            return ledger.total()

    @property
    def left_text(self) -> str:
        """What is left, in words: where losses add up by squares, what one more run may cost."""
        return self.total.left_text

    @property
    def fits(self) -> int:
        """How many fits, scores and selections were charged."""
        with self._opened() as ledger:
            return sum(e.kind == "charge" for e in ledger.entries)

    @property
    def reserved(self) -> int:
        """How many reserved fits nobody has used yet; they count as spent."""
        with self._opened() as ledger:
            return len(unused(ledger))

    def charge(self, charge: Charge, unit: str, what: str, program: str | None = None) -> Entry:
        """Charge one fit, durably; a reserved fit that is large enough is used first.

        Args:
            charge: its loss.
            unit: whom it protects, as a ledger states it.
            what: the estimator's name.
            program: the hash of what will run.

        Raises:
            BudgetError (OS402): the limit would be passed; nothing was charged. (OS403): another unit.
        """
        about = {"name": what, "unit": unit} | ({} if program is None else {"program": program})
        with self._opened() as ledger:
            self._check_unit(unit)
            return pay(ledger, charge, about, self._name)

    def reserve(self, charges: Any, unit: str = "row", *, beside: bool = True) -> None:
        """Reserve losses, all of them or none; what is never used stays spent.

        Args:
            charges: what ``cost_of(search)`` returned, or its ``charges``.
            unit: ``row`` or ``groups``.
            beside: whether they come beside what is reserved already; False to reserve only those that
                no unused reserve pays for.

        Raises:
            BudgetError (OS402): they do not fit together; nothing was reserved.
        """
        listed = charges_of(charges, self._name)
        with self._opened() as ledger:
            self._check_unit(unit_of(unit))
            if not beside:
                listed = not_covered(ledger, listed)
            after = ledger.total(*listed)
            if not after.fits:
                self._refuse(
                    "OS402",
                    f"a total within {after.limit_text}",
                    f"{len(listed)} fits that come to {after.text} with what is spent",
                    "search over fewer candidates or folds, or lower each fit's epsilon.",
                )
            for charge in listed:
                about = {"token": new_token(), "unit": self.terms.unit}
                ledger.reserve(charge, about)

    def _check_unit(self, unit: str) -> None:
        if unit != self.terms.unit:
            self._refuse(
                "OS403",
                f"the unit of this budget: {self.terms.unit}",
                unit,
                "a budget protects rows or persons: make it with unit='groups' for persons.",
            )

    @contextmanager
    def _opened(self, terms: Terms | None = None) -> Iterator[Ledger]:
        """Open the ledger, waiting for other processes' charges."""
        with self._lock, open_when_free(self.path, terms) as ledger:
            yield ledger

    def _refuse(self, code: str, expected: str, got: str, hint: str) -> NoReturn:
        raise BudgetError(code, self._name, expected=expected, got=got, hint=hint)

    @property
    def _name(self) -> str:
        """What a refusal calls it: a file that lives with this process is nobody's business."""
        return "budget" if self._folder is not None else str(self.path)

    def __repr__(self) -> str:
        """Return the limit; what is spent is asked for by name."""
        kept = "in memory" if self._folder is not None else f"file {shown(self.path.name)}"
        limit = ", ".join(f"{name} {value:g}" for name, value in self.terms.limit.stated().items())
        told = little_protection(self.terms.limit)
        rest = "" if told is None else f"; {told}"
        return f"Budget({limit}; {self.terms.measure}, {self.terms.unit}, {kept}{rest})"


class _Elsewhere(Budget):
    """A budget that lives in another process: it can be held and copied, and it pays for nothing."""

    def __init__(self, folder: str, terms: Terms) -> None:
        self._folder, self.terms = folder, terms

    @contextmanager
    def _opened(self, terms: Terms | None = None) -> Iterator[Ledger]:
        del terms
        self._refuse(
            "OS403",
            "a budget that other processes can see",
            "one in another process's memory",
            "give Budget.open('file.ledger', ...) to searches with n_jobs, and to pickles.",
        )
        yield  # type: ignore[unreachable]


def _unpickled(folder: str, terms: Terms) -> Budget:
    """Return the budget itself in its own process, and what refuses in another."""
    maker, found = _HERE.get(folder, (0, None))
    budget = None if found is None else found()
    return budget if budget is not None and maker == os.getpid() else _Elsewhere(folder, terms)


def _reopened(path: str) -> Budget:
    return Budget.open(path)


def _removed(folder: str, owner: int) -> None:
    """Remove a budget that lived in memory; a fork of its process leaves it alone."""
    _HERE.pop(folder, None)
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
