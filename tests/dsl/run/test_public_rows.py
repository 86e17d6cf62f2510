"""Every door that takes public rows refuses the private ones, under any name (``io/origin.md``)."""

from __future__ import annotations

import ast
import json
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import opendp_sim
import opendp_sim as sim
from opendp_sim.core.errors import SimError
from opendp_sim.core.mechanism import Mechanism
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.dsl.grammar.program import SourceRef
from opendp_sim.dsl.run.predict import predict_errors
from opendp_sim.dsl.run.session import read_batch
from opendp_sim.measurements.knn.hybrid_knn import HybridKnn
from opendp_sim.measurements.knn.ind_knn import IndKnn
from opendp_sim.measurements.knn.private_knn import PrivateKnn
from opendp_sim.sklearn import DPKNeighborsClassifier
from tests._cli import run

PACKAGE = Path(opendp_sim.__file__).parent
PAGE = (PACKAGE / "io" / "origin.md").read_text("utf-8")
OPENERS = {
    "open_source",
    "from_table",
    "from_arrays",
    "from_chunks",
    "raw_columns",
    "source_of",
    "read_queries",
    "query_blocks",
    "open_queries",
    "open_points",
}
"""What turns a name or a table into rows."""
NOT_PUBLIC = {
    "accounting.release.query.query_columns": "makes columns of rows that `answers_of` opens",
    "accounting.release.query.read_queries": "hands on what its caller compares with",
    "api.labels.labels": "private data: votes before they are a row a worker",
    "api.recipe.stem_of": "names a file that it does not open",
    "dsl.run.doctor._count_all": "private data, for its curator",
    "dsl.run.find_dialect._swapped": "private data, for its curator",
    "dsl.run.inputs.check_forms": "private data: its form",
    "dsl.run.inputs.open_public": "opens queries and points",
    "dsl.run.inputs.source_named": "opens what its caller has compared",
    "dsl.run.session.checked_columns": "plain values, compared by `Served.queries`",
    "dsl.run.stream_folder.add_file": "private data: a period of a stream",
    "engines.job.source_of_task": "private data",
    "sklearn._validation.tables._framed": "the form of a table",
    "sklearn.base.checked_source": "private data",
}
"""Functions that open rows and are no doors."""


def doors():
    """Return the functions that the page names as doors."""
    rows = [line.split("|") for line in PAGE.splitlines() if line.startswith("| ") and "`" in line]
    return {name for row in rows for name in re.findall(r"`([\w.]+)`", row[-2])}


def openers():
    """Return every function of the package that turns a name or a table into rows."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        if module.split(".")[0] in ("io", "audit", "testing"):
            continue
        text = path.read_text("utf-8")
        if not any(f"{name}(" in text for name in OPENERS):
            continue
        tree = ast.parse(text)
        taken = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            and (node.module or "").startswith(
                ("opendp_sim.io", "opendp_sim.dsl.run", "opendp_sim.acc")
            )
            for alias in node.names
        } | {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.Lambda):
                continue
            for node in ast.walk(function):
                name = (
                    node.func.id
                    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
                    else ""
                )
                if name in OPENERS & taken and isinstance(function, ast.FunctionDef):
                    found.add(f"{module}.{function.name}")
    return found


def test_every_function_that_opens_rows_is_a_door_of_the_page_or_no_door_for_a_reason():
    assert openers() - doors() - NOT_PUBLIC.keys() == set()


def test_every_door_of_the_page_is_there():
    for door in doors():
        module, _, name = door.rpartition(".")
        text = (PACKAGE / (module.replace(".", "/") + ".py")).read_text("utf-8")
        import_module(f"opendp_sim.{module}")
        assert re.search(rf"def {name}\(", text), door


def test_no_door_can_forget_the_comparison():
    """Reading public rows without saying what is private here is a TypeError."""
    from opendp_sim.accounting.release.query import read_queries
    from opendp_sim.accounting.release.query_blocks import query_blocks
    from opendp_sim.dsl.run.inputs import open_points, open_queries

    for reader in (read_queries, query_blocks, open_queries, open_points):
        assert reader.__kwdefaults__ is None
        assert (
            "private"
            in reader.__code__.co_varnames[
                : sum((reader.__code__.co_argcount, reader.__code__.co_kwonlyargcount))
            ]
        )


# --- the doors of a spec --------------------------------------------------------------------------

RNG = np.random.default_rng(3)
COLUMNS = {
    "x": {"dtype": "float64", "bounds": [-4, 4]},
    "y": {"dtype": "float64", "bounds": [-4, 4]},
}


def people(rows=200):
    return {"x": RNG.normal(size=rows), "y": RNG.normal(size=rows)}


def spec(source, post="density", **output):
    return {
        "spec": "opendp_sim/1",
        "name": "doors",
        "data": {"t": {"source": source, "columns": COLUMNS, "ingest": "enforce"}},
        "privacy": {
            "unit": {"add_remove": 1, "of": "row"},
            "measure": "zcdp",
            "budget": {"rho": 1.0},
        },
        "flow": {
            "r": {
                "from": "t",
                "steps": [
                    {"select": {"features": ["x", "y"]}},
                    {"quantize": {"bits": 8}},
                    {
                        "fourier_sketch": {
                            "frequencies": 50,
                            "kernel": {"gaussian": {"bandwidth": 1.0}},
                            "seed": 1,
                        }
                    },
                ],
                "release": {"noise": "gaussian", "spend": "100%"},
            }
        },
        "outputs": {"d": {"from": "r", "post": [post], "save": "d.csv", **output}},
    }


def refused(call):
    with pytest.raises(SimError) as error:
        call()
    assert error.value.code == "OS704"
    return error.value


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "form", [dict, lambda t: {"q": t["x"], **t}, lambda t: {"x": t["x"][:30], "y": t["y"][:30]}]
)
def test_a_table_in_memory_under_another_name(form, tmp_path):
    table = people()
    plan = sim.plan(spec({"memory": "t"}, queries={"memory": "q"}))
    told = refused(lambda: sim.apply(plan, into=tmp_path, data={"t": table, "q": form(table)}))
    assert told.where == "outputs.d.queries"
    sim.apply(plan, into=tmp_path, data={"t": table, "q": people(30)})


def test_public_points_in_memory(tmp_path):
    table = people()
    points = {"density": {"public": "points"}}
    plan = sim.plan(spec({"memory": "t"}, points, queries={"memory": "q"}, public={"memory": "p"}))
    told = refused(
        lambda: sim.apply(plan, into=tmp_path, data={"t": table, "q": people(30), "p": table})
    )
    assert told.where == "outputs.d.public"
    sim.apply(plan, into=tmp_path, data={"t": table, "q": people(30), "p": people(30)})


def test_a_public_dataset_in_memory(tmp_path):
    table, made = people(), spec({"memory": "t"}, queries={"memory": "q"})
    made["data"]["open"] = {"source": {"memory": "o"}, "columns": COLUMNS, "public": True}
    made["flow"]["bare"] = {**made["flow"]["r"], "from": "open", "release": "none"}
    made["outputs"]["shown"] = {
        "from": "bare",
        "post": ["density"],
        "queries": {"memory": "q"},
        "save": "b.csv",
    }
    plan = sim.plan(made)
    told = refused(
        lambda: sim.apply(plan, into=tmp_path, data={"t": table, "q": people(30), "o": table})
    )
    assert told.where == "data.open.source"
    sim.apply(plan, into=tmp_path, data={"t": table, "q": people(30), "o": people(30)})


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("t.npz", **people())
    np.savez("q.npz", **people(30))
    Path("link.npz").symlink_to("t.npz")
    Path("hard.npz").hardlink_to("t.npz")
    return tmp_path


@pytest.mark.parametrize("like", ["t.npz", "link.npz", "hard.npz", "./t.npz"])
def test_plan_like_the_private_file(like, files):
    """Its prediction was an exact function of the private file: another number with one row fewer."""
    plan = sim.plan(spec({"npz": str(files / "t.npz")}, queries={"npz": str(files / "q.npz")}))
    assert refused(lambda: predict_errors(plan, SourceRef("npz", like), 200)).where == "plan.like"
    assert predict_errors(plan, SourceRef("npz", "q.npz"), 200)


def test_plan_like_at_the_command_line(files):
    made = spec({"npz": "t.npz"}, queries={"npz": "q.npz"})
    Path("s.yaml").write_text(json.dumps(made))
    done = run("plan", "s.yaml", "--like", "t.npz")
    assert done.exit_code != 0
    assert "OS704" in done.output


KNN = {"mechanism": {"ind_knn": {"queries": 50, "size": 60}}, "spend": "100%"}


def session(source, **output):
    made = spec(source)
    made["data"]["t"]["columns"] = COLUMNS | {"kind": {"dtype": "category", "keys": ["a", "b"]}}
    steps = [{"select": {"features": ["x", "y"], "label": "kind"}}, {"quantize": {"bits": 8}}]
    made["flow"] = {"r": {"from": "t", "steps": steps, "release": KNN}}
    made["outputs"] = {"s": {"from": "r", "serve": "session", **output}}
    return made


def labelled(rows=60):
    return people(rows) | {"kind": np.array(["a", "b"] * (rows // 2))}


def test_a_session_s_batch_is_refused_and_does_not_crash(files):
    np.savez("l.npz", **labelled())
    Path("s.yaml").write_text(json.dumps(session({"npz": "l.npz"})))
    plan = sim.plan(Path("s.yaml"))
    refused(lambda: read_batch(plan, None, SourceRef("npz", "l.npz")))
    done = run("session", "s.yaml", "--batch", "l.npz")
    assert done.exit_code != 0
    assert "OS704" in done.output
    assert "OS903" not in done.output
    assert not Path("s.session").exists()


def test_a_session_s_queries_in_memory(files):
    table = labelled()
    asked = session({"memory": "t"}, queries={"memory": "q"}, store="q.session")
    made = {**asked, "outputs": {"s": asked["outputs"]["s"]}}
    refused(lambda: sim.session(made, {"t": table, "q": table}))
    rows = np.stack([table["x"], table["y"]], axis=1)
    made = session({"memory": "t"}, store="r.session")
    with sim.session(
        made, {"t": {"x": rows[:, 0], "y": rows[:, 1], "kind": table["kind"]}}
    ) as served:
        refused(lambda: served.reference(rows))
        refused(lambda: served.ask(list(rows)))
        assert served.reference(rows.copy())
        refused(lambda: served.ask(rows[:3]))


GRID = GridRows(width=2, labels=("left", "up"), unit=0.01, lower=(-100,), upper=(100,))


@pytest.mark.parametrize(
    "setting",
    [
        IndKnn(rho=1.0, queries=50, size=60),
        HybridKnn(rho=1.0, queries=50, size=60),
        PrivateKnn(epsilon=1.0, delta=1e-6, queries=50),
    ],
    ids=lambda s: s.key,
)
def test_a_reference_of_a_mechanism_in_opendp(setting: Mechanism):
    values = np.rint(RNG.uniform(-90, 90, (60, 2)))
    labels = np.arange(60) % 2
    claim = setting.bind(GRID, Symmetric())
    for message in ({"reference": values}, {"predict": values}, values, values[5:58]):
        refused(lambda message=message: claim.start(Rows(values, labels))(message))
    assert claim.start(Rows(values, labels))({"reference": values.copy()}) is True


def test_the_estimator_s_reference_as_a_frame():
    pandas = pytest.importorskip("pandas")
    table, kinds = pandas.DataFrame(people()), np.array([0, 1] * 100)
    words = {"bounds": (-4, 4), "classes": [0, 1], "queries": 200, "size": 200}
    for reference in (table, table.iloc[:60], table[["x", "y"]]):
        knn = DPKNeighborsClassifier(**words, reference=reference)
        refused(lambda knn=knn: knn.fit(table, kinds))
    est = DPKNeighborsClassifier(**words).fit(table, kinds)
    refused(lambda: est.predict(table))
    assert est.predictions_left == 200
    DPKNeighborsClassifier(**words, reference=pandas.DataFrame(people(60))).fit(table, kinds)
