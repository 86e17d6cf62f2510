"""The frozen corpus: one seed of the cheap twins and controls on every push, everything in `deep`."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from opendp_sim.audit import Twin, audit, collect
from opendp_sim.audit.findings import Budget
from opendp_sim.core.errors import AuditError

TWINS, CONTROLS = collect(Path(__file__).parent)
CHEAP = replace(
    Budget.of("quick"),
    name="ci",
    stability_seconds=0.4,
    stability_trials=1500,
    structure_pairs=12,
    seconds=0.5,
)
"""Two fifths of a second of search: enough for L0, L1, L2 and L4."""
SAMPLED = (
    "classic/",
    "black_box",
    "released",
    "top/no_noise",
    "noise_reused",
    "overlap",
    "clipped",
    "ind_knn/",
    "private_knn/",
    "stable_set/off_by_one_gap",
    "stable_set/gap_leaked",
)
"""Names of the twins that only many releases show, by the whole-curve test or a slow service: one of each
kind in the quick suite, all of them in `deep`."""
QUICK_SAMPLED = ("classic/svt_5_no_query_noise", "classic/noisy_max_3_value", "top/threshold_one_low_black_box",
                 "noise/black_box_half", "knn/black_box_no_filter", "top/order_released")  # fmt: skip


def _sampled(twin: Twin) -> bool:
    return any(part in twin.name for part in SAMPLED)


@pytest.mark.audit
@pytest.mark.parametrize("twin", [t for t in TWINS if not _sampled(t)], ids=lambda t: t.name)
def test_twin_is_refuted(twin: Twin):
    report = audit(twin.make(), twin.d_in, seed=1, **twin.options)
    assert report.verdict == "refuted", str(report)
    assert report.replay
    assert report.evidence.pair is not None


@pytest.mark.audit
@pytest.mark.parametrize(
    "twin", [t for t in TWINS if t.name in QUICK_SAMPLED], ids=lambda t: t.name
)
def test_sampled_twin_is_refuted(twin: Twin):
    report = audit(twin.make(), twin.d_in, seed=1, **twin.options)
    assert report.layer == "L3 distribution", str(report)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("twin", TWINS, ids=lambda t: t.name)
def test_every_twin_is_refuted_deep(twin: Twin, seed: int):
    assert audit(twin.make(), twin.d_in, "deep", seed=seed, **twin.options).verdict == "refuted"


@pytest.mark.audit
@pytest.mark.parametrize("control", CONTROLS[::5], ids=lambda c: c.name)
def test_sound_mechanism_is_not_refuted(control):
    """False-alarm rate 1e-6 each."""
    report = audit(control.make(), control.d_in, CHEAP, seed=2, beta=1e-6, **control.options)
    assert report.verdict == "not refuted", str(report)
    assert any(layer.power for layer in report.layers)


@pytest.mark.deep
@pytest.mark.parametrize("control", CONTROLS, ids=lambda c: c.name)
def test_sound_mechanism_is_not_refuted_deep(control):
    """False-alarm rate 1e-6 each."""
    assert (
        audit(control.make(), control.d_in, "deep", beta=1e-6, **control.options).verdict
        == "not refuted"
    )


def test_every_family_of_stand_ins_has_six_twins():
    families = {t.family for t in TWINS}
    for family in ("race", "fourier", "tree", "knn", "top", "noise", "composition", "classic"):
        assert sum(t.family == family for t in TWINS) >= 6
    assert len(TWINS) >= 48
    assert len(families) >= 8
    assert sum(c.family == "opendp" for c in CONTROLS) >= 24


def test_corpus_refuses_a_doubled_name(tmp_path: Path):
    line = "from opendp_sim.audit import Twin\nTWINS = [Twin(name='a/b', make=int, why='x')] * 2\n"
    (tmp_path / "twins_x.py").write_text(line)
    with pytest.raises(AuditError, match="OS501"):
        collect(tmp_path)


def test_auditor_needs_no_heavy_package():
    """Nothing heavy beyond what OpenDP imports by itself where it is installed."""
    code = (
        "import sys, opendp.prelude; before = set(sys.modules); import opendp_sim.audit; "
        "heavy = {'torch', 'tensorflow', 'jax', 'sklearn', 'dp_accounting'}; "
        "print(sorted(heavy & (set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
