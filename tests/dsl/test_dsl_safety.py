"""What a spec must not be able to do: ask with the data, ask for free, replace its own inputs."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from opendp_sim.accounting.ledger.ledger import REFUSALS, Ledger
from opendp_sim.accounting.release.release import Release
from opendp_sim.cli import app
from opendp_sim.core.arithmetic import countable
from opendp_sim.core.errors import BudgetError, DataError, SimError
from opendp_sim.domains.records import Column, Records
from opendp_sim.dsl import Refused, apply, plan_file, verify
from opendp_sim.io.protocol import from_arrays
from tests._small import points, write_small

LEDGER = "    ledger: {file: points.ledger, limit: {epsilon: 3.0, delta: 1.0e-5}}\n"
PUBLIC = """  open:
    source: {npz: %s}
    columns: {x: {dtype: "array[f64, 3]", bounds: [0.0, 1.0]}}
    public: true
privacy:
"""
BARE = """  exact:
    from: open
    steps:
      - select: {features: x}
      - quantize: {bits: 10}
      - race_sketch: {repetitions: 10, buckets: 16, family: {p_stable_l2: {width: 0.5}}, seed: 7}
    release: none
outputs:
  bare:
    from: exact
    save: out/bare.npz
"""


def _refused(spec, into=None):
    with pytest.raises(Refused) as caught:
        apply(plan_file(spec), into=into)
    return caught.value


def _mixed(folder, source="queries.npz"):
    return write_small(folder, ("privacy:\n", PUBLIC % source), ("outputs:\n", BARE))


def test_a_noiseless_release_claims_nothing(tmp_path):
    done = apply(plan_file(_mixed(tmp_path)))
    assert Release.load(done.files["bare"]).header["privacy"] == {"public": True}
    assert Release.load(done.files["release"]).header["privacy"]["total"] == list(done.plan.total)
    found = json.loads(done.certificates["bare"].read_text())
    assert found["privacy"] == {"public": True}
    assert any("`open` is declared public" in text for text in found["assumptions"])
    assert verify(done.certificates["bare"])[0]
    found["privacy"] = json.loads(done.certificates["release"].read_text())["privacy"]
    done.certificates["bare"].write_text(json.dumps(found))
    with pytest.raises(SimError, match="OS701"):
        verify(done.certificates["bare"])


@pytest.mark.parametrize("source", ["points.npz", "out/../points.npz", "link.npz", "hard.npz"])
def test_private_data_is_not_public_under_another_name(source, tmp_path):
    spec = _mixed(tmp_path, source)
    (tmp_path / "link.npz").symlink_to("points.npz")
    (tmp_path / "hard.npz").hardlink_to(tmp_path / "points.npz")
    assert _refused(spec).code == "OS306"


@pytest.mark.parametrize("query", ["points.npz", "./points.npz", "link.npz"])
def test_the_private_file_is_no_query(query, tmp_path):
    spec = write_small(tmp_path, ("query: {npz: queries.npz}", f"query: {{npz: {query}}}"))
    (tmp_path / "link.npz").symlink_to("points.npz")
    assert _refused(spec).code == "OS704"
    assert not (tmp_path / "points.ledger").exists()


def test_certificates_say_that_queries_are_public(tmp_path):
    done = apply(plan_file(write_small(tmp_path)))
    found = json.loads(done.certificates["density"].read_text())
    assert any("queries are public" in text for text in found["assumptions"])


def test_with_the_budget_spent_the_data_answers_nothing(tmp_path):
    spec = write_small(tmp_path, ("epsilon: 3.0, delta: 1.0e-5", "epsilon: 1.0, delta: 1.0e-6"))
    apply(plan_file(spec))
    text, codes = spec.read_text(), set()
    for high in (0.2, 0.5, 0.9, 1.0, 2.0):  # some of them would be refused by the data
        spec.write_text(text.replace("bounds: [0.0, 1.0]", f"bounds: [0.0, {high}]"))
        with pytest.raises(SimError) as caught:
            apply(plan_file(spec), replace=True)
        codes.add(caught.value.code)
    assert codes == {"OS402"}


def test_refusals_are_counted_and_end(tmp_path):
    spec = write_small(tmp_path, ("bounds: [0.0, 1.0]", "bounds: [0.0, 0.5]"))
    for _ in range(REFUSALS):
        with pytest.raises(DataError, match="OS605"):
            apply(plan_file(spec))
    shown = CliRunner().invoke(app, ["ledger", "show", str(tmp_path / "points.ledger")]).stdout
    assert f"refused   {REFUSALS} of" in shown
    with pytest.raises(BudgetError, match="ingest: enforce") as caught:
        apply(plan_file(spec))
    assert caught.value.code == "OS402"
    with Ledger.open(tmp_path / "points.ledger") as ledger:
        assert [entry.kind for entry in ledger.entries] == ["reserve", "refusal"] * REFUSALS
        assert not ledger.charges
        assert ledger.verify() == 2 * REFUSALS
    text = spec.read_text()
    spec.write_text(text.replace("    ledger:", "    ingest: enforce\n    ledger:"))
    assert apply(plan_file(spec)).charge is not None


@pytest.mark.long
def test_refusals_under_enforce_are_counted_and_end(tmp_path, monkeypatch):
    """What `enforce` refuses behind the form (too many records, a cut file) ends a ledger too."""
    spec = write_small(tmp_path, ("    ledger:", "    ingest: enforce\n    ledger:"))
    monkeypatch.setattr(countable, "TOO_MANY", 100)
    for _ in range(REFUSALS):
        with pytest.raises(DataError, match="OS610"):
            apply(plan_file(spec))
    with Ledger.open(tmp_path / "points.ledger") as ledger:
        assert [e.kind for e in ledger.entries] == ["reserve", "refusal"] * REFUSALS
        assert ledger.refusals(enforced=True) == ledger.refusals() == REFUSALS
        assert not ledger.charges
        assert ledger.verify() == 2 * REFUSALS
    shown = CliRunner().invoke(app, ["ledger", "show", str(tmp_path / "points.ledger")]).stdout
    assert f"{REFUSALS} of at most {REFUSALS} under" in shown
    monkeypatch.undo()
    for mode in ("enforce", "refuse"):
        spec.write_text(spec.read_text().replace("ingest: enforce", f"ingest: {mode}"))
        with pytest.raises(BudgetError) as caught:
            apply(plan_file(spec))
        assert caught.value.code == "OS402"


def test_a_missing_file_is_no_refusal_by_the_data(tmp_path):
    spec = write_small(tmp_path)
    (tmp_path / "points.npz").unlink()
    with pytest.raises(DataError, match="OS601"):
        apply(plan_file(spec))
    with Ledger.open(tmp_path / "points.ledger") as ledger:
        assert not ledger.entries
        assert ledger.total().loss == (0.0,)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("change", "into"),
    [
        (("save: out/release.npz", "save: points.npz"), None),
        (("save: out/release.npz", "save: queries.npz"), None),
        (("save: out/release.npz", "save: out/../points.npz"), None),
        (("file: points.ledger", "file: out/release.npz"), None),
        (("file: points.ledger", "file: out/release.npz.certificate.json"), None),
        (("save: out/release.npz", "save: out/density.csv.certificate.json"), None),
        (("save: out/release.npz", "save: out/density.csv"), None),
        (("save: out/release.npz", "save: q/points.npz"), ".."),
    ],
)
def test_no_output_replaces_what_a_run_reads_keeps_or_writes(change, into, tmp_path):
    folder = tmp_path / "q"
    folder.mkdir()
    spec = write_small(folder, change)
    before = (folder / "points.npz").read_bytes()
    assert _refused(spec, None if into is None else folder / into).code == "OS304"
    assert (folder / "points.npz").read_bytes() == before
    assert not (folder / "out").exists()


def test_the_spec_is_not_replaced(tmp_path):
    spec = write_small(tmp_path)
    moved = tmp_path / "spec.json"
    moved.write_text(spec.read_text().replace("save: out/density.csv", "save: spec.json"))
    assert _refused(moved).code == "OS304"


def test_a_source_in_memory_has_the_declaration_of_the_spec(tmp_path):
    spec = write_small(
        tmp_path, (LEDGER, ""), ("source: {npz: points.npz}", "source: {memory: mine}")
    )
    plan, wide = plan_file(spec), points()
    wide["x"] = wide["x"] * 50
    loose = Records((Column("x", "array[f64, 3]"), Column("kind", "category", keys=("b", "a"))))
    with pytest.raises(DataError, match="OS602"):
        apply(plan, memory={"mine": from_arrays(loose, wide)})
    with pytest.raises(DataError, match="OS605"):
        apply(plan, memory={"mine": wide})
    same = from_arrays(plan.program.data[0].records, points())
    counts = apply(plan, memory={"mine": same}).results["release"].arrays["counts"]
    assert counts.dtype == np.int64


LABELS = ["a"] * 9
FORMS = {
    "no such column": ("npz: points.npz", lambda f: np.savez(f / "points.npz", v=np.zeros((9, 3)), kind=LABELS), "OS602"),
    "another dtype": ("npz: points.npz", lambda f: np.savez(f / "points.npz", x=np.array([["a"] * 3] * 9), kind=LABELS), "OS602"),
    "another width": ("npz: points.npz", lambda f: np.savez(f / "points.npz", x=np.zeros((9, 2)), kind=LABELS), "OS602"),
    "no such kind": ("npz: points.npz", lambda f: (f / "points.npz").write_text("kind,x_0,x_1,x_2\na,0,0,0\n"), "OS601"),
    "another delimiter": ("csv: p.csv", lambda f: (f / "p.csv").write_text("kind;x_0;x_1;x_2\na;0;0;0\n"), "OS602"),
    "no such header": ("csv: p.csv", lambda f: (f / "p.csv").write_text("a,b\n1,2\n"), "OS602"),
    "another encoding": ("csv: p.csv", lambda f: (f / "p.csv").write_text("kind,x_0,x_1,x_2\na,0,0,0\n", "utf-16"), "OS602"),
    "packed wrongly": ("csv: p.csv.gz", lambda f: (f / "p.csv.gz").write_text("kind,x_0,x_1,x_2\na,0,0,0\n"), "OS601"),
    "Parquet's types": ("parquet: p.parquet", lambda f: pq.write_table(pa.table({"x": ["a"], "kind": ["a"]}), f / "p.parquet"), "OS602"),
}  # fmt: skip


@pytest.mark.few(2)
@pytest.mark.parametrize("form", FORMS)
def test_faults_of_a_files_form_are_told_and_never_counted(form, tmp_path):
    """Also when ten runs were refused: the declaration can still be mended."""
    source, written, code = FORMS[form]
    spec = write_small(tmp_path, ("npz: points.npz", source))
    written(tmp_path)
    plans = plan_file(spec), plan_file(spec)
    for turn in range(12):
        with pytest.raises(DataError, match=code):
            apply(plans[turn % 2])
    with pytest.raises(DataError, match=code):
        apply(plan_file(spec))
    with Ledger.open(tmp_path / "points.ledger") as ledger:
        assert not ledger.entries


def test_a_first_line_that_could_be_a_record_counts(tmp_path):
    spec = write_small(tmp_path, ("npz: points.npz", "csv: p.csv"))
    (tmp_path / "p.csv").write_text("0.1,0.2,0.1,a\n0.3,0.4,0.2,b\n")
    with pytest.raises(DataError, match="OS602"):
        apply(plan_file(spec))
    with Ledger.open(tmp_path / "points.ledger") as ledger:
        assert [entry.kind for entry in ledger.entries] == ["reserve", "refusal"]


@pytest.mark.parametrize("address", ["s3://bucket/points.npz", "file:///data/points.npz"])
@pytest.mark.parametrize("form", ["{npz: NAME}", "{csv: {file: NAME}}", "{parquet: NAME}"])
def test_an_address_is_no_path(tmp_path, form, address):
    """It was looked for as a path when data was opened, and counted as a refusal by the data."""
    change = ("{npz: points.npz}", form.replace("NAME", f'"{address}"'))
    with pytest.raises(SimError, match="OS304") as caught:
        plan_file(write_small(tmp_path, change))
    assert "mount" in str(caught.value)
