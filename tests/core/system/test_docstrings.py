"""What a class says of itself is the same with and without Python's docstrings."""

from __future__ import annotations

import inspect
import sys
from types import SimpleNamespace

import opendp_sim.prelude  # noqa: F401 - fills the catalogue
from opendp_sim.core.mechanism import REGISTRY
from opendp_sim.core.system.docstrings import doc_of, from_source


def test_every_mechanism_says_the_same_where_docstrings_are_left_out(monkeypatch):
    """`python -OO` took certificates for changed ones, and `explain` was empty."""
    kept = {key: doc_of(about) for key, about in REGISTRY.items()}
    monkeypatch.setattr(sys, "flags", SimpleNamespace(optimize=2))
    for key, about in REGISTRY.items():
        assert doc_of(about) == from_source(about) == kept[key] == inspect.getdoc(about), key
