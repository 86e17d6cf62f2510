"""Sign certificates with Ed25519, through the package ``cryptography``.

Hashes show an edit to whoever has the ledger; somebody who can rewrite all files can rewrite all hashes.
A signature needs a key that is not among these files. It is over the ASCII text

    opendp_sim/certificate/3 <digest of the statement> <hash of the charge, or "none">

so that whoever can compute a sha256 can check it with any Ed25519 library, or with ``openssl pkeyutl``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from opendp_sim.accounting.certificate.certificate import statement_digest
from opendp_sim.core.errors import DataError, ReleaseError
from opendp_sim.core.system.regular_files import regular


def signed_text(certificate: dict[str, Any]) -> bytes:
    """Return what a signature is over."""
    charge = certificate["charge"]
    paid = "none" if charge is None else charge["hash"]
    return f"{certificate['format']} {statement_digest(certificate)} {paid}".encode()


class Signer:
    """A private key, read from a PEM file before anything is charged.

    Args:
        path: an unencrypted PKCS #8 file, as ``openssl genpkey -algorithm ed25519`` makes it.

    Raises:
        DataError (OS606): the package is not installed. ReleaseError (OS701): no such key.
    """

    def __init__(self, path: str | Path) -> None:
        serialization, ed25519 = _cryptography()
        try:
            key = serialization.load_pem_private_key(regular(path).read_bytes(), None)
        except Exception:  # noqa: BLE001 - a foreign file fails in many ways; its text is a secret
            key = None
        if not isinstance(key, ed25519.Ed25519PrivateKey):
            raise _no_key(path, "an Ed25519 private key in PEM, without a password")
        self._key = key

    def __repr__(self) -> str:
        """Nothing of the key."""
        return "Signer(secret)"

    @property
    def public(self) -> str:
        """The public key, in hexadecimal."""
        return str(self._key.public_key().public_bytes_raw().hex())

    def sign(self, certificate: dict[str, Any]) -> dict[str, str]:
        """Return the ``signature`` field of a certificate."""
        value = self._key.sign(signed_text(certificate)).hex()
        return {"scheme": "ed25519", "key": self.public, "value": value}


def public_key(path: str | Path) -> str:
    """Return the public key of a PEM file, in hexadecimal (OS606, OS701)."""
    serialization, ed25519 = _cryptography()
    try:
        key = serialization.load_pem_public_key(regular(path).read_bytes())
    except Exception:  # noqa: BLE001 - a foreign file fails in many ways
        key = None
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise _no_key(path, "an Ed25519 public key in PEM")
    return str(key.public_bytes_raw().hex())


def check_signature(certificate: dict[str, Any]) -> bool:
    """Verify a certificate's signature of the statement, the charge and the key."""
    _, ed25519 = _cryptography()
    signature = certificate["signature"]
    try:
        key = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature["key"]))
        key.verify(bytes.fromhex(signature["value"]), signed_text(certificate))
        return not _of_small_order(bytes.fromhex(signature["key"]))
    except Exception:  # noqa: BLE001 - a wrong length, no hexadecimal, another signature
        return False


def _of_small_order(key: bytes) -> bool:
    """Return whether a public key is a weak point.

    Under one of these few points almost any signature verifies. Such a point maps to one of small
    order on Curve25519, where an exchange of keys is refused.
    """
    from cryptography.hazmat.primitives.asymmetric import x25519  # noqa: PLC0415 - an extra, heavy

    prime = 2**255 - 19
    y = (int.from_bytes(key, "little") & (2**255 - 1)) % prime
    if y == 1:
        return True
    u = (1 + y) * pow(1 - y, -1, prime) % prime
    other = x25519.X25519PublicKey.from_public_bytes(u.to_bytes(32, "little"))
    try:
        x25519.X25519PrivateKey.generate().exchange(other)
    except ValueError:
        return True
    return False


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - an extra, heavy
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415
    except ImportError:
        raise DataError(
            "OS606", "signature", expected="the package `cryptography`", got="none",
            hint="pip install 'opendp_sim[sign]', or leave the key out.",
        ) from None  # fmt: skip
    return serialization, ed25519


def _no_key(path: str | Path, expected: str) -> ReleaseError:
    return ReleaseError(
        "OS701", str(path), expected=expected, got="no such file, or another one",
        hint="openssl genpkey -algorithm ed25519 -out curator.pem; "
        "openssl pkey -in curator.pem -pubout -out curator.pub.pem",
    )  # fmt: skip
