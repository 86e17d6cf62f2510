"""Estimate the similarity of queries to a private dataset.

``import opendp_sim as sim`` offers the verbs (``plan``, ``apply``, ``run``, ``load``, ``verify``),
the package ``audit``, ``Ledger``, ``Limit``, every ``then_*`` and ``make_*``, and ``register``. A name
is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_WHERE = {
    "Answers": "accounting.release.answers",
    "Limit": "accounting.budget",
    "Builder": "dsl.builder",
    "Ledger": "accounting.ledger.ledger",
    "Plan": "dsl.plan.plan",
    "Refused": "dsl.text.diagnostic",
    "Release": "accounting.release.release",
    "SimError": "core.errors",
    "apply": "api.verbs",
    "classes": "api.classes",
    "density": "api.density",
    "distances": "api.distances",
    "labels": "api.labels",
    "load": "api.verbs",
    "means": "api.means",
    "plan": "api.verbs",
    "predict": "api.predict",
    "program": "dsl.builder",
    "quantiles": "api.quantiles",
    "recommend": "api.recommend",
    "read": "accounting.release.release",
    "register": "prelude",
    "run": "api.verbs",
    "session": "api.verbs",
    "standing": "api.verbs",
    "stream": "api.verbs",
    "top": "api.top",
    "verify": "api.verbs",
}
"""Where each name lives; ``audit`` is a package."""


def __getattr__(name: str) -> Any:
    if name.startswith(("then_", "make_")):
        return getattr(import_module("opendp_sim.prelude"), name)
    if name == "audit":
        return import_module("opendp_sim.audit")
    if name not in _WHERE:
        raise AttributeError(f"opendp_sim has no {name!r}; it offers {', '.join(__dir__())}")
    globals()[name] = getattr(import_module(f"opendp_sim.{_WHERE[name]}"), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted([*_WHERE, "audit", "__version__"])
