"""Return a step's plain sentence.

Its own, else the first of its documentation.
"""

from __future__ import annotations

from opendp_sim.core.mechanism import Mechanism
from opendp_sim.core.system.docstrings import doc_of
from opendp_sim.dsl.text.plain_text import plain_text


def step_sentence(mechanism: Mechanism) -> str:
    """Return what a step does, in one sentence without formulas."""
    if mechanism.in_short:
        return mechanism.in_short
    first = doc_of(type(mechanism)).partition("\n\n")[0]
    return " ".join(plain_text(first).split())
