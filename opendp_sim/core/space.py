"""Define descriptors of datasets and distances.

They are plain, frozen data. OpenDP compares extrinsic domains and metrics by identifier only, so an
identifier here is a canonical rendering of the *whole* descriptor: two identifiers are equal exactly
when the descriptors are. Concrete descriptors live in ``spaces/``; this module is their common base.
"""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

from opendp_sim.core import dp


def canonical_text(value: object) -> str:
    """Return text that is equal exactly for equal data, as in Python."""
    if value is None:
        return "None"
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    if isinstance(value, int | float | Fraction):
        return str(Fraction(value))  # refuses NaN, which is not equal to itself
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, tuple):
        return "[" + ",".join(map(canonical_text, value)) + "]"
    if isinstance(value, Descriptor):
        return value.identifier
    raise TypeError(f"{type(value).__name__} has no canonical rendering")


class Descriptor:
    """Base of every domain and metric descriptor; subclasses are frozen dataclasses."""

    @property
    def identifier(self) -> str:
        """The canonical, versioned rendering of the whole descriptor."""
        own = sorted((f.name, getattr(self, f.name)) for f in fields(self))  # type: ignore[arg-type]
        inside = ",".join(f"{name}={canonical_text(value)}" for name, value in own)
        return f"opendp_sim/1::{type(self).__name__}{{{inside}}}"


class Domain(Descriptor):
    """What a dataset is."""

    @abstractmethod
    def check(self, data: Any) -> None:
        """Raise a ``DataError`` of constant text unless ``data`` is a member."""

    def normal(self, data: Any) -> Any:
        """Return ``data`` in the domain's one normal form.

        Functions on this domain see no other form. What comes in through OpenDP passes here before
        ``check``, as what comes in from files passes the door of ``sources``. It changes how a value
        is held, never which value it is.
        """
        return data

    def check_native(self, data: Any) -> None:
        """Raise ``DataError`` unless OpenDP's form of ``data`` is a member.

        What a release calls: where ``native`` is wider than this domain, its members are no reason to
        refuse, for a refusal that depends on the data tells of it.
        """
        self.check(data)

    def member(self, data: Any) -> bool:
        """Say whether ``data`` is a member; never raises."""
        try:
            self.check(data)
        except Exception:  # noqa: BLE001 - whatever cannot even be looked at is no member
            return False
        return True

    def native(self) -> dp.Domain | None:
        """Return the equal OpenDP domain where there is one."""
        return None


class Metric(Descriptor):
    """How two datasets are compared."""

    def native(self) -> dp.Metric | None:
        """Return the equal OpenDP metric where there is one."""
        return None


FOREIGN_DOMAINS: list[Callable[[dp.Domain], Domain | None]] = []
"""Readers of OpenDP's own domains; ``spaces`` adds one for each domain it understands."""
FOREIGN_METRICS: list[Callable[[dp.Metric], Metric | None]] = []
"""The same for metrics."""


@dataclass(frozen=True)
class DomainCast:
    """Read an OpenDP domain's members as ours, row by row."""

    domain: Domain
    function: Callable[[Any], Any]
    only: Callable[[frozenset[str]], DomainCast]
    """The same of these columns alone: a row is dropped for what is looked at, and for nothing else."""


@dataclass(frozen=True)
class MetricCast:
    """Bound a metric of ours by OpenDP's, through ``distance``."""

    metric: Metric
    distance: Callable[[Any], int]


CAST_DOMAINS: list[Callable[[dp.Domain], DomainCast | None]] = []
"""Readers of OpenDP's domains that equal none of ours (``domains/casts.md``)."""
CAST_METRICS: list[Callable[[dp.Metric], MetricCast | None]] = []
"""The same for metrics."""
