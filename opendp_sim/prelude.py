"""Import OpenDP and this package under one name.

``import opendp_sim.prelude as sim``. Importing it loads every mechanism into the catalogue; nothing is
registered with OpenDP's Context until ``sim.register()`` is called.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import opendp_sim
from opendp_sim.accounting.release.release import read
from opendp_sim.core.constructors import constructors, open_door
from opendp_sim.core.context import register
from opendp_sim.core.mechanism import REGISTRY, load_plugins

_ROOMS = ("transformations", "measurements", "postprocessing")
"""Folders whose modules are mechanisms, in folders of their families; ``_impl`` holds helpers."""

for _room in _ROOMS:
    _folder = [f"{path}/{_room}" for path in opendp_sim.__path__]
    for _module in walk_packages(_folder, prefix=f"opendp_sim.{_room}."):
        if not {"_impl"} & set(_module.name.split(".")) and not _module.ispkg:
            import_module(_module.name)
load_plugins()
open_door()

for _key, _cls in REGISTRY.items():
    if _cls.room != "queries":
        globals()[f"make_{_key}"], globals()[f"then_{_key}"] = constructors(_cls)

__all__ = sorted(  # noqa: PLE0605
    name
    for name in globals()
    if name.startswith(("make_", "then_")) or name in (read.__name__, register.__name__)
)


def __getattr__(name: str) -> Any:
    raise AttributeError(f"opendp_sim.prelude has no {name!r}; it offers {', '.join(__all__)}")
