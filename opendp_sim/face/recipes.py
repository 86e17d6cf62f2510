"""Three recipes for tables: a density, classes, means. Each is a plan; nothing opens before ``apply``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from inspect import signature
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

import opendp_sim.prelude  # noqa: F401 - fills the catalogue
from opendp_sim.accounting.release import Release
from opendp_sim.accounting.shared_ledger import is_shared
from opendp_sim.core.errors import DataError, ParameterError, SimError
from opendp_sim.dsl.builder import Builder, program
from opendp_sim.dsl.execute import apply
from opendp_sim.dsl.kernel_choice import gaussian_kernel_step
from opendp_sim.dsl.plan import Plan

__all__ = ["Recipe", "classes", "density", "means"]

_DATA, _FILE = "records", "release.npz"
_BITS = 14
Steps = list[Mapping[str, Any]]
Bounds = Mapping[str, tuple[float, float]]
"""Column name to its public bounds: values outside are clamped, and missing ones cost the record."""


class Recipe:
    """A plan of one release over one table: read it, then ``apply`` it to the data.

    Attributes:
        plan: the plan; ``print(recipe.plan.to_yaml())`` shows the spec that it is.
    """

    def __init__(self, made: Builder) -> None:
        self.plan: Plan = made.plan()
        (self._entry,) = self.plan.program.data

    def apply(self, data: Any, *, into: str | PathLike[str] = ".") -> Release:
        """Charge the ledger, if there is one, and release: ``release.npz`` and its certificate.

        Args:
            data: a data frame of any library, a dict of columns by name, or an array with the columns
                side by side (``sources/frames.py`` lists them).
            into: the folder for both files; a ledger's path starts from the working folder.

        Raises:
            DataError (OS602): a column is missing, or identifiers are of another dtype than declared.
                (OS609): another program's release is there; nothing was charged.
                BudgetError (OS402): the ledger refuses; nothing ran.
        """
        self._check_place(Path(into) / _FILE)
        self._check_ids(data)
        found: Release = apply(self.plan, memory={_DATA: data}, into=Path(into)).results["release"]
        return found

    def _check_place(self, place: Path) -> None:
        """Refuse to replace what another program released: it was paid for. A rerun replaces its own."""
        if not place.exists():
            return
        try:
            program = Release.load(place).header["privacy"].get("program")
        except SimError:
            program = None
        if program != self.plan.program.hash:
            raise DataError(
                "OS609",
                "into",
                expected="no file there, or a release of this program to replace",
                got=f"{place}: another one",
                hint="apply(table, into='another folder'), or move the file away with its certificate.",
            )

    def _check_ids(self, table: Any) -> None:
        """Refuse whole numbers that are held as objects: texts among them would all be missing."""
        who = self._entry.records.privacy_id
        if who is None or who.dtype != "int64" or isinstance(table, np.ndarray):
            return
        known = getattr(table, "columns", table)
        held = table[who.name] if isinstance(known, Iterable) and who.name in known else None
        if getattr(held, "dtype", None) == np.dtype(object):
            raise DataError(
                "OS602",
                f"column {who.name}",
                expected=f"identifiers of dtype {who.dtype}",
                got="a column of another dtype",
                hint='say which it is: ids="str" for text; of whole numbers, `.astype("Int64")`.',
            )

    def __repr__(self) -> str:
        """Return the plan: promise, errors, cost."""
        return repr(self.plan)

    def _repr_html_(self) -> str:
        """Return the same for a notebook."""
        return self.plan._repr_html_()


def density(
    columns: Bounds, *, bandwidth: float | Mapping[str, float], seed: int = 0, **privacy: Any
) -> Recipe:
    """Plan a private density of a table's numeric columns, for ``release.density(queries)``.

    Args:
        columns: each column's public bounds.
        bandwidth: h of the kernel ``exp(-r**2 / (2 h**2))``, in data units; or one for each column,
            where their units are unlike.
        seed: of public frequencies; noise has no seed.
        **privacy: ``epsilon`` (1.0), ``delta`` (1e-6), ``measure`` (``gdp``), ``unit`` (``row``, or the
            column that names the person), ``ids`` (``str`` or ``int64``, that column's dtype),
            ``max_rows`` (used of one person), ``ledger`` (a file) and ``limit`` (its budget, such as
            ``{"epsilon": 2, "delta": 1e-6}``).

    Raises:
        Refused, ParameterError: what cannot be planned.

    Example:
        >>> fit = density({"dep_delay": (-90, 600), "arr_delay": (-90, 600)}, bandwidth=15.0)
        >>> fit.plan.claim
        (1.0, 1e-06)
    """
    rows, step = _kernel(
        columns, bandwidth, seed, per_label=False, pure=privacy.get("measure") == "pure"
    )
    return _recipe("density", columns, None, [*rows, step], privacy)


def classes(
    columns: Bounds,
    *,
    label: str,
    keys: Sequence[str | int],
    bandwidth: float | Mapping[str, float],
    seed: int = 0,
    **privacy: Any,
) -> Recipe:
    """Plan one private density a class, for ``release.classify(queries)`` and ``release.density``.

    Args:
        columns: each column's public bounds.
        label: the column of the classes.
        keys: every class that could occur; records of others are left out.
        bandwidth: as for ``density``.
        seed: of public frequencies; noise has no seed.
        **privacy: as for ``density``.

    Example:
        >>> fit = classes({"x": (0, 1)}, label="kind", keys=["a", "b"], bandwidth=0.1, epsilon=0.5)
        >>> fit.plan.claim
        (0.5, 1e-06)
    """
    rows, step = _kernel(
        columns, bandwidth, seed, per_label=True, pure=privacy.get("measure") == "pure"
    )
    return _recipe("classes", columns, (label, keys), [*rows, step], privacy)


def means(
    columns: Bounds, *, label: str | None = None, keys: Sequence[str | int] = (), **privacy: Any
) -> Recipe:
    """Plan private means, for ``release.nearest_class(queries)`` and ``release.distance(queries)``.

    Columns of unlike bounds are each counted in their own range (``rescale``).

    Args:
        columns: each column's public bounds.
        label: the column of the classes; None for one mean of all records.
        keys: every class that could occur; records of others are left out.
        **privacy: as for ``density``.

    Example:
        >>> fit = means({"x": (0, 1), "y": (0, 90)}, label="kind", keys=["a", "b"])
        >>> "rescale" in fit.plan.to_yaml()
        True
    """
    columns = _bounds(columns)
    rows: Steps = [] if len(set(columns.values())) == 1 else [{"rescale": {}}]
    step = {"moments_sketch": {"per_label": label is not None}}
    told = None if label is None else (label, keys)
    return _recipe("means", columns, told, [*rows, {"quantize": {"bits": _BITS}}, step], privacy)


def _kernel(
    columns: Bounds,
    bandwidth: float | Mapping[str, float],
    seed: int,
    *,
    per_label: bool,
    pure: bool,
) -> tuple[Steps, Mapping[str, Any]]:
    """Return the row maps and the sketch of a Gaussian kernel density."""
    grid: Mapping[str, Any] = {"quantize": {"bits": _BITS}}
    rows: Steps = [grid]
    widths: list[Any] = list(bandwidth.values()) if isinstance(bandwidth, Mapping) else [bandwidth]
    if not all(isinstance(h, int | float) and 0.0 < h < math.inf for h in widths):
        raise ParameterError(
            "OS101",
            "bandwidth",
            expected="numbers above 0",
            got=f"{bandwidth!r:.60}",
            hint="the distance at which two records count as near, from public knowledge.",
        )
    columns = _bounds(columns)
    lengths = {name: float(high) - float(low) for name, (low, high) in columns.items()}
    if not isinstance(bandwidth, Mapping):
        sigma, rows, longest = (
            bandwidth * math.sqrt(2.0),
            [grid],
            max(lengths.values(), default=0.0),
        )
    elif set(bandwidth) != set(columns):
        raise ParameterError(
            "OS102",
            "bandwidth",
            expected=f"one bandwidth for each of {', '.join(columns)}",
            got=", ".join(map(str, bandwidth)) or "none",
            hint="or one number for all, in the columns' common unit.",
        )
    else:
        scale = [float(bandwidth[name]) for name in columns]
        sigma, rows = math.sqrt(2.0), [{"rescale": {"scale": scale}}, grid]
        longest = max(length / scale[at] for at, length in enumerate(lengths.values()))
    step, _ = gaussian_kernel_step(
        sigma, len(columns), longest, pure=pure, seed=seed, per_label=per_label
    )
    return rows, step


def _recipe(
    name: str,
    columns: Bounds,
    label: tuple[str, Sequence[str | int]] | None,
    steps: Steps,
    privacy: Mapping[str, Any],
) -> Recipe:
    known = [n for n, p in signature(_program).parameters.items() if p.kind is p.KEYWORD_ONLY]
    for word in privacy:
        if word not in known:
            near = get_close_matches(word, known, n=1)
            raise ParameterError(
                "OS101",
                word,
                expected=f"one of {', '.join(known)}",
                got="another word",
                hint=f"did you mean {near[0]!r}?" if near else f"help(sim.{name}) lists them.",
            )
    return Recipe(_program(name, columns, label, steps, **privacy))


def _bounds(columns: Any) -> dict[str, tuple[float, float]]:
    """Return each column's bounds as two finite numbers, or say what to write (OS101)."""
    found: dict[str, tuple[float, float]] = {}
    wrong = None if isinstance(columns, Mapping) and columns else "something else"
    for name, pair in columns.items() if wrong is None else ():
        low = high = math.nan
        numbers = isinstance(pair, Sequence | np.ndarray) and not isinstance(pair, str)
        if numbers and len(pair) == 2 and not any(isinstance(end, str | bytes) for end in pair):
            low, high = map(_float, pair)
        if not low < high or not high - low < math.inf:
            wrong = f"{pair!r:.60} for {name!r:.60}"
        found[str(name)] = low, high
    if wrong is not None:
        raise ParameterError(
            "OS101",
            "columns",
            expected="each column's name to its public bounds (low, high), low below high",
            got=wrong,
            hint='for example {"age": (0, 120), "delay": (-90, 600)}, from public knowledge; the table '
            "itself goes to `.apply(table)`.",
        )
    return found


def _float(value: Any) -> float:
    """Return a number as a float, and NaN for what is none."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _absolute(ledger: str | PathLike[str]) -> str:
    """Return the ledger's place for good: one fit spends in one ledger, whatever folder is current."""
    return str(ledger) if is_shared(str(ledger)) else str(Path(ledger).absolute())


def _program(
    name: str,
    columns: Bounds,
    label: tuple[str, Sequence[str | int]] | None,
    steps: Steps,
    *,
    epsilon: float = 1.0,
    delta: float | None = 1e-6,
    measure: str = "gdp",
    unit: str = "row",
    ids: str = "str",
    max_rows: int | None = None,
    ledger: str | PathLike[str] | None = None,
    limit: Mapping[str, float] | None = None,
) -> Builder:
    for word, needed, given in (
        ("limit", "ledger", limit is not None and ledger is None),
        ("max_rows", "unit", max_rows is not None and unit == "row"),
    ):
        if given:
            raise ParameterError(
                "OS102",
                word,
                expected=f"`{word}` only beside `{needed}`",
                got=f"no `{needed}`",
                hint=f"say `{needed}` too, or leave `{word}` out: by itself it would protect nobody.",
            )
    columns = _bounds(columns)
    told: dict[str, Any] = {
        column: {"dtype": "float64", "bounds": [float(low), float(high)]}
        for column, (low, high) in columns.items()
    }
    select: dict[str, Any] = {"features": list(columns)}
    if label is not None:
        told[label[0]] = {"dtype": "category", "keys": list(label[1])}
        select["label"] = label[0]
    first: Steps = [{"select": select}]
    if unit != "row":
        told[unit] = {"dtype": ids, "role": "privacy_id"}
        first = [{"bound_contributions": {"max_rows": max_rows}}, *first]
    budget = {"epsilon": epsilon} | ({} if delta is None else {"delta": delta})
    kept = None if ledger is None else {"file": _absolute(ledger), "limit": dict(limit or budget)}
    noise = "laplace" if measure == "pure" else "gaussian"
    return (
        program(name)
        .data(_DATA, source={"memory": _DATA}, columns=told, ingest="enforce", ledger=kept)
        .privacy(unit={"add_remove": 1, "of": unit}, measure=measure, budget=budget)
        .stage("sketch", _DATA, steps=[*first, *steps])
        .stage("noisy", "sketch", release={"noise": noise, "spend": "100%"})
        .output("release", "noisy", save="release.npz")
    )
