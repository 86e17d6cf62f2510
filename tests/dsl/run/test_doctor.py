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
from opendp_sim.dsl.run.doctor import ColumnLook, Look, _count, doctor, entries_of, look_at
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


def test_the_steward_comes_from_init_to_a_right_answer_in_five_commands(tmp_path: Path) -> None:
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
    command("ledger", "new", mended)
    command("apply", mended)
    asked = ["--queries", tmp_path / "places.csv", "--post", "density", "--json"]
    table = json.loads(command("answer", tmp_path / "out" / "release.npz", *asked).output)
    told = dict(zip(table["columns"], table["rows"][0], strict=True))
    rows = [
        (at % 7 + at % 10 / 10, at % 30 - 8 + (0.5 if at % 30 >= 8 else -0.5))
        for at in range(300)
        if at % 6 and at % 9
    ]
    apart = [((co - 3) / 10 / 0.07) ** 2 + ((t - 5.5) / 100 / 0.07) ** 2 for co, t in rows]
    truth = sum(np.exp(-np.array(apart) / 2))
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


LOOK = """spec: opendp_sim/1
name: t
data:
  records:
    source: {SOURCE}
    columns:
      x: {dtype: float64}
      y: {dtype: float64}
    ingest: enforce
privacy: ???
"""


def looked_at(folder: Path, source: str, *columns: str) -> tuple[Look, str]:
    """Return what the doctor finds, and what it writes on the screen."""
    text = LOOK.replace("SOURCE", source)
    if columns:
        text = text.replace(
            "      x: {dtype: float64}\n      y: {dtype: float64}\n",
            "".join(f"      {column}\n" for column in columns),
        )
    (folder / "s.yaml").write_text(text)
    (look,) = look_at(entries_of(folder / "s.yaml"), str(folder))
    run = CliRunner().invoke(app, ["doctor", str(folder / "s.yaml"), "--private-look"])
    assert run.exit_code == 0, run.output
    return look, " ".join(run.output.split())


def csv_text(count: int, delimiter: str = ";", decimal: str = ".") -> str:
    lines = (f"{at}.5{delimiter}{at % 9}.25".replace(".", decimal) for at in range(count))
    return "\n".join([f"x{delimiter}y", *lines]) + "\n"


def test_the_one_file_of_a_folder_in_another_dialect_is_named(tmp_path: Path) -> None:
    """Its cells are private: no run may be refused for them, and its records were lost without a word."""
    (tmp_path / "days" / "year=2024").mkdir(parents=True)
    for name in ("a", "b", "c"):
        text = csv_text(100, decimal="," if name == "b" else ".")
        (tmp_path / "days" / "year=2024" / f"{name}.csv").write_text(text)
    (tmp_path / "days" / "notes.tsv").write_text("x\n")
    year = ("x: {dtype: float64}", "y: {dtype: float64}", "year: {dtype: int64}")
    look, said = looked_at(tmp_path, "csv: days", *year)
    assert look.found.options == {"delimiter": ";"}
    assert (look.records, look.dropped, look.refused) == (300, 100, "")
    assert [file.dropped for file in look.files] == [0, 100, 0]
    assert (
        "year=2024/b.csv is in another form than the other files (delimiter: ';', decimal: ',')"
        in said
    )
    assert "left out of the folder, by its name: notes.tsv" in said
    assert "file year=2024/b.csv: 100 of its 100 records (100.0%)" in said
    look, said = looked_at(tmp_path, 'csv: "days/year=2024/[ac].csv"')
    assert (look.records, look.dropped, look.found.options) == (200, 0, {"delimiter": ";"})


def test_options_of_several_files_that_go_together_are_proposed_together(tmp_path: Path) -> None:
    (tmp_path / "days").mkdir()
    lines = [*(f"{at}.5,1.0" for at in range(90)), *["-200,1.0"] * 10]
    (tmp_path / "days" / "a.csv").write_text("x,y\n" + "\n".join(lines))
    (tmp_path / "days" / "b.csv").write_text(
        "x,y\n" + "\n".join(f"${at}.5,1.0" for at in range(90))
    )
    look, said = looked_at(tmp_path, "csv: days")
    assert look.found.options == {"strip": ["$"], "missing": [-200]}
    assert "another form" not in said
    (tmp_path / "days" / "c.csv").write_text("z,y\n1,2\n")
    look, _ = looked_at(tmp_path, "csv: days")
    assert look.refused.startswith("c.csv: OS602 column x")


def test_a_folder_of_another_kind_has_its_files_counted(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    for name, cells in (("a", [1.0, 2.0]), ("b", [None, 2.0])):
        frame = pd.DataFrame({"x": cells, "y": [1.0, 2.0]})
        frame.to_parquet(tmp_path / "t" / f"{name}.parquet")
        frame.to_json(tmp_path / "t" / f"{name}.jsonl", orient="records", lines=True)
    for kind in ("parquet", "jsonl"):
        look, _ = looked_at(tmp_path, f"{kind}: t")
        assert [(file.name, file.dropped) for file in look.files] == [
            (f"a.{kind}", 0),
            (f"b.{kind}", 1),
        ]


def test_misspelt_keys_of_json_lines_are_named(tmp_path: Path) -> None:
    lines = ['{"x": 1, "y": 2}'] * 90 + ['{"X ": 1, "y": 2}'] * 9 + ['{"x": 1, "y": "2 m"}']
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    look, said = looked_at(tmp_path, "jsonl: t.jsonl")
    assert "column x: 9 of the first 100 lines have no key `x`; like it: 'X ' (9)" in said
    assert look.found.examples == {"y": ["'2 m'"]}


def test_a_mark_is_named_in_each_column_that_has_it(tmp_path: Path) -> None:
    lines = [
        f"{-200 if at % 9 == 0 else at},{-200 if at % 5 == 0 else at % 40 - 9}" for at in range(200)
    ]
    (tmp_path / "t.csv").write_text("x,y\n" + "\n".join(lines))
    look, said = looked_at(tmp_path, "csv: t.csv")
    assert look.found.options == {"missing": [-200]}
    assert "column x: 23 of the first 200 cells are -200 (below zero, alone)" in said
    assert "column y: 40 of the first 200 cells are -200 (far from all others)" in said


def test_swapped_places_are_named(tmp_path: Path) -> None:
    lines = [f"{at},{at % 50}" for at in range(180)]
    (tmp_path / "t.csv").write_text("lat,lon\n" + "\n".join(lines))
    place = "{file: t.csv, columns: {p: {km: [lat, lon], at: [48, 10]}}}"
    look, said = looked_at(tmp_path, f"csv: {place}", 'p: {dtype: "array[f64, 2]"}')
    assert "column p: 89 of the first 180 latitudes are beyond 90 degrees" in said
    assert look.dropped == 89  # no place, and not one of another
    _, said = looked_at(tmp_path, "csv: t.csv", "lat: {dtype: float64}", "lon: {dtype: float64}")
    assert "column lat: 89 of the first 180 latitudes" in said


def test_a_refused_stored_type_has_its_own_name(tmp_path: Path) -> None:
    """It was `|V1`."""
    pd.DataFrame({"x": ["a", "b"], "y": [1.0, 2.0]}).to_parquet(tmp_path / "t.parquet")
    look, said = looked_at(tmp_path, "parquet: t.parquet")
    assert [column.stored for column in look.columns] == ["large_string", "float64"]
    assert "a stored dtype that the declaration cannot mean: x" in said


def test_lines_whose_quotes_are_escaped_in_another_way_are_named(tmp_path: Path) -> None:
    lines = [r'"a \"b\" c",1' if at % 4 == 0 else '"a",1' for at in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["x,y", *lines]))
    look, said = looked_at(tmp_path, "csv: t.csv", "x: {dtype: str}", "y: {dtype: float64}")
    assert look.dropped == 10
    assert (
        "10 of the first 40 lines have another number of cells than the header, or a quote" in said
    )


def test_a_text_column_of_a_file_with_decimal_commas_is_called_a_text(tmp_path: Path) -> None:
    """Its cells are no numbers of the found dialect, which made them missing before they were rated."""
    (tmp_path / "t.csv").write_text("x;y\n" + "".join(f"S{at};{at},5\n" for at in range(40)))
    look, _ = looked_at(tmp_path, "csv: t.csv")
    assert {column.name: column.better for column in look.columns} == {"x": "str", "y": None}
    assert look.found.options == {"delimiter": ";", "decimal": ","}
