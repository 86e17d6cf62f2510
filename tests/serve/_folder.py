"""A folder with a release, a session under a ledger, and things that must not be served."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from opendp_sim.dsl import apply, plan_file

RELEASE = """
spec: opendp_sim/2
name: all-places
data:
  points:
    source: {csv: places.csv}
    ledger: {file: places.ledger, limit: {mu: 3.0}}
    columns: {a: {dtype: float64, bounds: [0, 10]}, b: {dtype: float64, bounds: [-1, 1]}}
privacy: {unit: {add_remove: 1, of: row}, measure: gdp, budget: {mu: 1.0}}
flow:
  grid:
    from: points
    steps: [select: {features: [a, b]}, rescale: {centre: middle, scale: range}, quantize: {bits: 8}]
  noisy:
    from: grid
    steps: [fourier_sketch: {frequencies: 50, kernel: {gaussian: {bandwidth: 0.3}}, seed: 7}]
    release: {noise: gaussian, scale: solve, spend: 100%}
outputs: {places: {from: noisy, save: places.npz}}
"""
SESSION = """
spec: opendp_sim/2
name: near-people
data:
  people:
    source: {csv: people.csv}
    ledger: {file: people.ledger, limit: {mu: 1.0}}
    columns:
      x: {dtype: "array[f64, 2]", bounds: [-1, 1]}
      kind: {dtype: category, keys: [one, two]}
privacy: {unit: {add_remove: 1, of: row}, measure: gdp, budget: {mu: 0.9}}
flow:
  rows:
    from: people
    steps: [select: {features: x, label: kind}, quantize: {bits: 8}]
  neighbours:
    from: rows
    release: {mechanism: {ind_knn: {queries: 400, size: 200, threshold: 0.3, centre: false}}, spend: 100%}
outputs: {near: {from: neighbours, serve: session, store: near.session}}
"""


def made(folder: Path, run: tuple[str, ...] = ("places.yaml", "near.yaml")) -> Path:
    """Write data and specs, and run them."""
    rng = np.random.default_rng(3)
    rows = np.column_stack([rng.uniform(0, 10, 200), rng.uniform(-1, 1, 200)])
    folder.joinpath("places.csv").write_text("a,b\n" + "".join(f"{a},{b}\n" for a, b in rows))
    people = "".join(f"{a / 10},{b},{'one' if b > 0 else 'two'}\n" for a, b in rows)
    folder.joinpath("people.csv").write_text("x_0,x_1,kind\n" + people)
    folder.joinpath("places.yaml").write_text(RELEASE)
    folder.joinpath("near.yaml").write_text(SESSION)
    for spec in run:
        apply(plan_file(folder / spec))
    return folder


def spoilt(folder: Path) -> None:
    """Add what is left out: links, other files, a session that was not started."""
    shutil.copy(folder / "places.npz", folder / "alone.npz")  # no certificate
    (folder / "damaged.npz").write_bytes(b"PK")
    (folder / "link.npz").symlink_to(folder / "places.npz")
    (folder / "bad.yaml").write_text("spec: opendp_sim/2\nname: [")
    (folder / "later.yaml").write_text(SESSION.replace("near.session", "later.session"))
    free = SESSION.replace("    ledger: {file: people.ledger, limit: {mu: 1.0}}\n", "")
    (folder / "free.yaml").write_text(free.replace("near.session", "free.session"))
