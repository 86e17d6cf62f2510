"""One PostgreSQL server for all tests of what is kept there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.accounting import _server


@pytest.fixture(scope="session")
def server() -> Iterator[_server.Server]:
    pytest.importorskip("psycopg")
    if not _server.FOUND:
        pytest.skip("no PostgreSQL on this machine")
    with _server.running() as found:
        yield found


@pytest.fixture
def place(server: _server.Server, request: pytest.FixtureRequest) -> str:
    """Return the place of a ledger or store of the test's own."""
    return f"postgresql:one/{request.node.name}"
