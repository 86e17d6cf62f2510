"""Define analysts of interactive releases.

A driver is one analyst, fixed before any dataset is seen. It is the same for both neighbours, and what
it hears is a post-processing of the interaction, so the claim holds for the transcript.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from opendp_sim.audit.claims.noise_laws import NoiseLaw
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.core.errors import AuditError

REFUSED, SILENT = -1e9, -2e9
"""What stands in a transcript for an answer that is refused, and for none."""


@dataclass(frozen=True)
class Driver:
    """Describe an analyst of an interactive release, queries and scores."""

    drive: Callable[[Any], Any]
    """From a queryable to a transcript."""
    words: str
    """What is asked, for the report."""
    pairs: tuple[Pair, ...] = ()
    """Neighbours in which what differs is near to what is asked."""
    trace: Callable[[Any], Any] | None = None
    """From a dataset to what each noise hid along one public transcript, over the scale of that noise;
    only where the loss of that transcript is part of what is claimed."""
    noise: NoiseLaw | None = None
    """The law of those noises, over their scales."""
    options: str = ""
    """What ``default_driver`` has to be told to make it again, as it is written in a call."""

    place: str = ""
    """Where it stands in that driver, as it is written behind the call: ``.others[2]``."""
    others: tuple[Driver, ...] = ()
    """Conversations of which one is held instead where, along a tape, it shows more beyond the claim than
    this one (``costliest_analyst``)."""

    def __call__(self, queryable: Any) -> Any:
        """Ask everything; return the transcript."""
        return self.drive(queryable)


def unknown_questions(got: str) -> AuditError:
    """Return the refusal of an interactive release of an unknown kind."""
    return AuditError(
        "OS501", "audit.drive", expected="how to talk to an interactive release", got=got,
        hint="pass drive= to `audit` in Python: a function of the queryable that returns its answers, "
        "such as drive=lambda q: [q(3), q(3)]. Numbers, texts, measurements, tuples and mappings are "
        "asked without it; a service of this package behind a chain is audited by itself.",
    )  # fmt: skip
