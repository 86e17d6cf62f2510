"""Noise for one whole number is served at once; what is not one goes the long way, to OpenDP itself."""

from __future__ import annotations

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit.instrument.native_laws import Law
from opendp_sim.audit.instrument.noise_pool import Common, Pools, Ready
from opendp_sim.audit.instrument.patch_rng import tapped
from opendp_sim.audit.instrument.tape import Tape

LAW = Law("laplace", 2.0, whole=True, vector=False, carrier="i32")
NOISE = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 2.0)


def ready(common: Common, values: list[int]) -> Ready:
    pools = Pools(np.random.default_rng(0))
    pools.pool(LAW, bulk=True).extend(reversed(values))
    return Ready(NOISE, LAW, pools, common, bulk=True)


def test_a_measurement_is_served_after_its_releases_were_compared_and_never_in_its_own_mode() -> (
    None
):
    tape = Tape(None, np.random.default_rng(0))

    def twice(n: int) -> list[int]:
        return [NOISE(n), NOISE(2**31 - 5 if n == 1 else n)]

    with tapped(tape, [twice]):
        run = tape.live(twice, "bulk")
        for _ in range(3):
            run(0)
        assert [mode for _, mode in tape._ready] == ["bulk"]
        pool = tape.pools.pool(LAW, bulk=True)
        pool += [7, 5]
        assert run(3) == [8, 10]
        pool += [5]
        first, beyond = run(1)  # the second is near the end of its type: OpenDP draws it
        assert (first, beyond <= 2**31 - 1) == (6, True)
        size = len(pool)
        _, draws = tape.run(twice, 3, "record")
        assert (len(pool), [d.argument for d in draws]) == (size, [3, 3])
        with pytest.raises(Exception, match=r"(?i)inferred|expected|type"):
            tape.live(lambda _: NOISE("3"), "bulk")(0)


def test_both_runs_of_a_round_get_one_noise_and_other_rounds_another() -> None:
    common = Common()
    noise = ready(common, [4, -1, 9, 2])
    with common.common():
        common.begin()
        assert (noise.at(10), noise.at(0)) == (14, -1)
        common.again()
        assert (noise.at(11), noise.at(5), noise.at(0)) == (15, 4, 9)  # the third has its own
        common.begin()
        assert noise.at(0) == 2
