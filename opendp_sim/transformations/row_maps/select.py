"""Select real rows from records, with labels and persons (``select.md``)."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.claims import Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import SpaceError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.checks import symmetric
from opendp_sim.domains.metrics import IdDistance
from opendp_sim.domains.records import Column, Records
from opendp_sim.domains.rows import RealRows, Rows, as_rows


@register
class Select(Mechanism):
    r"""Select the columns of features, of the label and of the person.

    Space
        Input: records under symmetric distance, or under distance by person.
        Output: one row of d floats for each record, the features side by side in the order
        given, under the same metric. Bounds of the columns become bounds of the rows (values
        outside, which the ingest gate refuses anyway, clamp); keys of the label become the
        public labels.

    Stability
        .. math:: d_{out} = d_{in}

        Record by record, so added and removed records are all that differs, and a person's rows
        stay that person's. Exact. Tight.

    Privacy
        None on its own.

    Raises
        ParameterError (OS101): a parameter is of the wrong type. SpaceError (OS201, OS202): not
        records, another metric. (OS204): no such column, or a column that cannot play this part.

    Source
        [own] Lemma 1 in ``select.md``.

    Example
        >>> import numpy as np, opendp.prelude as dp
        >>> from opendp_sim.domains.metrics import Symmetric
        >>> from opendp_sim.domains.records import Column, Records
        >>> records = Records((Column("x", "array[f64, 2]", bounds=(0.0, 1.0)),
        ...                    Column("kind", "category", keys=("a", "b"))))
        >>> dp.enable_features("contrib")
        >>> rows = make_select(records, Symmetric(), features="x", label="kind")
        >>> data = {"x": np.array([[0.5, 1.0]]), "kind": np.array([1])}
        >>> rows(data).values, rows(data).labels, rows.map(3)
        (array([[0.5, 1. ]]), array([1]), 3)
    """

    key: ClassVar[str] = "select"
    in_short: ClassVar[str] = "Take the columns that are named, and leave out all others."
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "rows"

    features: Annotated[
        str | tuple[str, ...],
        param(
            "The columns whose numbers make the row: one name, or several in order.",
            symbol="f", unit="column names", min_length=1,
            hint="name a vector column, or a list of numeric columns.",
        ),
    ]  # fmt: skip
    label: Annotated[
        str | None,
        param(
            "The category column whose public keys are the classes.",
            symbol="y", unit="column name", default=None,
            hint="name a column of dtype category, or leave it out.",
        ),
    ] = None  # fmt: skip
    person: Annotated[
        str | None,
        param(
            "The column that names the person, kept beside the rows; by person it is always kept.",
            symbol="i", unit="column name", default=None,
            hint="name the column with `role: privacy_id`, or leave it out.",
        ),
    ] = None  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Stable:
        """State Lemma 1 of ``select.md``."""
        if not isinstance(domain, Records):
            raise SpaceError(
                "OS201", f"{self.key}.input_domain", expected="records with named columns",
                got=type(domain).__name__, hint="`select` is the first step on a `data` entry.",
            )  # fmt: skip
        person = self._person(domain, metric)
        features = tuple(self._feature(domain, name) for name in self._names)
        label = None if self.label is None else self._label(domain, self.label)
        output = _rows_of(features, label, person)
        low, high = np.array(output.lower), np.array(output.upper)

        def rows(data: dict[str, NDArray[Any]]) -> Rows:
            values = _beside(data, features)
            if output.lower:
                np.clip(values, low, high, out=values)
            values += 0.0  # one zero: which one `clip` returns depends on the shape
            labels = None if label is None else np.asarray(data[label.name], dtype=np.int64)
            return Rows(values, labels, None if person is None else data[person])

        def queries(data: Any) -> Rows:
            # A query has features only, and may lie outside the data's bounds.
            return Rows(_beside(data, features)) if isinstance(data, dict) else as_rows(data)

        reads = {column.name for column in features}
        reads |= {name for name in (self.label, person) if name is not None}
        return Stable(output=output, function=rows, on_queries=queries, reads=frozenset(reads))

    @property
    def _names(self) -> tuple[str, ...]:
        return (self.features,) if isinstance(self.features, str) else self.features

    def _person(self, domain: Records, metric: Metric) -> str | None:
        if not isinstance(metric, IdDistance):
            symmetric(self.key, metric)
            return None if self.person is None else self._column(domain, self.person).name
        if self.person not in (None, metric.identifier_column):
            raise SpaceError(
                "OS204", f"{self.key}.person", expected="the column that the privacy unit names",
                got=self.person, hint=f"write {metric.identifier_column!r}, or leave it out.",
            )  # fmt: skip
        return self._column(domain, metric.identifier_column).name

    def _column(self, domain: Records, name: str) -> Column:
        column = domain.column(name)
        if column is None:
            known = [c.name for c in domain.columns]
            near = get_close_matches(name, known, n=1)
            raise SpaceError(
                "OS204", self.key, expected=f"one of the columns {', '.join(known)}", got=name,
                hint=f"did you mean {near[0]!r}?" if near else "declare it in `columns`.",
            )  # fmt: skip
        return column

    def _feature(self, domain: Records, name: str) -> Column:
        column = self._column(domain, name)
        if not column.is_vector and column.dtype not in ("int64", "float64", "bool", "date"):
            raise SpaceError(
                "OS204", f"{self.key}.features", expected="numeric columns",
                got=f"{name} of dtype {column.dtype}",
                hint="features are vectors or numbers; a category belongs in `label`.",
            )  # fmt: skip
        return column

    def _label(self, domain: Records, name: str) -> Column:
        column = self._column(domain, name)
        if column.dtype != "category":
            raise SpaceError(
                "OS204", f"{self.key}.label", expected="a category with public keys",
                got=f"{name} of dtype {column.dtype}",
                hint="declare it as {dtype: category, keys: [...]} from public knowledge.",
            )  # fmt: skip
        return column


def _rows_of(features: tuple[Column, ...], label: Column | None, person: str | None) -> RealRows:
    bounds = [c.bounds for c in features for _ in range(c.width) if c.bounds]
    lower, upper = tuple(float(b[0]) for b in bounds), tuple(float(b[1]) for b in bounds)
    if not all(column.bounds for column in features):
        lower, upper = (), ()
    if len(set(lower)) == 1 and len(set(upper)) == 1:
        lower, upper = lower[:1], upper[:1]
    # Clamping to a bound that is no whole number would leave the lattice of the whole numbers.
    whole = bool(lower) and all(column.numpy_dtype.kind in "iu" for column in features)
    return RealRows(
        width=sum(column.width for column in features),
        lower=lower,
        upper=upper,
        labels=None if label is None else label.keys,
        ids=person is not None,
        lattice=1.0 if whole and all(v.is_integer() for v in (*lower, *upper)) else None,
    )


def _beside(data: dict[str, NDArray[Any]], features: tuple[Column, ...]) -> NDArray[np.float64]:
    """Return the features, shape (n, d), in a new array."""
    count = len(data[features[0].name])
    values = np.empty((count, sum(column.width for column in features)))
    start = 0
    for column in features:
        values[:, start : start + column.width] = data[column.name].reshape(count, column.width)
        start += column.width
    return values


make_select, then_select = constructors(Select)
