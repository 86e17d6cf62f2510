"""Every spec in ``specs/`` runs as it is, its certificates verify, and its meaning does not drift."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.accounting.certificate.check_certificate import check_certificate
from opendp_sim.core.mechanism import REGISTRY
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.dsl.reading import read_spec
from opendp_sim.dsl.run.execute import apply
from opendp_sim.dsl.verification.verify import verify
from tests._golden import compare
from tests._plans import planned
from tests._tiers import tiered

SPECS = sorted((Path(__file__).parent.parent / "specs").glob("*.yaml"))

FEW = {
    "bright-pixels",
    "cancer-distances",
    "cancer-slices",
    "digits-linear",
    "five-systems",
    "cities-lattice",
    "teacher-votes",
    "writers-density",
}
"""Runs in the suite: of each family of releases one; the others in `long`."""

VALUES = {
    "cancer-distances": {"distances": 0.55},
    "cancer-slices": {"distances": 180.0},
    "cities-lattice": {"nearby": 115.0},
    "cities-modes": {"density": 120.0},
    "cities-scales": {"density": 300.0, "ring_density": 270.0},
    "cities-smooth": {"mixture_density": 410.0, "sum_density": 400.0},
    "digit-density": {"densities": 40.0},
    "digit-fourier": {"density": 0.21},
    "digit-means": {"distances": 2200.0},
    "five-systems": {"distances": 240.0, "densities": 148.0},
    "flights-density": {"density": 880.0},
    "penguins-density": {"density": 17.0},
    "penguins-means": {"distances": 0.21},
    "writers-density": {"density": 110.0},
}
"""The middle answer of each output, as it was measured (`specs/data/README.md`)."""


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.stem)
def test_spec_means_what_it_meant(spec: Path) -> None:
    """Program hash, loss of every release, total and claim; review any change of this file."""
    plan = planned(spec)
    found = plan.plain()
    kept = {
        "program": found["program"],
        "losses": {name: release["loss"] for name, release in found["releases"].items()},
        "total": found["total"],
        "claim": found["claim"],
    }
    compare(f"specs/{spec.stem}.json", json.dumps(kept, indent=1, sort_keys=True))


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "spec", tiered(SPECS, lambda spec: spec.stem in FEW), ids=lambda path: path.stem
)
def test_a_brief_spec_means_the_same(spec: Path) -> None:
    """Defaults are left out, nothing else: the hash is equal."""
    plan = planned(spec)
    text = plan.to_yaml(brief=True)
    seen = read_spec(text, "brief.yaml", str(spec.parent))
    assert seen.plan is not None, seen.findings
    assert seen.plan.program.hash == plan.program.hash
    assert len(text) < len(plan.to_yaml())


@pytest.mark.parametrize(
    "spec", tiered(SPECS, lambda spec: spec.stem in FEW), ids=lambda path: path.stem
)
def test_spec_runs_and_its_certificates_verify(spec: Path, tmp_path: Path) -> None:
    plan = planned(spec)
    if any(release.interactive for release in plan.releases.values()):
        plan = plan_file(shutil.copy(spec, tmp_path))  # its store lies beside the spec
    done = apply(plan, into=tmp_path)
    assert len(done.files) + len(done.stores) == len(plan.outputs)
    assert all(store.stat().st_size > 0 for store in done.stores.values())
    for name, value in VALUES.get(spec.stem, {}).items():
        found = done.results[name]
        half = float(np.median(np.subtract(found["upper"], found["lower"]))) / 2
        assert half < 0.75 * value, name  # noise has little part in an interval's width
    for name, path in done.files.items():
        assert path.stat().st_size > 0, name
        checked, _ = verify(done.certificates[name])
        assert checked
        assert not check_certificate(done.certificates[name]).gaps, name


def test_every_mechanism_is_in_a_spec() -> None:
    text = "\n".join(spec.read_text("utf-8") for spec in SPECS)
    missing = {key for key in REGISTRY if f"{key}:" not in text and f"noise: {key}" not in text}
    assert not missing, sorted(missing)
