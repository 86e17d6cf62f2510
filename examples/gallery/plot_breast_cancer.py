"""
Breast cancer: choose a model privately
=======================================

569 patients, 30 measurements. ``GridSearchCV`` would choose by raw scores of private records.
:class:`~opendp_sim.sklearn.DPSearch` charges its choice.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from opendp_sim.sklearn import Budget, DPLogisticRegression, DPSearch, cost_of

data = load_breast_cancer()
X, X_test, y, y_test = train_test_split(data.data, data.target, test_size=0.25, random_state=1)

# %%
# Public ranges of the 30 measurements: means, standard errors and largest values of ten features of
# a cell's nucleus, in the units of the microscope.

means = "40 50 250 3000 .2 .5 .5 .25 .4 .1"
errors = "3 5 25 600 .04 .15 .4 .06 .1 .03"
worst = "40 60 300 5000 .3 1.2 1.3 .3 .7 .25"
bounds = [0.0] * 30, [float(word) for word in f"{means} {errors} {worst}".split()]

budget = Budget(epsilon=4.0, delta=1e-6)
model = DPLogisticRegression(epsilon=1.5, bounds=bounds, classes=[0, 1])
search = DPSearch(model, {"max_iter": [16, 64], "data_norm": [None, 1.0]}, budget=budget)
print(cost_of(search))

# %%
search.fit(X, y)
print("chosen:", search.best_params_)
print("right on the test part:", round(search.score(X_test, y_test), 3))
print("spent:", budget.total.text)

# %%
# The noisy accuracies that the choice was made by.

labels = [", ".join(f"{k}={v}" for k, v in p.items()) for p in search.cv_results_["params"]]
plt.barh(labels, search.cv_results_["accuracy"])
plt.xlabel("noisy accuracy on the held-out part")
plt.xlim(0, 1)
plt.tight_layout()
plt.show()
