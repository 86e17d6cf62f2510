"""Famous mistakes that an audit at default settings finds, each with its public source.

    python benchmarks/audit_gallery.py --write     # audits again, replaces the figure and the page
    python benchmarks/audit_gallery.py --page      # writes the page of the recorded figure

Every row is a program of ``tests/audit``, audited at one seed without a hint. ``--rows`` names a file of
rows that were measured before: [name, row] on each line.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import opendp.prelude as dp  # noqa: E402

from benchmarks._results import figures, table, write_figure  # noqa: E402
from opendp_sim.audit import audit  # noqa: E402
from tests.audit.corpus import programs  # noqa: E402
from tests.audit.opaque import PAIRS  # noqa: E402

PAGE = ROOT / "docs" / "famous_mistakes.md"
_STATDP = "https://github.com/cmla-psu/statdp/blob/master/statdp/algorithms.py"
_AUDITORIUM = "https://github.com/google/differential-privacy/blob/main/python/dp_auditorium/dp_auditorium/mechanisms"
_CHECKDP = "https://github.com/cmla-psu/checkdp/tree/master/examples"
MISTAKES = (
    (
        "svt/no_query_noise",
        "Sparse vector: the threshold is noisy, the queries are not",
        f"[StatDP, iSVT1]({_STATDP})",
    ),
    (
        "svt_never_stops",
        "Sparse vector: goes on after its first answer",
        f"[StatDP, iSVT2]({_STATDP})",
    ),
    (
        "svt/unlimited_positives",
        "Sparse vector: goes on for eight queries at the noise of one answer",
        f"[StatDP, iSVT2]({_STATDP})",
    ),
    (
        "svt/returns_the_noisy_value",
        "Sparse vector: prints the noisy value",
        f"[DP-Auditorium, SVT3]({_AUDITORIUM}/sparse_vector_technique.py)",
    ),
    (
        "noisy_max/returns_value",
        "Noisy maximum: prints the value, too",
        f"[StatDP, noisy_max_v1b]({_STATDP})",
    ),
    (
        "mean/divides_by_true_n",
        "Mean: a noisy sum over the exact count",
        f"[DP-Auditorium, mean of bare counts]({_AUDITORIUM}/mean.py)",
    ),
    (
        "count/scale_100_percent",
        "Half the noise that it needs",
        f"[CheckDP, badpartialsum]({_CHECKDP}/badpartialsum.c)",
    ),
    (
        "nan_through_clamp",
        "NaN passes a clamp",
        "[Google's library, 405](https://github.com/google/differential-privacy/pull/405)",
    ),
    (
        "wrapped_sum",
        "A sum that wraps round",
        (
            "[Casacuberta et al. 2022](https://arxiv.org/abs/2207.10635); "
            "[Google's library, 127](https://github.com/google/differential-privacy/issues/127)"
        ),
    ),
    (
        "laplace/uniform32_inverse_cdf",
        "Laplace noise in floating point: last bits",
        "[diffprivlib, 19](https://github.com/IBM/differential-privacy-library/issues/19), after Mironov 2012",
    ),
    (
        "laplace/float32_noise_on_sum",
        "Noise on a float of lower precision: its grid shows the sum",
        "[OpenDP, 414](https://github.com/opendp/opendp/issues/414)",
    ),
    (
        "gaussian/sqrt_sigma",
        "Gaussian noise: deviation and variance confused",
        "[SmartNoise, 316](https://github.com/opendp/smartnoise-core/issues/316)",
    ),
    (
        "classical_gaussian",
        "Gaussian noise: the classical formula beyond epsilon 1",
        (
            "[SmartNoise, 462](https://github.com/opendp/smartnoise-sdk/issues/462); "
            "[Balle and Wang 2018](https://arxiv.org/abs/1805.06530)"
        ),
    ),
    (
        "zcdp/laplace_at_eps2_over_8",
        "zCDP: rho of a bounded range for noise that has none",
        "[OpenDP, 2911](https://github.com/opendp/opendp/issues/2911)",
    ),
    (
        "argmax_both_ways",
        "Selection: scores that move both ways, charged as if all moved one way",
        "[mbi, 65](https://github.com/ryan112358/mbi/issues/65)",
    ),
    (
        "t/padded_to_an_even_number",
        "A table made even: one record moves two",
        "[OpenDP, 2950](https://github.com/opendp/opendp/issues/2950)",
    ),
    (
        "histogram/numpy_range_from_data",
        "Histogram: its range is the data's",
        "[diffprivlib, 20](https://github.com/IBM/differential-privacy-library/issues/20)",
    ),
    (
        "sum/bound_from_data",
        "Sum: its bound is the data's",
        "[dpart, 6](https://github.com/hazy/dpart/pull/6)",
    ),
    (
        "histogram/change_one_charged_as_add_remove",
        "Replaced records charged as added ones",
        "[Google's library, 464](https://github.com/google/differential-privacy/pull/464)",
    ),
    (
        "constant_seed",
        "Noise of a public seed",
        (
            "[diffprivlib, 31](https://github.com/IBM/differential-privacy-library/issues/31); "
            "[Garfinkel and Leclerc 2020](https://arxiv.org/abs/2009.03777)"
        ),
    ),
    (
        "clip_batch_gradient",
        "DP-SGD: the batch's gradient is clipped, not each record's",
        "[RGP, 7](https://github.com/dayu11/Differentially-Private-Deep-Learning/issues/7)",
    ),
    (
        "sampling/without_replacement_as_poisson",
        "A sample of fixed size accounted as Poisson's",
        "[Opacus, 80](https://github.com/meta-pytorch/opacus/issues/80)",
    ),
    (
        "user_level/rows_clipped_not_users",
        "Rows are bounded, persons are not",
        (
            "[Wilson et al. 2019](https://arxiv.org/abs/1909.01917); "
            "[Google's library, 84](https://github.com/google/differential-privacy/pull/84)"
        ),
    ),
    (
        "local_sensitivity",
        "Noise of the local sensitivity",
        "[Nissim, Raskhodnikova and Smith 2007](https://doi.org/10.1145/1250790.1250803)",
    ),
    (
        "geometric/truncated_by_redrawing",
        "Noise drawn again until it is in bounds",
        "[Croft et al. 2019](https://arxiv.org/abs/1911.00602)",
    ),
    (
        "observed_keys",
        "Only keys of the data are released",
        "[Korolova et al. 2009](http://www2009.eprints.org/18/)",
    ),
    (
        "svt/no_factor_c (c=3)",
        "Sparse vector: three answers with the noise of one",
        f"[StatDP, iSVT3]({_STATDP})",
    ),
)
"""Name of the program, what is wrong, and who published it."""
_HEAD = ["mistake", "published in", "program", "verdict", "layer", "draws", "CPU s", "found"]  # fmt: skip
_FIGURE = "audit/gallery"


def one(name: str, seed: int) -> list[str]:
    """Return verdict, layer, runs, CPU seconds and the finding of one audit."""
    dp.enable_features("contrib", "honest-but-curious", "idealized-numerics")
    pair = {pair.name: pair for pair in (*PAIRS, *programs())}[name]
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = audit(pair.make(True), pair.d_in, seed=seed, **pair.options)
    cpu = time.process_time() - begin
    found = report.evidence or report.priced
    detail = found.detail.partition(" (")[0].replace("|", "/") if found else "nothing"
    runs = sum(layer.runs for layer in report.layers)
    return [report.verdict, report.layer or "none", f"{runs:,}", f"{cpu:.1f}", detail]


def rows(seed: int, path: Path | None) -> list[list[object]]:
    """Audit every program that ``path`` has no row of: those that are found first."""
    told = path.read_text("utf-8").splitlines() if path is not None and path.exists() else []
    done = dict(map(json.loads, told))
    out: list[list[object]] = []
    for name, mistake, source in MISTAKES:
        row = done.get(name) or one(name, seed)
        out.append([mistake, source, f"`{name}`", *row])
        print(name, *row, flush=True)
    return sorted(out, key=lambda row: row[3] != "refuted")


def page() -> str:
    """Return the page of the recorded figure."""
    figure = figures()[_FIGURE]
    head, *told = figure["value"][0]
    found = [row for row in told if row[3] == "refuted"]
    shown = {True: table(head, found), False: ""}
    missed = [row for row in told if row not in found]
    if missed:
        shown[False] = "\n".join(f"- {row[0]} ({row[2]}, {row[1]}): {row[3]}." for row in missed)
    return _PAGE.format(
        number=len(found),
        found=shown[True],
        missed=shown[False] or "None.",
        command=figure["command"],
        commit=figure["commit"],
        date=figure["date"],
    )


_PAGE = """# Famous mistakes that an audit finds

{number} mistakes that were published about real libraries, papers and auditors, each as a small program of `tests/audit`.
An audit gets the object and nothing else: no core, no pairs, no events (rows of persons get `generator=`). Each has a sound version, which no audit may accuse: the
controls are the figure `opaque` of the [measurements](generated/measurements.md).

## Audit your own

```python
from opendp_sim.audit import audit

report = audit(obj)  # any OpenDP transformation, measurement or odometer, at d_in = 1
print(report)  # refuted, priced or not refuted, and the event to count yourself
```

```sh
opendp-sim audit my_package.mechanisms:make_mean   # one object, or what a factory makes
opendp-sim audit my_package.mechanisms             # every object of a module, with counts
```

The first argument of `audit` is the object, the second the distance between neighbours (1 if you leave it out). `seed=` makes a run
again, `budget="deep"` draws more. The command ends with exit code 0 (not refuted), 1 (refuted), 2 (something
could not be audited) or 6 (priced).
*Not refuted* is no proof: the [guide](generated/proofs/audit/guide.md) and the [known limits](generated/proofs/audit/known_limits.md) say why.

## What is found

`draws` are runs of the program, over all layers; a finding ends the audit. `LT trace` replays recorded noise, `L3 distribution` bets
on releases, `L1 stability` and `L0 structure` compare outputs exactly.

{found}

## What is missed at this seed and budget

{missed}

Noise that is not released has no price: limit 16 of the [known limits](generated/proofs/audit/known_limits.md) says how many
draws such sparse vectors need.

## Beside other auditors

1. [StatDP](https://github.com/cmla-psu/statdp) (Ding et al. 2018) reports counterexamples "within a few seconds" for the programs marked
   StatDP; it is given the queries and their sensitivity. Ours begin at datasets.
2. [CheckDP](https://github.com/cmla-psu/checkdp) (Wang et al. 2020) reads programs in a small language and reports at most 70 seconds for
   each proof or counterexample. It proves; an audit does not.
3. [DP-Auditorium](https://research.google/blog/dp-auditorium-a-flexible-library-for-auditing-differential-privacy/) (2024) compares
   samples of a black box by several divergences.

These figures are the authors' own, of other machines and other forms of the programs. We did not run the three tools here.

Measured by `{command}` on {date}, seed 0, default settings, in parts that `--rows` joined, on the tree
between commits {commit} and 322ea209. Draws and CPU seconds differ between runs: OpenDP's noise has no seed.
"""


def main() -> None:
    """Run the gallery, print it, and replace its figure and the page."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--seed", type=int, default=0)
    ask.add_argument("--write", action="store_true")
    ask.add_argument("--page", action="store_true")
    ask.add_argument("--rows", type=Path)
    asked = ask.parse_args()
    if not asked.page:
        text = table(_HEAD, rows(asked.seed, asked.rows))
        print(text)
        if asked.write:
            write_figure(_FIGURE, text, "python benchmarks/audit_gallery.py --write")
    if asked.page or asked.write:
        PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
