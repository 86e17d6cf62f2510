"""Check laws of domains, whose every member a mechanism takes."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import Phase, given, settings, strategies as st

from opendp_sim.core.claims import Interactive, Post
from opendp_sim.core.constructors import bind_to_opendp
from opendp_sim.testing.case import Case
from opendp_sim.testing.members import members

__all__ = ["check_members_never_raise"]


def check_members_never_raise(case: Case) -> None:
    """Check that no member of the domain raises.

    Of the declared domain, or of the published OpenDP domain. An exception that one dataset causes and
    its neighbour does not is an answer nobody is charged for. An interactive mechanism may refuse a
    question, if it refuses it on every dataset.
    """
    claim = case.claim()
    if isinstance(claim, Post):
        return
    known = members(case.domain)
    drawn = case.drawn().map(lambda pair: pair[0]) if known is None else known
    built = bind_to_opendp(case.mechanism, case.domain, case.metric)

    @given(drawn, drawn, st.data())
    @settings(max_examples=min(15, settings().max_examples), phases=[Phase.generate], deadline=None)
    def law(one: Any, other: Any, more: Any) -> None:
        answers = [_answer(built, data) for data in (one, other)]
        if not isinstance(claim, Interactive):
            return
        asked = more.draw(drawn)
        said = {_outcome(answer, {"predict": asked}) for answer in answers}
        assert len(said) == 1, f"a question is refused or not according to the data: {sorted(said)}"

    law()


def _answer(built: Any, data: Any) -> Any:
    try:
        return built(data)
    except Exception as error:  # noqa: BLE001 - whatever it is, it depends on the data
        raised = _code(error)
    raise AssertionError(f"a member of the declared domain made it raise {raised}")


def _outcome(asked: Any, question: Any) -> str:
    try:
        asked(question)
    except Exception as error:  # noqa: BLE001
        return _code(error)
    return "an answer"


def _code(error: Exception) -> str:
    found = re.search(r"OS\d{3}", str(error))
    return found[0] if found else type(error).__name__
