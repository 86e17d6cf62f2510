"""Decide whether the running command prints, without slow imports."""

from __future__ import annotations

_QUIET = [False]


def hush(*, on: bool) -> None:
    """Print only errors, session answers and JSON, while a command runs."""
    _QUIET[0] = on


def hushed() -> bool:
    """Say whether the command that runs was given ``--quiet``."""
    return _QUIET[0]
