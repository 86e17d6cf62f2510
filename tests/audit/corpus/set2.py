"""The second set: 59 pairs. S: symmetric distance, CO: change-one, HAM: Hamming; geo(x, s): exact integer Laplace noise."""
from __future__ import annotations
import hashlib, math, random, warnings
from collections import Counter
from fractions import Fraction
import numpy as np
import opendp.prelude as dp
warnings.simplefilter("ignore")
dp.enable_features("contrib", "honest-but-curious", "idealized-numerics")
S, CO, HAM, DISC = dp.symmetric_distance(), dp.change_one_distance(), dp.hamming_distance(), dp.discrete_distance()
MD, ZC, AD = dp.max_divergence(), dp.zero_concentrated_divergence(), dp.fixed_smoothed_max_divergence()
AI = dp.atom_domain(T=int)
ABI, ABF = dp.absolute_distance(T=int), dp.absolute_distance(T=float)
_c = {}
def _m(kind, scale):
    if (kind, scale) not in _c:
        _c[kind, scale] = {"geo": lambda: dp.m.make_laplace(AI, ABI, scale), "gau": lambda: dp.m.make_gaussian(AI, ABI, scale),
            "vgeo": lambda: dp.m.make_laplace(dp.vector_domain(AI), dp.l1_distance(T=int), scale),
            "nmax": lambda: dp.m.make_noisy_max(dp.vector_domain(AI), dp.linf_distance(T=int, monotonic=False), MD, scale),
            "nmaxm": lambda: dp.m.make_noisy_max(dp.vector_domain(AI), dp.linf_distance(T=int, monotonic=True), MD, scale)}[kind]()
    return _c[kind, scale]
geo = lambda x, s: _m("geo", s)(int(x))                      # eps = d/s, exact discrete Laplace
gau = lambda x, s: _m("gau", s)(int(x))                      # rho = d^2/(2 s^2), exact discrete Gaussian
vgeo = lambda x, s: _m("vgeo", s)([int(v) for v in x])       # eps = L1/s
nmax = lambda u, s: _m("nmax", s)([int(v) for v in u])       # eps = 2 Linf/s
nmaxm = lambda u, s: _m("nmaxm", s)([int(v) for v in u])     # eps = Linf/s when all scores move the same way
ints = lambda lo, hi, n=None: dp.vector_domain(dp.atom_domain(bounds=(lo, hi)), size=n)
floats = lambda lo, hi: dp.vector_domain(dp.atom_domain(bounds=(lo, hi), nan=False))
nans = dp.vector_domain(dp.atom_domain(T=float, nan=True))
strs = dp.vector_domain(dp.atom_domain(T=str))
lin = lambda k: (lambda d: d * k)
def meas(dom, f, mp=1.0, met=S, mea=MD): return dp.m.make_user_measurement(dom, met, mea, f, lin(mp) if isinstance(mp, float) else mp)
def trans(dom, f, mp, met=S, odom=AI, omet=ABI): return dp.t.make_user_transformation(dom, met, odom, omet, f, lin(mp) if isinstance(mp, int) else mp)
def grp(eps, delta): return lambda d: (eps * d, min(1.0, delta * sum(math.exp(eps * i) for i in range(int(d)))))  # group privacy of (eps, delta)
def hist(x, k): c = [0] * k; [c.__setitem__(v, c[v] + 1) for v in x]; return c
rng = np.random.default_rng()
def icdf_laplace(s):                                          # hand-made inverse-CDF Laplace (used in broken ones only)
    u = random.random() - 0.5
    return -s * math.copysign(1.0, u) * math.log(max(1e-300, 1 - 2 * abs(u)))
T = []
def twin(name, mag, bad, good, d_in=1, **opt): T.append((name, mag, bad, good, d_in, opt))

# ================= measurements =================
# bisection, one noise draw kept for all steps
def bisect_median(reuse):
    def f(x):
        lo, hi, z = 0, 128, geo(0, 1.0)
        while hi - lo > 1:
            mid = (lo + hi) // 2
            s = sum(1 if v < mid else -1 for v in x)
            s = s + z if reuse else geo(s, 7.0)
            lo, hi = (lo, mid) if s > 0 else (mid, hi)
        return lo
    return meas(ints(0, 127), f)
twin("median/bisection_reuses_one_draw", "gross, inf", lambda: bisect_median(True), lambda: bisect_median(False))
# noisy histogram / true n
def shares(true_n):
    def f(x):
        h = vgeo(hist(x, 4), 1.0)
        n = len(x) if true_n else sum(h)
        return [v / max(1, n) for v in h]
    return meas(ints(0, 3), f)
twin("histogram/shares_of_true_total", "gross, inf", lambda: shares(True), lambda: shares(False))
# the noisy total is clipped, not the rows
twin("sum/clipped_after_adding", "gross, x100", lambda: meas(ints(0, 1000), lambda x: max(0, min(1000, geo(sum(x), 10.0)))),
     lambda: meas(ints(0, 1000), lambda x: max(0, min(1000, geo(sum(min(v, 10) for v in x), 10.0)))))
# month buckets closed at both ends: day 30 lands in two
EDGES = [30 * i for i in range(12)] + [365]
def months(closed):
    inb = (lambda a, v, b: a <= v <= b) if closed else (lambda a, v, b: a <= v < b)
    return meas(ints(0, 364), lambda x: vgeo([sum(inb(a, v, b) for v in x) for a, b in zip(EDGES, EDGES[1:])], 1.0))
twin("dates/edge_day_in_two_months", "moderate, x2 on 11 of 365 days", lambda: months(True), lambda: months(False))
# top-1 paid, the runner-up is also returned
def topk(extra):
    def f(x):
        h, left, out = hist(x, 4), [0, 1, 2, 3], []
        for _ in range(1 + extra): out.append(left.pop(nmaxm([h[i] for i in left], 1.0)))
        return out
    return meas(ints(0, 3), f)
twin("topk/also_returns_k_plus_first", "moderate, up to x2", lambda: topk(1), lambda: topk(0))
# noisy mode, ties go to the category seen first in the data
def mode(by_data):
    def f(x):
        h = vgeo(hist(x, 3), 1.0)
        order = list(dict.fromkeys(list(x) + [0, 1, 2])) if by_data else [0, 1, 2]
        return max(order, key=lambda k: h[k])
    return meas(ints(0, 2), f)
twin("mode/ties_by_data_order", "subtle, permutation (and x1.2 at d=1)", lambda: mode(True), lambda: mode(False))
# synthetic rows are drawn from the records of the chosen bin
def synth(leak):
    def f(x):
        w = [max(0, v) for v in vgeo(hist([v // 10 for v in x], 10), 1.0)]
        out = []
        for _ in range(5):
            b = random.choices(range(10), weights=w)[0] if sum(w) else random.randrange(10)
            pool = [v for v in x if v // 10 == b] if leak else []
            out.append(random.choice(pool) if pool else 10 * b + random.randrange(10))
        return out
    return meas(ints(0, 99), f)
twin("synthetic/bin_refilled_from_records", "gross, large probability", lambda: synth(True), lambda: synth(False))
# Bloom filter, bits flipped with 1/4, two hashes, charged for one
def bloom_bits(v): h = hashlib.sha256(str(v).encode()).digest(); return {h[0] % 32, h[1] % 32}
def bloom(eps):
    def f(x):
        on = set().union(*map(bloom_bits, x))
        return [int((i in on) != (random.random() < 0.25)) for i in range(32)]
    return meas(ints(0, 999), f, eps + 1e-9)
twin("bloom/charged_per_filter_not_per_hash", "moderate, x2", lambda: bloom(math.log(3)), lambda: bloom(2 * math.log(3)))
# noisy distinct count, exact number of collisions
def distinct(exact):
    def f(x):
        d = len({hashlib.md5(str(v).encode()).digest()[0] % 64 for v in x})
        return [geo(d, 2.0), len(x) - d if exact else geo(len(x) - d, 2.0)]
    return meas(ints(0, 9999), f)
twin("distinct/exact_collision_counter", "gross, inf", lambda: distinct(True), lambda: distinct(False))
# k-means step, an empty cluster restarts at the farthest record
def kmeans(fallback):
    def f(x):
        out = []
        for c, pts in ((25.0, [v for v in x if v < 50]), (75.0, [v for v in x if v >= 50])):
            n, s = geo(len(pts), 2.0), geo(sum(pts), 200.0)
            if fallback and x and not pts: out.append(float(max(x, key=lambda v: abs(v - c))))
            else: out.append(min(100.0, max(0.0, s / n)) if n >= 1 else c)
        return out
    return meas(ints(0, 100), f)
twin("kmeans/empty_cluster_takes_a_record", "gross, inf when a cluster is empty", lambda: kmeans(True), lambda: kmeans(False))
# eight running totals, noise per total, charged once
def running(each):
    def f(x):
        h = hist(x, 8)
        return vgeo(np.cumsum(h), 1.0) if each else [int(v) for v in np.cumsum(vgeo(h, 1.0))]
    return meas(ints(0, 7), f)
twin("stream/running_totals_charged_once", "gross, x8", lambda: running(True), lambda: running(False))
# windows of 3 slots, charged as disjoint
def windows(s): return meas(ints(0, 7), lambda x: vgeo([sum(t <= v < t + 3 for v in x) for t in range(6)], s))
twin("stream/moving_windows_as_disjoint", "gross, x3", lambda: windows(1.0), lambda: windows(3.0))
# binary tree over 8 leaves has 4 levels, not log2(8) = 3
def tree(s): return meas(ints(0, 7), lambda x: vgeo([sum(v // w == i for v in x) for w in (1, 2, 4, 8) for i in range(8 // w)], s))
twin("tree/root_level_not_charged", "subtle, 33%", lambda: tree(3.0), lambda: tree(4.0))
# sampling rate min(1, 20/n), amplification claimed for 1/4
AMP = math.log(1 + 0.25 * (math.e - 1)) + 1e-12
def sampled(data_rate):
    def f(x):
        q = min(1.0, 20 / max(1, len(x))) if data_rate else 0.25
        return geo(sum(v for v in x if random.random() < q), 1.0)
    return meas(ints(0, 1), f, AMP)
twin("sampling/rate_set_from_the_data_size", "gross, x2.8 below 80 rows", lambda: sampled(True), lambda: sampled(False))
# rows capped at the data's own 75th percentile
def capped(own):
    def f(x):
        p = sorted(x)[int(0.75 * len(x))] if own and x else 75
        return geo(sum(min(v, p) for v in x), 100.0 if own else 75.0)
    return meas(ints(0, 100), f)
twin("sum/capped_at_own_percentile", "gross, grows with n", lambda: capped(True), lambda: capped(False))
# z-scores with the true standard deviation
def zsum(own):
    def f(x):
        sd = (float(np.std(sorted(x))) if x else 1.0) or 1.0
        if not own: sd = 25.0
        return geo(sum(round(64 * max(-3.0, min(3.0, (v - 50) / sd))) for v in x), 192.0) / 64
    return meas(ints(0, 100), f)
twin("standardise/by_true_std", "gross, x9", lambda: zsum(True), lambda: zsum(False))
# row shares of a 4x3 table: noise on the row totals only
def rowshares(wrong):
    def f(x):
        t = hist(x, 12)
        if not wrong: t = vgeo(t, 1.0)
        tot = [sum(t[3 * r:3 * r + 3]) for r in range(4)]
        if wrong: tot = vgeo(tot, 1.0)
        return [t[i] / max(1, tot[i // 3]) for i in range(12)]
    return meas(ints(0, 11), f)
twin("table/noise_on_the_totals_axis", "gross, inf", lambda: rowshares(True), lambda: rowshares(False))
# noise of shape (1,3) broadcast down a 4x3 table
def bcast(one_row):
    def f(x):
        z = np.array(vgeo([0] * (3 if one_row else 12), 1.0)).reshape((1, 3) if one_row else (4, 3))
        return (np.array(hist(x, 12)).reshape(4, 3) + z).tolist()
    return meas(ints(0, 11), f)
twin("table/noise_broadcast_over_rows", "gross, inf", lambda: bcast(True), lambda: bcast(False))
# scale int(5/3) = 1
twin("scale/truncated_to_int", "moderate, 67%", lambda: meas(ints(0, 5), lambda x: geo(sum(x), float(int(5 / 3))), 3.0), lambda: meas(ints(0, 5), lambda x: geo(sum(x), 5 / 3), 3.0))
# mean with scale 100/len(x)
def len_mean(x): n = max(1, len(x)); return sum(x) / n + float(rng.laplace(0, 100 / n))
twin("scale/computed_from_len", "gross, inf in the tail", lambda: meas(ints(0, 100), len_mean), lambda: meas(ints(0, 100, 10), lambda x: geo(sum(x), 100.0) / 10, 1.0, CO))
# budget split in proportion to the groups
def split(by_data):
    def f(x):
        h = hist(x, 2)
        if not by_data: return vgeo(h, 1.0)
        return [c + icdf_laplace(1 / max(0.1, c / max(1, len(x)))) for c in h]
    return meas(ints(0, 1), f)
twin("budget/split_by_group_shares", "gross, inf in the tail", lambda: split(True), lambda: split(False))
# iterations stop on the true error
def descend(early):
    def f(x):
        est, path, n = 0.0, [], len(x)
        for _ in range(5):
            if early and abs(sum(x) / n - est) < 1.0: break
            est += 0.5 * (gau(sum(x), 50.0) / n - est); path.append(est)
        return path
    return meas(ints(0, 10, 10), f, lambda d: 0.1 * d * d, CO, ZC)
twin("training/stops_on_true_loss", "gross, inf", lambda: descend(True), lambda: descend(False))
# empty categories are reported as a plain 0
twin("histogram/empty_cells_stay_zero", "gross, inf", lambda: meas(ints(0, 5), lambda x: [geo(c, 1.0) if c else 0 for c in hist(x, 6)]), lambda: meas(ints(0, 5), lambda x: vgeo(hist(x, 6), 1.0)))
# noise cached under id(x), which the interpreter reuses for later lists
def idcache(on):
    kept = {}
    def f(x): return sum(x) + (kept.setdefault(id(x), geo(0, 9.0)) if on else geo(0, 9.0))
    return meas(ints(0, 9), f)
twin("cache/noise_keyed_by_id", "gross over calls, nothing in one call", lambda: idcache(True), lambda: idcache(False))
# an accumulator survives between calls
def accum(keep):
    acc = {"t": 0}
    def f(x):
        acc["t"] = sum(x) + (acc["t"] if keep else 0)
        return geo(acc["t"], 9.0)
    return meas(ints(0, 9), f)
twin("state/total_kept_between_calls", "gross over calls, nothing in the first call", lambda: accum(True), lambda: accum(False))
# clamp to (0, inf), sensitivity "1 when the bound is not finite"
def infclamp(upper):
    sens = upper if math.isfinite(upper) else 1.0
    return meas(floats(0.0, 1e4), lambda x: geo(sum(int(16 * min(max(v, 0.0), upper)) for v in x), 16.0 * sens) / 16)
twin("clamp/upper_is_infinite", "gross, x1e4", lambda: infclamp(float("inf")), lambda: infclamp(1.0))
# sign of the exponent: rho = d^-2 / 8
twin("map/exponent_has_the_wrong_sign", "gross, x16 at d=2, right at d=1", lambda: meas(ints(0, 1), lambda x: gau(sum(x), 2.0), lambda d: d ** -2 / 8 if d else 0.0, S, ZC),
     lambda: meas(ints(0, 1), lambda x: gau(sum(x), 2.0), lambda d: d * d / 8, S, ZC), 2)
# add-remove sensitivity used under change-one
twin("histogram/change_one_charged_as_add_remove", "moderate, x2", lambda: meas(ints(0, 3, 10), lambda x: vgeo(hist(x, 4), 1.0), 1.0, CO), lambda: meas(ints(0, 3, 10), lambda x: vgeo(hist(x, 4), 2.0), 1.0, CO))
# Gaussian calibration; k/1024 grid = post-processing of x + N(0, s^2), as 1024 x is an integer
Phi = lambda t: 0.5 * math.erfc(-t / math.sqrt(2))
def gdelta(eps, s): return Phi(0.5 / s - eps * s) - math.exp(eps) * Phi(-0.5 / s - eps * s)
def analytic(eps, delta):
    lo, hi = 1e-3, 1e4
    for _ in range(200):
        mid = math.sqrt(lo * hi)
        lo, hi = (lo, mid) if gdelta(eps, mid) <= delta else (mid, hi)
    return hi
def gcount(eps, delta, s): return meas(ints(0, 1), lambda x: (1024 * sum(x) + round(float(rng.normal(0, s)) * 1024)) / 1024, grp(eps, delta + 1e-9), S, AD)
# classical sqrt(2 ln(1.25/delta))/eps at eps = 10: sigma 0.311, true delta 0.0406 against 0.01
twin("gaussian/classical_formula_at_eps_10", "moderate, delta x4", lambda: gcount(10.0, 0.01, math.sqrt(2 * math.log(125)) / 10), lambda: gcount(10.0, 0.01, 1.001 * analytic(10.0, 0.01)))
# analytic(delta, eps): sigma 0.74 where 3.15 is due
twin("gaussian/analytic_arguments_swapped", "gross, sigma / 4", lambda: gcount(0.5, 0.01, analytic(0.01, 0.5)), lambda: gcount(0.5, 0.01, 1.001 * analytic(0.5, 0.01)))
# 2 of 8 rows without replacement, charged by the Poisson add-remove formula with eps 1
def wor(base): return meas(ints(0, 2, 8), lambda x: vgeo(hist(random.sample(list(x), 2), 3), 1.0), math.log(1 + 0.25 * (math.exp(base) - 1)) + 1e-12, CO)
twin("sampling/without_replacement_as_poisson", "gross, x2.7", lambda: wor(1.0), lambda: wor(2.0))
# local reports (keep 3/4) with the shuffled (0.7, delta) claimed but sent in row order
def _binom(n, p): return np.array([math.comb(n, k) * p ** k * (1 - p) ** (n - k) for k in range(n + 1)])
def _shuffled_delta(n, eps):
    worst = 0.0
    for k in range(n):
        rest = np.convolve(_binom(k, 0.75), _binom(n - 1 - k, 0.25))
        a, b = np.convolve(rest, [0.75, 0.25]), np.convolve(rest, [0.25, 0.75])
        worst = max(worst, np.maximum(a - math.exp(eps) * b, 0).sum(), np.maximum(b - math.exp(eps) * a, 0).sum())
    return worst
DSH = float(_shuffled_delta(20, 0.7)) + 1e-9
def shuffled(really):
    def f(x):
        r = [int(v != (random.random() < 0.25)) for v in x]
        return sorted(r) if really else r
    return meas(ints(0, 1, 20), f, grp(0.7, DSH), CO, AD)
twin("shuffle/reports_keep_their_order", "gross, delta x100", lambda: shuffled(False), lambda: shuffled(True))
# rho read off the Renyi curve of geo(1) at order 2 only (0.368), the KL end needs 0.462
_a = math.exp(-1); RHO2 = math.log((_a * _a + 1 / _a) / (1 + _a)) / 2
twin("renyi/rho_from_order_2_only", "subtle, 26%", lambda: meas(ints(0, 1), lambda x: geo(sum(x), 1.0), lambda d: RHO2 * d * d, S, ZC), lambda: meas(ints(0, 1), lambda x: geo(sum(x), 1.0), lambda d: 0.5 * d * d, S, ZC))
# two releases of the same rows, max instead of sum
def both(eps): return meas(ints(0, 1), lambda x: [geo(len(x), 1.0), geo(sum(x), 1.0)], eps)
twin("composition/max_instead_of_sum", "moderate, x2", lambda: both(1.0), lambda: both(2.0))
# six queries at 1/2 each from a budget of 1; a query that comes back empty is refunded
def odo(refund):
    def f(x):
        spent, out = 0.0, []
        for t in range(6):
            if spent + 0.5 > 1.0: out.append(None); continue
            a = geo(sum(v >= t for v in x), 2.0); spent += 0.5; out.append(a)
            if refund and a < 1: spent -= 0.5
        return out
    return meas(ints(0, 9), f)
twin("odometer/empty_answers_refunded", "gross, up to x3", lambda: odo(True), lambda: odo(False))
# randomised response, the random answer follows (.7,.1,.1,.1) and is charged as uniform
def rrprior(eps): return meas(dp.atom_domain(bounds=(0, 3)), lambda v: v if random.random() < 0.5 else random.choices(range(4), weights=(7, 1, 1, 1))[0], eps + 1e-9, DISC)
twin("rr/random_answer_is_not_uniform", "moderate, 49%", lambda: rrprior(math.log(5)), lambda: rrprior(math.log(11)))
# optimised unary encoding needs p = 1/2; p raised to 0.65
def oue(p): return meas(dp.atom_domain(bounds=(0, 7)), lambda v: [int(random.random() < (p if i == v else 1 / (math.e + 1))) for i in range(8)], 1.0 + 1e-9, DISC)
twin("oue/p_raised_for_utility", "moderate, 62%", lambda: oue(0.65), lambda: oue(0.5))
# exponential mechanism on revenue = price * buyers taken as sensitivity 1
def revenue(x): return [p * sum(v >= p for v in x) for p in range(1, 11)]
def emcdf(u, c):                                              # inverse-CDF exponential mechanism
    w = [math.exp((v - max(u)) * c) for v in u]; r, i = random.random() * sum(w), 0
    while i < len(w) - 1 and r >= w[i]: r -= w[i]; i += 1
    return i
twin("exponential/revenue_as_sensitivity_1", "gross, x5 or more", lambda: meas(ints(0, 10), lambda x: emcdf(revenue(x), 0.5)), lambda: meas(ints(0, 10), lambda x: nmaxm(revenue(x), 10.0)))
# permute-and-flip for the median, flip exp(u-max) instead of exp((u-max)/2)
def bern_exp(g):                                              # exact Bernoulli(exp(-g)), g a Fraction (Canonne-Kamath-Steinke)
    while g > 1:
        if not bern_exp(Fraction(1)): return False
        g -= 1
    k = 1
    while random.randrange(g.denominator * k) < g.numerator: k += 1
    return k % 2 == 1
def paf(half):
    def f(x):
        u = [-abs(sum(v < c for v in x) - sum(v > c for v in x)) for c in range(5)]
        order = random.sample(range(5), 5)
        return next(c for c in order if bern_exp(Fraction(max(u) - u[c], half)))
    return meas(ints(0, 4), f)
twin("permute_and_flip/flip_without_half", "moderate, up to x2", lambda: paf(1), lambda: paf(2))
# key threshold 5% of the rows, delta claimed for 9
D9 = math.exp(-8) / (1 + math.exp(-1)) * (1 + 1e-9)
def sparse(relative):
    def f(x):
        t = max(1, 0.05 * len(x)) if relative else 9
        noisy = {k: geo(c, 1.0) for k, c in sorted(Counter(x).items())}
        return {k: c for k, c in noisy.items() if c >= t}
    return meas(dp.vector_domain(AI), f, grp(1.0, D9), S, AD)
twin("threshold/relative_to_data_size", "gross, delta x3000 on few rows", lambda: sparse(True), lambda: sparse(False))
# median chosen among the data's own values
def med(own):
    def f(x):
        cand = sorted(set(x)) if own and x else list(range(0, 101, 10))
        return cand[nmax([-abs(sum(v < c for v in x) - sum(v > c for v in x)) for c in cand], 2.0)]
    return meas(ints(0, 100), f)
twin("quantile/candidates_from_the_data", "gross, inf", lambda: med(True), lambda: med(False))
# |noise| keeps a count non-negative
twin("noise/absolute_value_for_counts", "gross, inf", lambda: meas(ints(0, 1), lambda x: len(x) + abs(geo(0, 1.0))), lambda: meas(ints(0, 1), lambda x: max(0, geo(len(x), 1.0))))
# mean of 5 draws, charged once
twin("noise/averaged_over_5_draws", "gross, up to x5", lambda: meas(ints(0, 1), lambda x: sum(geo(len(x), 1.0) for _ in range(5)) / 5), lambda: meas(ints(0, 1), lambda x: float(geo(len(x), 1.0))))
# counts of 10 or more are "safe" without noise
twin("noise/skipped_for_large_counts", "gross, inf from 10 rows", lambda: meas(ints(0, 1), lambda x: len(x) if len(x) >= 10 else geo(len(x), 1.0)), lambda: meas(ints(0, 1), lambda x: geo(len(x), 1.0)))
# two-sided geometric with p = eps instead of 1 - e^-eps
twin("geometric/p_is_eps", "moderate, 39%", lambda: meas(ints(0, 1), lambda x: sum(x) + int(rng.geometric(0.5)) - int(rng.geometric(0.5)), 0.5), lambda: meas(ints(0, 1), lambda x: geo(sum(x), 2.0), 0.5))

# ================= transformations =================
vI = dp.vector_domain(AI)
# sized dot product with (3,-5,2,1): max(w), not max|w|
W = (3, -5, 2, 1)
def dot(k): return trans(ints(0, 10, 4), lambda x: sum(a * b for a, b in zip(W, x)), k, HAM)
twin("weights/negative_weight_ignored", "moderate, 67%", lambda: dot(10 * max(W)), lambda: dot(10 * max(map(abs, W))))
# round half to even stretches 1 to 2
A100 = dp.atom_domain(bounds=(0.0, 100.0), nan=False)
twin("rounding/half_to_even", "subtle, x2 on exact halves", lambda: trans(A100, lambda v: round(v), lambda d: math.ceil(d), ABF),
     lambda: trans(A100, lambda v: round(v), lambda d: math.floor(d) + 1, ABF), 1.0)
# sum of logs floored at 1e-6, bounded by log(1000)
def logs(k): return trans(floats(0.0, 1000.0), lambda x: sum(round(64 * math.log(max(v, 1e-6))) for v in x), k)
twin("log/zero_floor_not_in_the_bound", "moderate, x2, on values below 0.001", lambda: logs(math.ceil(64 * math.log(1000))), lambda: logs(885))
# lookup join, key 17 is twice in the table
LOOK = [(k, 100 + k) for k in range(40)]
def join(table): return trans(ints(0, 39), lambda x: [b for v in x for a, b in table if a == v], 1, S, vI, S)
twin("join/one_duplicate_key", "subtle, x2, on one key of 40", lambda: join(LOOK + [(17, 999)]), lambda: join(LOOK))
# rows are user*10 + amount; the first 2 rows of each user in input order
def first_k(order):
    def f(x):
        seen, t = Counter(), 0
        for v in (x if order else sorted(x)):
            seen[v // 10] += 1
            t += v % 10 if seen[v // 10] <= 2 else 0
        return t
    return trans(ints(0, 99), f, 9)
twin("contribution/first_k_in_input_order", "gross, permutation", lambda: first_k(True), lambda: first_k(False))
# rows more than 20 from the median are dropped
def outl(own):
    def f(x):
        m = sorted(x)[len(x) // 2] if own and x else 50
        return sum(v for v in x if abs(v - m) <= 20)
    return trans(ints(0, 100), f, 100)
twin("outliers/dropped_around_the_true_median", "gross, grows with n", lambda: outl(True), lambda: outl(False))
# NaN falls in the overflow bin and in the missing bin
def nanbins(both_):
    def f(x):
        h = [0] * 6
        for v in x:
            if v != v:
                h[5] += 1
                if not both_: continue
            h[int(np.searchsorted([0.0, 1.0, 2.0, 3.0], v))] += 1
        return h
    return trans(nans, f, 1, S, vI, dp.l1_distance(T=int))
twin("nan/overflow_bin_and_missing_bin", "moderate, x2, on NaN rows", lambda: nanbins(True), lambda: nanbins(False))
# cleaning splits "a,b" into two rows
def clean(cut): return trans(strs, lambda x: [k for v in x for k in (v.strip().lower().split(",") if cut else [v.strip().lower()])], 1, S, strs, S)
twin("strings/cleaning_splits_on_commas", "subtle, on strings with a comma", lambda: clean(True), lambda: clean(False))
# NaN imputed by the mean of the others
def imput(own):
    def f(x):
        k = [min(1.0, max(0.0, v)) for v in x if v == v]
        fill = math.fsum(k) / len(k) if own and k else 0.5
        return sum(round(64 * (min(1.0, max(0.0, v)) if v == v else fill)) for v in x)
    return trans(nans, f, 64)
twin("nan/imputed_by_the_true_mean", "gross, grows with the NaN rows", lambda: imput(True), lambda: imput(False))
# every third row by position
twin("sampling/every_third_position", "gross, shift and permutation", lambda: trans(ints(0, 99), lambda x: x[::3], 1, S, vI, S), lambda: trans(ints(0, 99), lambda x: [v for v in x if v % 3 == 0], 1, S, vI, S))
# v // 3 with map d // 3
twin("map/floor_division", "subtle, 33% at d=10", lambda: trans(AI, lambda v: v // 3, lambda d: d // 3, ABI), lambda: trans(AI, lambda v: v // 3, lambda d: -(-d // 3), ABI), 10)
# identity from L2 to L1 on 16 numbers, d -> d
v16 = dp.vector_domain(AI, size=16)
def norms(k): return trans(v16, lambda x: list(x), lambda d: math.ceil(k * d), dp.l2_distance(T=float), v16, dp.l1_distance(T=int))
twin("norms/l2_passed_on_as_l1", "gross, x4", lambda: norms(1), lambda: norms(4), 2.0)
# n * squared deviations of 10 rows in 0..10, bounded by n * R^2/4 * ... = 250
def ssd(k): return trans(ints(0, 10, 10), lambda x: 10 * sum(v * v for v in x) - sum(x) ** 2, k, CO)
twin("variance/popoviciu_as_sensitivity", "gross, x3.6", lambda: ssd(250), lambda: ssd(900))
# rows replaced by their decile within the data
def ranks(own): return trans(ints(0, 99), lambda x: [10 * sum(w < v for w in x) // len(x) for v in x] if own else [v // 10 for v in x], 1, S, vI, S)
twin("ranks/deciles_of_the_data", "gross, grows with n", lambda: ranks(True), lambda: ranks(False))
