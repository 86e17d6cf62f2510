"""Multi-label PATE from end to end: teachers, their votes, private labels, what they cost.

Real handwritten digits, with labels derived from the digit (has a loop, is even, is prime, is five or
more), so an image carries up to three labels at once. Each teacher is a scikit-learn classifier
trained on its own part of the training images; a person's image is in one teacher alone. Putting
another image in its place retrains that teacher: one row of votes is removed and one added, d_in = 2.

    pip install 'opendp_sim[examples]'
    python examples/pate_digits.py                 # answers and what they cost
    python examples/pate_digits.py votes.npz       # write the votes for specs/teacher-votes.yaml
"""

from __future__ import annotations

import sys

import numpy as np
import opendp.prelude as dp
from opendp.extras.numpy import array2_domain
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import opendp_sim.prelude as sim

LABELS = ("loop", "even", "prime", "five or more")
OF_DIGIT = np.array([
    [digit in (0, 6, 8, 9), digit % 2 == 0, digit in (2, 3, 5, 7), digit >= 5] for digit in range(10)
])  # fmt: skip


def votes(teachers: int, queries: int) -> tuple[np.ndarray, np.ndarray]:
    """Return votes, shape (teachers, queries * labels), and the true labels of the queries."""
    data = load_digits()
    images, digits = data.data, data.target
    private, public = slice(0, len(images) - queries), slice(len(images) - queries, None)
    cast = np.zeros((teachers, queries, len(LABELS)))
    for number in range(teachers):
        own = slice(number, private.stop, teachers)
        model = LogisticRegression(max_iter=200).fit(images[own], digits[own])
        cast[number] = OF_DIGIT[model.predict(images[public])]
    return cast.reshape(teachers, -1), OF_DIGIT[digits[public]]


def main() -> None:
    """Train, ask ten queries, print answers and their total cost."""
    dp.enable_features("contrib")
    cast, real = votes(teachers=60, queries=10)
    if len(sys.argv) > 1:
        np.savez_compressed(sys.argv[1], votes=cast.astype(np.uint8))
        return
    space = array2_domain(num_columns=cast.shape[1], nan=False, T=float), dp.symmetric_distance()
    pate = space >> sim.then_pate_labels(
        labels=len(LABELS), rule={"stable": {"k_max": 3}}, scale=6.0, delta=1e-6, distance=2
    )
    for answer, truth in zip(pate(cast), real, strict=True):
        said = "no answer" if answer is None else ", ".join(LABELS[label] for label in answer)
        print(f"{said:32} truth: {', '.join(np.array(LABELS)[truth]) or 'none of them'}")
    rho, delta = pate.map(2)
    profile = dp.c.make_zCDP_to_approxDP(pate).map(2)[0]
    print(f"total for one image replaced: rho {rho:.3f}, delta {delta:.1e}; "
          f"epsilon {profile.epsilon(1e-6):.2f} at delta {1e-6 + delta:.1e}")  # fmt: skip


if __name__ == "__main__":
    main()
