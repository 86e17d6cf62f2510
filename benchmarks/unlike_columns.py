"""Least squares on columns of unlike units: on one grid in data units, and after `rescale`.

Share of the target's variance that is left on held-out rows. ``before`` is what the same spec gave without
`rescale`: one step for all columns, from the widest (now refused; its grid is imitated here by rounding the
rows to that step first). ``reference`` is least squares without privacy. Defaults everywhere, 12 bits.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes, load_wine

from benchmarks._distances import Built, rho_of
from benchmarks._results import parser, table, write_section
from benchmarks._tables import DIAMOND_BOUNDS, diamonds
from opendp_sim.domains.rows import RealRows, Rows

COMMAND = "python -m benchmarks.unlike_columns --write --packages FOLDER"
EPSILONS, RELEASES, SPLITS, BITS = (0.1, 0.5, 1.0, 2.0), 3, 5, 12


def datasets(folder: Path):
    """Tables whose last column is the target, with public bounds in round numbers."""
    yield "diamonds, price", diamonds(folder), *map(np.array, DIAMOND_BOUNDS)
    found = load_diabetes(scaled=False)
    values = np.column_stack([found.data, found.target])
    lower = (0, 1, 10, 50, 50, 0, 0, 0, 2, 50, 0)
    upper = (100, 2, 50, 150, 350, 300, 120, 10, 8, 150, 400)
    yield "diabetes, progression", values, np.array(lower, float), np.array(upper, float)
    wine = load_wine()
    upper = (16, 8, 5, 40, 200, 5, 6, 1, 5, 15, 2, 5, 2000)
    lower = (10, 0, 0, 5, 50, 0, 0, 0, 0, 0, 0, 0, 0)
    yield "wine, proline", wine.data, np.array(lower, float), np.array(upper, float)


def left(space: RealRows, steps, train, test, epsilon: float | None) -> float:
    built = Built(space, steps, Rows(train))
    noise = None if epsilon is None else built.noise(rho=rho_of(epsilon))
    made = built.ask(noise, test, "regress")["prediction"]
    return float(np.square(made - test[:, -1]).mean() / test[:, -1].var())


def one(name: str, values, lower, upper) -> list[list[object]]:
    space = RealRows(width=len(lower), lower=tuple(lower), upper=tuple(upper))
    unit = float((upper.max() - lower.min()) / 2**BITS)
    after = (("rescale", {}), ("quantize", {"bits": BITS}), ("second_moments", {}))
    got: dict[tuple[str, float], list[float]] = {}
    for split in range(SPLITS):
        order = np.random.default_rng(split).permutation(len(values))
        held = len(values) // 4
        test, train = values[order[:held]], values[order[held:]]
        coarse = np.clip(np.rint(train / unit) * unit, lower, upper)
        asked = np.clip(np.rint(test / unit) * unit, lower, upper)
        asked[:, -1] = test[:, -1]
        design = np.column_stack([np.ones(len(train)), train[:, :-1]])
        plain = np.linalg.lstsq(design, train[:, -1], rcond=None)[0]
        best = plain[0] + test[:, :-1] @ plain[1:] - test[:, -1]
        for epsilon in EPSILONS:
            for _ in range(RELEASES):
                got.setdefault(("before", epsilon), []).append(
                    left(space, after, coarse, asked, epsilon)
                )
                got.setdefault(("now", epsilon), []).append(
                    left(space, after, train, test, epsilon)
                )
            got.setdefault(("reference", epsilon), []).append(
                float(np.square(best).mean() / test[:, -1].var())
            )
    rows: list[list[object]] = []
    for rule in ("before", "now", "reference"):
        cells: list[object] = [f"{name}, {len(values):,} x {len(lower)}", rule]
        for epsilon in EPSILONS:
            found = np.array(got[rule, epsilon])
            cells.append(f"{found.mean():.3f} ± {found.std(ddof=1) / math.sqrt(len(found)):.3f}")
        rows.append(cells)
        print(cells, flush=True)
    return rows


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--packages", type=Path, default=Path("packages"))
    given = options.parse_args()
    rows = [row for data in datasets(given.packages) for row in one(*data)]
    text = table(["data, target", "", *(f"epsilon {e:g}" for e in EPSILONS)], rows)
    text += (
        f"\n\nMean ± one standard error over {SPLITS} splits x {RELEASES} releases, a quarter held out, "
        "delta = 1e-6; smaller is better, 1 is the mean alone. " + " ".join((__doc__ or "").split())
    )
    print(text)
    if given.write:
        write_section("Regression: columns of unlike units", text, COMMAND)


if __name__ == "__main__":
    main()
