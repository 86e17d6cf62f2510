"""Every constructor of OpenDP 0.16 and its standing in the auditor's corpus.

python benchmarks/opendp_sweep.py            # the table
python benchmarks/opendp_sweep.py --audit    # audits controls and defects once as well
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import opendp.prelude as dp  # noqa: E402
from opendp import combinators, measurements, transformations  # noqa: E402

from opendp_sim.audit import audit  # noqa: E402
from opendp_sim.audit.findings import Effort  # noqa: E402
from tests.audit.twins.entries import collect  # noqa: E402

dp.enable_features("contrib", "honest-but-curious")

CONDITIONAL = {
    "make_population_amplification": "conditional: refused, since it holds while the sample is secret",
    "make_select_private_candidate": "conditional: of a whole selection",
    "make_privacy_filter": "asked: default driver, odometers",
    "make_fully_adaptive_composition": "asked: default driver, odometers",
    "make_adaptive_composition": "asked: default driver",
    "make_sequential_composition": "asked: default driver",
    "make_alp_queryable": "asked: keys",
    "make_private_expr": "needs pairs= or generator= (data frames)",
    "make_private_lazyframe": "needs pairs= or generator= (data frames)",
    "make_stable_expr": "needs pairs= or generator= (data frames)",
    "make_stable_lazyframe": "needs pairs= or generator= (data frames)",
    "make_randomized_response_bitvec": "needs pairs= or generator= (bit vectors)",
    "make_user_measurement": "what the author claims: the opaque corpus",
    "make_user_transformation": "what the author claims: the opaque corpus",
    "make_proof_link": "no claim of its own",
    **dict.fromkeys(
        ("make_cdf", "make_quantiles_from_counts", "make_consistent_b_ary_tree"),
        "a function without a map: post-processing",
    ),
    **dict.fromkeys(
        ("make_chain_mt", "make_chain_pm", "make_chain_tt"),
        "what `>>` calls: every chained control of the corpus",
    ),
    **dict.fromkeys(
        (
            "make_create_dataframe",
            "make_df_cast_default",
            "make_df_is_equal",
            "make_select_column",
            "make_split_dataframe",
            "make_split_lines",
            "make_split_records",
            "make_subset_by",
        ),
        "needs pairs= or generator= (texts and data frames, deprecated)",
    ),
    "make_gaussian_threshold": "make_noise_threshold's code: its defect is in the corpus",
}


def standings() -> dict[str, str]:
    """Return the standing of every constructor, read from the corpus and its code."""
    source = "\n".join(
        p.read_text("utf-8") for p in sorted((ROOT / "tests/audit/twins").glob("twins_*.py"))
    )
    out = {}
    for module in (measurements, transformations, combinators):
        for name in sorted(n for n in dir(module) if n.startswith("make_")):
            then = name.replace("make_", "then_")
            used = f".{name}(" in source or f".{then}(" in source
            out[name] = CONDITIONAL.get(name) or ("in the corpus" if used else "not audited")
    return out


def main() -> None:
    """Print the table; with ``--audit`` the verdicts of the native entries too."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--audit", action="store_true")
    ask.add_argument("--repeats", type=int, default=1)
    ask.add_argument("--seconds", type=float, default=1.0)
    asked = ask.parse_args()
    for name, standing in standings().items():
        print(f"{name:44} {standing}")
    if not asked.audit:
        return
    short = replace(Effort.of("quick"), name="sweep", seconds=asked.seconds, stability_seconds=0.5)
    twins, controls = collect(ROOT / "tests/audit/twins", "twins_opendp*.py")
    alarms, audits, missed = 0, 0, 0
    for seed in range(asked.repeats):
        for entry in [*twins, *controls]:
            begin = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                report = audit(entry.make(), entry.d_in, short, seed=seed, **entry.options)
            sound = entry in controls
            audits += sound
            alarms += sound and report.verdict == "refuted"
            missed += not sound and report.verdict != "refuted"
            kind = "control" if sound else "defect"
            seconds = time.process_time() - begin
            print(
                f"{kind:8} {entry.name:36} {report.verdict:12} {report.layer:16} {seconds:.1f}",
                flush=True,
            )
    print(f"{audits} audits of sound native objects, {alarms} alarms; {missed} defects missed")


if __name__ == "__main__":
    main()
