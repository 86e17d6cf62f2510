"""The whole error of a sum: its noise, and what each record adds to it at most.

Noise, the sketch's draws and a random projection are independent, so their squares add up; the deviation
of a sum over records is at most the sum of their deviations (Minkowski). Bias and rounding may all point
one way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from opendp_sim.dsl.output_types import OutputType

__all__ = ["DRAWN", "FIXED", "Whole", "whole_of"]

_ENDING = ", per record at most"
_PROJECTED = "jl_error_"
_KERNELS = {"gauss_transform_sketch": "gaussian", "exponential_sum": "rational"}
"""Kernels of sketches that have only one, by the names of a projection's numbers."""
_RELATIVE = "relative deviation of the projection"
_CUTS = {"clip_rows": "cuts off", "l1_embedding": "cuts off", "jl_projection": "changes"}
"""Steps that may move records by what no plan knows, and what they do."""
_DRAWN = {"sampling": "the draws of the sketch", "projection": "the projection"}
_FIXED = {"bias": "the structure itself", "rounding": "rounding to the grid"}


DRAWN, FIXED = tuple(_DRAWN.values()), tuple(_FIXED.values())
"""Parts of which squares are added up with those of the noise, and those that are added as they are."""


@dataclass(frozen=True)
class Whole:
    """What the error of a sum is made of, each in the sum's own unit.

    Attributes:
        noise: its deviation, the same for any number of records.
        drawn: by word, the most that the deviation grows with each record.
        fixed: by word, the most that the sum is moved with each record.
        cuts: steps whose share is not known.
    """

    noise: float
    drawn: Mapping[str, float]
    fixed: Mapping[str, float]
    cuts: tuple[str, ...] = ()

    def at(self, records: int) -> float:
        """Return a bound on the root mean square of the whole error with this number of records."""
        drawn = (records * value for value in self.drawn.values())
        return math.hypot(self.noise, *drawn) + records * sum(self.fixed.values())

    @property
    def has_parts(self) -> bool:
        """Whether anything but noise is known of."""
        return any(self.drawn.values()) or any(self.fixed.values())

    def parts(self) -> Iterator[tuple[str, float]]:
        """Yield what each record adds at most, in words, the largest first."""
        named = [(_DRAWN[word], value) for word, value in self.drawn.items()]
        named += [(_FIXED[word], value) for word, value in self.fixed.items()]
        yield from sorted((part for part in named if part[1]), key=lambda part: -part[1])

    def cut_off(self) -> str:
        """Return the sentence about steps whose share no plan knows; nothing where there are none."""
        return "".join(f". What `{key}` {_CUTS[key]} comes on top" for key in self.cuts)


def whole_of(output: OutputType, noise: float) -> Whole:
    """Return what the error of an output's sums is made of, as its claims state it."""
    expected = output.expected
    fixed = {word: expected.get(f"{word}{_ENDING}", 0.0) for word in _FIXED}
    fixed["bias"] += expected.get("bias per record", 0.0)
    farthest = max((post.of_a_record for post in output.posts), default=0.0)
    drawn = {
        "sampling": expected.get(f"sampling{_ENDING}", 0.0),
        "projection": max(
            _projected(output),
            expected.get(_RELATIVE, 0.0) * farthest
            + expected.get("deviation of the projection, per record", 0.0),
        ),
    }
    cuts = {stage.mechanism.key for stage in output.stage.stages}
    if drawn["projection"]:
        cuts.discard("jl_projection")
    return Whole(noise, drawn, fixed, tuple(key for key in _CUTS if key in cuts))


def _projected(output: OutputType) -> float:
    """Bound what a projection does to a record's kernel (Lemma 3 of ``jl_projection.md``).

    0 where there is none, and for kernels that the lemma has no number of.
    """
    mechanism = output.stage.stages[-1].mechanism
    sketch = f"{mechanism.spec()} {_KERNELS.get(mechanism.key, '')}"
    return max(
        (
            float(value)
            for stage in output.stage.stages
            for name, value in getattr(stage.claim, "expected", {}).items()
            if name.startswith(_PROJECTED) and name.removeprefix(_PROJECTED) in sketch
        ),
        default=0.0,
    )
