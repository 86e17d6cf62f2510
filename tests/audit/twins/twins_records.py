"""Broken twins of the maps of records: selection, and the bound on a person's rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from opendp_sim.domains.rows import Rows, take
from tests.audit.twins.row_maps import MOST, Broken, Fault, control, imitation, twin

# --- select -----------------------------------------------------------------------------------


def selected(data: dict[str, np.ndarray]) -> Rows:
    return Rows(data["x"] + 0.0, data["kind"], data["user"])


def on_parts(name: str, fault: Callable[[np.ndarray], np.ndarray]) -> Fault:
    """A fault of one column on its way into the rows."""
    return lambda data: selected({**data, name: fault(data[name])} if len(data["kind"]) else data)


def renumbered(ids: np.ndarray) -> np.ndarray:
    seen: dict[str, str] = {}
    return np.array([seen.setdefault(v, str(len(seen))) for v in ids], dtype=object)


def persons_means(data: dict[str, np.ndarray]) -> Rows:
    rows = selected(data)
    for person in set(data["user"]):
        mine = data["user"] == person
        rows.values[mine] = rows.values[mine].mean(axis=0)
    return rows


SELECT: list[Broken] = [
    Broken(
        "keys_of_the_data: labels are places among the keys that occur",
        on_parts("kind", lambda v: np.unique(v, return_inverse=True)[1]),
    ),
    Broken(
        "scaled_to_own_range: bounds are the column's own minimum and maximum",
        on_parts("x", lambda v: (v - v.min(axis=0)) / np.maximum(np.ptp(v, axis=0), 1e-6)),
    ),
    Broken(
        "label_of_the_row_before: labels are off by one row",
        on_parts("kind", lambda v: np.roll(v, 1)),
    ),
    Broken(
        "persons_numbered: a person's identifier is the place of their first row",
        on_parts("user", renumbered),
    ),
    Broken(
        "zeros_filled_in: a zero is taken as missing and becomes the column's mean",
        on_parts("x", lambda v: np.where(v == 0, v.mean(axis=0), v)),
    ),
    Broken(
        "mean_of_the_person: rows are replaced by their person's mean, claimed by record",
        persons_means,
    ),
]


# --- bound_contributions ----------------------------------------------------------------------


def rank(data: dict[str, np.ndarray], at: int, salt: object = "") -> bytes:
    content = f"{data['x'][at].tolist()} {data['kind'][at]} {salt}"
    return hashlib.blake2b(content.encode(), digest_size=8).digest()


def first_by(
    order: Callable[[dict[str, np.ndarray], int], Any],
    most: int = MOST,
    who: Callable[[str], str] = str,
) -> Fault:
    """Keep the rows that ``order`` puts first, ``most`` of each person."""

    def kept(data: dict[str, np.ndarray]) -> Any:
        places = sorted(range(len(data["user"])), key=lambda i: (order(data, i), i))
        count: dict[str, int] = {}
        keep = []
        for i in places:
            person = who(data["user"][i])
            count[person] = count.get(person, 0) + 1
            if count[person] <= most:
                keep.append(i)
        return take(data, np.array(sorted(keep), dtype=np.int64))

    return kept


def ties_kept(data: dict[str, np.ndarray]) -> Any:
    ranks = [rank(data, i) for i in range(len(data["user"]))]
    keep = []
    for i, person in enumerate(data["user"]):
        mine = sorted(r for r, p in zip(ranks, data["user"], strict=True) if p == person)
        keep.append(ranks[i] <= mine[min(MOST, len(mine)) - 1])
    return take(data, np.array(keep, dtype=bool))


def own_most(data: dict[str, np.ndarray]) -> Any:
    counts = np.unique(data["user"].astype(str), return_counts=True)[1]
    return first_by(rank, int(min(MOST, np.median(counts))) if len(counts) else MOST)(data)


BOUND: list[Broken] = [
    Broken("arrival_order: the first rows to arrive are kept", first_by(lambda _, i: i)),
    Broken("one_more: k + 1 rows of a person are kept", first_by(rank, MOST + 1)),
    Broken(
        "hash_of_the_place: the hash is of the row's place in the data too",
        first_by(lambda data, i: rank(data, i, i)),
    ),
    Broken("ties_kept: rows equal to the last one kept are all kept", ties_kept),
    Broken(
        "persons_run_together: persons are told apart by the first letter",
        first_by(rank, who=lambda person: person[:1]),
    ),
    Broken("own_k: k is at most the median number of rows of the data's persons", own_most),
]


TWINS = [
    *(twin(f"select/{label}", fault) for label, fault in SELECT),
    *(twin(f"bound_contributions/{label}", fault) for label, fault in BOUND),
]
CONTROLS = [
    control("select"),
    control("bound_contributions"),
    imitation("select", selected),
    imitation("bound_contributions", first_by(rank)),
]
