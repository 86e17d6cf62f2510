"""Derive ``make_<key>`` and ``then_<key>`` from a mechanism record."""

from __future__ import annotations

import sys
from collections.abc import Callable
from inspect import Parameter, Signature, signature
from types import ModuleType
from typing import Any

from opendp_sim.core import dp
from opendp_sim.core.about import keyword_of
from opendp_sim.core.arithmetic.plain_numbers import python_value
from opendp_sim.core.bridge import build, noted, then, to_dp_domain, to_dp_metric
from opendp_sim.core.claims import Norm, norm_of
from opendp_sim.core.errors import ParameterError, SpaceError
from opendp_sim.core.mechanism import Mechanism, lookup
from opendp_sim.core.serialization import DOOR, BoundNote, Unbound, from_plain
from opendp_sim.core.space import FOREIGN_DOMAINS, FOREIGN_METRICS, Domain, Metric

# --------------------------------------------------------------------------------------------------
# OpenDP's own domains and metrics as descriptors of ours.


def adopt_domain(domain: dp.Domain | Domain) -> Domain:
    """Return our descriptor of an OpenDP domain, or our own domain."""
    found: Domain = _adopt(domain, Domain, FOREIGN_DOMAINS, "OS201", "input_domain")
    return found


def adopt_metric(metric: dp.Metric | Metric) -> Metric:
    """Return our descriptor of an OpenDP metric."""
    found: Metric = _adopt(metric, Metric, FOREIGN_METRICS, "OS202", "input_metric")
    return found


def _adopt(native: Any, kind: type, readers: list[Any], code: str, where: str) -> Any:
    if isinstance(native, kind):
        return native
    descriptor = getattr(native, "descriptor", None)
    if isinstance(descriptor, kind):
        return descriptor
    for read in readers:
        if (found := read(native)) is not None:
            return found
    hint = (
        "start from array2_domain(num_columns=..., nan=False, T=float) under "
        "symmetric_distance(), or from a domain of opendp_sim."
    )
    if "FrameDomain" in str(native):
        hint = (
            "frames do not chain here: give Context `data=frame.select(columns).to_numpy()` and "
            "`domain=array2_domain(...)`, or hand the frame itself to `sim.density` or `sim.apply`."
        )
    raise SpaceError(
        code, where, expected=f"a {where.split('_')[1]} this package has a proof for",
        got=str(native), hint=hint,
    )  # fmt: skip


# --------------------------------------------------------------------------------------------------


def bind_to_opendp(mechanism: Mechanism, domain: Any, metric: Any, norm: Norm | None = None) -> Any:
    """Bind ``mechanism`` to a space, ours or OpenDP's, as OpenDP object."""
    own_domain, own_metric = adopt_domain(domain), adopt_metric(metric)
    claim = mechanism.bind(own_domain, own_metric)
    made = build(claim, mechanism.key, own_domain, own_metric, norm)
    return noted(made, BoundNote(mechanism, own_domain, own_metric, norm))


def unbound(mechanism: Mechanism, norm: Norm | None = None) -> Any:
    """Return the partial constructor of ``mechanism``."""
    return then(
        lambda domain, metric: bind_to_opendp(mechanism, domain, metric, norm),
        Unbound(mechanism, norm),
    )


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
        return bind_to_opendp(cls(**params), input_domain, input_metric, norm)

    def then_(*values: Any, **params: Any) -> Any:
        params = _named(cls, values, params)
        norm = _norm(cls, params)
        return unbound(cls(**params), norm)

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


def _read_chain(first: Any, second: Any) -> Any:
    return first >> second


def _read_space(descriptor: Any) -> Any:
    found = from_plain(descriptor)
    return to_dp_domain(found) if isinstance(found, Domain) else to_dp_metric(found)


def open_door() -> None:
    """Make the readers visible to ``dp.deserialize``.

    OpenDP looks for modules in its own package only. The prelude calls it, when every mechanism is
    registered.
    """
    door = ModuleType(f"opendp.{DOOR}", "Reads what `dp.serialize` wrote of opendp_sim's objects.")
    readers = {"make": _read_make, "then": _read_then, "space": _read_space, "chain": _read_chain}
    vars(door).update(readers)
    sys.modules[door.__name__] = door
