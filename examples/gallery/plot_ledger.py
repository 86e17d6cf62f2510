"""
A ledger: one limit over all questions
======================================

Every run over the same data is charged before the data is read, and the ledger refuses what does not fit.
It is a file that outlives the process.
"""

import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import opendp_sim as sim
from opendp_sim.plots import BudgetDisplay

penguins = pd.read_csv(Path(os.environ.get("OPENDP_SIM_ROOT", ".")) / "specs/data/penguins.csv")
folder = Path(tempfile.mkdtemp())
budget = {"ledger": folder / "penguins.ledger", "limit": {"epsilon": 3.0, "delta": 1e-6}}
bills = {"bill_length": (30, 65), "bill_depth": (10, 25)}

# %%
# Three questions fit. The fourth is refused, and nothing is opened for it.

sim.means(bills, epsilon=1.0, **budget).apply(penguins, into=folder / "means")
sim.density(bills, bandwidth=2.0, epsilon=1.5, **budget).apply(penguins, into=folder / "density")
sim.means({"body_mass": (2000, 7000)}, epsilon=1.0, **budget).apply(penguins, into=folder / "mass")
try:
    sim.density(bills, bandwidth=1.0, epsilon=2.0, **budget).apply(penguins, into=folder / "more")
except sim.SimError as refused:
    print(refused)

# %%
figure, ax = plt.subplots(layout="constrained")
BudgetDisplay.from_ledger(folder / "penguins.ledger").plot(ax)
plt.show()
