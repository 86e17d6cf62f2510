"""Read classes' docstrings, also under ``-OO``.

Certificates and pages are made of these texts: without them a certificate would say less than the one
that another process writes of the same run, and each would refuse the other's.
"""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache

from opendp_sim.core.system.syntax_trees import tried_again

_LEFT_OUT = 2
"""The level of ``sys.flags.optimize`` from which docstrings are left out."""


def doc_of(about: type) -> str:
    """Return a class's dedented docstring, empty without one."""
    return from_source(about) if sys.flags.optimize >= _LEFT_OUT else inspect.getdoc(about) or ""


@cache
def from_source(about: type) -> str:
    """Return the docstring of a class as its file has it."""
    made = tried_again(lambda: ast.parse(inspect.getsource(about))).body[0]
    return (ast.get_docstring(made) if isinstance(made, ast.ClassDef) else None) or ""
