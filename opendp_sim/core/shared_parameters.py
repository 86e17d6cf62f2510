"""Declare the parameters that several mechanisms have."""

from __future__ import annotations

from typing import Annotated

from opendp_sim.core.mechanism import param

Seed = Annotated[
    int,
    param(
        "Seed of the public randomness. It is not a secret and is never derived from data.",
        symbol="s", unit="none", ge=0, lt=2**63,
        hint="any integer in [0, 2**63); another seed draws other public randomness.",
    ),
]  # fmt: skip

Confidence = Annotated[
    float,
    param(
        "Coverage of the interval of each answer.", symbol="c", unit="probability", default=0.95,
        gt=0, lt=1, hint="0.95 is usual.",
    ),
]  # fmt: skip
