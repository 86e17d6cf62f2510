"""
Cities: a private map beside the true one
=========================================

Places of 8,344 European cities (GeoNames, CC BY 4.0, in ``specs/data``). Cells that cannot be told from
noise are hatched.
"""

import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import opendp_sim as sim
from opendp_sim.plots import DensityDisplay

cities = pd.read_csv(Path(os.environ.get("OPENDP_SIM_ROOT", ".")) / "specs/data/cities.csv")
bounds = {"east": (-12, 42), "north": (34, 62)}

# %%
# One release, at epsilon 0.5.

plan = sim.density(bounds, bandwidth=1.0, epsilon=0.5)
release = plan.apply(cities, into=Path(tempfile.mkdtemp()))

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.hexbin(cities["east"], cities["north"], gridsize=60, bins="log", cmap="Greys")
left.set(title="the cities (never released)", xlabel="east", ylabel="north")
DensityDisplay.from_release(release, "east", "north").plot(right)
right.set_title("private, epsilon 0.5")
plt.show()

# %%
# Any number of questions to the release costs nothing more.

capitals = {"London": (-0.1, 51.5), "Rome": (12.5, 41.9), "Helsinki": (24.9, 60.2)}
answers = release.density(np.array([*capitals.values()]), confidence=0.95)
near, low, high = (answers[name] for name in ("density", "lower", "upper"))
for at, name in enumerate(capitals):
    print(f"{name:<9} {near[at]:6.1f} cities near, between {low[at]:.0f} and {high[at]:.0f}")
