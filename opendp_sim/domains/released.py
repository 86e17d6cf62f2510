"""Describe releases, and answers computed from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.claims import Noise
from opendp_sim.core.errors import ReleaseError
from opendp_sim.core.mechanism import REGISTRY
from opendp_sim.core.space import Domain


@dataclass(frozen=True)
class NamedArrays(Domain):
    """Describe a mechanism's own release, an int64 vector cut into arrays.

    ``arrays`` are names and shapes, in the order in which they lie in the vector.
    """

    arrays: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each named array."""
        return dict(self.arrays)

    @property
    def size(self) -> int:
        """Number of cells of all arrays."""
        return sum(prod(shape) for _, shape in self.arrays)

    def check(self, data: Any) -> None:
        """Accept anything, as releases are checked when they are loaded."""

    def split(self, flat: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Cut a flat vector into its named arrays (views where possible)."""
        out, start = {}, 0
        for name, shape in self.arrays:
            out[name] = np.asarray(flat[start : start + prod(shape)]).reshape(shape)
            start += prod(shape)
        return out


@dataclass(frozen=True, eq=False)
class Released(Domain):
    """Describe a released sketch or another mechanism's output.

    It is public from here on.

    Args:
        sketch: the sketch's domain (blocks, names, weights), or the mechanism's output domain.
        capabilities: what the sketch's claim offers, by name.
        noise: the noise law on its cells; None for the exact arrays of a public dataset, and where a
            mechanism of its own made them.
        queries: the domain that a query must be in (rows on the sketch's own input space).
    """

    sketch: Domain
    capabilities: Mapping[str, Any]
    noise: Noise | None
    queries: Domain | None = None

    def check(self, data: Any) -> None:
        """Accept anything, as releases are checked when they are loaded."""

    def capability(self, name: str, key: str) -> Any:
        """Return the capability ``name``, or refuse for mechanism ``key``."""
        if name not in self.capabilities:
            raise ReleaseError(
                "OS702", key, expected=f"a release that answers `{name}`",
                got=f"one that answers {', '.join(self.capabilities) or 'nothing'}",
                hint=f"release {_listed(offering(name))} for `{name}`; this release can be asked for "
                f"{_listed(asking(self.capabilities))}.",
            )  # fmt: skip
        return self.capabilities[name]

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise on a cell of weight 1."""
        return 0.0 if self.noise is None else self.noise.deviation


def offering(capability: str) -> list[str]:
    """Return the sketches of which a release can be asked for ``capability``."""
    return sorted(key for key, cls in REGISTRY.items() if capability in cls.offers)


def asking(capabilities: Iterable[str]) -> list[str]:
    """Return the queries that one of ``capabilities`` is enough for.

    Of a mapping to what a release offers, without those that choose among classes where it has none.
    """
    labelled = {
        name
        for name in capabilities
        if not isinstance(capabilities, Mapping) or getattr(capabilities[name], "labels", None)
    }
    known = {False: set(capabilities), True: labelled}
    return sorted(key for key, cls in REGISTRY.items() if known[cls.by_class] & set(cls.asks_for))


def _listed(words: list[str]) -> str:
    return ", ".join(words[:-1]) + (" or " if words[1:] else "") + words[-1] if words else "nothing"


_ERRORS = ("noise_error", "lower", "upper")


@dataclass(frozen=True)
class AnswerColumns(Domain):
    """A table of answers, one row a query.

    Columns ``noise_error``, ``lower`` and ``upper`` are about the column before the first of them.

    Args:
        columns: names of the arrays.
        labels: public labels along the second axis of two-axis columns, or None.
        normalised: whether ``density`` is a mean kernel value rather than a sum.
        places: names of the two-axis columns that are points, a coordinate a column.
    """

    columns: tuple[str, ...]
    labels: tuple[str | int, ...] | None = None
    normalised: bool = False
    places: tuple[str, ...] = ()

    @property
    def measured(self) -> str:
        """The column that errors and intervals are about, or an empty text."""
        first = next((i for i, name in enumerate(self.columns) if name in _ERRORS), 0)
        return self.columns[first - 1] if first else ""

    def without_classes(self, value: Any) -> Any:
        """Return answers without the axis of classes, where there are none.

        Args:
            value: arrays by name; those of shape (q, 1) become (q,) without ``labels``.
        """
        if self.labels is not None or not isinstance(value, Mapping):
            return value
        return {
            name: column[:, 0]
            if name not in self.places and np.ndim(column) == 2 and np.shape(column)[1] == 1
            else column
            for name, column in value.items()
        }

    def check(self, data: Any) -> None:
        """Accept anything, as answers are made in this package."""
