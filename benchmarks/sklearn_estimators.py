"""Estimators beside diffprivlib's and the non-private originals: accuracy and fit time.

python -m benchmarks.sklearn_estimators [--write]
"""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import train_test_split
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from benchmarks._results import parser, table as markdown, write_section
from opendp_sim import sklearn as face

SEEDS = 2
EPSILONS = (0.1, 0.5, 1.0, 2.0)


def made(return_X_y):
    """Return 20,000 records in 20 columns and 4 classes: the one set that is not small."""
    assert return_X_y
    return make_classification(
        20_000, 20, n_informative=12, n_redundant=4, n_classes=4, class_sep=1.5, random_state=3
    )


NAMES = {
    "digits": (load_digits, (0.0, 16.0)),
    "breast cancer": (load_breast_cancer, None),
    "wine": (load_wine, None),
    "made, 20,000": (made, None),
}


def data(load, bounds):
    """Return the set scaled to [0, 1]: by its documented range, or (as public) by its own."""
    X, y = load(return_X_y=True)
    if bounds is None:
        return MinMaxScaler().fit_transform(X), y
    return (X - bounds[0]) / (bounds[1] - bounds[0]), y


def ours(classes, width):
    told = {"bounds": (0, 1), "classes": classes}
    return {
        "DPNearestCentroid": face.DPNearestCentroid(**told),
        "DPRidgeClassifier": face.DPRidgeClassifier(**told),
        "DPLogisticRegression": face.DPLogisticRegression(**told),
        "DPKernelClassifier": face.DPKernelClassifier(**told, bandwidth=0.25 * width**0.5),
    }


def theirs(width):
    import sklearn.tree._tree as trees

    for name in ("DOUBLE", "DTYPE"):  # its forests, unused here, ask newer scikit-learns for them
        if not hasattr(trees, name):
            setattr(trees, name, np.float64)
    from diffprivlib.models import GaussianNB

    return {"diffprivlib GaussianNB": GaussianNB(bounds=(np.zeros(width), np.ones(width)))}


def measured():
    rows = []
    for name, (load, bounds) in NAMES.items():
        X, y = data(load, bounds)
        parts = [
            train_test_split(X, y, test_size=0.3, random_state=s, stratify=y) for s in range(SEEDS)
        ]
        classes = list(range(int(y.max()) + 1))
        private = ours(classes, X.shape[1]) | theirs(X.shape[1])
        for what, est in private.items():
            found, clock = {e: [] for e in EPSILONS}, []
            for split in parts:
                for e in EPSILONS:
                    start = time.process_time()
                    try:
                        fit = clone(est).set_params(epsilon=e).fit(split[0], split[2])
                        clock.append(time.process_time() - start)
                        found[e].append(fit.score(split[1], split[3]))
                    except Exception:  # noqa: BLE001 - another library's failure is a result
                        found[e].append(np.nan)
            cells = [
                f"{np.mean(v):.3f} ± {np.std(v, ddof=1) / SEEDS**0.5:.3f}" for v in found.values()
            ]
            rows.append([name, what, *cells, f"{np.median(clock):.2f}"])
        for twin in (
            NearestCentroid(),
            RidgeClassifier(),
            make_pipeline(LogisticRegression(max_iter=1000)),
        ):
            what = type(twin[-1] if hasattr(twin, "steps") else twin).__name__
            start = time.process_time()
            fits = [clone(twin).fit(s[0], s[2]) for s in parts]
            clock = (time.process_time() - start) / SEEDS
            score = np.mean([fit.score(s[1], s[3]) for fit, s in zip(fits, parts, strict=True)])
            rows.append(
                [name, f"{what} (not private)", *[f"{score:.3f}"] * len(EPSILONS), f"{clock:.2f}"]
            )
    return rows


if __name__ == "__main__":
    asked = parser(__doc__).parse_args()
    warnings.simplefilter("ignore")
    head = ["data", "classifier", *[f"epsilon {e:g}" for e in EPSILONS], "fit, CPU s"]
    text = markdown(head, measured())
    text += (
        f"\n\nAccuracy on 30 % held out, mean and standard error of {SEEDS} splits; ours at delta = 1e-6, diffprivlib's at "
        "delta = 0; scaled to [0, 1] (by a documented range, or by the public set's own); fit: CPU of all threads, median; nothing tuned (bandwidth: a quarter of the square root of the number of columns). diffprivlib's "
        "LogisticRegression cannot be made with this scikit-learn."
    )
    print(text)
    if asked.write:
        write_section(
            "sklearn: estimators", text, "python -m benchmarks.sklearn_estimators --write"
        )
