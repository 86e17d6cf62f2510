"""A folder served on a real socket, in a thread of the tests' process."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager

import pytest

httpx = pytest.importorskip("httpx", reason="the extra `dev`")
pytest.importorskip("starlette", reason="the extra `studio`")

from opendp_sim.dsl.run.session import serve  # noqa: E402
from opendp_sim.serve.application import Application  # noqa: E402
from opendp_sim.serve.folder import list_folder  # noqa: E402
from opendp_sim.serve.tokens import Tokens, issue  # noqa: E402
from tests.serve._folder import made, spoilt  # noqa: E402
from tests.web._served import served  # noqa: E402

ASK = "/v1/sessions/near/ask"


class House:
    """A served folder: its client, a header for each role, its open session."""

    def __init__(self, folder, host, application, tokens):
        self.folder, self.host, self.application = folder, host, application
        self.client = httpx.Client(base_url=f"http://{host}", timeout=30)
        self.roles = {role: {"authorization": f"Bearer {one}"} for role, one in tokens.items()}
        self.desk = application._desks.get("near")

    def get(self, path, role="analyst", **more):
        return self.client.get(path, headers=self.roles[role] | more)

    def post(self, path, body, role="analyst", **more):
        headers = self.roles[role] | {k.replace("_", "-"): v for k, v in more.items()}
        return self.client.post(path, json=body, headers=headers)

    def ask(self, body, key, role="analyst"):
        return self.post(ASK, body, role, idempotency_key=key)


@contextmanager
def served_house(folder):
    file = folder / "tokens.json"
    people = {"analyst": "analyst", "bob": "analyst", "officer": "officer", "curator": "curator"}
    people["operator"] = "operator"
    tokens = {name: issue(file, name, role, 30) for name, role in people.items()}
    with ExitStack() as stack:
        found = list_folder(folder)
        opened = {n: serve(s.plan, s.output) for n, s in found.sessions.items()}
        held = {}

        def build(host):
            held["app"] = Application(found, opened, Tokens(file, rate=1e6, burst=1e6), [host])
            return held["app"].guarded

        host = stack.enter_context(served(build))
        stack.callback(held["app"].close)
        made_house = House(folder, host, held["app"], tokens)
        stack.callback(made_house.client.close)
        yield made_house


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    folder = made(tmp_path_factory.mktemp("served"))
    spoilt(folder)
    with served_house(folder) as found:
        yield found
