"""Share a budget among estimators.

Clones and copies are the same budget, and it refuses. A fit is charged, durably, before a record is
read. scikit-learn's searches turn an exception of one fit into a score of NaN and go on, so fits can
be reserved beforehand, all of them or none.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, Self

from opendp_sim.accounting.budget import Limit, MeasureName, Number
from opendp_sim.accounting.budget_warnings import little_protection
from opendp_sim.accounting.composition import Charge, Total
from opendp_sim.accounting.ledger.ledger import Entry, Ledger, Terms
from opendp_sim.core.errors import BudgetError, scalar_text
from opendp_sim.core.system.escape_text import escape
from opendp_sim.core.system.lazy_import import filelock
from opendp_sim.sklearn._validation.defaults import MEASURE
from opendp_sim.sklearn._validation.refusals import EstimatorRefused

# --------------------------------------------------------------------------------------------------
# Fits that are reserved in a ledger and not used yet: which there are, and what they pay for.

_RESERVED = "estimator-"
"""How the tokens of reserved fits begin."""


def charges_of(given: Any, where: str) -> list[Charge]:
    """Return the losses of a cost or list, or refuse (OS401)."""
    given = getattr(given, "charges", given)
    found = list(given) if isinstance(given, Iterable) else [given]
    losses = [each for each in found if isinstance(each, Charge)]
    if len(losses) < len(found):
        raise BudgetError(
            "OS401", where, expected="losses of fits", got="something else",
            hint="budget.reserve(cost_of(search).charges), all of them or none.",
        )  # fmt: skip
    return losses


def new_token() -> str:
    """Return a token for a fit that is reserved."""
    return _RESERVED + secrets.token_hex(4)


def unused(ledger: Ledger) -> list[Entry]:
    """Return the reserved fits that are still open, cheapest first."""
    entries = ledger.entries
    settled = {e.body.get("of") for e in entries if e.kind in ("charge", "refusal", "void")}
    found = [e for e in entries if e.kind == "reserve" and _is_fit(e) and e.seq not in settled]
    return sorted(found, key=lambda e: Charge.read(e.body["loss"]).exact)


def not_covered(ledger: Ledger, charges: Sequence[Charge]) -> list[Charge]:
    """Return the charges beyond the open reserves.

    Each takes the cheapest reserve that pays for it. Losses of one measure are one number here, so
    whoever takes the cheapest that is enough takes it from nobody who has no other: fits that come in
    another order find as many.
    """
    open_ = [Charge.read(entry.body["loss"]) for entry in unused(ledger)]
    left = []
    for charge in charges:
        at = next((i for i, reserved in enumerate(open_) if _covers(reserved, charge)), None)
        if at is None:
            left.append(charge)
        else:
            del open_[at]
    return left


def pay(
    ledger: Ledger, charge: Charge, about: dict[str, str], where: str, *, reserved: bool = False
) -> Entry:
    """Charge a fit to the cheapest sufficient reserve.

    Without one it is charged anew, or refused where ``reserved``.

    Raises:
        BudgetError (OS402): the limit would be passed; nothing was charged.
        EstimatorRefused (OS102): a copy without a reserve; nothing was charged.
    """
    for entry in unused(ledger):
        if _covers(Charge.read(entry.body["loss"]), charge):
            return ledger.settle(entry, "charge", about)
    if reserved:
        raise no_reserve(where)
    try:
        return ledger.charge(charge, about)
    except BudgetError as error:
        if error.code != "OS402":
            raise
        raise error.restated(
            where=where,
            hint="lower its epsilon, or raise the limit of a new budget. Before a search or "
            "cross-validation budget.reserve(cost_of(search).charges) takes all fits, or none.",
        ) from None


def no_reserve(where: str) -> EstimatorRefused:
    """Return the refusal of a copy that nothing was reserved for."""
    return EstimatorRefused(
        "OS102",
        where,
        expected="a reserved fit, since this estimator is a copy (clone, copy or pickle)",
        got="none that pays for it; a wrapper may fit copies on records that it drew several times",
        hint="before the fit budget.reserve(cost_of(search)), for cross_val_score "
        "cost_of(estimator, cv=HashFold(3)), for a copy of your own cost_of(copy); cost_of names "
        "the wrappers whose loss nobody can state, for example BaggingClassifier.",
    )


def _covers(reserved: Charge, charge: Charge) -> bool:
    """Return whether a reserved loss pays for another."""
    return reserved.measure == charge.measure and all(
        have >= need for have, need in zip(reserved.exact, charge.exact, strict=True)
    )


def _is_fit(entry: Entry) -> bool:
    return str(entry.body.get("token")).startswith(_RESERVED)


# --------------------------------------------------------------------------------------------------
# The terms of a budget that estimators share: its measure, its unit and its limit, or a refusal.


def purse_terms(measure: Any, unit: str, limit: Limit) -> Terms:
    """Return the terms, or refuse a limit or measure (OS401)."""
    limit.check(measure if isinstance(measure, str) else "none", "budget")  # type: ignore[arg-type]
    return Terms(measure, unit_word(unit), limit)


def unit_word(word: str) -> str:
    """Return a unit as ledgers state it, or refuse another word (OS401)."""
    if word not in ("row", "groups"):
        raise BudgetError(
            "OS401", "budget.unit", expected="row or groups", got=scalar_text(word, 30),
            hint="`row` protects records, `groups` the persons that fit(..., groups=ids) names.",
        )  # fmt: skip
    return f"add_remove 1 of {word}"


# --------------------------------------------------------------------------------------------------
# Who waits for whom: a fit for another process's charge, a fork for another thread's.
#
# A forked child would inherit a lock that another thread holds, and wait for it for ever. So a fork waits
# until the charge ends; a child that was made before that refuses to charge.

_PATIENCE = 60.0
"""Seconds that are waited."""
_LOCKS: weakref.WeakSet[HeldOverForks] = weakref.WeakSet()


class HeldOverForks:
    """Lock across forks and threads.

    A thread may take it again; every fork takes it first, and releases it on both sides.
    """

    def __init__(self) -> None:
        self._lock, self._usable = threading.RLock(), True
        _watch_forks()
        _LOCKS.add(self)

    def __enter__(self) -> None:
        """Wait for the lock, which a fork without it never gets (OS403)."""
        if not self._usable:
            raise BudgetError(
                "OS403", "budget", expected="the process that the budget was opened in",
                got="a fork of it, made while another thread was charging",
                hint="start processes before threads, or open the budget's file in this process.",
            )  # fmt: skip
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        """Let the lock go."""
        self._lock.release()

    def wait(self) -> bool:
        """Take the lock for a fork, returning whether in time."""
        return self._lock.acquire(timeout=_PATIENCE)

    def let_go(self) -> None:
        """Let go what ``wait`` took."""
        self._lock.release()

    def give_up(self) -> None:
        """Refuse from now on, in this process."""
        self._usable = False


class _Forking(threading.local):
    """Record a forking thread's state of each lock.

    It has the lock, or another thread still has.
    """

    def __init__(self) -> None:
        self.taken: list[HeldOverForks] = []
        self.missed: list[HeldOverForks] = []


_forking = _Forking()


def open_when_free(path: Path, terms: Terms | None) -> Ledger:
    """Open a ledger file, waiting for other processes' charges."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return Ledger.open(path, terms)
        except BudgetError as error:
            if "locked" not in str(error.got) or time.monotonic() > until:
                raise
        time.sleep(0.02)


def _before() -> None:
    """Wait for charges before a fork, which would copy taken locks."""
    for lock in sorted(_LOCKS, key=id):
        (_forking.taken if lock.wait() else _forking.missed).append(lock)


def _in_parent() -> None:
    _forking.missed.clear()
    while _forking.taken:
        _forking.taken.pop().let_go()


def _in_child() -> None:
    for lock in _forking.missed:
        lock.give_up()
    _in_parent()


@cache
def _watch_forks() -> None:
    """Have the locks taken by each fork.

    What is registered last is called first. A charge ends by releasing a lock of `filelock`, which is
    not possible any more once `filelock` was told of the fork: so that has to be registered before.
    """
    filelock.FileLock  # noqa: B018 - imported here if it was not yet
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)


# --------------------------------------------------------------------------------------------------


class Spent(Total):
    """State a sum of fits, and the tables that it is about."""

    @property
    def text(self) -> str:
        """Return what was spent, without earlier copies and weights of records."""
        return f"{super().text} of tables as given to fit"


_HERE: dict[str, tuple[int, weakref.ref[Budget]]] = {}
"""Budgets in memory by their folder, each with the process that it lives in."""


class Budget:
    """Bound the loss of all fits together.

    Shared by every clone of an estimator. A clone, copy or pickle spends only what was reserved
    (``budget.reserve(cost_of(search))``): a wrapper, which makes them, may draw a record several times
    for one fit, and ``cost_of`` refuses those that do. What is done to a table before it is given to
    ``fit`` is in no sum: copies of records (but see ``max_copies``), weights, and scalers that learn.

    ``Budget(...)`` lives and ends with this process. ``Budget.open(path, ...)`` is a ledger file, the
    same as the command line's: it outlives the process, and other processes (``n_jobs``) wait for it.

    Args:
        epsilon: bound on epsilon at ``delta``: a decimal, or a ``Fraction``; sums are exact.
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
        epsilon: Number | None = None,
        delta: Number | None = None,
        rho: Number | None = None,
        mu: Number | None = None,
        measure: MeasureName = MEASURE,
        unit: str = "row",
    ) -> None:
        limit = Limit(epsilon=epsilon, delta=delta, rho=rho, mu=mu)
        terms = purse_terms(measure, unit, limit)
        self._folder: str | None = tempfile.mkdtemp(prefix="budget")
        weakref.finalize(self, _removed, self._folder, os.getpid())
        _HERE[self._folder] = os.getpid(), weakref.ref(self)
        self._start(Path(self._folder) / "budget.ledger", terms)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        epsilon: Number | None = None,
        delta: Number | None = None,
        rho: Number | None = None,
        mu: Number | None = None,
        measure: MeasureName = MEASURE,
        unit: str = "row",
        forget: bool = False,
    ) -> Self:
        """Open or create a ledger file.

        With a limit, the file must have been made with the same.

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
        terms = purse_terms(measure, unit, limit) if limit.stated() else None
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
        """Return itself."""
        return self

    def __copy__(self) -> Self:
        """Return itself."""
        return self

    def __deepcopy__(self, memo: object) -> Self:
        """Return itself."""
        return self

    def __reduce__(self) -> Any:
        """Pickle a ledger file's budget as its path.

        One in memory becomes a budget that refuses elsewhere. It refuses where it is used and not
        here: joblib tells what a worker raised, and hides what pickling does.
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
        """What was spent and reserved, beside the limit.

        Its text names the tables that it is about: those that were given to ``fit``.
        """
        with self._opened() as ledger:
            found = ledger.total()
        return Spent(found.measure, found.exact, found.limit, found.epsilon)

    @property
    def left_text(self) -> str:
        """Return the remaining budget, or cost of one run, in words."""
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

    def charge(
        self,
        charge: Charge,
        unit: str,
        what: str,
        program: str | None = None,
        *,
        reserved: bool = False,
    ) -> Entry:
        """Charge one fit, durably.

        A large enough reserve is used first.

        Args:
            charge: its loss.
            unit: whom it protects, as a ledger states it.
            what: the estimator's name.
            program: the hash of what will run.
            reserved: whether it is charged to a reserve only, as the fit of a copy of an estimator is.

        Raises:
            BudgetError (OS402): the limit would be passed; nothing was charged. (OS403): another unit.
            EstimatorRefused (OS102): ``reserved``, and no unused reserve is large enough.
        """
        about = {"name": what, "unit": unit} | ({} if program is None else {"program": program})
        with self._opened() as ledger:
            self._check_unit(unit)
            return pay(ledger, charge, about, self._name, reserved=reserved)

    def reserve(
        self, charges: Any, unit: str = "row", *, beside: bool = True, copied: bool = False
    ) -> None:
        """Reserve losses, all of them or none.

        Unused ones stay spent.

        Args:
            charges: what ``cost_of(search)`` returned, or its ``charges``.
            unit: ``row`` or ``groups``.
            beside: whether they come beside what is reserved already; False to reserve only those that
                no unused reserve pays for.
            copied: whether a copy of a search asks, which spends what was reserved for it alone.

        Raises:
            EstimatorRefused (OS102): ``copied``, and the unused reserves do not pay for all of them.
            BudgetError (OS402): they do not fit together; nothing was reserved.
        """
        listed = charges_of(charges, self._name)
        with self._opened() as ledger:
            self._check_unit(unit_word(unit))
            if not beside:
                listed = not_covered(ledger, listed)
            if copied and listed:
                raise no_reserve(self._name)
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
        return "budget" if self._folder is not None else str(self.path)

    def __repr__(self) -> str:
        """Return the limit; what is spent is asked for by name."""
        kept = "in memory" if self._folder is not None else f"file {escape(self.path.name)}"
        limit = self.terms.limit.text
        told = little_protection(self.terms.limit)
        rest = "" if told is None else f"; {told}"
        return f"Budget({limit}; {self.terms.measure}, {self.terms.unit}, {kept}{rest})"


class _Elsewhere(Budget):
    """Represent a budget of another process.

    It can be kept and copied, and it pays for nothing.
    """

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
    """Return the budget in its own process, else a refusing one."""
    maker, found = _HERE.get(folder, (0, None))
    budget = None if found is None else found()
    return budget if budget is not None and maker == os.getpid() else _Elsewhere(folder, terms)


def _reopened(path: str) -> Budget:
    return Budget.open(path)


def _removed(folder: str, owner: int) -> None:
    """Remove a budget in memory, in the process that made it."""
    _HERE.pop(folder, None)
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


# --------------------------------------------------------------------------------------------------
# Which budget pays where several could: the one that all of them are, or a refusal.


def one_budget(held: Iterable[Any], expected: str, hint: str) -> Budget | None:
    """Return the only budget among objects, None for none (OS102 for two)."""
    named = [each for each in held if isinstance(each, Budget)]
    if any(budget is not named[0] for budget in named):
        raise EstimatorRefused("OS102", "budget", expected=expected, got="several", hint=hint)
    return named[0] if named else None
