"""What the nearest-neighbour benches share: data on a grid, budgets, baselines."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import opendp.prelude as dp
from scipy.optimize import minimize_scalar

from opendp_sim.measurements._knn_means import ClassMeans
from opendp_sim.measurements._knn_predictor import Predictor
from opendp_sim.measurements._knn_sampler import Sampler
from opendp_sim.measurements.ind_knn import IndKnn
from opendp_sim.measurements.private_knn import PrivateKnn
from opendp_sim.spaces.rows import GridRows, Rows

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


def _set(name, x, y, xt, yt, low, high, bits=12, seed=0):
    unit = (high - low) / 2**bits
    kinds, both = np.unique(np.concatenate([y, yt]), return_inverse=True)
    y, yt = both[: len(y)], both[len(y) :]
    grid = GridRows(
        width=x.shape[1], labels=tuple(range(len(kinds))), unit=unit,
        lower=(round(low / unit),), upper=(round(high / unit),),
    )  # fmt: skip
    pick = np.random.default_rng(seed).permutation(len(xt))[:2000]

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


def share_right(data: Set, labels, count=None) -> float:
    return 100.0 * float((np.array(labels) == data.labels[:count]).mean())


def ind_knn(data: Set, rho: float, queries: int, count=None, **changed) -> float:
    setting = IndKnn(rho=rho, queries=queries, size=data.size, **changed)
    service = Predictor(setting, data.grid, data.train)
    return share_right(data, service.predict(data.queries[:count]).labels, count)


def private_knn(data: Set, epsilon: float, queries: int, rate: float, k: int, count=None) -> float:
    setting = PrivateKnn(epsilon=epsilon, delta=DELTA, queries=queries, neighbours=k, rate=rate)
    service = Sampler(setting, data.grid, data.train, setting.scale)
    return share_right(data, service.predict(data.queries[:count]).labels, count)


def seen(data: Set):
    """Rows and queries through the lens of the services, and the lens."""
    from opendp_sim.measurements._knn_features import Lens
    from opendp_sim.measurements._knn_public import Seen

    lens = Lens.plain(data.grid, normalise=True).centred_on(data.queries)
    dtype = lens.dtype("bench")
    return lens, lens.see(data.train.values, dtype), Seen.of(lens.see_queries(data.queries, dtype))


def class_means(data: Set, rho: float, through) -> float:
    lens, rows, queries = through
    means = ClassMeans.release(lens, rows, data.train.labels, len(data.grid.labels), rho)
    return share_right(data, means.scores(queries).argmax(axis=1))


def plain_knn(data: Set, through, k: int) -> float:
    _, rows, queries = through
    right = 0
    for start in range(0, len(queries), 256):
        product = queries.rows[start : start + 256] @ rows.T
        near = np.argpartition(-product, k, axis=1)[:, :k]
        for i, found in enumerate(near):
            weight = product[i, found].astype(float).clip(0)
            votes = np.bincount(data.train.labels[found], weights=weight)
            right += votes.argmax() == data.labels[start + i]
    return 100.0 * right / len(queries)


def noisy_gradient(
    data: Set, rho: float, through, steps: int, rate: float, clip: float, rng
) -> float:
    """Softmax regression by full-batch noisy gradient descent; zCDP of ``steps`` Gaussian releases.

    A baseline for accuracy only (float noise, not a release of this package).
    """
    lens, rows, queries = through
    x = (rows * lens.unit).astype(np.float32)
    y = np.eye(len(data.grid.labels), dtype=np.float32)[data.train.labels]
    w = np.zeros((x.shape[1], y.shape[1]), dtype=np.float32)
    scale = clip * math.sqrt(steps / (2 * rho))
    velocity = np.zeros_like(w)
    average = np.zeros_like(w)
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
    return share_right(data, (queries.rows @ average).argmax(axis=1))
