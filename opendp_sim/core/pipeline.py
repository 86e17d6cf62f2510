"""Bind mechanisms one after another, and run them on blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from opendp_sim.core.claims import Sensitivity, Stable, Stage
from opendp_sim.core.errors import SpaceError
from opendp_sim.core.mechanism import Mechanism
from opendp_sim.core.space import Domain, Metric

Blocks = Callable[[], Iterable[Any]]
"""Opens the dataset afresh: an iterable of blocks."""


def bind_steps(
    domain: Domain, metric: Metric, mechanisms: Sequence[Mechanism]
) -> tuple[Stage, ...]:
    """Bind each mechanism to the output space of the one before it."""
    stages: list[Stage] = []
    for mechanism in mechanisms:
        claim = mechanism.bind(domain, metric)
        stages.append(Stage(mechanism, domain, metric, claim))
        if not isinstance(claim, Stable):
            break
        domain, metric = claim.output, claim.output_metric or metric
    if len(stages) < len(mechanisms):
        raise SpaceError(
            "OS201", mechanisms[len(stages)].key, expected="a step after a stable step",
            got=f"a step after `{stages[-1].mechanism.key}`",
            hint="nothing but post-processing may follow a release.",
        )  # fmt: skip
    return tuple(stages)


def stability(stages: Iterable[Stage]) -> int:
    """Return the product of the row maps' stabilities."""
    product = 1
    for stage in stages:
        if isinstance(stage.claim, Stable) and stage.claim.sensitivity is None:
            product *= stage.claim.stability
    return product


def sensitivity_after(stages: Sequence[Stage]) -> Sensitivity | None:
    """Return a final sketch's sensitivity per unit of distance, or None."""
    last = stages[-1].claim if stages else None
    if not isinstance(last, Stable) or last.sensitivity is None:
        return None
    return last.sensitivity * stability(stages[:-1])


def resolve(stages: Sequence[Stage], blocks: Blocks) -> Callable[[Any], Any]:
    """Return the block-wise function of the row maps.

    Surveys the data where a map needs it. A map with ``survey`` (contribution bounding) reads all
    blocks, through the maps before it, once or twice, and is block-wise from then on. Memory: one
    block, and what the survey keeps. The result is good for one pass over the data, its blocks in any
    order; resolve again for another.
    """
    functions: list[Callable[[Any], Any]] = []

    def through(block: Any) -> Any:
        for function in functions:
            block = function(block)
        return block

    for stage in stages:
        claim = stage.claim
        if not isinstance(claim, Stable) or claim.sensitivity is not None:
            break
        if claim.survey is not None:
            functions.append(claim.survey(_Mapped(blocks, tuple(functions))))
        elif claim.function is not None:
            functions.append(claim.function)
    return through


@dataclass(frozen=True)
class _Mapped:
    """The blocks after some maps, as often as they are asked for."""

    blocks: Blocks
    functions: tuple[Callable[[Any], Any], ...]

    def __iter__(self) -> Iterator[Any]:
        functions = [getattr(f, "fresh", lambda f=f: f)() for f in self.functions]
        for block in self.blocks():
            for function in functions:
                block = function(block)  # noqa: PLW2901 - a pipe
            yield block


def on_queries(stages: Sequence[Stage], queries: Any) -> Any:
    """Apply the row maps to public queries, unclamped where declared."""
    for stage in stages:
        claim = stage.claim
        if not isinstance(claim, Stable) or claim.sensitivity is not None:
            break
        function = claim.on_queries or claim.function
        if function is not None:
            queries = function(queries)
    return queries
