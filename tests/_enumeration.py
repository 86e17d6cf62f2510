"""Exact output distributions of selection mechanisms: the code that runs, with exact coins.

``distribution`` runs a draw again and again, once for each path through its random choices, and adds
up the probabilities of the paths. The coins are the mechanism's own protocol, answered with exact
probabilities instead of samples.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from functools import lru_cache

import numpy as np


class Tree:
    """Coins that follow a script and note what else could have happened."""

    def __init__(self, script):
        self.script, self.at, self.weight, self.open = script, 0, 1.0, []

    def _choose(self, options):
        options = options if len(options) > 64 else [(v, p) for v, p in options if p > 0]
        if self.at == len(self.script):
            self.open += [(*self.script, i) for i in range(1, len(options))]
            self.script = (*self.script, 0)
        value, p = options[self.script[self.at]]
        self.at += 1
        self.weight *= p
        return value

    def reaches(self, scale, least):
        p = gaussian_tail(scale, least)
        return self._choose([(True, p), (False, 1.0 - p)])

    def gate_reaches(self, right, left, least):
        p = gate_chance(right, left, least)
        return self._choose([(True, p), (False, 1.0 - p)])

    def laplace_reaches(self, scale, least):
        q = np.exp(-1.0 / scale)
        p = q**least / (1 + q) if least > 0 else 1 - q ** (1 - least) / (1 + q)
        return self._choose([(True, p), (False, 1.0 - p)])

    def laplace(self, scale):
        return self._choose(laplace_law(scale))

    def best(self, scores, scale):
        return self._choose(list(enumerate(softmax(scores, scale))))

    def top(self, scores, rounds, scale, *, lowest=False):
        scores = -np.asarray(scores) if lowest else np.asarray(scores)
        return self._choose(sets(range(len(scores)), scores, rounds, scale))

    def in_order(self, scores, rounds, scale):
        return self._choose(orders(scores, rounds, scale))

    def top_open(self, votes, universe, rounds, scale):
        names = [(True, i) for i in range(len(votes))]
        names += [(False, i) for i in range(universe - len(votes))]
        scores = np.concatenate([votes, np.zeros(universe - len(votes), dtype=int)])
        return self._choose(sets(names, scores, rounds, scale))

    def noisy_best(self, scores, scale):
        reach = int(np.ceil(9 * scale)) + 1
        n = np.arange(-reach, reach + 1)
        law = gaussian_mass(scale, reach)
        grid = np.arange(min(scores) - reach - 1, max(scores) + reach + 2)
        below = [np.array([law[n + s < g].sum() for g in grid]) for s in scores]
        at = [np.array([law[n + s == g].sum() for g in grid]) for s in scores]
        out = []
        for i in range(len(scores)):
            rest = np.prod(
                [below[j] if j < i else below[j] + at[j] for j in range(len(scores)) if j != i],
                axis=0,
            )
            out.append((i, float((at[i] * rest).sum())))
        return self._choose(out)

    def noisy(self, scores, scale):
        noise = self._choose(gaussian_law(len(scores), scale))
        return np.asarray(scores) + noise

    def noisy_above(self, noise, scores, scale, least, *, tells):
        cells = [above_law(noise, int(score), scale, least, tells) for score in scores]
        return self._choose(
            [
                (
                    np.array([value for value, _ in path], dtype=np.int64),
                    math.prod(p for _, p in path),
                )
                for path in itertools.product(*cells)
            ]
        )


@lru_cache(maxsize=256)
def above_law(noise, score, scale, least, tells):
    """The law of a noisy score from ``least - 1`` on; what is told is cut where 1e-7 is left."""

    def tail(j):
        if noise == "gaussian":
            return 0.5 * math.erfc((j - 0.5) / (scale * math.sqrt(2)))
        q = math.exp(-1.0 / scale)
        return q**j / (1 + q) if j >= 0 else 1 - q ** (1 - j) / (1 + q)

    top = least
    while tells and tail(top + 1 - score) > 1e-7:
        top += 1
    values = [(y, tail(y - score) - tail(y + 1 - score)) for y in range(least, top)]
    return [(least - 1, 1 - tail(least - score)), *values, (top, tail(top - score))]


@lru_cache(maxsize=16)
def laplace_law(scale):
    q = np.exp(-1.0 / scale)
    reach = int(np.ceil(36 * scale))  # the rest weighs less than 1e-15
    return [(n, (1 - q) / (1 + q) * q ** abs(n)) for n in range(-reach, reach + 1)]


@lru_cache(maxsize=16)
def gaussian_law(cells, scale):
    reach = int(np.ceil(6 * scale)) + 1
    law = gaussian_mass(scale, reach)
    places = itertools.product(range(2 * reach + 1), repeat=cells)
    return [(np.array(c) - reach, float(np.prod(law[list(c)]))) for c in places]


def gaussian_mass(scale, reach):
    n = np.arange(-reach, reach + 1)
    mass = np.exp(-0.5 * (n / scale) ** 2)
    return mass / mass.sum()


@lru_cache(maxsize=4096)
def gaussian_tail(scale, least):
    n = np.arange(-int(40 * scale) - 2, int(40 * scale) + 3)
    mass = np.exp(-0.5 * (n / scale) ** 2)
    return float(mass[n >= least].sum() / mass.sum())


@lru_cache(maxsize=4096)
def gate_chance(right, left, least):
    """Pr[G - H >= least] from the two laws, term by term."""
    z = np.arange(int(42 * left) + 3)
    drop = np.exp(-0.5 * ((z - np.floor(1.5 * left)) / left) ** 2)
    return float((drop * np.exp(-np.maximum(z + least, 0) / right)).sum() / drop.sum())


def softmax(scores, scale):
    scores = np.asarray(scores, dtype=float)
    weights = np.exp(np.maximum((scores - scores.max()) / scale, -700.0))
    return weights / weights.sum()


def orders(scores, rounds, scale):
    """All outcomes of drawing without replacement with their probabilities."""
    scores = np.asarray(scores)
    away = tuple((scores - scores.max()).tolist()) if len(scores) else ()
    return [(list(order), p) for order, p in _orders(away, rounds, scale)]


@lru_cache(maxsize=65536)
def _orders(scores, rounds, scale):
    found = []
    for order in itertools.permutations(range(len(scores)), rounds):
        p, left = 1.0, list(range(len(scores)))
        for i in order:
            p *= softmax([scores[j] for j in left], scale)[left.index(i)]
            left.remove(i)
        found.append((list(order), p))
    return found


def sets(names, scores, rounds, scale):
    """All outcomes of drawing without replacement, order forgotten, with their probabilities."""
    names, out = list(names), defaultdict(float)
    for order, p in orders(scores, rounds, scale):
        out[tuple(sorted(order))] += p
    return [([names[i] for i in order], p) for order, p in out.items()]


def distribution(draw, tree=Tree):
    """Return {output: probability} of ``draw(coins)``."""
    out, todo = defaultdict(float), [()]
    while todo:
        coins = tree(todo.pop())
        answer = draw(coins)
        out[None if answer is None else repr(answer)] += coins.weight
        todo += coins.open
    return out


# --- all small histograms ---------------------------------------------------------------------------


def histograms(items, most):
    return np.array(list(itertools.product(range(most + 1), repeat=items)), dtype=np.int64)


def neighbours(table, users):
    """Index pairs of histograms that at most ``users`` added or removed users explain."""
    difference = table[:, None, :] - table[None, :, :]
    distance = np.maximum(difference.max(axis=2), 0) + np.maximum(-difference.min(axis=2), 0)
    left, right = np.nonzero((distance <= users) & (distance > 0))
    return left, right


def matrix(draw, table, tree=Tree):
    """Output distributions of all histograms: shape (histograms, outputs)."""
    rows = [distribution(lambda coins, h=h: draw(coins, h), tree) for h in table]
    outputs = sorted({o for row in rows for o in row}, key=repr)
    found = np.array([[row.get(o, 0.0) for o in outputs] for row in rows])
    assert np.abs(found.sum(axis=1) - 1).max() < 1e-9
    return found


def hockey_stick(found, pairs, epsilon):
    """The largest delta at ``epsilon`` over all pairs."""
    left, right = pairs
    return max(
        float(
            np.maximum(
                found[left[i : i + 50_000]] - np.exp(epsilon) * found[right[i : i + 50_000]], 0
            )
            .sum(axis=1)
            .max()
        )
        for i in range(0, len(left), 50_000)
    )


_latest: dict = {}


def _once(make, found, pairs):
    """``make(p, q)`` of all pairs, kept until it is asked of others: each order asks for the same again."""
    key = make, id(found), id(pairs)
    if key not in _latest:
        _latest.clear()
        # What a number names is held with it, so nothing else gets the number.
        _latest[key] = found, pairs, make(found[pairs[0]], found[pairs[1]])
    return _latest[key][-1]


def _distinct_logs(p, q):
    """The logarithms of the pairs of laws that are not the same pair, and where the first is no zero."""
    both = np.unique(np.concatenate([p, q], axis=1), axis=0).reshape(-1, 2, p.shape[1])
    with np.errstate(divide="ignore"):
        return both[:, 0] > 0, np.log(both[:, 0]), np.log(both[:, 1])


def renyi(found, pairs, alpha):
    """The largest Renyi divergence of order alpha over all pairs."""
    there, log_p, log_q = _once(_distinct_logs, found, pairs)
    with np.errstate(invalid="ignore"):
        terms = np.where(there, alpha * log_p + (1 - alpha) * log_q, -np.inf)
    return float(np.logaddexp.reduce(terms, axis=1).max() / (alpha - 1))


def _best_events(p, q):
    """The probabilities of the best events of each size, by the ratio of the two laws."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(p > 0, p / np.maximum(q, 1e-300), -1.0)
    order = np.argsort(-ratio, axis=1)
    return tuple(np.cumsum(np.take_along_axis(law, order, axis=1), axis=1) for law in (p, q))


def approximate_renyi(found, pairs, delta, alpha):
    """A lower bound on what delta-approximate Renyi of order alpha must allow: the best binary event.

    ``P = (1 - delta) P1 + delta P2`` and the same for Q, so an event of probabilities (p, q) has
    ``p1 >= (p - delta) / (1 - delta)`` and ``q1 <= q / (1 - delta)``.
    """
    a, b = _once(_best_events, found, pairs)
    a = np.clip((a - delta) / (1 - delta) - 1e-12, 1e-15, 1 - 1e-15)
    b = np.clip(b / (1 - delta) + 1e-12, 1e-15, 1 - 1e-15)
    worse = a > b
    value = np.logaddexp(
        alpha * np.log(a) + (1 - alpha) * np.log(b),
        alpha * np.log1p(-a) + (1 - alpha) * np.log1p(-b),
    ) / (alpha - 1)
    return float(value[worse].max(initial=0.0))
