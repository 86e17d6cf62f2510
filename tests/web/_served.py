"""A server of one application on a real socket, in a thread of the tests' process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def served(application: Callable[[str], Any]) -> Iterator[str]:
    """Serve ``application(host)``; yield the host, ``127.0.0.1:PORT``."""
    from opendp_sim.web.server import address_of, bound_socket, server_of

    bound = bound_socket("127.0.0.1", 0)
    host = address_of(bound)
    server = server_of(application(host))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.005)
        yield host
    finally:
        server.should_exit = True
        thread.join(20)
        bound.close()
        assert not thread.is_alive()
