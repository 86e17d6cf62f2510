"""Is the randomness fresh in another thread, and in a forked process?

A generator whose state is shared or copied gives two runs the same noise; subtracting them removes
it. Only whole-sequence equality is tested, whose probability under the declared law is computed.
"""

from __future__ import annotations

import os
import pickle
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.noise import NoiseLaw
from opendp_sim.audit.residuals import NoiseTest
from opendp_sim.audit.subject import Subject

__all__ = ["fresh_tests"]

_RUNS, _CELLS = 24, 1000
"""Releases a side: fewer of wide ones, where so many cells in all are never equal by chance."""


def fresh_tests(subject: Subject, data: Any, *, forks: bool) -> list[NoiseTest]:
    """Return one test per way of running side by side."""
    ways = [("threads", _in_threads)]
    if forks and hasattr(os, "fork"):
        ways.append(("forks", _in_forks))
    out = []
    for name, way in ways:
        first, second = way(subject, data)
        if first is None or second is None or first.shape != second.shape or not first.size:
            continue
        law = subject.law(first.shape[1])
        if law is None:
            continue
        same = bool(np.array_equal(first, second))
        chance = _collision(law, first) if same else 1.0
        out.append(
            NoiseTest(
                f"fresh randomness in {name}", chance, "different noise", "the same noise twice"
            )
        )
    return out


def _collision(law: NoiseLaw, seen: NDArray[np.float64]) -> float:
    """Bound the probability that two independent sequences, shape (runs, cells), are equal."""
    runs, cells = seen.shape
    scales = law.scales(cells)
    if not law.discrete:
        # half a rounding step to one scale bounds the mass of one value; noise may be rounded away
        with np.errstate(invalid="ignore", over="ignore"):
            single = bool((seen.astype(np.float32) == seen).all())
            steps = np.spacing(np.abs(seen).max(axis=0)) * (2.0**29 if single else 1.0)
        atoms = np.clip(np.nan_to_num(steps / (2 * scales), nan=1.0), 1e-300, 1.0)
        return max(1e-12, float(np.exp(runs * np.log(atoms).sum())))
    log = 0.0
    for scale in scales:
        _, p = law.support(float(scale))
        log += runs * float(np.log((p**2).sum()))
        if log < -60:
            break
    return float(np.exp(log))


def _sequence(subject: Subject, data: Any) -> Any:
    first = np.atleast_1d(np.asarray(subject.run(data), dtype=float)).ravel()
    more = max(2, min(_RUNS, -(-_CELLS // max(first.size, 1)))) - 1
    rest = [np.atleast_1d(np.asarray(subject.run(data), dtype=float)).ravel() for _ in range(more)]
    return np.stack([first, *rest])


def _in_threads(subject: Subject, data: Any) -> tuple[Any, Any]:
    out: list[Any] = [None, None]

    def work(spot: int) -> None:
        out[spot] = _sequence(subject, data)

    threads = [threading.Thread(target=work, args=(spot,)) for spot in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return out[0], out[1]


def _in_forks(subject: Subject, data: Any) -> tuple[Any, Any]:
    out = []
    for _ in range(2):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            try:
                with os.fdopen(writer, "wb") as pipe:
                    pickle.dump(_sequence(subject, data), pipe)
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            payload = pipe.read()
        os.waitpid(child, 0)
        out.append(pickle.loads(payload) if payload else None)  # noqa: S301
    return out[0], out[1]
