"""``make_<key>`` and ``then_<key>``: derived from a mechanism record, never written by hand."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any

from opendp_sim.core import dp
from opendp_sim.core.bridge import build, then
from opendp_sim.core.claims import Norm, norm_of
from opendp_sim.core.errors import SpaceError
from opendp_sim.core.mechanism import Mechanism
from opendp_sim.core.space import FOREIGN_DOMAINS, FOREIGN_METRICS, Domain, Metric

# --------------------------------------------------------------------------------------------------
# OpenDP's own domains and metrics as descriptors of ours.


def adopt_domain(domain: dp.Domain | Domain) -> Domain:
    """Return our descriptor of an OpenDP domain: our own, or one of OpenDP's that we can read."""
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


def bound(mechanism: Mechanism, domain: Any, metric: Any, norm: Norm | None = None) -> Any:
    """Bind ``mechanism`` to a space (ours or OpenDP's) and hand the claim to OpenDP."""
    own_domain, own_metric = adopt_domain(domain), adopt_metric(metric)
    claim = mechanism.bind(own_domain, own_metric)
    return build(claim, mechanism.key, own_domain, own_metric, norm)


def _norm(cls: type[Mechanism], params: dict[str, Any]) -> Norm:
    words = [*cls.model_fields, "norm"]
    strange = next((name for name in params if name not in words), None)
    if strange is not None:
        raise cls.unknown(strange, words)
    return norm_of(params.pop("norm", "l1"), f"{cls.key}.norm")


def constructors(cls: type[Mechanism]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Derive ``make_<key>(input_domain, input_metric, ...)`` and ``then_<key>(...)``.

    A sketch takes one argument more than its record, ``norm`` (``"l1"`` by default), because an
    OpenDP transformation has exactly one output metric.
    """
    sketch = cls.room == "sketches"

    def make_(input_domain: dp.Domain, input_metric: dp.Metric, **params: Any) -> Any:
        norm = _norm(cls, params) if sketch else None
        return bound(cls(**params), input_domain, input_metric, norm)

    def then_(**params: Any) -> Any:
        norm = _norm(cls, params) if sketch else None
        mechanism = cls(**params)
        return then(lambda domain, metric: bound(mechanism, domain, metric, norm))

    own = [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if info.is_required() else info.default,
            annotation=info.annotation,
        )
        for name, info in cls.model_fields.items()
    ]
    if sketch:
        own.append(Parameter("norm", Parameter.KEYWORD_ONLY, default="l1", annotation=Norm))
    for prefix, function, taken in (("make", make_, 2), ("then", then_, 0)):
        given = list(signature(function).parameters.values())[:taken]
        function.__name__ = function.__qualname__ = f"{prefix}_{cls.key}"
        function.__doc__ = cls.__doc__
        function.__dict__["__signature__"] = Signature([*given, *own])
    return make_, then_
