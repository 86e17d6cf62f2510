"""Where type checkers find a release's questions as methods: ``questions.pyi``, which is generated."""

from __future__ import annotations


class Questions:
    """Every question is a method of a release (``Release.__getattr__``); nothing is defined here."""
