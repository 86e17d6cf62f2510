"""How an interactive release is talked to when nobody says how: a default driver, made of its domain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from opendp_sim.audit.compositions import of_composition, of_odometer
from opendp_sim.audit.datasets import records_of
from opendp_sim.audit.driver import Driver, unknown_questions
from opendp_sim.audit.float_errors import as_chosen
from opendp_sim.audit.key_questions import of_keys
from opendp_sim.audit.members import quiet_member
from opendp_sim.audit.mining import Mined, mined
from opendp_sim.audit.question_shapes import of_shapes
from opendp_sim.audit.reachable import functions_of
from opendp_sim.audit.services import of_service
from opendp_sim.audit.spaces import metric_name, some_dataset
from opendp_sim.core import dp
from opendp_sim.core.bridge import answers_questions
from opendp_sim.core.errors import AuditError

__all__ = ["default_driver"]

_KINDS, _OF_A_KIND, _LEAST = 6, 40, 1e-3
"""Records of a dataset about which a queryable answers that says nothing of a few."""


def default_driver(obj: Any, d_in: Any, *, mine: bool = True) -> Driver | None:
    """Return how to talk to an object; None when it does not answer questions.

    Args:
        obj: a measurement, an odometer, or anything else.
        d_in: the distance of the claim.
        mine: whether words of its code may be a part of a question.

    Raises:
        AuditError: OS501, it answers questions of a kind that no default driver can ask.
    """
    if isinstance(obj, dp.Odometer):
        return of_odometer(obj, d_in)
    if not isinstance(obj, dp.Measurement):
        return None
    service = getattr(obj, "sim_service", None)
    if service is not None:
        return of_service(obj, service.domain, d_in, priced=service.priced)
    release = _some_release(obj, d_in)
    if not answers_questions(release):
        return None
    records = metric_name(obj.input_metric) in ("SymmetricDistance", "InsertDeleteDistance")
    member = quiet_member(obj.input_domain) if records else lambda _: False
    by_key = of_keys(release, member, d_in)
    if by_key is not None:
        return by_key
    try:
        return of_composition(obj, d_in)
    except AuditError as error:  # no measurement: numbers or texts, then
        found, refused = of_keys(release, member, d_in, anything=True), error
    except (AttributeError, TypeError, ValueError, dp.OpenDPException):  # asked what it cannot take
        kind = getattr(release, "query_type", "something unknown")
        found, refused = None, unknown_questions(f"a queryable that takes {kind}")
    if found is None:
        found = of_keys(_release_of_many(obj), member, d_in, anything=True)
    found = found or _of_parts(obj, release, member, d_in, mine=mine)
    if found is None:
        raise refused from None
    return found


def _of_parts(
    obj: dp.Measurement, release: Any, member: Callable[[Any], bool], d_in: Any, *, mine: bool
) -> Driver | None:
    """Return a driver that asks tuples or mappings, where queries have no declared type."""
    if str(getattr(release, "query_type", "")) != "ExtrinsicObject":
        return None
    said = mined(functions_of(obj), ()) if mine else Mined()
    texts = sorted(said.words, key=lambda word: (len(word), word))
    releases = partial(_some_release, obj, d_in), partial(_release_of_many, obj)
    found = of_shapes(releases, member, d_in, texts, said.numbers, _claimed(obj, d_in))
    return found if mine or found is None else replace(found, options=", mine=False")


def _claimed(obj: dp.Measurement, d_in: Any) -> float:
    """Return the number that is claimed; 1 where there is none, or one that no question could cost."""
    try:
        loss = obj.map(d_in)
        loss = float(loss[0] if isinstance(loss, tuple) else loss)
    except (dp.OpenDPException, TypeError, ValueError, LookupError):
        return 1.0
    return loss if _LEAST < loss < 1 / _LEAST else 1.0


def _some_release(measurement: dp.Measurement, d_in: Any) -> Any:
    """Return a release of a synthetic dataset, or None if none can be made."""
    try:
        data = some_dataset(measurement.input_domain, measurement.input_metric, d_in)
        return as_chosen(measurement)(data)
    except Exception:  # noqa: BLE001 - a domain nobody knows, or a release that refuses: L0 looks
        return None


def _release_of_many(measurement: dp.Measurement) -> Any:
    """Return a release of a synthetic dataset with many records of a kind, or None."""
    try:
        records = records_of(measurement.input_domain)
        some = [record for record in records.source.corners[:_KINDS] for _ in range(_OF_A_KIND)]
        return as_chosen(measurement)(records.build(some))
    except Exception:  # noqa: BLE001 - as above; or records that do not stand together
        return None
