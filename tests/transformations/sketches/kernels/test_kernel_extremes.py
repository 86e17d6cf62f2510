"""Kernel sketches at their edges: memory, threads, extreme parameters, damaged files, persons."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from opendp_sim.accounting.release.release import Release
from opendp_sim.core.apply_stable import whole_function
from opendp_sim.core.claims import Noise, Stable
from opendp_sim.core.errors import ParameterError, ReleaseError, SimError, SpaceError
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps, resolve
from opendp_sim.domains.metrics import IdDistance, Symmetric
from opendp_sim.domains.records import Column, Records
from opendp_sim.domains.rows import GridRows, RealRows, Rows, take
from opendp_sim.dsl import Refused, apply, plan_file
from opendp_sim.io.fold import build_sketch
from opendp_sim.postprocessing.density import Density
from tests._tiers import some
from tests.transformations.sketches.kernels._kernel_data import KERNELS, bound, grid, points

GAUSSIAN: dict[str, Any] = {"gaussian": {"bandwidth": 0.6}}
FOURIER: dict[str, Any] = {"frequencies": 40, "kernel": GAUSSIAN, "seed": 3}
SUM: dict[str, Any] = {"bandwidth": 0.6, "accuracy": 0.2, "seed": 5}
SKETCHES: list[tuple[str, dict[str, Any]]] = [
    *(("fourier_sketch", FOURIER | {"kernel": kernel}) for kernel in KERNELS),
    (
        "fourier_sketch",
        FOURIER | {"kernel": {"weighted": {"terms": [[2.0, GAUSSIAN], [-1.0, KERNELS[1]]]}}},
    ),
    ("gauss_transform_sketch", {"bandwidth": 0.4, "order": 5}),
    ("exponential_sum", SUM | {"structure": {"fourier": {"frequencies": 9}}}),
    ("exponential_sum", SUM | {"structure": {"gauss_transform": {"order": 4}}}),
    ("second_moments", {}),
    ("second_moments", {"radius": None}),
    ("paired_projections", {"repetitions": 60, "bits": 3, "seed": 2}),
    (
        "race_sketch",
        {"repetitions": 40, "buckets": 16, "seed": 2, "family": {"p_stable_l2": {"width": 0.5}}},
    ),
]
EACH = pytest.mark.parametrize(
    ("key", "params"), SKETCHES, ids=[f"{i}-{k}" for i, (k, _) in enumerate(SKETCHES)]
)
ONE_EACH = [SKETCHES[i] for i in (0, 7, 8, 10, 12)]
KINDS = pytest.mark.parametrize(("key", "params"), ONE_EACH, ids=[k for k, _ in ONE_EACH])


def flat_of(claim: Stable, rows: Rows) -> Any:
    out = np.zeros(claim.output.size, dtype=np.int64)  # type: ignore[attr-defined]
    claim.accumulate(rows, out)  # type: ignore[misc]
    return out


def misplaced(values: Any, offset: int) -> Any:
    """The same numbers, ``offset`` bytes off the start of a buffer: no alignment at all."""
    raw = np.zeros(values.nbytes + 64, dtype=np.uint8)
    found = raw[offset : offset + values.nbytes].view(np.float64).reshape(values.shape)
    found[...] = values
    return found


# --- a record's features are the record's own ---------------------------------------------------


@pytest.mark.few(2)
@EACH
def test_features_do_not_depend_on_memory_company_or_threads(key: str, params: Any) -> None:
    """Each record alone, at every alignment, in every order, beside others: the same bits."""
    claim = bound(key, grid(3), **params)
    rows = points(700, 3, seed=1)
    rows.values[0], rows.values[1], rows.values[2] = 2048, -2048, -0.0
    alone = [flat_of(claim, take(rows, slice(i, i + 1))) for i in range(40)]
    forty, whole = np.sum(alone, axis=0), flat_of(claim, rows)
    first = rows.values[:40]
    wide = np.repeat(first, 3, axis=1)[:, ::3]
    for values in (
        first[::-1],
        np.asfortranarray(first),
        wide,
        first[::-1].copy()[::-1],
        *(misplaced(first, offset) for offset in (0, 1, 3, 8, 24, 40)),
    ):
        assert np.array_equal(flat_of(claim, Rows(values)), forty)
    # Minus zero is zero.
    assert np.array_equal(flat_of(claim, Rows(np.zeros((1, 3)))), alone[2])
    # Beside 1, 7, 255, 256, 257 others, at every place: blocks of BLAS and of our own have edges there.
    for company in (1, 7, 255, 256, 257, 660):
        others = rows.values[40 : 40 + company]
        for place in (0, company // 2, company):
            joined = Rows(np.insert(others, place, rows.values[5], axis=0))
            assert np.array_equal(flat_of(claim, joined) - flat_of(claim, Rows(others)), alone[5])
    for threads in (1, 2, 3):
        with threadpool_limits(threads), ThreadPoolExecutor(3) as pool:
            assert all(
                np.array_equal(found, whole)
                for found in pool.map(partial(flat_of, claim), [rows] * 6)
            )


@pytest.mark.few(2)
@KINDS
def test_workers_and_blocks_change_no_bit(key: str, params: Any) -> None:
    space = RealRows(width=3, lower=(-1.0,), upper=(1.0,))
    stages = bind_steps(space, Symmetric(), [lookup("quantize")(bits=11), lookup(key)(**params)])
    values = np.random.default_rng(1).uniform(-1, 1, (1500, 3))
    whole = build_sketch(stages, partial(iter, [Rows(values)]))
    for size in (30, 333, 1024):
        blocks = [Rows(values[i : i + size]) for i in range(0, len(values), size)]
        for workers in (1, 2):
            if size > 1 or workers == 1:
                assert np.array_equal(
                    build_sketch(stages, partial(iter, blocks), workers=workers), whole
                )


# --- no sum leaves the integers -----------------------------------------------------------------


@pytest.mark.few(2)
@pytest.mark.parametrize("bits", [1, 20, 24])
@EACH
def test_the_largest_rows_of_the_finest_grid_are_exact_or_refused(
    key: str, params: Any, bits: int
) -> None:
    """A corner 3,001 times is 3,001 corners, in Python's integers, within the sensitivity; or it is refused."""
    space = RealRows(width=3, lower=(-1e6,), upper=(1e6,))
    try:
        stages = bind_steps(
            space, Symmetric(), [lookup("quantize")(bits=bits), lookup(key)(**params)]
        )
    except (SpaceError, ParameterError) as refused:
        assert refused.code in ("OS102", "OS203")  # noqa: PT017 - either way is right
        return
    claim = stages[-1].claim
    assert isinstance(claim, Stable)
    assert claim.sensitivity is not None
    for corner in (np.full((1, 3), 1e6), np.array([[-1e6, 1e6, -1e6]])):
        one = whole_function(claim)(resolve(stages, list)(Rows(corner)))
        many = whole_function(claim)(resolve(stages, list)(Rows(np.repeat(corner, 3001, axis=0))))
        assert [int(v) * 3001 for v in one] == [int(v) for v in many]
        weights = np.concatenate(
            [
                np.full(math.prod(b.shape), b.weight)
                for b in claim.output.blocks  # type: ignore[attr-defined]
            ]
        )
        size = [Fraction(int(v), int(w)) for v, w in zip(one, weights, strict=True)]
        assert sum(map(abs, size)) <= claim.sensitivity.l1
        assert sum(v * v for v in size) <= claim.sensitivity.l2_squared
        assert max(map(abs, size)) <= claim.sensitivity.linf


def test_moments_behind_the_widest_projection_are_integers_within_their_norm() -> None:
    """Bounds near 2**50, where the quotient of Lemma 1 rounds: still integers of at most A."""
    wide = GridRows(width=2, lower=(-(2**49), -(2**50)), upper=(2**50, 2**49 + 1))
    claim = bound("second_moments", wide, radius=None)
    assert claim.sensitivity is not None
    rng, ends = np.random.default_rng(1), ((-(2**49), 2**50), (-(2**50), 2**49 + 1))
    for _ in range(300):
        inside = [rng.choice([low, high, int(rng.integers(low, high))]) for low, high in ends]
        row = np.array([inside], dtype=np.float64)
        cells = flat_of(claim, Rows(row))
        assert np.abs(cells).max() <= 2**20
        assert sum(int(v) ** 2 for v in cells) <= claim.sensitivity.l2_squared


@KINDS
def test_distances_up_to_int64_and_not_beyond(key: str, params: Any) -> None:
    """L1 distances are OpenDP's int64: the largest is given exactly or refused, never wrapped."""
    claim = bound(key, grid(3), **params)
    assert claim.sensitivity is not None
    assert claim.sensitivity.l1.denominator == 1 or key == "exponential_sum"
    for d_in in (0, 1, 2, 3, 1000):
        assert claim.sensitivity.bound("l1", d_in) >= claim.sensitivity.l1 * d_in
        assert (
            Fraction(claim.sensitivity.bound("l2", d_in)) ** 2
            >= claim.sensitivity.l2_squared * d_in**2
        )
    if claim.sensitivity.l1.denominator == 1:
        most = (2**63 - 1) // int(claim.sensitivity.l1)
        assert claim.sensitivity.bound("l1", most) == most * claim.sensitivity.l1
        with pytest.raises(SpaceError, match="OS205"):
            claim.sensitivity.bound("l1", most + 1)


# --- intervals ----------------------------------------------------------------------------------


@pytest.mark.few(1)
@pytest.mark.parametrize("estimator", some(["mean", "median_of_means"], 2))
@pytest.mark.parametrize("rho", some([0.005, None], 2), ids=["noise", "no noise"])
@pytest.mark.parametrize("repetitions", some([2, 5, 20], 3))
@pytest.mark.parametrize("key", ["fourier_sketch", "race_sketch"])
def test_intervals_cover_however_few_the_repetitions(
    key: str, repetitions: int, rho: float | None, estimator: str
) -> None:
    """95 % intervals cover at least 91 % over 60 seeds x 20 queries (normal ones: 69 % at 2)."""
    rows, queries = points(400, 3, seed=1), points(20, 3, seed=2)
    covered = []
    for seed in range(60):
        params: dict[str, Any] = (
            {"frequencies": repetitions, "kernel": GAUSSIAN}
            if key == "fourier_sketch"
            else {
                "repetitions": repetitions,
                "buckets": 64,
                "family": {"p_stable_l2": {"width": 1.0}},
            }
        )
        claim = bound(key, grid(3), seed=seed, **params)
        assert claim.sensitivity is not None
        sums = claim.capabilities["kernel_sums"]
        flat, noise = flat_of(claim, rows), None
        if rho is not None:
            scale = math.sqrt(float(claim.sensitivity.l2_squared) / (2 * rho))
            noise = Noise("discrete_gaussian", scale)
            drawn = np.random.default_rng(1000 + seed).normal(0, scale, len(flat))
            flat = flat + np.rint(drawn).astype(np.int64)
        of = Release.of_sketch(
            bind_steps(grid(3), Symmetric(), [lookup(key)(seed=seed, **params)]), flat, noise, {}
        )
        answer = Density(estimator=estimator).bind(of.released, Symmetric())  # type: ignore[arg-type]
        found = answer.function(of.arrays, queries)
        gaps = np.sqrt(np.square(rows.values[:, None] - queries.values[None]).sum(axis=2)) / 2048
        exact = sums.kernel(gaps).sum(axis=0)
        covered.append((found["lower"][:, 0] <= exact) & (exact <= found["upper"][:, 0]))
    assert np.mean(covered) > 0.91


@pytest.mark.parametrize("key", ["fourier_sketch", "race_sketch"])
def test_one_repetition_knows_nothing_of_its_own_error(key: str) -> None:
    params = (
        FOURIER | {"frequencies": 1}
        if key == "fourier_sketch"
        else SKETCHES[-1][1] | {"repetitions": 1}
    )
    stages = bind_steps(grid(3), Symmetric(), [lookup(key)(**params)])
    flat = flat_of(stages[0].claim, points(50, 3, seed=1))  # type: ignore[arg-type]
    of = Release.of_sketch(stages, flat, Noise("discrete_gaussian", 3.0), {})
    for normalise in (False, True):
        found = (
            Density(normalise=normalise)
            .bind(of.released, Symmetric())
            .function(of.arrays, points(4, 3, seed=2))
        )
        assert np.isfinite(found["density"]).all()
        assert (found["lower"] == -math.inf).all()
        assert (found["upper"] == math.inf).all()


# --- files --------------------------------------------------------------------------------------


def a_release(key: str, params: Any) -> Release:
    stages = bind_steps(grid(2), Symmetric(), [lookup(key)(**params)])
    flat = flat_of(stages[0].claim, points(30, 2, seed=1))  # type: ignore[arg-type]
    return Release.of_sketch(stages, flat, Noise("discrete_gaussian", 3.0), {"rho": 0.5})


@KINDS
def test_a_flipped_byte_is_found_or_changes_nothing(key: str, params: Any, tmp_path: Path) -> None:
    """Any byte of the file: what loads is what was saved, and whatever is refused is OS701."""
    made = a_release(key, params)
    path = made.save(tmp_path / "r.npz")
    raw, refused = bytearray(path.read_bytes()), 0
    rng = np.random.default_rng(7)
    places = {0, 1, 10, 29, 30, 40, len(raw) - 1, len(raw) - 22, *rng.integers(0, len(raw), 150)}
    for place in places:
        changed = raw.copy()
        changed[place] ^= 1 << int(rng.integers(0, 8))
        path.write_bytes(changed)
        try:
            again = Release.load(path)
        except ReleaseError as error:
            assert error.code == "OS701"  # noqa: PT017 - some flips hit bytes that nobody reads
            refused += 1
            continue
        assert set(again.arrays) == set(made.arrays)
        assert all(np.array_equal(again.arrays[name], made.arrays[name]) for name in made.arrays)
        assert again.header["steps"] == a_header(made)["steps"]
        assert again.header["noise"] == a_header(made)["noise"]
    assert refused > len(places) / 2


def a_header(made: Release) -> Any:
    return json.loads(json.dumps(made.header))


@KINDS
def test_a_header_for_other_steps_does_not_answer(key: str, params: Any) -> None:
    """Another seed, size or kernel in an edited header: refused, with a code, when it is asked."""
    made = a_release(key, params)
    header = a_header(made)
    ((name, spec),) = header["steps"][0].items()
    edits: list[Any] = [{name: spec | {"unknown": 1}}, {"no_such_step": {}}, {name: []}]
    if "seed" in spec:
        edits.append({name: spec | {"seed": spec["seed"] + 1}})
    for edit in edits:
        broken = Release({**header, "steps": [edit]}, made.arrays)
        with pytest.raises(SimError):
            _ = broken.released
    for changed in (
        {name: array[..., :-1] for name, array in made.arrays.items()},
        {name + "x": array for name, array in made.arrays.items()},
        {},
    ):
        with pytest.raises(ReleaseError, match="OS701"):
            _ = Release(header, changed).released


# --- the language: noiseless, several records a unit, persons ----------------------------------

SPEC = """spec: opendp_sim/1
name: edges
data:
  people:
    source: {npz: people.npz}
    columns:
      who: {dtype: int64, role: privacy_id}
      x: {dtype: "array[f64, 2]", bounds: [-1.0, 1.0]}
%(public)s%(privacy)sflow:
  rows:
    from: people
    steps:
%(bound)s      - select: {features: x}
      - quantize: {bits: 8}
      - %(key)s: %(params)s
    release: %(release)s
outputs:
  file:
    from: rows
    save: out/file.npz
"""
PRIVACY = """privacy:
  unit: {add_remove: %d, of: %s}
  measure: zcdp
  budget: {rho: 0.5}
"""
NOISE = "{noise: gaussian, scale: solve, spend: 100%}"


def write(folder: Path, key: str, params: Any, **parts: str) -> Path:
    blank = {"public": "", "privacy": "", "bound": "", "release": NOISE}
    text = SPEC % (blank | parts | {"key": key, "params": json.dumps(params)})
    (folder / "edges.yaml").write_text(text)
    rng = np.random.default_rng(1)
    np.savez(folder / "people.npz", who=np.arange(60) // 6, x=rng.uniform(-1, 1, (60, 2)))
    return folder / "edges.yaml"


@pytest.mark.few(2)
@KINDS
def test_noiseless_only_for_public_data(key: str, params: Any, tmp_path: Path) -> None:
    private = PRIVACY % (1, "row")
    with pytest.raises(Refused) as caught:
        plan_file(write(tmp_path, key, params, privacy=private, release="none"))
    assert caught.value.code == "OS307"
    assert "public: true" in str(caught.value)
    spec = write(tmp_path, key, params, public="    public: true\n", release="none")
    done = apply(plan_file(spec))
    assert Release.load(done.files["file"]).header["privacy"] == {"public": True}
    with pytest.raises(Refused) as caught:
        plan_file(write(tmp_path, key, params, public="    public: true\n", privacy=private))
    assert caught.value.code == "OS306"


@KINDS
def test_persons_without_a_bound_are_refused(key: str, params: Any, tmp_path: Path) -> None:
    with pytest.raises(Refused) as caught:
        plan_file(write(tmp_path, key, params, privacy=PRIVACY % (1, "who")))
    assert caught.value.code in ("OS201", "OS202")
    assert "bound_contributions" in str(caught.value)


@pytest.mark.few(2)
@KINDS
def test_a_person_moves_the_sums_by_no_more_than_its_bound(key: str, params: Any) -> None:
    """Ten rows of one person, all alike and at a corner: at most max_rows times the sensitivity."""
    records = Records(
        (
            Column("who", "int64", role="privacy_id"),
            Column("x", "array[f64, 2]", bounds=(-1.0, 1.0)),
        )
    )
    stages = bind_steps(
        records,
        IdDistance("who"),
        [
            lookup("bound_contributions")(by="who", max_rows=3, seed=1),
            lookup("select")(features="x"),
            lookup("quantize")(bits=8),
            lookup(key)(**params),
        ],
    )
    claim = stages[-1].claim
    assert isinstance(claim, Stable)
    assert claim.sensitivity is not None
    rng = np.random.default_rng(4)
    weights = np.concatenate(
        [
            np.full(math.prod(b.shape), b.weight)
            for b in claim.output.blocks  # type: ignore[attr-defined]
        ]
    )
    for corner in ([1.0, 1.0], [-1.0, 1.0], [0.0, 0.0]):
        x = np.concatenate([rng.uniform(-1, 1, (20, 2)), np.tile(corner, (10, 1))])
        who = np.concatenate([np.arange(20), np.full(10, 99)])
        both = [{"who": who, "x": x}], [{"who": who[:20], "x": x[:20]}]
        with_, without = (build_sketch(stages, partial(iter, blocks)) for blocks in both)
        moved = [Fraction(int(v), int(w)) for v, w in zip(with_ - without, weights, strict=True)]
        assert any(moved)
        assert sum(map(abs, moved)) <= 3 * claim.sensitivity.l1
        assert sum(v * v for v in moved) <= 9 * claim.sensitivity.l2_squared
        assert max(map(abs, moved)) <= 3 * claim.sensitivity.linf


# --- what the plan says -------------------------------------------------------------------------

L1: dict[str, Any] = {"laplacian": {"bandwidth": 1.0}}
ADVISED: list[tuple[str, dict[str, Any], bool]] = [
    ("fourier_sketch", FOURIER | {"kernel": L1}, True),
    (
        "fourier_sketch",
        FOURIER | {"kernel": {"rational": {"bandwidth": 1.0, "distance": "l1"}}},
        True,
    ),
    ("fourier_sketch", FOURIER | {"kernel": {"weighted": {"terms": [[1.0, L1], [2.0, L1]]}}}, True),
    ("fourier_sketch", FOURIER, False),
    ("exponential_sum", SKETCHES[8][1] | {"distance": "l1"}, True),
    ("exponential_sum", SKETCHES[8][1], False),
    ("race_sketch", SKETCHES[-1][1] | {"family": {"p_stable_l1": {"width": 0.5}}}, True),
    ("race_sketch", SKETCHES[-1][1], False),
    ("race_sketch", SKETCHES[-1][1] | {"family": {"srp": {"bits": 3}}}, False),
]


@pytest.mark.parametrize(("key", "params", "warned"), ADVISED)
def test_an_l1_kernel_behind_a_projection_is_advised_against(
    key: str, params: Any, warned: bool
) -> None:
    """JL keeps l2: an l1 kernel after it is another kernel; without JL nothing is said of it."""
    project = lookup("jl_projection")(dimension=8, seed=1)
    stages = bind_steps(grid(20), Symmetric(), [project, lookup(key)(**params)])
    claim = stages[-1].claim
    assert isinstance(claim, Stable)
    assert any("not l1" in text for text in claim.advice) == warned
    assert not any("not l1" in text for text in bound(key, grid(20), **params).advice)


def test_a_projection_says_what_it_saves_and_what_it_costs() -> None:
    for form, own in (("dense", 20 * 4), ("hadamard", 32 * 5)):
        claim = lookup("jl_projection")(dimension=4, seed=1, form=form).bind(grid(20), Symmetric())
        assert claim.expected["share left of a later sketch's products"] == 4 / 20
        assert claim.expected["own additions per row"] == own
        assert any("only adds error" in text for text in claim.advice)
    assert not lookup("jl_projection")(dimension=4, seed=1).bind(grid(1500), Symmetric()).advice


def test_the_plan_prints_the_advice(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from opendp_sim.cli import app

    spec = write(tmp_path, "fourier_sketch", FOURIER | {"kernel": L1}, privacy=PRIVACY % (1, "row"))
    text = spec.read_text().replace(
        "      - fourier", "      - jl_projection: {dimension: 8, seed: 1}\n      - fourier"
    )
    spec.write_text(text)
    printed = " ".join(CliRunner().invoke(app, ["plan", str(spec), "-v"]).output.split())
    assert "keeps l2 distances, not l1" in printed
    assert "it only adds error at 2 columns" in printed


@pytest.mark.parametrize("order", [1, 3, 8])
def test_the_stated_error_of_an_exponential_sum_holds_its_terms(order: int) -> None:
    """One record's error at any distance, worst of many places, is within ``error per record``."""
    params = SUM | {"structure": {"gauss_transform": {"order": order}}, "accuracy": 0.05}
    claim = bound("exponential_sum", grid(1), **params)
    sums = claim.capabilities["kernel_sums"]
    queries = Rows(np.arange(-2048, 2048, 13, dtype=float)[:, None])
    worst = 0.0
    for x in range(-300, 300, 37):
        rows = Rows(np.array([[float(x)]]))
        found = sums.estimate(claim.output.split(flat_of(claim, rows)), queries).groups[0, 0]  # type: ignore[attr-defined]
        gaps = np.abs(queries.values[:, 0] - x) / 2048
        worst = max(worst, float(np.abs(found - sums.kernel(gaps)).max()))
        assert (np.abs(found - sums.kernel(gaps)) <= sums.sketch_deviation(gaps[None])).all()
    stated = claim.expected["error per record"]
    assert worst <= stated
    assert stated == sums.bias() > 0.05
    if order == 1:
        assert worst > 0.05  # the accuracy alone would have been too small a statement
