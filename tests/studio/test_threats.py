"""What a hostile page, a hostile program and a hostile file may try, on a real socket."""

from __future__ import annotations

import json
import logging
import re
import socket
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import httpx
import pytest
from hypothesis import given, settings, strategies as st
from typer.testing import CliRunner

from opendp_sim.cli import app as cli
from opendp_sim.core.errors import DataError
from opendp_sim.dsl.plan import plan as planner
from opendp_sim.studio import app, desk
from opendp_sim.studio.desk import Desk
from opendp_sim.web import guard
from tests.studio.conftest import BODY, HEADER, serving, write_table

APIS = ("header", "plan", "spend", "show", "ask", "end", "ticket", "look")


def code(answer):
    return answer.status_code, answer.json()["error"]["code"]


# --- who asks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heads", "expected"),
    [
        ({"host": "evil.example"}, (421, "host")),
        ({"host": "localhost:80"}, (421, "host")),
        ({"origin": "http://evil.example"}, (403, "origin")),
        ({"origin": "null"}, (403, "origin")),
        ({"sec-fetch-site": "cross-site"}, (403, "origin")),
        ({"sec-fetch-site": "same-site"}, (403, "origin")),
        ({"authorization": ""}, (401, "token")),
        ({"authorization": "Bearer x"}, (401, "token")),
        ({"content-type": "text/plain"}, (415, "type")),
        ({"content-type": "application/x-www-form-urlencoded"}, (415, "type")),
    ],
)
def test_a_foreign_request_reaches_no_route(looked_at, heads, expected):
    """DNS rebinding, other sites, another port of 127.0.0.1, other users of the machine, forms."""
    for name in APIS:
        request = looked_at.build_request("POST", f"/api/{name}", json={"form": BODY})
        request.headers.update(heads)
        assert code(looked_at.send(request)) == expected


def test_another_port_of_this_machine_is_foreign(looked_at):
    port = int(looked_at.server.host.partition(":")[2]) + 1
    answer = looked_at.get("/api/start", headers={"origin": f"http://127.0.0.1:{port}"})
    assert code(answer) == (403, "origin")


@pytest.mark.parametrize(
    "host",
    [
        "localhost:{port}",
        "127.0.0.1.nip.io:{port}",
        "127.0.0.1:{port}.",
        "evil@127.0.0.1:{port}",
        "2130706433:{port}",
        "127.1:{port}",
        "0.0.0.0:{port}",
        "[::1]:{port}",
        "127.0.0.1",
        "",
    ],
)
def test_another_name_of_this_machine_is_foreign(looked_at, host):
    """DNS rebinding under any spelling, and whatever a proxy adds beside it."""
    own = looked_at.server.host
    heads = {"host": host.format(port=own.partition(":")[2]), "x-forwarded-host": own}
    answer = looked_at.get("/api/start", headers=heads | {"forwarded": f"host={own}"})
    assert code(answer) == (421, "host")


def test_no_header_of_a_proxy_decides(looked_at):
    heads = {
        "x-forwarded-host": "evil.example",
        "x-forwarded-proto": "https",
        "x-forwarded-for": "10.0.0.1",
        "x-original-url": "/api/start",
        "x-rewrite-url": "/api/start",
        "x-http-method-override": "POST",
    }
    assert looked_at.get("/", headers=heads).text == looked_at.get("/").text
    moved = looked_at.get("/api/start/", headers=heads)
    assert moved.headers.get("location", "").startswith((f"http://{looked_at.server.host}/", "/"))
    assert looked_at.get("/api/plan", headers=heads).status_code == 405
    host, _, port = looked_at.server.host.partition(":")
    for text, status in (
        (f"GET http://evil.example/api/start HTTP/1.1\r\nHost: {looked_at.server.host}", b" 404 "),
        (f"GET / HTTP/1.1\r\nHost: {looked_at.server.host}\r\nHost: evil.example", b" 400 "),
        ("GET / HTTP/1.0", b" 421 "),
    ):
        with socket.create_connection((host, int(port)), 10) as line:
            line.sendall(text.encode() + b"\r\nConnection: close\r\n\r\n")
            assert status in line.recv(400).partition(b"\r\n")[0]


def test_a_foreign_request_starts_no_work(looked_at, monkeypatch):
    """How long a refusal takes is of no plan and of no data."""
    begun = []
    for name in ("plan", "spend", "ask", "look", "start"):
        monkeypatch.setattr(Desk, name, lambda *_, name=name: begun.append(name) or {})
    monkeypatch.setattr(app, "read_json", lambda *_: begun.append("body"))
    for heads in (
        {"host": "evil.example"},
        {"origin": "http://evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"authorization": "Bearer x"},
    ):
        for name in ("plan", "spend", "ask", "look"):
            request = looked_at.build_request("POST", f"/api/{name}", json={"form": BODY})
            request.headers.update(heads)
            assert looked_at.send(request).status_code in (401, 403, 421)
    assert not begun


def test_the_page_holds_no_fact_and_no_cookie(looked_at):
    for path in ("/", "/static/studio.js", "/static/studio.css", "/static/page.css"):
        answer = looked_at.get(path, headers={"authorization": ""})
        assert answer.status_code == 200
        assert "trips" not in answer.text
        assert "set-cookie" not in answer.headers
        assert answer.headers["cache-control"] == "no-store"
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert ("require-trusted-types-for 'script'" in policy) == (path == "/")
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert "server" not in answer.headers
    assert "style=" not in looked_at.get("/").text
    assert not looked_at.cookies


def test_a_page_is_small(looked_at):
    paths = ["/", *(f"/static/{name}" for name in app._STATIC)]
    assert sum(len(looked_at.get(path).content) for path in paths) < 60_000


@pytest.mark.parametrize(
    "path",
    ["/static/../desk.py", "/static/%2e%2e/desk.py", "/static/desk.py", "/static//etc/passwd"],
)
def test_no_path_comes_from_a_request(looked_at, path):
    answer = looked_at.get(path)
    assert answer.status_code == 404
    assert "import" not in answer.text


def test_a_link_that_nobody_made_is_gone(looked_at):
    assert looked_at.get("/once/nothing").status_code == 410
    assert looked_at.api("ticket", run="../trips.csv", what="release").json() == {"href": ""}


# --- how it asks ------------------------------------------------------------------------------------


def raw(visitor, head, body=b""):
    host, _, port = visitor.server.host.partition(":")
    token = visitor.headers["authorization"]
    with socket.create_connection((host, int(port)), 10) as line:
        line.sendall(
            f"POST /api/plan HTTP/1.1\r\nHost: {visitor.server.host}\r\nAuthorization: {token}\r\n"
            f"Content-Type: application/json\r\n{head}\r\n\r\n".encode()
            + body
        )
        return line.recv(400).decode().partition("\r\n")[0]


def test_sizes_are_bounded(looked_at):
    assert code(looked_at.api("plan", yaml="#" * 70_000)) == (413, "size")
    large = b"11111\r\n" + b"x" * 0x11111 + b"\r\n"
    assert " 413 " in raw(looked_at, "Transfer-Encoding: chunked", large)
    assert " 413 " in raw(looked_at, "Content-Length: 99999999999")


def test_a_body_that_does_not_come_is_not_waited_for(looked_at, monkeypatch):
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.2)
    assert " 408 " in raw(looked_at, "Content-Length: 50", b"{")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "1",
        "{",
        '{"a":NaN}',
        '{"form":1,"form":2}',
        "[" * 30_000,
        '"\\ud800"',
        "{}",
        "\x00",
    ],
)
def test_strange_json_is_refused(looked_at, text, caplog):
    heads = {"content-type": "application/json"}
    answer = looked_at.post("/api/plan", content=text.encode(), headers=heads)
    assert answer.status_code in (400, 422)
    assert looked_at.api("ask", run="x", at=[1]).status_code == 422
    assert all(record.exc_info is None for record in caplog.records)


@pytest.mark.parametrize(
    "words",
    [
        {"question": "nothing"},
        {"columns": {"x": {"low": "a", "high": 1, "near": 1}}},
        {"columns": {"x": {"low": 1, "high": 0, "near": 1}}},
        {"columns": {"x": {"low": -1e308, "high": 1e308, "near": 1}}},
        {"epsilon": -1},
        {"epsilon": "1e999"},
        {"epsilon": 1e300},
        {"unit": "who", "rows": -3},
        {"unit": "who", "rows": "x"},
        {"question": "top", "item": "kind", "most": ""},
        {"question": "session", "label": "kind", "keys": "a, b", "size": "1,000"},
        {"columns": None},
        {"limit": 0},
        {"question": "top", "item": "kind", "most": 10**9},
    ],
)
def test_a_strange_form_is_a_draft_or_a_refusal(looked_at, words):
    answer = looked_at.api("plan", form=BODY | words)
    assert answer.status_code in (200, 422)
    found = answer.json()
    assert "plan" not in found, found
    assert "reload" not in answer.text or words == {
        "columns": None
    }  # a field is at fault, not the page
    assert "NaN" not in answer.text


def test_no_foreign_text_leaves_and_none_is_logged(looked_at, monkeypatch, caplog, capfd):
    """Another library's error may quote a record."""

    def broken(_self, _body):
        raise ValueError("salary 123456")

    monkeypatch.setattr(Desk, "start", lambda _: broken(None, None))
    with caplog.at_level(logging.DEBUG):
        answer = looked_at.get("/api/start")
        assert code(answer) == (500, "internal")
        monkeypatch.setattr("opendp_sim.studio.desk.form_from", broken)
        again = looked_at.api("plan", form=BODY)
        assert code(again) == (500, "internal")
    seen = answer.text + again.text + caplog.text + "".join(capfd.readouterr())
    assert "123456" not in seen
    assert "ValueError" in caplog.text


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("cases", [25, pytest.param(600, marks=pytest.mark.long)])
def test_no_json_is_a_failure(looked_at, cases):
    """Any value in place of any part of a request: an answer or a coded refusal, never a 500."""

    @settings(max_examples=cases, deadline=None, derandomize=True, database=None)
    @given(
        st.sampled_from(APIS),
        st.sampled_from(["form", "yaml", "names", "plan", "nonce", "head", "run", "at", "what"]),
        st.sampled_from([None, *BODY, "columns.x"]),
        JSON,
    )
    def check(name, word, part, value):
        body = {"form": BODY, "names": ["x"], "plan": "p", "nonce": "n" * 20, "head": ""}
        body |= {"run": "r", "at": {"x": 1}, "what": "spec", word: value}
        if part is not None:
            inside = {"columns": {"x": value}} if part == "columns.x" else {part: value}
            body["form"] = BODY | inside
        answer = looked_at.post(f"/api/{name}", json=body)
        assert answer.status_code != 500, (name, body, answer.text)

    check()


DEEP = "{[" * 300
ALIASES = "a: &a [x, x, x]\nb: &b [*a, *a, *a]\n"


@pytest.mark.parametrize(
    ("words", "old", "new"),
    [
        ({"question": "top", "item": "kind", "most": 4000}, "", ""),
        ({"question": "session", "label": "kind", "keys": "a, b", "size": 10**12}, "", ""),
        ({"unit": "who", "rows": 10**9}, "", ""),
        ({}, "frequencies: 2000", "frequencies: 1000000"),
        ({}, "bits: 20", "bits: 60"),
        ({}, "spec:", ALIASES + "spec:"),
        ({}, "spec:", DEEP + "spec:"),
    ],
)
def test_an_expensive_question_is_refused_before_any_work(looked_at, words, old, new, monkeypatch):
    """Minutes or gigabytes: no noise is searched, and no matrix is drawn."""
    text = looked_at.planned()["yaml"] if old else ""
    worked = []
    monkeypatch.setattr(planner, "account", lambda *_: worked.append(1))
    sent = {"yaml": text.replace(old, new)} if old else {"form": BODY | words}
    found = looked_at.api("plan", **sent).json()
    assert found["state"] in ("draft", "refused")
    assert found.get("findings") or found["missing"]
    assert not worked


# --- what it asks for -------------------------------------------------------------------------------


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{csv: trips.csv}", "{csv: /etc/passwd}", "opens trips.csv alone"),
        ("{csv: trips.csv}", "{csv: ../trips.csv}", "opens trips.csv alone"),
        ("{csv: trips.csv}", "{builtin: digits}", "opens trips.csv alone"),
        ("trips-density.npz", "../../trips.npz", "save"),
        ("file: trips.ledger", "file: other.ledger", "counted here in one ledger"),
        ("file: trips.ledger", "file: postgresql:service/x", "counted here in one ledger"),
        ("ingest: enforce", "public: true", "public"),
        ("save:", "queries: {csv: trips.csv}, save:", "private"),
        ("save:", "queries: {csv: other.csv}, post: [density], save:", "asked after"),
        ("save: trips-density.npz", "serve: session, store: ../t.session", "store"),
    ],
)
def test_a_typed_spec_reads_and_writes_nothing_else(looked_at, old, new, said):
    text = looked_at.planned()["yaml"]
    assert old in text
    found = looked_at.api("plan", yaml=text.replace(old, new)).json()
    assert found["state"] == "refused"
    assert "plan" not in found
    assert said in json.dumps(found["findings"]), found["findings"]


@pytest.mark.long
def test_names_of_columns_stay_text(tmp_path):
    header = '<img src=x onerror=alert(1)>,"a ""b"": {c}",no,"</script><b>"'
    names = ["<img src=x onerror=alert(1)>", 'a "b": {c}', "no", "</script><b>"]
    with serving(write_table(tmp_path / "odd <b>.csv", header)) as visitor:
        assert visitor.get("/api/start").json()["names"] == names
        columns = {name: {"low": 0, "high": 10, "near": 1} for name in names[:2]}
        found = visitor.planned(columns=columns)
        assert "<img" not in found["html"]
        assert "&lt;img" in found["html"]
        again = visitor.api("plan", yaml=found["yaml"]).json()
        assert list(again["form"]["columns"]) == names[:2]
        done = visitor.spend(found).json()
        assert "<img" not in done["html"]
        assert "<b>" not in done["html"]


RECORDS = [
    "Ann Smith,Paris,nurse\nBo Li,Rome,cook\nCy Roe,Paris,nurse\n",  # texts alone
    "unknown,Paris,nurse\n41,Rome,cook\n",  # a missing number above numbers
    "n/a;Paris;nurse\n41;Rome;cook\n",
    "Ann,nurse,sick\n7,cook,sick\n",  # its last cell is below it again
    "0.5,4,a,p1\n0.25,3,b,p2\n",
    "Ann,2024-01-31,nurse\nBo,2024-02-01,cook\n",
    "Ann Smith,Paris\n",  # nothing stands below it
    'Ann,"Paris\n',
]


@pytest.mark.parametrize("text", RECORDS)
def test_a_first_line_that_may_be_a_record_is_not_shown(text, tmp_path):
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    desk = Desk(tmp_path / "t.csv")
    seen = json.dumps([desk.start(), desk.plan({"form": BODY})], default=str)
    assert desk.start()["names"] == []
    cells = [cell.strip() for cell in re.split(r'[,;"\n]', text) if len(cell.strip()) > 4]
    assert not [cell for cell in cells if cell in seen]
    run = CliRunner().invoke(cli, ["init", str(tmp_path / "s.yaml"), "--data", "t.csv"])
    assert run.exit_code == 0
    written = (tmp_path / "s.yaml").read_text("utf-8") + run.output
    assert not [cell for cell in cells if cell in written]


def test_whoever_has_the_file_says_what_its_first_line_is(tmp_path):
    """As names it is taken, numbers too; as a record it is never shown, and counts as one."""
    with serving(write_table(tmp_path / "t.csv", "1990,1991,kind,who")) as visitor:
        start = visitor.get("/api/start").json()
        assert (start["names"], start["unsure"]) == ([], True)
        assert visitor.api("header", first="a").json()["names"] == []
        assert visitor.api("header", first="names").json()["names"] == [
            "1990",
            "1991",
            "kind",
            "who",
        ]
    with serving(write_table(tmp_path / "t.csv", "0.5,4,a,p1")) as visitor:
        assert visitor.api("header", first="record").json()["names"] == []
        found = visitor.api("plan", form=BODY, names=["x", "y", "kind", "who"]).json()
        assert "header: [x, y, kind, who]" in found["yaml"]
        assert visitor.api("plan", yaml=found["yaml"]).json()["form"] is not None
        assert "61 rows; 0 are dropped" in visitor.api("look", plan=found["plan"]).json()["html"]
        assert visitor.spend(found).status_code == 200


@pytest.mark.long
def test_a_parquet_file_shows_its_names_alone(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"x": [0.25, 0.75] * 30, "y": [123.25, 4.0] * 30})
    parquet.write_table(table, tmp_path / "t.parquet")
    with serving(tmp_path / "t.parquet") as visitor:
        start = visitor.get("/api/start")
        assert start.json()["names"] == ["x", "y"]
        assert "123" not in start.text
        assert visitor.spend(visitor.planned()).status_code == 200


# --- data is closed until the spend -------------------------------------------------------------------

OPENED: list[str] = []
WATCHING = threading.Event()


def _note(event, arguments):
    if event == "open" and WATCHING.is_set():
        OPENED.append(str(arguments[0]))


def test_the_file_is_closed_until_it_is_spent(studio):
    """Every open of this process is seen, in every thread; the spend shows that the hook sees it."""
    sys.addaudithook(_note)
    OPENED.clear()
    WATCHING.set()
    try:
        for path in ("/", "/static/studio.js", "/api/start"):
            studio.get(path)
        for words in ({}, {"epsilon": 2}, {"unit": "who"}, {"question": "means"}):
            found = studio.planned(**words)
            studio.api("plan", yaml=found["yaml"])
        studio.api("plan", yaml=found["yaml"].replace("gdp", "gpd"))
        studio.api("spend", plan="unknown", nonce="n" * 16, head="")
        studio.api("spend", plan=found["plan"], nonce="n" * 16, head="another")
        closed = list(OPENED)
        OPENED.clear()
        done = studio.spend(studio.planned())
        opened = list(OPENED)
        OPENED.clear()
        run = done.json()["html"].partition('data-run="')[2].partition('"')[0]
        studio.api("ask", run=run, at={"x": 0.5, "y": 5})
        studio.get(studio.api("ticket", run=run, what="release").json()["href"])
        after = list(OPENED)
    finally:
        WATCHING.clear()
    private = str(studio.server.desk.file)
    assert any("studio.js" in name for name in closed)  # the hook hears the server's thread
    assert private not in closed
    assert private in opened
    assert any("trips-density.npz" in name for name in after)
    assert private not in after


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights")
@pytest.mark.parametrize("route", ["spend", "look"])
@pytest.mark.parametrize("which", ["file", "folder"])
def test_a_file_that_became_a_link_is_not_opened(route, which, tmp_path):
    """Another file would be read, and counted in this one's ledger."""
    (tmp_path / "own").mkdir()
    (tmp_path / "other").mkdir()
    file, other = (write_table(tmp_path / name / "trips.csv") for name in ("own", "other"))
    desk = Desk(file)
    found = desk.plan({"form": BODY})
    gone = file if which == "file" else file.parent
    gone.rename(tmp_path / "away")
    gone.symlink_to(other if which == "file" else other.parent)
    body = {"plan": found["plan"], "nonce": "n" * 20, "head": found["view"].standing.head}
    answer, status = getattr(desk, route)(body)
    assert (status, answer["error"]["code"]) == (409, "link")
    assert not list(tmp_path.rglob("*.ledger"))
    gone.unlink()
    (tmp_path / "away").rename(gone)
    assert getattr(desk, route)(body | {"nonce": "m" * 20})[1] == 200


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights")
def test_a_file_behind_a_link_is_the_one_behind_it(tmp_path):
    """One ledger, beside the records, whatever name the studio was started under."""
    (tmp_path / "real").mkdir()
    file = write_table(tmp_path / "real" / "trips.csv")
    (tmp_path / "name.csv").symlink_to(file)
    desk = Desk(tmp_path / "name.csv")
    found = desk.plan({"form": BODY})
    body = {"plan": found["plan"], "nonce": "n" * 20, "head": found["view"].standing.head}
    assert desk.spend(body)[1] == 200
    assert (tmp_path / "real" / "trips.ledger").is_file()


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights")
def test_no_release_goes_through_a_link(studio, tmp_path_factory):
    """Neither to a folder elsewhere that has the name of the next release's, nor from a file there."""
    elsewhere, folder = tmp_path_factory.mktemp("elsewhere"), studio.server.desk.folder
    found = studio.planned(epsilon=0.5)
    (folder / "trips-density.npz").symlink_to(elsewhere / "nothing.npz")
    plan = studio.server.desk._plans[found["plan"]].plan
    (folder / studio.server.desk._another(plan, "1")).symlink_to(elsewhere)
    done = studio.spend(found)
    assert done.status_code == 200, done.text
    assert not list(elsewhere.iterdir())
    (release,) = (p for p in folder.rglob("*.npz") if not p.is_symlink())
    run = done.json()["html"].partition('data-run="')[2].partition('"')[0]
    links = [studio.api("ticket", run=run, what=w).json()["href"] for w in ("release", "spec")]
    kept = release.rename(elsewhere / "kept.npz")
    release.symlink_to(kept)  # equal bytes, which may change later
    ticket = studio.api("ticket", run=run, what="release").json()["href"]
    assert studio.get(ticket).status_code == 410
    release.unlink()
    release.symlink_to(studio.server.desk.file)  # the private one
    assert studio.get(links[0]).status_code == 410
    assert studio.get(links[1]).status_code == 200
    assert code(studio.api("ask", run=run, at={"x": 0.5, "y": 5})) == (422, "OS601")
    release.unlink()
    kept.rename(release)
    assert studio.api("ask", run=run, at={"x": 0.5, "y": 5}).status_code == 200


# --- spending ---------------------------------------------------------------------------------------


def test_what_is_confirmed_is_charged_once(studio):
    found, nonce = studio.planned(), uuid.uuid4().hex
    answers = []
    together = [
        threading.Thread(target=lambda: answers.append(studio.spend(found, nonce)))
        for _ in range(6)
    ]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join()
    assert [a.status_code for a in answers] == [200] * 6
    assert len({a.text for a in answers}) == 1
    assert [a.json()["ledger"]["entry"] for a in answers] == [2] * 6
    assert sum(1 for _ in studio.server.desk.folder.glob("*.npz")) == 1


def test_a_ledger_that_moved_is_looked_at_again(studio):
    first, second = studio.planned(), studio.planned(epsilon=0.5)
    assert studio.spend(first).status_code == 200
    stale = studio.spend(second)
    assert stale.status_code == 409
    assert stale.json()["error"]["code"] == "moved"
    assert studio.spend(studio.planned(epsilon=0.5)).status_code == 200
    kept = sorted(p.name for p in studio.server.desk.folder.rglob("*.npz"))
    assert kept == ["trips-density.npz"] * 2  # neither release replaced the other


def test_the_certificate_of_a_release_that_is_away_is_kept(studio):
    folder = studio.server.desk.folder
    assert studio.spend(studio.planned(epsilon=0.5)).status_code == 200
    beside = folder / "trips-density.npz.certificate.json"
    (folder / "trips-density.npz").rename(folder / "moved.npz")
    before = beside.read_bytes()
    assert studio.spend(studio.planned(epsilon=0.25)).status_code == 200
    assert beside.read_bytes() == before


def test_a_plan_that_is_not_on_the_table_is_not_run(studio):
    found = studio.planned()
    assert code(studio.api("spend", plan="0" * 64, nonce="n" * 20, head="")) == (409, "plan")
    assert code(studio.api("spend", plan=found["plan"], nonce="short", head="")) == (409, "plan")
    assert not (studio.server.desk.folder / "trips.ledger").exists()


@pytest.mark.long
def test_a_limit_is_a_limit(studio):
    assert studio.spend(studio.planned(epsilon=3)).status_code == 200
    found = studio.planned(epsilon=1)
    assert 'data-fits="0"' in found["html"]
    refused = studio.spend(found)
    assert code(refused) == (409, "OS402")
    assert "Nothing was charged" in refused.json()["error"]["text"]


TOP = {"question": "top", "item": "kind", "unit": "who", "most": 1}


def test_a_run_that_uses_all_delta_says_so_before_and_after(studio):
    """Lowering epsilon cannot help once no delta is left."""
    first = studio.planned(**TOP)["html"]
    assert "uses all delta" in first
    assert "raise the limit&#39;s delta" in first
    assert "uses all delta" not in studio.planned(**TOP, delta=4e-7)["html"]
    assert studio.spend(studio.planned(**TOP, delta=8e-7)).status_code == 200
    assert "does not fit: lower Delta of one run." in studio.planned(**TOP)["html"]
    last = studio.planned(**TOP, delta=2e-7)
    assert "uses all delta" in last["html"]
    assert "raise the limit" not in last["html"]
    assert studio.spend(last).status_code == 200
    assert "does not fit: no delta is left" in studio.planned(**TOP)["html"]


def test_a_run_beyond_epsilon_is_said_to_need_less_of_it(studio):
    assert studio.spend(studio.planned(epsilon=2)).status_code == 200
    assert "does not fit: lower epsilon." in studio.planned(epsilon=3)["html"]


def test_a_changed_limit_is_said_in_words(studio):
    assert studio.spend(studio.planned()).status_code == 200
    html = studio.planned(limit=5)["html"]
    assert "expected limit epsilon 3, delta 1e-06; got limit epsilon 5, delta 1e-06" in html
    assert "limit stay as it was made with: put them back" in html
    assert "{" not in html


def test_what_is_left_is_of_now_and_a_second_run_of_a_plan_is_said(studio):
    found = studio.planned()
    assert "100% left now" in found["html"]
    assert 'data-left="100%"' in found["html"]
    assert "The same plan" not in found["html"]
    after = re.search(r"<p>(\d+)% after this run", found["html"])[1]
    assert studio.spend(found).status_code == 200
    again = studio.planned()["html"]
    assert f"{after}% left now" in again
    assert re.search(r"The same plan was released at \d{4}-\d\d-\d\d \d\d:\d\d UTC", again)
    assert 'data-again=""' not in again
    assert "The same plan" not in studio.planned(epsilon=0.5)["html"]


def test_a_confirmation_names_question_columns_and_dropped_rows(looked_at):
    html = looked_at.planned(question="classes", label="kind", keys="a, b")["html"]
    assert 'data-asked="Classes: x, y by kind"' in html
    assert "where x or y holds no number, or kind holds none of its classes." in html


@pytest.mark.parametrize("charges", [False, True])
def test_whether_a_refused_run_was_charged_is_read_from_the_ledger(studio, monkeypatch, charges):
    """A refusal before the charge and one after it may have the same code."""
    plain = desk.apply

    def refused(*args, **kwargs):
        if charges:
            plain(*args, **kwargs)
        raise DataError("OS601", "file", expected="a file", got="none", hint="look.")

    monkeypatch.setattr(desk, "apply", refused)
    answer = studio.spend(studio.planned())
    text = answer.json()["error"]["text"]
    assert code(answer) == (409, "OS601")
    assert ("Nothing was charged" in text) is not charges
    assert ("may be charged" in text) is charges


def test_a_release_is_asked_and_taken_away(studio):
    html = studio.spend(studio.planned(question="classes", label="kind", keys="a, b")).json()[
        "html"
    ]
    run = html.partition('data-run="')[2].partition('"')[0]
    found = studio.api("ask", run=run, at={"x": 0.5, "y": 5}).json()
    assert found["big"] in ("a", "b")
    assert [row[0] for row in found["rows"]] == ["a", "b"]
    assert studio.api("ask", run=run, at={"x": 0.5}).status_code == 422
    kinds = {"release": b"PK", "certificate": b"{", "spec": b"spec:", "report": b"<!doctype html"}
    for what, start in kinds.items():
        href = studio.api("ticket", run=run, what=what).json()["href"]
        taken = studio.get(href, headers={"authorization": ""})
        assert taken.content.startswith(start)
        assert "attachment" in taken.headers["content-disposition"]
        assert "sandbox" in taken.headers["content-security-policy"]
        assert studio.get(href).status_code == 410
    assert "<h1>" in taken.text
    assert 'filename="trips-classes.html"' in taken.headers["content-disposition"]


@pytest.mark.parametrize("words", [{}, {"question": "means"}])
def test_a_release_of_no_records_says_so_before_its_answers(words, tmp_path):
    rows = [f"Bern,{i % 10},a,p{i}" for i in range(300)]
    (tmp_path / "t.csv").write_text("\n".join([HEADER, *rows, ""]), encoding="utf-8")
    words = words | {"epsilon": 3, "limit": 9}
    with serving(tmp_path / "t.csv") as studio:
        empty = studio.spend(studio.planned(**words)).json()["html"]
        columns = {"y": BODY["columns"]["y"]}
        filled = studio.spend(studio.planned(**words, columns=columns)).json()["html"]
    assert "there may be none" in empty.partition('class="parts"')[0]
    assert "there may be none" not in filled


def test_a_table_states_the_error_at_the_level_of_the_card(studio):
    columns = {"y": {"low": 0, "high": 100_000, "near": 6000}}
    answer = studio.spend(studio.planned(columns=columns)).json()
    table = answer["html"].partition("<h3>Ask it")[0]
    (noise,) = {float(text) for text in re.findall(r"± ([\d.]+)", table)}
    release = desk.Release.load(studio.server.desk.folder / answer["file"])
    one = float(release.ask("density", {"y": [50_000.0]})["noise_error"][0])
    assert noise == pytest.approx(2.12 * one, rel=0.05)
    assert "noise of 95% of answers" in table
    assert not re.search(r"y \d\.\d+e", table)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "words",
    [
        {"question": "means"},
        {"question": "means", "label": "kind", "keys": "a, b"},
        {"question": "predict", "label": "kind", "keys": "a, b"},
        {"question": "quantiles"},
        {"question": "quantiles", "label": "kind", "keys": "a, b"},
        {"question": "regression", "target": "x", "stated": "the data sheet"},
        {"question": "density", "unit": "who", "rows": 2},
        {"question": "density", "columns": {"x": BODY["columns"]["x"]}},
        {"question": "top", "item": "kind", "unit": "who", "most": 1},
    ],
)
def test_every_question_is_planned_spent_and_read_back(studio, words):
    found = studio.planned(**words)
    text = studio.api("plan", yaml=found["yaml"]).json()
    assert text["form"] is not None
    assert text["plan"] == found["plan"] or text["yaml"] == found["yaml"]
    done = studio.spend(found)
    assert done.status_code == 200, done.text
    run = done.json()["html"].partition('class="links" data-run="')[2].partition('"')[0]
    ask = done.json()["html"].partition('id="ask"')[2].partition("</div>")[0]
    at = dict.fromkeys(re.findall(r'name="(\w+)"', ask), 0.5)
    if words["question"] != "top":
        assert studio.api("ask", run=run, at=at).json()["big"]
    report = studio.get(studio.api("ticket", run=run, what="report").json()["href"]).text
    assert words.get("stated", "") in report


@pytest.mark.long
def test_a_page_that_is_opened_again_shows_the_run(studio):
    assert code(studio.api("show", run="x")) == (409, "run")
    done = studio.spend(studio.planned())
    start = studio.get("/api/start").json()
    assert [run["file"] for run in start["runs"]] == ["trips-density.npz"]
    assert studio.api("show", run=start["runs"][0]["run"]).json() == done.json()
    assert start["yaml"] == studio.planned()["yaml"]


SESSION = {"question": "session", "label": "kind", "keys": "a, b", "size": 60, "asked": 10}


def test_a_session_is_charged_once_and_each_answer_once_a_nonce(studio):
    found = studio.planned(**SESSION)
    assert studio.api("plan", yaml=found["yaml"]).json()["form"] is not None
    done = studio.spend(found)
    assert done.status_code == 200, done.text
    run = done.json()["html"].partition('data-run="')[2].partition('"')[0]
    at, nonce = {"x": 0.5, "y": 5}, uuid.uuid4().hex
    answers = [studio.api("ask", run=run, at=at, nonce=nonce).json() for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    assert answers[0]["big"] in ("a", "b")
    assert answers[0]["small"].startswith("1 answered so far")
    second = studio.api("ask", run=run, at=at, nonce=uuid.uuid4().hex).json()
    assert second["small"].startswith("2 answered so far")
    assert studio.api("ask", run=run, at={"x": 0.1, "y": 5}, nonce=nonce).status_code == 422
    for wrong in ({"at": {"x": 0.5}}, {"nonce": "short"}, {"at": {"x": "a", "y": 1}}):
        body = {"run": run, "at": at, "nonce": uuid.uuid4().hex} | wrong
        assert studio.api("ask", **body).status_code == 422
    for what in ("release", "report", "certificate"):  # a store is private
        assert studio.api("ticket", run=run, what=what).json() == {"href": ""}
    again = studio.spend(studio.planned(**SESSION))  # it is open: no second store, no second charge
    assert again.status_code == 409
    assert "Nothing was charged" in again.json()["error"]["text"]
    assert studio.api("end", run=run).json() == {"state": "closed"}
    assert code(studio.api("end", run=run)) == (409, "run")
    assert studio.api("ask", run=run, at=at, nonce=uuid.uuid4().hex).status_code == 422
    opened = studio.spend(studio.planned(**SESSION)).json()["html"]
    assert "paid for before; nothing was charged now" in opened
    run = opened.partition('data-run="')[2].partition('"')[0]
    third = studio.api("ask", run=run, at=at, nonce=uuid.uuid4().hex).json()
    assert third["small"].startswith("3 answered so far")


def test_votes_are_named_by_the_label_and_no_other_category(tmp_path):
    lines = [f"{at % 10 / 10},{'PQR'[at % 3]},{'good' if at % 2 else 'bad'}" for at in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["x,town,kind", *lines]) + "\n")
    with Desk(tmp_path / "t.csv") as desk:
        found = desk.plan({"yaml": TWO_CATEGORIES})
        body = {"plan": found["plan"], "nonce": "n" * 20, "head": found["view"].standing.head}
        assert desk.spend(body)[1] == 200
        answer = desk.ask({"run": "n" * 20, "at": {"x": 0.5}, "nonce": "q" * 20})
    assert [name for name, _ in answer["rows"]] == ["bad", "good"]


TWO_CATEGORIES = """
spec: opendp_sim/2
name: votes
data:
  t:
    source: {csv: t.csv}
    ledger: {file: t.ledger, limit: {mu: 3.0}}
    columns:
      x: {dtype: float64, bounds: [0, 1]}
      town: {dtype: category, keys: [P, Q, R]}
      kind: {dtype: category, keys: [bad, good]}
privacy: {unit: {add_remove: 1, of: row}, measure: gdp, budget: {mu: 0.9}}
flow:
  rows: {from: t, steps: [select: {features: [x], label: kind}, quantize: {bits: 8}]}
  near: {from: rows, release: {mechanism: {ind_knn: {queries: 20, size: 60, threshold: 0.3, centre: false}}, spend: 100%}}
outputs: {o: {from: near, serve: session, store: s.session}}
"""


@pytest.mark.long
def test_a_stopped_studio_closes_its_session(tmp_path):
    file = write_table(tmp_path / "trips.csv")
    for fresh in (True, False):
        with serving(file) as visitor:
            html = visitor.spend(visitor.planned(**SESSION)).json()["html"]
        assert ("nothing was charged" in html) is not fresh
    assert len(list(tmp_path.glob("*.session"))) == 1


def test_each_picture_of_a_plan_has_a_table_of_its_numbers(looked_at):
    html = looked_at.planned()["html"]
    assert html.count("<figure") == html.count("<summary>As numbers</summary><table>") == 2
    assert '<td>0 to 10</td><td class="n">±1</td>' in html


def test_each_bound_says_who_stated_it(studio):
    html = studio.planned()["html"]
    assert html.count("nobody yet") == 2
    found = studio.planned(stated="<i>the data sheet</i>")
    assert found["html"].count("&lt;i&gt;the data sheet&lt;/i&gt;") == 2
    assert "0 to 10" in found["html"]
    assert "bounds: " in found["yaml"].partition("about:")[2]


def test_a_private_look_is_its_own_route(studio):
    found = studio.planned()
    assert code(studio.api("look", plan="0" * 64)) == (409, "plan")
    html = studio.api("look", plan=found["plan"]).json()["html"]
    assert "60 rows; 0 are dropped" in html
    assert not (studio.server.desk.folder / "trips.ledger").exists()


@pytest.mark.parametrize(
    ("value", "text"),
    [(337_312.4, "337,312"), (-12_345.6, "-12,346"), (9999.4, "9999"), (0.012345, "0.01235"), (4e12, "4e+12")],
)  # fmt: skip
def test_a_count_of_rows_is_read_without_an_exponent(value, text):
    assert desk.figure(value) == text


def test_the_socket_has_no_delay(studio):
    """Of protocol 0 a socket has none of TCP's options in asyncio: 40 ms for each request."""
    assert studio.server.door.proto == socket.IPPROTO_TCP


@pytest.mark.long
def test_a_stopped_command_says_what_was_charged(tmp_path):
    """Ctrl-C after a spend does not end with "nothing was charged"."""
    file = write_table(tmp_path / "trips.csv")
    told = []
    with serving(file, told.append) as visitor:
        assert told == []
        visitor.spend(visitor.planned(epsilon=0.5))
        visitor.spend(visitor.planned(epsilon=0.25))
    assert len(told) == 2
    assert told[1].startswith(told[0])


def test_each_threat_of_the_page_has_its_test():
    root = Path(__file__).parents[2]
    rows = [
        line
        for line in (root / "docs/studio.md").read_text("utf-8").splitlines()
        if "`test_" in line
    ]
    here = "".join(p.read_text("utf-8") for p in root.glob("tests/studio/test_*.py"))
    named = re.findall(r"`(test_\w+)`", "".join(rows))
    assert len(rows) > 15
    assert [name for name in named if f"def {name}(" not in here] == []


@pytest.mark.long
def test_the_command_starts_and_stops(tmp_path):
    file = write_table(tmp_path / "trips.csv")
    command = [sys.executable, "-m", "opendp_sim", "studio", str(file)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        address = run.stdout.readline().split()[-1]
        assert httpx.get(address, trust_env=False).status_code == 200
        run.terminate()
        assert run.wait(30) == 143
        assert "nothing was charged" in run.stderr.read()
