"""Every mechanism, bound at the extremes of its parameters and of its grid: a claim, or a coded refusal.

And where the output is small, the claim's function answers on the corners of the domain, within its sensitivity
as Python's integers compute them: a product that left int64 somewhere would not.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

import numpy as np
import opendp.prelude as dp
import pytest
from annotated_types import Ge, Gt, Le, Lt
from hypothesis import Phase, given, settings
from opendp.extras.numpy import array2_domain

import opendp_sim.prelude  # noqa: F401 - fills the registry
import opendp_sim.prelude as sim
from opendp_sim.core.apply_stable import whole_function
from opendp_sim.core.arithmetic.countable import LARGEST_SCALE, TOO_MANY, need_int64_noise
from opendp_sim.core.bridge import build
from opendp_sim.core.claims import Interactive, SketchBlock, Stable
from opendp_sim.core.errors import DataError, ParameterError, SimError, SpaceError
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.ids import persons
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, RealRows, Rows
from opendp_sim.domains.sketch import IntVector, Sketch
from opendp_sim.measurements.noise._impl import samplers
from opendp_sim.testing.members import members
from tests._tiers import tiered
from tests.cases import cases
from tests.postprocessing.test_far_queries import GRID, KERNELS, N, release

CASES = cases()
FAR = 2**51 - 1
GRIDS = {
    "point": GridRows(width=1),
    "bit": GridRows(width=2, lower=(0,), upper=(1,)),
    "24 bits": GridRows(width=2, lower=(-(2**23),), upper=(2**23,)),
    "32 bits": GridRows(width=3, lower=(-(2**31),), upper=(2**31,)),
    "45 bits": GridRows(width=2, lower=(-(2**45),), upper=(2**45,)),
    "51 bits": GridRows(width=2, lower=(-FAR,), upper=(FAR,)),
    "uneven": GridRows(width=2, lower=(0, 0), upper=(FAR, 1)),
    "aside": GridRows(width=1, lower=(FAR - 1,), upper=(FAR,)),
    "fine": GridRows(width=2, unit=2.0**-1000, lower=(-8,), upper=(8,)),
    "coarse": GridRows(width=2, unit=2.0**900, lower=(-8,), upper=(8,)),
    "short": GridRows(width=2, lower=(-8,), upper=(8,), l2=1),
}
REALS = [
    RealRows(width=2, lower=(a,), upper=(b,))
    for a, b in ((-1.7e308, 1.7e308), (0.0, 5e-324), (-1.0, 1.0), (1e300, 1.1e300), (0.0, 1e-300))
]
_CELLS = 2**14
"""Sketches that are small enough to be built from every corner."""
_SECONDS = float(os.environ.get("EXTREMES", "0.1"))
"""Processor time a setting of parameters has for its grids, in the suite; ``EXTREMES=1000`` for all."""


def _ends(info) -> list[object]:
    """The smallest and largest values that a parameter's declaration admits."""
    whole = info.annotation in (int, int | None)
    step, out = (1 if whole else 2.0**-40), []
    for m in info.metadata:
        if isinstance(m, Ge):
            out.append(m.ge)
        if isinstance(m, Le):
            out.append(m.le)
        if isinstance(m, Gt):
            out.append(m.gt + (step if whole else 5e-324 if m.gt == 0 else abs(m.gt) * step))
        if isinstance(m, Lt):
            out.append(m.lt - (step if whole else abs(m.lt) * step))
    return out


def extremes(mechanism):
    """The mechanism, with each parameter at each of its ends, and with all at one end."""
    yield mechanism
    spec, ends = mechanism.spec(), {}
    for name, info in type(mechanism).model_fields.items():
        if found := _ends(info):
            ends[name] = sorted(found)
    changes = [{name: value} for name, values in ends.items() for value in values]
    changes += [{name: values[end] for name, values in ends.items()} for end in (0, -1)]
    for change in changes:
        try:
            yield type(mechanism).from_spec(json.loads(json.dumps(spec)) | change)
        except ParameterError:
            continue  # two parameters that do not go together


def mixed(mechanism, many: int):
    """The mechanism with every parameter at one of its ends, drawn alike in every run."""
    draw, spec = random.Random(mechanism.key), mechanism.spec()  # noqa: S311 - settings
    ends = {name: _ends(info) for name, info in type(mechanism).model_fields.items()}
    for _ in range(many):
        change = {name: draw.choice(values) for name, values in ends.items() if values}
        with suppress(ParameterError):
            yield type(mechanism).from_spec(json.loads(json.dumps(spec)) | change)


def spaces(case):
    yield case.domain, case.metric
    if isinstance(case.domain, GridRows):
        for grid in GRIDS.values():
            yield replace(grid, labels=case.domain.labels, ids=case.domain.ids), case.metric
    if isinstance(case.domain, RealRows) and case.mechanism.key != "pate_labels":
        for real in REALS:
            yield replace(real, labels=case.domain.labels, ids=case.domain.ids), case.metric
    if isinstance(case.domain, IntVector):
        for cells in (1, 2, 4097):
            yield IntVector(cells), case.metric


def corners(domain) -> Rows:
    """Every corner of the box, its middle and the steps beside the ends; a few rows twice."""
    width = domain.width
    low, high = (np.broadcast_to(np.array(v, float), width) for v in (domain.lower, domain.upper))
    whole = isinstance(domain, GridRows)
    middle = np.trunc(low / 2 + high / 2)
    points = [np.where(pick, high, low) for pick in itertools.product((0, 1), repeat=width)]
    points += [np.clip(v, low, high) for v in ((low + 1, high - 1, middle) if whole else (low,))]
    if whole and domain.l2 is not None:
        points = [p for p in points if (p**2).sum() <= domain.l2**2] or [
            np.clip(np.zeros(width), low, high)
        ]
    values = np.array([*points, points[0]])
    labels = None if domain.labels is None else np.arange(len(values)) % len(domain.labels)
    return Rows(values, labels, np.arange(len(values)) if domain.ids else None)


@contextmanager
def _told(what: str):
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{what}: {error!r}") from error


def _run(claim, domain) -> None:
    rows = corners(domain)
    domain.check(rows)
    function = whole_function(claim)
    if claim.sensitivity is None:
        claim.output.check(function(rows))
        return
    weights = getattr(claim.output, "weights", ())
    for place in range(len(rows)):
        one = Rows(
            *(
                None if p is None else p[place : place + 1]
                for p in (rows.values, rows.labels, rows.ids)
            )
        )
        cells = [int(v) for v in function(one).tolist()]
        if not weights:
            assert sum(map(abs, cells)) <= claim.sensitivity.l1
            assert sum(v * v for v in cells) <= claim.sensitivity.l2_squared
            assert max(map(abs, cells)) <= claim.sensitivity.linf
            assert max(map(abs, cells)) <= 2**32, "2**31 records would leave int64"


def _bound(mechanism, domain, metric, what):
    """Bind, or return None for a refusal; anything but a coded one passes through and fails."""
    try:
        claim = mechanism.bind(domain, metric)
    except SimError:
        return None
    if isinstance(claim, Stable) and claim.sensitivity is not None:
        assert claim.sensitivity.l1 >= claim.sensitivity.linf > 0, what
        assert max(block.linf for block in claim.output.blocks) <= 2**32, what
        assert all(np.isfinite(v) and v >= 0 for v in claim.expected.values()), what
    return claim


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "key",
    tiered(
        sorted(k for k, c in CASES.items() if c.mechanism.room in ("rows", "sketches")),
        lambda key: (
            key
            not in {"jl_projection", "l1_embedding", "fourier_sketch/orthogonal", "slice_sketch"}
        ),
    ),
)
def test_extremes_bind_or_are_refused(key):
    case, bound = CASES[key], 0
    for mechanism in extremes(case.mechanism):
        begin = time.process_time()
        for domain, metric in spaces(case):
            if time.process_time() - begin > _SECONDS:
                break  # a vast sketch was drawn: its other grids wait for a longer run
            what = f"{mechanism.spec()} on {domain.identifier}"
            claim = _bound(mechanism, domain, metric, what)
            bound += claim is not None
            small = getattr(getattr(claim, "output", None), "size", 0) <= _CELLS
            if isinstance(claim, Stable) and small and isinstance(domain, GridRows | RealRows):
                with _told(what):
                    _run(claim, domain)
    assert bound


def _unspoken(built) -> list[str]:
    """What maps raise that is no coded refusal: OpenDP hands it on as text, with ours inside."""
    out = []
    for d_in in (0, 1, 2, 2**20, 2**31, 2**32 - 1):
        try:
            built.map(d_in)
        except dp.OpenDPException as error:
            own = re.findall(r"Error: (OS\d{3}) ", str(error))
            if error.variant != "Overflow" and (not own or "OS902" in own):
                out.append(f"{d_in}: {error}")
    return out


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "key", sorted(k for k, c in CASES.items() if c.mechanism.room in ("rows", "measurements"))
)
def test_maps_say_a_number_or_a_coded_refusal_at_extremes(key):
    case, built, begin = CASES[key], 0, time.process_time()
    for mechanism in extremes(case.mechanism):
        what = str(mechanism.spec())
        claim = _bound(mechanism, case.domain, case.metric, what)
        if claim is None or time.process_time() - begin > 2 * _SECONDS:
            continue
        built += 1
        assert not _unspoken(build(claim, key, case.domain, case.metric)), what
    assert built


class _Beyond(BaseException):
    """Noise of a larger scale than its law is proved for; no guard contains it."""


def _within(inner, scale, count, source):
    if scale > samplers.MAX_SCALE:
        raise _Beyond(f"a scale of {float(scale):.3g}")
    return inner(scale, count, source)


@pytest.fixture
def drawn(monkeypatch):
    """Refuse a draw of a scale that Lemmas G2 and R3 are not about."""
    for name in ("_draw_rounded", "_draw_gaussian", "_draw_laplace"):
        monkeypatch.setattr(samplers, name, partial(_within, getattr(samplers, name)))
    assert samplers.MAX_SCALE == LARGEST_SCALE


@pytest.mark.parametrize(
    "key",
    tiered(
        # To solve the scale of `private_knn` at its ends takes half a minute: below is a test of it.
        sorted(
            k for k, c in CASES.items() if c.mechanism.room == "measurements" and k != "private_knn"
        ),
        lambda key: not key.startswith("linear"),
    ),
)
def test_releases_at_extremes_are_refused_before_they_begin_or_answer(key, drawn):
    """`linear_regression` of rho 1e-20 and clip 1000 failed after its charge; of 1e-18 its noise wrapped."""
    case, ran = CASES[key], []

    known = members(case.domain)

    @given(case.drawn().map(lambda pair: pair[0]) if known is None else known)
    @settings(max_examples=1, phases=[Phase.generate], deadline=None, database=None)
    def run(data):
        begin = time.process_time()
        for mechanism in (*mixed(case.mechanism, 24), *extremes(case.mechanism)):
            if time.process_time() - begin > 2 * _SECONDS:
                break
            what = str(mechanism.spec())
            claim = _bound(mechanism, case.domain, case.metric, what)
            if claim is None:
                continue
            try:
                with suppress(dp.OpenDPException):  # a loss that OpenDP's floats do not hold
                    build(claim, key, case.domain, case.metric).map(1)
                claim.privacy_map(1)
            except SimError:
                continue
            with _told(what):
                begun = claim.start if isinstance(claim, Interactive) else claim.function
                begun(case.domain.normal(data) if isinstance(claim, Interactive) else data)
            ran.append(what)

    run()
    assert ran


@pytest.mark.parametrize(
    ("key", "ends"),
    [
        ("linear_regression", {"rho": 1e-24, "clip": 1000, "radius": 1000}),
        ("linear_regression", {"rho": 1e-20, "clip": 1000}),
        ("linear_model", {"rho": 1e-24, "steps": 1024}),
        ("private_knn", {"epsilon": 1e-6}),
    ],
)
def test_noise_beyond_its_sampler_is_refused_before_a_loss_is_stated(key, ends):
    """Whoever charges asks for the map first: of these the charge came before the failure."""
    case = CASES[key]
    with pytest.raises(SimError, match=r"OS102|OS401"):
        case.mechanism.model_copy(update=ends).bind(case.domain, case.metric).privacy_map(1)


def test_noise_that_may_leave_int64_is_refused():
    for scale in (2.0**60, 1e300, float("inf"), float("nan")):
        with pytest.raises(ParameterError, match="OS102"):
            need_int64_noise("here", scale, "raise the budget.")
    need_int64_noise("here", 2.0**59, "raise the budget.")


def test_more_records_than_opendp_counts_are_refused():
    """2**20 rows of 4,096 persons are 2**32 records, one more than OpenDP's distances hold."""
    case = CASES["bound_contributions"]
    bounded = build(
        lookup("bound_contributions")(max_rows=2**20).bind(case.domain, case.metric),
        "bound_contributions",
        case.domain,
        case.metric,
    )
    assert bounded.map(4095) == 4095 * 2**20
    with pytest.raises(dp.OpenDPException, match="OS205"):
        bounded.map(4096)


def test_more_cells_than_opendp_holds_are_refused():
    with pytest.raises(ParameterError, match="OS103"):
        IntVector(2**31).native()


def test_a_feature_that_int64_sums_do_not_hold_is_refused():
    """Whatever the sketch, and whatever its weights: 2**31 - 1 records of 2**32 are the most."""
    for largest, weight in ((2**32, 1), (2**32 + 1, 1), (2**33, 4)):
        block = SketchBlock("cells", (1,), largest, largest**2, largest, weight)
        output = Sketch("made", (block,))
        parts = {"output": output, "accumulate": lambda *_: None, "sensitivity": output.sensitivity}
        if largest <= 2**32:
            assert Stable(**parts).sensitivity.linf * (TOO_MANY - 1) < 2**63
        else:
            with pytest.raises(SpaceError, match="OS203"):
                Stable(**parts)


@pytest.mark.parametrize("l2", [2**27, 10**200, 10**400])
def test_a_norm_bound_of_any_size_is_checked_exactly(l2):
    """Squares of wide rows are compared in whole numbers, and no power of the bound leaves floats."""
    far = 2**27
    grid = GridRows(width=2, lower=(-far,), upper=(far,), l2=l2)
    grid.check(Rows(np.array([[far, 0.0]])))
    if l2 == far:
        for row in ([far, 1.0], [far, 1.0 * far]):
            with pytest.raises(DataError, match="OS605"):
                grid.check(Rows(np.array([row])))
    huge = 10**200
    GridRows(width=1, lower=(-huge,), upper=(huge,), l2=huge // 2).check(Rows(np.zeros((1, 1))))


@pytest.mark.parametrize(
    ("key", "params"),
    [
        ("distance_tree", {"levels": 20}),
        ("moment_tree", {"levels": 20}),
        ("threshold_sketch", {"thresholds": 2**24}),
    ],
)
def test_a_wide_span_in_many_pieces_is_refused_at_bind(key, params):
    """2**20 columns of 24 bits, projected: 20 levels of such a span left int64 at some rows only."""
    wide = GridRows(width=2**20, lower=(-(2**23),), upper=(2**23,))
    projected = lookup("jl_projection")(dimension=2, seed=1)
    with pytest.raises(SpaceError, match="OS203"):
        lookup(key)(**params).bind(
            GridRows(width=2, lower=(-(2**44),), upper=(2**44,)), Symmetric()
        )
    assert projected.bind(replace(wide, width=64), Symmetric()).output.magnitude < 2**51


def test_the_noise_of_a_threshold_sketch_counts_wide_spans():
    """The squares of spans from 2**31.5 steps on left int64, and the noise was said to be another."""
    grid = GridRows(width=2, lower=(0,), upper=(2**40,))
    claim = lookup("threshold_sketch")(thresholds=4, count_weight=1).bind(grid, Symmetric())
    spread = claim.expected["distance deviation per cell deviation"]
    assert spread == pytest.approx(((2 * 2.0**40 / 2) ** 2 + 2 * 2.0**80 / 4 / 4) ** 0.5)


def test_the_readmes_chain_answers_on_infinities():
    """`array2_domain(nan=False)` admits them: 20 of 20 answers against 20 of 20 exceptions between neighbours."""
    dp.enable_features("contrib")
    space = array2_domain(num_columns=4, nan=False, T=float), dp.symmetric_distance()
    chain = (
        space
        >> sim.then_quantize(bits=12, bounds=(-4.0, 4.0))
        >> sim.then_race_sketch(
            repetitions=8, buckets=16, family={"p_stable_l2": {"width": 1.0}}, seed=11
        )
    )
    rows = np.zeros((5, 4))
    for odd in ([np.inf, -np.inf, 0.0, 1e308], [np.inf] * 4):
        ends = np.clip(odd, -4.0, 4.0)
        assert chain(np.vstack([rows, odd])) == chain(np.vstack([rows, ends]))
    assert (chain >> dp.m.then_laplace(9.0)).map(1) == pytest.approx(9 / 9)


@pytest.mark.parametrize(
    "ids", [[("a", 1), "b"], [["a"], "b"], [None, "b"], [1.5, "b"], [b"a", "b"]]
)
def test_odd_identifiers_are_coded_refusals(ids):
    """A tuple in an object column ended in a raw ValueError."""
    held = np.empty(len(ids), dtype=object)
    for at, value in enumerate(ids):
        held[at] = value
    for told in (ids, held):
        with pytest.raises(DataError, match="OS602"):
            persons(told)


@pytest.mark.parametrize("kernel", KERNELS)
def test_far_queries_are_outliers(kernel):
    """At 2**45 steps `outliers` saw 600 of 1,000 records, and flagged nobody."""
    key, params = KERNELS[kernel]
    of = release([lookup(key)(**params, seed=4)], GRID, Rows(np.zeros((N, 2))))
    ask = lookup("outliers")(threshold=0.5).bind(of.released, Symmetric())
    found = ask.function(of.arrays, Rows(np.array([[2.0**45, 0.0], [0.0, 0.0]])))
    assert found["outlier"][:, 0].tolist() == [1.0, 0.0]
