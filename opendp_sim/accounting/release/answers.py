"""Arrange answers to public queries as a table of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.accounting.release.table import Table
from opendp_sim.core.errors import DataError
from opendp_sim.core.space import Domain
from opendp_sim.domains.cell import columned


class Answers(Table):
    """Answer public queries from a release alone.

    No further privacy loss. ``answers["density"]`` is the numpy array of that name, of shape (q,) or
    (q, L) for L classes. As a table it is long: one row for each query and class.

    Args:
        columns: arrays by name, as the query mechanism returned them.
        domain: the type of the answers; its ``labels`` name the classes.
        queries: the columns of the queries, which the table carries along.
        question: the query mechanisms that answered, in order.
    """

    def __init__(
        self,
        columns: Mapping[str, Any],
        domain: Domain | None = None,
        queries: Mapping[str, NDArray[Any]] | None = None,
        question: Sequence[str] = (),
        again: Any = None,
    ) -> None:
        super().__init__(columns)
        self.domain = domain
        self.labels: tuple[str | int, ...] | None = getattr(domain, "labels", None)
        self.queries = dict(queries or {})
        self.question = tuple(question)
        self._again = again

    def ask(self, question: str, **parameters: Any) -> Answers:
        """Ask these answers a further question, such as ``classify`` after ``density``.

        Raises:
            ParameterError (OS101): an unknown question or parameter. SpaceError (OS201): a question
                that starts from a release.
        """
        if self._again is None:
            raise DataError(
                "OS602", "answers", expected="answers that came from `release.ask`",
                got="answers without their release", hint="ask the release again.",
            )  # fmt: skip
        return self._again(question, parameters)

    def table(self) -> dict[str, NDArray[Any]]:
        """Return columns with one row a query or class."""
        rows = max((len(np.atleast_1d(a)) for a in self.columns.values()), default=0)
        classes = self.labels if self.labels is not None and len(self.labels) > 1 else None
        long = classes is not None and any(self._by_class(a) for a in self.columns.values())
        each = len(classes) if long and classes is not None else 1
        out: dict[str, NDArray[Any]] = {}
        carried = {name: a for name, a in self.queries.items() if len(a) == rows}
        out["query"] = np.repeat(np.arange(rows), each)
        for name, array in carried.items():
            out |= _spread(name if name not in self.columns else f"query_{name}", array, each)
        if long:
            out["class"] = np.tile(columned(classes), rows)
        for name, array in self.columns.items():
            if long and self._by_class(array):
                out[name] = array.reshape(-1)
            else:
                out |= _spread(name, self._named(name, np.atleast_1d(array)), each)
        return {name: array for name, array in out.items() if len(array) == rows * each}

    def _by_class(self, array: NDArray[Any]) -> bool:
        return array.ndim == 2 and self.labels is not None and array.shape[1] == len(self.labels)

    def _named(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        """Return labels instead of their numbers."""
        if name == "label" and self.labels is not None and array.dtype.kind in "iu":
            return np.asarray(columned(self.labels)[array])
        return array


def _spread(name: str, array: NDArray[Any], each: int) -> dict[str, NDArray[Any]]:
    """Return a column of vectors as columns ``name_0``, ``name_1``, ...."""
    if array.ndim == 1:
        return {name: np.repeat(array, each)}
    flat = array.reshape(len(array), -1)
    if flat.shape[1] == 1:
        return {name: np.repeat(flat[:, 0], each)}
    return {f"{name}_{i}": np.repeat(flat[:, i], each) for i in range(flat.shape[1])}
