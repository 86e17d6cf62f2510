"""
Penguins: the species from four measures
========================================

Noisy means of three species (342 penguins of Palmer Station, CC0, in ``specs/data``), asked at several
budgets: fewer records need a larger epsilon.
"""

import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import opendp_sim as sim

penguins = pd.read_csv(Path(os.environ.get("OPENDP_SIM_ROOT", ".")) / "specs/data/penguins.csv")
penguins = penguins.sample(frac=1, random_state=0)
train, test = penguins[:240], penguins[240:]
bounds = {
    "bill_length": (30, 65),
    "bill_depth": (10, 25),
    "flipper_length": (160, 240),
    "body_mass": (2000, 7000),
}
species = ["Adelie", "Chinstrap", "Gentoo"]

# %%
# Five runs at each budget show how much the noise matters. Each run would be charged.

figure, ax = plt.subplots(layout="constrained")
for epsilon in (0.25, 0.5, 1.0, 2.0, 4.0):
    plan = sim.means(bounds, label="species", keys=species, epsilon=epsilon)
    for _ in range(5):
        release = plan.apply(train, into=Path(tempfile.mkdtemp()))
        found = release.nearest_class(test[[*bounds]])["label"]
        ax.scatter(
            f"{epsilon:g}", (found == test["species"].to_numpy()).mean(), color="C0", alpha=0.5
        )
ax.set(xlabel="epsilon (delta 1e-6)", ylabel="share of right species among 102", ylim=(0, 1))
plt.show()
