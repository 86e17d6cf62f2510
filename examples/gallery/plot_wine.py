"""
Wine: class means of three cultivars
====================================

178 wines of three growers, 13 chemical measurements. Noisy sums of each class answer which class a new
wine is nearest to.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split

import opendp_sim as sim

data = load_wine(as_frame=True)
table = data.data.assign(grower=data.target)
train, test = train_test_split(table, test_size=0.3, random_state=2)

# %%
# What a laboratory can expect, not what these wines hold.

bounds = {
    "alcohol": (10, 16),
    "malic_acid": (0, 6),
    "ash": (1, 4),
    "alcalinity_of_ash": (10, 30),
    "magnesium": (60, 170),
    "total_phenols": (0.5, 4),
    "flavanoids": (0, 5),
    "nonflavanoid_phenols": (0, 1),
    "proanthocyanins": (0, 4),
    "color_intensity": (1, 13),
    "hue": (0.4, 1.8),
    "od280/od315_of_diluted_wines": (1, 4),
    "proline": (200, 1700),
}
shares = {}
for epsilon in (0.5, 1.0, 2.0, 4.0):
    plan = sim.means(bounds, label="grower", keys=[0, 1, 2], epsilon=epsilon)
    release = plan.apply(train, into=Path(tempfile.mkdtemp()))
    answers = release.nearest_class(test[list(bounds)])
    shares[f"{epsilon:g}"] = float((answers["label"] == test["grower"]).mean())
print({epsilon: round(share, 2) for epsilon, share in shares.items()})

# %%
plt.bar(shares.keys(), shares.values())
plt.axhline(1 / 3, linestyle="--", color="gray")
plt.xlabel("epsilon (delta 1e-6)")
plt.ylabel("share of right growers among 54 wines")
plt.show()
