"""The five systems of the package in one run: as a spec, and as OpenDP's own composition."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import opendp.prelude as dp
import pytest
from typer.testing import CliRunner

import opendp_sim as sim
from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.cli import app
from opendp_sim.core.errors import DataError
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.io.builtin import builtin_source
from tests._plans import planned

SPEC = Path(__file__).parent.parent / "specs" / "five-systems.yaml"
FILES = {"distances", "densities", "sketch", "labels"}


def rows(name: str) -> dict[str, np.ndarray]:
    """Return a built-in dataset as columns."""
    return dict(next(iter(builtin_source(name).blocks(4096))))


def said(*words: object, lines: str = "") -> str:
    """Return what a command prints; it succeeds."""
    found = CliRunner().invoke(app, [str(word) for word in words], input=lines)
    assert found.exit_code == 0, found.output
    return found.stdout


def test_opendp_composes_the_five_adaptively_at_the_loss_of_the_plan():
    """Each is chosen after the answers before it, and Ind-KNN is a queryable within the composition."""
    dp.enable_features("contrib")
    plan = planned(SPEC)
    found = {name: release.record for name, release in plan.releases.items()}
    space = plan.types["grid"].entry.records, Symmetric()
    grid = sim.make_select(*space, features="pixels", label="label") >> sim.then_quantize(bits=8)
    tree = grid >> sim.then_distance_tree(levels=4, norm="l2")
    waves = (
        grid
        >> sim.then_jl_projection(dimension=32, seed=5)
        >> sim.then_fourier_sketch(
            frequencies=200, kernel={"gaussian": {"bandwidth": 20.0}}, seed=7, norm="l2"
        )
    )
    buckets = grid >> sim.then_race_sketch(
        repetitions=100, buckets=128, seed=3, family={"p_stable_l2": {"width": 30.0}}, norm="l2"
    )
    votes = sim.make_vote_counts(*space, item="label", items=list(range(16)), norm="linf")
    five = {
        "tree": tree >> sim.then_gaussian(scale=found["tree"].scale),
        "waves": waves >> sim.then_gaussian(scale=found["waves"].scale),
        "buckets": buckets >> sim.then_gaussian(scale=found["buckets"].scale),
        "neighbours": grid >> sim.then_ind_knn(rho=found["neighbours"].rho, queries=50, size=1300),
        "common": votes
        >> sim.then_stable_top_k(
            k_max=12, scale=found["common"].scale, delta=found["common"].delta
        ),
    }
    five = {n: m if n == "common" else dp.c.make_approximate(m) for n, m in five.items()}
    losses = {name: measurement.map(1) for name, measurement in five.items()}
    assert losses == {name: release.loss for name, release in plan.releases.items()}
    common = five["common"]
    composed = dp.c.make_adaptive_composition(
        common.input_domain,
        common.input_metric,
        common.output_measure,
        d_in=1,
        d_mids=list(losses.values()),
    )
    assert composed.map(1) == plan.total == plan.to_opendp().map(1)

    ask, digits = composed(rows("digits")), rows("digits_test")["pixels"][:60]
    released = [ask(five[name]) for name in ("tree", "waves", "buckets")]
    assert [len(cells) for cells in released] == [1984, 401, 12801]
    served = ask(five["neighbours"])
    assert len(served(digits).labels) == 60
    labels = ask(five["common"])  # none where no set leads by enough
    assert labels is None or set(labels) <= set(range(16))
    with pytest.raises(dp.OpenDPException):
        served(digits)  # this measure is not concurrent: a later release ends the earlier one
    with pytest.raises(dp.OpenDPException):
        ask(five["tree"])


@pytest.mark.long
def test_the_spec_is_applied_asked_answered_verified_and_reported(tmp_path):
    """What a reader of the spec does, one command after another; the ledger is charged once."""
    spec, plan = shutil.copy(SPEC, tmp_path / SPEC.name), planned(SPEC)
    document = tmp_path / "five.plan.json"
    said("plan", spec, "-o", document)
    done = json.loads(said("apply", document, "--json"))
    assert (set(done["files"]), set(done["stores"])) == (FILES, {"answers"})
    certificate = done["certificates"]["sketch"]
    assert json.loads(said("verify", certificate, "--spec", spec, "--json"))
    assert "density" in said(
        "answer", done["files"]["sketch"], "--post", "density: {}", "--queries", "digits_test"
    )
    digit = rows("digits_test")["pixels"][0].tolist()
    line = json.dumps({"query": digit}) + "\n"
    for _ in range(2):
        assert len(json.loads(said("session", spec, lines=line))["votes"]) == 10
    for about in (certificate, done["stores"]["answers"], spec):
        said("report", about, "-o", tmp_path / "page.html")
        assert "ind_knn" in (tmp_path / "page.html").read_text() or about.endswith(".session")
    with Ledger.open(tmp_path / "five-systems.ledger") as ledger:
        assert [charge.loss for charge in ledger.charges] == [plan.charge.loss]
        # the budget that was asked for, where OpenDP's total is a part in 2**36 below it (composition.md)
        for spent, planned_loss in zip(ledger.total().loss, plan.total, strict=True):
            assert 0 <= spent - planned_loss <= spent * 2**-36


def test_python_runs_it_from_a_table_and_serves_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = SPEC.read_text().replace("source: {builtin: digits}", "source: {memory: digits}")
    spec = tmp_path / "five.yaml"
    spec.write_text(text)
    digits = {"digits": rows("digits")}
    done = sim.apply(spec, digits)
    assert set(done.results) == FILES
    queries = rows("digits_test")["pixels"][:2]
    for _ in range(2):
        with sim.session(spec, digits) as served:
            assert len(served.ask(list(queries)).labels) == 2
    with pytest.raises(DataError, match="OS609"):
        sim.apply(spec, digits)
    with Ledger.open(tmp_path / "five-systems.ledger") as ledger:
        assert len(ledger.charges) == 1
