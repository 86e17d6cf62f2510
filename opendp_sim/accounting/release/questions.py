"""Declare a release's question methods for type checkers in ``questions.pyi``."""

from __future__ import annotations


class Questions:
    """Declare questions as methods, which ``Release.__getattr__`` gives."""
