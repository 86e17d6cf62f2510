"""Run an application on one socket until it is asked to stop.

Needs the extra ``studio`` (``opendp_sim.web.require_web``).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from opendp_sim.core.errors import ParameterError

HEADER_SECONDS = 10.0
"""Seconds until a request's headers have to be there."""
CONNECTIONS = 64
"""Connections at most; one more is answered with 503."""
STOP_SECONDS = 20
"""Seconds that requests have to end after SIGTERM."""
_HEADERS = 16_384


class _Timed(H11Protocol):
    """Close a connection whose request does not come to its end."""

    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a request, if there is one."""
        super().data_received(data)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing."""
        super().connection_lost(exc)
        self._stop()

    def _idle(self) -> bool:
        cycle: Any = self.cycle  # None before the first request
        return cycle is None or bool(cycle.response_complete)

    def _wait(self) -> None:
        if not self._idle():
            self._stop()
        elif self._clock is None:
            self._clock = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _give_up(self) -> None:
        self._clock = None
        if self._idle() and not self.transport.is_closing():
            self.transport.close()


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 is any free one.

    Raises:
        ParameterError (OS101): the address is not this machine's, or the port is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small answers at once only where the protocol is stated: 40 ms a request.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    only = getattr(socket, "SO_EXCLUSIVEADDRUSE", None)  # Windows lets another process in otherwise
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR if only is None else only, 1)
        found.bind((host, port))
        found.listen()  # from here on the port is taken
    except OSError:
        found.close()
        raise ParameterError(
            "OS101", "port", expected="an address of this machine and a free port",
            got=f"{host}:{port}", hint="choose another `--port`; 0 is any free one.",
        ) from None  # fmt: skip
    return found


def run_server(app: Any, bound: socket.socket, *, connections: int = CONNECTIONS) -> None:
    """Answer until SIGTERM or SIGINT, then let waiting requests end.

    The signal is raised again at the end. No access log: a path may hold a ticket.
    """
    server_of(app, connections=connections).run(sockets=[bound])


def server_of(app: Any, *, connections: int = CONNECTIONS) -> uvicorn.Server:
    """Return a server of uvicorn over an application, not started yet."""
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # it prints tracebacks, and requests
    config = uvicorn.Config(
        app,
        http=_Timed,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=5,
        limit_concurrency=connections,
        timeout_graceful_shutdown=STOP_SECONDS,
        h11_max_incomplete_event_size=_HEADERS,
    )
    return uvicorn.Server(config)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    return host in ("::1", "localhost") or host.startswith("127.")


def address_of(bound: socket.socket) -> str:
    """Return ``host:port`` of a bound socket, as a Host header has it."""
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
