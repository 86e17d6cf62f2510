"""``apply --compare``: exact answers of the same kind beside private ones, on public data only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from opendp_sim.cli import app
from opendp_sim.core.errors import DataError, SpecError
from opendp_sim.dsl import apply, plan_file
from opendp_sim.dsl.run.compare_exact import compare
from tests._small import write_small

SPECS = Path(__file__).resolve().parents[2] / "specs"
RECORDS = 1297
"""Of the built-in digits."""


@pytest.fixture(scope="module")
def digits(tmp_path_factory: Any) -> Any:
    """The digits in one class, as sums and as means of the same release; and three other outputs."""
    folder = tmp_path_factory.mktemp("compare")
    text = (SPECS / "digit-fourier.yaml").read_text().replace("epsilon: 1.0", "epsilon: 20.0")
    text = text.replace("default: 28.28", "default: 14.14")  # means far below 1: of a sum alone
    sums = """  sums:
    from: noisy
    post: [density: {}]
    query: {builtin: digits_test}
    save: out/sums.csv
  classes:"""
    spec = folder / "digits.yaml"
    spec.write_text(text.replace("  classes:", sums))
    return {found.output: found for found in compare(apply(plan_file(spec), into=folder))}


@pytest.mark.long
def test_mean_kernel_values_are_compared_with_mean_kernel_values(digits: Any) -> None:
    """Means times the size of a class are sums, exact and in error; they were compared with sums."""
    means, sums = digits["density"], digits["sums"]
    assert means.normalised
    assert not sums.normalised
    size = RECORDS / 10  # classes are within a tenth of each other
    assert means.exact == pytest.approx(sums.exact / size, rel=0.1)
    assert 0 < means.exact < 1
    for name in ("error", "mapped", "predicted", "noise"):
        assert getattr(means, name) == pytest.approx(getattr(sums, name) / size, rel=0.25), name
    assert means.mapped == pytest.approx(means.predicted, rel=0.25)


def test_only_densities_and_classes_are_compared(digits: Any) -> None:
    """Flags and draws of the same spec are neither: they have no exact answer of their kind."""
    assert set(digits) == {"density", "sums", "classes"}
    assert digits["classes"].accuracy[0] > 0.85
    assert abs(digits["classes"].accuracy[0] - digits["classes"].accuracy[1]) < 0.1


def test_nothing_to_compare_is_said(tmp_path: Path) -> None:
    spec = tmp_path / "digits.yaml"
    text = (SPECS / "digit-fourier.yaml").read_text()
    outputs = text.index("  density:")
    spec.write_text(text[:outputs] + text[text.index("  draws:") :])
    done = apply(plan_file(spec), into=tmp_path)
    with pytest.raises(DataError, match="OS607"):
        compare(done)


def test_private_data_are_refused_before_anything_runs(tmp_path: Path) -> None:
    spec = write_small(tmp_path)
    result = CliRunner().invoke(app, ["apply", str(spec), "--compare"])
    assert result.exit_code != 0
    assert not (tmp_path / "out").exists()
    with pytest.raises(SpecError, match="OS306"):
        compare(apply(plan_file(spec)))


@pytest.mark.long
def test_the_command_prints_what_was_compared(tmp_path: Path) -> None:
    spec = str(SPECS / "digit-fourier.yaml")
    shown = CliRunner().invoke(app, ["apply", spec, "--compare", "--into", str(tmp_path)])
    assert shown.exit_code == 0, shown.stderr
    assert "of the exact mean kernel values, 0." in " ".join(shown.stdout.split())
    assert "right labels:" in shown.stdout


def test_a_model_s_labels_are_compared_with_the_same_fit_without_noise(tmp_path: Path) -> None:
    """It was refused: a release of a mechanism was said to answer nothing."""
    spec = str(SPECS / "digits-linear.yaml")
    shown = CliRunner().invoke(app, ["apply", spec, "--compare", "--into", str(tmp_path), "--json"])
    assert shown.exit_code == 0, shown.stderr
    (found,) = json.loads(shown.stdout)["comparison"]
    private, exact = found["accuracy"]
    assert found["output"] == "answers"
    assert private > 0.6  # of 87 %, with a deviation of one: never by chance
    assert exact > 0.85
    assert found["beside"] == "by the same model without noise"


GEOMETRY = """
spec: opendp_sim/1
name: geometry
data:
  digits: {source: {builtin: digits}, columns: {pixels: {dtype: "array[f32, 64]", bounds: [0, 16]}}}
privacy: {unit: {add_remove: 1, of: row}, measure: zcdp, budget: {epsilon: 20.0, delta: 1.0e-6}}
flow:
  noisy:
    from: digits
    steps:
      - select: {features: pixels}
      - STEPS
      - race_sketch: {repetitions: 9, buckets: 256, family: {p_stable_NORM: {width: 1.0}}, seed: 7}
    release: {noise: gaussian, scale: solve, spend: 100%}
outputs:
  sums: {from: noisy, post: [density: {}], query: {builtin: digits_test}, save: out/sums.csv}
"""
CLIP, RESCALE = "clip_rows: {norm: l2, bound: 1.0}", "rescale: {centre: middle, scale: range}"
QUANTIZE = "\n      - quantize: {bits: 12}"
EMBED = QUANTIZE.strip("\n -") + "\n      - l1_embedding: {directions: 128, seed: 31, bits: 10}"


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("steps", "norm", "width", "geometry", "share"),
    [
        (CLIP + QUANTIZE, "l2", "1.0", ("clip_rows",), 0.001),
        (RESCALE + QUANTIZE, "l2", "1.0", ("rescale",), 0.001),
        (EMBED, "l1", "20.0", (), 0.02),
    ],
)
def test_answers_are_compared_in_the_geometry_of_the_kernel(
    steps: str, norm: str, width: str, geometry: tuple[str, ...], share: float, tmp_path: Path
) -> None:
    """Rows on the sphere, rescaled ones, and l2 behind an embedding were told to be off by up to 1,500 %.

    What grid and projection cost is no private number's business: it is the same in every run.
    """
    spec = tmp_path / "geometry.yaml"
    text = (
        GEOMETRY.replace("STEPS", steps)
        .replace("NORM", norm)
        .replace("width: 1.0", f"width: {width}")
    )
    spec.write_text(text)
    (found,) = compare(apply(plan_file(spec), into=tmp_path))
    assert found.geometry == geometry
    assert found.maps is not None
    assert found.maps < share * found.exact


def test_an_answer_is_compared_with_its_own_query(tmp_path: Path) -> None:
    """Of one class: each was compared with the exact sums of all queries, five times too far."""
    race = next(line for line in GEOMETRY.splitlines() if "race_sketch" in line)
    kernel = "fourier_sketch: {frequencies: 1000, kernel: {gaussian: {bandwidth: 30.0}}, seed: 7}"
    spec = tmp_path / "own.yaml"
    text = GEOMETRY.replace("STEPS", "quantize: {bits: 12}")
    spec.write_text(text.replace(race, f"      - {kernel}"))
    (found,) = compare(apply(plan_file(spec), into=tmp_path))
    assert found.mapped is not None
    assert found.predicted is not None
    assert 0.2 * found.predicted < found.mapped < 1.5 * found.predicted


def test_a_run_that_leaves_nothing_to_compare_is_refused_before_it_is_charged(
    tmp_path: Path,
) -> None:
    """It ran, charged the ledger and was then refused: who tried again paid twice."""
    text = (SPECS / "digit-means.yaml").read_text("utf-8")
    spec = tmp_path / "digit-means.yaml"
    spec.write_text(text, "utf-8")
    done = CliRunner().invoke(app, ["apply", str(spec), "--compare"])
    assert done.exit_code != 0
    assert "OS607" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["digit-means.yaml"]
