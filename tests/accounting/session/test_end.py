"""The note of a session's end: one store's own, whole or refused, and gone when it is removed."""

from __future__ import annotations

import pytest

from opendp_sim.accounting.session.end import End, note_end, noted_end, remove_note
from opendp_sim.core.errors import BudgetError


def test_a_note_is_one_store_s_own(tmp_path):
    ledger, end = tmp_path / "x.ledger", End(turn="t", place=3, head="a" * 64)
    assert noted_end(ledger, "one") is None
    note_end(ledger, "one", end)
    assert noted_end(ledger, "one") == end
    assert noted_end(ledger, "../two") is None
    remove_note(ledger, "one")
    remove_note(ledger, "one")
    assert noted_end(ledger, "one") is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"turn": "t", "place": "3", "head": "x"}'])
def test_another_file_is_refused(tmp_path, text):
    ledger = tmp_path / "x.ledger"
    note_end(ledger, "one", End(turn="t", place=3, head="a" * 64))
    next(tmp_path.glob("*.end")).write_text(text)
    with pytest.raises(BudgetError, match="OS407"):
        noted_end(ledger, "one")
