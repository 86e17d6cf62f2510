"""Rescale: bounds, norms and lattices for every member of a type, and answers in the data's units."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.accounting.release.release import Release
from opendp_sim.core.apply_stable import whole_function
from opendp_sim.core.claims import Stable
from opendp_sim.core.errors import ParameterError, SimError
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps, resolve
from opendp_sim.domains.frame import composed, frame_text, middles_and_units
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.records import Column, Records
from opendp_sim.domains.rows import GridRows, RealRows, Rows
from opendp_sim.domains.serialize import from_json, to_json
from tests.transformations.row_maps.test_rows import assert_local

SIZES = st.sampled_from([0.0, 5e-324, 1e-300, 1e-9, 0.1, 1 / 3, 1.0, 7.5, 1e9, 2.0**53 + 2, 1e200])
SIGNED = st.tuples(SIZES, st.sampled_from([-1.0, 1.0])).map(lambda pair: pair[0] * pair[1])
UNITS = st.sampled_from([1e-250, 1e-9, 0.1, 1 / 3, 1.0, 3.0, 1e9, 1e250])
STONES = RealRows(width=3, lower=(0.0, 50.0, 0.0), upper=(4.0, 75.0, 20000.0))


def rescale(domain: RealRows, **params: Any) -> Stable:
    claim = lookup("rescale")(**params).bind(domain, Symmetric())
    assert isinstance(claim, Stable)
    return claim


def stones(count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Carat, depth, price: the price rises with the carat and a little with the depth."""
    rng = np.random.default_rng(seed)
    carat = rng.gamma(3.0, 0.25, count).clip(0.2, 4)
    depth = rng.normal(62, 2, count).clip(50, 75)
    price = (4000 * carat + 50 * (depth - 62) + rng.normal(0, 300, count)).clip(0, 20000)
    return np.column_stack([carat, depth, price])


def stages(*steps: tuple[str, dict[str, Any]], domain: Any = STONES) -> Any:
    return bind_steps(domain, Symmetric(), [lookup(key)(**params) for key, params in steps])


def release(chain: Any, data: Any) -> Release:
    rows = resolve(chain, lambda: [Rows(data)])(Rows(data))
    return Release.of_sketch(chain, whole_function(chain[-1].claim)(rows), None, {})


@settings(max_examples=60)
@given(st.data())
def test_every_member_has_its_image_in_the_type(data: st.DataObject) -> None:
    """Bounds at both ends, the norm bound attained or nearly, any centre and unit that is accepted."""
    width = data.draw(st.integers(1, 3))
    ends = [sorted(data.draw(st.tuples(SIGNED, SIGNED))) for _ in range(width)]
    bounded = data.draw(st.booleans()) and all(a < b for a, b in ends)
    lower, upper = zip(*ends, strict=True)
    norm = data.draw(st.sampled_from([None, ("l1", 2.5), ("l2", 2.5), ("linf", 2.5)]))
    domain = RealRows(
        width=width,
        lower=tuple(lower) if bounded else (),
        upper=tuple(upper) if bounded else (),
        norm=norm,
    )
    params = {
        "centre": data.draw(st.one_of(st.just("none"), st.tuples(*[SIGNED] * width))),
        "scale": data.draw(st.one_of(st.just("unit"), st.tuples(*[UNITS] * width))),
    }
    claim: Stable | None = None
    with suppress(ParameterError):
        claim = rescale(domain, **params)
    if claim is not None:
        _members_have_images(data, domain, claim, norm)


def _members_have_images(
    data: st.DataObject, domain: RealRows, claim: Stable, norm: tuple[str, float] | None
) -> None:
    width, bounded = domain.width, bool(domain.lower)
    lower, upper = domain.lower, domain.upper
    ends = list(zip(lower, upper, strict=True))
    if bounded:
        corners = np.array([data.draw(st.tuples(*map(st.sampled_from, ends))) for _ in range(5)])
    else:
        corners = np.array(
            data.draw(st.lists(st.tuples(*[SIGNED] * width), min_size=3, max_size=3))
        )
    if norm is not None:
        order = {"l1": 1, "l2": 2, "linf": np.inf}[norm[0]]
        size = np.array(
            [math.hypot(*row) if order == 2 else np.linalg.norm(row, order) for row in corners]
        )
        corners = corners * np.minimum(1.0, 2.5 * (1 - 1e-15) / np.maximum(size, 1e-300))[:, None]
        if bounded:
            corners = corners[((corners >= lower) & (corners <= upper)).all(axis=1)]
    if len(corners):
        assert claim.function is not None
        claim.output.check(claim.function(Rows(corners)))  # type: ignore[union-attr]


@pytest.mark.parametrize("width", [1, 2, 9])
def test_it_is_row_local(width: int) -> None:
    rng = np.random.default_rng(width)
    values = rng.choice([0.0, -0.0, 5e-324, 0.1, 1e300, -1e300, 1.7e308], size=(13, width))
    free = rescale(RealRows(width=width), centre=(1e300,), scale=(1e-9,))
    assert free.function is not None
    assert_local(free.function, values)
    assert np.isfinite(free.function(Rows(values)).values).all()
    boxed = rescale(RealRows(width=width, lower=(-1.0,), upper=(3.0,)))
    assert boxed.function is not None
    assert_local(boxed.function, np.clip(values, -1, 3))
    assert not np.signbit(boxed.function(Rows(np.ones((3, width)))).values).any()  # one zero


def test_columns_become_alike_and_the_type_says_how() -> None:
    claim = rescale(STONES)
    assert claim.output.lower == (-0.5,)  # type: ignore[union-attr]
    assert claim.output.frame == ((2.0, 4.0), (62.5, 25.0), (10000.0, 20000.0))  # type: ignore[union-attr]
    assert from_json(to_json(claim.output)) == claim.output  # type: ignore[arg-type]
    again = rescale(claim.output, centre=(0.25,), scale=(2.0,))  # type: ignore[arg-type]
    values = stones(50)
    assert claim.function is not None
    assert again.function is not None
    twice = again.function(claim.function(Rows(values))).values
    middles, units = middles_and_units(again.output.frame, 3)  # type: ignore[union-attr]
    assert middles + units * twice == pytest.approx(values, rel=1e-12)
    assert composed(((1e308, 1e308),), ((10.0, 10.0),), 1) is None
    assert frame_text(()) == ""
    assert "4 to 20000" in frame_text(claim.output.frame)  # type: ignore[union-attr]
    assert "declared" in frame_text(rescale(STONES, centre="none", scale="unit").output.frame)  # type: ignore[union-attr]


def test_a_clipped_row_keeps_its_frame_and_loses_its_lattice() -> None:
    whole = RealRows(width=2, lower=(0.0,), upper=(15.0,), lattice=1.0)
    chain = stages(
        ("rescale", {"centre": "middle", "scale": "unit"}),
        ("clip_rows", {"norm": "l2", "bound": 4.0}),
        ("quantize", {"bits": 8}),
        domain=whole,
    )
    assert chain[0].claim.output.lattice == 0.5
    assert chain[1].claim.output.lattice is None
    assert chain[2].claim.output.frame == ((7.5, 1.0),)
    assert chain[2].claim.output.rounding == 0.5


@given(st.data())
def test_a_lattice_is_kept_exactly(data: st.DataObject) -> None:
    """Every value on the lattice has an exact image, and the grid behind it rounds nothing."""
    low = data.draw(st.integers(-(2**40), 2**40))
    high = low + data.draw(st.integers(1, 5000))
    domain = RealRows(width=2, lower=(float(low),), upper=(float(high),), lattice=1.0)
    scale = data.draw(st.sampled_from([0.25, 1.0, 2.0, 64.0]))
    centre = data.draw(st.sampled_from(["middle", "none"]))
    claim = rescale(domain, centre=centre, scale=(scale,))
    values = np.array([[data.draw(st.integers(low, high)) for _ in range(2)]], dtype=np.float64)
    image = claim.function(Rows(values))  # type: ignore[misc]
    claim.output.check(image)  # type: ignore[union-attr]
    bits = data.draw(st.integers(1, 16))
    quantize = lookup("quantize")(bits=bits)
    if max(abs(low), abs(high)) * 2**bits / (high - low) > 2**50 * 0.2:
        return  # refused: floats cannot tell such steps apart
    grid = quantize.bind(claim.output, Symmetric())  # type: ignore[arg-type]
    steps = grid.function(image).values
    if grid.output.rounding == 0.0:
        assert (steps * grid.output.unit == image.values).all()
    else:  # a range of many more whole numbers than the grid has steps
        assert (high - low) / 2.0**bits >= 2 * claim.output.lattice * scale  # type: ignore[union-attr]


def test_whole_numbers_are_not_rounded() -> None:
    """The step is a power of two: at most one bit more than was asked for, and no bias at all."""
    ages = Records(
        (Column("age", "int64", bounds=(0.0, 120.0)), Column("n", "int64", bounds=(0.0, 15.0)))
    )
    chain = stages(("select", {"features": ["age", "n"]}), ("quantize", {"bits": 6}), domain=ages)
    grid = chain[-1].claim.output
    assert (grid.unit, grid.rounding, grid.upper) == (1.0, 0.0, (120, 15))
    fine = stages(("select", {"features": "n"}), ("quantize", {"bits": 8}), domain=ages)[-1].claim
    assert (fine.output.unit, fine.expected["rounding"]) == (1 / 32, 0.0)
    mixed = Records((Column("n", "int64", bounds=(0.0, 15.5)),))
    chain = stages(("select", {"features": "n"}), ("quantize", {"bits": 8}), domain=mixed)
    assert chain[0].claim.output.lattice is None  # clamping to 15.5 leaves the whole numbers
    with pytest.raises(SimError, match="OS605"):
        RealRows(width=1, lower=(0.0,), upper=(4.0,), lattice=1.0).check(np.array([[0.5]]))


def test_sums_of_distances_have_no_bias_on_whole_numbers() -> None:
    rng = np.random.default_rng(3)
    values = rng.binomial(15, 0.45, (2000, 16)).astype(float)
    queries = rng.binomial(15, 0.45, (9, 16)).astype(float)
    exact = np.abs(values[None] - queries[:, None]).sum(axis=(1, 2))
    domain = Records((Column("x", "array[i64, 16]", bounds=(0.0, 15.0)),))
    chain = stages(
        ("select", {"features": "x"}),
        ("quantize", {"bits": 8}),
        ("moment_tree", {"levels": 9}),
        domain=domain,
    )
    flat = whole_function(chain[-1].claim)(resolve(chain, list)({"x": values.astype(np.int64)}))
    of = Release.of_sketch(chain, flat, None, {})
    post = lookup("distance")(p=1.0).bind(of.released, Symmetric())
    assert post.function(of.arrays, of.queries({"x": queries}))["distance"][:, 0] == pytest.approx(
        exact, rel=1e-9
    )


def test_moments_of_a_column_that_the_grid_swallows_are_refused() -> None:
    for key, params in (
        ("second_moments", {}),
        ("paired_projections", {"repetitions": 3, "seed": 1}),
    ):
        with pytest.raises(SimError, match="OS203") as caught:
            stages(("quantize", {"bits": 12}), (key, params))
        assert "rescale" in str(caught.value)
        assert stages(("rescale", {}), ("quantize", {"bits": 12}), (key, params))
    # Rows that are on a grid of their own, or a step of exact whole numbers, lose nothing.
    stages(("second_moments", {}), domain=GridRows(width=2, lower=(0, 0), upper=(1, 90)))


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"scale": (1.0, 2.0)}, "OS102"),
        ({"centre": (0.0, math.nan, 0.0)}, "OS102"),
        ({"scale": (0.0,)}, "OS102"),
        ({"scale": (-1.0,)}, "OS102"),
        ({"scale": (1e-310,)}, "OS102"),
        ({"scale": (1e305,)}, "OS102"),
        ({"scale": "ranges"}, "OS101"),
        ({"centre": (1e300,), "scale": (1e-300,)}, "OS102"),
    ],
)
def test_what_is_refused(params: dict[str, Any], code: str) -> None:
    with pytest.raises(SimError, match=code):
        rescale(STONES, **params)


def test_without_bounds_only_numbers_will_do() -> None:
    free = RealRows(width=2)
    for params in ({}, {"centre": "none"}, {"scale": "unit"}):
        with pytest.raises(SimError, match="OS204"):
            rescale(free, **params)
    assert rescale(free, centre="none", scale="unit").output.frame == ((0.0, 1.0),)  # type: ignore[union-attr]


def test_the_unit_that_is_wrong_is_the_one_that_is_named() -> None:
    with pytest.raises(ParameterError, match=r"above 0.*got 0") as refused:
        rescale(STONES, scale=(1.0, 0.0, 3.0))
    assert refused.value.inside == (1,)
