"""Opaque twins: plain Python behind ``make_user_measurement``, each broken once and sound once.

They were written from a list of families of faults, before their author had read the auditor
(``hidden_noise`` and ``mended`` after it), and they declare nothing: no core, no noise, no sampler.
``audit(obj, d_in)`` gets exactly what a stranger would give it. ``PAIRS`` holds all of them;
``benchmarks/audit_opaque.py`` runs the campaign.
"""

from tests.audit.opaque import (
    bounds,
    caching,
    hidden_noise,
    keys,
    later,
    learning,
    local,
    mended,
    numbers,
    places,
    selection,
    transforms,
)
from tests.audit.opaque.kit import PAIRS

__all__ = [
    "PAIRS",
    "bounds",
    "caching",
    "hidden_noise",
    "keys",
    "later",
    "learning",
    "local",
    "mended",
    "numbers",
    "places",
    "selection",
    "transforms",
]
