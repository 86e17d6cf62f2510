"""What a module makes: its OpenDP objects, and those that its functions without arguments return."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from opendp_sim.core import dp

__all__ = ["makers"]

_OBJECTS = (dp.Transformation, dp.Measurement)
_FACTORIES = ("make_", "build_", "create_", "get_", "release_")


def makers(module: str) -> list[tuple[str, Callable[[], Any]]]:
    """Return name and maker of every object that a module holds, or makes without being told anything.

    A function counts when it is the module's own, public, has no required argument, and either is named
    like a factory (``make_``, ``build_``, ``create_``, ``get_``, ``release_``) or is annotated to return
    a Measurement or Transformation. Nothing else is called.
    """
    found = importlib.import_module(module)
    out: list[tuple[str, Callable[[], Any]]] = []
    for name, value in sorted(vars(found).items()):
        if name.startswith("_"):
            continue
        if isinstance(value, _OBJECTS):
            out.append((name, partial(_itself, value)))
        elif inspect.isfunction(value) and value.__module__ == module and _is_factory(name, value):
            out.append((name, value))
    return out


def _itself(value: Any) -> Any:
    return value


def _is_factory(name: str, function: Any) -> bool:
    required = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    told = str(function.__annotations__.get("return", ""))
    returns = "Measurement" in told or "Transformation" in told
    return not required and (returns or name.startswith(_FACTORIES))
