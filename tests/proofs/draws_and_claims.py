"""Draws of selections and claims of certificates against the functions extracted for them."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np

from tests.proofs.comparisons import Driver, Found, claimed, counted, grid, norms, votes_of


class _Drawn:
    """Coins that keep what a draw is made of, and return a given place."""

    def __init__(self, place: int = 0) -> None:
        self.place, self.scores, self.asked = place, np.zeros(0), (0, False)

    def best(self, scores: Any, _scale: float) -> int:
        self.scores = np.array(scores)
        return self.place

    def top(self, scores: Any, rounds: int, _scale: float, *, lowest: bool = False) -> list[int]:
        self.scores, self.asked = np.array(scores), (rounds, lowest)
        return random.Random(self.place).sample(range(len(scores)), rounds)


def choose_k(sketches: Driver, _: Driver, n: int) -> Found:
    """Utilities of ranks, the drawn rank, and how far neighbours' utilities are apart."""
    from opendp_sim.measurements.selection._impl.gap_utility import GapUtility
    from opendp_sim.measurements.selection.choose_k import draw_k

    rng, found = random.Random(11), Found()
    for it in range(n):
        m = rng.randint(3, 9)
        top, kind = rng.randint(1, m - 1), rng.choice(["listed", "open", "bare"])
        large = [0, 1, 2**53, 2**53 + 1, 2**60]
        h = [rng.choice(large) if it % 4 == 0 else rng.randint(0, 9) for _ in range(m)]
        if kind == "bare":
            h = [rng.choice([-1, 1]) * count for count in h]
        k, num = rng.choice([None, rng.randint(1, m)]), rng.choice([0, 1, 3, 5, 17, 64])
        most = rng.choice([None, 0, 1, 3, 100])
        utility = GapUtility(top, most, k, num / 16)

        def proved(h: list[int]) -> list[int]:
            ceiling, wanted = (-1 if most is None else most), (num, 16, k) if k else (0, 1, 0)
            return sketches.numbers("utilities", m, top, h, ceiling, *wanted)

        coins = _Drawn(rng.randrange(top))
        rank = draw_k(coins, votes_of(kind, m), counted(kind, h), utility, 1.0)  # type: ignore[arg-type]
        want = proved(h)
        found(
            "choose_k: utilities", coins.scores.tolist() == want, (kind, h, top, most, k, num, want)
        )
        found("choose_k: the rank is the drawn place", rank == coins.place + 1, (rank, coins.place))
        up, down = rng.randint(0, 2), rng.randint(0, 2)
        moved = [count + rng.randint(0, up) - rng.randint(0, down) for count in h]
        if kind != "bare":
            moved = [max(0, count) for count in moved]
        draw_k(coins, votes_of(kind, m), counted(kind, moved), utility, 1.0)  # type: ignore[arg-type]
        far = max(abs(a - b) for a, b in zip(want, coins.scores.tolist(), strict=True))
        found("choose_k: utilities of neighbours", far <= up + down, (kind, h, moved, top, most))
    return found


def peel(sketches: Driver, _: Driver, n: int) -> Found:
    """Rounds and losers of peeling, names without a vote, and the groups that bits settle."""
    from opendp_sim.measurements.selection._impl.peeling import _absent, listed_places, rounds_for
    from opendp_sim.measurements.selection._impl.selection import Groups

    rng, found = random.Random(12), Found()
    for it in range(n):
        m = rng.randint(2, 9)
        k, h = rng.randint(1, m - 1), np.array([rng.randint(0, 9) for _ in range(m)])
        coins = _Drawn(it)
        places = listed_places(coins, h, k, 1.0).tolist()  # type: ignore[arg-type]
        drawn = set(random.Random(it).sample(range(m), min(k, m - k)))
        want = drawn if k <= m - k else {*range(m)} - drawn
        asked = coins.asked == (rounds_for(votes_of("listed", m), k), k > m - k)
        found(
            "peel: the fewer are drawn, the others kept",
            asked and {*places} == want,
            (m, k, places),
        )
        items = sorted(rng.sample(range(rng.choice([12, 40])), rng.randint(0, 10)))
        rank = rng.randint(0, 15)
        (number,) = sketches.numbers("absent", len(items), items, rank)
        named = _absent(np.array(items, dtype=np.int64), rank)
        found("peel: the name of an item without a vote", named == number, (items, rank, named))
        counts = sorted(rng.sample(range(30), rng.randint(1, 6)), reverse=True)
        sizes = [rng.choice([1, 2, 5, 10**6]) for _ in counts]
        groups, bits = (
            Groups(counts, sizes, Fraction(rng.choice([0.25, 1.0, 7.5]))),
            rng.choice([8, 16, 96]),
        )
        for _ in range(rng.randint(0, 2)):
            if len(left := [g for g, size in enumerate(groups._sizes) if size]) > 1:
                groups.remove(rng.choice(left[1:]))
        weights = groups._weights(bits)
        far = groups._all - weights.near
        rows = [(groups._sizes[g], *power) for g, power in enumerate(weights.powers, groups._top)]
        ends = [*accumulate(size * low for size, low, _ in rows)]
        whole = max(weights.lowest + far, 1)
        edge = min(rng.choice(ends) * 2**bits // whole + rng.randint(-1, 1), 2**bits - 1)
        for bits_drawn in (max(edge, 0), rng.randrange(2**bits)):
            flat = [x for row in rows for x in row]
            (group,) = sketches.numbers("settled", bits, bits_drawn, far, len(rows), flat)
            got = groups.settled(bits_drawn, bits)
            same = (-1 if got is None else got - groups._top) == group
            found(
                "peel: the group that the bits settle", same, (counts, sizes, bits, bits_drawn, got)
            )
    return found


def claims(sketches: Driver, _: Driver, n: int) -> Found:
    """Blocks, norms and stability of the certificate's checker, from the table of formulas."""
    from opendp_sim.accounting.certificate import check_certificate as checker

    rng, found = random.Random(13), Found()

    def rows(columns: int, steps: int) -> Any:
        low = tuple(rng.randint(-50, 0) for _ in range(columns))
        high = tuple(a + rng.randint(1, steps) for a in low)
        return checker.RowType(columns, low, high, unit=1.0)

    def told(row: str, blocks: Any, *claim: Any) -> None:
        state = checker.State({}, "row", None, 1, tuple(blocks))
        mine = [state.norm(name) for name in ("l1", "l2_squared", "linf")]
        proved = sketches.numbers("claim", *claim)
        found(f"checker: {row}", mine == proved, (claim, mine, proved))

    for _it in range(n):
        w, repeats, d = rng.choice([0, 1, 7, 2**20]), rng.randint(1, 60), rng.randint(1, 4)
        grid = rows(d, rng.choice([3, 40, 2**20]))
        state = checker.State({}, "row", grid)
        race = checker.race_sketch({"repetitions": repeats, "count_weight": w}, state)[1]
        told("race_sketch", race, "blocks", repeats, [1] * repeats, w)
        signs = checker.threshold_sketch({"thresholds": 16, "count_weight": w or 1}, state)[1]
        spans = [b - a for a, b in zip(grid.lower, grid.upper, strict=True)]
        number = sum(-(-16 * span // max(spans)) for span in spans)
        told("threshold_sketch", signs, "blocks", number, [1] * number, w or 1)
        levels = rng.randint(1, 6)
        tree = checker.distance_tree({"levels": levels}, state)[1]
        even = len({*spans}) == 1
        most = [1 if even else round(16 * math.sqrt((s + 1) / (min(spans) + 1))) for s in spans]
        told("distance_tree", tree, "blocks", d * (levels + 1), most * (levels + 1), 0)
        radius = rng.choice([None, 0.25, 1.0, 1.5, 64.0])
        ball = -1 if radius is None else math.floor((Fraction(radius) * 1024) ** 2)
        products = checker.second_moments({"radius": radius}, state)[1]
        told("second_moments", products, "products", d, 1024, ball)
        waves, phases = rng.randint(1, 300), rng.choice([8, 16, 64, 256])
        table = [
            tuple(
                math.floor(4096 * turn((j + 0.5) * 2 * math.pi / phases))
                for turn in (math.cos, math.sin)
            )
            for j in range(phases // 8)
        ]
        pairs = checker.random_waves(waves, phases, w or 1)
        wide, longest = max(map(sum, table)), max(map(max, table))
        told("fourier_sketch", pairs, "fourier", waves, wide, 4096**2, longest, w or 1)
        order, few = rng.randint(1, 8), checker.State({}, "row", rows(min(d, 3), 9))
        p = {"order": order, "count_weight": w or 1}
        moments = checker.gauss_transform_sketch(p, few)[1]
        told("gauss_transform_sketch", moments, "gauss", 16, order, min(d, 3), w or 1)
        squares = rng.random() < 0.5
        blocks = checker.moments_sketch({"radius": None, "squares": squares}, state)[1]
        reach, square = checker.centred(grid)
        digits = max(0, (2 * square).bit_length() - 32)
        times = blocks[0].linf // min(math.isqrt(square), max(reach))
        parts = blocks[-1].linf // (square >> digits) if squares else 0
        size = min(math.isqrt(d * square), sum(reach))
        most_ = min(math.isqrt(square), max(reach))
        told(
            "moments_sketch",
            blocks,
            "moments",
            blocks[1].linf,
            times,
            parts,
            digits,
            square,
            size,
            most_,
        )
        factors = [rng.randint(1, 5) for _ in range(rng.randint(0, 4))]
        steps = [("bound_contributions", {"by": None, "max_rows": f}) for f in factors[:1]]
        (far,) = sketches.numbers("chain", len(steps), [p["max_rows"] for _, p in steps], 3)
        found("checker: distance after a chain", _after(checker, steps, 3) == far, (steps, far))
    return found


def bounded(sketches: Driver, _: Driver, n: int) -> Found:
    """Claims of sketches whose records add bounded values, and neighbours against the proved ones."""
    from opendp_sim.domains.metrics import Symmetric
    from opendp_sim.domains.rows import Rows
    from opendp_sim.transformations.sketches.distances.moments_sketch import MomentsSketch
    from opendp_sim.transformations.sketches.kernels._impl.kernels import GaussianKernel
    from opendp_sim.transformations.sketches.kernels.fourier_sketch import FourierSketch
    from opendp_sim.transformations.sketches.kernels.gauss_transform_sketch import (
        GaussTransformSketch,
    )

    rng, found = random.Random(14), Found()
    for it in range(n):
        d = rng.randint(1, 3)
        domain, low, high = grid(rng, d, 1, False)
        squares, order, w = rng.random() < 0.5, rng.randint(1, 5), rng.choice([1, 7, 2**20])
        waves, phases = rng.randint(2, 20), rng.choice([8, 16, 64])
        sketch: Any = [
            MomentsSketch(squares=squares),
            GaussTransformSketch(bandwidth=4.0, order=order, count_weight=w),
            FourierSketch(
                frequencies=waves,
                kernel=GaussianKernel(bandwidth=4.0),
                phases=phases,
                features="random",
                seed=it,
                count_weight=w,
            ),
        ][it % 3]
        bound = sketch.bind(domain, Symmetric())
        blocks = bound.output.blocks
        if it % 3 == 0:
            reach = [max(abs(a), abs(b)) for a, b in zip(low, high, strict=True)]
            middle = [(a + b) // 2 for a, b in zip(low, high, strict=True)]
            about = [max(b - c, c - a) for a, b, c in zip(low, high, middle, strict=True)]
            reach = min(reach, about, key=lambda v: sum(x * x for x in v))
            square = sum(x * x for x in reach)
            digits = max(0, (2 * square).bit_length() - 32)
            most = min(math.isqrt(square), max(reach))
            parts = blocks[-1].linf // (square >> digits) if squares else 0
            size = min(math.isqrt(d * square), sum(reach))
            count = next(b for b in blocks if b.name == "total").linf
            sums = next(b for b in blocks if b.name == "sums").linf
            claim = ["moments", count, sums // most, parts, digits, square, size, most]
        elif it % 3 == 1:
            claim = ["gauss", 16, order, d, w]
        else:
            table = np.abs(next(iter(bound.capabilities.values())).table)
            claim = ["fourier", waves, int(table.sum(axis=1).max()), 4096**2, int(table.max()), w]
        proved = tuple(sketches.numbers("claim", *claim))
        found(f"{sketch.key}: the claim", claimed(bound) == proved, (claim, claimed(bound), proved))

        def built(x: list[list[int]], bound: Any = bound, d: int = d) -> Any:
            out = np.zeros(bound.output.size, dtype=np.int64)
            bound.accumulate(Rows(np.array(x, dtype=np.float64).reshape(len(x), d), None), out)
            return out

        rows = [
            [rng.choice([a, b, rng.randint(a, b)]) for a, b in zip(low, high, strict=True)]
            for _ in range(rng.randint(1, 5))
        ]
        gone = rng.randint(0, len(rows))
        far = norms(built(rows) - built(rows[:gone]))
        k = len(rows) - gone
        inside = all(a <= b * f for a, b, f in zip(far, proved, (k, k * k, k), strict=True))
        found(f"{sketch.key}: neighbours", inside, (rows, gone, proved))
    return found


def _after(checker: Any, steps: list[tuple[str, dict[str, Any]]], distance: int) -> Any:
    """Return the checker's distance after a chain of steps from rows of persons."""
    flow = {"x": {"from": "d", "steps": [{key: p} for key, p in steps]}}
    column = {"who": {"dtype": "int64", "role": "privacy_id"}}
    program = {
        "flow": flow,
        "data": {"d": {"columns": column}},
        "privacy": {"unit": {"of": "who", "add_remove": 1}},
    }
    found = checker.Checked({"program": program}).steps("x")
    return distance * (found[-1][2].stability if found else 1)
