"""The logger ``opendp_sim`` has charges and openings, and the same lines on neighbouring data."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import opendp_sim as sim
from opendp_sim.core.errors import BudgetError
from opendp_sim.core.system.event_log import log_event

SECRET = 0.123456789


def _logged(folder, caplog, values):
    folder.mkdir()
    ledger = folder / "people.ledger"
    plan = sim.means(
        {"x": (-1.0, 1.0)}, epsilon=1.0, ledger=ledger, limit={"epsilon": 1.0, "delta": 1e-6}
    )
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="opendp_sim"):
        plan.apply({"x": values}, into=folder)
        with pytest.raises(BudgetError):
            plan.apply({"x": values}, into=folder)
    return [
        (one.name, one.levelname, one.getMessage().replace(str(folder), "FOLDER"))
        for one in caplog.records
    ]


def test_a_run_logs_its_charge_and_then_the_opening(tmp_path, caplog):
    (charge, opening) = _logged(tmp_path / "a", caplog, np.array([SECRET, 0.5]))
    assert charge[:2] == opening[:2] == ("opendp_sim", "INFO")
    assert charge[2].startswith("charged ")
    assert charge[2].endswith(" to FOLDER/people.ledger as entry 1")
    assert opening[2] == "opening private data `records` for the program `means`"


def test_neighbours_leave_the_same_lines(tmp_path, caplog):
    """Among them empty data, and a record beyond the bounds: nothing of a record is logged."""
    tables = ([], [SECRET, 9e9], [SECRET] * 5000)
    found = [
        _logged(tmp_path / str(at), caplog, np.array(values, dtype=float))
        for at, values in enumerate(tables)
    ]
    assert all(one == found[0] for one in found)


def test_a_handler_that_fails_ends_nothing_and_names_cannot_break_a_line(caplog):
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError

    logger, broken = logging.getLogger("opendp_sim"), Broken()
    with caplog.at_level(logging.INFO, logger="opendp_sim"):
        log_event("charged %s", "a\nforged line\x1b[2J")
        assert caplog.messages == [r"charged a\nforged line\x1b[2J"]
        logger.addHandler(broken)
        try:
            log_event("charged %s", "epsilon 1")
        finally:
            logger.removeHandler(broken)
