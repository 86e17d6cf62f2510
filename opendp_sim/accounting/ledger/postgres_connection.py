"""Connect ledgers and stores to a PostgreSQL server.

Addresses, connections, deadlines and causes of failures. No call waits for ever. libpq gives up a
network that says nothing; a server that was reached and does not answer (frozen, or behind a proxy
that acknowledges) is given up here after ``_ANSWER`` seconds, and a signal that is held meanwhile ends
the wait sooner. Whether the call was done is then not known.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from opendp_sim.accounting.ledger._refusals import refused
from opendp_sim.core.interrupts import signal_waits
from opendp_sim.core.system.escape_text import escape

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
back Ctrl-C while it commits."""
_OPTIONS = (
    "-c lock_timeout=5000 -c idle_in_transaction_session_timeout=10000 "
    r"-c default_transaction_isolation=read\ committed"
)
"""Milliseconds: a client that hangs must not keep a ledger. The isolation that the proofs assume."""
_ANSWER, _STOPPED = 10.0, 1.0
"""Seconds that one call may take: more than a lock is waited for; and while a signal is held."""
_AWAY, _ABSENT = 30.0, 5.0
"""Seconds in which a call is tried again where the server is away; and where it was never there."""
_PAUSE, _LONGEST_PAUSE = 0.02, 4.0
"""Seconds between the first two tries; each pause is some twice the one before."""


def is_shared(path: str | Path) -> bool:
    """Say whether a ledger's or a store's place is in a database."""
    return str(path).startswith(PREFIX)


def parse_address(path: Path) -> tuple[str, str]:
    """Return the service (of libpq) and the ledger that ``postgresql:SERVICE/LEDGER`` names.

    Bytes that are no text, and a zero byte, are no name: the server takes neither.
    """
    service, _, name = str(path).removeprefix(PREFIX).partition("/")
    if not service or not name or "\0" in name or name.encode("utf-8", "ignore").decode() != name:
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


# --- connections ----------------------------------------------------------------------------------


def connect(path: Path, options: str = "") -> Any:
    """Return a connection to ``postgresql:SERVICE/NAME`` whose calls have a deadline.

    Raises:
        BudgetError (OS403): a bad name, or no package. psycopg.Error: see ``cause_of``.
    """
    psycopg, service = psycopg_of(path), parse_address(path)[0]
    told = f"{_OPTIONS} {options}".strip()
    db = psycopg.connect(
        service=service, options=told, autocommit=True, client_encoding="utf-8", **PATIENCE
    )  # whatever the environment and the database use: what is exchanged is text
    wait = db.wait
    db.wait = lambda call, *more, **by_name: wait(_answered(psycopg, db, call), *more, **by_name)
    return db


def _answered(psycopg: Any, db: Any, call: Any) -> Any:
    """Run a call of the driver under a deadline."""
    begun = time.monotonic()
    try:
        wanted = next(call)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() - begun > (_STOPPED if signal_waits() else _ANSWER):
                db.pgconn.finish()
                raise psycopg.errors.ConnectionTimeout("no answer in time")
            wanted = call.send(ready)
    except StopIteration as end:
        return end.value


def check_durable(path: Path, db: Any) -> None:
    """Refuse (OS403) a server that may lose what it committed."""
    for key, good in _DURABLE.items():
        value = str(db.execute(f"SHOW {key}").fetchone()[0])
        if value not in good:
            raise refused(
                path, f"a server with {key} {good[0]}", value,
                "a server that may lose a commit keeps no charges; ask its administrator.",
            )  # fmt: skip


def tries(*, met: bool = True) -> Iterator[None]:
    """Yield before each try of a call, after growing pauses, not forever.

    Signals that are held end the tries. A server that answered before (``met``) may have charged
    something, and is waited for longer.
    """
    until, pause = time.monotonic() + (_AWAY if met else _ABSENT), _PAUSE
    yield
    while time.monotonic() < until and not signal_waits():
        # At random: two clients that were in each other's way would be so again.
        again = min(time.monotonic() + pause * (500 + secrets.randbelow(1000)) / 1000, until)
        while (left := again - time.monotonic()) > 0 and not signal_waits():
            time.sleep(min(left, 0.1))
        pause = min(2 * pause, _LONGEST_PAUSE)
        yield


# --- causes ---------------------------------------------------------------------------------------


class FailureCause(NamedTuple):
    """A failure of a server in words.

    Attributes:
        passes: whether the call may succeed when it is tried again.
        expected: by the caller.
        got: in its place.
        hint: for the user.
    """

    passes: bool
    expected: str
    got: str
    hint: str


_GONE = FailureCause(
    True,
    "a database that answers",
    "no answer",
    "see that it runs, and that the service's host and port are its; then try again",
)
_BUSY = FailureCause(True, "a server with a connection left", "too many clients", "try again later")
_CAUSES = {
    "22P05": FailureCause(
        False, "a name in the characters of this database", "one with others",
        "use ASCII letters, or a database whose encoding is UTF8",
    ),
    "25006": FailureCause(
        False, "a server that can be written to", "one that only reads",
        "a standby, or `default_transaction_read_only` is set: name the primary; "
        "`target_session_attrs=read-write` in the service file finds it",
    ),
    "25P03": _GONE,
    "40": FailureCause(
        True, "a transaction of its own", "others that were in its way each time",
        "try again when fewer clients write",
    ),
    "42501": FailureCause(
        False, "a role with the rights to a ledger", "one without",
        "it needs USAGE on the schema opendp_sim, SELECT and INSERT on opendp_sim.entry, SELECT and "
        "UPDATE on opendp_sim.ledger; a first `apply` CREATE on the database",
    ),
    "42P01": FailureCause(
        False, "a database with this ledger", "one without", "`opendp-sim ledger new SPEC` makes it"
    ),
    "53": FailureCause(
        True, "a server with room on its disk and in memory", "one without",
        "ask its administrator, then try again",
    ),
    "53300": _BUSY,
    "55P03": FailureCause(
        True, "a row that is free within 5 seconds", "one that another client holds",
        "wait for that client, or end it: `pg_blocking_pids` and `pg_stat_activity` say which it is",
    ),
    "57": _GONE,
    "57014": FailureCause(
        True, "a statement that the server ends", "one that it cancelled",
        "raise `statement_timeout` for this role, and try again",
    ),
    "58": FailureCause(
        True, "a server that can read and write its files", "one that cannot",
        "ask its administrator, then try again",
    ),
}  # fmt: skip
"""Causes by the server's code, or by the class that it begins with."""
_OTHER = FailureCause(
    False,
    "a database that keeps this",
    "one that refuses",
    "ask its administrator; its log says why",
)
_WORDS = (
    ("too many ", _BUSY),
    ("connection slots ", _BUSY),
    ("server closed the connection unexpectedly", _GONE),
)
"""Words of refused connections, in English: libpq hands on no code of one. Without them, and in another
language, what refuses one that was not met before is no passing thing."""


def cause_of(path: Path, error: Any, *, connected: bool, met: bool = False) -> FailureCause:
    """Return a driver's failure, with its text only for refused connections.

    Where the server took this client before (``met``), a refused connection passes, whatever the language
    that it is refused in.
    """
    psycopg = psycopg_of(path)
    if error.sqlstate is not None:
        code = str(error.sqlstate)
        return _CAUSES.get(code, _CAUSES.get(code[:2], _OTHER))
    if not isinstance(error, psycopg.OperationalError):
        return _OTHER
    if connected or isinstance(error, psycopg.errors.ConnectionTimeout):
        return _GONE
    found = _refused_connection(path, psycopg, str(error))
    return found._replace(passes=found.passes or met)


def _refused_connection(path: Path, psycopg: Any, text: str) -> FailureCause:
    """Return the cause of a refused connection, after asking the server."""
    service = f"service={parse_address(path)[0]} connect_timeout={PATIENCE['connect_timeout']}"
    state = psycopg.pq.PGconn.ping(service.encode())
    if state in (psycopg.pq.Ping.REJECT, psycopg.pq.Ping.NO_RESPONSE):
        return _GONE
    first = (text.rpartition("failed: ")[2].strip().splitlines() or [""])[0]
    for word, cause in _WORDS:
        if word in first:
            return cause
    why = escape(first.rpartition("FATAL:")[2].strip())[:200]
    return FailureCause(
        False,
        "a database that takes this client",
        f"a refused connection: {why}",
        "look at the service's host, database, user and password, and at the server's pg_hba.conf",
    )
