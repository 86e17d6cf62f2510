"""Fresh releases of a pair, encoded; exceptions are outputs like any other."""

from __future__ import annotations

import pickle
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.encoding import WIDEST, Encoded, Raised, encode
from opendp_sim.audit.neighbours import Pair
from opendp_sim.audit.noise import difference
from opendp_sim.audit.subject import Subject

__all__ = ["Sample", "differ", "draw", "spots_of"]

_WIDE = 4000
Spots = NDArray[np.int64] | None


def draw(subject: Subject, data: Any, count: int, spots: Spots = None) -> list[Any]:
    """Return ``count`` releases; a failing run yields its exception. Wide ones keep a few cells."""
    if subject.sample is not None:
        return [_narrow(v, spots) for v in subject.releases(data, count)]
    out: list[Any] = []
    for _ in range(count):
        try:
            out.append(_narrow(subject.run(data), spots))
        except Exception as error:  # noqa: BLE001
            out.append(Raised.of(error))
    return out


def spots_of(subject: Subject, pair: Pair) -> Spots:
    """Return the cells of a wide release in which the noiseless parts of a pair differ most.

    ``None`` when the release is not wide or nothing is known of its noiseless part.
    """
    if subject.core is None or subject.noise is None:
        return None
    try:
        first, second = subject.noiseless(pair.left), subject.noiseless(pair.right)
        law = subject.law(first.size)
    except Exception:  # noqa: BLE001 - whatever a mechanism raises
        return None
    if law is None or not WIDEST < first.size == second.size:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = np.nan_to_num(np.abs(difference(second, first)) / law.scales(first.size))
    return np.sort(np.argsort(-moved, kind="stable")[: WIDEST - 1])


def _narrow(value: Any, spots: Spots) -> Any:
    """Keep some cells of a wide release, and its sum last: post-processing, so still sound."""
    size = (
        value.size
        if isinstance(value, np.ndarray)
        else len(value)
        if isinstance(value, list)
        else 0
    )
    if size <= (_WIDE if spots is None else WIDEST):
        return value
    flat = np.asarray(value, dtype=float).ravel()
    if spots is None or spots[-1] >= flat.size:
        spots = np.linspace(0, flat.size - 1, WIDEST - 1).astype(np.int64)
    return np.append(flat[spots], flat.sum())


def differ(left: Any, right: Any) -> bool:
    """Say whether two datasets differ; large arrays are compared in full."""
    return bool(_key(left) != _key(right))


def _key(data: Any) -> Any:
    try:
        return pickle.dumps(data)
    except Exception:  # noqa: BLE001 - whatever cannot be pickled
        return repr(data)


@dataclass
class Sample:
    """All outputs of one pair so far."""

    pair: Pair
    left: list[Encoded] = field(default_factory=list)
    right: list[Encoded] = field(default_factory=list)
    runs: int = 0
    seconds: float = 0.0
    spots: Spots = None
    """The cells that are kept of a wide release, chosen before the first is drawn."""

    def extend(self, subject: Subject, count: int) -> tuple[Encoded, Encoded]:
        """Draw ``count`` more from each side and return them."""
        begin = time.process_time()
        if not self.runs:
            self.spots = spots_of(subject, self.pair)
        fresh = (
            encode(draw(subject, self.pair.left, count, self.spots)),
            encode(draw(subject, self.pair.right, count, self.spots)),
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
