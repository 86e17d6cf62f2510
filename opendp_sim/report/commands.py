"""List commands for a page's reader to compare and sign."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.run.certificate import certificate_path

Check = tuple[str, str]
"""What a reader may want to know, and the lines that answer it."""
_KEYS = """openssl genpkey -algorithm ed25519 -out curator.pem
openssl pkey -in curator.pem -pubout -out curator.pub.pem
"""
"""The curator's: the first file is a secret, the second is handed to whoever checks, by another way."""
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_AGAINST = """Is it the program that you reviewed? Name your own copy of the spec, not one that came with
the file:"""
_UNSIGNED = """Who made it? Nobody signed: whoever can rewrite all files can rewrite all hashes. The
curator makes keys once, keeps the first file secret, gives you the second, and signs the next run
(with the extra `sign` of the package; each run has a cost of its own). You check that run's
certificate:"""
_SIGNED = """Who made it? It is signed by the key {}... Take the public key from the curator, not from
whoever gave you the file:"""
_LATER = """Once it may be run: the curator signs what comes out (with the extra `sign` of the package),
and you compare it with your own copy of the spec and with the curator's public key:"""


def checks_of_certificate(file: Path, plan: Plan, signature: Any) -> Iterator[Check]:
    """Yield ``verify`` commands with own spec and signature."""
    verify = f"opendp-sim verify {shlex.quote(file.name)}"
    spec = _spec_beside(file, plan.program.name)
    signed = f"{verify} --spec {spec} --signer curator.pub.pem"
    yield _one_line(_AGAINST), f"{verify} --spec {spec}"
    if signature is None:
        made = f"{_KEYS}opendp-sim apply {spec} --sign curator.pem\n{signed}"
        yield _one_line(_UNSIGNED), made
    else:
        yield _one_line(_SIGNED.format(signature.key[:16])), signed


def checks_of_plan(file: Path, spec: Path, plan: Plan) -> Iterator[Check]:
    """Yield commands and comparisons before a program may run."""
    saved = [o.decl.save for o in plan.outputs.values() if o.decl.save is not None]
    if saved:
        done = shlex.quote(certificate_path(Path(saved[0])).as_posix())
        run = f"opendp-sim apply {shlex.quote(file.name)} --sign curator.pem"
        place = Path(os.path.relpath(spec.resolve(), file.resolve().parent)).as_posix()
        own = f"--spec {shlex.quote(place)} --signer curator.pub.pem"
        yield _one_line(_LATER), f"{_KEYS}{run}\nopendp-sim verify {done} {own}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _spec_beside(file: Path, name: str) -> str:
    """Return a spec's place as seen from the certificate."""
    own = f"{name}.yaml" if _PLAIN.fullmatch(name) else "spec.yaml"
    return next((at for at in (own, f"../{own}") if (file.parent / at).is_file()), own)
