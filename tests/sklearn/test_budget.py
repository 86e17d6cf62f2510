"""``Budget``: clones spend from one purse, reserves are all or none, other processes wait."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from opendp_sim.accounting.budget import Limit
from opendp_sim.accounting.composition import Charge
from opendp_sim.core.errors import BudgetError
from opendp_sim.sklearn import Budget, DPNearestCentroid, DPSearch, HashFold, cost_of
from opendp_sim.sklearn.base import fit_loss
from opendp_sim.sklearn.budget import not_covered, open_when_free, purse_terms

X = np.array([[0.0, 0.0]] * 60 + [[1.0, 1.0]] * 60)
Y = np.array(["a"] * 60 + ["b"] * 60)
ROW = "add_remove 1 of row"


def centroid(**more):
    return DPNearestCentroid(**({"bounds": (0, 1), "classes": ["a", "b"]} | more))


def test_clones_copies_and_refits_spend_from_one_budget():
    budget = Budget(mu=0.5)
    est = centroid(epsilon=1.0, budget=budget)
    assert clone(est).budget is budget
    assert copy.deepcopy(est).budget is budget
    assert copy.copy(budget) is budget
    for _ in range(3):
        est.fit(X, Y)
    budget.reserve(cost_of(est))
    clone(est).fit(X, Y)
    assert budget.fits == 4  # 4 times mu 0.2367 is mu 0.4734
    with pytest.raises(BudgetError, match="OS402"):
        est.fit(X, Y)
    assert budget.fits == 4
    assert budget.reserved == 0


def test_cross_validation_charges_every_fold():
    budget = Budget(epsilon=3.0, delta=1e-6)
    budget.reserve(cost_of(centroid(epsilon=0.5), cv=HashFold(3)))
    apart = np.clip(X, np.arange(120)[:, None] / 1000, 1)  # equal records would be in one fold
    cross_val_score(centroid(epsilon=0.5, budget=budget), apart, Y, cv=HashFold(3))
    assert budget.fits == 3


def test_reserves_are_all_or_none_and_are_used_first():
    budget = Budget(rho=1.0, measure="zcdp")
    quarter = Charge("zcdp", (0.25,))
    with pytest.raises(BudgetError, match="OS402"):
        budget.reserve([quarter] * 5)
    assert (budget.reserved, budget.total.loss) == (0, (0.0,))
    budget.reserve([quarter] * 4)
    assert (budget.reserved, budget.total.loss) == (4, (1.0,))
    budget.charge(Charge("zcdp", (0.2,)), ROW, "fit")
    assert (budget.reserved, budget.fits, budget.total.loss) == (3, 1, (1.0,))
    for wrong in (Charge("zcdp", (0.3,)), Charge("pure", (0.1,))):
        with pytest.raises(
            BudgetError, match="OS402"
        ):  # larger than a reserve, or of another measure
            budget.charge(wrong, ROW, "fit")
    for _ in range(3):
        budget.charge(quarter, ROW, "fit")
    with pytest.raises(BudgetError, match="OS402"):
        budget.charge(Charge("zcdp", (1e-3,)), ROW, "fit")


def test_units_and_terms_do_not_mix(tmp_path):
    budget = Budget(epsilon=9.0, delta=1e-6, unit="groups")
    with pytest.raises(BudgetError, match="OS403"):
        centroid(budget=budget).fit(X, Y)
    centroid(budget=budget, unit="groups", max_rows=2).fit(X, Y, groups=np.arange(120) // 2)
    assert budget.fits == 1
    for wrong in ({}, {"epsilon": 1.0}, {"rho": 1.0}, {"mu": 0.0}):
        with pytest.raises(BudgetError, match="OS401"):
            Budget(**wrong)
    with pytest.raises(BudgetError, match="OS401"):
        Budget(mu=1.0, unit="rows")
    with pytest.raises(BudgetError, match="OS403"):
        Budget.open(tmp_path / "none.ledger")
    Budget.open(tmp_path / "one.ledger", mu=1.0)
    with pytest.raises(BudgetError, match="OS403"):
        Budget.open(tmp_path / "one.ledger", mu=2.0)
    with pytest.raises(BudgetError, match="OS405"):  # no Gaussian loss
        centroid(budget=Budget(mu=9.0), measure="zcdp").fit(X, Y)


@pytest.mark.long
def test_a_ledger_file_is_one_budget_for_many_processes(tmp_path):
    budget = Budget.open(tmp_path / "a.ledger", mu=0.3)
    again = pickle.loads(pickle.dumps(budget))  # noqa: S301
    code = (
        "import sys, pickle; from opendp_sim.accounting.composition import Charge;"
        "b = pickle.loads(bytes.fromhex(sys.argv[1])); print('ready', flush=True);"
        f"[b.charge(Charge('gdp', (0.01,)), {ROW!r}, 'fit') for _ in range(2)]"
    )
    run = [sys.executable, "-c", code, pickle.dumps(budget).hex()]
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"ready\n"
        for _ in range(2):  # while the other one charges
            budget.charge(Charge("gdp", (0.01,)), ROW, "fit")
        _, errors = other.communicate()
    assert other.returncode == 0, errors
    assert budget.fits == again.fits == 4
    with pytest.raises(BudgetError, match="OS402"):
        again.charge(Charge("gdp", (0.01,)), ROW, "fit")


def test_a_budget_in_memory_is_itself_here_and_refuses_everywhere_else():
    budget = Budget(mu=1.0)
    kept = pickle.dumps(budget)
    assert pickle.loads(kept) is budget  # noqa: S301
    code = (
        "import sys, pickle; from opendp_sim.accounting.composition import Charge;"
        "b = pickle.loads(bytes.fromhex(sys.argv[1])); b = pickle.loads(pickle.dumps(b)); repr(b);"
        "b.charge(Charge('gdp', (0.01,)), sys.argv[2], 'fit')"
    )
    run = [sys.executable, "-c", code, kept.hex(), ROW]
    other = subprocess.run(run, capture_output=True, text=True, check=False)
    assert other.returncode == 1
    assert "OS403 budget: " in other.stderr
    assert "Budget.open(" in other.stderr
    del budget
    gc.collect()
    gone = pickle.loads(kept)  # noqa: S301
    for use in (
        lambda: gone.total,
        lambda: gone.reserve([Charge("gdp", (0.01,))]),
        lambda: gone.fits,
    ):
        with pytest.raises(BudgetError, match="OS403"):
            use()


def test_its_text_tells_no_spending():
    budget = Budget(epsilon=1.0, delta=1e-6)
    before = repr(budget)
    budget.charge(Charge("gdp", (0.001,)), ROW, "fit")
    assert (
        repr(budget)
        == before
        == "Budget(epsilon 1, delta 1e-06; gdp, add_remove 1 of row, in memory)"
    )


FORKS = """
import os, signal, sys, threading, time
from opendp_sim.accounting.composition import Charge
from opendp_sim.sklearn import Budget, budget as waiting

waiting._PATIENCE = float(sys.argv[2])
budgets = Budget(mu=1.0), Budget.open(sys.argv[1], mu=1.0)
# What is registered last is called first: the charge ends when the fork has begun.
WAITING = []
os.register_at_fork(before=lambda: [event.set() for event in WAITING])
for budget in budgets:
    budget.charge(Charge("gdp", (0.2,)), budget.terms.unit, "one")
    held, forking = threading.Event(), threading.Event()

    def charging():
        with budget._opened():
            held.set()
            assert forking.wait(60)
            time.sleep(0.1 if waiting._PATIENCE else 1.0)

    thread = threading.Thread(target=charging)
    thread.start()
    assert held.wait(60)
    WAITING[:] = [forking]
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)  # what hangs is ended, and fails
        try:
            told = str(budget.fits)
        except Exception as error:
            told = str(error)
        os.write(1, told.encode() + b"\\n")
        os._exit(0)
    WAITING.clear()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert budget.fits == 1
"""


def forked(tmp_path, patience):
    """Return what a fork of a process of its own says: what it had imported, and when, decides."""
    code = [sys.executable, "-W", "ignore", "-c", FORKS, str(tmp_path / "file.ledger"), patience]
    return subprocess.run(code, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_fork_waits_for_the_charge_of_another_thread(tmp_path):
    """In the fork the lock was held for ever, by a thread that it does not have, and SQLite's was too.

    And the charge could not end before the fork where `filelock`, which has a gate of its own for
    forks, was imported after the budgets' module.
    """
    assert forked(tmp_path, "60") == "1\n1\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_fork_in_a_charge_that_does_not_end_refuses_to_charge(tmp_path):
    first, second = forked(tmp_path, "0").splitlines()
    assert first.startswith("OS403")
    assert "a fork of it, made while another thread was charging" in first
    assert "open the budget's file in this process" in second


def test_a_search_uses_what_was_reserved_for_it_by_hand():
    """It was reserved twice: once by hand and once by the search itself."""
    budget = Budget(epsilon=3.0, delta=1e-6)
    search = DPSearch(centroid(budget=budget), {"epsilon": [1.0, 0.5]})
    budget.reserve(cost_of(search).charges)
    before = budget.total.loss
    search.fit(X, Y)
    assert (budget.total.loss, budget.fits, budget.reserved) == (before, 2, 0)
    search.fit(X, Y)  # and a second time it pays itself
    assert (budget.fits, budget.reserved) == (4, 0)
    assert budget.total.loss[0] == pytest.approx(2 * before[0])


@pytest.mark.few(6)
@pytest.mark.parametrize("seed", range(20))
def test_reserves_pay_for_as_many_fits_as_they_can_in_any_order(seed):
    draw = np.random.default_rng(seed)
    budget = Budget(rho=1e4, measure="zcdp")
    reserved, asked = (sorted(draw.integers(1, 9, draw.integers(1, 6)).tolist()) for _ in "ab")
    budget.reserve([Charge("zcdp", (float(loss),)) for loss in draw.permutation(reserved)])
    charges = [Charge("zcdp", (float(loss),)) for loss in draw.permutation(asked)]
    with open_when_free(budget.path, None) as ledger:
        left = not_covered(ledger, charges)
    best, free = 0, list(reserved)  # from the dearest on: as many as can be paid for
    for loss in sorted(asked):
        found = [have for have in free if have >= loss]
        best += bool(found)
        if found:
            free.remove(found[0])
    assert len(charges) - len(left) <= best
    for charge in charges:
        budget.charge(charge, ROW, "fit")
    assert budget.reserved == len(reserved) - (len(charges) - len(left))


def test_a_reserve_takes_a_cost_a_list_or_a_generator():
    """Of a generator nothing was reserved, without a word."""
    cost = cost_of(centroid(), cv=HashFold(2))
    for given in (cost, cost.charges, list(cost.charges), (each for each in cost.charges)):
        budget = Budget(epsilon=9.0, delta=1e-6)
        budget.reserve(given)
        assert budget.reserved == 2
    for wrong in (None, 0.5, [0.5], "ab", [None]):
        with pytest.raises(BudgetError, match="OS401"):
            budget.reserve(wrong)


@pytest.mark.parametrize("measure", [None, ["gdp"], "renyi", 3])
def test_a_measure_that_is_none_is_refused(measure, tmp_path):
    with pytest.raises(BudgetError, match="OS401"):
        Budget(measure=measure, epsilon=1.0, delta=1e-6)
    with pytest.raises(BudgetError, match="OS401"):
        purse_terms(measure, "row", Limit(epsilon=1.0, delta=1e-6))
    with pytest.raises(BudgetError, match="OS401"):
        Budget.open(tmp_path / "a.ledger", measure=measure, epsilon=1.0, delta=1e-6)


@pytest.mark.few(2)
@pytest.mark.parametrize("part", [0.1, Fraction(1, 7), "1/11", "0.05", Decimal("0.05")])
def test_as_many_fits_as_the_budget_holds_in_decimals(part):
    """Ten of 0.1 in 1, seven of 1/7: sums of floats, each rounded up, held one fewer."""
    times = int(1 / Fraction(str(part)))
    budget = Budget(epsilon=1.0, measure="pure")
    one = centroid(epsilon=part, delta=None, measure="pure", budget=budget)
    assert fit_loss(one) == Charge("pure", (Fraction(1, times),))
    budget.reserve([fit_loss(one)] * (times - 1))
    one.fit(X, Y)  # takes a reserve: the plan costs just what was reserved
    assert budget.reserved == times - 2
    budget.reserve([fit_loss(one)])
    assert budget.total.left == {"epsilon": 0.0}
    with pytest.raises(BudgetError, match="OS402"):
        budget.reserve([fit_loss(one)])
