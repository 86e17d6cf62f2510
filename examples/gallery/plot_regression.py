"""
Regression: arrival from departure
==================================

Least squares from one noisy matrix of sums of products: how late does a flight arrive that left so late,
and flies so far? Later delays than three hours count as three hours.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import LinearRegression

from opendp_sim.sklearn import DPRidge

flights = pd.read_csv(Path(os.environ.get("OPENDP_SIM_ROOT", ".")) / "specs/data/flights.csv")
X = flights[["dep_delay", "miles"]].to_numpy(dtype=float)
X[:, 0] = X[:, 0].clip(-60, 180)
y = flights["arr_delay"].clip(-60, 180).to_numpy(dtype=float)
bounds = {0: (-60, 180), 1: (0, 5000)}

# %%
left = np.array([-10.0, 0.0, 30.0, 60.0, 120.0])
asked = np.stack([left, np.full(5, 1000.0)], axis=1)
exact = LinearRegression().fit(X, y)
figure, ax = plt.subplots(layout="constrained")
for epsilon in (0.1, 1.0):
    model = DPRidge(epsilon=epsilon, bounds=bounds, y_bounds=(-60, 180)).fit(X, y)
    ax.plot(left, model.predict(asked), marker="o", label=f"epsilon {epsilon:g}")
    print(f"epsilon {epsilon:g}: minutes a mile {model.coef_[1]:.4f}")
ax.plot(left, exact.predict(asked), color="black", linestyle="--", label="without noise")
ax.set(xlabel="minutes late at departure (1,000 miles)", ylabel="predicted minutes late at arrival")
ax.legend()
plt.show()
