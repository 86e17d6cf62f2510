"""Rows of the law table: every module here exports ``CASES``, key or ``key/variant`` to ``Case``."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from opendp_sim.testing import Case


def cases() -> dict[str, Case]:
    found: dict[str, Case] = {}
    for module in iter_modules(__path__):
        for key, case in import_module(f"{__name__}.{module.name}").CASES.items():
            assert key not in found, f"two rows for {key}"
            found[key] = case
    return found
