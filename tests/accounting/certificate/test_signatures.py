"""Seals of unfinished runs open for what was sealed alone; keys that verify anything are refused."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from opendp_sim.accounting.certificate.lamport_signature import Seal, closed_by
from opendp_sim.accounting.certificate.signature import _of_small_order


def test_only_what_was_sealed_opens():
    seal = Seal()
    public, shown = seal.public, seal.close(b"a list of files")
    assert closed_by(public, b"a list of files", shown)
    assert not closed_by(public, b"a list of Files", shown)
    assert not closed_by(Seal().public, b"a list of files", shown)
    for wrong in (b"", shown[:-1], shown + b"x"):
        assert not closed_by(public, b"a list of files", wrong)


def test_every_bit_of_the_seal_counts():
    seal = Seal()
    shown = bytearray(seal.close(b"text"))
    for place in np.random.default_rng(5).integers(0, 8 * len(shown), 200):
        shown[place // 8] ^= 1 << (place % 8)
        assert not closed_by(seal.public, b"text", bytes(shown))
        shown[place // 8] ^= 1 << (place % 8)
    assert closed_by(seal.public, b"text", bytes(shown))


def test_a_seal_is_used_once_and_leaves_no_secret():
    seal = Seal()
    assert repr(seal) == "Seal(secret)"
    for leave in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            leave(seal)
    seal.close(b"one")
    with pytest.raises(RuntimeError):
        seal.close(b"another")
    assert "_pairs" in vars(seal)
    assert not seal._pairs


PRIME = 2**255 - 19
EIGHTH = "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"


@pytest.mark.parametrize("y", [0, 1, PRIME - 1, PRIME, PRIME + 1])
@pytest.mark.parametrize("sign", [0, 1])
def test_points_of_small_order_are_found(y, sign):
    assert _of_small_order((y + (sign << 255)).to_bytes(32, "little"))


def test_points_of_order_eight_are_found():
    assert _of_small_order(bytes.fromhex(EIGHTH))


def test_drawn_keys_are_not():
    for _ in range(50):
        key = ed25519.Ed25519PrivateKey.generate().public_key().public_bytes_raw()
        assert not _of_small_order(key)
