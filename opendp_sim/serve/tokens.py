"""Know callers by bearer tokens, of which only digests are kept.

A token has 256 random bits, so that its sha256 says nothing about it. The file is read again when it
changes: a token that was removed is refused within a second.
"""

from __future__ import annotations

import os
import secrets
import shlex
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from starlette.requests import Request

from opendp_sim.accounting.atomic_files import write_json
from opendp_sim.accounting.file_schemas import Digest, Strict, read_strictly
from opendp_sim.core.errors import DataError, ParameterError
from opendp_sim.core.system.regular_files import regular
from opendp_sim.web.guard import HttpRefusal, bearer, known_digest, no_token, token_digest

Role = Literal["analyst", "curator", "officer", "operator"]
FORMAT = "opendp_sim/tokens/1"


class _Token(Strict):
    sha256: Digest
    name: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[\w.@-]+$")]
    role: Role
    until: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]


class _TokenFile(Strict):
    format: Literal["opendp_sim/tokens/1"]
    tokens: list[_Token]


@dataclass(frozen=True)
class Caller:
    """Name who asks, and in which role.

    Keys of questions belong to the name, so that a token can be exchanged.
    """

    name: str
    role: Role


def issue(path: Path, name: str, role: Role, days: int) -> str:
    """Add a new token's digest to a file, and return the token.

    Raises:
        ParameterError (OS101): a name of other characters. DataError (OS601): another file.
    """
    token = secrets.token_urlsafe(32)
    until = (datetime.now(UTC) + timedelta(days=days)).date().isoformat()
    try:
        made = _Token(sha256=token_digest(token), name=name, role=role, until=until)
    except ValueError:
        raise ParameterError(
            "OS101", "name", expected="1 to 64 letters, digits or . _ @ -", got="another text",
            hint="name the person or the program that asks.",
        ) from None  # fmt: skip
    known = read_tokens(path).tokens if path.exists() else []
    write_json(path, {"format": FORMAT, "tokens": [t.model_dump() for t in [*known, made]]})
    path.chmod(0o600)
    return token


def read_tokens(path: Path) -> _TokenFile:
    """Read a file of tokens, which nobody else may write (OS601)."""

    def other(came: str) -> DataError:
        command = f"opendp-sim serve token NAME --role analyst --tokens {shlex.quote(str(path))}"
        return DataError(
            "OS601", str(path), expected="a file of tokens that only its owner may write", got=came,
            hint=f"make one with `{command}`.",
        )  # fmt: skip

    try:
        text, mode = regular(path).read_bytes(), path.stat().st_mode
    except OSError:
        raise other("none that can be read") from None
    if os.name == "posix" and mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise other("one that others may write")
    return read_strictly(_TokenFile, text, other)


class Tokens:
    """Find the caller of a request, at a bounded rate.

    Args:
        path: the file, read again when it changes.
        rate: requests a second of one name. burst: requests at once.
        clock: seconds.
    """

    def __init__(
        self,
        path: Path,
        *,
        rate: float = 10.0,
        burst: float = 20.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._rate, self._burst, self._clock = path, rate, burst, clock
        self._known = {token.sha256: token for token in read_tokens(path).tokens}
        self._state, self._looked = _state(path), clock()
        self._left: dict[str, tuple[float, float]] = {}

    def caller(self, request: Request, *roles: Role) -> Caller:
        """Return who asks in one of these roles (401, 403, 429)."""
        self._look_again()
        digest = known_digest(bearer(request), self._known)
        token = None if digest is None else self._known[digest]
        if token is None or token.until < datetime.now(UTC).date().isoformat():
            raise no_token()
        self._count(token.name)
        if token.role not in roles:
            raise HttpRefusal(403, "role", f"a token of the role {' or '.join(roles)}")
        return Caller(token.name, token.role)

    def _look_again(self) -> None:
        if self._clock() - self._looked < 1.0:
            return
        self._looked, state = self._clock(), _state(self._path)
        if state != self._state:
            self._state, self._known = state, {}  # of a file that cannot be read, nobody is known
            found = read_tokens(self._path)
            self._known = {token.sha256: token for token in found.tokens}

    def _count(self, name: str) -> None:
        now = self._clock()
        left, at = self._left.get(name, (self._burst, now))
        left = min(self._burst, left + self._rate * (now - at))
        self._left[name] = max(left - 1, 0.0) if left >= 1 else left, now
        if left < 1:
            raise HttpRefusal(429, "rate", f"at most {self._rate:g} requests a second")


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
