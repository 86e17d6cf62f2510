"""What a query says by failing is counted: a ledger answers no free questions about records."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import opendp_sim as sim
from opendp_sim.accounting.ledger.ledger import REFUSALS, Ledger
from opendp_sim.core.errors import BudgetError, DataError
from opendp_sim.dsl import apply

HIGH, LOW = np.array([0.1, 0.95]), np.array([0.1, 0.2])


class Query:
    """A query that fails where a record is above 0.9, as an engine's ``error()`` lets anybody write."""

    def __init__(self, values):
        self.values = values

    def __arrow_c_stream__(self, requested_schema=None):
        return self.read().__arrow_c_stream__(requested_schema)

    def read(self):
        if (self.values > 0.9).any():
            raise ValueError("a record")
        return pa.table({"a": self.values})


class Relation(Query):
    """A query whose columns are attributes, as a DuckDB relation's are, called like an eager table's."""

    def __getattr__(self, name):
        if name in ("iloc", "num_rows", "get_columns", "scanner"):
            return name
        raise AttributeError(name)


class Column:
    """A column that is computed as it is read, as Dask's arrays are."""

    def __init__(self, values):
        self.query = Query(values)

    def __array__(self, dtype=None, copy=None):
        return self.query.read()["a"].to_numpy()


def of_stream(values):
    def parts():
        yield pa.record_batch({"a": Query(values).read()["a"].combine_chunks()})

    return pa.RecordBatchReader.from_batches(pa.schema({"a": pa.float64()}), parts())


def strict(values):
    return pl.LazyFrame({"a": values}).select(
        pl.when(pl.col("a") > 0.9)
        .then(pl.lit("x"))
        .otherwise(pl.lit("0.5"))
        .cast(pl.Float64)
        .alias("a")
    )


QUERIES = {
    "a stream": Query,
    "a relation": Relation,
    "a column": lambda values: {"a": Column(values)},
    "a reader": of_stream,
    "polars lazy": strict,
    "a function": lambda values: lambda: Query(values),
}


def density(folder):
    return sim.density(
        {"a": (0, 1)},
        bandwidth=0.1,
        epsilon=0.01,
        ledger=str(folder / "w.ledger"),
        limit={"epsilon": 1.0, "delta": 1e-6},
    )


@pytest.mark.few(3)
@pytest.mark.parametrize("name", QUERIES)
def test_a_query_that_fails_is_charged_or_counted(name, tmp_path):
    fit, path = density(tmp_path), tmp_path / "w.ledger"
    for number in range(1, 3):
        with pytest.raises((DataError, ValueError)):
            fit.apply(QUERIES[name](HIGH), into=tmp_path)
        with Ledger.open(path) as ledger:
            assert ledger.refusals() + len(ledger.charges) == number
            assert not [e for e in ledger.entries if e.kind == "void"]
    fit.apply(QUERIES[name](LOW), into=tmp_path)


def test_no_more_queries_are_tried_than_refusals(tmp_path):
    fit = density(tmp_path)
    for _ in range(REFUSALS):
        with pytest.raises(DataError, match="OS601"):
            fit.apply(Query(HIGH), into=tmp_path)
    for values in (HIGH, LOW):
        with pytest.raises(BudgetError, match="OS402"):
            fit.apply(Query(values), into=tmp_path)


def test_a_table_that_was_not_handed_over_costs_nothing(tmp_path):
    fit, plain = density(tmp_path), {"a": HIGH}
    with pytest.raises(DataError, match="OS601"):
        apply(fit.plan, memory={"another": plain})
    with pytest.raises(DataError, match="OS602"):
        fit.apply({"b": HIGH}, into=tmp_path)
    with Ledger.open(tmp_path / "w.ledger") as ledger:
        assert not ledger.entries


@pytest.mark.few(1)
@pytest.mark.parametrize("when", ["opening", "reading"])
def test_a_file_is_said_to_be_missing_when_it_is_opened_and_not_afterwards(
    when, tmp_path, monkeypatch
):
    """A file that goes while its records are read was looked at, whatever a look at the disk says."""
    from opendp_sim.dsl.plan.plan import plan_file
    from opendp_sim.dsl.run import inputs
    from tests._small import write_small

    spec = write_small(tmp_path)
    real = inputs.GatedSource if when == "reading" else inputs.check_forms
    name = real.__name__

    def check(*args):
        if when == "reading":
            (tmp_path / "points.npz").unlink()
            return real(*args)
        found = real(*args)
        (tmp_path / "points.npz").unlink()
        return found

    home = "opendp_sim.dsl.run.execute" if when == "opening" else "opendp_sim.dsl.run.inputs"
    plan = plan_file(spec)
    monkeypatch.setattr(f"{home}.{name}", check)
    with pytest.raises(DataError, match="no such file"):
        apply(plan)
    with Ledger.open(tmp_path / "points.ledger") as ledger:
        kinds = [e.kind for e in ledger.entries]
    assert kinds == ["reserve", "void" if when == "opening" else "refusal"]


def test_a_session_opened_again_counts_a_query_that_fails(tmp_path):
    from opendp_sim.dsl.plan.plan import plan_file
    from opendp_sim.dsl.run.session import serve

    spec = tmp_path / "people.yaml"
    spec.write_text(PEOPLE)
    plan, store = plan_file(spec), tmp_path / "people.session"
    good = {"a": np.linspace(0.0, 0.8, 60), "kind": ["a", "b"] * 30}
    with serve(plan, memory={"people": good}, store=store):
        pass
    for name, memory in (("refused", {"people": Query(HIGH)}), ("absent", {})):
        with pytest.raises(DataError, match="OS601"):
            serve(plan, memory=memory, store=store)
        with Ledger.open(tmp_path / "people.ledger") as ledger:
            assert (ledger.refusals(), len(ledger.charges)) == (1, 1), name


PEOPLE = """
spec: opendp_sim/1
name: people
data:
  people:
    source: {memory: people}
    ledger: {file: people.ledger, limit: {rho: 1.0}}
    columns:
      a: {dtype: float64, bounds: [-1, 1]}
      kind: {dtype: category, keys: [a, b]}
privacy:
  unit: {add_remove: 1, of: row}
  measure: zcdp
  budget: {rho: 0.4}
flow:
  rows:
    from: people
    steps: [select: {features: a, label: kind}, quantize: {bits: 8}]
  near:
    from: rows
    release: {mechanism: {ind_knn: {queries: 50, size: 60, threshold: 0.5, centre: false}}, spend: 100%}
outputs:
  answers: {from: near, serve: session, store: people.session}
"""
