"""A folder served on a real socket: answers, roles, keys, limits, and what must not come out."""

from __future__ import annotations

import json
import shlex
import threading
import time
import uuid
from collections import Counter

import pytest

httpx = pytest.importorskip("httpx", reason="the extra `dev`")
pytest.importorskip("starlette", reason="the extra `studio`")

from jsonschema import Draft202012Validator  # noqa: E402

from opendp_sim.accounting.release.release import Release  # noqa: E402
from opendp_sim.core.errors import BudgetError, DataError  # noqa: E402
from opendp_sim.core.mechanism import REGISTRY  # noqa: E402
from opendp_sim.serve import questions, tokens as known  # noqa: E402
from opendp_sim.serve.application import WorkQueue  # noqa: E402
from opendp_sim.serve.folder import list_folder  # noqa: E402
from opendp_sim.serve.tokens import Tokens, issue, read_tokens  # noqa: E402
from opendp_sim.web.guard import HttpRefusal  # noqa: E402
from tests._cli import run  # noqa: E402
from tests.serve.conftest import ASK  # noqa: E402

QUESTION = "/v1/releases/places/density"
QUERY = {"queries": {"a": [2.0, 5.0], "b": [0.0, 0.5]}}
NEAR = {"queries": [[0.1, 0.2]]}


def code(response):
    return response.status_code, response.json()["error"]["code"]


def key():
    return uuid.uuid4().hex


def test_only_what_verifies_and_was_started_is_served(house):
    assert [one["name"] for one in house.get("/v1/releases").json()["releases"]] == ["places"]
    sessions = house.get("/v1/sessions").json()["sessions"]
    assert [(one["name"], one["open"]) for one in sessions] == [("near", True), ("later", False)]
    about = house.get("/v1/releases/places").json()
    first = {"name": "a", "dtype": "float64", "width": None, "bounds": [0.0, 10.0]}
    assert about["columns"][0] == first
    needs = {one["name"]: one["needs"] for one in about["questions"]}
    assert needs["sample"] == ["size", "seed"]
    assert needs["density"] == []
    assert "density" in about["asks"]


def test_what_is_left_out_is_said(house, tmp_path):
    folder = made_copy(house.folder, tmp_path)
    found = list_folder(folder)
    assert set(found.left_out) == {
        "alone.npz",
        "damaged.npz",
        "link.npz",
        "bad.yaml",
        "later.yaml, near",
        "free.yaml, near",
    }
    assert "apply" in found.left_out["later.yaml, near"]
    assert "without-ledger" in found.left_out["free.yaml, near"]
    with pytest.raises(DataError, match="OS601"):
        list_folder(tmp_path / "none")


def made_copy(folder, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, symlinks=True)
    return copy


def test_a_session_that_is_open_elsewhere_is_refused(house):
    with pytest.raises(BudgetError, match="OS407"):
        list_folder(house.folder)


def test_a_release_answers_as_in_python_for_free(house):
    release = Release.load(house.folder / "places.npz")
    wanted = release.density([[2.0, 0.0], [5.0, 0.5]], confidence=0.9)
    answer = house.post(QUESTION, QUERY | {"confidence": 0.9})
    assert answer.status_code == 200
    assert answer.json()["columns"]["density"] == wanted["density"].tolist()
    rows = house.post(QUESTION, {"queries": [[2.0, 0.0], [5.0, 0.5]], "confidence": 0.9})
    assert rows.json() == answer.json()


def test_an_answer_has_a_tag_that_names_file_question_and_form(house):
    answer = house.post(QUESTION, QUERY)
    tag = answer.headers["etag"]
    again = house.post(QUESTION, QUERY, if_none_match=f'W/"0", {tag}')
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert "private" in answer.headers["cache-control"]
    other = {"queries": {"a": [2.0, 5.0], "b": [0.0, 0.6]}}
    assert house.post(QUESTION, other, if_none_match=tag).status_code == 200


def test_arrow_on_demand(house):
    arrow = pytest.importorskip("pyarrow", reason="the extra `parquet`")
    answer = house.post(QUESTION, QUERY, accept="application/vnd.apache.arrow.stream")
    table = arrow.ipc.open_stream(answer.content).read_all()
    assert table.to_pydict() == house.post(QUESTION, QUERY).json()["columns"]
    tag = answer.headers["etag"]
    assert house.post(QUESTION, QUERY, if_none_match=tag).status_code == 200  # another form


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"queries": {"a": [1.0]}}, 422),
        ({"queries": {"a": [1.0], "b": ["x"]}}, 422),
        ({"queries": {"a": [1.0], "b": [None]}}, 422),
        ({"queries": {"a": [1.0], "b": [1.0, 2.0]}}, 422),
        ({"queries": {"a": [1.0], "b": [[1.0]]}}, 422),
        ({"queries": {"a": [1.0], "b": {"x": 1}}}, 422),
        ({"queries": [[1, 2], [1]]}, 422),
        ({"queries": [{"a": 1, "b": 2}]}, 422),
        ({"queries": []}, 422),
        ({"queries": "/etc/passwd"}, 422),
        ({"queries": {"csv": ["people.csv"]}}, 422),
        ({}, 422),
        ({"queries": [[1, 2]] * 10_001}, 422),
        (QUERY | {"confidence": 2}, 422),
        (QUERY | {"confidence": "x"}, 422),
        (QUERY | {"nonsense": 1}, 422),
        (QUERY | {"public": "people.csv"}, 422),
    ],
)
def test_a_bad_question_is_refused_and_never_a_failure(house, body, status):
    assert house.post(QUESTION, body).status_code == status


@pytest.mark.parametrize(
    ("question", "body"),
    [
        ("sample", QUERY | {"size": 10**7, "seed": 1}),
        ("sample", QUERY | {"size": 200_000, "seed": 1}),
        ("modes", {"starts": 4096, "rounds": 10**5, "seed": 1}),
        ("modes", {"queries": [[1, 0]] * 10_000, "rounds": 1000, "seed": 1}),
    ],
)
def test_a_question_of_too_much_work_is_refused_before_any(house, monkeypatch, question, body):
    monkeypatch.setattr(Release, "ask", lambda *_a, **_k: pytest.fail("work was begun"))
    refused = house.post(f"/v1/releases/places/{question}", body)
    assert code(refused) == (422, "work")
    assert "2,000,000,000" in refused.json()["error"]["expected"]


def test_ordinary_questions_are_within_the_bounds(house):
    for question, body in (
        ("sample", QUERY | {"size": 1000, "seed": 1}),
        ("modes", {"seed": 1}),
        ("density", {"queries": [[1, 0]] * 10_000}),
    ):
        assert house.post(f"/v1/releases/places/{question}", body).status_code == 200


def test_queries_at_most_follow_from_the_size_of_the_release(house, monkeypatch):
    saved = house.application._folder.releases["places"]
    assert saved.questions["density"].rows == questions.ROWS
    monkeypatch.setattr(questions, "WORK", 10**6)
    asked = questions.FreeQuestion(saved.release, "density", saved.features)
    assert 1 < asked.rows < questions.ROWS
    asked.check({}, asked.rows)
    with pytest.raises(HttpRefusal, match="work"):
        asked.check({}, asked.rows + 1)


def test_every_parameter_that_makes_work_is_counted():
    """A new question's large integers are of a counted unit, or are a seed or a column's number."""
    counted = {"points", "moves", "evaluations", "items"}
    for key, one in REGISTRY.items():
        for name, field in one.model_fields.items() if one.room == "queries" else ():
            most = max((getattr(m, "le", 0) or 0 for m in field.metadata), default=0)
            unit = (field.json_schema_extra or {}).get("unit")
            plain = most < 1000 or name in ("seed", "column", "target")
            assert plain or unit in counted, (key, name, unit)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/releases/none/density",
        "/v1/releases/..%2fpeople/density",
        "/v1/releases/places.npz/density",
        "/v1/releases/people.csv/density",
        "/v1/releases/places/ask",
        "/v1/releases/places/__getstate__",
        "/v1/sessions/none/ask",
        "/static/..%2f..%2fserve.py",
    ],
)
def test_no_path_is_made_from_a_request(house, path):
    assert house.post(path, QUERY, idempotency_key=key()).status_code in (404, 405)
    assert house.get(path).status_code in (404, 405)


def test_roles(house):
    for path in (
        "/v1/releases",
        "/v1/releases/places",
        "/v1/sessions",
        "/v1/ledgers",
        "/openapi.json",
    ):
        assert code(house.client.get(path)) == (401, "token")
    for path in ("/v1/releases/places/report", "/v1/ledgers", "/v1/ledgers/places/report"):
        assert code(house.get(path)) == (403, "role")
        for role in ("officer", "curator"):
            assert house.get(path, role).status_code == 200, path
    for role in ("officer", "curator", "operator"):
        assert code(house.ask(NEAR, key(), role)) == (403, "role")
    for role in ("analyst", "officer", "curator"):
        for path in ("/v1/sessions/near/stop", "/v1/sessions/later/start"):
            assert code(house.post(path, {}, role)) == (403, "role")
    assert code(house.get("/v1/sessions/near")) == (403, "role")
    page = house.get("/v1/releases/places/report", "officer")
    assert "<h1>" in page.text
    assert "sandbox" in page.headers["content-security-policy"]
    ledgers = {one["name"]: one for one in house.get("/v1/ledgers", "officer").json()["ledgers"]}
    assert ledgers["places"]["runs"] == 1
    assert house.get("/v1/ledgers/near/report", "officer").status_code == 404


def test_a_retry_is_free_and_another_question_is_refused(house):
    one = key()
    before = house.get("/v1/sessions").json()["sessions"][0]["answered"]
    first = house.ask(NEAR, one).json()
    assert (first["answered"], first["replayed"]) == (before + 1, False)
    assert first["answers"][0]["label"] in ("one", "two")
    again = house.ask({"queries": [{"x": [0.1, 0.2]}]}, one).json()  # the same question by column
    assert (again["answers"], again["replayed"]) == (first["answers"], True)
    assert code(house.ask({"queries": [[0.3, 0.2]]}, one)) == (409, "OS408")
    other = house.ask(NEAR, one, "bob").json()  # his keys are his own
    assert (other["answered"], other["replayed"]) == (before + 2, False)


def test_equal_retries_at_once_are_charged_once(house):
    one, found = key(), []
    threads = [
        threading.Thread(target=lambda: found.append(house.ask(NEAR, one).json())) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({json.dumps(each["answers"]) for each in found}) == 1
    assert Counter(each["replayed"] for each in found) == {True: 7, False: 1}


@pytest.mark.parametrize(
    ("body", "headers", "told"),
    [
        (NEAR, {}, (428, "key")),
        (NEAR, {"idempotency_key": "short"}, (428, "key")),
        (NEAR, {"idempotency_key": "x" * 129}, (428, "key")),
        ({"queries": [[1.0]]}, None, (422, "OS607")),
        ({"queries": [["x", "y"]]}, None, (422, "OS607")),
        ({"queries": [[True, False]]}, None, (422, "OS607")),
        ({"queries": [0.1, 0.2]}, None, (422, "OS607")),
        ({"queries": []}, None, (422, "OS607")),
        ({"queries": [[0.1, 0.2]] * 257}, None, (422, "OS607")),
        ({"queries": [{"kind": "one"}]}, None, (422, "OS607")),
        ({"query": [0.1, 0.2]}, None, (422, "OS607")),
        ({"insert": [{"x": [0.1, 0.2], "kind": "one"}]}, None, (422, "OS607")),
    ],
)
def test_what_is_no_question_charges_nothing(house, body, headers, told):
    before = house.desk.answered
    headers = {"idempotency_key": key()} if headers is None else headers
    assert code(house.post(ASK, body, **headers)) == told
    assert house.desk.served.session.answered == before


def test_more_than_may_wait_is_refused(house, monkeypatch):
    monkeypatch.setattr(house.desk, "_most", 2)
    gate, entered = threading.Event(), threading.Event()

    def slow(*given, real=house.desk.served.session.ask, **more):
        entered.set()
        assert gate.wait(20)
        return real(*given, **more)

    monkeypatch.setattr(house.desk.served.session, "ask", slow)
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(house.ask(NEAR, key()))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    assert entered.wait(20)
    while house.desk.waiting < 2:
        time.sleep(0.005)
    refused = house.ask(NEAR, key())
    assert code(refused) == (429, "busy")
    assert refused.headers["retry-after"] == "1"
    assert (
        house.get("/v1/sessions").json()["sessions"][0]["waiting"] == 2
    )  # nothing else waits for it
    gate.set()
    for thread in threads:
        thread.join()
    assert [one.status_code for one in found] == [200, 200]


def test_the_document_has_the_releases_own_columns_and_the_answers_fit_it(house):
    document = house.get("/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    assert house.client.get("/openapi.json").status_code == 401  # it names columns
    asked = document["paths"][QUESTION]["post"]["requestBody"]["content"]["application/json"][
        "schema"
    ]
    Draft202012Validator.check_schema(asked)
    fits = Draft202012Validator(asked).is_valid
    assert fits(QUERY)
    assert fits({"queries": [[1, 2]], "confidence": 0.9})
    assert not fits({"queries": {"a": [1.0]}})
    assert not fits({"queries": [[1]]})
    paid = document["paths"][ASK]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert Draft202012Validator(paid).is_valid(NEAR)
    assert not Draft202012Validator(paid).is_valid({"queries": [[1]]})


def test_probes_and_metrics_have_no_name(house):
    house.get("/v1/releases")
    assert house.client.get("/health/live").json() == {"ok": True}
    assert house.client.get("/health/ready", headers={"host": "10.0.0.1"}).status_code == 200
    assert house.client.get("/metrics", headers={"host": "10.0.0.1"}).status_code == 421
    text = house.client.get("/metrics").text
    assert 'opendp_sim_requests_total{endpoint="releases",status="200"}' in text
    assert "opendp_sim_answered_total" in text
    assert not any(word in text for word in ("places", "near", "analyst", "bob"))


def test_the_page_has_no_fact_and_only_its_own_files(house):
    page = house.client.get("/")
    assert "places" not in page.text
    policy = page.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "style=" not in page.text
    size = len(page.content)
    for name in ("tokens.css", "explorer.css", "explorer.js"):
        size += len(house.client.get(f"/static/{name}").content)
    assert size < 60_000
    assert "innerHTML" not in house.client.get("/static/explorer.js").text


def test_a_missing_file_of_tokens_names_the_command_that_makes_it(tmp_path):
    """The command wrote a file elsewhere, and the refusal came again."""
    with pytest.raises(DataError, match="OS601") as caught:
        read_tokens(tmp_path / "some where" / "tokens.json")
    command = shlex.split(caught.value.hint.partition("`")[2].partition("`")[0])
    assert command[:3] == ["opendp-sim", "serve", "token"]
    assert command[-2:] == ["--tokens", str(tmp_path / "some where" / "tokens.json")]


def test_tokens_end_are_taken_back_and_are_nowhere_in_clear(tmp_path):
    file, now = tmp_path / "tokens.json", [0.0]
    token = issue(file, "ann", "analyst", 30)
    assert token not in file.read_text()
    assert len(token) >= 43
    assert file.stat().st_mode & 0o777 == 0o600
    tokens = Tokens(file, rate=10, burst=3, clock=lambda: now[0])

    def request(word=token):
        return httpx_request(word)

    assert tokens.caller(request(), "analyst").name == "ann"
    for _ in range(2):
        tokens.caller(request(), "analyst")
    assert refusal(tokens, request()) == (429, "rate")
    now[0] += 0.11
    tokens.caller(request(), "analyst")
    second = issue(file, "bob", "officer", 30)
    assert refusal(tokens, request(second)) == (401, "token")  # not looked at again yet
    now[0] += 2
    assert tokens.caller(request(second), "officer").role == "officer"
    file.write_text(json.dumps({"format": known.FORMAT, "tokens": []}))
    now[0] += 2
    assert refusal(tokens, request()) == (401, "token")
    file.write_text("{")
    now[0] += 2
    with pytest.raises(DataError, match="OS601"):
        tokens.caller(request(second), "officer")
    now[0] += 2
    assert refusal(tokens, request(second)) == (401, "token")


def test_a_token_ends_with_its_day(tmp_path):
    file = tmp_path / "tokens.json"
    token = issue(file, "ann", "analyst", -1)
    assert refusal(Tokens(file), httpx_request(token)) == (401, "token")


def test_a_file_of_tokens_that_others_may_write_is_refused(tmp_path):
    file = tmp_path / "tokens.json"
    issue(file, "ann", "analyst", 1)
    file.chmod(0o622)
    with pytest.raises(DataError, match="others may write"):
        read_tokens(file)
    for name in ("", "a b", "x" * 65, "<b>"):
        with pytest.raises(Exception, match="OS"):
            issue(tmp_path / "new.json", name, "analyst", 1)


def httpx_request(token):
    from starlette.requests import Request

    headers = [(b"authorization", f"Bearer {token}".encode())]
    return Request({"type": "http", "headers": headers})


def refusal(tokens, request):
    with pytest.raises(HttpRefusal) as caught:
        tokens.caller(request, "analyst", "officer")
    return caught.value.status, caught.value.code


def test_work_whose_request_ended_is_never_begun():
    import asyncio

    async def tried():
        desk, gate, done = WorkQueue("x"), threading.Event(), []
        first = asyncio.ensure_future(desk.do(lambda: gate.wait(20)))
        second = asyncio.ensure_future(desk.do(lambda: done.append(1)))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        gate.set()
        assert await first
        desk.close()
        return done, desk.waiting

    assert asyncio.run(tried()) == ([], 0)


def test_a_file_that_is_exchanged_later_changes_nothing(house):
    file = house.folder / "places.npz"
    kept, before = file.read_bytes(), house.post(QUESTION, QUERY)
    try:
        file.write_bytes(b"PK")
        again = house.post(QUESTION, QUERY)
        assert (again.content, again.headers["etag"]) == (before.content, before.headers["etag"])
    finally:
        file.write_bytes(kept)


def test_what_a_proxy_says_of_a_host_or_a_caller_is_not_read(house):
    told = {
        "x_forwarded_host": "evil.example",
        "x_forwarded_for": "10.0.0.1",
        "forwarded": "host=x",
    }
    plain = house.post(QUESTION, QUERY)
    answer = house.post(QUESTION, QUERY, **told)
    assert (answer.status_code, answer.content) == (200, plain.content)
    lied = {"host": "evil.example", "x-forwarded-host": house.host} | house.roles["analyst"]
    assert house.client.get("/v1/releases", headers=lied).status_code == 421


def test_another_address_needs_the_names_that_clients_use(house):
    found = run("serve", house.folder, "--host", "192.0.2.1", "--port", "0")
    assert found.exit_code != 0
    assert "--name" in found.stderr
