"""Sums of l1 distances in many columns: noise against the formula, and errors on real digits.

First table: the deviation of the noise at d = 1, 8 and 64 columns, and on columns of unequal ranges,
measured over fresh releases, beside what the answers report and beside the closed form. Second: mean
relative error on handwritten digits (UCI optdigits, 64 columns) at one zCDP budget for all.
"""

from __future__ import annotations

import math

import numpy as np

from benchmarks._distances import Built, optdigits, packages_option, rho_of, runs
from benchmarks._results import parser, table, write_figure
from benchmarks._tables import keel
from opendp_sim.domains.rows import RealRows

COMMAND = "python -m benchmarks.distance_columns --packages FOLDER --write"
RHO, EPSILONS = 0.5, (0.1, 0.5, 1.0, 2.0)


def noise_row(name: str, tops: tuple[float, ...], sketch, budget, closed: float, times: int):
    space = RealRows(width=len(tops), lower=(0.0,) * len(tops), upper=tops)
    rng = np.random.default_rng(1)
    x = rng.random((200, len(tops))) * np.array(tops)
    queries = rng.random((8, len(tops))) * np.array(tops)
    built = Built(space, (("quantize", {"bits": 12}), sketch), x)
    truth = built.ask(None, queries)["distance"][:, 0]
    errors, deviation = runs(built, built.noise(**budget), queries, truth, times)
    measured = math.sqrt(np.square(errors).mean())
    predicted = math.sqrt(np.square(deviation).mean())
    row = [len(tops), name, measured, predicted, measured / predicted, closed]
    print(row, flush=True)
    return row


def noise_rows() -> list[list[object]]:
    out = []
    uneven = tuple(float(v) for v in (1, 1, 2, 4, 8, 16, 16, 16))
    for tops, times in (((1.0,), 2000), ((1.0,) * 8, 1000), ((1.0,) * 64, 500), (uneven, 1000)):
        d, total = len(tops), sum(tops)
        label = "" if len(set(tops)) == 1 else ", ranges 1 to 16"
        out.append(
            noise_row(
                "threshold sketch, rho = 0.5" + label,
                tops,
                ("threshold_sketch", {"thresholds": 256}),
                {"rho": RHO},
                total / math.sqrt(2 * RHO),
                times,
            )
        )
        out.append(
            noise_row(
                "moment tree, rho = 0.5" + label,
                tops,
                ("moment_tree", {"levels": 8, "tuned_for": "gaussian"}),
                {"rho": RHO},
                math.sqrt(2) * total / math.sqrt(RHO),
                times // 2,
            )
        )
        if len(set(tops)) == 1:
            out.append(
                noise_row(
                    "moment tree, epsilon = 1",
                    tops,
                    ("moment_tree", {"levels": 8}),
                    {"epsilon": 1.0},
                    8.5 * d**1.5,
                    times // 2,
                )
            )
    return out


def digits_rows(packages) -> list[list[object]]:
    data = optdigits(packages)
    order = np.random.default_rng(0).permutation(len(data))
    queries, points = data[order[:2000]], data[order[2000:]]
    space = RealRows(width=64, lower=(0.0,), upper=(16.0,))
    truth = np.array([np.abs(points - query).sum() for query in queries])
    rows: list[list[object]] = []
    tree = {"levels": 4}
    for name, sketch, how in (
        ("published tree, alpha = 0.1", ("distance_tree", {"levels": 12}), {"alpha": 0.1}),
        ("published tree, 16 leaves", ("distance_tree", tree), {"alpha": 0.1}),
        ("the same, least squares", ("distance_tree", tree | {"consistent": True}), {"alpha": 0.1}),
        ("moment tree", ("moment_tree", {"levels": 12, "tuned_for": "gaussian"}), {}),
        ("threshold sketch", ("threshold_sketch", {"thresholds": 4096}), {}),
    ):
        built = Built(space, (("quantize", {"bits": 12}), sketch), points)
        times = 20 if sketch[0] == "distance_tree" else 400
        errors, deviation = runs(built, built.noise(rho=rho_of(1.0)), queries, truth, times, **how)
        relative = (np.abs(errors) / truth).mean(axis=1)
        predicted = (math.sqrt(2 / math.pi) * deviation / truth).mean()
        least, most = relative.min(), relative.max()
        rows.append(
            [
                name,
                f"{100 * relative.mean():.3g} %",
                f"{100 * predicted:.3g} %",
                f"{100 * relative.std() / math.sqrt(times):.2g} %",
                times,
                f"{100 * least:.3g} to {100 * most:.3g} %",
            ]
        )
        print(rows[-1], flush=True)
    return rows


def over_price(packages, name: str, top: float) -> list[list[object]]:
    """Mean error over the price of a query, the sum of ranges times that of one column, at four budgets."""
    data = keel(packages, name)[0]
    order = np.random.default_rng(0).permutation(len(data))
    queries, points = data[order[:500]], data[order[500:]]
    width = data.shape[1]
    space = RealRows(width=width, lower=(0.0,), upper=(top,))
    truth = np.array([np.abs(points - query).sum() for query in queries])
    rows: list[list[object]] = []
    for label, sketch, how, times in (
        ("published tree", ("distance_tree", {"levels": 12}), {"alpha": 0.1}, 10),
        ("moment tree", ("moment_tree", {"levels": 12, "tuned_for": "gaussian"}), {}, 100),
        ("threshold sketch", ("threshold_sketch", {"thresholds": 4096}), {}, 100),
    ):
        built, cells = Built(space, (("quantize", {"bits": 12}), sketch), points), []
        for epsilon in EPSILONS:
            rho = rho_of(epsilon)
            errors, _ = runs(built, built.noise(rho=rho), queries, truth, times, **how)
            price = width * top * math.sqrt(2 / math.pi) / math.sqrt(2 * rho)
            each = np.abs(errors).reshape(times, -1).mean(axis=1) / price
            cells.append(f"{each.mean():.2f} ± {each.std(ddof=1) / math.sqrt(times):.2f}")
        rows.append([f"{name}, {len(points):,} x {width}", label, *cells])
        print("| " + " | ".join(map(str, rows[-1])) + " |", flush=True)
    return rows


def main() -> None:
    given = packages_option(parser(__doc__ or ""))
    given.add_argument("--prices", action="store_true", help="over the price of a query, no more")
    options = given.parse_args()
    if options.prices:
        for name, top in (("penbased", 100.0), ("satimage", 255.0), ("optdigits", 16.0)):
            over_price(options.packages, name, top)
        return
    noise = noise_rows()
    digits = digits_rows(options.packages)
    head = ["columns", "structure", "deviation measured", "predicted", "ratio", "closed form"]
    text = table(head, noise) + (
        "\n\nClosed forms: sum of ranges / sqrt(2 rho); at most sqrt(2) times the sum of ranges / "
        "sqrt(rho); at most 8.5 d^1.5 / epsilon.\n\n"
    )
    head = [
        "structure",
        "mean relative error",
        "noise alone, predicted",
        "standard error",
        "releases",
        "one release",
    ]
    text += table(head, digits)
    text += (
        f"\n\nUCI optdigits (CC BY 4.0), 3,620 private rows of 64 columns, 2,000 queries, epsilon = 1 "
        f"at delta = 1e-6 (rho = {rho_of(1.0):.4g}) for all. Queries of one release share its noise, so "
        "one release's mean varies by a factor of six to eight: figures of single runs cannot be compared."
    )
    print(text)
    if options.write:
        write_figure("distances/columns", text, COMMAND)


if __name__ == "__main__":
    main()
