"""Derive ``make_<key>`` and ``then_<key>`` from a mechanism record."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from inspect import Parameter, Signature, signature
from types import ModuleType
from typing import Any

from opendp_sim.core import dp
from opendp_sim.core.about import keyword_of
from opendp_sim.core.arithmetic.plain_numbers import python_value
from opendp_sim.core.bridge import build, cast_to, noted, then, to_dp_domain, to_dp_metric
from opendp_sim.core.claims import Claim, Interactive, Norm, Private, Stable, norm_of
from opendp_sim.core.errors import ParameterError, SpaceError
from opendp_sim.core.mechanism import Mechanism, lookup
from opendp_sim.core.serialization import DOOR, BoundNote, CastNote, Unbound, Unwritten, from_plain
from opendp_sim.core.space import (
    CAST_DOMAINS,
    CAST_METRICS,
    FOREIGN_DOMAINS,
    FOREIGN_METRICS,
    Domain,
    DomainCast,
    Metric,
    MetricCast,
)

# --------------------------------------------------------------------------------------------------
# OpenDP's own domains and metrics as descriptors of ours.


def adopt_domain(domain: dp.Domain | Domain) -> Domain:
    """Return our descriptor of an OpenDP domain, or our own domain."""
    found: Domain | None = _equal(domain, Domain, FOREIGN_DOMAINS)
    if found is None:
        raise _unknown(domain, "OS201", "input_domain")
    return found


def adopt_metric(metric: dp.Metric | Metric) -> Metric:
    """Return our descriptor of an OpenDP metric."""
    found: Metric | None = _equal(metric, Metric, FOREIGN_METRICS)
    if found is None:
        raise _unknown(metric, "OS202", "input_metric")
    return found


_last: dict[type, tuple[Any, Any]] = {}
"""The object that was read last, and our descriptor: a search binds one space a hundred times."""


def _equal(native: Any, kind: type, readers: list[Any]) -> Any:
    if isinstance(native, kind):
        return native
    descriptor = getattr(native, "descriptor", None)
    if isinstance(descriptor, kind):
        return descriptor
    before, found = _last.get(kind, (None, None))
    if before is native and found is not None:
        return found
    found = next((found for read in readers if (found := read(native)) is not None), None)
    _last[kind] = native, found
    return found


def _unknown(native: Any, code: str, where: str) -> SpaceError:
    return SpaceError(
        code, where, expected=f"a {where.split('_')[1]} this package has a proof for",
        got=str(native), hint="start from array2_domain(num_columns=..., nan=False, T=float) under "
        "symmetric_distance(), or from a domain of opendp_sim.",
    )  # fmt: skip


def _space(
    domain: Any, metric: Any, reads: frozenset[str] | None = None
) -> tuple[Domain, Metric, dp.Transformation | None]:
    """Return our space for one of OpenDP's, and the transformation between.

    The transformation is None where they are equal.
    The transformation goes row by row, and its map bounds our distance (``domains/casts.md``).
    """
    own, distance = _equal(domain, Domain, FOREIGN_DOMAINS), _equal(metric, Metric, FOREIGN_METRICS)
    rows: DomainCast | None = None
    steps: MetricCast | None = None
    if own is None:
        rows = next((cast for read in CAST_DOMAINS if (cast := read(domain)) is not None), None)
        rows = rows if rows is None or reads is None else rows.only(reads)
        own = adopt_domain(domain) if rows is None else rows.domain
    if distance is None:
        steps = next((bound for read in CAST_METRICS if (bound := read(metric)) is not None), None)
        distance = adopt_metric(metric) if steps is None else steps.metric
    if rows is None and steps is None:
        return own, distance, None
    native = to_dp_metric(metric) if isinstance(metric, Metric) else metric
    note = CastNote(own if rows is None else domain, native, reads)
    function = (lambda data: data) if rows is None else rows.function
    made = cast_to(note, (own, distance), function, int if steps is None else steps.distance)
    return own, distance, made


# --------------------------------------------------------------------------------------------------


def bind_to_opendp(
    mechanism: Mechanism,
    domain: Any,
    metric: Any,
    norm: Norm | None = None,
    refusal: ParameterError | None = None,
) -> Any:
    """Bind ``mechanism`` to a space, ours or OpenDP's, as OpenDP object.

    With a ``refusal`` it has the limit of its map, and raises that instead of a release.
    """
    own_domain, own_metric, cast = _space(domain, metric)
    claim = mechanism.bind(own_domain, own_metric)
    if cast is not None and isinstance(claim, Stable) and claim.reads is not None:
        own_domain, own_metric, cast = _space(domain, metric, claim.reads)
        claim = mechanism.bind(own_domain, own_metric)
    if refusal is not None:
        made = build(_refusing(claim, refusal), mechanism.key, own_domain, own_metric, norm)
    else:
        made = build(claim, mechanism.key, own_domain, own_metric, norm)
        made = noted(made, BoundNote(mechanism, own_domain, own_metric, norm))
    return made if cast is None else cast >> made


def unbound(
    mechanism: Mechanism, norm: Norm | None = None, refusal: ParameterError | None = None
) -> Any:
    """Return the partial constructor of ``mechanism``."""
    return then(
        lambda domain, metric: bind_to_opendp(mechanism, domain, metric, norm, refusal),
        Unbound(mechanism, norm) if refusal is None else Unwritten(refusal.where),
    )


# --------------------------------------------------------------------------------------------------
# OpenDP's searches evaluate a constructor at 0 first. Where that is refused they look for the end of the
# refusals to the last bit: a thousand constructions, where the search itself takes sixty.

SEARCHED = {"scale": math.inf, "rho": 0.0, "epsilon": 0.0}
"""Parameters that a budget determines, with the limit of the loss as they go to 0."""


def at_the_end(cls: type[Mechanism], params: dict[str, Any]) -> tuple[Any, ParameterError | None]:
    """Return a record, with its refusal where a searched parameter is 0.

    The record is then at 1, or at the end of the range beside it: it has the space and the measure, and
    `bind_to_opendp` states the limit of the loss and no release.
    """
    try:
        return cls(**params), None
    except ParameterError as refusal:
        name = refusal.where.removeprefix(f"{cls.key}.")
        zero = type(params.get(name)) in (int, float) and params[name] == 0
        if cls.room != "measurements" or name not in SEARCHED or not zero:
            raise
        return cls(**{**params, name: nearest(cls, name, 1.0)}), refusal.with_traceback(None)


def nearest(cls: type[Mechanism], name: str, value: float) -> float:
    """Return the nearest number to ``value`` within a parameter's declared range."""
    near = value
    for bound in cls.model_fields[name].metadata:
        for word, end in (("ge", math.inf), ("gt", math.inf), ("le", -math.inf), ("lt", -math.inf)):
            at = getattr(bound, word, None)
            if at is None or (near > at if end > 0 else near < at):
                continue
            if word in ("ge", "le"):
                near = type(value)(at)
            elif type(value) is int:
                near = at + int(math.copysign(1, end))
            else:
                near = math.nextafter(at, end)
    return near


def _refusing(claim: Claim, refusal: ParameterError) -> Claim:
    """Return a measurement's claim at its loss's limit, without release.

    What raises whatever the data costs nothing: every loss that is stated of it holds.
    """
    if not isinstance(claim, Interactive | Private):
        raise refusal
    native = claim.native if isinstance(claim, Private) else None
    at_one = claim.privacy_map if native is None else native.map
    profile = claim.measure == "smoothed_max_divergence"
    limit = SEARCHED[refusal.where.rpartition(".")[2]]

    def loss(d_in: Any) -> Any:
        found, most = at_one(d_in), limit if d_in else 0.0
        if isinstance(found, tuple):
            return most, min(most, 1.0)
        return (lambda _: min(most, 1.0) if profile else most) if callable(found) else most

    def refuse(_: Any) -> Any:
        raise refusal

    if isinstance(claim, Interactive):
        return replace(claim, privacy_map=loss, start=refuse, resume=None)
    return replace(claim, privacy_map=loss, function=refuse, native=None, noise=None, core=None)


def _norm(cls: type[Mechanism], params: dict[str, Any]) -> Norm | None:
    if cls.room != "sketches":
        return None
    words = [*cls.model_fields, "norm"]
    strange = next((name for name in params if name not in words), None)
    if strange is not None:
        raise cls.unknown(strange, words)
    return norm_of(python_value(params.pop("norm", "l1")), f"{cls.key}.norm")


def missing_parameter(cls: type[Mechanism], params: dict[str, Any]) -> list[str]:
    """Return the names of parameters that must be given and are not."""
    return [n for n, info in cls.model_fields.items() if info.is_required() and n not in params]


def _named(cls: type[Mechanism], values: tuple[Any, ...], params: dict[str, Any]) -> dict[str, Any]:
    """Return parameters by name, as OpenDP's ``Context`` leaves one out."""
    left = missing_parameter(cls, params)
    if not values:
        return params
    if len(values) == len(left) == 1:
        return {left[0]: values[0], **params}
    raise ParameterError(
        "OS101", cls.key, expected="parameters by name, or all but one of those that must be given",
        got=f"{len(values)} without a name", hint=f"see `opendp-sim explain {cls.key}`.",
    )  # fmt: skip


def constructors(cls: type[Mechanism]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Derive ``make_<key>(input_domain, input_metric, ...)`` and ``then_<key>(...)``.

    A sketch takes one argument more than its record, ``norm`` (``"l1"`` by default), because an
    OpenDP transformation has exactly one output metric.
    """

    def make_(input_domain: dp.Domain, input_metric: dp.Metric, *values: Any, **params: Any) -> Any:
        params = _named(cls, values, params)
        norm = _norm(cls, params)
        record, refusal = at_the_end(cls, params)
        return bind_to_opendp(record, input_domain, input_metric, norm, refusal)

    def then_(*values: Any, **params: Any) -> Any:
        params = _named(cls, values, params)
        norm = _norm(cls, params)
        record, refusal = at_the_end(cls, params)
        return unbound(record, norm, refusal)

    # Those that must be given first: OpenDP's `Context` looks for what is missing up to a default.
    fields = sorted(cls.model_fields.items(), key=lambda field: not field[1].is_required())
    alone = sum(info.is_required() for _, info in fields) == 1
    own = [keyword_of(name, info) for name, info in fields]
    if alone:
        own[0] = own[0].replace(kind=Parameter.POSITIONAL_OR_KEYWORD)
    if cls.room == "sketches":
        own.append(Parameter("norm", Parameter.KEYWORD_ONLY, default="l1", annotation=Norm))
    for prefix, function, taken in (("make", make_, 2), ("then", then_, 0)):
        given = list(signature(function).parameters.values())[:taken]
        function.__name__ = function.__qualname__ = f"{prefix}_{cls.key}"
        function.__doc__ = cls.__doc__
        function.__dict__["__signature__"] = Signature([*given, *own])
    return make_, then_


# --------------------------------------------------------------------------------------------------
# What ``dp.deserialize`` calls. Each takes plain data and looks names up; see ``core/serialization.py``.


def _read_make(
    key: str, params: dict[str, Any], norm: Any, input_domain: Any, input_metric: Any
) -> Any:
    space = from_plain(input_domain), from_plain(input_metric)
    return bind_to_opendp(lookup(key).from_spec(params), *space, _read_norm(key, norm))


def _read_then(key: str, params: dict[str, Any], norm: Any) -> Any:
    return unbound(lookup(key).from_spec(params), _read_norm(key, norm))


def _read_norm(key: str, norm: Any) -> Norm | None:
    return None if norm is None else norm_of(norm, f"{key}.norm")


def _read_space(descriptor: Any) -> Any:
    found = from_plain(descriptor)
    return to_dp_domain(found) if isinstance(found, Domain) else to_dp_metric(found)


def _read_cast(input_domain: Any, input_metric: Any, reads: Any) -> Any:
    domain = from_plain(input_domain) if isinstance(input_domain, dict) else input_domain
    return _space(domain, input_metric, None if reads is None else frozenset(reads))[2]


def open_door() -> None:
    """Make the readers visible to ``dp.deserialize``.

    OpenDP looks for modules in its own package only. The prelude calls it, when every mechanism is
    registered.
    """
    door = ModuleType(f"opendp.{DOOR}", "Reads what `dp.serialize` wrote of opendp_sim's objects.")
    vars(door).update(make=_read_make, then=_read_then, space=_read_space, cast=_read_cast)
    vars(door)["chain"] = lambda first, second: first >> second
    sys.modules[door.__name__] = door
