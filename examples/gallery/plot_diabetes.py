"""
Diabetes patients: a density map that shows what noise decides
==============================================================

Body mass index and blood pressure of 442 patients. The release answers any number of questions; cells
that cannot be told from noise are hatched.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

import opendp_sim as sim
from opendp_sim.plots import DensityDisplay

data = load_diabetes(scaled=False, as_frame=True).data
bounds = {"bmi": (15, 45), "bp": (60, 135)}  # what a clinic knows without its records

# %%
# A plan opens no data.

plan = sim.density(bounds, bandwidth={"bmi": 4.0, "bp": 10.0}, epsilon=1.0)
print(plan)

# %%
# The run spends epsilon 1, once.

folder = Path(tempfile.mkdtemp())
release = plan.apply(data[["bmi", "bp"]], into=folder)
figure, ax = plt.subplots(layout="constrained")
DensityDisplay.from_release(release, "bmi", "bp").plot(ax)
plt.show()

# %%
# Answers cost nothing more. How far off are they here? (Nobody could publish this line: it is made of
# the patients themselves.)

asked = {"bmi": [20, 25, 30, 35], "bp": [80, 90, 100, 110]}
private = release.density(asked)["density"]
rows, points = data[["bmi", "bp"]].to_numpy(), np.array([*asked.values()]).T
scaled = (rows[:, None] - points) / [4.0, 10.0]
print("private", private.round(), "true", np.exp(-(scaled**2).sum(axis=2) / 2).sum(axis=0).round())
