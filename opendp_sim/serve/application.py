"""Answer requests about a folder's releases, sessions and ledgers.

Free answers are functions of a release and the question; charged ones come from a session under an
Idempotency-Key (``accounting/session/store.md``, Lemma 7). Every route but the page, its files and the
probes needs a token of a stated role.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, Router

from opendp_sim.accounting.ledger._entries import counting_entries
from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.dsl.plan.records import ledger_path
from opendp_sim.dsl.run.charge import standing
from opendp_sim.dsl.run.session import Served, answer_lines, serve
from opendp_sim.report.page import page_of
from opendp_sim.serve.folder import Folder, SavedRelease, SpecSession, is_started
from opendp_sim.serve.openapi import ARROW, KEY, document
from opendp_sim.serve.questions import ROWS, SESSION_ROWS
from opendp_sim.serve.tokens import Role, Tokens
from opendp_sim.web.guard import Guard, HttpRefusal, page_policy, read_json

_ALL: tuple[Role, ...] = ("analyst", "curator", "officer", "operator")
_READERS: tuple[Role, ...] = ("curator", "officer")
_REPORT = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
_REPORT += "frame-ancestors 'none'; sandbox"
_FILES = {
    "icon.svg": ("opendp_sim.web", "image/svg+xml"),
    "tokens.css": ("opendp_sim.report", "text/css"),
    "explorer.css": ("opendp_sim.serve", "text/css"),
    "explorer.js": ("opendp_sim.serve", "text/javascript"),
}


_T = TypeVar("_T")
WAITING = 16
"""Questions of a session that may wait; one more is refused."""


class WorkQueue:
    """Run work in threads, and refuse what would wait too long (429).

    Work whose request ended while it waited is never begun, and so never charged.
    """

    def __init__(self, name: str, threads: int = 1, most: int = WAITING) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._most, self.waiting = most, 0

    async def do(self, work: Callable[[], _T]) -> _T:
        """Return what ``work`` returns, in a thread."""
        if self.waiting >= self._most:
            raise HttpRefusal(429, "busy", f"at most {self._most} questions that wait")
        try:
            begun = self._pool.submit(work)
        except RuntimeError:  # the pool was closed meanwhile
            raise _not_open() from None
        self.waiting += 1
        try:
            return await asyncio.wrap_future(begun)
        finally:
            self.waiting -= 1

    def close(self, *, all_taken: bool = False) -> None:
        """Finish what was begun, and ``all_taken`` if that is wanted too."""
        self._pool.shutdown(wait=True, cancel_futures=not all_taken)


class SessionQueue(WorkQueue):
    """Ask one open session, one question after another."""

    def __init__(self, name: str, served: Served) -> None:
        super().__init__(f"session-{name}")
        self.served, self.answered = served, served.session.answered

    async def ask(self, queries: Any, key: str, caller: str) -> dict[str, Any]:
        """Charge and answer queries once for each key of a caller."""

        def work() -> dict[str, Any]:
            before = self.answered  # read without the session's lock, which a question may have
            found = self.served.ask(queries, key=key, caller=caller)
            self.answered = self.served.session.answered
            lines = list(answer_lines(found))
            return {
                "answers": lines,
                "answered": self.answered,
                "replayed": self.answered == before,
            }

        return await self.do(work)


class Application:
    """Answer requests about what one folder holds.

    Args:
        folder: what is served. served: its open sessions by name, which ``close`` closes.
        tokens: who may ask. hosts: the Host headers to answer to.
        charged: told in words what starting a session charged.
    """

    def __init__(
        self,
        folder: Folder,
        served: Mapping[str, Served],
        tokens: Tokens,
        hosts: list[str],
        charged: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._folder, self._tokens, self._charged = folder, tokens, charged
        self._known = folder.sessions | folder.startable
        self._desks = {name: SessionQueue(name, one) for name, one in served.items()}
        self._pool = WorkQueue("release", threads=4, most=64)
        self._operator = WorkQueue("operator", most=4)  # one start or stop after another
        self._counts: Counter[tuple[str, int]] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._ready = True
        routes = [
            Route("/", self.explorer),
            Route("/static/{name}", self.static),
            Route("/health/live", self.live),
            Route("/health/ready", self.ready),
            Route("/metrics", self.metrics),
            Route("/openapi.json", self.openapi),
            Route("/v1/releases", self.releases),
            Route("/v1/releases/{name}", self.release),
            Route("/v1/releases/{name}/report", self.release_report),
            Route("/v1/releases/{name}/{question}", self.answer, methods=["POST"]),
            Route("/v1/sessions", self.sessions),
            Route("/v1/sessions/{name}", self.session),
            Route("/v1/sessions/{name}/ask", self.session_answer, methods=["POST"]),
            Route("/v1/sessions/{name}/start", self.session_start, methods=["POST"]),
            Route("/v1/sessions/{name}/stop", self.session_stop, methods=["POST"]),
            Route("/v1/ledgers", self.ledgers),
            Route("/v1/ledgers/{name}/report", self.ledger_report),
        ]
        probes = ("/health/live", "/health/ready")
        self.guarded = Guard(
            Router(routes, redirect_slashes=False),
            hosts,
            linked=["/"],
            probed=probes,
            seen=self._count,
        )

    def close(self) -> None:
        """Finish what was begun, close sessions; what waits is not charged."""
        self._ready = False
        self._operator.close()  # a start that goes on opens its session first
        with ExitStack() as stack:
            for desk in self._desks.values():
                stack.push(desk.served)
            for queue in (self._pool, *self._desks.values()):
                stack.callback(queue.close)

    def _count(self, endpoint: str, status: int, seconds: float) -> None:
        self._counts[endpoint, status] += 1
        self._seconds[endpoint] += seconds

    # --- without a token --------------------------------------------------------------------------

    async def explorer(self, _request: Request) -> Response:
        """Send the page, which has no fact about the folder."""
        text = files("opendp_sim.serve").joinpath("explorer.html").read_text("utf-8")
        return HTMLResponse(text, headers={"Content-Security-Policy": page_policy()})

    async def static(self, request: Request) -> Response:
        """Send one of the page's files."""
        name = request.path_params["name"]
        if name not in _FILES:
            raise _unknown("file")
        package, kind = _FILES[name]
        return Response(files(package).joinpath(name).read_bytes(), media_type=kind)

    async def live(self, _request: Request) -> Response:
        """Tell that the process answers."""
        return JSONResponse({"ok": True})

    async def ready(self, _request: Request) -> Response:
        """Tell whether questions are taken."""
        return JSONResponse({"ok": self._ready}, 200 if self._ready else 503)

    async def metrics(self, _request: Request) -> Response:
        """Send counts and seconds by endpoint; no name, no query."""
        lines = [
            f'opendp_sim_requests_total{{endpoint="{name}",status="{status}"}} {count}'
            for (name, status), count in sorted(self._counts.items())
        ]
        lines += [
            f'opendp_sim_seconds_total{{endpoint="{name}"}} {seconds:.6f}'
            for name, seconds in sorted(self._seconds.items())
        ]
        desks = self._desks.values()
        lines += [f"opendp_sim_answered_total {sum(desk.answered for desk in desks)}"]
        lines += [f"opendp_sim_waiting {sum(desk.waiting for desk in (*desks, self._pool))}"]
        return PlainTextResponse("\n".join(lines) + "\n")

    # --- with a token -----------------------------------------------------------------------------

    async def openapi(self, request: Request) -> Response:
        """Send the OpenAPI document, which names columns."""
        self._tokens.caller(request, *_ALL)
        served = {name: desk.served for name, desk in list(self._desks.items())}
        return JSONResponse(document(self._folder, served))

    async def releases(self, request: Request) -> Response:
        """List the releases."""
        self._tokens.caller(request, *_ALL)
        return JSONResponse({"releases": [_about(one) for one in self._folder.releases.values()]})

    async def release(self, request: Request) -> Response:
        """Describe one release."""
        self._tokens.caller(request, *_ALL)
        return JSONResponse(_about(self._chosen(request)))

    def _chosen(self, request: Request) -> SavedRelease:
        found = self._folder.releases.get(request.path_params["name"])
        if found is None:
            raise _unknown("release")
        return found

    async def answer(self, request: Request) -> Response:
        """Answer public queries from a release, free."""
        self._tokens.caller(request, *_ALL)
        saved, question = self._chosen(request), request.path_params["question"]
        if question not in saved.release.ops:
            raise HttpRefusal(404, "path", f"one of {', '.join(saved.release.ops)}")
        arrow = _wants_arrow(request)
        body = await read_json(request)
        kind = ARROW if arrow else "application/json"
        text = json.dumps([saved.sha256, question, kind, body], sort_keys=True)
        tag = f'"{hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()}"'
        headers = {"ETag": tag, "Cache-Control": "private, max-age=86400", "Vary": "Accept"}
        if tag in re.findall(r'"[0-9a-f]*"', request.headers.get("if-none-match", "")):
            return Response(status_code=304, headers=headers)
        work = partial(_answered, saved, question, body, arrow)
        found = await self._pool.do(work)
        return Response(found, media_type=kind, headers=headers)

    async def sessions(self, request: Request) -> Response:
        """List the sessions, open or not."""
        self._tokens.caller(request, *_ALL)
        return JSONResponse({"sessions": [self._told(name) for name in self._known]})

    def _told(self, name: str) -> dict[str, Any]:
        desk = self._desks.get(name)
        if desk is None:
            return {"name": name, "open": False}
        return {"name": name, "open": True, "answered": desk.answered, "waiting": desk.waiting}

    def _named(self, request: Request) -> SpecSession:
        found = self._known.get(request.path_params["name"])
        if found is None:
            raise _unknown("session")
        return found

    async def session(self, request: Request) -> Response:
        """Describe a session: what a start takes, and where its ledger stands."""
        self._tokens.caller(request, *_READERS, "operator")
        spec = self._named(request)
        found = await self._operator.do(partial(standing, spec.plan))
        paid = spec.name in self._desks or await self._operator.do(partial(is_started, spec))
        about = {**self._told(spec.name), "paid": paid, "head": None, "ledger": None}
        if found is not None:
            plain = found.plain() | {"file": Path(found.file).name}
            about |= {"head": found.head, "ledger": plain}
        return JSONResponse(about)

    async def session_start(self, request: Request) -> Response:
        """Open a session; the first start makes its run, which is charged."""
        self._tokens.caller(request, "operator")
        spec, body = self._named(request), await read_json(request)
        head = body.get("head")
        if set(body) - {"head"} or not isinstance(head, str | None):
            raise HttpRefusal(422, "json", "an object with `head` alone, a text")
        await self._operator.do(partial(self._start, spec, head))
        return JSONResponse(self._told(spec.name))

    def _start(self, spec: SpecSession, head: str | None) -> None:
        if spec.name in self._desks:
            return
        counted = ledger_path(spec.plan) is not None
        if counted and head is None:
            raise HttpRefusal(
                428, "head", "the ledger's `head`, as `GET /v1/sessions/{name}` gives it",
                "look at what a start takes and what is left, then confirm it.",
            )  # fmt: skip
        seen = head if counted else None
        opened = serve(spec.plan, spec.output, charged=self._charged, expected_head=seen)
        self._desks[spec.name] = SessionQueue(spec.name, opened)
        path = ledger_path(spec.plan)
        if path is not None and path.suffix == ".ledger" and path.is_file():
            self._folder.ledgers.setdefault(path.stem, path)  # the first start makes it

    async def session_stop(self, request: Request) -> Response:
        """Close a session after its waiting questions are answered."""
        self._tokens.caller(request, "operator")
        spec, body = self._named(request), await read_json(request)
        if body:
            raise HttpRefusal(422, "json", "an empty object")
        await self._operator.do(partial(self._stop, spec.name))
        return JSONResponse(self._told(spec.name))

    def _stop(self, name: str) -> None:
        desk = self._desks.pop(name, None)  # no question is taken from here on
        if desk is not None:
            with desk.served:
                desk.close(all_taken=True)

    async def session_answer(self, request: Request) -> Response:
        """Charge and answer queries of a session, once for each key."""
        caller = self._tokens.caller(request, "analyst")
        desk = self._desks.get(self._named(request).name)
        if desk is None:
            raise _not_open()
        key = request.headers.get("idempotency-key", "")
        if re.fullmatch(KEY, key) is None:
            raise HttpRefusal(
                428, "key", "the header Idempotency-Key, 8 to 128 printable characters",
                "draw one for each question and keep it for its retries.",
            )  # fmt: skip
        body = await read_json(request)
        queries = body.get("queries")
        if set(body) != {"queries"} or not isinstance(queries, list):
            raise HttpRefusal(422, "OS607", "an object with `queries` alone, a list of queries")
        _check_rows(len(queries), SESSION_ROWS)
        if not all(isinstance(query, list | dict) for query in queries):
            raise HttpRefusal(422, "OS607", "each query as a list of numbers, or by column")
        return JSONResponse(await desk.ask(queries, key, caller.name))

    async def release_report(self, request: Request) -> Response:
        """Send the report of a release."""
        self._tokens.caller(request, *_READERS)
        return await self._page(self._chosen(request).certificate)

    async def ledgers(self, request: Request) -> Response:
        """List the ledgers, with spent and left."""
        self._tokens.caller(request, *_READERS)
        found = [
            await self._pool.do(partial(_standing, name, path))
            for name, path in self._folder.ledgers.items()
        ]
        return JSONResponse({"ledgers": found})

    async def ledger_report(self, request: Request) -> Response:
        """Send the report of a ledger."""
        self._tokens.caller(request, *_READERS)
        path = self._folder.ledgers.get(request.path_params["name"])
        if path is None:
            raise _unknown("ledger")
        return await self._page(path)

    async def _page(self, path: Path) -> Response:
        text = await self._pool.do(partial(page_of, path))
        return HTMLResponse(text, headers={"Content-Security-Policy": _REPORT})


def _not_open() -> HttpRefusal:
    return HttpRefusal(
        503, "closed", "a session that is open", "an operator starts it: `POST .../start`."
    )


def _unknown(what: str) -> HttpRefusal:
    return HttpRefusal(404, "path", f"the name of a {what} that is listed")


def _about(saved: SavedRelease) -> dict[str, Any]:
    columns = [
        {
            "name": column.name,
            "dtype": str(column.dtype),
            "width": column.width if column.is_vector else None,
            "bounds": saved.bounds(column),
        }
        for column in saved.features.columns
    ]
    return {
        "name": saved.name,
        "claim": saved.release.claim,
        "asks": list(saved.release.ops),
        "questions": [
            {"name": q.name, "queries": q.queries, "needs": list(q.needs), "rows": q.rows}
            for q in saved.questions.values()
        ],
        "columns": columns,
        "sha256": saved.sha256,
    }


def _standing(name: str, path: Path) -> dict[str, Any]:
    with Ledger.open(path) as ledger:
        total, runs = ledger.total(), len(counting_entries(ledger.entries))
    return {
        "name": name,
        "limit": total.limit_text,
        "spent": total.text,
        "left": total.left_text,
        "runs": runs,
    }


def _wants_arrow(request: Request) -> bool:
    """Return whether Arrow is wanted, or refuse without pyarrow (406)."""
    if ARROW not in request.headers.get("accept", ""):
        return False
    try:
        import_module("pyarrow")
    except ImportError:
        raise HttpRefusal(406, "type", "JSON: this server has no pyarrow") from None
    return True


def _check_rows(rows: int, most: int) -> None:
    if not 1 <= rows <= most:
        raise HttpRefusal(422, "OS607", f"1 to {most:,} queries")


def _answered(saved: SavedRelease, question: str, body: dict[str, Any], arrow: bool) -> bytes:
    """Return a question's answers as bytes; everything in it is public."""
    parameters = {name: value for name, value in body.items() if name != "queries"}
    queries = body.get("queries")
    if "public" in parameters:
        raise HttpRefusal(422, "OS101", "parameters without points of their own")
    lists = list(queries.values()) if isinstance(queries, dict) else [queries]
    for column in [] if queries is None else lists:
        if not isinstance(column, list):
            raise HttpRefusal(422, "OS607", "a list of rows, or a list for each column")
        _check_rows(len(column), ROWS)
    rows = max((len(column) for column in lists if isinstance(column, list)), default=0)
    try:
        saved.questions[question].check(parameters, rows)
        with np.errstate(all="ignore"):
            table = saved.release.ask(question, queries, **parameters).table()
    except (ValueError, TypeError, LookupError, ArithmeticError):
        raise HttpRefusal(422, "OS607", "queries of the release's own columns") from None
    return _arrow(table) if arrow else _json(table)


def _json(table: Mapping[str, Any]) -> bytes:
    columns = {name: [_number(cell) for cell in found.tolist()] for name, found in table.items()}
    return json.dumps({"columns": columns}, allow_nan=False).encode()


def _number(cell: Any) -> Any:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def _arrow(table: Mapping[str, Any]) -> bytes:
    arrow = import_module("pyarrow")
    made = arrow.table({name: found.tolist() for name, found in table.items()})
    out = io.BytesIO()
    with arrow.ipc.new_stream(out, made.schema) as stream:
        stream.write_table(made)
    return out.getvalue()
