"""Functions extracted from the proofs against the code: each returns what was compared, and what differed.

They import the package when they run, so that a mutant of it can be put in its place (``mutants.py``).
"""

from __future__ import annotations

import math
import random
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

NUMBERS = [0, 1, -1, 2**31, 2**53, 2**53 + 1, 2**61, 2**62 - 1, -(2**62), 2**63 - 1, -(2**63)]


class Driver:
    """A program that answers a line with a line."""

    def __init__(self, program: Path) -> None:
        self.process = subprocess.Popen(
            [str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, *parts: Any) -> list[str]:
        words = [
            str(w) for p in parts for w in (p if isinstance(p, list | tuple | np.ndarray) else [p])
        ]
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()

    def numbers(self, *parts: Any) -> list[int]:
        return [int(w) for w in self.ask(*parts)]

    def close(self) -> None:
        self.process.communicate(timeout=10)


class Found:
    """Counts of cases and differences by row of the table, and the smallest difference of each."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Any]] = {}

    def __call__(self, row: str, equal: bool, info: Any = "") -> None:
        seen = self.rows.setdefault(row, [0, 0, ""])
        seen[0] += 1
        if not equal:
            seen[1] += 1
            seen[2] = min(filter(None, (seen[2], repr(info))), key=len)

    @property
    def differences(self) -> dict[str, Any]:
        return {row: seen for row, seen in self.rows.items() if seen[1]}


Compare = Callable[[Driver, Driver, int], Found]


def votes(sketches: Driver, _: Driver, n: int) -> Found:
    """The fewest steps between counts, as the auditor measures them."""
    from opendp_sim.audit.checks.compare_outputs import _weighted
    from opendp_sim.domains.metrics import VectorNorm

    rng, found = random.Random(1), Found()

    def measured(cells: int | None, left: Any, right: Any) -> Any:
        return _weighted(VectorNorm("linf", steps=True, touched=cells))(left, right)

    for it in range(n):
        m, c = rng.randint(1, 9), rng.choice([1, 2, 3, 6, 14, 10**6])
        if it % 5 == 4:
            low, high = (
                [
                    max(-(2**63), min(2**63 - 1, rng.choice(NUMBERS) + rng.choice([0, 1, -1])))
                    for _ in range(m)
                ]
                for _ in "ab"
            )
        else:
            b = rng.choice([1, 2, 5, 1000])
            low, high = [0] * m, [rng.randint(-b, b) for _ in range(m)]
        moves = [b - a for a, b in zip(low, high, strict=True)]
        (steps,) = sketches.numbers("steps", c, m, moves)
        arrays = np.array(low, dtype=np.int64), np.array(high, dtype=np.int64)
        found("distance of counts", measured(c, *arrays) == steps, (c, low, high, steps))
        if c >= m:
            found(
                "distance without a bound on cells", measured(None, *arrays) == steps, (low, high)
            )
        if it % 5 < 4:
            sides: list[dict[str, list[int]]] = [{"item": [], "votes": []} for _ in "ab"]
            for item, move in enumerate(moves):
                base = item % 3
                for side, count in zip(
                    sides, (base + max(0, -move), base + max(0, move)), strict=True
                ):
                    if count:
                        side["item"].append(item)
                        side["votes"].append(count)
            tables = [{k: np.array(v, dtype=np.int64) for k, v in side.items()} for side in sides]
            found("distance of open catalogues", measured(c, *tables) == steps, (c, moves, steps))
    return found


def vote_counts(sketches: Driver, _: Driver, n: int) -> Found:
    """Outputs of vote_counts on neighbours are no further apart than its map says."""
    import opendp.prelude as dp

    from opendp_sim.domains.metrics import IdDistance
    from opendp_sim.domains.records import Column, Records
    from opendp_sim.transformations.sketches.counts.vote_counts import make_vote_counts

    dp.enable_features("contrib", "honest-but-curious")
    rng, found = random.Random(9), Found()
    records = Records((Column("who", "int64", role="privacy_id"), Column("word", "str")))
    made = {
        c: make_vote_counts(records, IdDistance("who"), item="word", max_items=c) for c in (1, 2, 3)
    }

    def table(users: dict[int, list[str]]) -> dict[str, Any]:
        rows = [(who, item) for who, items in users.items() for item in items]
        rng.shuffle(rows)
        return {
            "who": np.array([r[0] for r in rows], dtype=np.int64),
            "word": np.array([r[1] for r in rows], dtype=object),
        }

    def user() -> list[str]:
        return [rng.choice("abcdefg") for _ in range(rng.randint(0, 5))]

    for _it in range(n):
        c = rng.choice([1, 2, 3])
        left = {i: user() for i in range(rng.randint(0, 6))}
        right = dict(left)
        for _step in range(rng.randint(1, 4)):
            if right and rng.random() < 0.5:
                right.pop(rng.choice(list(right)))
            else:
                right[100 + rng.randrange(1000)] = user()
        d = len(set(left) ^ set(right))
        one, two = (
            dict(zip(np.asarray(x["item"]).tolist(), np.asarray(x["votes"]).tolist(), strict=True))
            for x in (made[c](table(left)), made[c](table(right)))
        )
        moves = [two.get(k, 0) - one.get(k, 0) for k in {*one, *two}]
        cells = made[c].output_metric.descriptor.touched
        (steps,) = sketches.numbers("steps", cells, len(moves), moves)
        found("vote_counts within its map", steps <= made[c].map(d), (c, left, right, steps, d))
    return found


def norms(change: Any) -> tuple[int, int, int]:
    cells = [int(x) for x in change]
    return sum(map(abs, cells)), sum(x * x for x in cells), max(map(abs, cells), default=0)


def claimed(bound: Any) -> tuple[int, int, int]:
    blocks = bound.output.blocks
    return sum(b.l1 for b in blocks), sum(b.l2_squared for b in blocks), max(b.linf for b in blocks)


def grid(
    rng: random.Random, width: int, classes: int, big: bool
) -> tuple[Any, list[int], list[int]]:
    from opendp_sim.domains.rows import GridRows

    low, high = [], []
    for _ in range(width):
        steps = rng.choice([1, 2**20, 2**30] if big else [0, 1, 3, 7, 20])
        low.append(-(steps // 2) if big else rng.choice([0, -3, 5, -steps // 2]))
        high.append(low[-1] + steps)
    high[0] += low == high
    labels = tuple(range(classes)) if classes > 1 else None
    return (
        GridRows(width=width, labels=labels, lower=tuple(low), upper=tuple(high), unit=1.0),
        low,
        high,
    )


def sketch_cells(kind: str) -> Compare:
    """Whole sketches of a kind, cell by cell; one record and neighbours against the claim."""

    def compare(sketches: Driver, _: Driver, n: int) -> Found:
        from opendp_sim.core.errors import SimError
        from opendp_sim.domains.metrics import Symmetric
        from opendp_sim.domains.rows import Rows
        from opendp_sim.transformations.sketches.distances.distance_tree import DistanceTree
        from opendp_sim.transformations.sketches.distances.moment_tree import MomentTree
        from opendp_sim.transformations.sketches.distances.threshold_sketch import ThresholdSketch
        from opendp_sim.transformations.sketches.kernels._impl import hash_families as families
        from opendp_sim.transformations.sketches.kernels.race_sketch import RaceSketch

        rng, found = random.Random(2), Found()
        for it in range(n):
            width, classes, big = rng.randint(1, 3), rng.choice([1, 1, 2, 3]), it % 4 == 3
            domain, low, high = grid(rng, width, classes, big)
            height, per_label = rng.choice([1, 2, 3]), classes > 1
            if kind == "race":
                family = rng.choice(
                    [
                        families.PStableL2(width=2.0),
                        families.PStableL1(width=3.0),
                        families.PStableL2(width=2.0, joined=2),
                        families.SignedProjections(bits=rng.choice([1, 3])),
                    ]
                )
                mechanism: Any = RaceSketch(
                    repetitions=rng.choice([1, 2, 5, 7]),
                    buckets=rng.choice([2, 4, 8]),
                    family=family,
                    seed=rng.randrange(1000),
                    per_label=per_label,
                    count_weight=rng.choice([0, 1, 3, 2**20, None]),
                )
            elif kind == "tree":
                mechanism = DistanceTree(levels=height, per_label=per_label)
            elif kind == "threshold":
                mechanism = ThresholdSketch(
                    thresholds=rng.choice([1, 2, 5, 16]),
                    count_weight=rng.choice([None, 1, 7, 2**20]),
                    per_label=per_label,
                )
            else:
                mechanism = MomentTree(
                    levels=height,
                    p=1 if big else rng.choice([1, 2, 3]),
                    tuned_for=rng.choice(["laplace", "gaussian"]),
                    per_label=per_label,
                )
            try:
                bound = mechanism.bind(domain, Symmetric())
            except SimError:  # a grid that this sketch refuses
                continue
            reader: Any = next(iter(bound.capabilities.values()))

            def rows(n: int) -> tuple[list[list[int]], list[int]]:
                values = [
                    [
                        rng.choice([a, b, rng.randint(a, b), (a + b) // 2])
                        for a, b in zip(low, high, strict=True)
                    ]
                    for _ in range(n)
                ]
                return values, [rng.randrange(classes) for _ in range(n)]

            def built(x: list[list[int]], y: list[int]) -> Any:
                out = np.zeros(bound.output.size, dtype=np.int64)
                values = np.array(x, dtype=np.float64).reshape(len(x), width)
                bound.accumulate(
                    Rows(values, np.array(y, dtype=np.int64) if per_label else None), out
                )
                return out

            x, y = rows(rng.choice([0, 1, 1, 2, 5, 9]))
            cells = built(x, y)
            proved = _proved(
                kind,
                sketches,
                reader,
                x,
                y if per_label else [0] * len(x),
                low,
                high,
                classes,
                height,
            )
            found(f"{kind}: cells", proved == cells.tolist(), (low, high, x, y, height))
            most = claimed(bound)
            for row, label in list(zip(x, y, strict=True))[:3]:
                one = norms(built([row], [label]))
                same = (
                    all(a <= b for a, b in zip(one, most, strict=True))
                    if kind == "moment"
                    else one == most
                )
                found(f"{kind}: one record", same, (row, one, most))
            more, labels = rows(rng.randint(1, 3))
            gone = rng.randint(0, len(x))
            l1, l2, linf = norms(cells - built(x[gone:] + more, y[gone:] + labels))
            d = gone + len(more)
            inside = l1 <= most[0] * d and l2 <= most[1] * d * d and linf <= most[2] * d
            found(f"{kind}: neighbours", inside, (x, more, gone))
        return found

    return compare


def _proved(
    kind: str,
    sketches: Driver,
    reader: Any,
    x: list[list[int]],
    y: list[int],
    low: list[int],
    high: list[int],
    classes: int,
    height: int,
) -> list[int]:
    """The extracted sketch in the order of the code's cells."""
    n, d = len(x), len(low)
    spans = [b - a + 1 for a, b in zip(low, high, strict=True)]
    flat = [v for row in x for v in row]
    if kind == "race":
        m = reader.mechanism
        hashes = [
            reader._buckets(reader._asked(np.array([row], dtype=np.float64)))[:, 0].tolist()
            for row in x
        ]
        got = sketches.numbers(
            "race",
            m.repetitions,
            m.buckets,
            classes,
            m.weight,
            n,
            y,
            [h for hs in hashes for h in hs],
        )
        return got if m.weight else got[: classes * m.repetitions * m.buckets]
    if kind == "tree":
        got = sketches.numbers(
            "tree", height, d, classes, reader.multipliers, low, spans, n, y, flat
        )
        return [
            cell
            for block in range(classes * d * (height + 1))
            for cell in got[block * 2**height : block * 2**height + 2 ** (block % (height + 1))]
        ]
    if kind == "threshold":
        signs = []
        for row in x:
            for j in range(d):
                count = int(reader.counts[j])
                level = round(
                    Fraction((row[j] - low[j]) * count, max(high[j] - low[j], 1))
                )  # half to even
                signs += [1 if level <= t else 0 for t in range(count)]
        return sketches.numbers(
            "threshold", int(reader.counts.sum()), classes, reader.weight, n, y, signs
        )
    p, top = reader.p, reader.height
    multipliers = np.asarray(reader.multipliers).ravel()
    got = sketches.numbers("moment", top, d, classes, p, multipliers, low, spans, n, y, flat)
    out = np.zeros((classes, d, p + 1, 2 ** (top + 1) - 2), dtype=object)
    for block in range(classes * d * top * (p + 1)):
        rest, order = divmod(block, p + 1)
        (label, column), level = divmod(rest // top, d), rest % top + 1
        out[label, column, order, 2**level - 2 : 2 ** (level + 1) - 2] = got[
            block * 2**top : block * 2**top + 2**level
        ]
    return [int(v) for v in out.ravel()]


def second_moments(sketches: Driver, _: Driver, n: int) -> Found:
    """Sums of products of scaled rows, and the norms of one record's."""
    from opendp_sim.domains.metrics import Symmetric
    from opendp_sim.domains.rows import GridRows, Rows
    from opendp_sim.transformations.sketches.moments.second_moments import SecondMoments

    rng, found = random.Random(7), Found()
    for _it in range(n):
        d = rng.randint(1, 4)
        low = tuple(rng.randint(-500, 0) for _ in range(d))
        high = tuple(a + rng.randint(64, 5000) for a in low)
        bound = SecondMoments(radius=None).bind(
            GridRows(width=d, lower=low, upper=high, unit=1.0), Symmetric()
        )
        x = [
            [rng.choice([a, b, rng.randint(a, b)]) for a, b in zip(low, high, strict=True)]
            for _ in range(rng.randint(0, 4))
        ]

        def built(x: list[list[int]]) -> Any:
            out = np.zeros(bound.output.size, dtype=np.int64)
            bound.accumulate(Rows(np.array(x, dtype=np.float64).reshape(len(x), d), None), out)
            return out

        total = [0] * bound.output.size
        by_rows = [(i, j) for i in range(d + 1) for j in range(i, d + 1)]
        for row in x:
            z = [1024] + [
                math.trunc(Fraction((2 * v - a - b) * 1024, b - a))
                for v, a, b in zip(row, low, high, strict=True)
            ]
            got = iter(sketches.numbers("products", d + 1, z))
            product = {(i, j): next(got) for j in range(d + 1) for i in range(j + 1)}
            one = [product[place] for place in by_rows]
            total = [a + b for a, b in zip(total, one, strict=True)]
            within = all(a <= b for a, b in zip(norms(one), claimed(bound), strict=True))
            found("products: one record within the claim", within, (row, low, high))
        found("products: cells", built(x).tolist() == total, (x, low, high))
        corner = norms(built([list(high)]))
        found("products: a corner attains L1 and L2", corner[:2] == claimed(bound)[:2], (low, high))
    return found


class _Fixed:
    """Coins whose noise is a given number; ``least`` is what it was compared with."""

    def __init__(self, noise: int) -> None:
        self.noise, self.least = noise, 0

    def reaches(self, _scale: float, least: int) -> bool:
        self.least = least
        return self.noise >= least


def votes_of(kind: str, m: int) -> Any:
    """Return the space of listed, open or bare counts."""
    from opendp_sim.domains.counts import USERS, OpenCounts, Votes, votes_space
    from opendp_sim.domains.metrics import VectorNorm
    from opendp_sim.domains.sketch import IntVector

    if kind == "bare":
        return votes_space("x", IntVector(m), VectorNorm("linf", monotone=True))
    return (
        votes_space("x", OpenCounts(text=False), USERS)
        if kind == "open"
        else Votes(IntVector(m), 1, m, True, None)
    )


def counted(kind: str, h: list[int]) -> Any:
    """Return counts as data of that space."""
    if kind != "open":
        return np.array(h, dtype=np.int64)
    items = [i for i, count in enumerate(h) if count > 0]
    return {
        "item": np.array(items, dtype=np.int64),
        "votes": np.array([h[i] for i in items], dtype=np.int64),
    }


def ranks(sketches: Driver, _: Driver, n: int) -> Found:
    """Ranks, gaps and stable sets of counts: listed, open, and bare vectors."""
    from opendp_sim.measurements.selection._impl.stability import stable_places
    from opendp_sim.measurements.selection.stable_set import draw_set

    rng, found = random.Random(3), Found()
    large = [0, 1, 2, 2**53, 2**53 + 1, 2**61 - 1, 2**61]

    def read(kind: str, h: list[int], k: int) -> tuple[Any, int, set[int] | None, list[int]]:
        ranking = votes_of(kind, len(h)).rank(counted(kind, h), k + 1)
        coins = _Fixed(2**63)
        places = stable_places(coins, ranking, k, 1.0, 1000)  # type: ignore[arg-type]
        items = (
            [i for i, count in enumerate(h) if count > 0] if kind == "open" else list(range(len(h)))
        )
        first = [items[p] for p in ranking.places[:k] if p >= 0]
        return (
            ranking,
            1000 - coins.least,
            None if places is None else {items[p] for p in places if p >= 0},
            first,
        )

    for it in range(n):
        m = rng.randint(2, 9)
        k, kind = rng.randint(1, m - 1), rng.choice(["listed", "open", "bare"])
        h = [
            rng.choice(large) if it % 4 == 0 else rng.choice([0, 0, 1, 2, 3, rng.randint(0, 9)])
            for _ in range(m)
        ]
        if kind == "bare":
            h = [rng.choice([-1, 1]) * count for count in h]
        ranking, gap, released, first = read(kind, h, k)
        top = (
            first + [i for i in range(m) if i not in first][: k - len(first)]
        )  # filled by items without a vote
        p, q = int(ranking.counts[k - 1]), int(ranking.counts[k])
        found(
            "top set and order statistics",
            sketches.ask("rank", m, h, k, p, q, top) == ["true"] * 3,
            (h, k, p, q, top),
        )
        found("gap", gap == p - q, (h, k, gap))
        weak = kind == "open" and sum(count > 0 for count in h) < k
        found(
            "a set with an item without a vote is not released", (released is None) == weak, (h, k)
        )
        a, b, g = rng.randint(0, 3), rng.randint(0, 3), h[:]
        for _ in range(a):
            g = [count + rng.randint(0, 1) for count in g]
        for _ in range(b):
            g = [count - rng.randint(0, 1) if count > 0 or kind == "bare" else count for count in g]
        if max(map(abs, g)) <= 2**61:
            _other, gap2, released2, _first = read(kind, g, k)
            if None in (released, released2) or released != released2:
                found(
                    "different sets: the gaps add up to at most d",
                    gap + gap2 <= a + b,
                    (h, g, k, gap, gap2),
                )
            found("a gap moves by at most d", abs(gap - gap2) <= a + b, (h, g, k))
        if weak and released is not None:  # a difference already, of places that are none
            continue
        noise, threshold = rng.randint(-5, 5), rng.randint(-3, 6)
        answer = draw_set(_Fixed(noise), votes_of(kind, m), counted(kind, h), k, 1.0, threshold)  # type: ignore[arg-type]
        want = None if p - q + noise < threshold or weak else sorted(top)
        found(
            "the release at a given noise",
            (None if answer is None else sorted(int(i) for i in answer)) == want,
            (h, k, noise, threshold),
        )
    return found


def purses(_: Driver, machine: Driver, n: int) -> Found:
    """Purses of the filter: what is left, what is affordable, who takes part."""
    from opendp_sim.core.errors import SimError
    from opendp_sim.measurements.knn._impl.privacy_filter import UNITS, IndividualFilter

    rng, found = random.Random(4), Found()
    edges = [
        1,
        2,
        3,
        UNITS,
        UNITS - 1,
        UNITS + 1,
        UNITS // 2,
        UNITS // 2 + 1,
        2**31,
        2**31 + 1,
        2**32 - 1,
        2**61 - 1,
    ]

    def price(extreme: bool) -> int:
        if extreme:
            return rng.choice([*edges, UNITS // rng.randint(1, 2**20) ** 2 or 1])
        return math.ceil(UNITS / rng.choice([3, 10, 50, 1000, rng.randint(2, 10**6)]))

    def left(prices: list[int]) -> int:
        return machine.numbers("purse", UNITS, len(prices), prices)[0]

    for it in range(n):
        several = it % 5 == 4
        persons = rng.randint(2, 4) if several else 1
        purse = IndividualFilter(Fraction(1, 2), persons)
        paid: list[list[int]] = [[] for _ in range(persons)]
        for _step in range(rng.randint(1, 8)):
            cost = price(it % 2 == 1)
            who = np.array(
                sorted(rng.sample(range(persons), rng.randint(1, persons))), dtype=np.int64
            )
            holds = [left(paid[i]) for i in who]
            found("purse", holds == purse.snapshot()[who].tolist(), (paid, holds))
            most = purse.affordable(who, cost).tolist()
            for i, m, z in zip(who, most, holds, strict=True):
                fits = (
                    [left([*paid[i], d * d * cost]) == z - d * d * cost for d in (m, m + 1)]
                    if cost <= UNITS
                    else [m == 0, False]
                )
                found(
                    "affordable is the largest that takes part",
                    fits == [True, False],
                    (paid[i], cost, m),
                )
            want = [
                min(m, rng.randint(0, 3)) if several else rng.choice([0, 1, m, m + 1, m // 2])
                for m in most
            ]
            admitted = all(
                d == 0 or (cost <= UNITS and d * d * cost <= z)
                for d, z in zip(want, holds, strict=True)
            )
            before = purse.snapshot().tolist()
            try:
                units = purse.charge(who, np.array(want, dtype=np.int64), cost).tolist()
                found("admitted exactly where it takes part", admitted, (paid, cost, want))
                if not admitted:  # the purses differ from here on
                    break
                found(
                    "units are the price",
                    units == [d * d * cost for d in want],
                    (cost, want, units),
                )
                for i, d in zip(who, want, strict=True):
                    paid[i].append(d * d * cost)
            except SimError as error:
                found(
                    "admitted exactly where it takes part",
                    not admitted and error.code == "OS903",
                    (paid, cost, want),
                )
                found(
                    "a refusal charges nothing",
                    purse.snapshot().tolist() == before,
                    (paid, cost, want),
                )
    return found


def kept_rows(sketches: Driver, _: Driver, n: int) -> Found:
    """The rows that bound_contributions keeps, by the ranks of its own hash."""
    import opendp.prelude as dp

    from opendp_sim.domains.metrics import IdDistance
    from opendp_sim.domains.records import Column, Records
    from opendp_sim.transformations.row_maps.bound_contributions import (
        Ranks,
        make_bound_contributions,
    )

    dp.enable_features("contrib", "honest-but-curious")
    rng, found = random.Random(8), Found()
    records = Records((Column("who", "int64", role="privacy_id"), Column("x", "int64", (0, 5))))
    for _it in range(n):
        k, seed, size = rng.randint(1, 3), rng.randrange(100), rng.randint(0, 14)
        table = {
            "who": np.array([rng.randint(0, 3) for _ in range(size)], dtype=np.int64),
            "x": np.array([rng.randint(0, 5) for _ in range(size)], dtype=np.int64),
        }
        made = make_bound_contributions(records, IdDistance("who"), max_rows=k, seed=seed)
        out = made(table)
        ranked = Ranks(seed, records, "who")
        hashes = [int(h) for h in ranked.hashes(ranked.contents(table), size)]
        content = dict(zip(hashes, table["x"].tolist(), strict=True))
        pairs = [w for row in zip(table["who"].tolist(), hashes, strict=True) for w in row]
        got = sketches.numbers("kept", k, size, pairs)
        want = sorted((who, content[rank]) for who, rank in zip(got[::2], got[1::2], strict=True))
        kept = sorted(
            zip(np.asarray(out["who"]).tolist(), np.asarray(out["x"]).tolist(), strict=True)
        )
        found("kept rows", kept == want, (k, table, kept, want))
    return found
