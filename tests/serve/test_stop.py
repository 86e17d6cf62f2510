"""A server that is stopped or killed while charged questions wait: every charge is found again by its key."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
import uuid

import pytest

httpx = pytest.importorskip("httpx", reason="the extra `dev`")
pytest.importorskip("starlette", reason="the extra `studio`")

from opendp_sim.serve.tokens import issue  # noqa: E402
from tests.serve._folder import made  # noqa: E402

ASK = "/v1/sessions/near/ask"
NEAR = {"queries": [[0.1, 0.2]]}
pytestmark = pytest.mark.long  # a process each, with all its imports


class Server:
    """A server in a process of its own."""

    def __init__(self, folder, token):
        command = [sys.executable, "-m", "opendp_sim", "serve", folder, "--port", "0", "--json"]
        self.process = subprocess.Popen(
            [*map(str, command), "--rate", "10000"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        said = ""
        while not said.endswith("}\n"):
            line = self.process.stdout.readline()
            assert line, self.process.stderr.read()
            said += line
        self.url = json.loads(said)["url"].rstrip("/")
        self.headers = {"authorization": f"Bearer {token}"}

    def answered(self):
        found = httpx.get(self.url + "/v1/sessions", headers=self.headers).json()
        return found["sessions"][0]["answered"]

    def ask(self, key, timeout=60):
        headers = self.headers | {"idempotency-key": key}
        return httpx.post(self.url + ASK, json=NEAR, headers=headers, timeout=timeout)

    def stop(self, signum=signal.SIGTERM):
        self.process.send_signal(signum)
        _, error = self.process.communicate(timeout=60)
        return self.process.returncode, error


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = made(tmp_path_factory.mktemp("stopped"))
    return folder, issue(folder / "tokens.json", "ann", "analyst", 1)


def asked_until(server, signum, count, told):
    """Ask ``count`` keys at once, send a signal after ``told`` answers; return what each key was told."""
    found, keys = {}, [uuid.uuid4().hex for _ in range(count)]

    def one(key):
        try:
            answer = server.ask(key)
            found[key] = (answer.status_code, answer.json())
        except (httpx.HTTPError, ValueError) as error:
            found[key] = (None, type(error).__name__)

    threads = [threading.Thread(target=one, args=(key,)) for key in keys]
    for thread in threads:
        thread.start()
    while sum(status == 200 for status, _ in list(found.values())) < told:
        time.sleep(0.001)
    code, error = server.stop(signum)
    for thread in threads:
        thread.join()
    return keys, found, code, error


def test_sigterm_answers_what_was_taken_and_charges_nothing_else(place):
    server = Server(*place)
    before = server.answered()
    keys, found, code, error = asked_until(server, signal.SIGTERM, 16, 1)
    assert code == 143
    assert "is charged in" in error
    assert "Traceback" not in error
    told = {key: body for key, (status, body) in found.items() if status == 200}
    server = Server(*place)
    try:
        assert server.answered() == before + len(told)  # charged: exactly who was answered
        for key, body in told.items():
            again = server.ask(key).json()
            assert (again["answers"], again["replayed"]) == (body["answers"], True)
        for key in set(keys) - set(told):  # came after the door was closed
            assert server.ask(key).json()["replayed"] is False
    finally:
        assert server.stop()[0] == 143


def test_sigkill_tells_nothing_wrongly_and_loses_nothing(place):
    """Charged = replayed + lost, and lost is none: a key is in the transaction of its charge."""
    for told in (0, 1, 3, 6):
        server = Server(*place)
        before = server.answered()
        keys, found, code, _ = asked_until(server, signal.SIGKILL, 16, told)
        assert code == -signal.SIGKILL
        first = {key: body for key, (status, body) in found.items() if status == 200}
        server = Server(*place)
        try:
            charged = server.answered() - before
            assert charged >= len(first)
            again = {key: server.ask(key).json() for key in keys}
            replayed = [key for key in keys if again[key]["replayed"]]
            assert len(replayed) == charged
            for key, body in first.items():
                assert again[key]["answers"] == body["answers"]
                assert key in replayed
            assert server.answered() == before + len(keys)
        finally:
            assert server.stop()[0] == 143


def test_the_document_by_schemathesis(place, tmp_path):
    """Every generated request gets a status and a body that the document has; none is a failure."""
    schemathesis = pytest.importorskip("schemathesis", reason="the extra `dev`")
    del schemathesis
    server = Server(*place)
    try:
        command = [sys.executable, "-m", "schemathesis.cli", "run", server.url + "/openapi.json"]
        command += ["--header", f"Authorization: {server.headers['authorization']}"]
        command += ["--max-examples", "25", "--seed", "1", "--phases", "examples,fuzzing"]
        command += [
            "--checks",
            "not_a_server_error,status_code_conformance,content_type_conformance",
        ]
        command[-1] += ",response_schema_conformance"
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=280, check=False, cwd=tmp_path
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    finally:
        code, error = server.stop()
    assert code == 143
    assert "Traceback" not in error
