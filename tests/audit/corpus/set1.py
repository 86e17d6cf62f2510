"""The first set: 53 pairs of programs, broken and sound, by somebody who had not seen the auditor."""
from __future__ import annotations

import bisect, math, random, warnings
from collections import Counter
from fractions import Fraction
import numpy as np
import opendp.prelude as dp
from opendp.extras.numpy import array2_domain
warnings.simplefilter("ignore")
dp.enable_features("contrib", "honest-but-curious", "idealized-numerics")
S, CO = dp.symmetric_distance(), dp.change_one_distance()
MD, ZC, AD = dp.max_divergence(), dp.zero_concentrated_divergence(), dp.fixed_smoothed_max_divergence()
AF = dp.atom_domain(T=float, nan=False); AI = dp.atom_domain(T=int)
_c = {}
def _m(kind, scale):
    if (kind, scale) not in _c:
        _c[kind, scale] = {"lap": lambda: dp.m.make_laplace(AF, dp.absolute_distance(T=float), scale),
          "geo": lambda: dp.m.make_laplace(AI, dp.absolute_distance(T=int), scale),
          "gau": lambda: dp.m.make_gaussian(AI, dp.absolute_distance(T=int), scale),
          "vgeo": lambda: dp.m.make_laplace(dp.vector_domain(AI), dp.l1_distance(T=int), scale),
          "vgau": lambda: dp.m.make_gaussian(dp.vector_domain(AI), dp.l2_distance(T=float), scale)}[kind]()
    return _c[kind, scale]
lap = lambda x, s: _m("lap", s)(float(x))
geo = lambda x, s: _m("geo", s)(int(x))
gau = lambda x, s: _m("gau", s)(int(x))
vgeo = lambda x, s: _m("vgeo", s)([int(v) for v in x])
vgau = lambda x, s: _m("vgau", s)([int(v) for v in x])
ints = lambda lo, hi, n=None: dp.vector_domain(dp.atom_domain(bounds=(lo, hi)), size=n)
anyints = dp.vector_domain(AI)
def meas(dom, met, mea, f, mp): return dp.m.make_user_measurement(dom, met, mea, f, mp)
def trans(dom, met, odom, omet, f, mp): return dp.t.make_user_transformation(dom, met, odom, omet, f, mp)
lin = lambda k: (lambda d: d * k)
def grp(delta, d): return min(1.0, delta * sum(math.exp(i) for i in range(int(d))))
T = []   # (name, magnitude, bad, good, d_in, options)
def twin(name, mag, bad, good, d_in=1, **opt): T.append((name, mag, bad, good, d_in, opt))

# 1 float attack: inverse-CDF Laplace from a 32-bit uniform, added to a float value
def naive32(x, s):
    u = (random.getrandbits(32) + 0.5) / 2**32 - 0.5
    return x - s * math.copysign(1, u) * math.log(1 - 2 * abs(u))
A01 = dp.atom_domain(bounds=(0.0, 100.0), nan=False)
def scalar(f): return meas(A01, dp.absolute_distance(T=float), MD, f, lin(1.0))
twin("laplace/uniform32_inverse_cdf", "inf, subtle support", lambda: scalar(lambda x: naive32(x, 1.0)), lambda: scalar(lambda x: lap(x, 1.0)))
# 2 float32 noise on a float64 count
def f32count(f): return meas(ints(0, 9), S, MD, f, lin(1.0))
rng = np.random.default_rng()
twin("laplace/float32_noise_on_sum", "inf, subtle support",
     lambda: meas(dp.vector_domain(dp.atom_domain(bounds=(0.0, 1.0), nan=False)), S, MD,
                  lambda x: float(math.fsum(x)) + float(np.float32(rng.laplace(0, 1))), lin(1.0)),
     lambda: meas(dp.vector_domain(dp.atom_domain(bounds=(0.0, 1.0), nan=False)), S, MD,
                  lambda x: geo(sum(int(v * 64) for v in x), 64.0) / 64, lin(1.0)))
# 3 NaN passes Python's min/max clamp
Fn = dp.vector_domain(dp.atom_domain(T=float, nan=True))
def clampnan(x): return sum(int(16 * max(0.0, min(1.0, v))) if v == v else None for v in x)
def nan_bad(x):
    t = 0.0
    for v in x: t += min(max(v, 0.0), 1.0)
    return lap(t, 1.0) if t == t else float("nan")
def nan_good(x): return geo(sum(int(16 * min(max(v, 0.0), 1.0)) for v in x if v == v), 16.0) / 16
twin("sum/nan_survives_clamp", "inf, on NaN rows", lambda: meas(Fn, S, MD, nan_bad, lin(1.0)), lambda: meas(Fn, S, MD, nan_good, lin(1.0)))
# 4/5 contribution bound off by one (20%, 5%): users are lists of values
users = dp.user_domain("list of users' rows", lambda x: isinstance(x, list))
def gen_users(hi=40):
    return lambda r: [[1] * int(r.integers(0, hi)) for _ in range(int(r.integers(0, 6)))]
def contrib(keep, k): return meas(users, S, MD, lambda x: geo(sum(sum(min(1, max(0, v)) for v in u[:keep]) for u in x), float(k)), lin(1.0))
twin("contributions/off_by_one_of_5", "20%", lambda: contrib(6, 5), lambda: contrib(5, 5), generator=gen_users())
twin("contributions/off_by_one_of_20", "5%", lambda: contrib(21, 20), lambda: contrib(20, 20), generator=gen_users(60))
# user-level claim, event-level clipping (per-row clip only)
twin("user_level/rows_clipped_not_users", "gross", lambda: contrib(10**6, 1), lambda: contrib(1, 1), generator=gen_users())
# per-partition claimed parallel though a user is in many partitions
def parts(cap):
    def f(x):
        c = [0] * 6
        for u in x:
            for p in sorted({v % 6 for v in u})[:cap]: c[p] += 1
        return vgeo(c, 1.0)
    return meas(users, S, MD, f, lin(1.0))
gen_parts = lambda r: [[int(v) for v in r.integers(0, 6, size=int(r.integers(0, 9)))] for _ in range(int(r.integers(0, 6)))]
twin("partitions/parallel_but_overlapping", "6x", lambda: parts(6), lambda: parts(1), generator=gen_parts)
# SVT family of Lyu et al. 2017, 8 integer queries of sensitivity 1
Q = dp.vector_domain(AI, size=8); LI = dp.linf_distance(T=int)
def svt(c, s_thr, s_q, f_out=None, unlimited=False):
    def f(q):
        t = geo(0, s_thr) if s_thr else 0
        out, n = [], 0
        for v in q:
            z = geo(v, s_q) if s_q else v
            if z >= t:
                out.append(1 if f_out is None else f_out(z)); n += 1
                if n >= c and not unlimited: break
            else: out.append(0)
        return out + [0] * (8 - len(out))
    return meas(Q, LI, MD, f, lin(1.0))
svt_ok = lambda: svt(1, 2.0, 4.0)
twin("svt/no_query_noise", "inf", lambda: svt(1, 2.0, None), svt_ok)
twin("svt/unlimited_positives", "gross", lambda: svt(1, 2.0, 4.0, unlimited=True), svt_ok)
twin("svt/no_factor_c (c=3)", "x2", lambda: svt(3, 2.0, 4.0), lambda: svt(3, 2.0, 12.0))
twin("svt/returns_the_noisy_value", "inf-ish", lambda: svt(1, 2.0, 4.0, f_out=lambda z: z), svt_ok)
twin("svt/query_noise_2c_is_c", "<=1.5x", lambda: svt(1, 2.0, 2.0), svt_ok)
# noisy max returning its value
def nmax(value):
    def f(q):
        z = vgeo(q, 2.0); i = max(range(len(z)), key=lambda j: (z[j], -j))
        return [i, z[i]] if value else [i]
    return meas(dp.vector_domain(AI, size=6), LI, MD, f, lin(1.0))
twin("noisy_max/returns_value", "moderate", lambda: nmax(True), lambda: nmax(False))
# exponential mechanism without the factor 2
def expo(div):
    def f(q):
        m = max(q); w = [math.exp(max((v - m) / div, -700)) for v in q]
        return random.choices(range(len(q)), w)[0]
    return meas(dp.vector_domain(AI, size=5), LI, MD, f, lin(1.0))
twin("exponential/no_factor_2", "up to 2x", lambda: expo(1.0), lambda: expo(2.0))
# truncated geometric by redraw, and clamp
def trunc(redraw):
    def f(x):
        c = min(10, sum(x))
        while True:
            y = geo(c, 1.0)
            if not redraw: return max(0, min(10, y))
            if 0 <= y <= 10: return y
    return meas(ints(0, 1), S, MD, f, lin(1.0))
twin("geometric/truncated_by_redrawing", "21%", lambda: trunc(True), lambda: trunc(False))
# amplification by subsampling a deterministic prefix
eps0 = math.log(1 + 2 * (math.e - 1))
def sub(kind):
    def f(x):
        y = [v for v in x if random.random() < 0.5] if kind == "poisson" else x[: (len(x) + 1) // 2]
        return geo(sum(y), 1 / eps0)
    return meas(ints(0, 1), S, MD, f, lin(1.0))
twin("amplification/prefix_not_poisson", "49% or more", lambda: sub("prefix"), lambda: sub("poisson"))
# quantile score sensitivity .5 for every alpha
def quant(sens, alpha=0.9):
    cand = list(range(0, 21, 2))
    def f(x):
        s = [-abs((1 - alpha) * sum(v < c for v in x) - alpha * sum(v > c for v in x)) for c in cand]
        m = max(s); return cand[random.choices(range(len(cand)), [math.exp((v - m) / (2 * sens)) for v in s])[0]]
    return meas(ints(0, 20), S, MD, f, lin(1.0))
twin("quantile/sensitivity_half_at_0.9", "up to 1.8x", lambda: quant(0.5), lambda: quant(0.9))
# mean by true n
twin("mean/divides_by_true_n", "gross", lambda: meas(ints(0, 10), S, MD, lambda x: geo(sum(x), 10.0) / max(1, len(x)), lin(1.0)),
     lambda: meas(ints(0, 10), S, MD, lambda x: geo(sum(x), 20.0) / max(1, geo(len(x), 2.0)), lin(1.0)))
# PTR with exact distance
def ptr(noisy):
    def f(x):
        c = Counter(x); top = (c.most_common(2) + [(None, 0), (None, 0)])[:2]
        gap = top[0][1] - top[1][1]
        mode = min(k for k in c if c[k] == top[0][1]) if c else 0
        g = geo(gap, 2.0) if noisy else gap
        return mode if g > 1 + 2 * 5 else None  # P[noise >= 10 at scale 2] < .005
    return meas(ints(0, 3), S, AD, f, lambda d: (1.0 * d, grp(0.01, d)))
twin("ptr/exact_distance", "delta 1", lambda: ptr(False), lambda: ptr(True))
# histogram with data-dependent keys; threshold forgets the +1; two keys a user
def hist(thr, keys=None):
    def f(x):
        c = Counter(x); ks = sorted(c) if keys is None else keys
        z = {k: geo(c[k], 1.0) for k in ks}
        return [(k, v) for k, v in sorted(z.items()) if v >= thr]
    return f
def delta_geo(t): return math.exp(-(t - 1)) / (1 + math.exp(-1))  # P[1 + noise >= t]
twin("histogram/keys_from_data_pure", "inf", lambda: meas(anyints, S, MD, hist(-10**9), lin(1.0)),
     lambda: meas(anyints, S, MD, hist(-10**9, keys=[0, 1, 2]), lin(1.0)))
twin("threshold/delta_of_count_zero", "delta x e", lambda: meas(anyints, S, AD, hist(5), lambda d: (1.0 * d, grp(delta_geo(6), d))),
     lambda: meas(anyints, S, AD, hist(5), lambda d: (1.0 * d, grp(delta_geo(5), d))))
# seeds and caches
def seeded(kind):
    cache = {}
    def f(x):
        if kind == "seed": return float(sum(x) + np.random.default_rng(len(x)).laplace(0, 1.0))
        if kind == "cache":
            k = tuple(x)
            if k not in cache: cache[k] = geo(sum(x), 1.0)
            return cache[k]
        return geo(sum(x), 1.0)
    return meas(ints(0, 1), S, MD, f, lin(1.0))
twin("noise/seeded_by_n", "inf", lambda: seeded("seed"), lambda: seeded(""))
twin("noise/cached_per_dataset", "inf over calls", lambda: seeded("cache"), lambda: seeded(""))
def anti():
    st = []
    def f(x):
        if st: z = -st.pop()
        else: z = geo(0, 1.0); st.append(z)
        return sum(x) + z
    return meas(ints(0, 1), S, MD, f, lin(1.0))
twin("noise/antithetic_between_calls", "inf over calls", anti, lambda: seeded(""))
def shared(s):
    def f(x):
        c = [sum(1 for v in x if v == k) for k in range(6)]
        if s: z = geo(0, 1.0); return [v + z for v in c]
        return vgeo(c, 1.0)
    return meas(ints(0, 5), S, MD, f, lin(1.0))
twin("noise/one_draw_for_all_cells", "inf", lambda: shared(True), lambda: shared(False))
# randomized response
def krr(p, k):
    return meas(dp.atom_domain(bounds=(0, k - 1)), dp.discrete_distance(), MD,
                lambda x: x if random.random() < p else random.choice([v for v in range(k) if v != x]), lambda d: 1.0 if d else 0.0)
E = math.e
twin("rr/binary_p_for_4_values", "2.1x", lambda: krr(E / (1 + E), 4), lambda: krr(E / (3 + E), 4))
twin("rr/p_rounded_to_0.75", "10%", lambda: krr(0.75, 2), lambda: krr(E / (1 + E), 2))
twin("rr/p_5_percent", "5%", lambda: krr(math.exp(1.05) / (1 + math.exp(1.05)), 2), lambda: krr(E / (1 + E), 2))
def unary(e):
    p = math.exp(e) / (1 + math.exp(e))
    return meas(dp.atom_domain(bounds=(0, 7)), dp.discrete_distance(), MD,
                lambda x: [int((random.random() < p) == (i == x)) for i in range(8)], lambda d: 1.0 if d else 0.0)
twin("rappor/eps_not_halved", "2x", lambda: unary(1.0), lambda: unary(0.5))
# composition that forgets a charge; filter charging after the answer
def three(n, charged): return meas(ints(0, 1), S, MD, lambda x: [geo(sum(x), charged * 1.0) for _ in range(n)], lin(1.0))
twin("composition/third_of_three_free", "50%", lambda: three(3, 2), lambda: three(3, 3))
def filt(late):
    def f(x):
        spent, out = 0.0, []
        while len(out) < 8:
            if (spent >= 1.0 if late else spent + 0.3 > 1.0): break
            out.append(geo(sum(x), 1 / 0.3)); spent += 0.3
        return out
    return meas(ints(0, 1), S, MD, f, lin(1.0))
twin("filter/charges_after_the_answer", "20%", lambda: filt(True), lambda: filt(False))
# Renyi -> (eps, delta) conversion without the 2
def conv(two):
    return meas(ints(0, 1), S, AD, lambda x: gau(4 * sum(x), 4.0), lambda d: (0.5 * d * d + two * math.sqrt(0.5 * d * d * math.log(100)), 0.01))
twin("zcdp/conversion_without_2", "delta x2", lambda: conv(1.0), lambda: conv(2.0))
# gaussian variance for sigma
def gsig(s): return meas(ints(0, 1), S, ZC, lambda x: gau(sum(x), s), lambda d: d * d / 8.0)
twin("gaussian/sqrt_sigma", "rho x2", lambda: gsig(math.sqrt(2)), lambda: gsig(2.0))
twin("gaussian/sigma_10_percent", "rho +23%", lambda: gsig(1.8), lambda: gsig(2.0))
# laplace claimed at the rho of bounded range
twin("zcdp/laplace_at_eps2_over_8", "rho x4", lambda: meas(ints(0, 1), S, ZC, lambda x: geo(sum(x), 1.0), lambda d: d * d / 8.0),
     lambda: meas(ints(0, 1), S, ZC, lambda x: geo(sum(x), 1.0), lambda d: d * d / 2.0))
# DP-SGD clips the batch
A2 = array2_domain(num_columns=3, nan=False, T=float)
def sgd(batch):
    def f(x):
        g = np.clip(np.asarray(x, float), -1e6, 1e6).reshape(-1, 3)
        def clip(v): n = np.linalg.norm(v); return v / n * (1 - 1e-9) if n > 1 else v
        s = clip(g.sum(0)) if batch else sum((clip(v) for v in g), np.zeros(3))
        return vgau(np.trunc(s * 64), 66.0)
    return meas(A2, S, ZC, f, lambda d: d * d * 0.5)
twin("dpsgd/clips_the_batch", "rho x4", lambda: sgd(True), lambda: sgd(False))
# clip bound from the data
twin("sum/bound_from_data", "gross", lambda: meas(ints(0, 100), S, MD, lambda x: geo(sum(x), float(max([1, *x]))), lin(1.0)),
     lambda: meas(ints(0, 100), S, MD, lambda x: geo(sum(x), 100.0), lin(1.0)))
# scales wrong, scalar (magnitudes) and 64 cells
def count(s): return meas(anyints, S, MD, lambda x: geo(len(x), s), lin(1.0))
for pct, s in ((100, 0.5), (25, 0.8), (10, 1 / 1.1), (5, 1 / 1.05)):
    twin(f"count/scale_{pct}_percent", f"{pct}%", (lambda s=s: count(s)), lambda: count(1.0))
def h64(s): return meas(ints(0, 63), S, MD, lambda x: vgeo([x.count(k) for k in range(64)], s), lin(1.0))
twin("histogram64/scale_2x", "2x", lambda: h64(0.5), lambda: h64(1.0))
# ---- transformations
vi = dp.vector_domain(AI)
def tr(dom, f, k, met=S, mp=None): return trans(dom, met, AI, dp.absolute_distance(T=int), f, mp or (lambda d: d * k))
twin("map/constant_in_d", "x2 at d=2", lambda: tr(ints(0, 9), sum, 9, mp=lambda d: 9 * min(d, 1)), lambda: tr(ints(0, 9), sum, 9))
twin("map/sized_sum_as_half_range", "x2 at d=2", lambda: tr(ints(-5, 5, 10), sum, 5, mp=lambda d: d // 2 * 5), lambda: tr(ints(-5, 5, 10), sum, 5, mp=lambda d: d // 2 * 10), d_in=2)
twin("map/sized_mean_n_plus_1", "5%",
     lambda: trans(ints(0, 10, 20), CO, AF, dp.absolute_distance(T=float), lambda x: sum(x) / 20, lambda d: d * 10 / 21),
     lambda: trans(ints(0, 10, 20), CO, AF, dp.absolute_distance(T=float), lambda x: sum(x) / 20, lambda d: d * 10 / 20 * (1 + 1e-12)))
def chunked(dup):
    def f(x): return sum(len(x[i:i + 64 + dup]) for i in range(0, max(len(x), 1), 64)) if dup else len(x)
    return f
twin("chunks/64_rows_overlap_by_one", "x2 above 64 rows", lambda: tr(vi, chunked(1), 1), lambda: tr(vi, chunked(0), 1))
def chunk1000(dup):
    def f(x): return sum(len(x[i:i + 1000 + dup]) for i in range(0, max(len(x), 1), 1000))
    return f
twin("chunks/1000_rows_overlap_by_one", "x2 above 1000 rows", lambda: tr(vi, chunk1000(1), 1), lambda: tr(vi, chunk1000(0), 1))
twin("sum/int32_wraps", "x1000s at n>=8", lambda: tr(ints(0, 2**28), lambda x: int(np.array(x, dtype=np.int64).sum().astype(np.int32)), 2**28),
     lambda: tr(ints(0, 2**28), lambda x: sum(x), 2**28))
twin("sentinel/age_99", "x99", lambda: tr(ints(0, 120), lambda x: sum(99 if v == 99 else min(v, 50) for v in x), 50), lambda: tr(ints(0, 120), lambda x: sum(min(v, 50) for v in x), 50))
twin("sentinel/code_88888", "x2", lambda: tr(ints(0, 99999), lambda x: sum(2 if v == 88888 else 1 for v in x), 1), lambda: tr(ints(0, 99999), len, 1))
vs = dp.vector_domain(dp.atom_domain(T=str))
def cats(bug):
    def f(x):
        c = [0] * 4
        for v in x:
            v = v.strip().lower()
            if v == "red": c[0] += 1
            if v == "green": c[1] += 1
            if v == "blue": c[2] += 1
            if v not in (("red", "green") if bug else ("red", "green", "blue")): c[3] += 1
        return c
    return trans(vs, S, vi, dp.l1_distance(T=int), f, lambda d: d)
twin("categories/blue_also_other", "x2, on one string", lambda: cats(True), lambda: cats(False))
twin("sum/clamps_the_total", "gross", lambda: tr(vi, lambda x: max(-1000, min(1000, sum(x))), 10), lambda: tr(vi, lambda x: sum(max(-10, min(10, v)) for v in x), 10))
twin("metric/sorted_pairs_reorder", "permutation", lambda: tr(ints(0, 5), lambda x: sum(abs(a - b) for a, b in zip(x, x[1:])), 10), lambda: tr(ints(0, 5), lambda x: sum(abs(a - b) for a, b in zip(sorted(x), sorted(x)[1:])), 10))
