"""Bad counts and bad sizes are refused with a code and a hint, by every selection mechanism."""

from __future__ import annotations

import numpy as np
import opendp.prelude as dp
import pytest

import opendp_sim.prelude as sim
from opendp_sim.core.claims import Block
from opendp_sim.core.errors import DataError, ParameterError
from opendp_sim.spaces.counts import USERS, KnownCounts, OpenCounts, votes_space

dp.enable_features("contrib")

COUNTS = KnownCounts(
    "vote_counts", (Block("counts", (6,), l1=6, l2_squared=6, linf=1),), monotone=True,
    items=tuple("abcdef"),
)  # fmt: skip
GOOD = {
    "peel": {"k": 2, "scale": 1.0},
    "test_peel": {"k": 2, "scale": 1.0, "delta": 1e-6},
    "stable_set": {"k": 2, "scale": 1.0, "delta": 1e-6},
    "stable_top_k": {"k_max": 4, "k": 2, "scale": 1.0, "delta": 1e-6},
    "limited_domain": {"k": 2, "k_max": 4, "scale": 1.0, "delta": 1e-6},
    "top_stable": {"k": 2, "k_max": 4, "epsilon": 1.0, "delta": 1e-6},
    "gaussian_top_k": {"k": 2, "scale": 1.0},
    "top_k": {"k": 2, "scale": 1.0, "delta": 1e-6},
    "choose_k": {"k_max": 4, "scale": 1.0},
    "noisy_max_gaussian": {"k_max": 4, "scale": 1.0},
}
BAD_COUNTS = {
    "negative": (np.array([1, 2, -3, 4, 5, 6]), "OS605"),
    "fractional": (np.array([1, 2, 0.5, 4, 5, 6]), "OS602"),
    "short": (np.array([1, 2]), "OS602"),
    "empty": (np.array([], dtype=np.int64), "OS602"),
}
BAD_SIZES = [({"k": 0}, "OS101"), ({"k": -1}, "OS101"), ({"k": 1.5}, "OS101"), ({"k": 6}, "OS102"),
             ({"k": 7}, "OS102"), ({"k_max": 0}, "OS101"), ({"k_max": 6}, "OS102"),
             ({"k_max": 2, "k": 2}, "OS102"), ({"k_max": 1, "k": 2}, "OS102"),
             ({"delta": 0.0}, "OS101"), ({"delta": 1e-120}, "OS101"), ({"delta": 0.5}, "OS101"),
             ({"scale": 0.0}, "OS101"), ({"scale": float("nan")}, "OS101")]  # fmt: skip


@pytest.mark.parametrize("key", GOOD)
@pytest.mark.parametrize("bad", BAD_COUNTS)
def test_bad_counts_are_refused_by_code(key, bad):
    counts, code = BAD_COUNTS[bad]
    votes = votes_space(key, COUNTS, USERS)
    with pytest.raises(DataError, match=f"{code}.*Hint") as caught:
        votes.counts(counts)
    assert not any(str(number) in str(caught.value).split("got")[1] for number in (-3, 0.5))
    release = getattr(sim, f"make_{key}")(COUNTS, USERS, **GOOD[key])
    with pytest.raises((dp.OpenDPException, TypeError), match=f"{code}|Expected dtype"):
        release(counts)


@pytest.mark.parametrize(("key", "bad", "code"), [
    (key, bad, code) for key in GOOD for bad, code in BAD_SIZES if set(bad) <= set(GOOD[key])
])  # fmt: skip
def test_bad_sizes_are_refused_by_code(key, bad, code):
    with pytest.raises(ParameterError, match=f"{code}.*Hint"):
        getattr(sim, f"make_{key}")(COUNTS, USERS, **(GOOD[key] | bad))


@pytest.mark.parametrize("key", ["stable_top_k", "limited_domain", "top_stable"])
def test_no_item_at_all_on_an_unknown_catalogue(key):
    nothing = {"item": np.array([], dtype=np.int64), "votes": np.array([], dtype=np.int64)}
    release = getattr(sim, f"make_{key}")(OpenCounts(text=False), USERS, **GOOD[key])
    assert release(nothing) in (None, [])
    repeated = {"item": np.array([1, 1]), "votes": np.array([2, 3])}
    with pytest.raises(DataError, match="OS605"):
        OpenCounts(text=False).check(repeated)
