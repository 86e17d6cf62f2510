"""Bound the work and the answer of a free question beforehand.

A question is refused (422, ``work``) by public numbers alone: its queries, its parameters and the
sizes of the release. Parameters are counted by their declared units: ``points`` are looked at or
drawn, ``moves`` look at both neighbours along every column, ``evaluations`` look at the release once
each, ``items`` are lines, and a list has an answer for each entry and column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from opendp_sim.accounting.release.release import Release
from opendp_sim.core.claims import Post, Stable
from opendp_sim.core.errors import SimError
from opendp_sim.core.mechanism import REGISTRY, Mechanism, lookup
from opendp_sim.domains.records import Records
from opendp_sim.domains.released import AnswerColumns
from opendp_sim.web.guard import HttpRefusal

ROWS, SESSION_ROWS = 10_000, 256
"""Queries at most of a request, to a release and to a session."""
WORK, CELLS = 2 * 10**9, 10**6
"""Products of points and released numbers at most of a request, and cells of its answer."""


@dataclass(frozen=True)
class FreeQuestion:
    """Hold one question of a release.

    Args:
        release: what is asked. name: one of its ``ops``. features: the columns of a query.
    """

    release: Release
    name: str
    features: Records

    @property
    def needs(self) -> tuple[str, ...]:
        """Return the parameters without a default."""
        fields = REGISTRY[self.name].model_fields
        return tuple(name for name, field in fields.items() if field.is_required())

    @cached_property
    def queries(self) -> bool | None:
        """Return whether it needs queries, None where parameters decide."""
        try:
            return None if self.needs else self._claim(lookup(self.name)()).asks
        except SimError:
            return None  # this release answers it with other parameters, or not at all

    @cached_property
    def rows(self) -> int:
        """Return the most queries of one request, at the parameters' defaults."""
        try:
            claim = Post(len) if self.needs else self._claim(lookup(self.name)())
        except SimError:
            claim = Post(len)
        work, cells = WORK // self._released, CELLS // (self._classes * self._columns(claim))
        return max(1, min(ROWS, work, cells))

    def check(self, parameters: Mapping[str, Any], rows: int) -> None:
        """Refuse a question that takes too much, by sizes alone.

        Raises:
            ParameterError (OS101), ReleaseError (OS702): another question. HttpRefusal (422): too much.
        """
        mechanism = lookup(self.name)(**parameters)
        work, cells = self._effort(mechanism, self._claim(mechanism), rows)
        if work > WORK or cells > CELLS:
            raise HttpRefusal(
                422, "work",
                f"at most {WORK:,} products of points and released numbers, and {CELLS:,} cells of an "
                f"answer; this question takes up to {work:,} and {cells:,}",
                f"ask at most {self.rows:,} queries a request, with smaller parameters; or load the file "
                "with `opendp_sim.Release`.",
            )  # fmt: skip

    def _effort(self, mechanism: Mechanism, claim: Post, rows: int) -> tuple[int, int]:
        """Return the largest work and the most cells of an answer."""
        fields = type(mechanism).model_fields
        held = {name: getattr(mechanism, name) for name in fields}
        counted = {_unit(fields[name]): v for name, v in held.items() if isinstance(v, int)}
        lists = max((len(v) for v in held.values() if isinstance(v, tuple)), default=0)
        points, width = max(rows, counted.get("points", 0)), max(1, self._width)
        looks = max(1, points) * (1 + 2 * width * counted.get("moves", 0))
        looks += counted.get("evaluations", 0)
        lines = points * self._classes or lists * width * self._classes
        lines = lines or counted.get("items", 0) or self._released
        return looks * self._released, lines * self._columns(claim)

    def _claim(self, mechanism: Mechanism) -> Post:
        return mechanism.bind(self.release.released, self.release.stages[0].metric)  # type: ignore[return-value]

    @property
    def _width(self) -> int:
        return sum(column.width for column in self.features.columns)

    @cached_property
    def _released(self) -> int:
        """Return how many numbers are released, public matrices with them."""
        claims = [stage.claim for stage in self.release.stages]
        drawn = sum(m.size for claim in claims if isinstance(claim, Stable) for m in claim.matrices)
        return max(1, drawn + sum(array.size for array in self.release.arrays.values()))

    @cached_property
    def _classes(self) -> int:
        offers = self.release.released.capabilities.values()
        return max((len(getattr(offer, "labels", None) or ()) for offer in offers), default=0) or 1

    def _columns(self, claim: Post) -> int:
        """Return the columns of an answer, those of queries with them."""
        own = len(claim.output.columns) if isinstance(claim.output, AnswerColumns) else 8
        places = len(claim.output.places) if isinstance(claim.output, AnswerColumns) else 0
        return own + places * self._width + len(self.features.columns) + 2


def _unit(field: Any) -> str:
    extra = field.json_schema_extra
    return str(extra.get("unit", "")) if isinstance(extra, dict) else ""
