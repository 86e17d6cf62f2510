"""
Frequent items: the pixels with most ink
========================================

Every image votes for the pixels that it fills. Which items occur at all is private, so the list may be
shorter than asked for.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import opendp_sim as sim

images = load_digits().images
who, row, column = np.nonzero(images == 16)
votes = {"image": who, "pixel": np.array([f"{r},{c}" for r, c in zip(row, column, strict=True)])}

plan = sim.top("pixel", k=12, unit="image", ids="int64", epsilon=1.0)
table = plan.apply(votes, into=Path(tempfile.mkdtemp()))
print(table.to_pandas().head(12).to_string(index=False))

# %%
# The released pixels over the average image. The average is not released: it is drawn for comparison.

plt.imshow(images.mean(axis=0), cmap="gray_r")
for rank, place in enumerate(table["item"], start=1):
    r, c = map(int, place.split(","))
    plt.text(c, r, rank, color="orange", ha="center", va="center", weight="bold")
plt.axis("off")
plt.show()
