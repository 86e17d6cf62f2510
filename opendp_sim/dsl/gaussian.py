"""Under ``measure: gdp`` Gaussian noise is the rounded law: the discrete one is never drawn there.

The discrete Gaussian of scale s is not (L2 / s)-Gaussian DP (``accounting/gaussian_curve.md``), so
``noise: gaussian`` names another mechanism under ``gdp``, and OpenDP's own sampler, which has no other
Gaussian, is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from opendp_sim.core.mechanism import REGISTRY
from opendp_sim.dsl.diagnostic import Notes
from opendp_sim.dsl.ir import ReleaseDecl, StageDecl

__all__ = ["rounded_stages"]

_DISCRETE, _ROUNDED = "gaussian", "rounded_gaussian"


def rounded_stages(
    stages: Mapping[str, StageDecl | None], notes: Notes
) -> dict[str, StageDecl | None]:
    """Return the stages of a ``gdp`` program with Gaussian noise as the rounded law; refuse samplers."""
    return {name: None if decl is None else _stage(decl, notes) for name, decl in stages.items()}


def _stage(decl: StageDecl, notes: Notes) -> StageDecl | None:
    release = decl.release
    if release is None or release.key != _DISCRETE:
        return decl
    params = dict(release.params)
    if params.pop("sampler", "auto") == "opendp":
        notes.error("OS405", "OpenDP has no sampler of a Gaussian DP noise",
                    ("flow", decl.name, "release", "sampler"),
                    label="a discrete Gaussian is not Gaussian DP",
                    help="leave `sampler` out, or choose `measure: zcdp`.")  # fmt: skip
        return None
    record = REGISTRY[_ROUNDED].from_spec({"scale": 1.0, **params})
    full = record.spec() if release.kind == "noise" else {**record.spec(), **params}
    if "scale" not in params:
        full.pop("scale")
    return decl.model_copy(update={"release": _renamed(release, full)})


def _renamed(release: ReleaseDecl, params: Mapping[str, object]) -> ReleaseDecl:
    return replace(release, key=_ROUNDED, params=tuple(sorted(params.items())))
