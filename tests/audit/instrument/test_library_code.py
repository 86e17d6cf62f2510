"""A law is of a library's own function: what a program puts under its name has no law, whatever it is called."""

# ruff: noqa: S311 - the draws that an audit meets
from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import opendp.mod as native
import opendp.prelude as dp
import pytest
from scipy import stats

from opendp_sim.audit.instrument.patch_rng import tapped
from opendp_sim.audit.instrument.rng_proxies import unknown
from opendp_sim.audit.instrument.tape import Draw, Tape

dp.enable_features("contrib")


def drawn(function: Callable[[], Any], mode: Any = "record") -> list[Draw]:
    """Return what a function draws, as the tape has it."""
    tape = Tape(None, RNG)

    def run(_: Any) -> Any:
        return function()

    with tapped(tape, [function, run]):
        out, draws = tape.run(run, 0, mode)
    assert np.isfinite(np.asarray(out, dtype=float)).all()
    return draws


def known(draw: Draw) -> bool:
    return not (draw.law is draw.free is draw.hint is draw.options is draw.argument is None)


class Wider(np.random.Generator):
    def laplace(self, loc=0.0, scale=1.0, size=None):
        return loc + super().laplace(0.0, 1.1 * scale)


class WiderLegacy(np.random.RandomState):
    def normal(self, loc=0.0, scale=1.0, size=None):
        return loc + super().normal(0.0, 1.1 * scale)


class WiderRandom(random.Random):
    def gauss(self, mu=0.0, sigma=1.0):
        return mu + super().gauss(0.0, 1.1 * sigma)


class Halved(random.Random):
    """Its normal draws are Python's, its uniform ones are not."""

    def random(self):
        return super().random() / 2


class Bits(np.random.PCG64):
    """Bits of its own, for all that anybody knows."""


class Generator:
    def laplace(self, loc, scale):
        return loc + scale * (random.random() - 0.5)

    def rvs(self, loc, scale):
        return loc + scale * (random.random() - 0.5)


def on_the_object(kind: Callable[[], Any], name: str) -> Any:
    made = kind()
    setattr(made, name, lambda *args: float(sum(args)))
    return made


RNG = np.random.default_rng()
PCG, OWN = np.random.PCG64, Generator()
WIDER, WIDER_LEGACY = Wider(PCG()), WiderLegacy()
OWN_BITS, HALVED, WIDER_RANDOM = np.random.Generator(Bits()), Halved(), WiderRandom()
PATCHED = on_the_object(random.SystemRandom, "gauss")
BENEATH = on_the_object(random.Random, "random")


@pytest.mark.parametrize(
    "function",
    [
        lambda: WIDER.laplace(0.0, 1.0),
        lambda: WIDER_LEGACY.normal(0.0, 1.0),
        lambda: OWN_BITS.laplace(0.0, 1.0),
        lambda: WIDER_RANDOM.gauss(0.0, 1.0),
        lambda: HALVED.gauss(0.0, 1.0),
        lambda: HALVED.getrandbits(2),
        lambda: PATCHED.gauss(0.0, 1.0),
        lambda: BENEATH.gauss(0.0, 1.0),
        lambda: OWN.laplace(0.0, 1.0),
        lambda: stats.laplace.rvs(0.0, 1.0),
    ],
)
def test_what_a_program_makes_of_a_generator_has_no_law(function) -> None:
    assert not any(map(known, drawn(function)))


REPLACED = [
    (random, "gauss", lambda mu, sigma: mu + sigma, lambda: random.gauss(0.0, 1.0)),
    (random.Random, "gauss", lambda _, mu, sigma: mu + sigma, lambda: random.gauss(0.0, 1.0)),
    (random.Random, "random", lambda _: 0.25, lambda: random.gauss(0.0, 1.0)),
    (random, "_urandom", lambda n: b"\1" * n, lambda: random.SystemRandom().gauss(0.0, 1.0)),
    (random, "choices", lambda items, weights: [items[0]], lambda: random.choices([1, 2], [1, 1])),
    (random, "choice", max, lambda: random.choice([1, 2])),
    (random, "getrandbits", lambda bits: bits, lambda: random.getrandbits(2)),
    (np.random, "laplace", lambda loc, scale: loc + scale, lambda: np.random.laplace(0.0, 1.0)),
    (np.random, "normal", partial(RNG.normal, 1.0), lambda: np.random.normal(2.0)),
    (np.random, "default_rng", lambda: WIDER, lambda: np.random.default_rng().laplace(0.0, 1.0)),
    (np.random, "Generator", Wider, lambda: np.random.Generator(PCG()).laplace(0.0, 1.0)),
    (secrets, "randbelow", lambda n: n - 1, lambda: secrets.randbelow(4)),
    (secrets, "randbits", lambda n: n - 1, lambda: secrets.randbits(2)),
    (
        secrets,
        "_sysrand",
        SimpleNamespace(_randbelow=lambda n: n - 1),
        lambda: secrets.randbelow(4),
    ),
]


@pytest.mark.parametrize(("place", "name", "instead", "function"), REPLACED)
def test_what_a_program_puts_in_place_of_a_library_has_no_law(
    place, name, instead, function, monkeypatch
) -> None:
    """A program that made ``random.gauss`` wider was priced by the scale that it was called with."""
    monkeypatch.setattr(place, name, instead)
    assert not any(map(known, drawn(function)))


def test_a_measurement_that_is_called_by_code_of_the_programs_own_has_no_law(monkeypatch) -> None:
    noise = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 1.0)
    assert [draw.law is not None for draw in drawn(lambda: noise(0))] == [True]
    real = native.Measurement.__call__
    monkeypatch.setattr(native.Measurement, "__call__", lambda self, arg: 2 * real(self, arg))
    assert [draw.law for draw in drawn(lambda: noise(0))] == [None]


def test_an_order_of_unknown_law_is_told_as_unseen() -> None:
    tape, rows = Tape(None, RNG, mode="record"), [2, 1]
    unknown(tape, "random", "shuffle", list.sort, (rows,), {}, "")
    assert rows == [1, 2]
    assert tape.unseen


PYTHON, SYSTEM, LEGACY = random.Random(), random.SystemRandom(), np.random.RandomState()


@pytest.mark.parametrize(
    "function",
    [
        lambda: RNG.laplace(0.0, 1.0),
        lambda: np.random.default_rng().normal(0.0, 1.0),
        lambda: np.random.Generator(np.random.Philox()).laplace(0.0, 1.0),
        lambda: LEGACY.laplace(0.0, 1.0),
        lambda: np.random.laplace(0.0, 1.0),
        lambda: np.random.normal(0.0, 1.0),
        lambda: random.gauss(0.0, 1.0),
        lambda: random.normalvariate(0.0, 1.0),
        lambda: PYTHON.gauss(0.0, 1.0),
        lambda: SYSTEM.gauss(0.0, 1.0),
        lambda: random.Random().gauss(0.0, 1.0),
    ],
)
def test_the_libraries_own_functions_have_their_laws(function) -> None:
    assert [draw.free is not None for draw in drawn(function)] == [True]


@pytest.mark.parametrize("function", [lambda: random.expovariate(1.0), lambda: RNG.geometric(0.5)])
def test_the_libraries_own_functions_have_their_hints(function) -> None:
    assert [draw.hint is not None for draw in drawn(function)] == [True]


@pytest.mark.parametrize(
    "function",
    [
        lambda: secrets.randbelow(4),
        lambda: secrets.randbits(2),
        lambda: random.getrandbits(2),
        lambda: SYSTEM.getrandbits(2),
        lambda: random.choices([1, 2], weights=[1, 2])[0],
        lambda: RNG.choice([1, 2], p=[0.5, 0.5]),
    ],
)
def test_the_libraries_own_functions_have_their_items(function) -> None:
    assert [draw.options is not None for draw in drawn(function)] == [True]
