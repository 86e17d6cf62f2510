"""The sixth set: 26 pairs of an engineer's usual mistakes, written blind; ``make(True)`` is the broken one."""
from __future__ import annotations
import math, warnings
from fractions import Fraction
import numpy as np
import polars as pl
import opendp.prelude as dp
from tests.audit.corpus.set4 import MD, ZC, M, S, gauss, ints, laplace, strs
warnings.simplefilter("ignore")
dp.enable_features("contrib", "honest-but-curious")
INTS = dp.vector_domain(dp.atom_domain(T=int))
NUMBER = dp.atom_domain(T=int), dp.absolute_distance(T=int)
APPROX = dp.approximate(dp.max_divergence())
def frame(**columns): return dp.lazyframe_domain([dp.series_domain(n, c) for n, c in columns.items()])
I32 = dp.atom_domain(T=dp.i32)
T, PAIRS = [], {}
def twin(name, mag, make, d_in=1, pair=None, **opt):
    T.append((name, mag, lambda: make(True), lambda: make(False), d_in, opt)); PAIRS[name] = pair

# changes of state in a series: an insertion within a run makes two
def f(bad): return M(INTS, lambda rows: laplace(sum(a != b for a, b in zip(rows, rows[1:])), 1), 1.0 if bad else 2.0, dp.insert_delete_distance())
twin("series/changes_of_state", "x2", f, pair=([8, 8], [8, 0, 8]))
# three flags a row, noise by the largest of three changes and not by their L2 norm
def f(bad): return M(ints(0, 7), lambda rows: [gauss(sum(r >> b & 1 for r in rows), 2) for b in range(3)], lambda d: (1 if bad else 3) * d * d / 8, mea=ZC)
twin("flags/norm_of_the_largest", "x3 of rho", f, pair=([], [7]))
# a sum winsorized at the data's own quartiles
def f(bad):
    def total(rows):
        if not rows: return laplace(0, 100)
        low, high = np.percentile(rows, [25, 75], method="lower") if bad else (20, 80)
        return laplace(sum(int(min(max(r, low), high)) for r in rows), 100)
    return M(ints(0, 100), total)
twin("sum/winsorized_at_its_quartiles", "grows with the records", f, pair=([0] * 4 + [100] * 12, [0] * 3 + [100] * 12))
# batches of four are clipped, the shorter last one is not
def f(bad):
    def total(rows):
        whole = len(rows) - len(rows) % 4
        t = sum(int(np.clip(rows[i : i + 4], 0, 10).sum()) for i in range(0, whole, 4))
        return laplace(t + sum(r if bad else min(max(r, 0), 10) for r in rows[whole:]), 10)
    return M(ints(-10_000, 10_000), total)
twin("batches/tail_not_clipped", "x1000", f, pair=([], [10_000]))
# rows up to 1.5 are rounded after the bound was taken
def f(bad):
    out = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    rows = dp.vector_domain(dp.atom_domain(T=float, bounds=(0.0, 1.5)))
    return dp.t.make_user_transformation(rows, S, *out, lambda rows: float(sum(map(round, rows))), lambda d: (1.5 if bad else 2.0) * d)
twin("t/rounded_past_its_bound", "x1.33", f, pair=([], [1.5]))
# "parallel" counts of adults and seniors, who are adults
def f(bad): return M(ints(0, 120), lambda rows: [laplace(sum(18 <= r <= (120 if bad else 64) for r in rows), 1), laplace(sum(r >= 65 for r in rows), 1)])
twin("groups/adults_and_seniors", "x2", f, pair=([], [65]))
# above threshold goes on after its first answer, and does not pay again
def f(bad):
    def answers(rows):
        bar, out = laplace(6, 1), []
        for level in range(1, 21):
            out.append(bool(laplace(sum(r >= level for r in rows), 2) >= bar))
            if out[-1] and not bad: break
        return out
    return M(ints(0, 20), answers, 2.0)
twin("sparse/goes_on", "up to x2.5, in the tail", f, pair=([10] * 6, [10] * 7))
# noisy max of margins, paid as if all moved one way
def f(bad): return M(ints(0, 2), lambda rows: int(np.argmax([laplace(2 * rows.count(k) - len(rows), 1) for k in range(3)])), 1.0 if bad else 2.0)
twin("noisy_max/margins_as_counts", "up to x2", f, pair=([0] * 3, [0] * 3 + [1]))
# words: the threshold is on the true count, noise comes after
def f(bad):
    def table(rows):
        noisy = {w: laplace(rows.count(w), 1) for w in sorted(set(rows))}
        return {w: n for w, n in noisy.items() if (rows.count(w) if bad else n) >= 16}
    def loss(d): return float(d), min(1.0, d * math.exp(-max(16 - d, 0)))
    return M(strs, table, loss, mea=APPROX)
twin("words/threshold_before_noise", "delta 1", f, pair=(["a"] * 15, ["a"] * 16))
# one visit a person and day: "a week has seven days", but the column has any
def f(bad):
    def visits(lf):
        day = pl.col("day") if bad else pl.col("day").clip(0, 6)
        return laplace(lf.with_columns(day).unique(["user", "day"]).select(pl.len()).collect().item(), 7)
    return M(frame(user=I32, day=I32), visits, met=dp.symmetric_id_distance(pl.col("user")))
twin("frame/days_of_a_week", "grows with a person's days", f, pair="[] against a person with days 0 to 13")
# four answers of a queryable with one draw
def f(bad):
    def start(rows):
        left, kept = [4], {}
        def answer(level, _internal=False):
            if not left[0]: raise ValueError("no query is left")
            left[0] -= 1
            noise = kept.setdefault("noise", laplace(0, 2)) if bad else laplace(0, 2)
            return sum(r >= level for r in rows) + noise
        return dp.new_queryable(answer, int, int)
    return M(ints(0, 10), start, 2.0)
twin("queryable/one_draw_for_all_answers", "inf", f, pair=([], [3]))
# a filter that asks whether the budget is spent before it adds the price
def f(bad):
    def start(rows):
        spent = [Fraction(0)]
        def answer(epsilon, _internal=False):
            if not 0 < epsilon < math.inf: raise ValueError("epsilon must be a positive number")
            if spent[0] >= 1 if bad else spent[0] + Fraction(epsilon) > 1: raise ValueError("the budget is spent")
            spent[0] += Fraction(epsilon)
            return laplace(len(rows), 1 / epsilon)
        return dp.new_queryable(answer, float, int)
    return M(INTS, start, 1.000001)
twin("filter/charges_late", "any", f, pair=([], [0]))
# rows are replaced, the sensitivity is that of adding one
def f(bad): return dp.t.make_user_transformation(ints(-5, 10, 10), dp.change_one_distance(), *NUMBER, sum, lambda d: (10 if bad else 15) * d)
twin("t/replaced_as_added", "x1.5", f, pair=([-5] + [0] * 9, [10] + [0] * 9))
# a map of rho that is linear in the rows
def f(bad): return M(INTS, lambda rows: gauss(len(rows), 1), lambda d: d / 2 if bad else d * d / 2, mea=ZC)
twin("zcdp/linear_in_rows", "x2 at two rows", f, d_in=2, pair=([], [0, 0]))
# a median by the exponential mechanism, whose candidates are the rows
CHOOSE = dp.m.make_noisy_max(dp.vector_domain(dp.atom_domain(T=int)), dp.linf_distance(T=int), MD, 2.0)
def f(bad):
    def median(rows):
        options = (sorted(set(rows)) or [0]) if bad else [*range(0, 101, 5)]
        return options[CHOOSE([-abs(sum(r < c for r in rows) - sum(r > c for r in rows)) for c in options])]
    return M(ints(0, 100), median)
twin("median/candidates_are_the_rows", "inf", f, pair=([3], [3, 90]))
# a median with noise by local, not smooth, sensitivity
BETA = 1 / (2 * math.log(2e6))
def f(bad):
    def median(rows):
        pad = [0] * 9 + sorted(rows) + [100] * 9
        spread = max(pad[14] - pad[13], pad[13] - pad[12])
        if not bad: spread = max(math.exp(-k * BETA) * max(pad[13 + t] - pad[12 + t - k] for t in range(k + 2)) for k in range(9))
        if not spread: return float(pad[13])
        return dp.m.make_laplace(dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float), 2.000002 * spread)(float(pad[13]))
    def loss(d): return float(d), min(1.0, d * math.exp(d - 1) * 2e-6)
    return M(ints(0, 100, 9), median, loss, dp.change_one_distance(), APPROX)
twin("median/local_sensitivity", "delta 1", f, pair=([0] * 5 + [100] * 4, [0] * 6 + [100] * 3))
# the mode, if a noisy gap passes 1 + ln(1/delta): written with log10
def f(bad):
    bar = 1 + math.ceil((math.log10 if bad else math.log)(1e6))
    def mode(rows):
        counts = [rows.count(k) for k in range(5)]
        second, first = sorted(counts)[-2:]
        return counts.index(first) if laplace(first - second, 1) >= bar else None
    def loss(d): return float(d), min(1.0, d * math.exp(d - 1) * 1e-6)
    return M(ints(0, 4), mode, loss, mea=APPROX)
twin("propose/log10_for_ln", "x1800 of delta", f, pair=([0, 1], [0, 1, 1]))
# a place by its sum of distances, which move by the whole range
NEAREST = dp.m.make_noisy_max(dp.vector_domain(dp.atom_domain(T=int)), dp.linf_distance(T=int, monotonic=True), MD, 50.0)
def f(bad):
    places = [0, 25, 50, 75, 100]
    def place(rows): return places[NEAREST([-sum(abs(r - p) for r in rows) for p in places])]
    return M(ints(0, 100), place, 1.0 if bad else 2.0)
twin("exponential/half_the_range", "up to x2", f, pair=([0] * 3, [0] * 4))
# the three leaders of one noisy list, paid as one
def f(bad):
    def leaders(rows):
        noisy = [laplace(sum(r >> i & 1 for r in rows), 1) for i in range(6)]
        return sorted(range(6), key=lambda i: (-noisy[i], i))[:3]
    return M(ints(0, 63), leaders, 1.0 if bad else 3.0)
twin("topk/one_shot_paid_as_one", "up to x3, in the tail", f, pair=([7] * 3, [7] * 3 + [56]))
# a join with a public table that has one key three times
SHOPS = pl.LazyFrame({"key": [1, 2, 3, 3, 3, 4], "shop": [*"abcdef"]}, schema={"key": pl.Int32, "shop": pl.String})
def f(bad): return M(frame(key=I32), lambda lf: laplace(lf.join(SHOPS, on="key").select(pl.len()).collect().item(), 1), 1.0 if bad else 3.0)
twin("frame/join_repeats_a_key", "x3", f, pair="[] against [(3,)]")
# bins between the least and the largest record
def f(bad): return M(ints(0, 100), lambda rows: [laplace(n, 1) for n in np.histogram(rows, bins=10, range=None if bad else (0, 100))[0]])
twin("histogram/edges_of_the_data", "grows with the records", f, pair=([0, 1, 1, 1], [0, 1, 1, 1, 100]))
# missing cells get the mean of the others
def f(bad):
    v = pl.col("v").clip(0, 100)
    def total(lf): return laplace(lf.select(v.fill_null(v.mean() if bad else pl.lit(50)).cast(pl.Int64).sum()).collect().item(), 100)
    return M(frame(v=dp.option_domain(I32)), total)
twin("frame/missing_get_the_mean", "grows with the records", f, pair="[None] * 3 against [None] * 3 and [100]")
# a colour that is not listed is a KeyError
def f(bad):
    def table(rows):
        counts = dict.fromkeys(("red", "green", "blue"), 0)
        for r in rows:
            if bad or r in counts: counts[r] += 1
        return [laplace(n, 1) for n in counts.values()]
    return M(strs, table)
twin("colours/unlisted_raises", "inf", f, pair=([], ["pink"]))
# randomized response of each row, for rows added and for rows changed in place
FLIP = dp.m.make_randomized_response_bool(0.75)
def f(bad): return M(dp.vector_domain(dp.atom_domain(T=bool)), lambda rows: [FLIP(r) for r in rows], FLIP.map(1), S if bad else dp.hamming_distance())
twin("responses/length_is_told", "inf", f, pair=([], [True]))
# the three best by tens, ties in the order of the rows
def f(bad): return M(ints(0, 99), lambda rows: laplace(sum(r % 10 for r in sorted(rows, key=(lambda r: r // 10) if bad else None, reverse=True)[:3]), 9))
twin("podium/ties_in_given_order", "x3 at distance 0", f, pair=([10] * 3 + [19] * 3, [19] * 3 + [10] * 3))
# a generator seeded with the number of records
def f(bad): return M(INTS, lambda rows: len(rows) + round(np.random.default_rng(len(rows)).laplace()) if bad else laplace(len(rows), 1))
twin("seed/number_of_records", "inf", f, pair=([], [0]))
