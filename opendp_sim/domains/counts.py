"""Describe vote counts of public or of occurring items.

How far apart two of them are is measured in steps, which each move some counts up by one, or some
counts down by one, as one user does. Without a bound on the counts that a step moves, OpenDP's monotone
L∞ distance is the same number, and infinite where some counts rise and others fall.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.claims import Norm
from opendp_sim.core.errors import DataError, SpaceError
from opendp_sim.core.space import Domain, Metric, canonical_text
from opendp_sim.domains.cell import canonical_cell
from opendp_sim.domains.metrics import VectorNorm
from opendp_sim.domains.sketch import IntVector, Sketch

_FAR = 2**61
"""Counts beyond count as this: a bare vector may hold anything, and gaps must not wrap around."""
USERS = VectorNorm("linf", steps=True)
"""The metric of counts: the number of users added or removed."""


@dataclass(frozen=True)
class KnownCounts(Sketch):
    """Describe counts over a public catalogue, whose order breaks ties.

    It is a sketch of one block, so noise chains too.
    """

    items: tuple[str | int, ...] = ()

    @property
    def identifier(self) -> str:
        """The sketch's rendering and a digest of the catalogue."""
        digest = hashlib.sha256(canonical_text(self.items).encode()).hexdigest()
        return f"{super().identifier[:-1]},items={digest}}}"

    def metric(self, norm: Norm) -> VectorNorm:
        """Return the output metric of a norm, users for L∞."""
        return USERS if norm == "linf" else super().metric(norm)

    def check(self, data: Any) -> None:
        """Refuse public data that is no flat vector of integers >= 0."""
        IntVector(self.size).check(data)
        _refuse_negative(np.asarray(data))

    def check_native(self, data: Any) -> None:
        """Refuse data that is no flat integer vector of the catalogue's size.

        OpenDP knows this domain as a bare vector, which admits negative numbers: mechanisms that choose
        by counts take them for zero, and noise is added to them as they are.
        """
        IntVector(self.size).check(data)


@dataclass(frozen=True)
class OpenCounts(Domain):
    """Describe counts of the items that occur.

    A member is ``{"item": sorted distinct items, "votes": counts >= 1}``.

    Args:
        text: whether items are strings (else int64).
        universe: items are the integers 0 to universe - 1, if they are public; else None.
    """

    text: bool
    universe: int | None = None

    def check(self, data: Any) -> None:
        """Refuse other shapes, repeated or unsorted items, counts below one."""
        items, votes = np.asarray(data["item"]), np.asarray(data["votes"])
        fits = items.ndim == votes.ndim == 1 and items.shape == votes.shape
        if not fits or (votes.size and votes.dtype.kind not in "iu"):
            raise _bad("OS602", "one whole number of votes an item", "another shape or dtype")
        if votes.size and int(votes.min()) < 1:
            raise _bad("OS605", "votes >= 1 for every item that occurs", "a smaller number")
        if items.size > 1 and not bool((items[1:] > items[:-1]).all()):
            raise _bad("OS605", "distinct items in their public order", "another order")
        if self.universe is not None and items.size:
            inside = int(items[0]) >= 0 and int(items[-1]) < self.universe
            if not inside:
                raise _bad("OS605", "items inside the public universe", "an item outside")


@dataclass(frozen=True, slots=True)
class Ranking:
    """Hold the first n ranks of a histogram.

    Ranks follow falling counts, and the public order among equal counts.

    Attributes:
        counts: shape (n,); 0 where fewer items occur.
        places: shape (n,) positions of the items in the data; -1 where there is none.
    """

    counts: NDArray[np.int64]
    places: NDArray[np.int64]

    @property
    def gaps(self) -> NDArray[np.int64]:
        """``counts[j] - counts[j + 1]`` for the first n - 1 ranks."""
        return self.counts[:-1] - self.counts[1:]


@dataclass(frozen=True)
class Votes:
    """What a selection mechanism sees of the space it was bound to.

    Attributes:
        domain: the counts' domain.
        steps: users that one unit of the metric may stand for (2 for L∞ that is not monotone).
        candidates: public number of candidates, or None when the catalogue is unknown.
        listed: whether every candidate has a cell of its own.
        per_user: the most counts one user touches, if the metric says so; else None.
    """

    domain: Domain
    steps: int
    candidates: int | None
    listed: bool
    per_user: int | None

    def users(self, d_in: int) -> int:
        """Return the number of users that an input distance may stand for."""
        return self.steps * int(d_in)

    def counts(self, data: Any) -> NDArray[np.int64]:
        """Return the counts, or refuse by public type and size."""
        if not self.listed and not isinstance(data, dict):
            raise _bad("OS602", "a mapping of item and votes", "something else")
        if self.listed:
            IntVector(self.candidates).check(data)
            array = np.asarray(data)
            whole = array.astype(np.int64, casting="safe" if array.size else "unsafe", copy=False)
            # Clamping moves no two counts apart, keeps differences inside int64, and takes the vectors
            # that OpenDP's domain admits beside true counts to counts.
            return np.clip(whole, 0 if isinstance(self.domain, KnownCounts) else -_FAR, _FAR)
        votes = np.asarray(data["votes"])
        if votes.dtype == np.uint64:  # a cast would wrap them; clipping moves no two counts apart
            votes = np.minimum(votes, np.uint64(np.iinfo(np.int64).max))
        return votes.astype(np.int64)

    def rank(self, data: Any, ranks: int) -> Ranking:
        """Return the first ``ranks`` ranks in time linear in the cells."""
        counts = self.counts(data)
        if ranks >= len(counts):
            order = np.argsort(-counts, kind="stable")
        else:
            cut = np.partition(counts, len(counts) - ranks)[len(counts) - ranks]
            above = np.flatnonzero(counts > cut)
            ties = np.flatnonzero(counts == cut)[: ranks - len(above)]  # ranks count the order
            order = np.concatenate([above[np.argsort(-counts[above], kind="stable")], ties])
        short = ranks - len(order)
        found = np.concatenate([counts[order], np.zeros(max(short, 0), dtype=np.int64)])
        places = np.concatenate([order, np.full(max(short, 0), -1)])
        return Ranking(found[:ranks], places[:ranks].astype(np.int64))

    def names(
        self, data: Any, places: NDArray[np.int64], *, ranked: bool = False
    ) -> list[str | int]:
        """Return the items at ``places``.

        The places are in the public order, or in that of the items that occur where the release
        pays for it.
        """
        places = np.asarray(places, dtype=np.int64)
        places = places if ranked else np.sort(places)
        if isinstance(self.domain, KnownCounts):
            return [self.domain.items[place] for place in places]
        if self.listed:
            return [int(place) for place in places]
        return [_exact(item) for item in np.asarray(data["item"])[places].tolist()]


def votes_space(
    key: str, domain: Domain, metric: Metric, norms: tuple[str, ...] = ("linf",)
) -> Votes:
    """Return the counts of a space, or refuse for mechanism ``key``.

    What one user touches is a fact about pairs of datasets, so it is read from the metric alone: a
    domain that OpenDP knows as a bare vector is reached by other transformations too.
    """
    candidates: int | None
    if isinstance(domain, KnownCounts):
        candidates, listed = domain.size, True
    elif isinstance(domain, IntVector) and domain.cells is not None:
        candidates, listed = domain.cells, True
    elif isinstance(domain, OpenCounts):
        candidates, listed = domain.universe, False
    else:
        raise SpaceError(
            "OS201", f"{key}.input_domain", expected="vote counts", got=type(domain).__name__,
            hint="put `vote_counts` before it, or start from vector_domain(atom_domain(T='i64'), "
            "size=number of items).",
        )  # fmt: skip
    if not isinstance(metric, VectorNorm) or metric.norm not in norms or metric.weights:
        raise SpaceError(
            "OS202", f"{key}.input_metric", expected="L∞ distance between counts",
            got=str(getattr(metric, "norm", type(metric).__name__)),
            hint="give the sketch norm='linf', or use linf_distance(T='i64', monotonic=True).",
        )  # fmt: skip
    steps = 1 if metric.monotone or metric.steps else 2
    return Votes(domain, steps, candidates, listed, metric.touched)


def need_candidates(key: str, votes: Votes, hint: str) -> int:
    """Return the public number of candidates, or refuse to reveal items."""
    if votes.candidates is None:
        raise SpaceError(
            "OS204", f"{key}.input_domain", expected="a public catalogue or universe of items",
            got="only the items that occur", hint=hint,
        )  # fmt: skip
    return votes.candidates


def _refuse_negative(counts: NDArray[Any]) -> None:
    if counts.size and int(counts.min()) < 0:
        raise _bad("OS605", "counts >= 0", "a negative count")


def _bad(code: str, expected: str, got: str) -> DataError:
    return DataError(
        code, "counts", expected=expected, got=got,
        hint="count votes with `vote_counts`; a count is a whole number of users.",
    )  # fmt: skip


def _exact(item: Any) -> str | int:
    found = canonical_cell(item)
    return found if isinstance(found, str | int) else ""
