"""How an interactive release is talked to when nobody says how: a default driver, made of its domain.

A driver is public: it is fixed before any dataset is seen, and the same for both neighbours. What it
hears is a post-processing of the interaction, so the claim holds for the transcript.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import opendp.prelude as dp

from opendp_sim.audit.neighbours import Pair
from opendp_sim.audit.noise import NoiseLaw
from opendp_sim.audit.spaces import some_dataset
from opendp_sim.core.bridge import answers_questions
from opendp_sim.core.errors import AuditError

__all__ = ["Driver", "default_driver", "unknown_questions"]


@dataclass(frozen=True)
class Driver:
    """One analyst: what is asked, and what is kept of the answers."""

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

    def __call__(self, queryable: Any) -> Any:
        """Ask everything; return the transcript."""
        return self.drive(queryable)


def default_driver(obj: Any, d_in: Any) -> Driver | None:
    """Return how to talk to an object; None when it does not answer questions.

    Raises:
        AuditError: OS501, it answers questions, but nobody knows which.
    """
    from opendp_sim.audit.compositions import of_composition, of_odometer  # noqa: PLC0415
    from opendp_sim.audit.services import of_service  # noqa: PLC0415

    if isinstance(obj, dp.Odometer):
        return of_odometer(obj, d_in)
    if not isinstance(obj, dp.Measurement):
        return None
    service = getattr(obj, "sim_service", None)
    if service is not None:
        return of_service(obj, service.domain, d_in, priced=service.priced)
    return of_composition(obj, d_in) if _answers(obj, d_in) else None


def _answers(measurement: dp.Measurement, d_in: Any) -> bool:
    """Say whether a release is a queryable; tried on a synthetic dataset."""
    try:
        data = some_dataset(measurement.input_domain, measurement.input_metric, d_in)
        return answers_questions(measurement(data))
    except Exception:  # noqa: BLE001 - a domain nobody knows, or a release that refuses: L0 looks
        return False


def unknown_questions(got: str) -> AuditError:
    """Return the refusal of an interactive release of an unknown kind."""
    return AuditError(
        "OS501", "audit.drive", expected="how to talk to an interactive release", got=got,
        hint="pass drive= (a function of the queryable that returns what it heard). Measurements and "
        "the rows of this package's services are asked without it; a service behind a chain is "
        "audited by itself, or from its spec.",
    )  # fmt: skip
