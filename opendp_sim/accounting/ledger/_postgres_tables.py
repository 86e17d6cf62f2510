"""One ledger of a PostgreSQL database: its tables, and transactions that hold its row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opendp_sim.accounting.ledger._entries import FORMAT, Terms, canonical, chained
from opendp_sim.accounting.ledger._file import refused
from opendp_sim.core.errors import BudgetError

PREFIX = "postgresql:"
_DURABLE = {
    "fsync": ("on",),
    "full_page_writes": ("on",),
    "synchronous_commit": ("on", "remote_apply"),
}
PATIENCE = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
"""Seconds, and milliseconds at last: a network that says nothing must not keep a client, which holds
back Ctrl-C while it commits. (A proxy that acknowledges and never answers is not found.)"""
_OPTIONS = "-c lock_timeout=5000 -c idle_in_transaction_session_timeout=10000"
"""Milliseconds: a client that hangs must not keep a ledger."""
_SCHEMA = """
CREATE SCHEMA IF NOT EXISTS opendp_sim;
CREATE TABLE IF NOT EXISTS opendp_sim.ledger (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL UNIQUE, genesis text NOT NULL, head text NOT NULL);
CREATE TABLE IF NOT EXISTS opendp_sim.entry (
  ledger bigint NOT NULL REFERENCES opendp_sim.ledger,
  seq bigint NOT NULL CHECK (seq > 0), token text NOT NULL, body text NOT NULL, hash text NOT NULL,
  PRIMARY KEY (ledger, seq), UNIQUE (ledger, token));
CREATE OR REPLACE FUNCTION opendp_sim.never() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN RAISE EXCEPTION 'entries are never changed'; END $$;
CREATE OR REPLACE TRIGGER never BEFORE UPDATE OR DELETE OR TRUNCATE ON opendp_sim.entry
  FOR EACH STATEMENT EXECUTE FUNCTION opendp_sim.never();
"""


def is_shared(path: str | Path) -> bool:
    """Say whether a ledger's or a store's place is in a database."""
    return str(path).startswith(PREFIX)


def named(path: Path) -> tuple[str, str]:
    """Return the service (of libpq) and the ledger that ``postgresql:SERVICE/LEDGER`` names."""
    service, _, name = str(path).removeprefix(PREFIX).partition("/")
    if not service or not name:
        raise refused(
            path, "postgresql:SERVICE/LEDGER", "another form",
            "name a service of libpq's service file; a password is never in a spec.",
        )  # fmt: skip
    return service, name


def psycopg_of(path: Path) -> Any:
    """Return psycopg 3, or refuse (OS403)."""
    try:
        import psycopg  # noqa: PLC0415 - an extra
    except ImportError:
        raise refused(
            path, "psycopg", "no such package", "pip install 'opendp_sim[postgres]'."
        ) from None
    return psycopg


@contextmanager
def connected(path: Path) -> Iterator[Any]:
    """Connect, look at the server's settings, and turn its errors into OS403.

    An operational error passes: whether a COMMIT was kept is then not known, and the token tells.
    """
    psycopg = psycopg_of(path)
    failed = False
    try:
        with psycopg.connect(
            service=named(path)[0], options=_OPTIONS, autocommit=True, **PATIENCE
        ) as db:
            if (weak := losing(db)) is not None:
                raise refused(
                    path,
                    f"a server with {weak[0]}",
                    weak[1],
                    "a server that may lose a commit is no ledger; ask its administrator.",
                )
            yield db
    except (psycopg.OperationalError, BudgetError):
        raise
    except psycopg.Error:
        failed = True
    if failed:
        raise refused(path, "a database with this ledger", "one that refuses",
                      "the first `apply` makes it; the role needs INSERT on opendp_sim.entry and "
                      "SELECT and UPDATE on opendp_sim.ledger.")  # fmt: skip


def losing(db: Any) -> tuple[str, str] | None:
    """Return (what is demanded, what is set) where a server may lose what it committed."""
    for key, good in _DURABLE.items():
        value = str(db.execute(f"SHOW {key}").fetchone()[0])
        if value not in good:
            return f"{key} {good[0]}", value
    return None


def make(db: Any, name: str, terms: Terms) -> None:
    """Make the tables and the ledger where they are not there yet."""
    genesis = canonical({"format": FORMAT, **terms.plain()})
    head = canonical({"count": 0, "hash": chained("", genesis)})
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(20)")  # two first runs at once
        if db.execute("SELECT to_regclass('opendp_sim.entry')").fetchone()[0] is None:
            db.execute(_SCHEMA)
        db.execute(
            "INSERT INTO opendp_sim.ledger (name, genesis, head) VALUES (%s, %s, %s) "
            "ON CONFLICT (name) DO NOTHING",
            (name, genesis, head),
        )


@contextmanager
def held(path: Path, db: Any) -> Iterator[int]:
    """Hold the ledger's row until the end of a transaction; gives the ledger's number.

    Every writer takes this lock first, so entries are made one after another.
    """
    with db.transaction():
        row = db.execute(
            "SELECT id FROM opendp_sim.ledger WHERE name = %s FOR UPDATE", (named(path)[1],)
        ).fetchone()
        if row is None:
            raise refused(path, "a ledger", "no such name", "the first `apply` makes it.")
        yield int(row[0])
