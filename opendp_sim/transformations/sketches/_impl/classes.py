"""Read one structure, or one for each public class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from opendp_sim.core.mechanism import param
from opendp_sim.domains.rows import GridRows

PerLabel = Annotated[
    bool,
    param(
        "One structure for each public label; classes are disjoint, so the sensitivity does not grow.",
        symbol="c", unit="none", default=False, hint="needs rows with labels.",
    ),
]  # fmt: skip


class PerClassReader:
    """Read one structure, or one for each label."""

    if TYPE_CHECKING:  # a field, or computed: nothing that a data class would take for a default

        @property
        def rows(self) -> GridRows:
            """Return the rows that the sketch was made of."""

        @property
        def per_label(self) -> bool:
            """Say whether there is one sketch for each class."""

    @property
    def labels(self) -> tuple[str | int, ...] | None:
        """The public labels of the classes, or None."""
        return self.rows.labels if self.per_label else None

    @property
    def classes(self) -> int:
        """L."""
        return 1 if self.labels is None else len(self.labels)
