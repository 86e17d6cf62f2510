"""Guard an HTTP application against strangers and other pages.

The outermost layer of both doors; large bodies and leaking errors end here too. It decides before the
application sees a request (the host, the page that sent it), bounds its time, sends every failure as a
code without data, and adds the headers that keep a browser from caching, framing or sniffing an answer.
No cookie: cookies of 127.0.0.1 go to every port, so a token stands in a header, which no other page can
make a browser send.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from opendp_sim.accounting.file_schemas import loose_json
from opendp_sim.core.errors import CATALOGUE, SimError, came

BODY = 2**20
"""Bytes at most of a request's body."""
BODY_SECONDS, WORK_SECONDS = 10.0, 30.0
"""Seconds until a body has to be there, and an answer."""
_SHOWN = frozenset(
    {"OS101", "OS102", "OS303", "OS304", "OS305", "OS406", "OS408", "OS602", "OS603", "OS604"}
    | {"OS605", "OS607", "OS702", "OS704"}
)
"""Codes about the request, whose texts are sent; others may name files of this machine."""
_STATUS = {"OS402": 403, "OS406": 410, "OS407": 503, "OS408": 409, "OS409": 409}
_FAMILIES = {"OS1": 422, "OS2": 422, "OS3": 422, "OS6": 422, "OS7": 422}
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_ONCE = ("authorization", "content-type", "host", "idempotency-key", "origin", "sec-fetch-site")
"""Headers that decide: of two, this server and a proxy could each read another one."""
_log = logging.getLogger("opendp_sim.web")


def page_policy(trusted_types: str = "'none'") -> str:
    """Return the Content-Security-Policy of a page with its own files.

    No inline script or style, and nothing of another origin. ``trusted_types`` names the one policy
    that may turn text into elements.
    """
    own = "".join(f" {kind}-src 'self';" for kind in ("script", "style", "connect", "img"))
    return (
        f"default-src 'none';{own} base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        f"require-trusted-types-for 'script'; trusted-types {trusted_types}"
    )


class HttpRefusal(Exception):  # noqa: N818 - an answer, not a fault
    """Refuse a request with a status and a code, without any data.

    Args:
        status: of HTTP.
        code: a word that programs compare.
        expected: what a good request has. hint: the next step.
    """

    def __init__(self, status: int, code: str, expected: str, hint: str = "") -> None:
        self.status, self.code, self.expected, self.hint = status, code, expected, hint
        super().__init__(f"{status} {code}: expected {expected}")

    def response(self) -> Response:
        """Return the refusal as JSON."""
        told = {"code": self.code, "expected": self.expected, "hint": self.hint}
        wait = {"Retry-After": "1"} if self.status in (429, 503) else None
        return JSONResponse({"error": told}, self.status, wait)


def _coded(error: SimError) -> Response:
    """Return a coded error as JSON.

    With its text only where it is about the request.
    """
    status = _STATUS.get(error.code, _FAMILIES.get(error.code[:3], 500))
    told: dict[str, Any] = {"code": error.code, "expected": CATALOGUE[error.code]}
    if error.code in _SHOWN:
        told |= {"where": error.where, "expected": error.expected, "got": came(error.got)}
        told["hint"] = error.hint
    return JSONResponse({"error": told}, status, {"Retry-After": "1"} if status == 503 else None)


class Guard:
    """Guard an application, as its outermost layer.

    Args:
        app: what answers; its exceptions become coded answers here.
        hosts: the Host headers to answer to, such as ``127.0.0.1:8080``; another one is a page that
            had its name pointed at this machine (421).
        linked: paths without any data that other pages may link to.
        probed: paths without any data that are asked under any host.
        seen: gets the endpoint's name, the status and the seconds of every answer.
        seconds: until an answer has to be there (504); the work itself may go on.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: Iterable[str],
        *,
        linked: Iterable[str] = (),
        probed: Iterable[str] = (),
        seen: Callable[[str, int, float], None] = lambda _name, _status, _seconds: None,
        seconds: float = WORK_SECONDS,
    ) -> None:
        self._app, self._hosts = app, frozenset(host.lower() for host in hosts)
        self._linked, self._probed = frozenset(linked), frozenset(probed)
        self._seen, self._seconds = seen, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; a socket of another kind is closed."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return
        began, status = time.monotonic(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _set_headers(message)
            elif not message.get("more_body"):  # before the last byte leaves: who has it is counted
                name = getattr(scope.get("endpoint"), "__name__", "none")
                self._seen(name, status, time.monotonic() - began)
            await send(message)

        scope["app"] = self  # so that an unknown path is an exception
        response: Response | None = None
        try:
            self._check(scope)
            async with asyncio.timeout(self._seconds):
                await self._app(scope, receive, sending)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001 - its text may hold data
            if status:  # half an answer left: the connection ends
                _log.error("an answer broke off: %s", type(error).__name__)
                raise ConnectionAbortedError from None
            response = _answer(error)
        if response is not None:
            await response(scope, receive, sending)

    def _check(self, scope: Scope) -> None:
        """Refuse what another host's or another page's request is."""
        headers, path = Headers(scope=scope), scope["path"]
        if path in self._probed:
            return
        for name in _ONCE:
            if len(headers.getlist(name)) > 1:
                raise HttpRefusal(400, "header", f"the header `{name}` once")
        if headers.get("host", "").lower() not in self._hosts:
            raise HttpRefusal(421, "host", "the host that this server was started with")
        if path in self._linked and scope["method"] == "GET":
            return
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() not in self._hosts:
            raise HttpRefusal(403, "origin", "a request of this server's own page, or of no page")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise HttpRefusal(403, "origin", "a request of this server's own page, or of no page")


def _set_headers(message: Message) -> None:
    """Set the headers that the application did not set."""
    headers = MutableHeaders(scope=message)
    for name, value in _HEADERS.items():
        headers.setdefault(name, value)


def _answer(error: Exception) -> Response:
    """Return the answer to a failure, without an uncoded text."""
    match error:
        case HttpRefusal():
            return error.response()
        case SimError():
            return _coded(error)
        case HTTPException():
            known = {404: "a path of this server", 405: "another method on this path"}
            told = known.get(error.status_code, "another request")
            return HttpRefusal(error.status_code, "path", told).response()
        case TimeoutError():
            hint = "ask for less; a charged answer is found again under its key."
            return HttpRefusal(504, "time", "work that ends in time", hint).response()
    _log.error("a request failed: %s", type(error).__name__)
    return HttpRefusal(
        500, "internal", "no failure in this server; its text is withheld"
    ).response()


def bearer(request: Request) -> str:
    """Return the token of the Authorization header, or refuse (401)."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token:
        raise no_token()
    return token.strip()


def no_token() -> HttpRefusal:
    """Return the refusal of a request without a known token (401)."""
    return HttpRefusal(401, "token", "the header `Authorization: Bearer TOKEN` with a known token")


def token_digest(token: str) -> str:
    """Return the sha256 of a token, in hexadecimal."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def known_digest(token: str, digests: Iterable[str]) -> str | None:
    """Return the digest of a token among known ones, in constant time."""
    found, own = None, token_digest(token)
    for digest in digests:
        if hmac.compare_digest(own, digest):
            found = digest
    return found


async def read_json(request: Request, most: int = BODY) -> dict[str, Any]:
    """Read a request's body as a JSON object of finite numbers.

    Raises:
        HttpRefusal (415, 413, 408, 400, 422): another type, too long, too slow, no JSON, no object.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # which no form of another page can send
        raise HttpRefusal(415, "type", "a body of the type application/json")
    stated = request.headers.get("content-length", "0")
    if not stated.isdecimal() or len(stated) > 12 or int(stated) > most:
        raise _too_long(most)
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise _too_long(most)
                parts.append(part)
    except TimeoutError:
        raise HttpRefusal(408, "slow", f"a body within {BODY_SECONDS:.0f} seconds") from None
    try:
        found = loose_json(b"".join(parts).decode(), finite=True)
    except (ValueError, RecursionError):
        raise HttpRefusal(
            400, "json", "JSON in UTF-8 that names each member once, with finite numbers"
        ) from None
    if not isinstance(found, dict):
        raise HttpRefusal(422, "json", "a JSON object")
    return found


def _too_long(most: int) -> HttpRefusal:
    return HttpRefusal(413, "size", f"a body of at most {most:,} bytes", "send several requests.")
