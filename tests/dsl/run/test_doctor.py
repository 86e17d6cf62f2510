"""``doctor``: for a curator's eyes, what the gate does to data; nothing is charged and nothing written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from opendp_sim.cli import app
from opendp_sim.cli.doctor import doctor_command
from opendp_sim.core.errors import DataError
from opendp_sim.domains.records import Column, Records
from opendp_sim.dsl import plan_file
from opendp_sim.dsl.run.doctor import ColumnLook, Look, _count, doctor, entries_of
from opendp_sim.io.gate import gated_blocks
from opendp_sim.io.open import open_source
from opendp_sim.io.protocol import from_arrays
from tests._small import points, write_small

KINDS = [*"ab" * 97, "A", "", "b ", "c", "a", "b"]
CSV = ("npz: points.npz", "csv: p.csv")
HALF = ("points.npz}\n", "points.npz}\n    ingest: enforce\n")


def table():
    """Return two hundred records: three without a value, four of another class, one outside."""
    data = points()
    x = data["x"].copy()
    x[3, 1], x[5, 0], x[9, 2] = np.nan, np.inf, 1.5
    return {"x": x, "kind": np.array(KINDS)}


def test_it_is_behind_a_flag_and_says_that_it_is_private(tmp_path):
    spec = write_small(tmp_path, HALF, data=table())
    run = CliRunner().invoke(app, ["doctor", str(spec)])
    assert run.exit_code == 1
    assert "--private-look" in run.output
    assert "(private)" in str(doctor_command.__doc__).splitlines()[0]
    assert "200" not in run.output
    run = CliRunner().invoke(app, ["doctor", str(spec), "--private-look"])
    assert run.exit_code == 0
    assert run.output.startswith("PRIVATE")
    assert "200, of which 5 (2.5%) are dropped" in run.output
    assert not (tmp_path / "points.ledger").exists()
    run = CliRunner().invoke(app, ["doctor", str(spec), "--private-look", "--json"])
    found = json.loads(run.output)
    assert found["private"] is True
    assert found["datasets"][0]["dropped"] == 5


def test_it_guesses_delimiter_and_dtypes_and_never_bounds_or_keys(tmp_path):
    column = (
        "      kind: {dtype: category, keys: [a, b]}\n",
        "      kind: {dtype: category, keys: [a, b]}\n      id: {dtype: int64}\n      day: {dtype: float64}\n",
    )
    spec = write_small(tmp_path, CSV, column)
    frame = pd.DataFrame(points()["x"], columns=["x_0", "x_1", "x_2"])
    frame["kind"], frame["id"] = points()["kind"], [f"p{i}" for i in range(200)]
    frame["day"] = pd.date_range("2020", periods=200).astype(str)
    frame.to_csv(tmp_path / "p.csv", sep=";", index=False)
    plan = plan_file(spec)
    (look,) = doctor(plan)
    assert look.found.options == {"delimiter": ";"}
    better = {column.name: column.better for column in look.columns}
    assert better == {"x": None, "kind": None, "id": "str", "day": "date"}
    mended = look.mended(plan.program.data[0])
    assert mended["source"]["csv"]["delimiter"] == ";"
    assert mended["columns"]["id"]["dtype"] == "str"
    assert mended["columns"]["x"]["bounds"] == [0.0, 1.0]
    run = CliRunner().invoke(app, ["doctor", str(spec), "--private-look"])
    assert "delimiter: ;" in run.output
    assert "'p0'" in run.output  # an example of what cannot be read, for the curator
    assert "'p7'" not in run.output


@pytest.mark.parametrize(
    ("text", "said"), [("a,b\n1,2\n", "no such column|the first line"), (None, "no such file")]
)
def test_it_tells_what_ends_every_run(tmp_path, text, said):
    spec = write_small(tmp_path, CSV)
    if text is not None:
        (tmp_path / "p.csv").write_text(text)
    (look,) = doctor(plan_file(spec))
    assert any(part in look.refused for part in said.split("|"))


def test_a_stored_dtype_that_cannot_be_meant(tmp_path):
    spec = write_small(tmp_path, ("npz: points.npz", "memory: points"))
    plan = plan_file(spec)
    (look,) = doctor(plan, {"points": {"x": np.array([["a"] * 3] * 4), "kind": ["a"] * 4}})
    assert look.refused.startswith("OS602")
    assert "x" in look.refused
    (entry,) = plan.program.data
    (look,) = doctor(plan, {"points": from_arrays(entry.records, points(7))})
    assert look.records == 7


AIR = """spec: opendp_sim/1
name: ???
data:
  records:
    source: {csv: air.csv}              # as the station exports it
    columns:
      co: {dtype: float64, bounds: [???, ???]}
      t: {dtype: float64, bounds: [???, ???]}
      kind: {dtype: category, keys: [???, ???]}
    ingest: enforce
privacy: ???
"""


def air(folder: Path) -> None:
    """Write an export with `;`, decimal commas, trailing `;;`, empty rows and -200 as missing."""
    rows = ["day;co;t;kind;;"]
    for at in range(300):
        co = "-200" if at % 6 == 0 else f"{at % 7},{at % 10}"
        t = "-200,0" if at % 9 == 0 else f"{at % 30 - 8},5"
        rows.append(f"{at % 28 + 1}/03/2004;{co};{t};a;;")
    (folder / "air.csv").write_text("\n".join([*rows, *[";;;;;"] * 14]) + "\n")


def test_the_steward_needs_no_bounds_and_gets_a_spec_that_reads(tmp_path: Path) -> None:
    """``doctor`` refused the template that ``init`` had written, and called numbers texts."""
    air(tmp_path)
    (tmp_path / "air.yaml").write_text(AIR)
    spec, mended = str(tmp_path / "air.yaml"), tmp_path / "mended.yaml"
    run = CliRunner().invoke(app, ["doctor", spec, "--private-look", "-o", str(mended)])
    assert run.exit_code == 0, run.output
    said = " ".join(run.output.split())
    assert "the header fits the delimiter ';'" in said
    assert "column t: 300 of the first 314 cells have a decimal (',')" in said
    assert "50 of the first 300 cells are -200" in said
    assert "'str'" not in said
    text = mended.read_text()
    assert "# as the station exports it" not in text or "decimal" in text
    assert "[???, ???]" in text
    filled = text.replace("[???, ???]}", "[-50, 50]}").replace("keys: [-50, 50]", "keys: [a, b]")
    mended.write_text(filled)
    (entry,) = entries_of(mended)
    source = open_source("csv", entry.source.argument, entry.records, tmp_path)
    kept = np.concatenate([block["t"] for block in gated_blocks(source, "enforce")()])
    expected = [
        at % 30 - 8 + (0.5 if at % 30 >= 8 else -0.5) for at in range(300) if at % 6 and at % 9
    ]
    assert kept.tolist() == expected
    again = CliRunner().invoke(app, ["doctor", spec, "--private-look", "-o", str(mended)])
    assert again.exit_code == 1  # it overwrites nothing


def test_the_steward_comes_from_init_to_a_right_answer_in_four_commands(tmp_path: Path) -> None:
    """Only holes are filled in between: the name, public bounds, and columns that are not wanted go."""
    air(tmp_path)
    (tmp_path / "places.csv").write_text("co,t\n3.0,5.5\n")

    def command(*words: str) -> Any:
        run = CliRunner().invoke(app, [str(word) for word in words])
        assert run.exit_code == 0, run.output
        return run

    spec, mended = tmp_path / "air.yaml", tmp_path / "mended.yaml"
    command("init", spec, "--data", "air.csv", "--recipe", "density")
    command("doctor", spec, "--private-look", "-o", mended)
    text = mended.read_text()
    for hole, value in (
        ("name: ???", "name: air"),
        ("co: {dtype: float64, bounds: [???, ???]}", "co: {dtype: float64, bounds: [0, 10]}"),
        ("[???, ???]", "[-50, 50]"),
        ("limit: {epsilon: 3.0", "limit: {epsilon: 999999.0"),
        ("budget: {epsilon: 1.0", "budget: {epsilon: 100000.0"),
    ):
        assert hole in text
        text = text.replace(hole, value)
    mended.write_text(text)
    command("apply", mended)
    asked = ["--queries", tmp_path / "places.csv", "--post", "density", "--json"]
    table = json.loads(command("answer", tmp_path / "out" / "release.npz", *asked).output)
    told = dict(zip(table["columns"], table["rows"][0], strict=True))
    rows = [
        (at % 7 + at % 10 / 10, at % 30 - 8 + (0.5 if at % 30 >= 8 else -0.5))
        for at in range(300)
        if at % 6 and at % 9
    ]
    apart = [((co - 3) / 10 / 0.1) ** 2 + ((t - 5.5) / 100 / 0.1) ** 2 for co, t in rows]
    truth = sum(np.exp(-np.array(apart)))
    assert told["lower"] <= truth <= told["upper"]
    assert abs(told["density"] - truth) < 2
    assert abs(told["records"] - len(rows)) < 2


def test_a_tie_is_a_hole_in_the_mended_spec(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("co;t\n" + "1,234;5\n" * 9)
    spec, mended = tmp_path / "s.yaml", tmp_path / "mended.yaml"
    assert CliRunner().invoke(app, ["init", str(spec), "--data", "t.csv"]).exit_code == 0
    words = ["doctor", str(spec), "--private-look", "-o", str(mended)]
    run = CliRunner().invoke(app, words)
    assert run.exit_code == 0, run.output
    said = " ".join(run.output.split())
    assert "asked column co: 9 of the first 9 cells, such as '1,234', are 1234 with" in said
    assert "thousands: ???" in mended.read_text()
    assert CliRunner().invoke(app, ["check", str(mended)]).exit_code == 1
    again = CliRunner().invoke(app, ["doctor", str(mended), "--private-look"])
    assert "asked column co" in " ".join(again.output.split())


def test_a_hole_in_the_source_is_named(tmp_path: Path) -> None:
    (tmp_path / "air.yaml").write_text(AIR.replace("air.csv", "???"))
    run = CliRunner().invoke(app, ["doctor", str(tmp_path / "air.yaml"), "--private-look"])
    assert run.exit_code == 1
    assert "write its path first" in run.output


@pytest.mark.parametrize("form", ["{}.0 EUR", "{},5", "$ {:,}.00", "{} %"])
def test_a_column_of_numbers_is_never_called_a_text(form: str, tmp_path: Path) -> None:
    spec = write_small(tmp_path, CSV, ("      kind:", "      price: {dtype: int64}\n      kind:"))
    frame = pd.DataFrame(points()["x"], columns=["x_0", "x_1", "x_2"])
    frame["kind"], frame["price"] = points()["kind"], [form.format(900 + at) for at in range(200)]
    frame.to_csv(tmp_path / "p.csv", index=False)
    (look,) = doctor(plan_file(spec))
    assert {column.name: column.better for column in look.columns}["price"] in (None, "float64")


@pytest.mark.parametrize("bounds", [(), (0.0, 400.0)])
def test_it_counts_values_that_the_declared_integers_do_not_hold(bounds):
    """The gate refuses 300 as ``u8`` (OS605) or clamps it to 255: the doctor said that it does nothing."""
    column = Column("x", "array[u8,2]", bounds=bounds)
    values = np.array([[1, 300], [255, 0], [-1, 2], [3, 4]])
    look = Look("d", "enforce", columns=[ColumnLook("x", column.dtype)])
    _count({"x": values}, Records((column,)), look)
    assert (look.records, look.dropped, look.columns[0].clamped) == (4, 0, 2)
    with pytest.raises(DataError, match="OS605"):
        column.check(values, 4)
