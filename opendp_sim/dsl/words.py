"""Pages about the words of a spec, for ``explain``."""

from __future__ import annotations

__all__ = ["ALSO", "WORDS"]

WORDS: dict[str, str] = {
    "params": """\
Public numbers that a command line can change.
    params: {width: {type: float, default: 1.0, range: [0.001, 1000.0]}}
Write "${width}" where the number goes, and `--param width=2.0` to change it.""",
    "data": """\
Datasets by name: where each is, and what its columns hold. Nothing here may come from looking at data.
    data:
      trees:
        source: {csv: trees.csv}              # or npz, npy, parquet, builtin
        columns:
          height: {dtype: float64, bounds: [0, 100]}
          place: {dtype: "array[f64, 2]", bounds: [-180, 180]}
          kind: {dtype: category, keys: [elm, oak]}
          owner: {dtype: str, role: privacy_id}
        ingest: refuse                        # see `explain ingest`
        ledger: {file: trees.ledger, limit: {epsilon: 3.0, delta: 1.0e-5}}
`public: true` instead marks data that is public: nothing is charged, and a release needs no noise.""",
    "source": """\
Where a dataset or queries are: {csv: trees.csv}, npz, npy, parquet, or {builtin: digits}; with options,
{csv: {file: trees.csv, delimiter: ";", columns: {height: H}}}: what the file calls a column.
A vector `place` of width 2 in a .csv or .parquet file is one column of lists such as "[1.5, 2]", or the
columns place_0 and place_1, or those named by `columns: {place: [lon, lat]}`. In .npz it is an array of
shape (n, 2). Text files have no dtypes: a cell that is not a number is a missing entry of its column.""",
    "ingest": """\
What happens to records that break the declaration of their columns, before anything is released.
    refuse   the run ends, and says which kind of defect, never whose (the default). That it was
             refused is public; with a ledger, at most ten runs may be.
    enforce  numbers are clamped to their bounds; a record with a missing entry, NaN, a foreign label or
             a cell of another dtype is dropped. Nobody is told how many: a misspelt key or dtype can
             drop everybody, and then the answers are noise. Compare the released number of records
             with the one you expect, or try the declaration on data that is public.
    assume   nothing is looked at: the claim holds if the declaration does.""",
    "privacy": """\
What the whole program promises.
    privacy:
      unit: {add_remove: 1, of: row}        # or {replace: 1}; `of: owner` hides a person with all records
      measure: zcdp                         # pure | zcdp | approx_zcdp | approx
      budget: {epsilon: 1.0, delta: 1.0e-6} # or {rho: 0.1}; delta well below one over the people
Under approx_zcdp, `reserve: {mechanisms: 5.0e-7}` says how much of delta mechanisms may use that have one
of their own, such as top_k (half unless it is said); the rest converts rho to epsilon.
`numerics: idealized` admits steps whose proof is about real numbers; the default is exact.""",
    "flow": """\
Stages by name. Each starts `from` a dataset or a stage, and has steps, or a release, or both.
    flow:
      sketch:
        from: trees
        steps: [select: {features: height}, quantize: {bits: 8}, threshold_sketch: {thresholds: 64}]
      noisy: {from: sketch, release: {noise: gaussian, scale: solve, spend: 100%}}
`expect: {stability: 1}` makes `check` fail when the types say more.""",
    "release": """\
How a stage leaves the private side: noise on a sketch, or a mechanism that releases by itself.
    release: {noise: gaussian, scale: solve, spend: 60%}   # solve: the least noise that fits the share
    release: {noise: laplace, scale: 40.0}                 # or a scale of your own
    release: {mechanism: {top_k: {k: 10}}, spend: 40%}
    release: none                                          # of data that says `public: true`
`spend` is a share of the budget; all shares together are at most 100 %.""",
    "outputs": """\
What is computed from a release, and where it goes.
    outputs:
      all: {from: noisy, save: out/all.npz}                # the release, for `opendp-sim answer`
      asked: {from: noisy, post: [distance: {}], query: {csv: asked.csv}, save: out/asked.csv}
      live: {from: neighbours, serve: session}             # see `explain session`
Queries are public, have the features of a record, and cost nothing: only the release did. `regress` wants
the target's column among them too; what stands there is ignored.""",
    "session": """\
An interactive release (ind_knn, hybrid_knn, private_knn) that answers one question after another:
    live: {from: neighbours, serve: session, store: out/live.session, public_queries: {npz: asked.npz}}
`opendp-sim session SPEC` reads lines such as {"query": [0.1, 0.2]} and answers each in one line, charged
before it leaves. `store` is the file that remembers what was charged, between runs. `public_queries` show
what queries look like: a mechanism without a `threshold` of its own takes it from them, or from a line
{"reference": [[0.1, 0.2], ...]} that comes first. `serve: queryable` is for a program in Python. See
`opendp-sim session --help`.""",
    "ledger": """\
A file that adds up what a dataset has lost, in all runs that name it, and refuses what passes its limit.
    ledger: {file: trees.ledger, limit: {epsilon: 3.0, delta: 1.0e-5}}
`plan` says what is spent and what would be left; `opendp-sim ledger show FILE` lists every charge.""",
}
ALSO = {
    "columns": "data", "public": "data", "csv": "source", "npz": "source", "npy": "source",
    "parquet": "source", "builtin": "source", "enforce": "ingest", "refuse": "ingest",
    "assume": "ingest", "unit": "privacy", "measure": "privacy", "budget": "privacy",
    "reserve": "privacy", "numerics": "privacy", "steps": "flow", "expect": "flow", "from": "flow",
    "spend": "release", "noise": "release", "mechanism": "release", "post": "outputs",
    "query": "outputs", "save": "outputs", "serve": "session", "store": "session",
    "public_queries": "session", "limit": "ledger",
}  # fmt: skip
"""Words that stand on another word's page."""
