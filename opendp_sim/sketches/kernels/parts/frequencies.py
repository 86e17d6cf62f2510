"""The random frequencies and phases of a Fourier sketch, drawn from its public seed.

Proofs: ``fourier_sketch.md``.
"""

from __future__ import annotations

import math
from typing import ClassVar, Protocol

import numpy as np

from opendp_sim.core.errors import SpaceError
from opendp_sim.core.grid import PhaseProjection
from opendp_sim.core.randomness import public_generator
from opendp_sim.sketches.kernels.parts.kernels import Kernel, Term
from opendp_sim.spaces.rows import GridRows

__all__ = ["Parameters", "drawn_phases"]

_MOST_TURNS = 2.0**30
"""Turns a grid step beyond which folding would keep too few digits of a frequency."""


class Parameters(Protocol):
    """The public parameters of the sketch that is read: those of ``FourierSketch``."""

    key: ClassVar[str]

    @property
    def kernel(self) -> Kernel:
        """The kernel whose sums are estimated."""
        ...

    @property
    def frequencies(self) -> int:
        """How many random frequencies there are (D)."""
        ...

    @property
    def seed(self) -> int:
        """The public seed of the frequencies."""
        ...

    @property
    def phases(self) -> int:
        """Steps of a full turn (P)."""
        ...

    @property
    def per_label(self) -> bool:
        """Whether there is one structure a label."""
        ...

    @property
    def count_weight(self) -> int | None:
        """The integer weight of the total's cell, where it is asked for."""
        ...

    @property
    def weight(self) -> int:
        """The weight that random frequencies have."""
        ...


def drawn_phases(
    mechanism: Parameters, rows: GridRows, terms: tuple[Term, ...], *, orthogonal: bool
) -> PhaseProjection:
    """Return the frequencies and phases of the seed, on the finest exact grid.

    Args:
        mechanism: whose seed, and how many frequencies and phases.
        rows: the grid that is projected.
        terms: the kernels whose spectra are drawn from, and how many frequencies each has.
        orthogonal: whether the frequencies of a term are drawn at right angles.

    Raises:
        SpaceError (OS203): a bandwidth far below the grid.
    """
    turn, count = mechanism.phases, mechanism.frequencies
    generator = public_generator(mechanism.seed, mechanism.key, "frequencies")
    draws = [t.kernel.orthogonal if orthogonal else t.kernel.frequencies for t in terms]
    drawn = [
        draw(generator, rows.width, term.size) for draw, term in zip(draws, terms, strict=True)
    ]
    steps = np.concatenate(drawn, axis=1) * (rows.unit * turn / (2.0 * math.pi))
    where = f"{mechanism.key}.input_domain"
    if not np.abs(steps).max() <= turn * _MOST_TURNS:
        raise SpaceError(
            "OS203", where, expected="frequencies of at most 2**30 turns a grid step",
            got="a bandwidth far below the grid", hint="widen the bandwidth or refine the grid.",
        )  # fmt: skip
    # Coordinates are integers, so a whole turn per grid step is no turn: heavy tails fold back.
    steps -= turn * np.rint(steps / turn)
    offset = public_generator(mechanism.seed, mechanism.key, "offsets").random(count) * turn
    return PhaseProjection.fit(steps, offset, rows.magnitude, where)
