"""A key under which almost any signature verifies is no curator's key."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from opendp_sim.accounting.certificate.signature import _of_small_order

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
