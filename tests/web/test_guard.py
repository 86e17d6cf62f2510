"""The shared guard on a real socket: hosts, pages, tokens, bodies, time, headers, errors without data."""

from __future__ import annotations

import asyncio
import logging
import socket
import time

import pytest

httpx = pytest.importorskip("httpx", reason="the extra `dev`")
pytest.importorskip("starlette", reason="the extra `studio`")

from starlette.responses import JSONResponse  # noqa: E402
from starlette.routing import Route, Router  # noqa: E402

from opendp_sim.core.errors import DataError, InternalError, ParameterError  # noqa: E402
from opendp_sim.web import guard, require_web, server  # noqa: E402
from tests.web._served import served  # noqa: E402

HIDDEN = "record 4711"
JSON = {"content-type": "application/json"}
SEEN = []


async def echo(request):
    return JSONResponse(await guard.read_json(request, 1000))


async def page(request):
    return JSONResponse({}, headers={"Cache-Control": "private"})


async def fails(request):
    raise ValueError(HIDDEN)


async def breaks(request):
    async def send(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError(HIDDEN)

    return send


async def coded(request):
    if request.path_params["code"] == "OS607":
        raise DataError("OS607", "queries", expected="numbers", got="texts", hint="send numbers.")
    raise DataError("OS601", HIDDEN, expected=HIDDEN, got=HIDDEN, hint=HIDDEN)


async def inside(request):
    raise InternalError("OS902", HIDDEN, expected=HIDDEN, got=HIDDEN, hint=HIDDEN)


async def slow(request):
    await asyncio.sleep(5)


async def secret(request):
    token = guard.bearer(request)
    if (
        guard.known_digest(token, [guard.token_digest("other"), guard.token_digest("right")])
        is None
    ):
        raise guard.no_token()
    return JSONResponse({"ok": True})


def application(host):
    routes = [Route("/echo", echo, methods=["POST"]), Route("/", page), Route("/fails", fails)]
    routes += [Route("/breaks", breaks), Route("/coded/{code}", coded), Route("/inside", inside)]
    routes += [Route("/slow", slow), Route("/secret", secret), Route("/live", page)]
    return guard.Guard(
        Router(routes, redirect_slashes=False),
        [host],
        linked=["/"],
        probed=["/live"],
        seen=lambda *what: SEEN.append(what),
        seconds=0.3,
    )


@pytest.fixture(scope="module")
def host():
    with served(application) as found:
        yield found


@pytest.fixture(scope="module")
def client(host):
    with httpx.Client(base_url=f"http://{host}") as found:
        yield found


def code(response):
    return response.status_code, response.json()["error"]["code"]


def test_another_host_is_a_page_that_points_its_name_here(client, host):
    for name in ("evil.example", "evil.example:80", "127.0.0.1", f"{host}.evil.example", ""):
        assert code(client.get("/", headers={"host": name})) == (421, "host")
    assert client.get("/live", headers={"host": "10.0.0.7:80"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},  # another port of this machine
    ],
)
def test_another_page_is_refused(client, headers):
    assert code(client.post("/echo", json={}, headers=headers)) == (403, "origin")
    assert client.get("/", headers=headers).status_code == 200  # a link to it


@pytest.mark.parametrize("name", guard._ONCE)
def test_a_header_that_decides_comes_once(host, name):
    """Of two keys a proxy charged one and this server the other; of two origins one was looked at."""
    own = {"host": host, "content-type": "application/json", "content-length": "2"}
    lines = [*own.items(), (name, own.get(name, "x")), (name, "y")]
    if name in ("host", "content-type"):
        lines = [*own.items(), (name, "y")]
    sent = "".join(f"{each}: {value}\r\n" for each, value in lines)
    address = host.split(":")
    with socket.create_connection((address[0], int(address[1]))) as twice:
        twice.settimeout(20)
        twice.sendall(f"POST /echo HTTP/1.1\r\n{sent}\r\n{{}}".encode())
        assert twice.recv(100).startswith(b"HTTP/1.1 400")


def test_the_own_page_is_not(client, host):
    for name in ("none", "same-origin"):
        headers = {"sec-fetch-site": name, "origin": f"http://{host}"}
        assert client.post("/echo", json={"a": 1}, headers=headers).json() == {"a": 1}


def test_tokens(client):
    for told in (None, "right", "Basic right", "Bearer", "Bearer wrong", "Bearer rightx"):
        headers = {} if told is None else {"authorization": told}
        assert code(client.get("/secret", headers=headers)) == (401, "token")
    for kind in ("Bearer", "bearer"):
        assert client.get("/secret", headers={"authorization": f"{kind} right"}).status_code == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff", 400),
        (b'{"a": NaN}', 400),
        (b'{"a": -Infinity}', 400),
        (b'{"a": 1e999}', 400),
        (b'{"a": 1, "a": 2}', 400),
        (b'{"a":' + b"[" * 900, 400),
        (b"[1]", 422),
        (b'{"a": "' + b"x" * 1000 + b'"}', 413),
    ],
)
def test_a_body_that_is_none_is_refused_without_its_text(client, body, status):
    response = client.post("/echo", content=body, headers=JSON)
    assert response.status_code == status
    assert "xxx" not in response.text
    if status != 400:
        return
    with httpx.Client(base_url=client.base_url) as other:  # in pieces, of no stated length
        assert other.post("/echo", content=iter([body, b""]), headers=JSON).status_code == status


def test_a_body_in_pieces_is_counted(client):
    pieces = (b"x" * 100 for _ in range(20))
    assert client.post("/echo", content=pieces, headers=JSON).status_code == 413


def test_any_writer_s_numbers_are_numbers(client):
    response = client.post("/echo", content=b'{"a": [1E+2, 1e-7, 0.10]}', headers=JSON)
    assert response.json() == {"a": [100.0, 1e-7, 0.1]}


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""]
)
def test_what_a_form_can_send_is_refused(client, kind):
    assert code(client.post("/echo", content=b"{}", headers={"content-type": kind})) == (
        415,
        "type",
    )


def test_every_answer_has_its_headers(client):
    for path, kept in (("/", "private"), ("/nowhere", "no-store"), ("/fails", "no-store")):
        headers = client.get(path).headers
        assert headers["cache-control"] == kept
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "set-cookie" not in headers
        assert "server" not in headers
    assert "unsafe" not in guard.page_policy()


def test_a_failure_is_a_code_without_its_text(client, caplog, capfd):
    with caplog.at_level(logging.DEBUG):
        for path, told in (
            ("/fails", (500, "internal")),
            ("/inside", (500, "OS902")),
            ("/coded/OS601", (422, "OS601")),
            ("/slow", (504, "time")),
            ("/nowhere", (404, "path")),
            ("/../etc/passwd", (404, "path")),
        ):
            response = client.get(path)
            assert code(response) == told
            assert HIDDEN not in response.text
        with pytest.raises(httpx.RemoteProtocolError):
            client.get("/breaks")
    assert code(client.get("/echo")) == (405, "path")
    shown = client.get("/coded/OS607").json()["error"]
    assert (shown["got"], shown["hint"]) == ("texts", "send numbers.")
    assert "ValueError" in caplog.text
    assert HIDDEN not in caplog.text
    assert HIDDEN not in "".join(capfd.readouterr())


def test_answers_are_counted_by_their_endpoint_and_never_by_their_path(client):
    SEEN.clear()
    client.get("/nowhere/else")
    client.post("/echo", json={})
    with pytest.raises(httpx.RemoteProtocolError):
        client.get("/breaks")  # half an answer is none
    assert [what[:2] for what in SEEN] == [("none", 404), ("echo", 200)]


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\nHo",
        b"POST /echo HTTP/1.1\r\nhost: HOST\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{",
    ],
)
def test_who_sends_too_slowly_is_let_go(monkeypatch, sent):
    monkeypatch.setattr(server, "HEADER_SECONDS", 0.1)
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.1)
    with served(application) as host:
        name, _, port = host.partition(":")
        with socket.create_connection((name, int(port))) as slow:
            slow.settimeout(5)
            slow.sendall(sent.replace(b"HOST", host.encode()))
            got = slow.recv(100)
    assert got.startswith(b"HTTP/1.1 408") if sent.endswith(b"{") else got == b""


def test_headers_are_bounded(host):
    name, _, port = host.partition(":")
    with socket.create_connection((name, int(port))) as long:
        long.settimeout(5)
        long.sendall(b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000)
        assert b"400" in long.recv(100)


def test_connections_are_bounded():
    bound = server.bound_socket("127.0.0.1", 0)
    found = server.server_of(application("x"), connections=7)
    assert found.config.limit_concurrency == 7
    assert bound.proto == socket.IPPROTO_TCP  # small answers leave at once
    with pytest.raises(ParameterError, match="OS101"):
        server.bound_socket("127.0.0.1", bound.getsockname()[1])
    bound.close()


def test_an_answer_is_quick(client):
    """Without TCP_NODELAY each request waits 40 ms for an acknowledgement."""
    took = []
    for _ in range(9):
        began = time.perf_counter()
        client.post("/echo", json={"a": "b"})
        took.append(time.perf_counter() - began)
    assert min(took) < 0.03


def test_a_missing_extra_is_a_plain_refusal(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr("opendp_sim.web.import_module", missing)
    with pytest.raises(DataError, match=r"OS606.*opendp_sim\[studio\]"):
        require_web()


def test_addresses():
    assert server.is_loopback("127.0.0.1")
    assert server.is_loopback("::1")
    assert not server.is_loopback("0.0.0.0")  # noqa: S104
