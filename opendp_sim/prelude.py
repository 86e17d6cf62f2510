"""Everything an OpenDP user needs: ``import opendp_sim.prelude as sim``.

Importing it loads every mechanism into the catalogue; nothing is registered with OpenDP's Context
until ``sim.register()`` is called.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import opendp_sim.measurements
import opendp_sim.queries
import opendp_sim.rows
import opendp_sim.sketches
from opendp_sim.core.constructors import constructors
from opendp_sim.core.context import register
from opendp_sim.core.mechanism import REGISTRY, load_plugins

_ROOMS = (opendp_sim.rows, opendp_sim.sketches, opendp_sim.measurements, opendp_sim.queries)

for _room in _ROOMS:
    for _module in iter_modules(_room.__path__):
        if not _module.name.startswith("_"):
            import_module(f"{_room.__name__}.{_module.name}")
load_plugins()

for _key, _cls in REGISTRY.items():
    if _cls.room != "queries":
        globals()[f"make_{_key}"], globals()[f"then_{_key}"] = constructors(_cls)

__all__ = sorted(  # noqa: PLE0605
    name for name in globals() if name.startswith(("make_", "then_")) or name == register.__name__
)


def __getattr__(name: str) -> Any:
    raise AttributeError(f"opendp_sim.prelude has no {name!r}; it offers {', '.join(__all__)}")
