"""The fourth set: 12 pairs written blind before the auditor was cut; ``make(True)`` is the broken one."""
from __future__ import annotations
import functools, math, random, warnings
import numpy as np
import opendp.prelude as dp
warnings.simplefilter("ignore")
dp.enable_features("contrib", "honest-but-curious", "idealized-numerics")
S = dp.symmetric_distance()
MD, ZC, AD = dp.max_divergence(), dp.zero_concentrated_divergence(), dp.fixed_smoothed_max_divergence()
AI = dp.atom_domain(T=int); ABS = dp.absolute_distance(T=int)
@functools.cache
def _lap(s): return dp.m.make_laplace(AI, ABS, float(s))
@functools.cache
def _gau(s): return dp.m.make_gaussian(AI, ABS, float(s))
@functools.cache
def _vlap(s): return dp.m.make_laplace(dp.vector_domain(AI), dp.l1_distance(T=int), float(s))
def laplace(v, s): return _lap(s)(int(v))
def gauss(v, s): return _gau(s)(int(v))
def laplaces(v, s): return _vlap(s)([int(i) for i in v])
ints = lambda lo, hi, n=None: dp.vector_domain(dp.atom_domain(bounds=(lo, hi)), size=n)
strs = dp.vector_domain(dp.atom_domain(T=str))
nans = dp.vector_domain(dp.atom_domain(T=float, nan=True))
def M(dom, f, k=1.0, met=S, mea=MD): return dp.m.make_user_measurement(dom, met, mea, f, k if callable(k) else (lambda d: d * k))
T, PAIRS = [], {}
def twin(name, mag, make, d_in=1, pair=None, **opt):
    T.append((name, mag, lambda: make(True), lambda: make(False), d_in, opt)); PAIRS[name] = pair

# weights "80 kg" or "180 lb": the cap is applied before pounds become kilograms, by the wrong factor
def f(bad):
    def total(rows):
        t = 0
        for r in rows:
            n, _, unit = r.partition(" ")
            try: v = float(n)
            except ValueError: continue
            if v != v: continue
            if bad:
                v = min(max(v, 0), 200)
                t += int(v * 2.2 if unit == "lb" else v)
            else: t += int(min(max(v * 0.4536 if unit == "lb" else v, 0), 200))
        return laplace(t, 200)
    return M(strs, total)
twin("units/pounds_times_instead_of_by", "x2.2, on one unit", f, pair=([], ["200 lb"]))
# missing values become the code -999 after the clamp
def f(bad):
    def total(x):
        v = np.clip(np.asarray(x, float), 0, 10)
        v = np.nan_to_num(v, nan=-999.0 if bad else 0.0)
        return laplace(int(np.floor(v).sum()), 10)
    return M(nans, total)
twin("nan/coded_after_the_clamp", "x100, on NaN", f, pair=([], [math.nan]))
# one draw of numpy's generator beside the count and beside the total
def f(bad):
    def both(x):
        if not bad: return laplaces([len(x), sum(x)], 2.0)
        z = round(np.random.default_rng().laplace(0, 2.0))
        return [len(x) + z, sum(x) + z]
    return M(ints(0, 1), both)
twin("numpy/one_draw_for_two_releases", "inf", f, pair=([], [0]))
# cells and costs: asking the same cell again costs nothing, answers are fresh
def f(bad):
    def serve(x):
        left, seen = [1.0], set()
        def ask(query, internal=False):
            cell, eps = query
            if not 0 < eps <= 1 or not 0 <= int(cell) <= 9: raise ValueError("a cell and what it may cost")
            if not (bad and int(cell) in seen):
                if eps > left[0]: raise ValueError("spent")
                left[0] -= eps
            seen.add(int(cell))
            return laplace(sum(v == int(cell) for v in x), 1 / eps)
        return dp.new_queryable(ask)
    return M(ints(0, 9), serve, 1 + 1e-9)
twin("queryable/a_cell_is_paid_once", "gross, grows with the conversation", f, pair=([], [1]))
# noise beyond three scales is drawn again "for utility"
def f(bad):
    def count(x):
        z = laplace(0, 2.0)
        while bad and abs(z) > 6: z = laplace(0, 2.0)
        return len(x) + z
    return M(ints(0, 9), count, .5)
twin("noise/cut_at_three_scales", "inf, with 1 %", f, pair=([], [1]))
# customers "c:3" and orders "o:3:20" in one table; a customer's row joins all its orders
def f(bad):
    def joined(rows):
        cust, t = set(), {}
        for r in rows:
            p = r.split(":")
            if p[0] == "c" and len(p) == 2: cust.add(p[1])
            elif p[0] == "o" and len(p) == 3: t[p[1]] = t.get(p[1], 0) + 1
        return laplace(sum(n if bad else min(n, 3) for k, n in t.items() if k in cust), 1 if bad else 3)
    return M(strs, joined)
twin("join/orders_of_one_customer", "gross, grows with the orders", f, pair=(["o:1:5"] * 5, ["o:1:5"] * 5 + ["c:1"]))
# the classical Gaussian scale beyond epsilon 1
def f(bad):
    eps, delta = 16.0, 1e-5
    s = math.sqrt(2 * math.log(1.25 / delta)) / eps
    # sound: zCDP of scale 1.2 gives rho = 0.3472, epsilon = rho + 2 sqrt(rho ln(1 / delta)) = 4.35
    return M(ints(0, 9), lambda x: gauss(len(x), (s if bad else 1.2)), lambda d: (eps * d, min(1.0, delta * d * math.exp(min(eps * (d - 1), 99)))), S, AD)
twin("gaussian/classical_at_a_large_epsilon", "x100 of delta", f, pair=([], [1]))
# tags in a text: each tag is counted once a text, but "#a" and "#A" are two
def f(bad):
    K = ["#sun", "#sea"]
    def tags(rows):
        c = [0, 0]
        for r in rows:
            words = set(r.split())
            found = [w.lower() for w in words] if bad else {w.lower() for w in words}
            for w in found:
                if w in K: c[K.index(w)] += 1
        return laplaces(c, 2.0)
    return M(strs, tags)
twin("texts/once_a_spelling", "x4, on one text", f, pair=([], ["#sun #SUN #Sun #sUn"]))
# from zCDP to epsilon and delta: one root instead of two
def f(bad):
    rho, delta = .5, 1e-6
    root = math.sqrt(rho * math.log(1 / delta))
    return M(ints(0, 9), lambda x: gauss(3 * len(x), 3.0), lambda d: (d * d * rho + (1 if bad else 2) * d * root, delta), S, AD)
twin("zcdp/one_root_instead_of_two", "x1.7 of epsilon", f, pair=([], [1]))
# the largest of four noisy counts, and its noisy count; a row is in all four
def f(bad):
    def best(x):
        c = [sum((v >> k) & 1 for v in x) for k in range(4)]
        n = laplaces(c, 1.0 if bad else 4.0)
        i = max(range(4), key=lambda k: n[k])
        return i, n[i]
    return M(ints(0, 15), best)
twin("noisy_max/returns_its_value", "up to x4, in the tail", f, pair=([], [15]))
# four keys a row, released beyond a threshold made for one key
def f(bad):
    delta = 1e-2
    def keys(rows):
        c = {}
        for r in rows:
            for k in dict.fromkeys(r.split(",")[:4]): c[k] = c.get(k, 0) + 1
        top = 1 + 4 * math.log((1 if bad else 4) / delta)
        found = {k: laplace(n, 4.0) for k, n in c.items()}
        return sorted((k, n) for k, n in found.items() if n > math.ceil(top))
    return M(strs, keys, lambda d: (1.0 * d, min(1.0, delta * d * math.exp(d - 1))), S, AD)
twin("threshold/one_delta_for_four_keys", "x1.5 of delta", f, pair=([], ["a,b,c,d"]))
# weighted reservoir: the chance of a row to be taken depends on the other rows, charged as Poisson
def f(bad):
    q = .2; amp = math.log1p(q * math.expm1(1.0))
    def total(x):
        if bad:
            k = min(len(x), 2)
            some = random.sample(list(x), k)
        else: some = [v for v in x if random.random() < q]
        return laplace(sum(some), 1.0)
    return M(ints(0, 1), total, amp + 1e-9)
twin("sampling/two_rows_as_a_fifth", "x3, on few rows", f, pair=([], [1]))
