"""A small program over files, for tests of the language from end to end."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from tests._golden import FOLDER


def points(count=200, seed=3):
    generator = np.random.default_rng(seed)
    return {"x": generator.random((count, 3)), "kind": generator.choice(["a", "b"], count)}


def write_small(folder: Path, *changes: tuple[str, str], data=None, queries=None) -> Path:
    """Write spec, data and queries into ``folder``; return the spec's path."""
    text = (FOLDER / "small.yaml").read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    spec = folder / "small.yaml"
    spec.write_text(text)
    np.savez(folder / "points.npz", **(points() if data is None else data))
    asked = {"x": points(20, 9)["x"]} if queries is None else queries
    np.savez(folder / "queries.npz", **asked)
    return spec


def fresh(folder: Path) -> None:
    shutil.rmtree(folder / "out", ignore_errors=True)
