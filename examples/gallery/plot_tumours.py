"""
Tumours: one density a diagnosis
================================

Radius and concave points of cell nuclei of 569 tumours (UCI, CC BY 4.0, shipped by scikit-learn). The map
shows which diagnosis is likelier where, from one release.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer

import opendp_sim as sim
from opendp_sim.plots import ClassMapDisplay

data = load_breast_cancer(as_frame=True)
table = data.data[["mean radius", "mean concave points"]].assign(
    diagnosis=data.target_names[data.target]
)
bounds = {"mean radius": (5, 30), "mean concave points": (0, 0.25)}

plan = sim.classes(
    bounds,
    label="diagnosis",
    keys=["benign", "malignant"],
    bandwidth={"mean radius": 2.0, "mean concave points": 0.02},
    epsilon=1.0,
)
release = plan.apply(table, into=Path(tempfile.mkdtemp()))

# %%
figure, ax = plt.subplots(layout="constrained")
ClassMapDisplay.from_release(release, "mean radius", "mean concave points").plot(ax)
plt.show()

# %%
# Three new tumours.

print(release.classify([[11.0, 0.02], [15.5, 0.06], [20.0, 0.10]]))
