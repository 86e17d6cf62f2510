"""Declare a release's question methods for type checkers.

In ``questions.pyi``, which is generated.
"""

from __future__ import annotations


class Questions:
    """Declare every question as a release's method.

    ``Release.__getattr__`` gives them; nothing is defined here.
    """
