"""The seal of an unfinished run: what was sealed opens, and nothing else does."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from opendp_sim.accounting.certificate.lamport_signature import Seal, closed_by


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
