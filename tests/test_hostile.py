"""What an attack of a day found and no other file's test names: native members, and neighbours that raised."""

from __future__ import annotations

import numpy as np
import opendp.prelude as dp
import pytest
from opendp.extras.numpy import array2_domain

import opendp_sim.prelude as sim
from opendp_sim.core.errors import DataError
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.ids import persons
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import Rows
from tests.postprocessing.test_far_queries import GRID, KERNELS, N, release


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
    for given in (ids, held):
        with pytest.raises(DataError, match="OS602"):
            persons(given)


@pytest.mark.parametrize("kernel", KERNELS)
def test_far_queries_are_outliers(kernel):
    """At 2**45 steps `outliers` saw 600 of 1,000 records, and flagged nobody."""
    key, params = KERNELS[kernel]
    of = release([lookup(key)(**params, seed=4)], GRID, Rows(np.zeros((N, 2))))
    ask = lookup("outliers")(threshold=0.5).bind(of.released, Symmetric())
    found = ask.function(of.arrays, Rows(np.array([[2.0**45, 0.0], [0.0, 0.0]])))
    assert found["outlier"][:, 0].tolist() == [1.0, 0.0]
