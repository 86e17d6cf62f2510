"""Numpy's error state: the caller's in audited runs, numpy's own around them."""

from __future__ import annotations

from typing import Any

import numpy as np

from opendp_sim.audit.outputs.errstate import as_chosen, numpys_own

OWN = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}


def test_a_run_has_the_state_that_was_chosen_and_the_auditor_numpys_own() -> None:
    with np.errstate(all="raise"):
        chosen = np.geterr()
        with numpys_own():
            assert np.geterr() == OWN
            assert as_chosen(lambda _: np.geterr())(None) == chosen
            assert np.geterr() == OWN
        assert np.geterr() == chosen


def test_what_a_run_sets_for_itself_ends_with_it() -> None:
    def sets(_: Any) -> None:
        np.seterr(all="raise")
        raise ValueError

    before = np.geterr()
    with numpys_own():
        try:
            as_chosen(sets)(None)
        except ValueError:
            assert np.geterr() == OWN
    assert np.geterr() == before


def test_an_audit_inside_an_audited_run_starts_from_what_the_run_sees() -> None:
    with np.errstate(over="raise"), numpys_own():

        def inner(_: Any) -> Any:
            with numpys_own():
                return as_chosen(lambda _: np.geterr()["over"])(None)

        assert as_chosen(inner)(None) == "raise"
