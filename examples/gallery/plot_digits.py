"""
Handwritten digits: how right at which budget?
==============================================

1,797 images of digits. A softmax regression is released at three budgets, and compared with logistic
regression without noise.
"""

# %%
# Bounds and classes are public knowledge. Nothing about them is read from the data.

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from opendp_sim.sklearn import DPLogisticRegression

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=0)

budgets = [0.5, 1.0, 2.0]
found = []
for epsilon in budgets:
    model = DPLogisticRegression(epsilon=epsilon, bounds=(0, 16), classes=range(10))
    found.append(model.fit(X, y).score(X_test, y_test))
raw = LogisticRegression(max_iter=200).fit(X / 16, y).score(X_test / 16, y_test)
print(
    {epsilon: round(score, 3) for epsilon, score in zip(budgets, found, strict=True)}, round(raw, 3)
)

# %%
# The test images are public here. To score on private records, use
# :func:`~opendp_sim.sklearn.private_score`, which is charged.

plt.semilogx(budgets, found, marker="o", label="private")
plt.axhline(raw, linestyle="--", color="gray", label="without privacy")
plt.xticks(budgets, [f"{b:g}" for b in budgets])
plt.gca().minorticks_off()
plt.xlabel("epsilon (delta 1e-6)")
plt.ylabel("share of right labels")
plt.ylim(0.5, 1)
plt.legend()
plt.show()
