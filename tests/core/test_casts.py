"""OpenDP's other metrics, Polars frames, and what a chain returned, read as spaces and releases of ours."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest
from opendp.extras.numpy import array2_domain

import opendp_sim
import opendp_sim.prelude as sim
from opendp_sim.core.bridge import to_dp_domain
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import ParameterError, ReleaseError, SpaceError
from opendp_sim.domains.metrics import Symmetric, unit_of_distance
from tests.cases import cases

dp.enable_features("contrib")

ARRAYS = array2_domain(num_columns=2, nan=False, T=float)
CHANGED = {
    "change one": (dp.change_one_distance(), 2),
    "hamming": (dp.hamming_distance(), 2),
    "insert, delete": (dp.insert_delete_distance(), 1),
}
SYMMETRIC = sorted(
    key
    for key, case in cases().items()
    if case.metric == Symmetric() and case.mechanism.room != "queries"
)
RACE = {
    "repetitions": 8,
    "buckets": 16,
    "family": {"p_stable_l2": {"width": 0.5}},
    "seed": 4,
    "count_weight": 1,
}


def loss(made: Any, d_in: int) -> Any:
    try:
        found = made.map(d_in)
    except dp.OpenDPException as error:
        return str(error).splitlines()[-1]
    return [found(d) for d in (0.5, 2.0)] if callable(found) else found


@pytest.mark.few(3)
@pytest.mark.parametrize("key", SYMMETRIC)
def test_every_map_is_that_of_twice_the_records_where_records_are_replaced(key):
    case = cases()[key]
    make, _ = constructors(type(case.mechanism))
    plain = make(case.domain, case.metric, **dict(case.mechanism))
    for metric, factor in CHANGED.values():
        other = make(to_dp_domain(case.domain), metric, **dict(case.mechanism))
        assert other.input_metric == metric
        assert other.input_domain == plain.input_domain
        for d_in in (1, 2):
            assert loss(other, d_in) == loss(plain, factor * d_in)
        assert dp.deserialize(dp.serialize(other)).input_metric == metric


@pytest.mark.parametrize("name", CHANGED)
def test_a_replaced_record_moves_the_sketch_by_the_bound_and_no_further(name):
    """The far row has other buckets in all repetitions: a map with factor 1 would be refuted."""
    metric, factor = CHANGED[name]
    chain = (
        (ARRAYS, metric)
        >> sim.then_quantize(bits=12, bounds=(-4.0, 4.0))
        >> sim.then_race_sketch(**RACE)
    )
    near, far = np.zeros((1, 2)), np.array([[4.0, -3.9]])
    cells = [np.array(chain(rows)) for rows in (near, far, np.zeros((0, 2)))]
    replaced = np.abs(cells[0] - cells[1]).sum()
    added = np.abs(cells[0] - cells[2]).sum()
    assert replaced == (16 if factor == 2 else added + 7)  # the count, which is the same in both
    assert max(replaced if factor == 2 else 0, added) <= chain.map(1)
    if factor == 2:
        assert replaced > chain.map(1) / 2


def test_the_claim_at_a_replaced_record_says_so():
    chain = (ARRAYS, dp.change_one_distance()) >> sim.then_quantize(bits=8, bounds=(-1.0, 1.0))
    noisy = chain >> sim.then_race_sketch(**RACE) >> dp.m.then_laplace(18.0)
    release = sim.read(noisy, noisy(np.zeros((30, 2))))
    assert release.header["privacy"]["unit"] == {"replace": 1, "of": "row"}
    assert "(1, 0)-DP" in release.claim
    assert release.claim.endswith("one record replaced")


# --- reading what was released ---------------------------------------------------------------------


def _sketch(norm: str = "l1", metric: Any = None) -> Any:
    space = ARRAYS, metric or dp.symmetric_distance()
    rows = space >> sim.then_quantize(bits=10, bounds=(-2.0, 2.0))
    return rows >> sim.then_race_sketch(**RACE | {"repetitions": 40}, norm=norm)


ROWS = np.zeros((500, 2))
CHAINS = {
    "laplace": (lambda: _sketch() >> dp.m.then_laplace(0.5), "pure"),
    "ours": (lambda: _sketch() >> sim.then_laplace(scale=0.5), "pure"),
    "bulk": (lambda: _sketch() >> sim.then_laplace(scale=0.5, sampler="bulk"), "pure"),
    "gaussian": (lambda: _sketch("l2") >> dp.m.then_gaussian(0.5), "zcdp"),
    "approximate": (
        lambda: dp.c.make_approximate(_sketch("l2") >> sim.then_gaussian(scale=0.5)),
        "approx_zcdp",
    ),
    "epsilon": (
        lambda: dp.c.make_fix_delta(
            dp.c.make_zCDP_to_approxDP(_sketch("l2") >> dp.m.then_gaussian(0.5)), 1e-6
        ),
        "approx",
    ),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", CHAINS)
def test_what_a_chain_returned_is_asked_saved_and_stated(name, tmp_path):
    make, measure = CHAINS[name]
    made = make()
    release = sim.read(made, made(ROWS), d_in=2)
    density = release.density([[0.0, 0.0], [1.9, 1.9]], confidence=0.9)
    assert np.abs(np.asarray(density["density"]) - [500, 0]).max() < 60
    privacy = release.header["privacy"]
    total = made.map(2)
    assert privacy["measure"] == measure
    assert tuple(privacy["total"]) == (total if isinstance(total, tuple) else (total,))
    assert privacy["unit"] == {"add_remove": 2, "of": "row"}
    again = opendp_sim.load(release.save(tmp_path / "release.npz"))
    assert json.dumps(again.header, sort_keys=True) == json.dumps(release.header, sort_keys=True)
    assert release.header["noise"]["scale"] == (0.5).hex()


def test_a_mechanism_that_can_be_asked_is_read_without_a_sketch():
    case = next(c for k, c in sorted(cases().items()) if k.startswith("linear_regression"))
    made = sim.make_linear_regression(case.domain, case.metric, **dict(case.mechanism))
    shapes = case.mechanism.bind(case.domain, case.metric).output.shapes.values()
    size = sum(map(math.prod, shapes))
    release = sim.read(made, np.zeros(size, dtype=np.int64))
    assert "predict" in release.ops or "regress" in release.ops


def test_cells_have_one_form_so_that_noise_is_known_again():
    """Cells of another type had another digest, and the same noise was added twice."""
    chain = (ARRAYS, dp.symmetric_distance()) >> sim.then_quantize(bits=8, bounds=(-1.0, 1.0))
    noisy = chain >> sim.then_race_sketch(**RACE) >> dp.m.then_laplace(18.0)
    raw = np.array(noisy(np.zeros((30, 2))))
    first = sim.read(noisy, raw)
    for kind in ("int32", "float64", ">i8"):
        with pytest.raises(ReleaseError, match="made apart"):
            first + sim.read(noisy, raw.astype(kind))
    for other in (raw + 0.4, np.full(raw.shape, np.nan), np.full(raw.shape, np.inf)):
        with pytest.raises(ReleaseError, match="whole numbers"):
            sim.read(noisy, other)
    with pytest.raises(ParameterError, match="at least 1"):
        sim.read(noisy, raw, d_in=0)


def test_another_measurement_or_other_cells_are_refused():
    made = _sketch() >> dp.m.then_laplace(2.0)
    cells = made(ROWS)
    votes = next(c for k, c in sorted(cases().items()) if k.startswith("stable_top_k"))
    wrong = {
        "a sketch without noise": (_sketch(), cells),
        "a composition": (dp.c.make_composition([made, made]), [cells, cells]),
        "nothing of ours": (
            dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 1.0),
            3,
        ),
        "another number": (made, cells[:-1]),
        "no numbers": (made, ["a"] * len(cells)),
        "nothing": (made, None),
        "a top-k": (
            sim.make_stable_top_k(votes.domain, votes.metric, **dict(votes.mechanism)),
            [1],
        ),
    }
    for name, (measurement, raw) in wrong.items():
        with pytest.raises(ReleaseError, match="OS702 read"):
            print(name, sim.read(measurement, raw))


# --- contexts --------------------------------------------------------------------------------------


def _context(data: Any, unit: Any, domain: Any = None, **loss: float) -> Any:
    sim.register()
    return dp.Context.compositor(
        data=data,
        domain=domain,
        privacy_unit=unit,
        privacy_loss=dp.loss_of(**loss or {"epsilon": 1.0}),
        split_evenly_over=1,
    )


@pytest.mark.parametrize(
    "unit", [{"contributions": 3}, {"changes": 1}, {"changes": 2, "ordered": True}]
)
def test_a_query_over_an_array_is_solved_released_and_read(unit):
    context = _context(ROWS, dp.unit_of(**unit), ARRAYS)
    rows = context.query().sim_quantize(bits=10, bounds=(-2.0, 2.0))
    query = rows.sim_race_sketch(**RACE).laplace()
    release = sim.read(query, query.release())
    distance = unit.get("contributions") or 2 * unit["changes"]
    assert query.param() == pytest.approx(9.0 * distance)
    assert release.header["privacy"]["total"] == [1.0]
    assert next(iter(release.header["privacy"]["unit"].values())) == next(iter(unit.values()))
    assert "density" in release.ops


def test_a_context_over_our_own_domain_takes_an_array_too():
    from opendp_sim.domains.rows import RealRows

    own = RealRows(2, lower=(-2.0,), upper=(2.0,))
    domain = sim.make_quantize(own, Symmetric(), bits=10).input_domain
    context = _context(ROWS, dp.unit_of(contributions=1), domain, rho=0.5)
    query = context.query().sim_quantize(bits=10).sim_race_sketch(**RACE, norm="l2").sim_gaussian()
    release = sim.read(query, query.release())
    assert release.header["privacy"]["total"] == [pytest.approx(0.5)]
    assert release.header["privacy"]["total"][0] <= 0.5


pl = pytest.importorskip("polars")
NASTY = {
    "null": {"x": None},
    "nan": {"x": float("nan")},
    "infinite": {"x": float("-inf")},
    "least": {"n": -(2**63)},
    "empty": {"s": " "},
    "long": {"s": "a" * (2**16 + 1)},
    "no key": {"e": None},
    "no truth": {"b": None},
}
GOOD = {"x": 0.5, "n": 3, "s": "id", "e": "b", "b": True, "d": 1, "unread": 1}
SCHEMA = {
    "x": pl.Float64,
    "n": pl.Int64,
    "s": pl.String,
    "e": pl.Enum(["a", "b"]),
    "b": pl.Boolean,
    "d": pl.Int32,
    "unread": pl.UInt64,
}


def frame(*rows: dict[str, Any]) -> Any:
    return pl.LazyFrame([GOOD | row for row in rows], schema=SCHEMA)


def selected(**columns: Any) -> Any:
    domain = _context(frame({}), dp.unit_of(contributions=1)).accountant.input_domain
    return sim.make_select(domain, dp.symmetric_distance(), **columns)


@pytest.mark.parametrize("name", NASTY)
def test_a_row_that_cannot_be_read_is_dropped_alone_and_quietly(name):
    """The refusal of one row, or a second row lost with it, would show that it is there."""
    every = selected(features=("x", "n", "b", "d"), label="e", person="s")
    odd = NASTY[name]
    found = every(frame({}, odd, {"x": 1.5}))
    assert found.values.tolist() == [[0.5, 3.0, 1.0, 1.0], [1.5, 3.0, 1.0, 1.0]]
    assert found.labels.tolist() == [1, 1]
    assert found.ids.tolist() == ["id", "id"]
    assert len(every(frame(odd)).values) == len(every(frame()).values) == 0
    other = selected(features="d")  # which looks at none of those columns
    assert len(other(frame({}, odd)).values) == 2
    assert every.map(3) == other.map(3) == 3


def test_columns_without_a_type_of_ours_are_found_by_no_step():
    with pytest.raises(SpaceError, match="OS204"):
        selected(features="unread")


def test_no_cell_is_in_the_message_of_a_frame_that_fails():
    failing = frame({"s": "secret"}).with_columns(x=pl.col("s").str.to_decimal(scale=1).cast(float))
    failing = failing.with_columns(x=pl.col("s").cast(pl.Float64, strict=True))
    with pytest.raises(dp.OpenDPException, match="OS902") as caught:
        selected(features="x")(failing)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("unit", "plan", "rows"),
    [
        ({"contributions": 1}, lambda query: query, 1),
        ({"contributions": 3}, lambda query: query.filter(pl.col("x") > 0.2).select("x", "n"), 3),
        ({"changes": 2}, lambda query: query, 4),
        ({"contributions": 2, "ordered": True}, lambda query: query, 2),
        ({"contributions": 2, "identifier": "s"}, lambda q: q.truncate_per_group(3), 6),
    ],
    ids=["one row", "filtered", "changed", "ordered", "by person"],
)
def test_columns_of_frames_become_rows_after_what_polars_did(unit, plan, rows):
    """The scale is that of so many rows: OpenDP's truncation and filters keep their own maps."""
    data = pl.concat([frame({"s": f"{person}"}, {"x": 0.1}) for person in range(20)])
    query = plan(_context(data, dp.unit_of(**unit)).query()).sim_select(features=("x", "n"))
    query = query.sim_quantize(bits=8, bounds=(0.0, 4.0)).sim_race_sketch(**RACE).sim_laplace()
    assert query.param() == pytest.approx(9.0 * rows)
    release = sim.read(query, query.release())
    assert "density" in release.density({"x": [0.5], "n": [3.0]})


def test_a_unit_of_frames_without_a_bound_on_rows_is_refused():
    domain = _context(frame({}), dp.unit_of(contributions=1)).accountant.input_domain
    metric = dp.frame_distance(dp.symmetric_distance())
    rows = sim.make_select(domain, metric, features="x")
    bound = dp.polars.Bound
    assert rows.map([bound(by=[], per_group=3), bound(by=["e"], per_group=1)]) == 3
    with pytest.raises(dp.OpenDPException, match="OS202"):
        rows.map([bound(by=["e"], per_group=1)])


def test_the_unit_of_a_frame_is_the_bound_on_its_whole():
    """A query over a frame or an identifier was read without its unit."""
    bound = dp.polars.Bound
    rows = dp.frame_distance(dp.symmetric_distance())
    persons = dp.symmetric_id_distance("name")
    whole, group = bound(per_group=3), bound(by=["kind"], per_group=2)
    assert unit_of_distance(rows, [whole]) == {"add_remove": 3, "of": "row"}
    assert unit_of_distance(rows, [group, whole]) is None  # fewer neighbours: a smaller loss
    assert unit_of_distance(rows, whole) == {"add_remove": 3, "of": "row"}
    assert unit_of_distance(rows, [group]) is None
    assert unit_of_distance(dp.frame_distance(persons), [bound(per_group=2)]) == {
        "add_remove": 2,
        "of": "name",
    }
    assert unit_of_distance(persons, 2) == {"add_remove": 2, "of": "name"}


# --- searches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["laplace", "gaussian"])
def test_a_search_over_our_noise_constructs_as_often_as_over_opendps(family, monkeypatch):
    """It begins at 0, whose refusal cost a thousand constructions and a second and a half.

    And each of ours made two or three of OpenDP's measurements, where a search asks one map.
    """
    norm = "l1" if family == "laplace" else "l2"
    before, calls, inside = _sketch(norm), {"ours": 0, "native": 0}, []
    native = getattr(dp.m, f"make_{family}")
    monkeypatch.setattr(
        dp.m, f"make_{family}", lambda *space, **more: [native(*space, **more), inside.append(1)][0]
    )

    def counted(name: str, then: Any) -> tuple[float, int]:
        def made(scale: float) -> Any:
            calls[name] += 1
            return before >> then(scale)

        inside.clear()
        return dp.binary_search_param(made, d_in=3, d_out=0.7), len(inside)

    scale, constructed = counted("ours", getattr(sim, f"then_{family}"))
    assert scale == counted("native", getattr(dp.m, f"then_{family}"))[0]
    assert calls["ours"] == calls["native"] < 100
    assert 0 < constructed <= calls["native"]


@pytest.mark.parametrize(("name", "given"), [("laplace", "l1"), ("gaussian", "l2")])
def test_a_scale_of_zero_has_an_infinite_loss_and_no_release(name, given):
    for made in (
        _sketch(given) >> getattr(sim, f"then_{name}")(0.0),
        _sketch(given) >> getattr(sim, f"then_{name}")(scale=0),
    ):
        assert made.map(1) == math.inf
        with pytest.raises(dp.OpenDPException, match=rf"OS101 {name}\.scale"):
            made(ROWS)
        with pytest.raises(ParameterError, match="OS101 serialize"):
            dp.serialize(getattr(sim, f"then_{name}")(0.0))
