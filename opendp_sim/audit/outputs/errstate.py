"""Control numpy's floating-point error handling.

The caller's choice for audited runs, else numpy's default. A process that lets numpy raise would end
an audit in the auditor's own arithmetic, and a function that sets it for itself would, too. A release
keeps what its process chose: what it raises is an output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

_CHOSEN: ContextVar[dict[str, Any]] = ContextVar("chosen", default={})  # noqa: B039 - never written to


@contextmanager
def numpys_own() -> Iterator[None]:
    """Set numpy's default error handling, and remember the caller's."""
    token = _CHOSEN.set(dict(np.geterr()))
    try:
        with np.errstate(all="warn", under="ignore"):
            yield
    finally:
        _CHOSEN.reset(token)


def as_chosen(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a run under the caller's error handling."""
    chosen = _CHOSEN.get()

    def under(data: Any) -> Any:
        with np.errstate(**chosen):
            return run(data)

    return under
