"""Fresh releases of a pair, encoded; exceptions are outputs like any other."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from opendp_sim.audit.encoding import Encoded, Raised, encode
from opendp_sim.audit.neighbours import Pair
from opendp_sim.audit.subject import Subject

__all__ = ["Sample", "draw"]

_WIDE = 4000


def draw(subject: Subject, data: Any, count: int) -> list[Any]:
    """Return ``count`` releases; a failing run yields its exception."""
    if subject.sample is not None:
        return [_narrow(v) for v in subject.releases(data, count)]
    out: list[Any] = []
    for _ in range(count):
        try:
            out.append(_narrow(subject.run(data)))
        except Exception as error:  # noqa: BLE001
            out.append(Raised.of(error))
    return out


def _narrow(value: Any) -> Any:
    """Keep the sum and evenly spread cells of a very wide release: post-processing, so still sound."""
    wide = isinstance(value, np.ndarray) or (isinstance(value, list) and len(value) > _WIDE)
    if not wide or np.size(value) <= _WIDE:
        return value
    flat = np.asarray(value, dtype=float).ravel()
    spots = np.linspace(0, flat.size - 1, 399).astype(np.int64)
    return np.concatenate([[flat.sum()], flat[spots]])


@dataclass
class Sample:
    """All outputs of one pair so far."""

    pair: Pair
    left: list[Encoded] = field(default_factory=list)
    right: list[Encoded] = field(default_factory=list)
    runs: int = 0
    seconds: float = 0.0

    def extend(self, subject: Subject, count: int) -> tuple[Encoded, Encoded]:
        """Draw ``count`` more from each side and return them."""
        begin = time.process_time()
        fresh = (
            encode(draw(subject, self.pair.left, count)),
            encode(draw(subject, self.pair.right, count)),
        )
        self.left.append(fresh[0])
        self.right.append(fresh[1])
        self.runs += count
        self.seconds += time.process_time() - begin
        return fresh

    def all(self) -> tuple[Encoded, Encoded]:
        """Return everything drawn so far, joined."""
        self.left, self.right = [Encoded.join(self.left)], [Encoded.join(self.right)]
        return self.left[0], self.right[0]
