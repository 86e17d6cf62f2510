"""What the tests of bulk noise share: scales, a drawer, and a byte source that can be scripted."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import opendp.prelude as dp
from hypothesis import strategies as st

from opendp_sim.measurements.noise._impl.samplers import add_gaussian, add_laplace, add_rounded

dp.enable_features("contrib")

FALSE_ALARM = 1e-6
PUSH, DEEP = 10**6, 10**8
SCALES = [Fraction(1, 2), Fraction(7, 10), Fraction(10, 3), Fraction(10), Fraction(10**4)]
LONE_SCALES = [Fraction(1, 10), Fraction(99, 100), Fraction(10**9), Fraction(2**40, 3)]
ADD = {"laplace": add_laplace, "gaussian": add_gaussian, "rounded": add_rounded}
I64 = np.iinfo(np.int64)
RATIONALS = st.fractions(min_value=Fraction(1, 10**12), max_value=10**9)


def drawer(family, scale):
    return lambda count: ADD[family](np.zeros(count, np.int64), [(count, scale)])


class Script:
    """A byte source that hands out a fixed list and then refuses, or goes on with zeros."""

    def __init__(self, scripted, *, endless=False):
        self.left, self.endless = list(scripted), endless

    def take(self, count):
        if len(self.left) < count:
            if not self.endless:
                raise EOFError
            self.left += [0] * count
        out, self.left = self.left[:count], self.left[count:]
        return np.array(out, np.uint8)
