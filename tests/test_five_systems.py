"""The five systems of the package in one run: as a spec, and as OpenDP's own composition."""

from __future__ import annotations

import contextlib
import json
import runpy
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import opendp.prelude as dp
import pyarrow as pa
import pytest
from pyarrow import parquet
from pyarrow.csv import write_csv
from typer.testing import CliRunner

import opendp_sim as sim
from opendp_sim.accounting.composition import Charge
from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.cli import app
from opendp_sim.core.errors import DataError
from opendp_sim.dsl import apply
from opendp_sim.io.builtin import builtin_source
from tests._plans import planned
from tests.accounting.conftest import server  # noqa: F401 - a fixture

SPEC = Path(__file__).parent.parent / "specs" / "five-systems.yaml"
FILES = {"distances", "densities", "sketch", "labels"}


def rows(name: str) -> dict[str, np.ndarray]:
    """Return a built-in dataset as columns."""
    return dict(next(iter(builtin_source(name).blocks(4096))))


def spec_of(
    folder: Path, source: str, ledger: str = "five-systems.ledger", store: str | None = None
) -> Path:
    """Write the spec over the digits in a file of some kind, with its ledger and store elsewhere."""
    digits, text = rows("digits"), SPEC.read_text("utf-8")
    names = [f"pixels_{place}" for place in range(64)]
    columns = dict(zip(names, digits["pixels"].T, strict=True)) | {"label": digits["label"]}
    table, file = pa.table(columns), folder / f"digits.{source}"
    if source == "parquet":
        parquet.write_table(table, file, row_group_size=300)
    elif source == "csv":
        write_csv(table, file)
    if source != "builtin":
        text = text.replace("{builtin: digits}", f"{{{source}: {file.name}}}")
    text = text.replace("five-systems.ledger", ledger)
    if store is not None:
        text = text.replace("out/five-systems.session", store)
    spec = folder / "five-systems.yaml"
    spec.write_text(text, "utf-8")
    return spec


def check_run(done: Any, plan: Any) -> None:
    """Check that a run has every output, its certificate, and the charge of the plan."""
    assert (set(done.files), set(done.stores)) == (FILES, {"answers"})
    assert all(file.stat().st_size for file in done.files.values())
    assert set(done.certificates) == FILES
    assert Charge.read(done.charge.body["loss"]).exact == plan.charge.exact
    for name, certificate in done.certificates.items():
        told = json.loads(Path(certificate).read_text("utf-8"))
        assert told["output"] == name
    release = sim.load(done.files["sketch"])
    assert np.isfinite(release.ask("density", rows("digits_test")["pixels"][:3])["density"]).all()


def asked(spec: Path, folder: Path) -> int:
    """Ask a session once; return the number of votes."""
    line = json.dumps({"query": rows("digits_test")["pixels"][0].tolist()}) + "\n"
    with contextlib.chdir(folder):
        return len(json.loads(said("session", spec, lines=line))["votes"])


def check_ledger(place: str | Path, plan: Any) -> None:
    """Check that a ledger holds one charge, and its total is the plan's."""
    with Ledger.open(place) as ledger:
        assert [entry.kind for entry in ledger.entries].count("charge") == 1
        assert ledger.total().exact == plan.charge.exact


def said(*words: object, lines: str = "") -> str:
    """Return what a command prints; it succeeds."""
    found = CliRunner().invoke(app, [str(word) for word in words], input=lines)
    assert found.exit_code == 0, found.output
    return found.stdout


def test_opendp_composes_the_five_adaptively_at_the_loss_of_the_plan():
    """Each is chosen after the answers before it, and Ind-KNN is a queryable within the composition."""
    plan = planned(SPEC)
    example = runpy.run_path(str(SPEC.parent.parent / "examples" / "five_systems.py"))
    five = example["measurements"](plan)
    losses = {name: measurement.map(1) for name, measurement in five.items()}
    assert losses == {name: release.loss for name, release in plan.releases.items()}
    composed = example["composition"](five)
    assert composed.map(1) == plan.total == plan.to_opendp().map(1)

    ask, digits = composed(rows("digits")), rows("digits_test")["pixels"][:60]
    released = [ask(five[name]) for name in ("tree", "waves", "buckets")]
    assert [len(cells) for cells in released] == [1984, 2001, 12801]
    served = ask(five["neighbours"])
    assert len(served(digits).labels) == 60
    labels = ask(five["common"])  # none where no set leads by enough
    assert labels is None or set(labels) <= set(range(10))
    with pytest.raises(dp.OpenDPException):
        served(digits)  # this measure is not concurrent: a later release ends the earlier one
    with pytest.raises(dp.OpenDPException):
        ask(five["tree"])


@pytest.mark.long
def test_the_example_of_the_five_runs(capsys):
    runpy.run_path(str(SPEC.parent.parent / "examples" / "five_systems.py"), run_name="__main__")
    assert "common:" in capsys.readouterr().out


@pytest.mark.long
def test_the_spec_is_applied_asked_answered_verified_and_reported(tmp_path):
    """What a reader of the spec does, one command after another; the ledger is charged once."""
    spec, plan = shutil.copy(SPEC, tmp_path / SPEC.name), planned(SPEC)
    document = tmp_path / "five.plan.json"
    said("plan", spec, "-o", document)
    said("ledger", "new", spec)
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
        said("report", about, "-o", tmp_path / "page.html", "--force")
        assert "ind_knn" in (tmp_path / "page.html").read_text() or about.endswith(".session")
    with Ledger.open(tmp_path / "five-systems.ledger") as ledger:
        assert [charge.loss for charge in ledger.charges] == [plan.charge.loss]
        # the budget that was asked for, where OpenDP's total is a part in 2**36 below it (composition.md)
        for spent, planned_loss in zip(ledger.total().loss, plan.total, strict=True):
            assert 0 <= spent - planned_loss <= spent * 2**-36


@pytest.mark.long
@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("first", ["apply", "session"])
@pytest.mark.parametrize(("ledger", "store"), [(True, True), (True, False), (False, True)])
def test_a_ledger_and_a_store_that_others_share(tmp_path, monkeypatch, first, ledger, store):
    """In PostgreSQL, one of them or both; whichever command is first makes the run, and it is charged once."""
    monkeypatch.chdir(tmp_path)
    name = f"postgresql:one/five-{first}-{ledger}-{store}"
    where = f"{name}-ledger" if ledger else "five-systems.ledger"
    spec = spec_of(tmp_path, "builtin", where, f"{name}-store" if store else None)
    plan = planned(spec)
    if first == "apply":
        check_run(apply(plan, into=tmp_path), plan)
    else:
        said("ledger", "new", spec)
    for _ in range(2):
        assert asked(spec, tmp_path) == 10
        check_ledger(where, plan)
        assert all(Path(plan.outputs[each].decl.save).stat().st_size for each in FILES)
    report = tmp_path / "page.html"
    said("report", spec, "-o", report)
    assert plan.charge.text.split(",")[0] in " ".join(said("ledger", "show", where).split())
    assert "ind_knn" in report.read_text("utf-8")


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
