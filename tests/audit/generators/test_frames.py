"""Frames, contexts, bit vectors, mappings and bounds: pairs within a claim, outputs that are read."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import opendp.prelude as dp
import polars as pl
import pytest

from opendp_sim.audit import Effort, audit
from opendp_sim.audit.generators.datasets import records_of
from opendp_sim.audit.generators.frames import Bounds, Margin, Public, frame_member, margins_of
from opendp_sim.audit.generators.spaces import members_of, space_of
from opendp_sim.audit.instrument.memoize import scales_kept
from opendp_sim.audit.outputs.reading import Reader
from opendp_sim.audit.subject import Subject
from opendp_sim.core.errors import AuditError
from opendp_sim.core.randomness import public_generator
from tests._tiers import some
from tests.audit.corpus import programs
from tests.audit.growing import refuted

dp.enable_features("contrib", "honest-but-curious", "idealized-numerics")
S, PURE = dp.symmetric_distance(), dp.max_divergence()
BRIEF = replace(
    Effort.of("quick"),
    seconds=0.15,
    trace_seconds=0.1,
    stability_seconds=0.1,
    total=0.3,
    witness_seconds=0.0,
)
MAPS = dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T=int))
L01 = dp.l01inf_distance(dp.absolute_distance(T=int))
BY_NAME = {program.name: program for program in programs() if program.family == "set 5"}
EXACT = ("frame/rows_with_77_come_twice", "map/one_word_in_three_keys")


def table(*margins: Any, **columns: Any) -> dp.Domain:
    """Return frames of a text and a whole number, with margins."""
    cells = columns or {"g": dp.atom_domain(T=str), "x": dp.atom_domain(T=dp.i32, bounds=(0, 10))}
    made = dp.lazyframe_domain([dp.series_domain(name, cell) for name, cell in cells.items()])
    for margin in margins:
        made = dp.with_margin(made, margin)
    return made


def counted(scale: float = 1.0, **columns: Any) -> dp.Measurement:
    """Return OpenDP's noisy number of rows."""
    schema = {"g": pl.String, "x": pl.Int32}
    plan = pl.LazyFrame(schema=schema).select(dp.len(scale=scale, signed=True))
    return dp.m.make_private_lazyframe(table(**columns), S, PURE, plan)


def drawn(domain: dp.Domain, metric: dp.Metric, d_in: Any, count: int = 60) -> list[Any]:
    """Return pairs of a space, members of the domain."""
    rng = public_generator(0, "test")
    subject = Subject(run=repr, input_domain=domain, input_metric=metric)
    members = members_of(subject, space_of(domain, metric, d_in), d_in)
    return [members.draw(rng) for _ in range(count)]


def rows_apart(left: Any, right: Any) -> Counter[str]:
    """Return the rows that only one side has."""
    mine, other = (Counter(map(repr, side.collect().rows())) for side in (left, right))
    return (mine - other) + (other - mine)


def test_margins_are_read_in_full() -> None:
    by_g = dp.polars.Margin(by=["g"], invariant="keys", max_length=3)
    domain = table(by_g, dp.polars.Margin(by=[], max_length=9))
    assert set(margins_of(domain)) == {Margin(("g",), 3, None, "keys"), Margin((), 9, 1, "keys")}
    with pytest.raises(AuditError, match="groups by columns"):
        margins_of(table(dp.polars.Margin(by=[pl.col("x") + 1], max_length=3)))


def test_a_margin_without_columns_has_members() -> None:
    """OpenDP's own test raises there, so that no frame was a member and every audit was refused."""
    member = frame_member(table(dp.polars.Margin(by=[], max_length=2)))
    frame = records_of(table()).build
    assert member(frame([("a", 1)] * 2))
    assert not member(frame([("a", 1)] * 3))
    assert not member(frame([("a", 11)]))


@pytest.mark.parametrize(
    "cell",
    [
        dp.atom_domain(T=float, nan=False),
        dp.atom_domain(T=bool),
        dp.option_domain(dp.atom_domain(T=str)),
        dp.polars._domain_from_dtype(pl.Date()),
        dp.polars._domain_from_dtype(pl.Datetime("us")),
        dp.polars._domain_from_dtype(pl.Categorical()),
        dp.polars._domain_from_dtype(pl.Enum(["u", "v"])),
    ],
)
def test_columns_of_all_kinds_are_drawn(cell: Any) -> None:
    pairs = drawn(table(c=cell), S, 1, 20)
    assert len({repr(pair.left.collect().rows()) for pair in pairs}) > 3


def test_neighbours_are_as_many_rows_apart_as_the_distance() -> None:
    for d_in in (1, 3):
        sizes = [sum(rows_apart(p.left, p.right).values()) for p in drawn(table(), S, d_in)]
        assert max(sizes) == d_in


@pytest.mark.parametrize("invariant", ["keys", "lengths"])
def test_what_a_margin_fixes_is_the_same_on_both_sides(invariant: str) -> None:
    """OpenDP promises nothing about frames that differ there."""
    domain = table(dp.polars.Margin(by=["g"], invariant=invariant))
    moved = 0
    for pair in drawn(domain, S, 2):
        mine, other = (
            Counter(row[0] for row in side.collect().rows()) for side in (pair.left, pair.right)
        )
        assert mine.keys() == other.keys() if invariant == "keys" else mine == other
        moved += bool(rows_apart(pair.left, pair.right))
    assert moved > 5


def test_rows_that_differ_keep_every_bound() -> None:
    bounds = [dp.polars.Bound(per_group=4), dp.polars.Bound(by=["g"], per_group=2, num_groups=3)]
    d_in = Bounds.of(bounds)
    assert (int(d_in), repr(d_in)) == (4, repr(bounds))
    sizes = set()
    for pair in drawn(table(), dp.frame_distance(S), d_in):
        groups: Counter[str] = Counter()
        for row, count in rows_apart(pair.left, pair.right).items():
            groups[row.split(",")[0]] += count
        assert len(groups) <= 3
        assert max(groups.values(), default=0) <= 2
        sizes.add((sum(groups.values()), len(groups)))
    assert max(sizes)[0] == 4
    assert max(groups for _, groups in sizes) >= 2


def test_rows_move_into_other_groups_before_they_are_left_out() -> None:
    rules = Public(("g", "x"), (), ((("g",), 1.0, 2.0),))
    assert rules.mend([("b", 5)], [("b", 5), ("a", 1), ("a", 1)]) == [("b", 5), ("a", 1), ("b", 1)]
    keys = Public(("g", "x"), (Margin(("g",), None, None, "keys"),), ())
    assert keys.mend([("b", 5)], [("b", 5), ("a", 1)]) == [("b", 5), ("b", 1)]
    assert keys.mend([], [("a", 1)]) == []


def test_mappings_are_within_all_parts_of_a_distance() -> None:
    fresh = 0
    for d_in in ((1, 1, 1), (3, 5, 2), (2, 1, 1)):
        widest = 0
        for pair in drawn(MAPS, L01, d_in):
            keys = pair.left.keys() | pair.right.keys()
            gaps = [abs(pair.left.get(k, 0) - pair.right.get(k, 0)) for k in keys]
            assert (sum(g > 0 for g in gaps), sum(gaps), max(gaps, default=0)) <= d_in
            assert sum(gaps) <= d_in[1]
            assert max(gaps, default=0) <= d_in[2]
            widest = max(widest, sum(g > 0 for g in gaps))
            fresh += pair.left.keys() != pair.right.keys()
        assert widest >= min(d_in[0], 1)
    assert fresh > 20


def test_bit_vectors_are_of_one_length_and_weight() -> None:
    for pair in drawn(dp.bitvector_domain(max_weight=2), dp.discrete_distance(), 1):
        for side in (pair.left, pair.right):
            assert len(side) == 1
            assert sum(byte.bit_count() for byte in side) <= 2


def test_a_released_frame_is_collected_and_read() -> None:
    """It was taken for an opaque constant: "nothing odd" of outputs that nobody had looked at."""
    reader, build = Reader(), records_of(table()).build
    [count] = reader.read(counted(1e-9)(build([("a", 1)] * 7)))
    assert (count, [*reader.unread]) == (7, [])
    plan = pl.LazyFrame(schema={"g": pl.String, "x": pl.Int32}).group_by("g")
    plan = plan.agg(
        dp.len(scale=1e-9, signed=True), pl.col("x").dp.sum((0, 10), scale=1e-9).alias("s")
    )
    by_g = dp.polars.Margin(by=["g"], invariant="keys", max_length=99)
    made = dp.m.make_private_lazyframe(table(by_g), S, PURE, plan)
    assert reader.read(made(build([("b", 1), ("a", 3), ("a", 2)]))) == {
        "['a']": [2, 5],
        "['b']": [1, 1],
    }
    assert not reader.unread


def test_what_was_not_read_stands_in_the_first_line() -> None:
    space = dp.vector_domain(dp.atom_domain(T=int)), S

    class Held:
        __slots__ = ()

    made = dp.m.make_user_measurement(*space, PURE, lambda _: [1, Held()], lambda d: 1.0 * d)
    report = audit(made, 1, BRIEF, trace=False)
    assert report.verdict == "not refuted"
    first = str(report).splitlines()[0]
    assert "but outputs were not read" in first
    assert "Held" in first
    assert any("outputs were not read" in text for text in report.warnings)


def test_releases_that_were_not_compared_stand_in_the_first_line() -> None:
    """A run took too long for the only layer that compares releases: three pairs, "nothing odd"."""
    space = dp.vector_domain(dp.atom_domain(T=int)), S

    def slow(rows: list[int]) -> int:
        return sum(1 for _ in range(40_000)) - 40_000

    report = audit(dp.m.make_user_measurement(*space, PURE, slow, lambda d: 1.0 * d), 1, BRIEF)
    assert "but releases were not compared: a run takes" in str(report).splitlines()[0]


def test_an_infinite_stability_map_stands_in_the_first_line() -> None:
    space = dp.vector_domain(dp.atom_domain(T=int)), S
    made = dp.t.make_user_transformation(*space, *space, lambda rows: rows * 2, lambda _: 2**32 - 1)
    assert audit(made, 1, BRIEF).not_entered == ""
    number = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    endless = dp.t.make_user_transformation(
        *space, *number, lambda r: float(len(r)), lambda _: float("inf")
    )
    assert "but its stability map is infinite" in str(audit(endless, 1, BRIEF)).splitlines()[0]


@pytest.mark.long
def test_a_query_of_a_context_is_audited_without_its_data() -> None:
    context = dp.Context.compositor(
        data=pl.LazyFrame({"x": [7_777]}),
        privacy_unit=dp.unit_of(contributions=2),
        privacy_loss=dp.loss_of(epsilon=1.0),
        split_evenly_over=1,
    )
    report = audit(context.query().select(dp.len(signed=True)), budget=BRIEF)
    assert (report.verdict, report.d_in, report.claim) == ("not refuted", 2, "epsilon 1")
    assert "7777" not in str(report)
    context.query().select(dp.len(signed=True)).release()  # nothing of it was spent


@pytest.mark.long
def test_a_scale_is_searched_once_a_plan() -> None:
    """Equal plans on domains with other margins are other queries."""

    def resolved(length: int) -> float:
        query = (
            dp.Context.compositor(
                data=pl.LazyFrame({"x": [1]}),
                privacy_unit=dp.unit_of(contributions=1),
                privacy_loss=dp.loss_of(epsilon=1.0),
                split_evenly_over=1,
                margins=[dp.polars.Margin(by=[], max_length=length)],
            )
            .query()
            .select(pl.col("x").fill_null(0).dp.sum((0, 10)))
        )
        return id(query.resolve())

    with scales_kept():
        first, again, other = resolved(5), resolved(5), resolved(6)
    assert first == again != other


def test_outputs_that_are_mappings_are_not_taken_for_random() -> None:
    """Their order is OpenDP's, so that broken claims about tables of counts were never refuted."""
    program = BY_NAME["map/one_word_in_three_keys"]
    assert audit(program.make(True), 1, BRIEF).verdict == "refuted"


def test_bounds_of_a_native_frame_transformation_are_looked_at() -> None:
    plan = pl.LazyFrame(schema={"g": pl.String, "x": pl.Int32}).filter(pl.col("x") > 3)
    made = dp.t.make_stable_lazyframe(table(), S, plan)
    report = audit(made, 1, BRIEF)
    assert report.verdict == "not refuted"
    assert report.tried > 50
    assert not report.not_entered


def test_the_set_of_frames_is_whole() -> None:
    assert len(BY_NAME) == 20


@pytest.mark.parametrize("name", EXACT)
def test_a_fault_of_a_transformation_is_found(name: str) -> None:
    assert audit(BY_NAME[name].make(True), 1, BRIEF).verdict == "refuted"


@pytest.mark.long
@pytest.mark.parametrize("name", some(sorted(set(BY_NAME) - set(EXACT)), 4))
def test_a_fault_is_found_and_its_sound_version_is_not_refuted(name: str) -> None:
    program = BY_NAME[name]
    assert refuted(program.make(True), program.d_in).verdict == "refuted"
    assert audit(program.make(False), program.d_in).verdict == "not refuted"
