"""Bad counts and bad sizes are refused with a code and a hint, by every selection mechanism."""

from __future__ import annotations

import math

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given, settings, strategies as st

import opendp_sim.prelude as sim
from opendp_sim.core.claims import SketchBlock
from opendp_sim.core.errors import DataError, ParameterError
from opendp_sim.domains.counts import USERS, KnownCounts, OpenCounts, votes_space
from opendp_sim.domains.sketch import IntVector

dp.enable_features("contrib")

COUNTS = KnownCounts(
    "vote_counts",
    (SketchBlock("counts", (6,), l1=6, l2_squared=6, linf=1),),
    monotone=True,
    items=tuple("abcdef"),
)
GOOD = {
    "peel": {"k": 2, "scale": 1.0},
    "gated_peel": {"k": 2, "scale": 1.0, "delta": 1e-6},
    "stable_set": {"k": 2, "scale": 1.0, "delta": 1e-6},
    "stable_top_k": {"k_max": 4, "k": 2, "scale": 1.0, "delta": 1e-6},
    "limited_domain": {"k": 2, "k_max": 4, "scale": 1.0, "delta": 1e-6},
    "noise_threshold": {"k": 2, "scale": 1.0, "delta": 1e-6},
    "top_stable": {"k": 2, "k_max": 4, "epsilon": 1.0, "delta": 1e-6},
    "gaussian_top_k": {"k": 2, "scale": 1.0},
    "top_k": {"k": 2, "scale": 1.0, "delta": 1e-6},
    "choose_k": {"k_max": 4, "scale": 1.0},
    "noisy_max_gaussian": {"k_max": 4, "scale": 1.0},
}
NOT_COUNTS = {
    "fractional": (np.array([1, 2, 0.5, 4, 5, 6]), "OS602"),
    "short": (np.array([1, 2]), "OS602"),
    "empty": (np.array([], dtype=np.int64), "OS602"),
}
"""Refused for a public reason: their type or their length, never for a number in them."""
BAD_SIZES = [
    ({"k": 0}, "OS101"),
    ({"k": -1}, "OS101"),
    ({"k": 1.5}, "OS101"),
    ({"k": 6}, "OS102"),
    ({"k": 7}, "OS102"),
    ({"k_max": 0}, "OS101"),
    ({"k_max": 6}, "OS102"),
    ({"k_max": 2, "k": 2}, "OS102"),
    ({"k_max": 1, "k": 2}, "OS102"),
    ({"k": "ten"}, "OS101"),
    ({"k_max": 2.5}, "OS101"),
    ({"delta": 1e-300}, "OS101"),
    ({"delta": 0.0}, "OS101"),
    ({"delta": 1e-120}, "OS101"),
    ({"delta": 0.5}, "OS101"),
    ({"scale": float("nan")}, "OS101"),
]


@pytest.mark.parametrize("key", GOOD)
@pytest.mark.parametrize("bad", NOT_COUNTS)
def test_what_is_not_a_vector_of_counts_is_refused(key, bad):
    """By a code where it gets as far as the mechanism; OpenDP itself refuses another dtype."""
    counts, code = NOT_COUNTS[bad]
    votes = votes_space(key, COUNTS, USERS)
    with pytest.raises(DataError, match=f"{code}.*Hint"):
        votes.counts(counts)
    release = getattr(sim, f"make_{key}")(COUNTS, USERS, **GOOD[key])
    with pytest.raises((dp.OpenDPException, TypeError), match=f"{code}|Expected dtype int64"):
        release(counts)


def test_negative_counts_are_named_where_nothing_private_is_asked():
    with pytest.raises(DataError, match=r"OS605.*counts >= 0.*Hint") as caught:
        COUNTS.check(np.array([1, 2, -3, 4, 5, 6]))
    assert "-3" not in str(caught.value)


@pytest.mark.parametrize("space", [COUNTS, IntVector(6)], ids=["counts", "vector"])
@pytest.mark.parametrize("key", GOOD)
def test_a_release_answers_on_every_vector_that_opendp_admits(key, space):
    """A refusal that depends on a number would tell: all of int64 is answered, negatives as zero."""
    release = getattr(sim, f"make_{key}")(space, USERS, **GOOD[key])
    votes, low = votes_space(key, space, USERS), 0 if space is COUNTS else -(2**61)
    least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    for counts in ([1, 2, -3, 4, 5, 6], [least] * 6, [most, least] * 3, [-1] * 6, [0] * 6):
        vector = np.array(counts, dtype=np.int64)
        release(vector)
        assert (votes.counts(vector) == np.clip(vector, low, 2**61)).all()


@pytest.mark.parametrize("kind", ["u1", "u8", "i2", "i8"])
def test_counts_of_items_that_occur_never_wrap(kind):
    """2^63 votes were a negative number, one vote more than the largest of int64."""
    space = OpenCounts(text=False)
    votes = votes_space("test", space, USERS)
    most = np.iinfo(kind).max
    given = [min(most, 2**63 - 1), min(most, 2**63), most, 3, 1]
    data = {"item": np.arange(5), "votes": np.array(given, dtype=kind)}
    space.check(data)
    assert votes.counts(data).tolist() == [min(n, 2**63 - 1) for n in given]
    assert votes.counts({"item": np.arange(0), "votes": np.array([])}).tolist() == []


@given(
    st.lists(st.integers(-5, 5), min_size=6, max_size=6),
    st.lists(st.lists(st.integers(0, 1), min_size=6, max_size=6), max_size=3),
    st.lists(st.lists(st.integers(0, 1), min_size=6, max_size=6), max_size=3),
)
@settings(max_examples=200, derandomize=True, deadline=None)
def test_clamping_keeps_users_apart_by_no_more(start, added, removed):
    """Monotone L∞ distance of what a mechanism sees is at most that of what OpenDP measures."""
    votes = votes_space("test", COUNTS, USERS)
    before = np.array(start, dtype=np.int64)
    after = before + sum(map(np.array, added), np.zeros(6, int))
    after = after - sum(map(np.array, removed), np.zeros(6, int))
    seen = votes.counts(after) - votes.counts(before)
    real = after - before
    assert seen.max(initial=0) <= max(real.max(), 0)
    assert seen.min(initial=0) >= min(real.min(), 0)
    assert np.abs(seen).sum() <= np.abs(real).sum()


@pytest.mark.parametrize(
    ("key", "bad", "code"),
    [(key, bad, code) for key in GOOD for bad, code in BAD_SIZES if set(bad) <= set(GOOD[key])],
)
def test_bad_sizes_are_refused_by_code(key, bad, code):
    with pytest.raises(ParameterError, match=f"{code}.*Hint"):
        getattr(sim, f"make_{key}")(COUNTS, USERS, **(GOOD[key] | bad))


@pytest.mark.parametrize("key", [key for key in GOOD if "scale" in GOOD[key]])
def test_at_scale_0_the_loss_is_infinite_and_the_release_refused(key):
    """OpenDP's searches begin there; OpenDP wraps what a release raises."""
    made = getattr(sim, f"make_{key}")(COUNTS, USERS, **(GOOD[key] | {"scale": 0.0}))
    loss = made.map(1)
    loss = loss(1e-6) if callable(loss) else loss
    assert (loss[0] if isinstance(loss, tuple) else loss) == math.inf
    vector = np.array([5, 4, 3, 2, 1, 0], dtype=np.int64)
    with pytest.raises((ParameterError, dp.OpenDPException), match="OS101"):
        made(vector)


@pytest.mark.parametrize("key", ["stable_top_k", "limited_domain", "top_stable"])
def test_no_item_at_all_on_an_unknown_catalogue(key):
    nothing = {"item": np.array([], dtype=np.int64), "votes": np.array([], dtype=np.int64)}
    release = getattr(sim, f"make_{key}")(OpenCounts(text=False), USERS, **GOOD[key])
    assert release(nothing) in (None, [])
    repeated = {"item": np.array([1, 1]), "votes": np.array([2, 3])}
    with pytest.raises(DataError, match="OS605"):
        OpenCounts(text=False).check(repeated)


@pytest.mark.parametrize(
    "bad", [{"k_max": 2}, {"k_max": 1}, {"k_max": 6}, {"k_max": 60}, {"k_max": 0}]
)
def test_the_rule_refuses_a_k_max_that_it_would_not_use(bad):
    code = "OS101" if bad["k_max"] == 0 else "OS102"
    with pytest.raises(ParameterError, match=f"{code}.*k_max.*Hint"):
        sim.make_top_k(COUNTS, USERS, k=2, scale=1.0, delta=1e-6, **bad)
    sim.make_top_k(COUNTS, USERS, k=2, scale=1.0, delta=1e-6, k_max=4)


@pytest.mark.parametrize(
    ("key", "params"),
    [
        ("peel", {"k": 5000, "scale": 1e3}),
        ("limited_domain", {"k": 5000, "k_max": 9000, "scale": 1e3, "delta": 1e-6}),
        ("gated_peel", {"k": 5000, "scale": 1e3, "delta": 1e-6}),
        ("gated_peel", {"k": 2, "scale": 1e6, "delta": 1e-6}),
        ("gated_peel", {"k": 2, "scale": 10.0, "delta": 1e-6, "distance": 1000}),
    ],
)
def test_curves_that_would_not_come_back_are_refused(key, params):
    """Too many rounds, too many pass levels; a far distance alone is no reason."""
    make = getattr(sim, f"make_{key}")
    if params.get("distance"):
        curve = make(IntVector(20_000), USERS, accounting="curve", **params).map(1000)
        assert curve.delta(50.0) > 0
        return
    with pytest.raises(ParameterError, match=rf"OS102 {key}\.accounting.*Hint"):
        make(IntVector(20_000), USERS, accounting="curve", **params)
    make(IntVector(20_000), USERS, **params)
