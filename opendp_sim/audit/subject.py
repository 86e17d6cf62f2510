"""Describe an audited object as a function with domain and claim."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from opendp_sim.audit.claims.curves import Curve, claimed_curve
from opendp_sim.audit.claims.noise_laws import NoiseLaw, flattened, read_law
from opendp_sim.audit.generators.frames import frame_distance_of, is_frame, rule
from opendp_sim.core import dp
from opendp_sim.core.errors import AuditError

_OTHER_LOSS = "a conversation with another loss"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Describe a function with a claim.

    ``audit`` makes one of any OpenDP object; write one for a bare function. Exactly one of
    ``stability_map`` (a transformation) and ``privacy_map`` (a measurement) is set.
    """

    run: Callable[[Any], Any]
    input_domain: dp.Domain | None = None
    input_metric: dp.Metric | None = None
    stability_map: Callable[[Any], Any] | None = None
    output_metric: dp.Metric | None = None
    output_domain: dp.Domain | None = None
    """Of a transformation, when it says how to take its outputs apart into records."""
    privacy_map: Callable[[Any], Any] | None = None
    measure: dp.Measure | None = None
    core: Callable[[Any], Any] | None = None
    noise: Any = None
    """A ``NoiseLaw``, our own declaration, or an OpenDP measurement that is applied to ``core``."""
    traced: bool = False
    """``core`` is what the answers along one transcript hide, not the noiseless part of a release."""
    sample: Callable[[Any, int], Any] | None = None
    """Many independent releases at once, when the mechanism can do that faster than one by one."""
    outer: dp.Measurement | None = None
    """The audited measurement itself, so that its own call is not taken for an inner release."""
    name: str = "object"

    @property
    def private(self) -> bool:
        """Whether the claim is about privacy (else about stability)."""
        return self.privacy_map is not None

    def curve(self, distance: Any) -> Curve:
        """Return the claimed curve at an input distance."""
        if self.privacy_map is None or self.measure is None:
            raise AuditError(
                "OS501",
                "audit.subject",
                expected="a privacy claim",
                got="a stability claim",
                hint="only measurements have a curve; audit the chain with its noise.",
            )
        return claimed_curve(self.measure, self.privacy_map(distance))

    def releases(self, data: Any, count: int) -> list[Any]:
        """Return ``count`` independent releases."""
        if self.sample is not None:
            return list(self.sample(data, count))
        return [self.run(data) for _ in range(count)]

    def noiseless(self, data: Any) -> NDArray[Any]:
        """Return the noiseless part, flat, exactly in its own dtype."""
        if self.core is None:
            raise AuditError(
                "OS501", "audit.subject.core", expected="a declared noiseless part", got="none",
                hint="pass core= and noise=.",
            )  # fmt: skip
        return flattened(self.core(data))

    def law(self, cells: int) -> NoiseLaw | None:
        """Return the declared law for a number of cells, or None."""
        if self.noise is None or isinstance(self.noise, dp.Measurement):
            return None
        return read_law(self.noise, cells)


def rows_apart(subject: Subject) -> Subject:
    """Return a transformation to frames with rows as outputs.

    Of bounds on the rows that differ, the one on all of them is looked at.
    """
    domain, metric, claim = subject.output_domain, subject.output_metric, subject.stability_map
    if not is_frame(domain) or metric is None or claim is None:
        return subject
    run = subject.run
    told = replace(subject, run=lambda data: list(run(data).collect().rows()), output_domain=None)
    if not str(metric.type).startswith("FrameDistance"):
        return told

    def most_rows(distance: Any) -> Any:
        return min((n * g for by, n, g in map(rule, claim(distance)) if not by), default=math.inf)

    return replace(told, output_metric=frame_distance_of(metric), stability_map=most_rows)


def read_subject(
    obj: Any,
    d_in: Any,
    *,
    core: Callable[[Any], Any] | None = None,
    noise: Any = None,
    drive: Callable[[Any], Any] | None = None,
    sample: Callable[[Any, int], Any] | None = None,
) -> Subject:
    """Return the ``Subject`` of an object.

    An OpenDP object, a plugin's, one of this package; a ``Subject`` unchanged.

    Raises:
        AuditError: OS501, not an object with a claim.
    """
    if isinstance(obj, Subject):
        return obj
    if isinstance(obj, dp.Transformation):
        return Subject(
            run=obj,
            input_domain=obj.input_domain,
            input_metric=obj.input_metric,
            stability_map=_map_of(obj, d_in),
            output_metric=obj.output_metric,
            output_domain=obj.output_domain,
            name="transformation",
        )
    if isinstance(obj, dp.Measurement):
        parts = getattr(obj, "sim_parts", None)
        if parts is not None and core is None:
            core, noise = parts.core, parts.noise
        return Subject(
            run=obj if drive is None else _driven(obj, drive),
            input_domain=obj.input_domain,
            input_metric=obj.input_metric,
            privacy_map=_map_of(obj, d_in),
            measure=obj.output_measure,
            core=core,
            noise=noise,
            sample=sample,
            outer=obj,
            name="measurement",
        )
    if isinstance(obj, dp.Odometer):
        return _odometer(obj, d_in, drive, core, noise)
    raise AuditError(
        "OS501",
        "audit",
        expected="a Transformation, Measurement, Odometer or audit.Subject",
        got=type(obj).__name__,
        hint="wrap a bare function in audit.Subject with its domain, metric and map.",
    )


def _map_of(obj: Any, d_in: Any) -> Callable[[Any], Any]:
    """Return an object's map; of bounds there is one distance only."""
    given = getattr(d_in, "given", None)
    return obj.map if given is None else lambda _: obj.map([*given])


def _driven(measurement: dp.Measurement, drive: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(data: Any) -> Any:
        return drive(measurement(data))

    run.drive = drive  # type: ignore[attr-defined]
    return run


def _odometer(
    odometer: dp.Odometer,
    d_in: Any,
    drive: Callable[[Any], Any] | None,
    core: Callable[[Any], Any] | None,
    noise: Any,
) -> Subject:
    """Return an odometer's subject with its loss after one conversation."""
    if drive is None:
        raise AuditError(
            "OS501", "audit.drive", expected="how to talk to the odometer", got="nothing",
            hint="pass drive= (queryable to transcript).",
        )  # fmt: skip

    def run(data: Any) -> Any:
        queryable = odometer(data)
        transcript = drive(queryable)
        stated = repr(queryable.privacy_loss(d_in))
        # An answer may lead a driver to spend more than the claim, which then says nothing of what
        # follows; that it did is a function of what came before, and is all that is kept.
        other = stated != repr(privacy_map(d_in))
        return _OTHER_LOSS if other else (transcript, ("claimed loss", stated))

    claimed: dict[Any, Any] = {}

    def privacy_map(distance: Any) -> Any:
        if distance not in claimed:
            from opendp_sim.audit.generators.spaces import some_dataset  # noqa: PLC0415

            space = odometer.input_domain, odometer.input_metric
            queryable = odometer(some_dataset(*space, distance))
            drive(queryable)
            claimed[distance] = queryable.privacy_loss(distance)
        return claimed[distance]

    return Subject(
        run=run,
        input_domain=odometer.input_domain,
        input_metric=odometer.input_metric,
        privacy_map=privacy_map,
        measure=odometer.output_measure,
        core=core,
        noise=noise,
        name="odometer",
    )
