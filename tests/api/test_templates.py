"""``init``: recipes whose holes are all that is missing."""

from __future__ import annotations

import re

import numpy as np
import pytest
from typer.testing import CliRunner

import opendp_sim as sim
from opendp_sim.api.templates import RECIPES, Header, file_header, recipe_text
from opendp_sim.cli import app
from opendp_sim.cli._audit_spec import spec_subjects
from opendp_sim.dsl.grammar.program import TEMPLATE


def filled(text: str) -> str:
    """Fill in a recipe's holes: a in [0, 1], b in [0, 90], classes u and v."""
    for hole, value in (
        ("name: ???", "name: mine"),
        ("csv: ???", "csv: t.csv"),
        ("[???, ???]}   # from", "[0, 1]}   # from"),
        ("bounds: [???, ???]", "bounds: [0, 90]"),
        ("[???, ???]", "[u, v]"),
        ("size: ???", "size: 300"),
        ("max_rows: ???", "max_rows: 2"),
    ):
        text = text.replace(hole, value)
    assert "???" not in re.sub("# .*", "", text)
    return text


def written(tmp_path, *words: str) -> str:
    """Write a spec by ``init``; return its text, which `check` refuses for its holes."""
    file = tmp_path / "s.yaml"
    run = CliRunner().invoke(app, ["init", str(file), *words])
    assert run.exit_code == 0, run.output
    assert CliRunner().invoke(app, ["check", str(file)]).exit_code == 1
    text = file.read_text()
    file.write_text(filled(text))
    return text


def table(tmp_path) -> None:
    """Write 300 records, a in [0, 1] and b in [0, 90], of class u below and v above."""
    cells = [(a, 90 * a, "uv"[int(a > 0.5)], f"p{n}") for n, a in enumerate(np.linspace(0, 1, 300))]
    lines = [f"{a:.3f},{b:.2f},{kind},{who}" for a, b, kind, who in cells]
    (tmp_path / "t.csv").write_text("a,b,kind,person\n" + "\n".join(lines) + "\n")
    (tmp_path / "places.csv").write_text(
        "a,b\n" + "\n".join(f"{a},45" for a in np.linspace(0, 1, 60))
    )


_ASKED = ["density", "classes", "means", "regression", "audit"]


@pytest.mark.few(2)
@pytest.mark.parametrize("recipe", _ASKED)
def test_a_recipe_runs_once_its_holes_are_filled(recipe, tmp_path):
    text = written(tmp_path, "--recipe", recipe, "--data", "t.csv")
    table(tmp_path)
    release = sim.apply(tmp_path / "s.yaml").results["release"]
    post = "distance" if recipe == "audit" else text.split("--post ")[1].split()[0]
    assert post in release.ops
    assert len(release.ask(post, {"a": [0.5], "b": [45.0]})) >= 1


def test_the_dashboard_answers_three_questions_from_one_charge(tmp_path):
    text = written(tmp_path, "--recipe", "dashboard", "--data", "t.csv")
    table(tmp_path)
    found = sim.apply(tmp_path / "s.yaml").results
    posts = re.findall(r"--post (\w+)", text)
    assert posts == ["density", "nearest_class", "counts"]
    for output, post in zip(("map", "means", "kinds"), posts, strict=True):
        asked = {} if post == "counts" else {"queries": {"a": [0.5], "b": [45.0]}}
        assert len(found[output].ask(post, **asked)) >= 1


def test_the_list_of_items_counts_persons(tmp_path):
    written(tmp_path, "--recipe", "top")
    file = tmp_path / "s.yaml"
    file.write_text(file.read_text().replace("k: 10", "k: 1"))
    lines = ["often,p1"] * 900 + [f"wide,p{n}" for n in range(200)]
    (tmp_path / "t.csv").write_text("item,person\n" + "\n".join(lines))
    found = sim.apply(file).results["release"]
    assert found == ["wide"]


def test_the_session_answers(tmp_path):
    written(tmp_path, "--recipe", "session", "--data", "t.csv")
    table(tmp_path)
    with sim.session(tmp_path / "s.yaml") as asked:
        labels = asked.ask([[0.1, 9.0], [0.9, 81.0]]).labels
    assert len(labels) == 2
    assert set(labels) <= {"u", "v"}  # which, noise decides at this budget


def test_the_audit_is_of_records_drawn(tmp_path):
    written(tmp_path, "--recipe", "audit", "--data", "t.csv")  # which is not there
    assert [name for name, *_ in spec_subjects(tmp_path / "s.yaml")]


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("header", "recipe"),
    [
        ("lon,lat", "density"),
        ("a,b,kind", "classes"),
        ("v_0,v_1,v_2,v_3,label", "classes"),
        ("a,b,c,d,species", "means"),
        ("area,rooms,SalePrice", "regression"),
        ("userId,movieId,rating", "top"),
        ("1,2", "density"),
    ],
)
def test_the_header_suggests_a_recipe(header, recipe, tmp_path):
    numbers = ",".join("7" for _ in header.split(","))
    (tmp_path / "t.csv").write_text(f"{header}\n{numbers}\n")
    run = CliRunner().invoke(app, ["init", str(tmp_path / "s.yaml"), "--data", "t.csv"])
    assert run.exit_code == 0, run.output
    assert f"recipe `{recipe}`" in run.output
    text = (tmp_path / "s.yaml").read_text()
    assert text == recipe_text(recipe, "t.csv", "", file_header(tmp_path / "t.csv"))
    assert CliRunner().invoke(app, ["check", str(tmp_path / "s.yaml")]).exit_code == 1
    (tmp_path / "s.yaml").write_text(filled(text))
    found = CliRunner().invoke(app, ["check", str(tmp_path / "s.yaml")])
    assert found.exit_code == 0, found.output


def test_a_person_in_the_header_is_the_unit(tmp_path):
    (tmp_path / "t.csv").write_text("patient_id,age,weight\np,7,8\n")
    text = written(tmp_path, "--data", "t.csv")
    assert "patient_id: {dtype: str, role: privacy_id}" in text
    assert "of: patient_id}" in text
    assert "bound_contributions" in text
    assert "features: [age, weight]" in text


def test_a_name_in_the_header_is_no_mark_of_the_template(tmp_path):
    (tmp_path / "t.csv").write_text("<LABEL>,ITEM,FLOW\n")
    stated = ("--first-line", "names")
    text = written(tmp_path, "--recipe", "classes", "--data", "t.csv", *stated)
    assert '"<LABEL>"' in text


def test_numbered_headers_are_one_vector(tmp_path):
    (tmp_path / "t.csv").write_text(",".join(f"gene_{n}" for n in range(765)) + ",label\n")
    stated = ("--first-line", "names")
    text = written(tmp_path, "--recipe", "means", "--data", "t.csv", *stated)
    assert 'gene: {dtype: "array[f64, 765]", bounds: [???, ???]}' in text
    assert "features: [gene], label: label" in text


def test_names_of_a_parquet_file_are_public_as_a_header_is(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pa.table({"a": [1.0], "kind": ["u"]}), tmp_path / "t.parquet")
    text = written(tmp_path, "--data", "t.parquet")
    assert "source: {parquet: t.parquet}" in text
    assert "features: [a], label: kind" in text


def test_dates_and_yes_or_no_are_no_numbers():
    names = ("speed", "is_open", "has_car", "earned", "seed")
    text = recipe_text("density", "t.csv", "", Header("csv", names))
    assert "features: [speed, earned, seed]" in text
    assert "# is_open: ???" in text
    assert "# has_car: ???" in text


def test_columns_are_called_as_the_header_calls_them(tmp_path):
    (tmp_path / "t.csv").write_text("\ufeffDate;CO(GT);T;kind;;\n10/03/2004;2,6;13,6;u;;\n")
    run = CliRunner().invoke(
        app, ["init", str(tmp_path / "s.yaml"), "--recipe", "classes", "--data", "t.csv"]
    )
    assert run.exit_code == 0
    text = (tmp_path / "s.yaml").read_text()
    assert 'source: {csv: {file: t.csv, delimiter: ";"}}' in text
    assert 'features: ["CO(GT)", T], label: kind' in text
    assert "# Date: ???" in text
    assert "2,6" not in text
    (tmp_path / "s.yaml").write_text(filled(text))
    found = CliRunner().invoke(app, ["check", str(tmp_path / "s.yaml")])
    assert found.exit_code == 0, found.output


@pytest.mark.parametrize(
    "line",
    ["1,2,3", "a", "a,a", "", 'a,"b', "x,nan,7", '{"name": "Smith", "hiv": "pos"}', '["a", "b"]'],
)
def test_a_first_line_that_may_be_a_record_is_no_header(line, tmp_path):
    (tmp_path / "t.csv").write_text(f"{line}\n1,2,3\n")
    assert file_header(tmp_path / "t.csv").names == ()
    assert file_header(tmp_path / "none.csv").names == ()


def test_one_odd_cell_does_not_make_a_record_a_header(tmp_path):
    """A first record whose only number was missing became the names of columns."""
    (tmp_path / "t.csv").write_text("Alice Smith,declined\nBob Li,41\nCy Roe,7\n")
    assert file_header(tmp_path / "t.csv").names == ()
    assert file_header(tmp_path / "t.csv").unsure
    (tmp_path / "two.csv").write_text("who,age,size\nBob Li,41,2\nCy Roe,7,3\n")
    assert file_header(tmp_path / "two.csv").names == ("who", "age", "size")
    (tmp_path / "odd.csv").write_text("Alice Smith,declined,4\nBob Li,41,2\nCy Roe,7,3\n")
    assert file_header(tmp_path / "odd.csv").names == ()


def test_a_stated_record_leaves_room_for_names(tmp_path):
    (tmp_path / "t.csv").write_text("Ann,Paris\nBo,Rome\n")
    run = CliRunner().invoke(app, ["init", str(tmp_path / "a.yaml"), "--data", "t.csv"])
    assert "--first-line names" in run.output
    stated = ["init", str(tmp_path / "s.yaml"), "--data", "t.csv", "--first-line", "record"]
    assert CliRunner().invoke(app, stated).exit_code == 0
    text = (tmp_path / "s.yaml").read_text()
    assert "header: ???" in text
    assert "Paris" not in text + (tmp_path / "a.yaml").read_text()
    other = ["init", str(tmp_path / "b.yaml"), "--data", "t.csv", "--first-line", "both"]
    assert CliRunner().invoke(app, other).exit_code == 1


@pytest.mark.parametrize("ending", [".jsonl", ".ndjson", ".jsonl.gz", ".npz", ".npy"])
def test_a_record_of_a_file_without_a_header_is_in_no_spec(ending, tmp_path):
    """The first record of JSON lines became the names of columns."""
    (tmp_path / f"one{ending}").write_text('{"name": "Smith", "age": 60, "hiv": "pos"}\n')
    assert file_header(tmp_path / f"one{ending}").names == ()


def test_without_arguments_it_says_what_there_is():
    run = CliRunner().invoke(app, ["init"])
    assert run.exit_code == 0
    assert all(name in run.output for name in RECIPES)
    assert CliRunner().invoke(app, ["init", "x.yaml", "--recipe", "nothing"]).exit_code == 1
    assert recipe_text("blank", None, TEMPLATE) == TEMPLATE
    assert "parquet: p.parquet" in recipe_text("means", "p.parquet", TEMPLATE)


def test_a_database_has_its_table_and_its_columns(tmp_path):
    """``init --data t.duckdb`` wrote ``{csv: t.duckdb}``."""
    import sqlite3

    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "t.duckdb")) as held:
        held.sql("CREATE TABLE visits AS SELECT 1.5 AS stay, 3 AS age, 'x' AS kind")
    text = written(tmp_path, "--data", "t.duckdb")
    assert 'source: {sql: {file: t.duckdb, table: "visits"}}' in text
    assert "features: [stay, age], label: kind" in text
    lite = sqlite3.connect(tmp_path / "t.db")
    lite.execute("CREATE TABLE a (x REAL)")
    lite.execute("CREATE TABLE b (x REAL)")
    lite.close()
    found = CliRunner().invoke(app, ["init", str(tmp_path / "two.yaml"), "--data", "t.db"])
    assert "its `table` is one of 'a', 'b'" in " ".join(found.output.split())
    assert "{sql: {file: t.db, table: ???}}" in (tmp_path / "two.yaml").read_text()
    assert file_header(tmp_path / "none.sqlite").kind == "sql"


def test_init_takes_what_recommend_ranks_first_at_the_stated_size(tmp_path):
    """Was `frequencies: 2000` whatever the size, the columns and the budget."""
    (tmp_path / "w.csv").write_text("a,b,c,d\n1,2,3,4\n")
    few, many, wide = (
        written(tmp_path / name, "--recipe", "density", *words)
        for name, words in (
            ("few", ["--size", "10000"]),
            ("many", ["--size", "1000000", "--epsilon", "8"]),
            ("wide", ["--data", str(tmp_path / "w.csv"), "--first-line", "names"]),
        )
        if (tmp_path / name).mkdir() is None
    )
    for text, columns, size, epsilon in ((few, 2, 10_000, 1.0), (many, 2, 10**6, 8.0)):
        found = sim.recommend("density", columns, size=size, bandwidth=0.07, epsilon=epsilon)
        best = found.best
        assert f"{best.mechanism}: {{frequencies: {best.parameters['frequencies']}," in text
        assert f"budget: {{epsilon: {epsilon}, delta" in text
        told = " ".join(line.strip().removeprefix("# ") for line in text.splitlines())
        assert f"by `recommend`: with about {size:,} rows at epsilon {epsilon:g} 95% of" in told
        assert best.reason in told
        assert "init --size" not in told
    assert "frequencies: 8192," in wide  # recommend goes on to 65,536 and more: this is measured
    assert "--size` states how many" in " ".join(wide.split("    # "))


def test_a_session_takes_the_stated_size(tmp_path):
    assert "size: 700}" in written(tmp_path, "--recipe", "session", "--size", "700")


RECIPES_OF = {
    "density": lambda columns, **words: sim.density(
        columns, bandwidth=0.2 if len(columns) == 3 else 0.1, **words
    ),
    "means": sim.means,
    "distances": sim.distances,
}


@pytest.mark.few(3)
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("width", [1, 3, 5])
@pytest.mark.parametrize("question", RECIPES_OF)
def test_recipes_are_within_a_twentieth_of_what_recommend_ranks_first(question, width, epsilon):
    """In three columns a density keeps 2,000 frequencies, which hold wide kernels alone."""
    columns, size = {f"x{at}": (0.0, 1.0) for at in range(width)}, 20_000
    words = {"bandwidth": 0.2 if width == 3 else 0.1} if question == "density" else {}
    best = sim.recommend(question, columns, size=size, most=8192, epsilon=epsilon, **words).best
    sized = {} if question == "means" else {"size": size}
    told = RECIPES_OF[question](columns, epsilon=epsilon, **sized).plan.forecast()
    asked = {"density": "density", "means": "mean", "distances": "distance"}[question]
    (own,) = (one for name, one in told.items() if name.startswith(asked))
    assert own.at(size) <= 1.05 * best.error


def test_distances_of_a_stated_size_are_of_the_mechanism_of_least_error():
    """Were 1,024 thresholds whatever the size and measure: 5 times the error under pure DP."""
    words = {"measure": "pure", "delta": None, "epsilon": 1.0}
    told = sim.distances({"x": (0, 1)}, size=20_000, **words).plan
    assert "moment_tree" in told.to_yaml()
    before = sim.distances({"x": (0, 1)}, **words).plan.forecast()["distance of release"]
    assert told.forecast()["distance of release"].at(20_000) < before.at(20_000) / 3
    by_class = sim.distances({"x": (0, 1)}, label="kind", keys=["a", "b"], size=20_000, **words)
    assert "per_label: true" in by_class.plan.to_yaml()
    solved = {"error": 50.0, "size": 20_000, "of": "distance"}
    goal = sim.distances({"x": (0, 1)}, epsilon=solved, size=20_000)
    assert "threshold_sketch" in goal.plan.to_yaml()
