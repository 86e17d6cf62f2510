"""A stream's nodes: how far neighbouring streams are apart, what that costs, and how nodes add up."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest
from numpy.typing import NDArray

import opendp_sim as sim
import opendp_sim.prelude
from opendp_sim.accounting.release.continual import (
    PeriodTree,
    advanced,
    best_tree,
    mean_error,
    no_sums,
    saturated,
)
from opendp_sim.accounting.release.release import Release
from opendp_sim.core.claims import NORMS, Noise, Sensitivity, Stable
from opendp_sim.core.errors import ParameterError, ReleaseError
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.dsl.run.stream import NodeNoise, streamed

TREES = [PeriodTree(t, b) for t in (1, 2, 3, 7, 8, 13) for b in (2, 3, t + 1) if b >= 2]
GRID = GridRows(width=2, labels=("a", "b"), unit=0.25, lower=(-4,), upper=(4,))
SKETCHES = {
    "race_sketch": {
        "repetitions": 3,
        "buckets": 4,
        "family": {"p_stable_l2": {"width": 0.5}},
        "seed": 1,
    }
    | {"per_label": True, "count_weight": 2},
    "moments_sketch": {"per_label": True},
    "second_moments": {"radius": None},
}


# --- the tree ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", TREES)
def test_intervals_are_cut_into_nodes_and_a_period_is_in_one_of_a_level(tree: PeriodTree) -> None:
    nodes = [node for t in range(1, tree.periods + 1) for node in tree.ending(t)]
    assert len(set(nodes)) == len(nodes)
    for first, last in itertools.combinations_with_replacement(range(1, tree.periods + 1), 2):
        parts = tree.parts(first, last)
        assert set(parts) <= set(nodes)
        covered = [t for a, b in parts for t in range(a, b + 1)]
        assert covered == list(range(first, last + 1))
    for t in range(1, tree.periods + 1):
        lengths = [b - a + 1 for a, b in nodes if a <= t <= b]
        assert len(set(lengths)) == len(lengths) <= tree.levels
    for laplace in (False, True):
        each = [len(tree.parts(1, t)) for t in range(1, tree.periods + 1)]
        cost = tree.levels**2 if laplace else tree.levels
        assert tree.variance(laplace=laplace) == Fraction(cost * sum(each), tree.periods)


def test_best_base_has_the_least_error_and_beats_a_split_budget() -> None:
    told = {  # the table of continual.md: best and binary, of Gaussian and Laplace noise
        8: ((2.12, 2.55), (2.12, 5.10)),
        64: ((3.75, 4.59), (5.34, 12.2)),
        512: ((5.47, 6.71), (9.29, 21.2)),
    }
    for periods, errors in told.items():
        for laplace, (error, binary) in zip((False, True), errors, strict=True):
            best = mean_error(best_tree(periods, laplace=laplace), laplace=laplace)
            assert best == pytest.approx(error, rel=4e-3)
            plain = mean_error(PeriodTree(periods, 2), laplace=laplace)
            assert best <= plain == pytest.approx(binary, rel=4e-3)
            assert best < periods ** (1 if laplace else 0.5)


@pytest.mark.parametrize(
    "wrong",
    [
        *((0, 2), (2**16 + 1, 2), (True, 2), (4.0, 2), (4, 1), (4, "2"), (4, None)),
        *((4, 2, 0), (4, 2, 5), (4, 2, 2.0), (4, 2, None)),
    ],
)
def test_numbers_that_make_no_tree_are_refused(wrong: tuple[Any, Any]) -> None:
    with pytest.raises(ParameterError, match="OS101"):
        PeriodTree(*wrong)


@pytest.mark.parametrize("wrong", [(0, 1), (2, 1), (1, 9), (1.0, 2), (True, 1), ("1", 1)])
def test_no_interval_is_refused(wrong: tuple[Any, Any]) -> None:
    with pytest.raises(ParameterError, match="OS101"):
        PeriodTree(8).parts(*wrong)


# --- Lemma 1, with neighbours over the whole stream -----------------------------------------------------

Cells = NDArray[np.int64]
Advance = Callable[[PeriodTree, int, Cells, Cells], tuple[dict[Any, Cells], Cells]]
Bounds = Callable[[PeriodTree, Sensitivity], Sensitivity]


def sketch(key: str, rows: Rows) -> tuple[Cells, Stable]:
    claim = bind_steps(GRID, Symmetric(), [lookup(key)(**SKETCHES[key])])[-1].claim
    assert isinstance(claim, Stable)
    assert claim.accumulate is not None
    cells = np.zeros(claim.output.size, dtype=np.int64)  # type: ignore[attr-defined]
    claim.accumulate(rows, cells)
    return cells, claim


def nodes_of(tree: PeriodTree, periods: Sequence[Cells], advance: Advance) -> list[list[int]]:
    """Return every exact node, cell by cell, as Python's integers."""
    sums, found = no_sums(tree, len(periods[0])), {}
    for place, cells in enumerate(periods, 1):
        ended, sums = advance(tree, place, sums, cells)
        assert not found.keys() & ended.keys()
        found |= ended
    return [cells.tolist() for cells in found.values()]


def record(corner: int) -> Rows:
    """Return one record at a corner of the grid, of one of two classes."""
    x, y, label = (4 if corner & bit else -4 for bit in (1, 2, 4))
    return Rows(np.array([[float(x), float(y)]]), np.array([label > 0], dtype=np.int64))


def neighbours(tree: PeriodTree, key: str) -> Iterator[tuple[list[Cells], list[Cells], int]]:
    """Yield streams that differ in 1 to 3 records: of one period, and of any."""
    cells = [sketch(key, record(corner))[0] for corner in range(8)]
    empty = [np.zeros_like(cells[0])] * tree.periods
    places = range(tree.periods)
    far = [(p,) for p in places] + [(0, 0, 0), (0, tree.periods - 1)]
    far += [tuple(sorted({0, tree.periods // 2, tree.periods - 1}))]
    for base, moved in itertools.product((empty, [cells[5] * 3] * tree.periods), far):
        for corners in ((0, 0, 0), (7, 7, 7), (0, 7, 3)):
            other = list(base)
            for place, corner in zip(moved, corners, strict=False):
                other[place] = other[place] + cells[corner]
            yield base, other, len(moved)
            yield other, base, len(moved)


def law(
    tree: PeriodTree, key: str, advance: Advance = advanced, bounds: Bounds = PeriodTree.sensitivity
) -> float:
    """Check Lemma 1, and return the largest share of its L1 bound that was met."""
    claim = sketch(key, record(0))[1]
    assert claim.sensitivity is not None
    blocks = claim.output.blocks  # type: ignore[attr-defined]
    weights = np.repeat([b.weight for b in blocks], [b.size for b in blocks])
    bound, most = bounds(tree, claim.sensitivity), 0.0
    for one, other, d_in in neighbours(tree, key):
        pairs = zip(nodes_of(tree, one, advance), nodes_of(tree, other, advance), strict=True)
        moved = np.array([np.subtract(a, b) / weights for a, b in pairs])
        far = np.abs(moved)
        norms = {"l1": far.sum(), "l2": np.sqrt((far**2).sum()), "linf": far.max()}
        for norm in NORMS:
            limit = bound.bound(norm, d_in)
            assert norms[norm] <= limit * (1 + 1e-12), (norm, d_in, norms[norm], limit)
        most = max(most, norms["l1"] / bound.bound("l1", d_in))
    return most


@pytest.mark.parametrize("key", SKETCHES)
def test_neighbouring_streams_are_as_near_as_the_lemma_states(key: str) -> None:
    for tree in (PeriodTree(1), PeriodTree(8), PeriodTree(4, 3), PeriodTree(3, 4)):
        most = law(tree, key)
        if key == "moments_sketch":
            assert most == 1.0, "a record of period 1 meets the bound"


def person_streams(
    tree: PeriodTree, moves: Sequence[Cells]
) -> Iterator[tuple[list[Cells], list[Cells]]]:
    """Yield all pairs of streams in which one person is in up to `person_periods` periods."""
    empty = [np.zeros_like(moves[0])] * tree.periods
    for count in range(1, tree.person_periods + 1):
        for places in itertools.combinations(range(tree.periods), count):
            for chosen in itertools.product(moves, repeat=count):
                other = list(empty)
                for place, cells in zip(places, chosen, strict=True):
                    other[place] = cells
                yield empty, other


def farthest(tree: PeriodTree, advance: Advance = advanced) -> dict[str, float]:
    """Return the largest distance of any pair, in one period's, of integer vectors of two cells."""
    moves = [np.array(cells) for cells in ((1, 0), (-1, 0), (0, 1))]
    most = dict.fromkeys(NORMS, 0.0)
    for one, other in person_streams(tree, moves):
        pairs = zip(nodes_of(tree, one, advance), nodes_of(tree, other, advance), strict=True)
        moved = np.abs(np.array([np.subtract(a, b) for a, b in pairs]))
        found = {"l1": moved.sum(), "l2": np.sqrt((moved**2).sum()), "linf": moved.max()}
        most = {norm: max(most[norm], float(found[norm])) for norm in NORMS}
    return most


PERSONS = [
    *(PeriodTree(4, 2, c) for c in (1, 2, 3, 4)),
    *(PeriodTree(5, 2, c) for c in (2, 3)),
    *(PeriodTree(6, 3, c) for c in (2, 3)),
    PeriodTree(3, 4, 3),
]


@pytest.mark.parametrize("tree", PERSONS, ids=str)
def test_a_person_in_several_periods_is_as_near_as_the_lemma_states(tree: PeriodTree) -> None:
    """Lemma 1b, by all persons of small streams; met where c is a power of the base."""
    bound, most = tree.sensitivity(Sensitivity(1, 1, 1, monotone=False)), farthest(tree)
    for norm in NORMS:
        assert most[norm] <= bound.bound(norm, 1) * (1 + 1e-12)
    assert most["l1"] == bound.l1
    if tree.person_periods in tree.lengths:
        assert most["l2"] == pytest.approx(bound.bound("l2", 1), rel=1e-12)
        assert most["linf"] == bound.linf


@pytest.mark.parametrize("less", ["levels", "one in all", "mean"])
def test_smaller_bounds_of_a_person_are_broken(less: str) -> None:
    """What somebody could have taken for it: one record's, no sums within a node, one level less."""
    tree = PeriodTree(4, 2, 4)
    squared = {"levels": 16, "one in all": 3, "mean": tree.sensitivity(ONE).l2_squared - 1}[less]
    assert farthest(tree)["l2"] ** 2 > squared + 0.5


ONE = Sensitivity(1, 1, 1, monotone=False)


def test_persons_in_all_periods_take_less_noise_than_so_many_rows() -> None:
    for periods, base, share in ((64, 2, 0.53), (365, 5, 0.33)):  # as continual.md has it
        whole = PeriodTree(periods, base, periods).sensitivity(ONE).bound("l2", 1)
        rows = PeriodTree(periods, base).sensitivity(ONE).bound("l2", 1) * periods
        assert whole / rows == pytest.approx(share, abs=0.006)
    for c in range(1, 65):
        assert PeriodTree(64, 2, c).sensitivity(ONE).bound("l2", 1) <= 7**0.5 * c
        assert PeriodTree(64, 2, c).sensitivity(ONE).bound("l2", 1) >= 7**0.5


def never_ended(tree: PeriodTree, period: int, sums: Cells, cells: Cells) -> Any:
    """Forget to begin a level anew: a record is in every later node of it."""
    ended, _ = advanced(tree, period, sums, cells)
    return ended, np.stack([saturated(row, cells) for row in sums]) if len(sums) else sums


def begun_late(tree: PeriodTree, period: int, sums: Cells, cells: Cells) -> Any:
    """Begin a level anew with the last period: it is in two nodes of the level."""
    ended, after = advanced(tree, period, sums, cells)
    for level, length in enumerate(tree.lengths[1:]):
        if period % length == 0:
            after[level] = cells
    return ended, after


def twice(tree: PeriodTree, period: int, sums: Cells, cells: Cells) -> Any:
    """Add a period to the sums, and once more to the node that ends."""
    ended, after = advanced(tree, period, sums, cells)
    return {node: own + cells * (node[0] < period) for node, own in ended.items()}, after


TWIN_SUMS = [never_ended, begun_late, twice]
TWIN_BOUNDS: dict[str, Bounds] = {
    "as one release": lambda _tree, one: one,
    "one level less": lambda tree, one: PeriodTree(max(1, tree.periods // 2)).sensitivity(one),
    "l2 of a mean level": lambda tree, one: Sensitivity(
        one.l1 * tree.levels, one.l2_squared * max(1, tree.levels - 1), one.linf, one.monotone
    ),
}


@pytest.mark.parametrize("twin", TWIN_SUMS)
def test_broken_sums_are_found(twin: Advance) -> None:
    with pytest.raises(AssertionError):
        law(PeriodTree(8), "moments_sketch", advance=twin)


@pytest.mark.parametrize("twin", TWIN_BOUNDS)
def test_broken_bounds_are_found(twin: str) -> None:
    with pytest.raises(AssertionError):
        law(PeriodTree(8), "moments_sketch", bounds=TWIN_BOUNDS[twin])


def wrapping(tree: PeriodTree, period: int, sums: Cells, cells: Cells) -> Any:
    """Let a sum pass the end of int64: a twin."""
    after = sums + cells
    rows = [cells, *after]
    return {node: rows[level] for level, node in enumerate(tree.ending(period))}, after


@pytest.mark.parametrize("advance", [advanced, wrapping])
@pytest.mark.parametrize("sign", [1, -1])
def test_one_record_more_at_the_end_of_int64_moves_a_cell_by_one(
    advance: Advance, sign: int
) -> None:
    tree, far = PeriodTree(2), 2**62
    one = [np.array([sign * far]), np.array([sign * (far - 1 + (sign < 0))])]
    other = [one[0], one[1] + sign]
    pairs = zip(nodes_of(tree, one, advance), nodes_of(tree, other, advance), strict=True)
    moved = sum(abs(a - b) for left, right in pairs for a, b in zip(left, right, strict=True))
    assert (moved <= tree.levels) == (advance is advanced)


# --- Lemma 2, by OpenDP's maps and composition ---------------------------------------------------------

CELLS = dp.vector_domain(dp.atom_domain(T="i64"))
PLANS = {
    "laplace": {"measure": "pure", "delta": None},
    "gaussian": {"measure": "zcdp"},
    "rounded_gaussian": {"measure": "gdp"},
}


@pytest.mark.parametrize("noise", PLANS)
def test_all_nodes_lose_what_one_release_would(noise: str) -> None:
    fit = sim.density({"x": (0.0, 1.0)}, bandwidth=0.2, epsilon=1.0, **PLANS[noise])  # type: ignore[arg-type]
    release = streamed(fit.plan)
    assert release.bound is not None
    one, claim = release.typed.sensitivity, release.bound.claim
    assert one is not None
    for tree in (
        PeriodTree(1),
        PeriodTree(12),
        PeriodTree(512),
        PeriodTree(64, 5),
        PeriodTree(7, 8),
        PeriodTree(12, 2, 5),
    ):
        norm = release.bound.norm
        assert norm is not None
        for d_in in (1, 2, 5):
            made = NodeNoise.of(release, tree, d_in)
            scale = made.law.scale
            node = (
                dp.m.make_laplace(CELLS, dp.l1_distance(T="i64"), scale)
                if noise == "laplace"
                else dp.m.make_gaussian(CELLS, dp.l2_distance(T=float), scale)
            )
            plan = claim.privacy_map(one.bound(norm, d_in))
            power, once = 1 if noise == "laplace" else 2, release.bound.record.spec()["scale"]
            each = round(tree.sensitivity(ONE).bound("l1" if power == 1 else "l2", 1) ** power)
            levels = dp.c.make_composition([node] * each)
            assert made.loss(d_in) == pytest.approx(
                node.map(made.sensitivity.bound(norm, d_in)), rel=1e-15
            )
            assert made.loss(d_in) == pytest.approx(levels.map(one.bound(norm, d_in)), rel=1e-12)
            assert made.loss(d_in) <= plan == made.of_plan(one, d_in)
            # In exact numbers nothing is lost to rounding: the scale is rounded up.
            assert Fraction(scale) ** power >= Fraction(once) ** power * each


# --- Lemma 4: nodes add up under one claim -----------------------------------------------------------------

STAGES = bind_steps(GRID, Symmetric(), [lookup("moments_sketch")(per_label=True)])
CLAIM = {"measure": "zcdp", "total": [0.5], "unit": {"add_remove": 1, "of": "row"}}


def part(seed: int, *nodes: tuple[int, int], **changed: Any) -> Release:
    """Return a release of some nodes of a stream of 8 periods."""
    stream = {"name": "one", "periods": 8, "base": 2, "nodes": [list(node) for node in nodes]}
    size = STAGES[-1].claim.output.size  # type: ignore[union-attr]
    cells = np.random.default_rng(seed).integers(-50, 50, size)
    claim = {**CLAIM, "stream": stream | changed}
    return Release.of_sketch(STAGES, cells, Noise("discrete_gaussian", 3.0), claim)


def test_nodes_of_one_stream_have_one_claim_and_those_of_two_have_two() -> None:
    both = part(1, (1, 4)) + part(2, (5, 6)) + part(3, (8, 8))
    stream = both.header["privacy"]["stream"]
    assert stream["nodes"] == [[1, 4], [5, 6], [8, 8]]
    assert "holders" not in both.header["privacy"]
    assert both.released.noise is not None
    assert both.released.noise.deviation == pytest.approx(3.0 * 3**0.5)
    assert "periods 1 to 6, 8 of 8, with 3 noises" in both._repr_html_()
    apart = both + part(4, (1, 2), name="two") + part(5, (3, 4), name="two") + part(6, (7, 7))
    first, second = apart.header["privacy"]["holders"]
    assert first["privacy"]["stream"]["nodes"][-2:] == [[7, 7], [8, 8]]
    assert second["privacy"]["stream"]["nodes"] == [[1, 2], [3, 4]]
    assert second["noise"]["scale"] == (Fraction(18) ** 0.5).hex()


def test_a_period_twice_is_refused_and_another_claim_of_its_name_stays_apart() -> None:
    for other in ((1, 4), (4, 4), (1, 8)):
        with pytest.raises(ReleaseError, match="the same period twice"):
            part(1, (1, 4)) + part(2, other)
    mixed = part(1, (1, 4)) + part(2, (5, 6), periods=9)
    assert len(mixed.header["privacy"]["holders"]) == 2


@pytest.mark.parametrize(
    "stream",
    [
        4,
        {"name": "one"},
        {"name": "one", "periods": 8, "base": 2, "nodes": []},
        {"name": "one", "periods": 8, "base": 2, "nodes": [[2, 3]]},
        {"name": "one", "periods": 8, "base": 2, "nodes": [[1, 2], [2, 2]]},
        {"name": "one", "periods": 8, "base": 2, "nodes": [[9, 9]]},
        {"name": "one", "periods": 0, "base": 2, "nodes": [[1, 1]]},
        {"name": "one", "periods": 8, "base": 1, "nodes": [[1, 1]]},
    ],
)
def test_an_edited_stream_is_refused_when_its_file_is_read(tmp_path: Any, stream: Any) -> None:
    whole = part(1, (1, 4))
    edited = Release({**whole.header, "privacy": {**CLAIM, "stream": stream}}, whole.arrays)
    path = edited.save(tmp_path / "r.npz")
    with pytest.raises(ReleaseError, match="OS701"):
        Release.load(path)
