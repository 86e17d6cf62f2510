"""A studio on a real socket, in a thread of the tests' process."""

from __future__ import annotations

import threading
import uuid
from contextlib import contextmanager

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the extra `studio` is not installed")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")

from opendp_sim.studio.app import Server  # noqa: E402 - after the extra

HEADER = "x,y,kind,who"
BODY = {
    "question": "density",
    "unit": "row",
    "rows": 1,
    "ids": "str",
    "columns": {"x": {"low": 0, "high": 1, "near": 0.1}, "y": {"low": 0, "high": 10, "near": 1}},
    "label": "",
    "keys": "",
    "target": "",
    "size": 60,
    "asked": 20,
    "item": "",
    "most": 10,
    "epsilon": 1,
    "delta": 1e-6,
    "limit": 3,
    "limit_delta": 1e-6,
    "stated": "",
}


def write_table(path, header=HEADER):
    rng = np.random.default_rng(7)
    rows = [
        f"{a:.4f},{10 * b:.4f},{'ab'[i % 2]},p{i // 2}"
        for i, (a, b) in enumerate(rng.random((60, 2)))
    ]
    path.write_text("\n".join([header, *rows, ""]), encoding="utf-8")
    return path


class Visitor(httpx.Client):
    """A page's requests, with the token that its address holds."""

    def __init__(self, server):
        self.server = server
        super().__init__(
            base_url=f"http://{server.host}",
            headers={"authorization": f"Bearer {server.address.partition('#')[2]}"},
            trust_env=False,
            timeout=30,
        )

    def api(self, name, **body):
        return self.post(f"/api/{name}", json=body)

    def planned(self, **words):
        found = self.api("plan", form=BODY | words).json()
        assert found["state"] == "planned", found
        return found

    def spend(self, found, nonce=None):
        facts = found["html"].partition('id="facts"')[2]
        head = facts.partition('data-head="')[2].partition('"')[0]
        return self.api("spend", plan=found["plan"], head=head, nonce=nonce or uuid.uuid4().hex)


@contextmanager
def serving(path, charged=lambda _text: None):
    server = Server(path, charged=charged)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        with Visitor(server) as visitor:
            yield visitor
    finally:
        server.stop()
        thread.join(20)
        assert not thread.is_alive()


@pytest.fixture
def studio(tmp_path):
    with serving(write_table(tmp_path / "trips.csv")) as visitor:
        yield visitor


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory):
    """A studio that no test spends from."""
    with serving(write_table(tmp_path_factory.mktemp("studio") / "trips.csv")) as visitor:
        yield visitor
