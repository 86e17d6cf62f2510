"""Contain exceptions of private functions, whose texts could contain records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opendp_sim.core.errors import InternalError, SimError
from opendp_sim.core.interrupts import shielded


def guarded(function: Callable[[Any], Any], where: str) -> Callable[[Any], Any]:
    """Wrap a private function so that its exceptions reveal nothing.

    A ``SimError`` has constant text by construction and passes, anything else becomes OS902. Neither
    keeps a cause, a context or a traceback whose frames hold data. Arithmetic warnings are silent,
    since whether they appear depends on the data.
    """
    inner = shielded(function)

    def run(data: Any) -> Any:
        try:
            with np.errstate(all="ignore"):
                return inner(data)
        except SimError as error:
            failed = error.with_traceback(None)
            failed.__cause__ = failed.__context__ = None
        except Exception:  # noqa: BLE001 - whatever it says may be about the data
            failed = InternalError(
                "OS902", where, expected="an answer", got="a failure inside the mechanism",
                hint="the text is withheld; run the mechanism on public data to reproduce it.",
            )  # fmt: skip
        del data
        raise failed

    return run
