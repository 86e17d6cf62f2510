"""Build the space of neighbouring pairs of a domain and metric."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.claims.output_distance import exceeds, measure_distance
from opendp_sim.audit.generators.atoms import ValueSource, listed_source, tuple_source
from opendp_sim.audit.generators.datasets import DatasetRecords, atom_of, records_of, teach
from opendp_sim.audit.generators.domain_filter import MemberPairs, quiet_member
from opendp_sim.audit.generators.frames import (
    Bounds,
    Public,
    frame_distance_of,
    frame_rows,
    is_frame,
    person_column,
)
from opendp_sim.audit.generators.neighbours import RECORD_METRICS, Pair, PairSpace, RecordSpace
from opendp_sim.audit.generators.user_level import PersonSpace
from opendp_sim.audit.generators.vectors import MAP_METRICS, VECTOR_METRICS, MapSpace, VectorSpace
from opendp_sim.core import dp
from opendp_sim.core.errors import AuditError
from opendp_sim.core.randomness import public_generator
from opendp_sim.domains.records import Records as RecordTable
from opendp_sim.domains.rows import GridRows, RealRows, Rows

# --------------------------------------------------------------------------------------------------
# Datasets of the project's own row domains, taught to the generator by their descriptors.

Record = tuple[tuple[float, ...], int, Any]
"""Values, index of the label (0 without labels), person (0 without ids)."""


@teach(GridRows)
def _grid(descriptor: Any) -> DatasetRecords:
    norm = None if descriptor.l2 is None else ("l2", descriptor.l2)
    return _rows(descriptor, *_bounds(descriptor, 8), norm, np.trunc)


@teach(RealRows)
def _real(descriptor: Any) -> DatasetRecords:
    return _rows(descriptor, *_bounds(descriptor, 8.0), descriptor.norm, np.asarray)


def _bounds(descriptor: Any, reach: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    low = np.array(descriptor.lower or (-reach,), dtype=float)
    high = np.array(descriptor.upper or (reach,), dtype=float)
    width = descriptor.width
    return np.broadcast_to(low, (width,)).copy(), np.broadcast_to(high, (width,)).copy()


def _rows(
    descriptor: Any, low: NDArray[np.float64], high: NDArray[np.float64], norm: Any, held: Any
) -> DatasetRecords:
    """Return a builder of rows, with labels and persons of the domain.

    ``held`` rounds a row.
    """
    width, labels = descriptor.width, len(descriptor.labels or (0,))

    def inside(row: NDArray[np.float64]) -> NDArray[np.float64]:
        row = np.clip(held(row), low, high)
        if norm is None:
            return row
        length = float(np.linalg.norm(row, ord={"l1": 1, "l2": 2, "linf": np.inf}[norm[0]]))
        return np.asarray(held(row * (norm[1] / length))) if length > norm[1] else row

    def record(values: NDArray[np.float64], label: int, person: int) -> Record:
        return tuple(float(v) for v in inside(np.asarray(values, dtype=float))), label, person

    def draw(rng: np.random.Generator) -> Record:
        kind = rng.integers(4)
        if kind == 0:
            values = rng.uniform(low, high)
        elif kind == 1:
            values = np.where(rng.random(width) < 0.5, low, high)
        elif kind == 2:
            values = np.zeros(width)
            spot = int(rng.integers(width))
            values[spot] = (low, high)[int(rng.integers(2))][spot]
        else:
            values = (low + high) / 2 + rng.integers(-2, 3, size=width)
        return record(values, int(rng.integers(labels)), int(rng.integers(3)))

    corners = [
        record(v, label, 0) for v in (np.zeros(width), low, high) for label in {0, labels - 1}
    ]

    def build(records: Sequence[Record]) -> Rows:
        values = np.array([r[0] for r in records], dtype=np.float64).reshape(len(records), width)
        tags = np.array([r[1] for r in records], dtype=np.int64) if descriptor.labels else None
        ids = np.array([r[2] for r in records], dtype=np.int64) if descriptor.ids else None
        return Rows(values, tags, ids)

    def split(rows: Rows) -> list[Record]:
        tags = rows.labels if rows.labels is not None else np.zeros(len(rows), np.int64)
        ids = rows.ids if rows.ids is not None else np.zeros(len(rows), np.int64)
        return [
            (tuple(map(float, v)), int(t), p)
            for v, t, p in zip(rows.values, tags, ids.tolist(), strict=True)
        ]

    return DatasetRecords(ValueSource(tuple(corners), draw, corners[0]), build, split)


@teach(RecordTable)
def _table(descriptor: Any) -> DatasetRecords:
    """Return a builder of datasets with named columns."""
    columns = descriptor.columns
    source = tuple_source([_column(column) for column in columns])

    def build(records: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
        out = {}
        for spot, column in enumerate(columns):
            shape = (len(records), column.width) if column.is_vector else (len(records),)
            cells = [record[spot] for record in records]
            out[column.name] = np.array(cells, dtype=column.numpy_dtype).reshape(shape)
        return out

    def split(data: dict[str, Any]) -> list[tuple[Any, ...]]:
        held = [data[column.name].tolist() for column in columns]
        return [
            tuple(tuple(c) if isinstance(c, list) else c for c in row)
            for row in zip(*held, strict=True)
        ]

    return DatasetRecords(source, build, split)


def _column(column: Any) -> ValueSource:
    """Return a source of a column's values."""
    if column.keys:
        return listed_source(range(len(column.keys)))
    if column.dtype == "str":
        return listed_source(("u", "v", "w", "u2", "U"))
    low, high = column.bounds or (-8.0, 8.0)
    whole = column.numpy_dtype.kind in "iu"
    low, high = (float(np.ceil(low)), float(np.floor(high))) if whole else (low, high)
    middle = min(max(0.0, low), high)

    def one(value: Any) -> Any:
        held = column.numpy_dtype.type(value)
        inside = held if low <= held <= high else column.numpy_dtype.type(middle)
        value = inside.item()
        return (value,) * column.width if column.is_vector else value

    def draw(rng: np.random.Generator) -> Any:
        if not column.is_vector:
            return one(rng.integers(int(low), int(high) + 1) if whole else rng.uniform(low, high))
        return tuple(
            float(np.clip(column.numpy_dtype.type(v), low, high))
            for v in rng.uniform(low, high, column.width)
        )

    corners = [one(v) for v in (middle, low, high)]
    if column.is_vector:  # cells that differ: what depends on their order shows
        plain, lowest, highest = corners
        corners += [(*lowest[:1], *plain[1:]), (*plain[:-1], *highest[-1:])]
    kept = tuple(dict.fromkeys(corners))
    return ValueSource(kept, draw, kept[0])


# --------------------------------------------------------------------------------------------------

_PERSON_OF_A_ROW = 2
"""Where ``own_domains`` puts the person of a row: values, label, person."""


@dataclass(frozen=True)
class GivenPairs:
    """Only the pairs that the user gave."""

    pairs: tuple[Pair, ...]

    def draw(self, rng: np.random.Generator, distance: Any = None) -> Pair:  # noqa: ARG002
        """Return one of them."""
        return self.pairs[int(rng.integers(len(self.pairs)))]

    def corners(self, rng: np.random.Generator) -> Iterator[Pair]:  # noqa: ARG002
        """Yield all of them."""
        yield from self.pairs

    def mutate(self, pair: Pair, rng: np.random.Generator) -> Pair:  # noqa: ARG002
        """Return the pair; nothing is known about its neighbourhood."""
        return pair

    def simpler(self, pair: Pair) -> Iterator[Pair]:  # noqa: ARG002
        """Yield nothing."""
        yield from ()


@dataclass(frozen=True)
class MadePairs:
    """Pairs of the user's datasets, where any two are neighbours."""

    generator: Callable[[np.random.Generator], Any]
    d_in: Any

    def draw(self, rng: np.random.Generator, distance: Any = None) -> Pair:
        """Return two of them; at distance zero the same one twice."""
        distance = self.d_in if distance is None else distance
        left = self._made(rng)
        return Pair(left, self._made(rng) if distance >= 1 else left, distance)

    def corners(self, rng: np.random.Generator) -> Iterator[Pair]:
        """Yield some pairs."""
        for _ in range(24):
            yield self.draw(rng)

    def mutate(self, pair: Pair, rng: np.random.Generator) -> Pair:
        """Return the pair with another right side."""
        return replace(pair, right=self._made(rng)) if pair.distance >= 1 else pair

    def simpler(self, pair: Pair) -> Iterator[Pair]:  # noqa: ARG002
        """Yield nothing."""
        yield from ()

    def _made(self, rng: np.random.Generator) -> Any:
        try:
            return self.generator(rng)
        except Exception as error:  # noqa: BLE001 - the user's function
            raise _generator(f"{type(error).__name__} when it was called") from None


def metric_name(metric: dp.Metric) -> str:
    """Return the bare name of a metric, without parameters."""
    descriptor = getattr(metric, "descriptor", None)
    if descriptor is not None:
        return type(descriptor).__name__
    return str(metric.type).split("<")[0].split("::")[-1]


def space_of(
    domain: dp.Domain | None,
    metric: dp.Metric | None,
    d_in: Any,
    *,
    pairs: tuple[tuple[Any, Any], ...] = (),
    generator: Callable[[np.random.Generator], Any] | None = None,
) -> PairSpace:
    """Return the space of neighbouring pairs of a claim.

    Raises:
        AuditError: OS501, neither the domain nor the user says what a dataset is.
    """
    given = tuple(Pair(left, right, d_in) for left, right in pairs)
    if domain is None or metric is None:
        if given:
            return GivenPairs(given)
        raise _unknown("a domain and a metric, or pairs=", "neither")
    name = metric_name(metric)
    try:
        found = _known(domain, metric, name, d_in, generator)
    except AuditError:
        if not given and (generator is None or name not in VECTOR_METRICS):
            raise
        found = None  # a generator says no neighbours in a norm
    if found is not None:
        return found
    if given:
        return GivenPairs(given)
    if generator is not None:
        raise AuditError(
            "OS501", "audit.spaces", expected="a distance whose neighbours are known", got=name,
            hint="generator= makes datasets, but says no neighbours: pass pairs=[(x, x'), ...].",
        )  # fmt: skip
    raise _unknown("a dataset metric or a norm", name)


def _known(
    domain: dp.Domain,
    metric: dp.Metric,
    name: str,
    d_in: Any,
    generator: Callable[[np.random.Generator], Any] | None,
) -> PairSpace | None:
    """Return the space of a known metric, or None."""
    if name in RECORD_METRICS or name == "Symmetric":
        records = records_of(domain) if generator is None else _generated(domain, generator)
        kind = "SymmetricDistance" if name == "Symmetric" else name
        if is_frame(domain) and (rules := Public.of(domain, d_in)):
            records = replace(records, mend=rules.mend)
        return RecordSpace(records, kind, int(d_in))
    if name in ("IdDistance", "SymmetricIdDistance"):
        records = records_of(domain) if generator is None else _generated(domain, generator)
        return PersonSpace(records, person_place(domain, metric), int(d_in))
    if name == "FrameDistance" and isinstance(d_in, Bounds):
        return _frames(domain, metric, d_in)
    if _is_map(domain) and name in MAP_METRICS and generator is None:
        return _maps(domain, name, d_in)
    if name == "DiscreteDistance" and generator is not None:
        return MadePairs(generator, d_in)
    bits = str(getattr(domain, "carrier_type", "")) == "BitVector" and name != "DiscreteDistance"
    if not bits and (name in VECTOR_METRICS or name == "VectorNorm"):
        return _vectors(domain, metric, name, d_in)
    return None


def person_place(domain: dp.Domain, metric: dp.Metric) -> int:
    """Return which part of a record names its person."""
    if is_frame(domain):
        return person_column(domain, metric)
    descriptor = getattr(domain, "descriptor", None)
    names = [column.name for column in getattr(descriptor, "columns", ())]
    wanted = metric.descriptor.identifier_column
    if wanted in names:
        return names.index(wanted)
    if getattr(descriptor, "ids", False):
        return _PERSON_OF_A_ROW
    raise _unknown("records that name their person", "records without an identifier")


def _frames(domain: dp.Domain, metric: dp.Metric, d_in: Bounds) -> PairSpace:
    """Return pairs of frames within bounds on a person's rows."""
    inner = metric_name(frame_distance_of(metric))
    if inner != "SymmetricDistance":
        raise _unknown("pairs=, or bounds of rows that are added and removed", inner)
    records = replace(records_of(domain), mend=Public.of(domain, d_in).mend)
    return RecordSpace(records, inner, d_in)


def _is_map(domain: dp.Domain) -> bool:
    return str(domain.type).startswith("opendp::domains::MapDomain")


def _maps(domain: dp.Domain, name: str, d_in: Any) -> MapSpace:
    """Return pairs of mappings from keys to numbers."""
    parts = re.fullmatch(r"HashMap<(\w+), (\w+)>", str(domain.carrier_type))
    if parts is None:
        raise _unknown("a mapping from atoms to numbers", str(domain.carrier_type))
    keys, values = (atom_of(dp.atom_domain(T=kind)) for kind in parts.groups())
    return MapSpace(keys, values, name, d_in, quiet_member(domain), parts[2][0] != "f")


def pair_rules(
    domain: dp.Domain | None, metric: dp.Metric | None, d_in: Any
) -> Callable[[Any, Any], bool] | None:
    """Return a test of the public facts of a pair, or None."""
    if is_frame(domain):
        assert domain is not None  # noqa: S101 - it is a frame's
        split = frame_rows(domain)[2]
        rules = Public.of(domain, d_in)
        return (lambda x, y: rules.allows(split(x), split(y))) if rules else None
    if domain is None or metric is None or not _is_map(domain):
        return None
    name = metric_name(metric)
    return lambda x, y: not exceeds(name, measure_distance(name, x, y), d_in)


def members_of(subject: Any, space: PairSpace, d_in: Any) -> MemberPairs:
    """Return a space's pairs that a claim is about."""
    domain = subject.input_domain
    rules = pair_rules(domain, subject.input_metric, d_in)
    return MemberPairs(space, quiet_member(domain), rules)


def _vectors(domain: dp.Domain, metric: dp.Metric, name: str, d_in: Any) -> VectorSpace:
    scalar = not isinstance(domain, dp.VectorDomain)
    source = atom_of(domain) if scalar else atom_of(domain.element_domain)
    size = None if scalar else domain.size
    carrier = str((domain if scalar else domain.element_domain).carrier_type)
    monotone = "monotonic" in str(metric)
    integral = not carrier.startswith("f") and carrier != "bool"
    weights: tuple[int, ...] = ()
    steps = False
    if name == "VectorNorm":
        norm = metric.descriptor
        name = {"l1": "L1Distance", "l2": "L2Distance", "linf": "LInfDistance"}[norm.norm]
        weights = tuple(weight for count, weight in norm.weights for _ in range(count))
        monotone, steps = norm.monotone, norm.steps
        if norm.touched is not None:
            raise _unknown("pairs= for a distance that bounds the cells of a step", "none")
    return VectorSpace(
        source,
        name,
        d_in,
        size,
        scalar,
        quiet_member(domain),
        integral,
        monotone,
        carrier == "f32",
        weights,
        steps,
    )


def _generated(
    domain: dp.Domain, generator: Callable[[np.random.Generator], Any]
) -> DatasetRecords:
    """Return records drawn from the user's datasets."""
    try:
        known = records_of(domain)
        build, split, size = known.build, known.split, known.size
    except AuditError:
        build, split, size = list, list, None

    def draw(rng: np.random.Generator) -> Any:
        for _ in range(20):
            try:
                records = split(generator(rng))
            except Exception as error:  # noqa: BLE001 - the user's function
                raise _generator(f"{type(error).__name__} when it was called") from None
            if records:
                return records[int(rng.integers(len(records)))]
        raise _generator("empty datasets only")

    first = draw(public_generator(0, "audit", "simplest"))
    return DatasetRecords(ValueSource((), draw, first), build, split, size)


def some_dataset(domain: dp.Domain, metric: dp.Metric, d_in: Any) -> Any:
    """Return a synthetic dataset of a space, always the same one."""
    return space_of(domain, metric, d_in).draw(public_generator(0, "audit", "dataset")).left


def _generator(got: str) -> AuditError:
    return AuditError(
        "OS501", "audit.generator", expected="a function of a numpy Generator to a dataset with records",
        got=got, hint="for example generator=lambda rng: rng.integers(0, 9, 20).tolist().",
    )  # fmt: skip


def _unknown(expected: str, got: str) -> AuditError:
    return AuditError(
        "OS501", "audit.spaces", expected=expected, got=got,
        hint="pass pairs=[(x, x'), ...] or generator= (a numpy Generator to a dataset).",
    )  # fmt: skip
