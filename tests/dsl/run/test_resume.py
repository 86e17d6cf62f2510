"""What a run that is finished later has to share with the run that was started."""

from __future__ import annotations

import json

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from opendp_sim.accounting.certificate.signature import Signer
from opendp_sim.core.errors import ReleaseError
from opendp_sim.dsl import apply, plan_file, verify
from tests.dsl.test_survive_runs import published, state, unfinished


def key_file(path):
    key = ed25519.Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    path.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    public = path.with_suffix(".pub")
    info = serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(key.public_key().public_bytes(pem, info))
    return path


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("stopped_at", "started"),
    [
        ("settle", True),
        ("_place", False),
        pytest.param("settle", False, marks=pytest.mark.long),
        pytest.param("_place", True, marks=pytest.mark.long),
    ],
)
def test_a_run_is_signed_by_the_key_that_it_was_started_with(
    tmp_path, monkeypatch, started, stopped_at
):
    """Any key was taken: whoever finished a run vouched for a table that somebody else had handed over."""
    mine, other = key_file(tmp_path / "mine.pem"), key_file(tmp_path / "other.pem")
    sign = mine if started else None
    spec = unfinished(tmp_path, monkeypatch, stopped_at, sign=sign)
    before = state(tmp_path)
    for wrong in {None, mine, other} - {sign}:
        for number in (2, None):
            with pytest.raises(ReleaseError, match="OS702") as refused:
                apply(plan_file(spec), sign=wrong, resume=number if before[1][1:] else None)
            assert refused.value.where == "--sign"
            assert str(refused.value.got) == (
                "none" if wrong is None else f"{Signer(wrong).public[:16]}..."
            )
    assert (published(tmp_path), state(tmp_path)) == (set(), before)
    done = apply(plan_file(spec), sign=sign)
    assert done.resumed == 2
    for path in done.certificates.values():
        verify(path, signer=mine.with_suffix(".pub") if started else None)


def test_the_key_is_in_the_sealed_list(tmp_path, monkeypatch):
    mine, other = key_file(tmp_path / "mine.pem"), key_file(tmp_path / "other.pem")
    spec = unfinished(tmp_path, monkeypatch, sign=mine)
    file = next(tmp_path.glob(".opendp_sim-*")) / "run.json"
    listed = json.loads(file.read_text())
    assert listed["signer"] == Signer(mine).public
    for changed in ({"signer": Signer(other).public}, {"signer": None, "signed": False}):
        file.write_text(json.dumps(listed | changed))
        with pytest.raises(ReleaseError, match="OS701"):
            apply(plan_file(spec), sign=other if changed["signer"] else None)
    assert not published(tmp_path)
