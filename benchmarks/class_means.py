"""Class means read from one noisy release: by what was shipped before, and as they are read now.

Every rule reads the same releases (`rescale`, `quantize`, `moments_sketch` without squares). ``before`` is
the nearest mean with the noise's mean square subtracted, sizes at least 1; ``hybrid before`` the same with
sizes at least 8 and lengths at least 0; ``no directions`` is ``now`` without
Lemma 6 of `class_means.md`, which came later; ``no noise`` the nearest mean on the exact sums. Rows are clipped
to norm 1 about the middle of their declared bounds. The rule was chosen on newsgroups, MNIST, occupancy and
pulsar; none of them is here.
"""

from __future__ import annotations

import math
from pathlib import Path
from unittest import mock

import numpy as np

from benchmarks._distances import Built, rho_of
from benchmarks._results import parser, table, write_section
from benchmarks._tables import digits, keel, unequal
from opendp_sim.core.arithmetic.class_means import ShrunkMeans
from opendp_sim.domains.rows import RealRows, Rows

COMMAND = "python -m benchmarks.class_means --write --packages FOLDER"
EPSILONS, RELEASES, SPLITS = (0.1, 0.5, 1.0, 2.0), 4, 4
RULES = ("before", "hybrid before", "no directions", "now", "now, prior", "no noise")


def datasets(folder: Path):
    for name in ("penbased", "optdigits", "satimage"):
        yield (name, *keel(folder, name))
    yield ("digits", *digits())
    for name, largest in (("penbased", 1000), ("optdigits", 500), ("satimage", 1500)):
        x, y, lower, upper = keel(folder, name)
        kept = unequal(y, largest, 0.6, 3)
        yield f"{name}, {largest} x 0.6^k", x[kept], y[kept], lower, upper


def labels(found, queries, rule: str) -> np.ndarray:
    """Each rule's prediction from released sums; queries in steps."""
    if rule == "no directions":
        with mock.patch("opendp_sim.core.arithmetic.class_means._TOLD", -math.inf):
            return labels(found, queries, "now")
    if rule.startswith("now"):
        means = ShrunkMeans.of(found)
        scores = means.scores(queries) + (means.prior if rule == "now, prior" else 0.0)
        return means.leaders(scores)[:, 0]
    sizes = np.maximum(found.counts, 8.0 if rule == "hybrid before" else 1.0)
    means = found.sums / sizes[:, None]
    own = np.square(means).sum(axis=1) - means.shape[1] * np.square(found.of_sum / sizes)
    own = np.maximum(own, 0.0) if rule == "hybrid before" else own
    return (2 * (queries - found.centre) @ means.T - own).argmax(axis=1)


def one(name: str, x, y, lower, upper) -> list[list[object]]:
    classes = int(y.max()) + 1
    space = RealRows(
        width=x.shape[1], lower=tuple(lower), upper=tuple(upper), labels=tuple(range(classes))
    )
    got: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for split in range(SPLITS):
        order = np.random.default_rng(split).permutation(len(x))
        train, test = order[: 2 * len(x) // 3], order[2 * len(x) // 3 :][:4000]
        built = Built(
            space,
            (
                ("rescale", {}),
                ("clip_rows", {"norm": "l2", "bound": 1.0}),
                ("quantize", {"bits": 12}),
                ("moments_sketch", {"per_label": True}),
            ),
            Rows(x[train], y[train].astype(np.int64)),
        )
        reader = built.stages[-1].claim.capabilities["class_means"]
        queries = built.release(None).queries(x[test]).values
        for epsilon in EPSILONS:
            noise = built.noise(rho=rho_of(epsilon))
            for _ in range(RELEASES):
                release = built.release(noise)
                found = reader.class_sums(release.arrays, noise.noise.deviation)
                for rule in RULES[:-1]:
                    right = labels(found, queries, rule) == y[test]
                    each = [right[y[test] == c].mean() for c in np.unique(y[test])]
                    got.setdefault((rule, epsilon), []).append((right.mean(), np.mean(each)))
        exact = reader.class_sums(built.release(None).arrays, 0.0)
        right = labels(exact, queries, "before") == y[test]
        each = [right[y[test] == c].mean() for c in np.unique(y[test])]
        for epsilon in EPSILONS:
            got.setdefault(("no noise", epsilon), []).append((right.mean(), np.mean(each)))
    sizes = np.bincount(y)
    rows: list[list[object]] = []
    for rule in RULES:
        cells: list[object] = [f"{name}, {classes} of {sizes.min()} to {sizes.max()}", rule]
        for epsilon in EPSILONS:
            found = 100 * np.array(got[rule, epsilon])
            error = found[:, 0].std(ddof=1) / np.sqrt(len(found))
            cells.append(f"{found[:, 0].mean():.1f} ± {error:.1f} ({found[:, 1].mean():.1f})")
        rows.append(cells)
        print(cells, flush=True)
    return rows


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--packages", type=Path, default=Path("packages"))
    given = options.parse_args()
    rows = [row for data in datasets(given.packages) for row in one(*data)]
    text = table(["data, class sizes", "rule", *(f"epsilon {e:g}" for e in EPSILONS)], rows)
    text += (
        f"\n\nAccuracy in percent ± one standard error over {SPLITS} splits x {RELEASES} releases, and in "
        "brackets the mean over classes; two thirds train, delta = 1e-6. "
        + " ".join((__doc__ or "").split())
    )
    print(text)
    if given.write:
        write_section("Class means: reading a noisy release", text, COMMAND)


if __name__ == "__main__":
    main()
