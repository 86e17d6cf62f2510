"""Noise for one whole number is served at once; what is not one goes the long way, to OpenDP itself."""

from __future__ import annotations

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit.instrument.native_laws import Law
from opendp_sim.audit.instrument.patch_rng import tapped
from opendp_sim.audit.instrument.tape import Tape

LAW = Law("laplace", 2.0, whole=True, vector=False, carrier="i32")
NOISE = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 2.0)


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
        assert len(tape._ready) == 1
        pool = tape.pools.pool(LAW)
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
