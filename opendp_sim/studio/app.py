"""Serve one page about one file to this machine's own browser."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route, Router

from opendp_sim.core.errors import SimError
from opendp_sim.report.templates import page_engine
from opendp_sim.studio.desk import Desk
from opendp_sim.web.guard import (
    Guard,
    HttpRefusal,
    bearer,
    known_digest,
    no_token,
    page_policy,
    read_json,
    token_digest,
)
from opendp_sim.web.server import address_of, bound_socket, server_of

_PAGES = files("opendp_sim.studio") / "pages"
_REPORT = files("opendp_sim.report")
_STATIC = {
    "icon.svg": (files("opendp_sim.web"), "image/svg+xml"),
    "studio.css": (_PAGES, "text/css"),
    "studio.js": (_PAGES, "text/javascript"),
    "tokens.css": (_REPORT, "text/css"),
    "page.css": (_REPORT, "text/css"),
}
"""All files that a request can name."""
_FILE_CSP = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox"
_BODY = 64 * 1024
"""Bytes of a body."""
_DAY = 24 * 3600.0
"""Seconds of a run over large data."""
_VIEWS = {"plan": "panel.html", "spend": "result.html", "show": "result.html", "look": "look.html"}
"""Templates of what a route shows."""
_FOR_VIEWS = ("view", "bounds")
"""What they show of an answer, which is not sent beside them."""


def app_of(desk: Desk, host: str, token: str) -> Guard:
    """Return the application of a page.

    Args:
        desk: what plans, spends and asks.
        host: ``127.0.0.1:PORT``, as a browser writes it.
        token: what the page sends in its header.
    """
    page = _Page(desk, token)
    works = {
        name: getattr(desk, name)
        for name in ("header", "plan", "spend", "show", "ask", "end", "ticket", "look")
    }
    routes = [
        Route("/", page.shell),
        Route("/api/start", page.start),
        Route("/static/{name}", page.static),
        Route("/once/{ticket}", page.once),
        *(Route(f"/api/{n}", page.work(n, work), methods=["POST"]) for n, work in works.items()),
    ]
    return Guard(Router(routes), [host], seconds=_DAY)


class _Page:
    """Answer the requests that the guard let pass."""

    def __init__(self, desk: Desk, token: str) -> None:
        self._desk, self._digest = desk, token_digest(token)
        self._engine = page_engine(_PAGES)
        self._one = CapacityLimiter(1)

    def _check_token(self, request: Request) -> None:
        """Refuse whoever has not the page's address (401)."""
        if known_digest(bearer(request), [self._digest]) is None:
            raise no_token()

    def work(
        self, name: str, work: Callable[[Mapping[str, Any]], Any]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return the route of a piece of work."""

        async def answer(request: Request) -> Response:
            self._check_token(request)
            body = await read_json(request, _BODY)
            run = partial(self._shown, name, work, body)
            try:
                found, status = await to_thread.run_sync(run, limiter=self._one)
            except SimError as error:  # whose text is for the curator, and holds no data
                return JSONResponse({"error": {"code": error.code, "text": str(error)}}, 422)
            return JSONResponse(found, status)

        return answer

    def _shown(
        self, name: str, work: Callable[[Mapping[str, Any]], Any], body: Mapping[str, Any]
    ) -> tuple[dict[str, Any], int]:
        """Return an answer with its view as markup."""
        done = work(body)
        found, status = done if isinstance(done, tuple) else (done, 200)
        if name not in _VIEWS or "error" in found:
            return found, status
        about = {key: found.get(key, "") for key in ("view", "missing", "bounds")}
        html = self._engine.get_template(_VIEWS[name]).render(about)
        return {key: value for key, value in found.items() if key not in _FOR_VIEWS} | {
            "html": html
        }, status

    async def shell(self, _: Request) -> Response:
        """Return the page, which holds no fact."""
        text = (_PAGES / "studio.html").read_text(encoding="utf-8")
        return HTMLResponse(text, headers={"content-security-policy": page_policy("studio")})

    async def start(self, request: Request) -> Response:
        """Return the names of the columns and an empty form."""
        self._check_token(request)
        return JSONResponse(self._desk.start())

    async def static(self, request: Request) -> Response:
        """Return one of a few files, by name."""
        name = request.path_params["name"]
        if name not in _STATIC:
            raise HttpRefusal(404, "path", "a path of this server")
        folder, kind = _STATIC[name]
        return Response((folder / name).read_bytes(), media_type=kind)

    async def once(self, request: Request) -> Response:
        """Return what a link names, the first time."""
        found = self._desk.redeem(request.path_params["ticket"])
        if found is None:
            raise HttpRefusal(
                410, "link", "a link that was not used, within a minute", "ask again."
            )
        done, what = found
        if what == "report" and done.certificate is not None:
            text = await to_thread.run_sync(_report, done.certificate, limiter=self._one)
            return _download(f"{done.file.stem}.html", text.encode())
        name, content = f"{done.file.stem}.yaml", done.laid.text.encode()
        if what != "spec" and done.certificate is not None:
            file = done.file if what == "release" else done.certificate
            name, content = file.name, file.read_bytes()
        return _download(name, content)


def _report(certificate: Path) -> str:
    from opendp_sim.report.page import page_of  # noqa: PLC0415 - slow to import, seldom needed

    return page_of(certificate)


def _download(name: str, content: bytes) -> Response:
    plain = name.encode("ascii", "replace").decode().replace('"', "_").replace("\\", "_")
    head = {
        "content-disposition": f'attachment; filename="{plain}"',
        "content-security-policy": _FILE_CSP,
    }
    return Response(content, media_type="application/octet-stream", headers=head)


class Server:
    """Serve the page of a file on 127.0.0.1.

    Args:
        file: the private file.
        port: 0 for a free one.
        charged: told in words what was charged so far.
        spec: the text that the page begins with.

    Attributes:
        host: ``127.0.0.1:PORT``.
        address: of the page; it holds the token behind ``#``, which a browser sends to nobody.
    """

    def __init__(
        self,
        file: Path,
        port: int = 0,
        charged: Callable[[str], None] = lambda _text: None,
        spec: str = "",
    ) -> None:
        self.desk = Desk(file, charged, spec)
        self.door = bound_socket("127.0.0.1", port)
        self.host, token = address_of(self.door), secrets.token_urlsafe(32)
        self.address = f"http://{self.host}/#{token}"
        self._server = server_of(app_of(self.desk, self.host, token))

    def run(self) -> None:
        """Answer until the process is stopped, or ``stop`` is called."""
        with self.door, self.desk:
            self._server.run(sockets=[self.door])

    def stop(self) -> None:
        """End ``run`` after the requests that it has begun."""
        self._server.should_exit = True
