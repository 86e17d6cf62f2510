"""An operator starts and stops sessions over HTTP: charged once, at the head that was confirmed."""

from __future__ import annotations

import threading
import time
import uuid

import pytest

pytest.importorskip("httpx", reason="the extra `dev`")
pytest.importorskip("starlette", reason="the extra `studio`")

from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.serve.folder import list_folder
from tests.serve._folder import made
from tests.serve.conftest import served_house

NEAR = {"queries": [[0.1, 0.2]]}
START, STOP, ABOUT = (f"/v1/sessions/near{end}" for end in ("/start", "/stop", ""))


@pytest.fixture
def closed(tmp_path):
    """A folder whose session nobody has started."""
    with served_house(made(tmp_path, run=())) as house:
        yield house


def code(response):
    return response.status_code, response.json()["error"]["code"]


def runs(folder):
    with Ledger.open(folder / "people.ledger") as ledger:
        return len(ledger.charges)


def test_a_session_is_started_asked_stopped_and_started_again(closed):
    key = uuid.uuid4().hex
    assert code(closed.ask(NEAR, key)) == (503, "closed")
    about = closed.get(ABOUT, "operator").json()
    assert (about["open"], about["paid"], about["head"]) == (False, False, "")
    assert (about["ledger"]["takes"], about["ledger"]["fits"]) == ("mu 0.9", True)
    assert str(closed.folder) not in str(about)

    assert code(closed.post(START, {}, "operator")) == (428, "head")
    assert code(closed.post(START, {"head": "0" * 64}, "operator")) == (409, "OS409")
    assert not (closed.folder / "people.ledger").exists()  # nothing was charged, nothing made
    begun = closed.post(START, {"head": ""}, "operator")
    assert begun.json() == {"name": "near", "open": True, "answered": 0, "waiting": 0}
    assert runs(closed.folder) == 1
    assert closed.post(START, {"head": ""}, "operator").status_code == 200  # open already: a retry
    assert runs(closed.folder) == 1
    paths = closed.get("/openapi.json").json()["paths"]
    assert "/v1/sessions/near/ask" in paths
    assert [one["name"] for one in closed.get("/v1/ledgers", "officer").json()["ledgers"]] == [
        "people"
    ]

    first = closed.ask(NEAR, key).json()
    assert closed.post(STOP, {}, "operator").json() == {"name": "near", "open": False}
    assert closed.post(STOP, {}, "operator").status_code == 200  # a retry
    assert code(closed.ask(NEAR, uuid.uuid4().hex)) == (503, "closed")
    assert code(closed.post(START, {"head": about["head"]}, "operator")) == (409, "OS409")

    head = closed.get(ABOUT, "operator").json()["head"]
    assert closed.post(START, {"head": head}, "operator").json()["answered"] == 1
    assert runs(closed.folder) == 1  # it was paid for
    again = closed.ask(NEAR, key).json()
    assert (again["answers"], again["replayed"]) == (first["answers"], True)


def test_a_start_that_does_not_fit_charges_nothing(tmp_path):
    folder = made(tmp_path, run=("near.yaml",))
    text = (folder / "near.yaml").read_text()
    (folder / "more.yaml").write_text(text.replace("near.session", "more.session"))
    with served_house(folder) as house:
        head = house.get("/v1/sessions/more", "operator").json()["head"]
        assert code(house.post("/v1/sessions/more/start", {"head": head}, "operator")) == (
            403,
            "OS402",
        )
        assert house.get("/v1/sessions/more", "operator").json()["open"] is False
    assert runs(folder) == 1


def test_what_waits_is_answered_before_a_session_is_closed(tmp_path, monkeypatch):
    with served_house(made(tmp_path, run=("near.yaml",))) as house:
        gate, entered, found = threading.Event(), threading.Event(), []

        def slow(*given, real=house.desk.served.session.ask, **more):
            entered.set()
            assert gate.wait(20)
            return real(*given, **more)

        monkeypatch.setattr(house.desk.served.session, "ask", slow)
        tasks = [lambda: house.ask(NEAR, uuid.uuid4().hex)] * 3
        tasks += [lambda: house.post(STOP, {}, "operator")]
        threads = [threading.Thread(target=lambda t=task: found.append(t())) for task in tasks]
        for thread in threads[:3]:
            thread.start()
        assert entered.wait(20)
        while house.desk.waiting < 3:
            time.sleep(0.002)
        threads[3].start()
        while "near" in house.application._desks:
            time.sleep(0.002)
        assert code(house.ask(NEAR, uuid.uuid4().hex)) == (503, "closed")
        gate.set()
        for thread in threads:
            thread.join()
        assert [one.status_code for one in found] == [200] * 4
        head = house.get(ABOUT, "operator").json()["head"]
        assert house.post(START, {"head": head}, "operator").json()["answered"] == 3


@pytest.mark.parametrize("body", [{"head": 1}, {"head": "", "x": 1}, {"spec": "../x"}])
def test_what_is_no_start_is_refused(closed, body):
    assert closed.post(START, body, "operator").status_code == 422
    assert closed.post("/v1/sessions/..%2fnear/start", {}, "operator").status_code == 404
    assert closed.post("/v1/sessions/near.yaml/start", {}, "operator").status_code == 404
    assert code(closed.post(STOP, {"x": 1}, "operator")) == (422, "json")


def test_a_store_that_this_ledger_did_not_pay_for_is_not_started_unasked(tmp_path):
    """A copied store beside a new ledger: starting the server charged it, and nobody had confirmed."""
    folder = made(tmp_path, run=("near.yaml",))
    for beside in folder.glob("people.ledger*"):
        beside.unlink()
    found = list_folder(folder)
    assert (list(found.sessions), list(found.startable)) == ([], ["near"])
    assert not (folder / "people.ledger").exists()
