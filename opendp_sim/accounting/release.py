"""A release: named arrays and a header of public facts, in one file without pickle.

The header holds everything that a question needs on another machine: the source's declaration, the
steps with their seeds, the noise, the privacy claim, versions, and the sha256 of every array and of
every public matrix. Loading re-draws the matrices from their seeds and compares.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.claims import Noise, Stable, Stage
from opendp_sim.core.errors import ReleaseError, SimError
from opendp_sim.core.mechanism import Mechanism, lookup
from opendp_sim.core.pipeline import bind_steps, on_queries
from opendp_sim.core.randomness import fingerprint
from opendp_sim.core.space import Domain, Metric
from opendp_sim.spaces.released import Released
from opendp_sim.spaces.serial import from_json, to_json
from opendp_sim.spaces.sketch import Sketch

__all__ = ["FORMAT", "Release", "versions"]

FORMAT = "opendp_sim/release/1"
_HEADER, _DIGEST = "header.json", "header.sha256"


def versions() -> dict[str, str]:
    """Return the versions that a release depends on."""
    out = {}
    for name in ("opendp_sim", "opendp", "numpy", "scipy"):
        try:
            out[name] = version(name)
        except PackageNotFoundError:
            out[name] = "unknown"
    return out


@dataclass(frozen=True)
class Release:
    """What left the private side: arrays by block name, and the header."""

    header: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]

    @classmethod
    def of_sketch(
        cls,
        stages: Sequence[Stage],
        flat: NDArray[np.int64],
        noise: Noise | None,
        privacy: Mapping[str, Any],
    ) -> Release:
        """Make the release of a noisy sketch.

        Args:
            stages: row maps and, last, the sketch, bound to the source.
            flat: the released cells, shape (size,).
            noise: the law that was added; None only for data that was public to begin with.
            privacy: the claim, as plain JSON.
        """
        sketch = stages[-1].claim
        if not isinstance(sketch, Stable) or not isinstance(sketch.output, Sketch):
            raise ReleaseError(
                "OS702", "release", expected="a pipeline that ends in a sketch", got="another one",
                hint="add a sketch step before the noise.",
            )  # fmt: skip
        arrays = sketch.output.split(np.ascontiguousarray(flat))
        header = {
            "format": FORMAT,
            "versions": versions(),
            "source": to_json(stages[0].domain),
            "metric": to_json(stages[0].metric),
            "steps": [{stage.mechanism.key: stage.mechanism.spec()} for stage in stages],
            "noise": None if noise is None else _noise_to_json(noise),
            "privacy": dict(privacy),
            "matrices": [fingerprint(_matrices(stage)) for stage in stages],
            "arrays": {name: _describe(array) for name, array in arrays.items()},
        }
        return cls(header, arrays)

    # --- reading it -----------------------------------------------------------------------------

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The pipeline, bound again from the header; its matrices are re-drawn and compared."""
        try:
            domain: Domain = from_json(self.header["source"])
            metric: Metric = from_json(self.header["metric"])
            mechanisms = [_mechanism(step) for step in self.header["steps"]]
        except SimError:
            raise
        except Exception:  # noqa: BLE001 - an edited header fails in many ways
            raise _foreign() from None
        stages = bind_steps(domain, metric, mechanisms)
        if [fingerprint(_matrices(stage)) for stage in stages] != self.header["matrices"]:
            raise ReleaseError(
                "OS703", "release", expected="the public matrices that the release was made with",
                got="other ones", hint="install the numpy version named in the header's `versions`.",
            )  # fmt: skip
        return stages

    @cached_property
    def released(self) -> Released:
        """The descriptor that query mechanisms bind to."""
        claim, noise = self.stages[-1].claim, self.header["noise"]
        if not isinstance(claim, Stable) or not isinstance(claim.output, Sketch):
            raise _foreign()
        shapes = {block.name: block.shape for block in claim.output.blocks}
        if {name: array.shape for name, array in self.arrays.items()} != shapes:
            raise _foreign()
        return Released(
            sketch=claim.output,
            capabilities=claim.capabilities,
            noise=None if noise is None else _noise_from_json(noise),
            queries=self.stages[-1].domain,
        )

    def queries(self, queries: Any) -> Any:
        """Send public queries through the release's own row maps."""
        return on_queries(self.stages, queries)

    # --- the file -------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the release to ``path`` atomically: a zip of .npy members and a JSON header."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(target.name + ".partial")
        header = json.dumps(self.header, sort_keys=True).encode()
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(_HEADER, header)
            archive.writestr(_DIGEST, hashlib.sha256(header).hexdigest())
            for name, array in self.arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
        partial.replace(target)
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Release:
        """Read a release, refusing a truncated, tampered or foreign file (OS701).

        The digests find damage and careless edits. They are no signature: whoever can rewrite the
        file can rewrite them.
        """
        try:
            with zipfile.ZipFile(path) as archive:
                raw = archive.read(_HEADER)
                header = json.loads(raw)
                if hashlib.sha256(raw).hexdigest() != archive.read(_DIGEST).decode():
                    raise _foreign()
                if header["format"] != FORMAT:
                    raise _foreign()
                arrays = {}
                for name, about in header["arrays"].items():
                    with archive.open(f"{name}.npy") as member:
                        arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
                    if _describe(arrays[name]) != about:
                        raise _foreign()
        except SimError:
            raise
        except FileNotFoundError:
            raise ReleaseError(
                "OS701", "release", expected="a release file", got="no such file",
                hint="check the path; `opendp-sim apply` writes releases where `save:` says.",
            ) from None  # fmt: skip
        except Exception:  # noqa: BLE001 - a damaged archive fails in many ways
            raise _foreign() from None
        return cls(header, arrays)


def _foreign() -> ReleaseError:
    return ReleaseError(
        "OS701", "release", expected="a release file as this package wrote it",
        got="a truncated, changed or foreign file", hint="name the .npz of an output "
        "without `post`; if it is that, copy it again from where it was made.",
    )  # fmt: skip


def _matrices(stage: Stage) -> tuple[NDArray[np.generic], ...]:
    return stage.claim.matrices if isinstance(stage.claim, Stable) else ()


def _describe(array: NDArray[Any]) -> dict[str, Any]:
    return {"sha256": fingerprint([array]), "shape": list(array.shape), "dtype": array.dtype.str}


def _mechanism(step: Mapping[str, Any]) -> Mechanism:
    ((key, params),) = step.items()
    mechanism: Mechanism = lookup(key).from_spec(params)
    return mechanism


def _noise_to_json(noise: Noise) -> dict[str, Any]:
    return {
        "family": noise.family,
        "scale": noise.scale.hex(),
        "weights": [list(run) for run in noise.weights],
        "sampler": noise.sampler,
    }


def _noise_from_json(value: Mapping[str, Any]) -> Noise:
    weights = tuple((int(cells), int(weight)) for cells, weight in value["weights"])
    return Noise(value["family"], float.fromhex(value["scale"]), weights, value["sampler"])
