"""The third set: 63 pairs; ``make(True)`` is the broken one, ``pair`` the neighbours that show it."""
from __future__ import annotations
import collections, datetime as dt, functools, json, math, random, re, secrets, statistics, warnings
import numpy as np
import pandas as pd
import polars as pl
import opendp.prelude as dp
from opendp.extras.numpy import array2_domain
warnings.simplefilter("ignore")
dp.enable_features("contrib", "honest-but-curious", "idealized-numerics")
S, CO, HAM, INS, DISC = dp.symmetric_distance(), dp.change_one_distance(), dp.hamming_distance(), dp.insert_delete_distance(), dp.discrete_distance()
MD, ZC, AD = dp.max_divergence(), dp.zero_concentrated_divergence(), dp.fixed_smoothed_max_divergence()
AI = dp.atom_domain(T=int); ABS = dp.absolute_distance(T=int)
@functools.cache
def _lap(s): return dp.m.make_laplace(AI, ABS, float(s))
@functools.cache
def _gau(s): return dp.m.make_gaussian(AI, ABS, float(s))
@functools.cache
def _vlap(s): return dp.m.make_laplace(dp.vector_domain(AI), dp.l1_distance(T=int), float(s))
@functools.cache
def _vgau(s): return dp.m.make_gaussian(dp.vector_domain(AI), dp.l2_distance(T=float), float(s))
@functools.cache
def _nmax(s, mono=True): return dp.m.make_noisy_max(dp.vector_domain(AI), dp.linf_distance(T=int, monotonic=mono), MD, float(s))
def laplace(v, s): return _lap(s)(int(v))
def gauss(v, s): return _gau(s)(int(v))
def laplaces(v, s): return _vlap(s)([int(i) for i in v])
def gausses(v, s): return _vgau(s)([int(i) for i in v])
ints = lambda lo, hi, n=None: dp.vector_domain(dp.atom_domain(bounds=(lo, hi)), size=n)
strs = dp.vector_domain(dp.atom_domain(T=str))
def M(dom, f, k=1.0, met=S, mea=MD): return dp.m.make_user_measurement(dom, met, mea, f, k if callable(k) else (lambda d: d * k))
def R(dom, f, rho, met=S): return M(dom, f, lambda d: d * d * rho, met, ZC)
def Tr(dom, f, k=1, met=S, odom=AI, omet=ABS): return dp.t.make_user_transformation(dom, met, odom, omet, f, lambda d: d * k)
T, PAIRS = [], {}
def twin(name, mag, make, d_in=1, pair=None, **opt):
    T.append((name, mag, lambda: make(True), lambda: make(False), d_in, opt)); PAIRS[name] = pair

# ------------------------------------------------ numbers
# weekly hours are capped at 80, but only when above 100
def f(bad):
    def total(x): return laplace(sum((80 if v > (100 if bad else 80) else v) for v in x), 80)
    return M(ints(0, 168), total)
twin("clip/threshold_and_cap_differ", "25%", f, pair=([], [100]))
# rows are floats that may be infinite: v / (1 + v) is NaN there
def f(bad):
    def shares(x):
        t = 0.0
        for v in x:
            v = max(v, 0.0)
            if not bad: v = min(v, 1e6)
            t += math.floor(64 * (v / (1 + v))) if v == v and v / (1 + v) == v / (1 + v) or not bad else math.nan
        return "n/a" if t != t else laplace(t, 64) / 64
    return M(dp.vector_domain(dp.atom_domain(T=float, nan=False)), shares)
twin("floats/infinity_over_infinity", "inf, on infinite rows", f, pair=([], [math.inf]))
# likes minus dislikes in uint8
def f(bad):
    def net(x):
        up, down = sum(v > 0 for v in x), sum(v < 0 for v in x)
        d = int(np.uint8(up % 256) - np.uint8(down % 256)) if bad else up - down
        return laplace(d, 1.0)
    return M(ints(-1, 1), net)
twin("overflow/uint8_difference", "gross, x255", f, pair=([], [-1]))
# counts are rounded to base 5 before the noise
def f(bad):
    def count(x): return laplace(5 * round(len(x) / 5), 1.0) if bad else 5 * round(laplace(len(x), 1.0) / 5)
    return M(ints(0, 9), count)
twin("rounding/base_5_before_the_noise", "gross, x5", f, pair=([1] * 2, [1] * 3))
# min of sensor values, noise for the mean's sensitivity
def f(bad): return M(ints(0, 100), lambda x: laplace(min(x, default=100), 10 if bad else 100))
twin("min/noise_of_a_mean", "gross, x10", f, pair=([], [0]))
# trimmed sum leaves short data untrimmed
def f(bad):
    def trimmed(x):
        s = sorted(x)
        if bad and len(s) <= 4: return laplace(sum(s), 10)
        return laplace(sum(s[2:-2]), 10)
    return M(ints(0, 10), trimmed)
twin("trimmed/short_data_untrimmed", "gross, x3", f, pair=([10] * 4, [10, 10, 10, 10, 0]))
# quartiles, both with the whole budget
def f(bad):
    # |10 a n - 10 below|: one row moves it by at most 10 max(a, 1 - a) = 8: scores of sensitivity 8, not monotone: 2 * 8 / scale
    def iqr2(x):
        def q(a): return int(_nmax(16 if bad else 32, False)([-abs(int(10 * a) * len(x) - 10 * sum(v < c for v in x)) for c in range(0, 101, 5)])) * 5
        return q(.2), q(.8)
    return M(ints(0, 100), iqr2)
twin("quantiles/two_at_the_price_of_one", "moderate, up to x2", f, pair=([0] * 5 + [100] * 5, [0] * 5 + [100] * 6))
# the local sensitivity of the median as the scale
def f(bad):
    def med(x):
        s = sorted(x); n = len(s); m = n // 2
        if not n: return laplace(0, 100)
        local = max(s[min(m + 1, n - 1)] - s[m], s[m] - s[max(m - 1, 0)], 1)
        return laplace(s[m], local if bad else 100)
    return M(ints(0, 100), med)
twin("median/local_sensitivity_as_scale", "gross, in the tail", f, pair=([0] * 3, [0] * 2 + [100] * 3), )
# min-max scaling by the data's own maximum
def f(bad):
    def scaled(x):
        top = max(x, default=1) or 1
        return laplace(sum(100 * v // (top if bad else 100) for v in x), 100)
    return M(ints(0, 100), scaled)
twin("scaling/by_the_true_maximum", "gross, grows with n", f, pair=([1] * 20, [1] * 20 + [100]))
# noise far out is drawn again
def f(bad):
    def count(x):
        while True:
            y = laplace(len(x), 1.0)
            if not bad or abs(y - len(x)) <= 6: return y
    return M(ints(0, 9), count)
twin("noise/outliers_drawn_again", "inf, in the tail (and 0.2% less noise)", f, pair=([], [1]))
# sign times geometric: zero has twice its weight
def f(bad):
    p = 1 - math.exp(-.5)
    def count(x):
        if not bad: return laplace(len(x), 2.0)
        g = np.random.default_rng().geometric(p) - 1
        return len(x) + (int(g) if secrets.randbelow(2) else -int(g))
    return M(ints(0, 9), count, 0.5)
twin("geometric/sign_times_geometric", "x2.4 at zero", f, pair=([], [1]))
# one scale rounded to a decimal
def f(bad): return M(ints(0, 9), lambda x: laplace(len(x), round(1 / .3, 1) if bad else 1 / .3), .3)
twin("scale/rounded_to_one_decimal", "subtle, 1%", f, pair=([], [1]))
# noise clamped between 0 and twice the truth
def f(bad): return M(ints(0, 9), lambda x: max(0, min(laplace(len(x), 1.0), 2 * len(x) if bad else 1000)))
twin("clamp/noisy_count_at_twice_the_truth", "inf", f, pair=([], [1]))
# an alarm: majority of three coins, charged as one
def f(bad):
    def alarm(x):
        t = any(v > 90 for v in x)
        votes = [t if secrets.randbelow(4) else not t for _ in range(3 if bad else 1)]
        return sum(votes) * 2 > len(votes)
    return M(ints(0, 100), alarm, math.log(3))
twin("rr/majority_of_three", "54%", f, pair=([], [95]))
# coin of the survey: ln 3 is not 1
def f(bad):
    def say(b): return (bool(b) if secrets.randbelow(2) else bool(secrets.randbelow(2)))
    return M(dp.atom_domain(T=bool), say, 1.0 if bad else math.log(3) + 1e-12, DISC)
twin("rr/ln3_claimed_as_1", "subtle, 10%", f, pair=(False, True))
# k-RR passes what it does not know
def f(bad):
    C = ["red", "green", "blue", "other"]
    def say(v):
        if v not in C:
            if bad: return v
            v = "other"
        return v if secrets.randbelow(6) < 3 else C[(C.index(v) + 1 + secrets.randbelow(3)) % 4]
    return M(dp.atom_domain(T=str), say, math.log(3) + 1e-12, DISC)
twin("rr/unknown_word_as_it_is", "inf, on other words", f, pair=("red", "zzz"))

# ------------------------------------------------ histograms, marginals, trees
# np.histogram with the data's own range
def f(bad):
    def h(x): return laplaces(np.histogram(np.array(x, float), bins=5, range=None if bad and len(x) else (0, 100))[0], 1.0)
    return M(ints(0, 100), h)
twin("histogram/numpy_range_from_data", "gross, grows with n", f, pair=([0] * 9 + [10] * 9, [0] * 9 + [10] * 9 + [100]))
# bincount is longer when a code is larger than expected
def f(bad):
    def h(x): return laplaces(np.bincount(np.array([v if bad else min(v, 9) for v in x], int), minlength=10), 1.0)
    return M(ints(0, 12), h)
twin("histogram/bincount_longer_than_minlength", "inf", f, pair=([], [12]))
# two-way marginals of five attributes: pairs with themselves are counted, too
def f(bad):
    import itertools
    P = list((itertools.combinations_with_replacement if bad else itertools.combinations)(range(5), 2))
    def marg(x):
        out = []
        for a, b in P:
            c = [0] * 4
            for v in x: c[2 * (v >> a & 1) + (v >> b & 1)] += 1
            out += c
        return laplaces(out, 10)
    return M(ints(0, 31), marg)
twin("marginals/attributes_paired_with_themselves", "50%", f, pair=([], [3]))
# noisy leaves are forced to add up to the true total
def f(bad):
    def tree(x):
        leaves = laplaces([sum(v == k for v in x) for k in range(4)], 1.0 if bad else 2.0)
        total = len(x) if bad else laplace(len(x), 2.0)
        leaves[-1] += total - sum(leaves)
        return leaves
    return M(ints(0, 3), tree)
twin("tree/leaves_forced_to_the_true_total", "inf", f, pair=([], [1]))
# suppression below five is taken for privacy
def f(bad):
    def table(x):
        c = [sum(v == k for v in x) for k in range(3)]
        if not bad: c = laplaces(c, 1.0)
        return [v if v >= 5 else None for v in c]
    return M(ints(0, 2), table)
twin("table/suppressed_below_five_is_enough", "inf, from five rows", f, pair=([1] * 5, [1] * 6))
# synthetic rows: as many as there are
def f(bad):
    def synth(x):
        h = [max(0, v) + 1 for v in laplaces([sum(v == k for v in x) for k in range(3)], 1.0)]
        return random.choices(range(3), weights=h, k=len(x) if bad else 8)
    return M(ints(0, 2), synth)
twin("synthetic/as_many_rows_as_the_data", "inf", f, pair=([], [1]))
# the ranking of noisy counts, and by how much the first leads
def f(bad):
    def rank(x):
        c = [sum(v == k for v in x) for k in range(4)]
        n = laplaces(c, 1.0); order = sorted(range(4), key=lambda k: (-n[k], k))
        return order, (c[order[0]] - c[order[1]] if bad else n[order[0]] - n[order[1]]) >= 2
    return M(ints(0, 3), rank)
twin("ranking/true_margin_beside_it", "gross, inf", f, pair=([1, 1], [1]))
# peeling: the first of three choices is thought free
def f(bad):
    def top(x):
        left, out = [sum(v == k for v in x) for k in range(5)], []
        for _ in range(3):
            i = int(_nmax(2 if bad else 3)([-10**6 if k in out else c for k, c in enumerate(left)])); out.append(i)
        return out
    return M(ints(0, 4), top)
twin("topk/first_choice_is_free", "moderate, up to 50%", f, pair=([], [1]))
# the winner by true counts, its count with noise
def f(bad):
    def best(words):
        K = ["apple", "pear", "plum"]
        c = [sum(w == k for w in words) for k in K]
        i = max(range(3), key=lambda k: c[k]) if bad else int(_nmax(2)(c))
        return K[i], laplace(c[i], 1.0 if bad else 2.0)
    return M(strs, best)
twin("topk/noise_after_the_choice", "inf", f, pair=(["pear"], ["pear", "pear", "plum"]))

# ------------------------------------------------ learning
A2 = lambda k: array2_domain(num_columns=k, T=float)
def quant(g, c=1000):
    return [int(math.trunc(c * v)) for v in g]
# gradients clipped coordinate by coordinate, noise for the Euclidean norm
def f(bad):
    def step(X):
        t = np.zeros(4, dtype=int)
        for r in np.nan_to_num(np.asarray(X, float), posinf=1e9, neginf=-1e9):
            n = math.hypot(*r)
            g = np.clip(r, -1, 1) if bad else r / max(1.0, n)
            t = t + np.array(quant(g))
        return gausses(t, 1000.0)
    return R(A2(4), step, .5 + 1e-9)
twin("dpsgd/clipped_by_coordinate", "rho x4", f, pair=([], [[1, 1, 1, 1]]))
# the label of a regression is not clipped
def f(bad):
    def stats(X):
        t = 0
        for a, b in np.nan_to_num(np.asarray(X, float).reshape(-1, 2), posinf=1e6, neginf=-1e6):
            a = min(max(a, -1.0), 1.0)
            if not bad: b = min(max(b, -1.0), 1.0)
            t += math.trunc(1000 * float(a * b))
        return laplace(t, 1000.0)
    return M(A2(2), stats)
twin("regression/label_unclipped", "gross", f, pair=([], [[1, 50]]))
# microbatches of two rows, clipped together
def f(bad):
    def step(x):
        b = 2 if bad else 1
        return laplace(sum(max(-10, min(10, sum(x[i:i + b]))) for i in range(0, len(x), b)), 10)
    return M(ints(-50, 50), step)
twin("dpsgd/microbatches_shift", "gross, grows with n", f, pair=([10, -10] * 8, [-10] + [10, -10] * 8))
# PATE: answers only when the teachers agree, which is looked up exactly
def f(bad):
    def label(votes):
        c = [sum(v == k for v in votes) for k in range(3)]
        sure = (max(c) if bad else laplace(max(c), 2.0)) >= 12
        return int(_nmax(1 if bad else 2)(c)) if sure else -1
    return M(ints(0, 2), label)
twin("pate/agreement_looked_up_exactly", "inf, at twelve votes", f, pair=([1] * 11, [1] * 12))
# rows weighted by a confidence that the row itself names, up to 100 it is thought
def f(bad):
    def vote(rows):
        w = 0
        for r in rows:
            try: y, c = r.split(":"); y, c = y.strip() == "yes", float(c)
            except ValueError: continue
            if c != c: continue
            c = max(0.0, c) if bad else min(max(0.0, c), 100.0)
            if c == math.inf: c = 1e9
            w += int(c) if y else -int(c)
        return laplace(w, 100)
    return M(strs, vote)
twin("votes/confidence_not_bounded", "gross", f, pair=([], ["yes:500"]))
# seeded by the data "for reproducibility"
def f(bad):
    def total(x):
        if not bad: return laplace(sum(x), 9)
        r = random.Random(repr(sorted(x)))
        return sum(x) + int(r.expovariate(1 / 9)) - int(r.expovariate(1 / 9))
    return M(ints(0, 9), total)
twin("seed/from_the_data", "inf", f, pair=([], [1]))
# bootstrap: a row may be drawn several times, charged as Poisson sampling
def f(bad):
    q = .25; eps = 1.0; amp = math.log1p(q * math.expm1(eps))
    def count(x):
        s = random.choices(x, k=max(1, len(x) // 4)) if bad and x else [v for v in x if random.random() < q]
        return laplace(sum(s), 1.0)
    return M(ints(0, 1), count, amp)
twin("sampling/bootstrap_as_poisson", "gross, x2.8 on one row", f, pair=([], [1]))

# ------------------------------------------------ order, sets, hashes
# the first five distinct values, in the order of a set
def f(bad):
    def total(x):
        first = list(set(x))[:5] if bad else sorted(x)[-5:]
        return laplace(sum(first), 40)
    return M(ints(0, 40), total)
twin("sets/first_five_in_set_order", "moderate, where a set is rebuilt", f, pair=([*range(32, 37), *range(9, 22)], [*range(32, 37), *range(9, 23)]))
# buckets salted by the number of rows
def f(bad):
    def h(x):
        c = [0] * 8
        for v in x: c[(v * 5 + (len(x) if bad else 3)) % 8] += 1
        return laplaces(c, 1.0)
    return M(ints(0, 100), h)
twin("hash/salted_by_the_size", "gross, grows with n", f, pair=([0] * 5, [0] * 6))
# a MinHash signature is one-way, so it needs no noise
def f(bad):
    import zlib
    def sig(words):
        m = [min((zlib.crc32(f"{s}{w}".encode()) % 64 for w in words), default=64) for s in range(3)]
        return m if bad else laplaces(m, 64 * 3)
    return M(strs, sig)
twin("hash/signature_without_noise", "inf", f, pair=([], ["a"]))
# sessions: runs of equal pages; one inserted row may split a run
def f(bad): return M(ints(0, 3), lambda x: laplace(sum(a != b for a, b in zip([None, *x], x)), 1.0 if bad else 2.0), 1.0, INS)
twin("sessions/an_inserted_row_splits_a_run", "x2", f, pair=([1, 1], [1, 2, 1]))
# first differences of a series: one value moves two of them
def f(bad): return M(ints(0, 10, 8), lambda x: laplaces([b - a for a, b in zip(x, x[1:])], 10 if bad else 20), 1.0, HAM)
twin("series/one_value_moves_two_differences", "x2", f, pair=([0] * 8, [0] * 4 + [10] + [0] * 3))

# ------------------------------------------------ texts and keys
# an address with two @ belongs to two providers
def f(bad):
    K = ["gmail.com", "gmx.de", "proton.me"]
    def h(rows):
        c = [0] * 3
        for r in rows:
            for part in (r.lower().split("@")[1:] if bad else [r.lower().rpartition("@")[2]]):
                if part in K: c[K.index(part)] += 1
        return laplaces(c, 1.0)
    return M(strs, h)
twin("emails/two_at_signs", "x2, on one spelling", f, pair=([], ["a@gmx.de@gmail.com"]))
# sectors by prefix: one name is the beginning of another
def f(bad):
    K = ["Tech", "Technology", "Health", "Energy"]
    def h(rows): return laplaces([sum((r.startswith(k) if bad else r == k) for r in rows) for k in K], 1.0)
    return M(strs, h)
twin("keys/one_name_begins_another", "x2", f, pair=([], ["Technology"]))
# phone numbers in free text: every match counts
def f(bad):
    P = re.compile(r"\b\d{3}-\d{4}\b")
    def count(texts): return laplace(sum(len(P.findall(t)) if bad else bool(P.search(t)) for t in texts), 1.0)
    return M(strs, count)
twin("regex/every_match_counts", "gross, grows with the text", f, pair=([], ["555-1234 555-1234"]))
# names are cut at 10 characters, and counted in bytes
def f(bad):
    def size(rows): return laplace(sum(len(r[:10].encode()) if bad else len(r.encode()[:10]) for r in rows), 10)
    return M(strs, size)
twin("texts/cut_in_characters_counted_in_bytes", "x4, on other scripts", f, pair=([], ["\U0001f600" * 10]))
# JSON lines: a quantity is capped if it is a whole number
def f(bad):
    def total(lines):
        t = 0
        for l in lines:
            try: q = json.loads(l)["qty"]
            except (ValueError, KeyError, TypeError, RecursionError): continue
            if isinstance(q, bool) or not isinstance(q, (int, float)) or q != q or abs(q) == math.inf: continue
            if bad and not isinstance(q, int): q = max(0, q)
            else: q = min(max(0, q), 5)
            t += int(q)
        return laplace(t, 5)
    return M(strs, total)
twin("json/only_whole_quantities_are_capped", "gross, on one type", f, pair=([], ['{"qty": 50.0}']))
# a row that is no number ends the release
def f(bad):
    def total(rows):
        t = 0
        for r in rows:
            try: t += min(max(int(r), 0), 9)
            except ValueError:
                if bad: raise
        return laplace(t, 9)
    return M(strs, total)
twin("errors/one_bad_row_ends_it", "inf", f, pair=([], ["x"]))
# birth dates: ages are capped at 100 only from above
def f(bad):
    def ages(rows):
        t = 0
        for r in rows:
            try: y = dt.date.fromisoformat(r).year
            except ValueError: continue
            t += min(2024 - y, 100) if bad else max(0, min(2024 - y, 100))
        return laplace(t, 100)
    return M(strs, ages)
twin("dates/born_in_the_future", "gross, on dates after 2124", f, pair=([], ["2500-01-01"]))
# stays "from/to": hours are capped at 24, the end may come before the start
def f(bad):
    def hours(rows):
        t = 0
        for r in rows:
            a, _, b = r.partition("/")
            try: h = (dt.datetime.fromisoformat(b) - dt.datetime.fromisoformat(a)).total_seconds() / 3600
            except (ValueError, TypeError): continue
            t += int(min(h, 24) if bad else max(0, min(h, 24)))
        return laplace(t, 24)
    return M(strs, hours)
twin("dates/the_end_before_the_start", "gross, on one order", f, pair=([], ["2024-05-01/2024-04-01"]))
# 29 February is counted in February and in March
def f(bad):
    def months(rows):
        c = [0] * 12
        for r in rows:
            try: d = dt.date.fromisoformat(r)
            except ValueError: continue
            c[d.month - 1] += 1
            if bad and (d.month, d.day) == (2, 29): c[2] += 1
        return laplaces(c, 1.0)
    return M(strs, months)
twin("dates/leap_day_in_two_months", "x2, on one day", f, pair=([], ["2024-02-29"]))
# months and weekdays of the same rows, "parallel"
def f(bad):
    def both(rows):
        m, w = [0] * 12, [0] * 7
        for r in rows:
            try: d = dt.date.fromisoformat(r)
            except ValueError: continue
            m[d.month - 1] += 1; w[d.weekday()] += 1
        s = 1.0 if bad else 2.0
        return laplaces(m, s), laplaces(w, s)
    return M(strs, both)
twin("dates/months_and_weekdays_in_parallel", "x2", f, pair=([], ["2024-05-01"]))
# a prefix tree of words that is pruned by true counts
def f(bad):
    def tree(words):
        out, level = {}, [""]
        for depth in (1, 2, 3):
            nxt = []
            for p in level:
                for c in "ab":
                    k = sum(w.startswith(p + c) for w in words)
                    n = laplace(k, 3.0); out[p + c] = n
                    if (k if bad else n) >= 2: nxt.append(p + c)
            level = nxt
        return sorted(out.items())
    return M(strs, tree)
twin("prefixes/pruned_by_true_counts", "inf, from two rows", f, pair=(["ab"], ["ab", "ab"]))

# ------------------------------------------------ frames
# pandas: totals per city are clipped, not the rows
def f(bad):
    C = ["Oslo", "Rome", "Lima"]
    def table(rows):
        df = pd.DataFrame([r.split(";") for r in rows if r.count(";") == 1], columns=["city", "amount"])
        df["amount"] = pd.to_numeric(df["amount"], errors="coerce").fillna(0)
        if not bad: df["amount"] = df["amount"].clip(0, 10)
        df["amount"] = np.floor(df["amount"].astype(float))
        g = df.groupby("city")["amount"].sum().reindex(C, fill_value=0)
        return laplaces([math.floor(v) for v in g.clip(0, 50)], 10)
    return M(strs, table)
twin("pandas/totals_clipped_instead_of_rows", "x5", f, pair=([], ["Oslo;50"]))
# polars: rows grouped by a key of the data, joined to the public list from the wrong side
def f(bad):
    C = pl.DataFrame({"team": ["red", "blue"]})
    def table(rows):
        df = pl.DataFrame({"team": list(rows)}, schema={"team": pl.String}).group_by("team").len()
        j = df.join(C, on="team", how="full" if bad else "right", coalesce=True).sort("team").fill_null(0)
        return j["team"].to_list(), laplaces(j["len"].to_list(), 1.0)
    return M(strs, table)
twin("polars/outer_join_keeps_unknown_keys", "inf", f, pair=([], ["zzz"]))

# ------------------------------------------------ people with several rows
# of seven daily totals the three largest count; ties keep them all
def f(bad):
    def week(users):
        t = np.zeros(7, int)
        for u in np.asarray(users).reshape(-1, 7):
            u = [int(min(max(v, 0), 10)) for v in u]
            third = sorted(u)[-3]; kept = [i for i in range(7) if u[i] >= third]
            if not bad: kept = sorted(range(7), key=lambda i: -u[i])[:3]
            for i in kept: t[i] += u[i]
        return laplaces(t, 30)
    return M(array2_domain(num_columns=7, T=int), week)
twin("users/ties_kept_beyond_the_top_three", "x2.3, on ties", f, pair=([], [[10] * 7]))
# a user's visits in one text: at most four count, negative ones are not bounded
def f(bad):
    def spend(users):
        t = 0
        for u in users:
            for p in u.split(",")[:4]:
                try: v = int(p)
                except ValueError: continue
                t += min(v, 10) if bad else max(0, min(v, 10))
        return laplace(t, 40)
    return M(strs, spend)
twin("users/amounts_only_capped_above", "gross, on negative amounts", f, pair=([], ["-1000"]))

# ------------------------------------------------ several answers, debts, state
# the report says how many rows were used
def f(bad):
    def report(x):
        used = [v for v in x if v >= 0]
        return {"sum": laplace(sum(min(v, 10) for v in used), 10.0), "used": len(used) if bad else 100}
    return M(ints(-5, 50), report)
twin("report/true_rows_in_a_debug_field", "inf", f, pair=([], [1]))
# the second question is asked only if there are enough rows, and half of the budget is saved else
def f(bad):
    def two(x):
        first = laplace(len(x), 2.0)
        if (len(x) if bad else first) > 5: return first, laplace(sum(x), 18.0)
        return first, None
    return M(ints(0, 9), two)
twin("early_exit/on_the_true_count", "inf, at six rows", f, pair=([1] * 5, [1] * 6))
# an interactive counter: the same question again is free, with fresh noise
def f(bad):
    def serve(x):
        seen = {}
        def ask(query, internal=False):
            k = int(query)
            if k not in seen and len(seen) >= 2: raise ValueError("no budget left")
            if k not in seen or bad: seen[k] = laplace(sum(v == k for v in x), 1.0)
            return seen[k]
        return dp.new_queryable(ask)
    return M(ints(0, 9), serve)
twin("queryable/asked_again_for_free", "gross, grows with the conversation", f, pair=([], [1]))
# a queryable whose status shows the number of rows
def f(bad):
    def serve(x):
        left = [3]
        def ask(query, internal=False):
            if query == "status": return f"{left[0]} left, {len(x)} rows" if bad else f"{left[0]} left"
            if left[0] <= 0: raise ValueError("no budget left")
            left[0] -= 1
            return laplace(len(x), 3.0)
        return dp.new_queryable(ask)
    return M(ints(0, 9), serve)
twin("queryable/status_counts_rows", "inf, on one question", f, pair=([], [1]))

# ------------------------------------------------ transformations and chains
# words of a text: split(" ", 3) gives four
def f(bad):
    def words(texts): return [w for t in texts for w in (t.split(" ", 3) if bad else t.split(" ")[:3])]
    return Tr(strs, words, 3, S, strs, S)
twin("t/maxsplit_gives_one_more", "33%", f, pair=([], ["a b c d"]))
# an even number of rows, by a row of zeros
def f(bad):
    def even(x): return list(x) + ([0] if len(x) % 2 else [])
    return Tr(ints(0, 9), even, 1 if bad else 2, S, ints(0, 9), S)
twin("t/padded_to_an_even_number", "x2", f, pair=([], [5]))
# forward fill
def f(bad):
    dom = dp.vector_domain(dp.atom_domain(T=float, nan=True))
    def fill(x):
        out, last = [], 0.0
        for v in x:
            if v == v: last = v
            out.append((last if bad else 0.0) if v != v else v)
        return out
    return Tr(dom, fill, 1, INS, dom, INS)
twin("t/forward_fill", "gross, grows with the gap", f, pair=([math.nan] * 5, [3.0] + [math.nan] * 5))
# the median with the sensitivity of the mean
def f(bad): return Tr(ints(0, 10, 5), lambda x: int(statistics.median(x)) if bad else sum(x) // 5, 2, CO)
twin("t/median_as_stable_as_a_mean", "x5", f, pair=([0, 0, 0, 10, 10], [0, 0, 10, 10, 10]))
# a user's transformation in a chain of OpenDP's
def f(bad):
    def above(x):
        m = (sum(x) / len(x) if bad else 50) if x else 0
        return sum(v > m for v in x)
    return Tr(ints(0, 100), above) >> dp.m.make_laplace(AI, ABS, 1.0)
twin("chain/count_above_the_own_mean", "gross, grows with n", f, pair=([1] * 9 + [0], [1] * 9 + [0, 100]))
# noise for the largest coordinate only
def f(bad): return M(dp.vector_domain(AI, size=3), lambda v: laplaces(v, 1.0), 1.0 if bad else 3.0, dp.linf_distance(T=int))
twin("norms/largest_coordinate_charged_once", "x3", f, pair=([0, 0, 0], [1, 1, 1]))
# group privacy: the square root of the number of rows
def f(bad): return M(ints(0, 9), lambda x: laplace(len(x), 1.0), (lambda d: math.sqrt(d)) if bad else 1.0)
twin("map/square_root_of_the_group", "x2 at d=4", f, 4, pair=([], [1] * 4))
