"""Spark Connect, a client of a server in another process: one machine's bits, silent logs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opendp_sim.engines.check import check
from opendp_sim.engines.engine import engine_of
from opendp_sim.engines.on_connect import Connect

from . import clusters, made
from .test_clusters import test_no_value_is_in_a_log_an_event_or_an_exception as silent

pytest.importorskip("pyarrow")
pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with clusters.connect_server(tmp_path_factory.mktemp("connect")) as found:
        yield found


@pytest.fixture(scope="module")
def sc(server: Any) -> Iterator[Any]:
    with engine_of(server.address)._started() as session:
        session.events, session.log = server.events, server.log
        yield session


@pytest.mark.parametrize("spec", ["race", "persons", "votes", "words"])
def test_the_bits_of_one_machine(spec: str, sc: Any, tmp_path: Path) -> None:
    made.write(tmp_path, made.table())
    plan = made.plan_for(spec, tmp_path)
    for parts in (1, 3, 17) if spec == "persons" else (3,):
        assert made.same(made.one_machine(plan), Connect(sc, parts).sums(plan)["n"])


@pytest.mark.usefixtures("sc")
def test_no_value_is_in_a_log_an_event_or_an_exception(
    request: pytest.FixtureRequest, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    silent("sc", request, tmp_path, capfd)


def test_an_address_is_enough(server: Any, tmp_path: Path) -> None:
    found = list(check(engine_of(server.address, parts=2), tmp_path, 300))
    assert [(one.equal, one.told) for one in found] == [(True, None)] * 4
