"""The fifth set: frames, contexts, bit vectors, mappings and scalars; ``make(True)`` is the broken one."""
from __future__ import annotations
import functools, math, random, warnings
import numpy as np
import polars as pl
import opendp.prelude as dp
from tests.audit.corpus.set4 import MD, M, S, laplace
warnings.simplefilter("ignore")
dp.enable_features("contrib", "honest-but-curious", "idealized-numerics")
APPROX = dp.approximate(dp.max_divergence())
TABLE = {"g": dp.atom_domain(T=str), "x": dp.atom_domain(T=dp.i32)}
def frames(margin=None, **columns):
    made = dp.lazyframe_domain([dp.series_domain(name, cell) for name, cell in (columns or TABLE).items()])
    return made if margin is None else dp.with_margin(made, margin)
def counts(lf, keys): return dict.fromkeys(keys, 0) | dict(lf.group_by("g").len().collect().rows())
@functools.cache
def native(scale, threshold=None, margin=None):
    plan = pl.LazyFrame(schema={"g": pl.String, "x": pl.Int32})
    if threshold is None:
        return dp.m.make_private_lazyframe(frames(), S, MD, plan.select(dp.len(scale=scale, signed=True)))
    return dp.m.make_private_lazyframe(frames(), dp.frame_distance(S), APPROX, plan.group_by("g").agg(dp.len(scale=scale, signed=True)), threshold=threshold)
def context(rows, parts=1): return dp.Context.compositor(
    data=pl.LazyFrame({"x": rows}, schema={"x": pl.Int64}), privacy_unit=dp.unit_of(contributions=1),
    privacy_loss=dp.loss_of(epsilon=1.0), split_evenly_over=parts)
T, PAIRS = [], {}
def twin(name, mag, make, d_in=1, pair=None, **opt):
    T.append((name, mag, lambda: make(True), lambda: make(False), d_in, opt)); PAIRS[name] = pair

# a sum of a column, where the clip forgets the lower bound
def f(bad):
    clip = pl.col("x").clip(upper_bound=50) if bad else pl.col("x").clip(0, 50)
    return M(frames(), lambda lf: laplace(lf.select(clip.cast(pl.Int64).sum()).collect().item(), 50))
twin("frame/clip_without_a_floor", "unbounded below", f, pair="[] against [('a', -1000)]")
# counts of the keys that the data has: a key that is there once is released at any rate
def f(bad):
    def table(lf):
        if bad: return {g: laplace(n, 1) for g, n in lf.group_by("g").len().collect().rows()}
        return {g: laplace(n, 1) for g, n in counts(lf.filter(pl.col("g").is_in(["a", "b"])), "ab").items()}
    return M(frames(), table)
twin("frame/keys_of_the_data", "inf", f, pair="[] against [('a', 0)]")
# bins with both edges closed, charged as if no row were in two
def f(bad):
    closed = "both" if bad else "left"
    def bins(lf):
        cells = [pl.col("x").is_between(k, k + 18, closed=closed).sum().alias(str(k)) for k in (0, 18, 36)]
        return [laplace(n, 1) for n in lf.select(cells).collect().row(0)]
    return M(frames(), bins)
twin("frame/both_edges_of_between", "x2, on an edge", f, pair="[] against [('a', 18)]")
# missing cells become a code after the clip
def f(bad):
    cell = pl.col("x").clip(0, 10).cast(pl.Int64)
    def total(lf): return laplace(lf.select(cell.fill_null(-999 if bad else 0).sum()).collect().item(), 10)
    return M(frames(x=dp.option_domain(dp.atom_domain(T=dp.i32))), total)
twin("frame/missing_cells_coded_late", "x100, on missing cells", f, pair="[] against [(None,)]")
# a native count whose loss is claimed at a quarter
def f(bad): return M(frames(), native(0.5), lambda d: d * (0.5 if bad else 2.0))
twin("frame/native_count_at_a_quarter", "x4", f, pair="[] against [('a', 0)]")
# a flag beside a native count: does any row have a large value?
def f(bad):
    def both(lf):
        n = native(1.0)(lf).collect().item()
        return [n, bool(lf.filter(pl.col("x") > 900).collect().height) and bad]
    return M(frames(), both)
twin("frame/a_flag_beside_the_count", "inf, above 900", f, pair="[] against [('a', 1000)]")
# one person's rows are not capped, whoever brings forty counts forty times
def f(bad):
    def count(lf):
        capped = lf if bad else lf.unique("g", keep="any")
        return laplace(capped.select(pl.len()).collect().item(), 1)
    return M(frames(), count, met=dp.symmetric_id_distance(pl.col("g")))
twin("frame/rows_of_a_person_uncapped", "x20", f, pair="[] against one person with 20 rows")
# keys are public by the margin; exact group sizes are not
def f(bad):
    by_g = dp.polars.Margin(by=["g"], invariant="keys")
    def table(lf): return {g: n if bad else laplace(n, 1) for g, n in lf.group_by("g").len().collect().rows()}
    return M(frames(by_g), table)
twin("frame/margin_of_keys_takes_lengths", "inf", f, pair="[('a', 0)] against [('a', 0), ('a', 0)]")
# a person is in up to three groups, the noise is that of one
def f(bad):
    def table(lf): return [laplace(n, 1 if bad else 3) for n in counts(lf.filter(pl.col("g").is_in(["a", "b", "c"])), "abc").values()]
    return M(frames(), table, k=lambda d: 1.0, met=dp.frame_distance(S))
twin("frame/bound_of_three_groups", "x3", f, d_in=[dp.polars.Bound(by=["g"], per_group=1, num_groups=3)], pair="[] against one row in each of a, b, c")
# a threshold far too low for the delta that is claimed
def f(bad):
    made = native(1.0, 2 if bad else 20)
    return M(frames(), made, k=lambda d: (1.0, 1e-6), met=dp.frame_distance(S), mea=APPROX)
twin("frame/threshold_below_its_delta", "delta .2 of 1e-6", f, d_in=[dp.polars.Bound(per_group=1)], pair="[] against [('a', 0)]")
# a frame whose rows are repeated before they are counted downstream
def f(bad):
    def more(lf): return pl.concat([lf, lf.filter(pl.col("x") == 77)]) if bad else lf.filter(pl.col("x") != 77)
    return dp.t.make_user_transformation(frames(), S, frames(), S, more, lambda d: d)
twin("frame/rows_with_77_come_twice", "x2, on one value", f, pair="[] against [('a', 77)]")
# a context is asked, and the data beside it
ROWS = dp.vector_domain(dp.atom_domain(T=int))
def f(bad):
    def ask(rows):
        n = context(rows).query().select(dp.len(signed=True)).release().collect().item()
        return [n, len(rows) > 20 if bad else n > 20]
    return M(ROWS, ask)
twin("context/a_look_beside_the_query", "inf, at 20 rows", f, pair="20 rows against 21")
# two contexts on the same rows, each with the whole loss
def f(bad):
    def ask(rows): return [context(rows).query().select(dp.len(signed=True)).release().collect().item() for _ in range(4)]
    return M(ROWS, ask, 1.0 if bad else 4.0)
twin("context/four_contexts_paid_as_one", "x4", f, pair="[] against [0]")
# each row is entered five times, the unit says one contribution
def f(bad):
    def ask(rows): return context(rows * (5 if bad else 1)).query().select(dp.len(signed=True)).release()
    return M(ROWS, ask)
twin("context/rows_entered_five_times", "x5", f, pair="[] against [0]")
# bits are flipped one by one, and charged as if one of them could differ
BITS = dp.bitvector_domain(max_weight=2)
def f(bad):
    def flip(data):
        bits = np.unpackbits(np.frombuffer(data, np.uint8))
        return np.packbits(bits ^ np.array([random.random() < 0.25 for _ in bits], dtype=np.uint8)).tobytes()
    return M(BITS, flip, k=lambda d: math.log(3) * (1 if bad else 4), met=dp.discrete_distance())
twin("bits/one_of_four_is_charged", "x4", f, pair="two ones against two others")
# a lone key is released three times in ten
MAPS = dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T=int))
L01 = dp.l01inf_distance(dp.absolute_distance(T=int))
def f(bad):
    made = dp.m.make_laplace_threshold(MAPS, L01, scale=1.0, threshold=2 if bad else 20)
    return M(MAPS, made, k=lambda d: (1.0, 1e-6), met=L01, mea=APPROX)
twin("map/lone_key_of_a_native_threshold", "delta .2 of 1e-6", f, d_in=(1, 1, 1), pair="{} against {'a': 1}")
# keys are kept by their exact count, before the noise
def f(bad):
    def table(x):
        out = {k: laplace(v, 1.0) for k, v in x.items() if not bad or v > 20}
        return out if bad else {k: v for k, v in out.items() if v > 20}
    return M(MAPS, table, k=lambda d: (1.0, 1e-6), met=L01, mea=APPROX)
twin("map/threshold_on_the_exact_count", "inf, at 20", f, d_in=(1, 1, 1), pair="{'a': 20} against {'a': 21}")
# three keys may differ, the loss of one is claimed
def f(bad):
    def table(x): return {k: laplace(x.get(k, 0), 1.0) for k in ("a", "b", "c")}
    return M(MAPS, table, k=lambda d: 1.0 if bad else 3.0, met=L01)
twin("map/the_first_part_of_a_distance", "x3", f, d_in=(3, 3, 1), pair="{} against a, b, c with 1 each")
# a number is rounded to tens before its noise, in the distance of numbers
def f(bad):
    def one(x): return laplace(10 * round(x / 10) if bad else x, 1)
    return M(dp.atom_domain(T=int), one, met=dp.absolute_distance(T=int))
twin("scalar/rounded_to_tens_before_noise", "x10, at fives", f, pair="5 against 6")
# words are counted, with the word "all" once in every key
def f(bad):
    def table(x):
        out = {}
        for word in x:
            for key in ("a", "b", "all") if word == "all" and bad else (word,): out[key] = out.get(key, 0) + 1
        return out
    return dp.t.make_user_transformation(dp.vector_domain(dp.atom_domain(T=str)), S, MAPS, L01, table, lambda d: (d, d, d))
twin("map/one_word_in_three_keys", "x3, on one word", f, pair="[] against ['all']")
