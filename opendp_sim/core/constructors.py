"""``make_<key>`` and ``then_<key>``: derived from a mechanism record, never written by hand."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any

from opendp_sim.core import dp
from opendp_sim.core.adopt import adopt_domain, adopt_metric
from opendp_sim.core.bridge import build, then
from opendp_sim.core.claims import Norm, norm_of
from opendp_sim.core.mechanism import Mechanism

__all__ = ["bound", "constructors"]


def bound(mechanism: Mechanism, domain: Any, metric: Any, norm: Norm | None = None) -> Any:
    """Bind ``mechanism`` to a space (ours or OpenDP's) and hand the claim to OpenDP."""
    own_domain, own_metric = adopt_domain(domain), adopt_metric(metric)
    claim = mechanism.bind(own_domain, own_metric)
    return build(claim, mechanism.key, own_domain, own_metric, norm)


def _norm(cls: type[Mechanism], params: dict[str, Any]) -> Norm:
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
