"""The row maps themselves, with the function exchanged: what their broken twins are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import opendp.prelude as dp

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.audit import Subject
from opendp_sim.core.bridge import build
from opendp_sim.core.claims import Stable
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import IdDistance, Symmetric
from opendp_sim.domains.records import Column, Records
from opendp_sim.domains.rows import GridRows, RealRows, Rows, take
from tests.audit.twins.entries import Control, Twin
from tests.audit.twins.faults import named

REAL = RealRows(width=2, lower=(-1.0,), upper=(1.0,))
UNLIKE = RealRows(width=3, lower=(0.0, -2.0, 10.0), upper=(4.0, 2.0, 10.5))
WIDE = RealRows(width=7, lower=(-1.0,), upper=(1.0,))
GRID = GridRows(width=6, unit=0.25, lower=(-9,), upper=(9,), l2=13)
TABLE = Records(
    (
        Column("x", "array[f64, 2]", bounds=(-1.0, 1.0)),
        Column("kind", "category", keys=("a", "b", "c")),
        Column("user", "str", role="privacy_id"),
    )
)
UNIT, MOST = 0.25, 2
SPACES: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "quantize": ({"bits": 3}, REAL, Symmetric()),
    "rescale": ({"centre": "middle", "scale": "range"}, UNLIKE, Symmetric()),
    "clip_rows": ({"norm": "l2", "bound": 0.5}, WIDE, Symmetric()),
    "jl_projection": ({"dimension": 3, "seed": 1}, GRID, Symmetric()),
    "fourier_features": ({"frequencies": 2, "bandwidth": 3.0, "seed": 1}, GRID, Symmetric()),
    "select": ({"features": "x", "label": "kind", "person": "user"}, TABLE, Symmetric()),
    "bound_contributions": ({"max_rows": MOST}, TABLE, IdDistance("user")),
}
Fault = Callable[[Any], Any]


class Broken(NamedTuple):
    """One fault of a row map, with its name and what is wrong."""

    label: str
    fault: Any


def claim_of(key: str) -> Stable:
    params, domain, metric = SPACES[key]
    claim = lookup(key)(**params).bind(domain, metric)
    assert isinstance(claim, Stable)
    return claim


def on_values(fault: Callable[[np.ndarray], np.ndarray], width: int = 3) -> Fault:
    """A fault of the values of rows, which leaves no rows alone."""
    return lambda rows: (
        Rows(fault(rows.values), rows.labels, rows.ids) if len(rows) else sound(rows, width)
    )


def sound(rows: Rows, width: int = 3) -> Rows:
    return Rows(rows.values[:, :width], rows.labels, rows.ids)


def with_fault(key: str, fault: Fault) -> Any:
    """The real transformation, claim and all, with another function."""
    _, domain, metric = SPACES[key]
    claim = claim_of(key)
    changed = {"survey": lambda _: fault} if claim.survey else {"function": fault}
    return build(replace(claim, **changed), key, domain, metric)


def twin(label: str, fault: Fault) -> Twin:
    key = label.split("/", maxsplit=1)[0]
    return Twin(**named(label), make=lambda: with_fault(key, fault), options=_options(key))


def control(key: str) -> Control:
    _, domain, metric = SPACES[key]
    return Control(
        name=f"{key}/sound",
        make=lambda: build(claim_of(key), key, domain, metric),
        options=_options(key),
    )


def imitation(key: str, fault: Fault) -> Control:
    """What the twins of a family are made of, with no fault in it."""
    return Control(
        name=f"{key}/sound_imitation", make=lambda: with_fault(key, fault), options=_options(key)
    )


def _options(key: str) -> dict[str, Any]:
    return {"pairs": PAIRS} if key == "bound_contributions" else {}


def longest(key: str, fault: Fault, reach: float) -> Subject:
    """The exact sum of the rows, whose claim is the norm bound that the type carries."""

    def total(data: Any) -> list[Fraction]:
        columns = fault(data).values.T.tolist()
        return [sum(map(Fraction, column), Fraction(0)) for column in columns]

    domain = SPACES[key][1]
    real = build(claim_of(key), key, domain, Symmetric())
    return Subject(
        run=total,
        input_domain=real.input_domain,
        input_metric=real.input_metric,
        stability_map=lambda d: reach * d,
        output_metric=dp.l2_distance(T=float),
        name=f"sum after {key}",
    )


def too_long(label: str, fault: Fault, reach: float) -> Twin:
    key = label.split("/", maxsplit=1)[0]
    return Twin(**named(label), make=lambda: longest(key, fault, reach))


def _some_pairs() -> list[tuple[Any, Any]]:
    """A person more or less, in another order, some with many equal rows."""
    rng, out = np.random.default_rng(7), []
    for case in range(60):
        count = int(rng.integers(1, 24))
        persons = np.array([f"u{i}" for i in rng.integers(0, 5, count)], dtype=object)
        data = {
            "x": rng.integers(-2, 3, (count, 2)) / 2,
            "kind": rng.integers(0, 3, count),
            "user": persons,
        }
        if case % 3 == 0:
            data["x"], data["kind"] = np.zeros((count, 2)), np.zeros(count, dtype=np.int64)
        rest = np.flatnonzero(persons != persons[0])
        out.append((data, take(data, rng.permutation(rest) if case % 2 else rest)))
    return out


PAIRS = _some_pairs()
