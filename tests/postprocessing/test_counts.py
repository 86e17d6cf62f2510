"""Noisy counts of a catalogue, asked of a release: ranks, names and intervals."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import opendp_sim as sim
from opendp_sim.accounting.release.release import Release
from opendp_sim.cli import app
from opendp_sim.core.claims import Noise
from opendp_sim.core.errors import SimError
from opendp_sim.core.pipeline import bind_steps
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.records import Column, Records
from opendp_sim.dsl.files.write import write_output
from opendp_sim.postprocessing.counts import Counts
from opendp_sim.transformations.sketches.counts.vote_counts import VoteCounts

SPEC = """
spec: opendp_sim/1
name: words
data:
  votes:
    source: {memory: votes}
    columns: {word: {dtype: str}}
privacy: {unit: {add_remove: 1}, measure: MEASURE, budget: {epsilon: 1.0DELTA}}
flow:
  noisy:
    from: votes
    steps: [vote_counts: {item: word, items: [a, b, c]}]
    release: {noise: NOISE, spend: 100%}
outputs:
  release: {from: noisy, save: votes.npz}
  largest: {from: noisy, post: [counts: {top: 2}], save: largest.json}
"""
TRUE = {"a": 40, "b": 400, "c": 4}


def spec(measure="gdp", noise="gaussian"):
    delta = "" if measure == "pure" else ", delta: 1.0e-6"
    return SPEC.replace("MEASURE", measure).replace("DELTA", delta).replace("NOISE", noise)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    words = np.array([w for w, n in TRUE.items() for _ in range(n)] + ["z"] * 9)
    folder = tmp_path_factory.mktemp("counts")
    return sim.apply(sim.plan(spec()), {"votes": {"word": words}}, into=folder)


def test_a_release_is_asked_for_its_counts(done):
    release = sim.load(done.files["release"])
    assert release.ops == ("counts",)
    found = release.counts(confidence=0.99)
    assert sorted(found["item"].tolist()) == ["a", "b", "c"]
    assert found["rank"].tolist() == [1, 2, 3]
    assert (np.diff(found["count"]) <= 0).all()
    assert found["item"][0] == "b"  # 360 more than the next: 60 deviations of the difference
    true = np.array([TRUE[item] for item in found["item"]])
    deviation = sim.plan(spec()).releases["noisy"].bound.claim.noise.deviation
    assert found["noise_error"].tolist() == [deviation] * 3
    assert np.abs(found["count"] - true).max() < 8 * deviation  # fails once in 10**14
    assert ((found["upper"] - found["lower"] - 1) / deviation).tolist() == pytest.approx(
        [5.1517] * 3, 1e-4
    )
    assert len(release.counts(top=1)) == 1


def test_an_output_of_a_spec_saves_them(done):
    found = json.loads(done.files["largest"].read_text("utf-8"))
    assert found["rank"] == [1, 2]
    assert found["item"][0] == "b"
    asked = CliRunner().invoke(
        app, ["answer", str(done.files["release"]), "--post", "counts", "--json"]
    )
    assert asked.exit_code == 0, asked.output
    told = json.loads(asked.stdout)
    assert told["columns"][:3] == ["rank", "item", "count"]
    assert [row[0] for row in told["rows"]] == [1, 2, 3]


def test_laplace_intervals_hold_laplace_tails():
    pure = sim.plan(spec("pure", "laplace"))
    (post,) = pure.outputs["largest"].posts
    found = post.function({"counts": np.array([3, 9, 1])}, None)
    assert found["item"].tolist() == ["b", "a"]
    scale = pure.releases["noisy"].bound.claim.noise.scale
    half = (found["upper"] - found["count"])[0]
    assert half == pytest.approx(np.log(20) * scale + 0.5, 1e-6)


def test_what_cannot_be_counted_is_refused(done):
    release = sim.load(done.files["release"])
    with pytest.raises(SimError, match=r"OS102.*top"):
        release.counts(top=4)
    with pytest.raises(SimError, match="OS702"):
        release.density([[0.0]])
    other = sim.density({"x": (0, 1)}, bandwidth=0.1).apply(
        {"x": [0.5]}, into=done.files["release"].parent
    )
    with pytest.raises(SimError, match=r"OS702.*vote_counts"):
        other.ask("counts")
    assert Counts().top is None


MIXED = [5, "5", "a", "a\0", "a\0b"]


@pytest.fixture(scope="module")
def mixed():
    # A catalogue's items are what they are: numbers beside texts, and texts that end in zero characters.
    sketch = VoteCounts(item="word")
    records = Records((Column("word", "category", keys=tuple(MIXED)),))
    stages = bind_steps(records, Symmetric(), [sketch])
    votes = np.zeros(len(MIXED), dtype=np.int64)
    votes[:] = [50, 40, 30, 20, 10]
    noise = Noise("discrete_gaussian", 1.0)
    return Release.of_sketch(stages, votes, noise, {})


def test_items_of_all_kinds_are_told_apart(mixed, tmp_path):
    found = mixed.counts()
    assert found["item"].tolist() == MIXED
    assert [type(item) for item in found["item"].tolist()] == [int, str, str, str, str]
    assert found.to_pandas()["item"].tolist() == MIXED
    told = ["5", '"5"', '"a"', '"a\\u0000"', '"a\\u0000b"']
    assert found.to_arrow()["item"].to_pylist() == told
    assert found.to_polars()["item"].to_list() == told
    write_output(tmp_path / "a.json", found.columns, found.domain)
    assert json.loads((tmp_path / "a.json").read_text("utf-8"))["item"] == MIXED
    write_output(tmp_path / "a.npz", found.columns, found.domain)
    with np.load(tmp_path / "a.npz") as kept:  # no pickles
        assert kept["item"].tolist() == told
