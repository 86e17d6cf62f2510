"""``sim.register()``: this package's mechanisms in OpenDP's Context, on request, under ``sim_`` names.

OpenDP's registry is global to the process and refuses a name that is taken, so nothing is registered
by importing, names carry a prefix, and registering again does nothing.
"""

from __future__ import annotations

from opendp_sim.core.constructors import constructors
from opendp_sim.core.mechanism import REGISTRY

PREFIX = "sim_"
_done: dict[str, type] = {}


def register() -> tuple[str, ...]:
    """Register every mechanism with ``dp.Context``; return the names, ``sim_<key>``.

    Idempotent: mechanisms that are there already are left alone, later ones (a plugin's) are added.

    Example:
        >>> import opendp_sim.prelude as sim
        >>> "sim_race_sketch" in sim.register()
        True
    """
    from opendp.context import register as hand_over  # noqa: PLC0415 - imports OpenDP's extras

    for key, cls in REGISTRY.items():
        if cls.room != "queries" and key not in _done:
            make, _ = constructors(cls)
            hand_over(make, name=f"{PREFIX}{key}")
            _done[key] = cls
    return tuple(f"{PREFIX}{key}" for key in _done)
