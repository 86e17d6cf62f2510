"""From an input domain and metric to a space of neighbouring pairs that the search can walk in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import opendp_sim.audit.own_domains  # noqa: F401 - teaches the project's own domains
from opendp_sim.audit.atoms import Source
from opendp_sim.audit.datasets import Records, atom_of, records_of
from opendp_sim.audit.members import quiet_member
from opendp_sim.audit.neighbours import RECORD_METRICS, Pair, PairSpace, RecordSpace
from opendp_sim.audit.persons import PersonSpace
from opendp_sim.audit.vectors import VECTOR_METRICS, VectorSpace
from opendp_sim.core import dp
from opendp_sim.core.errors import AuditError
from opendp_sim.core.randomness import public_generator

_PERSON_OF_A_ROW = 2
"""Where ``own_domains`` puts the person of a row: values, label, person."""

__all__ = ["GivenPairs", "metric_name", "person_place", "some_dataset", "space_of"]


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
    """Return the bare name of a metric, without its parameters; our own by their class."""
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

    Args:
        domain: the input domain.
        metric: the input metric.
        d_in: the input distance of the claim.
        pairs: the user's own pairs, used alone when nothing else is known.
        generator: makes a dataset; its records are edited as the metric says.

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
    """Return the space of a metric whose neighbours are known; None of another metric."""
    if name in RECORD_METRICS or name == "Symmetric":
        records = records_of(domain) if generator is None else _generated(domain, generator)
        kind = "SymmetricDistance" if name == "Symmetric" else name
        return RecordSpace(records, kind, int(d_in))
    if name == "IdDistance":
        records = records_of(domain) if generator is None else _generated(domain, generator)
        return PersonSpace(records, person_place(domain, metric), int(d_in))
    if name == "DiscreteDistance" and generator is not None:
        return MadePairs(generator, d_in)
    if name in VECTOR_METRICS or name == "VectorNorm":
        return _vectors(domain, metric, name, d_in)
    return None


def person_place(domain: dp.Domain, metric: dp.Metric) -> int:
    """Return which part of a record names its person."""
    descriptor = getattr(domain, "descriptor", None)
    names = [column.name for column in getattr(descriptor, "columns", ())]
    wanted = metric.descriptor.identifier_column
    if wanted in names:
        return names.index(wanted)
    if getattr(descriptor, "ids", False):
        return _PERSON_OF_A_ROW
    raise _unknown("records that name their person", "records without an identifier")


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


def _generated(domain: dp.Domain, generator: Callable[[np.random.Generator], Any]) -> Records:
    """Records drawn from the user's datasets; put together as the domain says, or as a list."""
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
    return Records(Source((), draw, first), build, split, size)


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
