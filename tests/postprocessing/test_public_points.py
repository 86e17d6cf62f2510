"""Public points as a control variate: exact where they are the data, unbiased where they are not."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from typer.testing import CliRunner

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.accounting.release.release import Release
from opendp_sim.cli import app
from opendp_sim.core.apply_stable import whole_function
from opendp_sim.core.claims import Noise
from opendp_sim.core.errors import SimError
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps, resolve
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import RealRows, Rows
from opendp_sim.dsl.grammar.program import SourceRef
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.dsl.run.execute import apply
from opendp_sim.dsl.run.predict import predict_errors
from opendp_sim.postprocessing._impl.control_variate import with_public

GAUSS = {"gaussian": {"bandwidth": 1.5}}
SKETCHES: dict[str, dict[str, Any]] = {
    "fourier_sketch": {"frequencies": 150, "kernel": GAUSS, "features": "random"},
    "race_sketch": {"repetitions": 150, "buckets": 64, "family": {"p_stable_l2": {"width": 3.0}}},
    "exponential_sum": {
        "bandwidth": 2.0,
        "accuracy": 0.1,
        "structure": {"fourier": {"frequencies": 60}},
    },
}
WIDTH, SIZE = 6, 400


def points(count: int, seed: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    return np.clip(rng.choice([1.0, 3.0], (count, 1)) + rng.normal(0, 0.6, (count, WIDTH)), 0, 4)


def release(
    key: str, data: Any, *, seed: int = 0, scale: float = 0.001, labels: Any = None
) -> Release:
    space = RealRows(
        width=WIDTH, lower=(0.0,), upper=(4.0,), labels=None if labels is None else ("a", "b")
    )
    params = {**SKETCHES[key], "seed": seed}
    if labels is not None:
        params["per_label"] = True
    stages = bind_steps(space, Symmetric(), [lookup("quantize")(bits=10), lookup(key)(**params)])
    flat = whole_function(stages[-1].claim)(resolve(stages, list)(Rows(data, labels)))
    noise = np.rint(np.random.default_rng(seed).normal(0, scale, flat.shape)).astype(np.int64)
    return Release.of_sketch(stages, flat + noise, Noise("discrete_gaussian", scale), {})


def asked(query: str, of: Release, queries: Any, **params: Any) -> Any:
    bound = lookup(query)(**params).bind(of.released, Symmetric())
    return bound.function(of.arrays, of.queries(queries))


def exact(of: Release, data: Any, queries: Any) -> Any:
    """Kernel sums of the rows as the sketch saw them."""
    sums = of.released.capability("kernel_sums", "test")
    grid = of.stages[-1].domain
    seen = [np.rint(of.queries(v).values) * grid.unit for v in (data, queries)]  # type: ignore[attr-defined]
    metric = {"l1": "cityblock", "l2": "euclidean"}[sums.distance]
    return sums.kernel(cdist(seen[0], seen[1], metric)).sum(axis=0)


@pytest.mark.few(1)
@pytest.mark.parametrize("key", SKETCHES)
def test_points_that_are_the_data_are_answered_exactly(key: str):
    """Nothing is left to sample: the answer is the sum itself, for any seed."""
    data = points(60, 1)
    for seed in range(3):
        of = release(key, data, seed=seed)
        plain, public = (
            asked("density", of, data, public=which)["density"][:, 0]
            for which in ("none", "queries")
        )
        truth = exact(of, data, data)
        assert np.abs(public - truth).max() < 1e-6 * len(data)
        assert np.abs(plain - truth).max() > 1.0
        height = asked("modes", of, data, public="queries", seed=1, rounds=2)
        at = exact(of, data, height["mode"])
        assert height["height"] == pytest.approx(at, abs=1e-4)


def test_refusals():
    of = release("fourier_sketch", points(50, 1))
    sums = of.released.capability("kernel_sums", "test")
    assert with_public("none", "density", of.released, sums, 1.0, None) is sums
    with pytest.raises(SimError, match="OS607"):
        asked("density", of, points(19, 2), public="queries")
    bound = lookup("modes")(seed=1, public="queries").bind(of.released, Symmetric())
    with pytest.raises(SimError, match="OS607"):
        bound.function(of.arrays, None)
    with pytest.raises(SimError, match="OS101"):
        lookup("density")(public="data")


# --- points of their own, from a file -------------------------------------------------------------

SPEC = """
spec: opendp_sim/1
name: pointed
data:
  people:
    source: {npz: people.npz}
    columns: {x: {dtype: "array[f64, 6]", bounds: [0, 4]}}
    ledger: {file: people.ledger, limit: {rho: 9.0}}
privacy: {unit: {add_remove: 1, of: row}, measure: zcdp, budget: {epsilon: 4.0, delta: 1.0e-6}}
flow:
  noisy:
    from: people
    steps:
      - select: {features: x}
      - quantize: {bits: 10}
      - fourier_sketch: {frequencies: 150, kernel: {gaussian: {bandwidth: 1.5}}, seed: 3, features: random}
    release: {noise: gaussian, scale: solve, spend: 100%}
outputs:
  release: {from: noisy, save: release.npz}
  answers:
    from: noisy
    post: [density: {public: points}]
    queries: {npz: asked.npz}
    public: {npz: known.npz}
    save: answers.json
"""


@pytest.fixture
def folder(tmp_path):
    np.savez(tmp_path / "people.npz", x=points(SIZE, 1))
    np.savez(tmp_path / "asked.npz", x=points(5, 2))
    np.savez(tmp_path / "known.npz", x=points(300, 4))
    (tmp_path / "spec.yaml").write_text(SPEC)
    return tmp_path


def test_points_of_their_own_are_read_from_a_file(folder):
    plan = plan_file(folder / "spec.yaml")
    done = apply(plan)
    saved = json.loads((folder / "answers.json").read_text("utf-8"))
    of = Release.load(folder / "release.npz")
    known, wanted = points(300, 4), points(5, 2)
    by_hand = of.density(wanted, public=known)
    assert np.ravel(saved["density"]) == pytest.approx(by_hand["density"].ravel(), rel=1e-9)
    assert set(done.results) == {"release", "answers"}
    # The same as the queries' own, if the points are asked too.
    both = of.density(np.concatenate([wanted, known]), public="queries")["density"]
    own = of.density(wanted, public=np.concatenate([wanted, known]))["density"]
    assert own.ravel() == pytest.approx(both[:5].ravel(), rel=1e-9)
    runner = CliRunner()
    command = [
        "answer",
        str(folder / "release.npz"),
        "--queries",
        str(folder / "asked.npz"),
        "--public",
        str(folder / "known.npz"),
        "--post",
        "density: {public: points}",
        "-o",
        str(folder / "again.json"),
    ]
    told = runner.invoke(app, command)
    assert told.exit_code == 0, told.output
    again = json.loads((folder / "again.json").read_text("utf-8"))
    assert again["density"] == saved["density"]
    modes = of.modes(seed=1, public=known)
    assert len(modes) >= 1
    flags = of.outliers(wanted, public=known, threshold=0.5)["score"]
    means = of.density(wanted, public=known, normalise=True)["density"]
    assert flags.tolist() == means.tolist()


def test_the_plan_expects_what_points_take_away(folder):
    np.savez(folder / "like.npz", x=points(400, 9))
    plan = plan_file(folder / "spec.yaml")
    like = SourceRef("npz", str(folder / "like.npz"))
    with_points = predict_errors(plan, like, SIZE)["answers"]
    text = SPEC.replace("density: {public: points}", "density: {}")
    (folder / "spec.yaml").write_text(text.replace("    public: {npz: known.npz}\n", ""))
    without = predict_errors(plan_file(folder / "spec.yaml"), like, SIZE)["answers"]
    assert with_points.sampling < 0.7 * without.sampling
    assert without.noise < with_points.noise < 1.1 * without.noise  # the number's noise is in


@pytest.mark.parametrize(
    ("old", "new", "code", "said"),
    [
        ("    public: {npz: known.npz}\n", "", "OS305", "no public points"),
        ("{public: points}", "{public: queries}", "OS305", "`public` needs a query"),
        ("npz: known.npz", "npz: people.npz", "OS704", "`public` reads the private dataset"),
        ("save: answers.json", "save: known.npz", "OS304", "the public points of `answers`"),
    ],
)
def test_specs_with_points_that_cannot_be_are_refused(folder, old, new, code, said):
    file = folder / "spec.yaml"
    assert old in SPEC
    file.write_text(SPEC.replace(old, new))
    told = CliRunner().invoke(app, ["check", str(file)])
    assert told.exit_code == 1
    assert f"error[{code}]" in told.stderr
    assert said in " ".join(told.stderr.split())


@pytest.mark.parametrize("bad", [points(19, 3), np.zeros((30, 5)), np.full((30, 6), np.nan)])
def test_bad_points_are_refused_before_a_charge(folder, bad):
    np.savez(folder / "known.npz", x=bad)
    with pytest.raises(SimError, match="OS60"):
        apply(plan_file(folder / "spec.yaml"))
    of = release("fourier_sketch", points(50, 1))
    with pytest.raises(SimError, match="OS60"):
        of.density(points(3, 1), public=bad)
    with pytest.raises(SimError, match="OS607"):
        of.density(points(3, 1), public="points")
    with Ledger.open(folder / "people.ledger") as ledger:
        assert not ledger.entries


def test_too_few_queries_as_points_are_refused_before_a_charge(folder):
    text = SPEC.replace("{public: points}", "{public: queries}")
    (folder / "spec.yaml").write_text(text.replace("    public: {npz: known.npz}\n", ""))
    with pytest.raises(SimError, match="OS607"):
        apply(plan_file(folder / "spec.yaml"))
    with Ledger.open(folder / "people.ledger") as ledger:
        assert not ledger.entries
