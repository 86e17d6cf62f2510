"""Nothing is paid for without an answer: what public input makes fail, fails before the reserve."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import opendp_sim as sim
from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.core.claims import Interactive, Post, Private
from opendp_sim.core.errors import DataError, InternalError, SimError
from opendp_sim.core.mechanism import REGISTRY, Mechanism, Proof, register
from opendp_sim.domains.released import AnswerColumns
from opendp_sim.dsl.run.charge import Transaction
from opendp_sim.sklearn import Budget, DPKNeighborsClassifier

RNG = np.random.default_rng(5)
BOUNDED = {"dtype": "float64", "bounds": [-4, 4]}
COLUMNS = {"x": BOUNDED, "y": BOUNDED, "kind": {"dtype": "category", "keys": ["a", "b"]}}
DATA = {"x": RNG.normal(size=60), "y": RNG.normal(size=60), "kind": np.array(["a", "b"] * 30)}
GAUSSIAN = {"gaussian": {"bandwidth": 1.0}}
CHAINS: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "fourier_sketch": ({"frequencies": 50, "kernel": GAUSSIAN, "seed": 1}, ["density"]),
    "race_sketch": (
        {"repetitions": 8, "buckets": 8, "family": {"p_stable_l2": {"width": 2.0}}, "seed": 1},
        ["density"],
    ),
    "gauss_transform_sketch": ({"bandwidth": 1.0}, [{"outliers": {"threshold": 0.1}}]),
    "moment_tree": ({"levels": 4}, ["distance"]),
    "distance_tree": ({"levels": 4}, ["distance"]),
    "moments_sketch": ({"per_label": True, "squares": True}, ["nearest_class"]),
    "second_moments": ({}, [{"regress": {"target": 1}}]),
}
"""A sketch, its parameters, and a question to it."""
GOOD = {"x": np.array([0.0, 1.0]), "y": np.array([0.0, 1.0])}


def spec(key="fourier_sketch", post=None, queries=True, **output):
    params, asked = CHAINS[key]
    labelled = {"label": "kind"} if params.get("per_label") else {}
    asks = {"queries": {"memory": "q"}} if queries else {}
    ledger = {"file": "t.ledger", "limit": {"rho": 5.0}}
    return {
        "spec": "opendp_sim/1",
        "name": "rehearsed",
        "data": {
            "t": {
                "source": {"memory": "t"},
                "columns": COLUMNS,
                "ingest": "enforce",
                "ledger": ledger,
            }
        },
        "privacy": {
            "unit": {"add_remove": 1, "of": "row"},
            "measure": "zcdp",
            "budget": {"rho": 1.0},
        },
        "flow": {
            "r": {
                "from": "t",
                "steps": [
                    {"select": {"features": ["x", "y"], **labelled}},
                    {"quantize": {"bits": 6}},
                    {key: params},
                ],
                "release": {"noise": "gaussian", "spend": "100%"},
            }
        },
        "outputs": {"d": {"from": "r", "post": post or asked, **asks, "save": "d.csv", **output}},
    }


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def charges():
    """Return how many reserves the ledger holds."""
    if not Path("t.ledger").exists():
        return 0
    with Ledger.open(Path("t.ledger")) as ledger:
        return sum(entry.kind == "reserve" for entry in ledger.entries)


HOSTILE: dict[str, Any] = {
    "nan": {"x": [0.0, np.nan], "y": [0.0, 0.0]},
    "infinite": {"x": [0.0, np.inf], "y": [0.0, 0.0]},
    "huge": {"x": [0.0, 1.7e308], "y": [0.0, -1.7e308]},
    "integers": {"x": [0, 2**62], "y": [0, -(2**62)]},
    "none": {"x": [], "y": []},
    "a column less": {"x": [0.0]},
    "a column more": {"x": [0.0], "y": [0.0], "z": [1.0]},
    "of two lengths": {"x": [0.0, 1.0], "y": [0.0]},
    "texts": {"x": ["a"], "y": ["b"]},
    "objects": {"x": np.array([object()]), "y": np.array([None])},
    "complex": {"x": np.array([1j]), "y": np.array([1j])},
    "dates": {"x": np.array(["2026-01-01"], "M8[D]"), "y": np.array([0.0])},
    "truths": {"x": np.array([True]), "y": np.array([False])},
    "two axes": {"x": np.zeros((2, 2)), "y": np.zeros(2)},
    "ragged": {"x": [[0.0], [0.0, 1.0]], "y": [0.0, 1.0]},
    "masked": {"x": np.ma.masked_array([0.0, 1.0], [0, 1]), "y": np.zeros(2)},
    "a matrix": np.zeros((3, 2)),
    "a narrow matrix": np.zeros((3, 1)),
    "a number": np.float64(3.0),
    "no table": 5,
    "nothing": None,
    "a function that raises": lambda: 1 / 0,
    "subnormal": {"x": [5e-324], "y": [-5e-324]},
}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "key", ["fourier_sketch", "moment_tree", "moments_sketch", "second_moments"]
)
def test_whatever_public_input_is_refused_is_refused_before_the_reserve(key, monkeypatch):
    plan, reserved = sim.plan(spec(key)), []
    real = Transaction.reserve
    monkeypatch.setattr(
        Transaction, "reserve", lambda *args, **words: reserved.append(1) or real(*args, **words)
    )
    answered = 0
    for name, asked in HOSTILE.items():
        reserved.clear()
        Path("t.ledger").unlink(missing_ok=True)
        for side in Path().glob("*ledger*"):
            side.unlink()
        for old in Path().glob("d.csv*"):
            old.unlink()
        with suppress(SimError):
            reserved.append(sim.apply(plan, {"t": DATA, "q": asked}))
        assert len(reserved) in (0, 2), name  # reserved and answered, or neither
        answered += len(reserved) == 2
    assert answered >= 2


FILES = {
    "q.csv": [
        b"x,y\n0,0\n1e15,0\n",
        b"x,y\n0\n",
        b"x\n1\n",
        b"x,y\n",
        b"",
        b"\x00",
        b"x,y\n1,nan\n",
    ],
    "q.npz": [b"", b"PK", b"x"],
    "q.parquet": [b"", b"PAR1"],
    "q.npy": [b"", b"\x93NUMPY"],
}


def test_files_of_queries_that_are_refused_cost_nothing():
    for name, contents in FILES.items():
        made = spec()
        made["outputs"]["d"]["queries"] = {name.partition(".")[2]: name}
        plan = sim.plan(made)
        for content in contents:
            Path(name).write_bytes(content)
            with pytest.raises(SimError) as refused:
                sim.apply(plan, {"t": DATA})
            assert refused.value.code.startswith("OS6"), content
        Path(name).unlink()
        with pytest.raises(SimError, match="OS601"):
            sim.apply(plan, {"t": DATA})
    assert charges() == 0


@pytest.mark.parametrize("workers", [0, -1, "two", 1.5])
def test_a_number_of_threads_that_is_none_costs_nothing(workers):
    with pytest.raises(SimError, match="OS101 workers"):
        sim.apply(spec(), {"t": DATA, "q": GOOD}, workers=workers)
    assert charges() == 0


# --- mechanisms of other packages -----------------------------------------------------------------


@pytest.fixture
def stranger():
    """Register mechanisms as a package does, and take them out again."""
    before = dict(REGISTRY)

    def added(cls):
        return register(cls)

    yield added
    REGISTRY.clear()
    REGISTRY.update(before)


def fails(*_):
    raise ZeroDivisionError("of a package")


def counting(key, function):
    class Count(Mechanism):
        """Count records, noisily."""

        source: ClassVar[Proof] = Proof(key="own", where="Lemma")
        room = "measurements"

        def bind(self, domain, metric):
            return Private("zero_concentrated_divergence", lambda d: 0.5 * d * d, function)

    Count.key = key
    return Count


def whole_records(key):
    made = spec()
    made["flow"] = {"r": {"from": "t", "release": {"mechanism": {key: {}}}}}
    made["outputs"] = {"d": {"from": "r", "save": "d.json"}}
    return made


def test_a_measurement_of_whole_records_runs(stranger):
    """It passed `check` and `plan`, was charged, and failed with OS903."""
    stranger(counting("count_records", lambda block: {"count": np.array([len(block["x"])])}))
    done = sim.apply(whole_records("count_records"), {"t": DATA}, into=".")
    assert done.results["d"]["count"].tolist() == [60]
    assert charges() == 1
    none = {name: values[:0] for name, values in DATA.items()}
    assert sim.apply(whole_records("count_records"), {"t": none}).results["d"]["count"] == [0]


def test_a_measurement_that_always_fails_costs_nothing(stranger):
    stranger(counting("count_never", fails))
    with pytest.raises(InternalError, match=r"OS903 flow\.r.*nothing was charged"):
        sim.apply(whole_records("count_never"), {"t": DATA})
    assert charges() == 0


def question(key, function):
    class Question(Mechanism):
        """Answer queries."""

        source: ClassVar[Proof] = Proof(key="own", where="post-processing")
        room = "queries"

        def bind(self, domain, metric):
            return Post(function, output=AnswerColumns(("count",)))

    Question.key = key
    return Question


@pytest.mark.parametrize("found", ["raises", "ragged", "no memory"])
def test_a_question_that_always_fails_costs_nothing(found, stranger):
    """Also where only the writing of its answers would: columns of two lengths."""

    def answered(arrays, queries):
        if found == "raises":
            raise LookupError(found)
        if found == "no memory":
            raise MemoryError
        return {"count": np.zeros(2), "other": np.zeros(3)}

    stranger(question("always_fails", answered))
    with pytest.raises(SimError, match=r"outputs\.d") as refused:
        sim.apply(spec(post=["always_fails"]), {"t": DATA, "q": GOOD})
    assert "othing was charged" in refused.value.hint
    assert charges() == 0


# --- after the charge -----------------------------------------------------------------------------


@pytest.mark.parametrize("error", [DataError, ValueError])
def test_an_output_that_fails_after_the_charge_leaves_the_others(error, stranger):
    """A rehearsal cannot see what only a record brings about: of the outputs only that one is lost."""

    def answered(arrays, queries):
        if any(cells.any() for cells in arrays.values()) and answered.calls:
            raise (
                error("OS607", "here", expected="a", got="b", hint="c.")
                if error is DataError
                else error("a record")
            )
        answered.calls += 1
        return {"count": np.zeros(len(queries))}

    answered.calls = 0
    stranger(question("fails_late", answered))
    made = spec(post=["fails_late"])
    made["outputs"]["release"] = {"from": "r", "save": "r.npz"}
    made["outputs"]["density"] = {**spec()["outputs"]["d"], "save": "k.csv"}
    plan = sim.plan(made)
    with pytest.raises(SimError) as refused:
        sim.apply(plan, {"t": DATA, "q": GOOD})
    told = refused.value
    assert set(told.results) == {"release", "density"}
    assert "the other outputs are released" in told.hint
    assert "a record" not in str(told)
    assert told.__cause__ is None
    assert charges() == 1
    assert {p.name for p in Path().glob("*.[cn]*")} >= {"r.npz", "k.csv", "k.csv.certificate.json"}
    assert not Path("d.csv").exists()
    sim.load("r.npz")
    assert sim.verify("k.csv.certificate.json")
    with Ledger.open(Path("t.ledger")) as ledger:
        assert [e.kind for e in ledger.entries if e.kind in ("reserve", "charge")] == [
            "reserve",
            "charge",
        ]
    assert not list(Path().glob(".opendp_sim-*"))


# --- sessions and the estimator whose predictions are charged -------------------------------------


def session(**output):
    made = spec()
    steps = [
        {"select": {"features": ["x", "y"], "label": "kind"}},
        {"rescale": {"scale": [1e-200, 1e-200]}},
        {"clip_rows": {"norm": "l2", "bound": 1.0}},
        {"quantize": {"bits": 8}},
    ]
    release = {"mechanism": {"ind_knn": {"queries": 50, "size": 60}}, "spend": "100%"}
    made["flow"] = {"r": {"from": "t", "steps": steps, "release": release}}
    made["outputs"] = {"s": {"from": "r", "serve": "session", "store": "s.session", **output}}
    return made


FAR = {"x": np.full(60, 1e300), "y": np.zeros(60)}


def test_a_session_takes_every_finite_query():
    """Row maps and services are total on them, so nothing of a reference can fail after the charge."""
    with sim.session(session(queries={"memory": "q"}), {"t": DATA, "q": FAR}) as served:
        assert len(served.ask([[1.7e308, -1.7e308], [5e-324, 1e300]]).labels) == 2
    assert charges() == 1


@pytest.mark.few(2)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_session_s_reference_is_refused_before_the_charge_or_never(name):
    with (
        suppress(SimError),
        sim.session(session(queries={"memory": "q"}), {"t": DATA, "q": HOSTILE[name]}) as served,
    ):
        assert served.session.answered == 0
        assert charges() == 1
        return
    assert charges() == 0
    assert not Path("s.session").exists()


def test_predictions_far_away_cost_nothing_or_are_answered():
    words = {
        "bounds": {0: (-4, 4), 1: (-1e-250, 1e-250)},
        "classes": [0, 1],
        "queries": 200,
        "size": 60,
    }
    rows, budget = (
        np.stack([DATA["x"], DATA["y"] * 1e-251], axis=1),
        Budget(epsilon=1.0, delta=1e-6),
    )
    est = DPKNeighborsClassifier(**words, budget=budget).fit(rows, [0, 1] * 30)
    for bad in (
        np.full((60, 2), np.nan),
        np.full((60, 2), np.inf),
        np.zeros((60, 3)),
        [["a", "b"]],
    ):
        with pytest.raises(ValueError, match="OS60"):
            est.predict(bad)
    assert budget.fits == 0
    assert est.predictions_left == 200
    assert len(est.predict(np.array([[0.0, 1e300]] * 60))) == 60
    assert budget.fits == 1


def served_by(key, function):
    class Service(Mechanism):
        """Answer queries, one after another."""

        source: ClassVar[Proof] = Proof(key="own", where="Lemma")
        room = "measurements"

        def bind(self, domain, metric):
            return Interactive(
                "zero_concentrated_divergence", lambda d: 0.5 * d * d, fails, resume=function
            )

    Service.key = key
    return Service


@pytest.mark.parametrize("resume", [fails, None], ids=["always fails", "is not there"])
def test_a_service_that_never_opens_costs_nothing(resume, stranger):
    stranger(served_by("never_opens", resume))
    made = session()
    made["flow"]["r"]["release"] = {"mechanism": {"never_opens": {}}}
    made["privacy"]["budget"] = {"rho": 2.0}
    plan = sim.plan(made)
    with pytest.raises(SimError, match=r"flow\.r.*othing was charged"):
        sim.apply(plan, {"t": DATA})
    assert charges() == 0
    assert not Path("s.session").exists()
    with (
        pytest.raises(SimError, match=r"flow\.r.*othing was charged"),
        sim.session(plan, {"t": DATA}),
    ):
        pass
    assert charges() == 0
