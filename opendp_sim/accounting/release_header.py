"""The header of a release, as a file holds it: every field and its type, and nothing else."""

from __future__ import annotations

from typing import Literal

from opendp_sim.accounting.strict_models import Digest, Plain, Strict

__all__ = ["Header"]


class _Array(Strict):
    sha256: Digest
    shape: list[int]
    dtype: str


class _Noise(Strict):
    family: str
    scale: str
    weights: list[list[int]]
    sampler: str
    step: str = "1"


class Header(Strict):
    """What a release says of itself; descriptors and steps are read by their own strict records."""

    format: Literal["opendp_sim/release/1"]
    versions: dict[str, str]
    source: Plain
    metric: Plain
    steps: list[dict[str, Plain]]
    noise: _Noise | None
    privacy: Plain
    matrices: list[str]
    arrays: dict[str, _Array]
