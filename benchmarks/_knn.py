"""What the nearest-neighbour benches share: data on a grid, budgets, every method as labels of queries."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from unittest import mock

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import opendp.prelude as dp
from scipy.optimize import minimize_scalar

from opendp_sim.core.arithmetic.class_means import ReleasedSums, ShrunkMeans
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.measurements.knn._impl.class_means import ClassMeans
from opendp_sim.measurements.knn._impl.features import Lens
from opendp_sim.measurements.knn._impl.predictor import Predictor
from opendp_sim.measurements.knn._impl.public_votes import QueryRows
from opendp_sim.measurements.knn.hybrid_knn import Hybrid, HybridKnn
from opendp_sim.measurements.knn.ind_knn import IndKnn
from opendp_sim.measurements.knn.private_knn import PrivateKnn, SampledVotes

dp.enable_features("contrib")
DELTA = 1e-5


@dataclass(frozen=True)
class Set:
    name: str
    grid: GridRows
    train: Rows
    queries: np.ndarray
    labels: np.ndarray

    @property
    def size(self) -> int:
        return len(self.train)


@dataclass(frozen=True)
class Asked:
    """The queries of one run: ``which`` of the held-out ones, in order; asked again when they run out."""

    which: np.ndarray
    rows: np.ndarray
    labels: np.ndarray
    once: np.ndarray
    """Each different query once: what a reference shows."""

    def __len__(self) -> int:
        return len(self.which)


def asked(data: Set, queries: int, rep: int = 0) -> Asked:
    """Return the queries of run number ``rep``: the next ones of a fixed random order."""
    which = (rep * queries + np.arange(queries)) % len(data.queries)
    once = data.queries[np.unique(which)]
    return Asked(which, data.queries[which], data.labels[which], once)


def _set(name, x, y, xt, yt, low, high, bits=12, seed=0):
    unit = (high - low) / 2**bits
    kinds, both = np.unique(np.concatenate([y, yt]), return_inverse=True)
    y, yt = both[: len(y)], both[len(y) :]
    grid = GridRows(
        width=x.shape[1],
        labels=tuple(range(len(kinds))),
        unit=unit,
        lower=(round(low / unit),),
        upper=(round(high / unit),),
    )
    pick = np.random.default_rng(seed).permutation(len(xt))

    def steps(values):
        return np.rint(values.astype(np.float64) / unit).clip(grid.lower, grid.upper)

    return Set(
        name, grid, Rows(steps(x), y.astype(np.int64)), steps(xt[pick]), yt[pick].astype(np.int64)
    )


def load(name: str, data: Path) -> Set:
    if name == "mnist":
        with np.load(data / "mnist.npz") as f:
            flat = [f[k].reshape(len(f[k]), -1) for k in ("X", "Xt")]
            return _set(name, flat[0], f["y"], flat[1], f["yt"], 0, 255, bits=8)
    if name == "newsgroups":
        with np.load(data / "newsgroups_minilm.npz") as f:
            return _set(name, f["x_train"], f["y_train"], f["x_test"], f["y_test"], -1, 1)
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return _set("digits", x[:1297], y[:1297], x[1297:], y[1297:], 0, 16)


@lru_cache
def rho_of(epsilon: float, delta: float = DELTA) -> float:
    """The largest rho whose optimal conversion gives epsilon."""

    def converted(rho):
        def at(log_a):
            a = 1 + math.exp(log_a)
            return a * rho + math.log((a - 1) / a) - (math.log(delta) + math.log(a)) / (a - 1)

        return minimize_scalar(at, bounds=(-6, 12), method="bounded").fun

    low, high = 1e-9, 50.0
    for _ in range(80):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if converted(middle) <= epsilon else (low, middle)
    return low


def share_right(labels, of: Asked) -> float:
    return 100.0 * float((np.asarray(labels) == of.labels).mean())


def _served(service, of: Asked) -> np.ndarray:
    service.refer(of.once)
    return np.array(service.predict(of.rows).labels)


def ind_knn(data: Set, of: Asked, rho: float, **changed) -> np.ndarray:
    setting = IndKnn(rho=rho, queries=len(of), size=data.size, **changed)
    return _served(Predictor(setting, data.grid, data.train), of)


def hybrid(data: Set, of: Asked, rho: float) -> np.ndarray:
    setting = HybridKnn(rho=rho, queries=len(of), size=data.size)
    return _served(Hybrid(setting, data.grid, data.train), of)


def as_it_was(found: ReleasedSums) -> ShrunkMeans:
    """Class means as the hybrid read them before: the noise's mean square subtracted, sizes of 8 at least."""
    sizes = np.maximum(found.counts, 8.0)
    means, noise = found.sums / sizes[:, None], np.square(found.of_sum / sizes)
    excess = np.minimum(means.shape[1] * noise, np.square(means).sum(axis=1))
    ones = np.ones(len(sizes))
    any_wins, of_size = ones.astype(bool), found.of_count / sizes
    return ShrunkMeans(means, ones, sizes, noise, any_wins, of_size, found.centre, excess)


def hybrid_as_it_was(data: Set, of: Asked, rho: float) -> np.ndarray:
    with mock.patch(
        "opendp_sim.measurements.knn._impl.class_means.ShrunkMeans", mock.Mock(of=as_it_was)
    ):
        return hybrid(data, of, rho)


def private_knn(data: Set, of: Asked, epsilon: float, rate: float, k: int, some=None) -> np.ndarray:
    """The noise is for all queries; ``some`` says how many of them are asked."""
    setting = PrivateKnn(epsilon=epsilon, delta=DELTA, queries=len(of), neighbours=k, rate=rate)
    service = SampledVotes(setting, data.grid, data.train, setting.scale)
    service.refer(of.once)
    return np.array(service.predict(of.rows[:some]).labels)


def seen(data: Set, of: Asked):
    """Rows and queries through the lens of the services, and the lens."""
    lens = Lens.plain(data.grid, normalise=True).centred_on(of.once)
    dtype = lens.dtype("bench")
    return lens, lens.see(data.train.values, dtype), QueryRows.of(lens.see_queries(of.rows, dtype))


def class_means(data: Set, of: Asked, rho: float) -> np.ndarray:
    lens, rows, queries = seen(data, of)
    means = ClassMeans.release(lens, rows, data.train.labels, len(data.grid.labels), rho)
    return means.scores(queries).argmax(axis=1)


def plain_knn(data: Set, of: Asked, k: int) -> np.ndarray:
    _, rows, queries = seen(data, of)
    out = []
    for start in range(0, len(queries), 256):
        product = queries.rows[start : start + 256] @ rows.T
        near = np.argpartition(-product, k, axis=1)[:, :k]
        for scores, found in zip(product, near, strict=True):
            weight = scores[found].astype(float).clip(0)
            out.append(np.bincount(data.train.labels[found], weights=weight).argmax())
    return np.array(out)


def noisy_gradient(
    data: Set, of: Asked, rho: float, steps: int, rate: float, clip: float
) -> np.ndarray:
    """Softmax regression by full-batch noisy gradient descent; zCDP of ``steps`` Gaussian releases.

    A baseline for accuracy only (float noise, not a release of this package).
    """
    rng = np.random.default_rng()
    lens, rows, queries = seen(data, of)
    x = (rows * lens.unit).astype(np.float32)
    y = np.eye(len(data.grid.labels), dtype=np.float32)[data.train.labels]
    w = np.zeros((x.shape[1], y.shape[1]), dtype=np.float32)
    scale = clip * math.sqrt(steps / (2 * rho))
    velocity, average = np.zeros_like(w), np.zeros_like(w)
    for step in range(steps):
        z = x @ w
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        g = p - y
        norm = np.linalg.norm(g, axis=1)  # rows have unit length: this is the gradient's norm
        g *= np.minimum(1.0, clip / np.maximum(norm, 1e-9))[:, None]
        total = x.T @ g + rng.normal(0, scale, w.shape).astype(np.float32)
        velocity = 0.8 * velocity - rate * total / (clip * len(x))
        w += velocity
        average += w if step >= steps // 2 else 0
    return (queries.rows @ average).argmax(axis=1)


def torch_python(wanted: str | None) -> str | None:
    """Return an interpreter that has Opacus: the one wanted, else this one, else none."""
    for python in filter(None, (wanted, sys.executable)):
        if not subprocess.run(
            [python, "-c", "import opacus"], check=False, capture_output=True
        ).returncode:
            return python
    return None


def opacus(python: str, data: Set, of: Asked, epsilon: float, settings) -> list[np.ndarray]:
    """Train a linear model by DP-SGD for each (rate, epochs, step size, clip), elsewhere."""
    lens, rows, queries = seen(data, of)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "data.npz"
        np.savez(
            file,
            x=(rows * lens.unit).astype(np.float32),
            y=data.train.labels,
            queries=(queries.rows * lens.unit).astype(np.float32),
            settings=np.array([(epsilon, DELTA, *setting) for setting in settings]),
        )
        program = Path(__file__).with_name("_knn_opacus.py")
        done = subprocess.run(
            [python, "-P", str(program), str(file)],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    return [np.array(json.loads(line)) for line in done.stdout.splitlines() if line[:1] == "["]
