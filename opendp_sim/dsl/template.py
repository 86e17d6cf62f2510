"""The template that ``init`` writes: commented, with holes (``???``) that fail ``check``."""

from __future__ import annotations

__all__ = ["TEMPLATE"]

TEMPLATE = """\
# yaml-language-server: $schema=./schema.json
# A program for opendp_sim. Fill in every hole, then run `opendp-sim check` on this file.
# Everything written here is public: never put a value here that was read from the data.
spec: opendp_sim/1
name: ???                                 # a short name; it stands in certificates and ledgers
params:                                   # public numbers that `--param width=2.0` can change
  width: {type: float, default: 1.0, range: [0.001, 1000.0]}
data:
  records:
    source: {npz: ???}                    # a path beside this file; or csv, npy, parquet, builtin
    columns:
      x: {dtype: "array[f64, 8]", bounds: [0.0, 1.0]}   # width and bounds from public knowledge;
                                          # in a .csv: columns x_0 to x_7, or one of lists
      # age: {dtype: float64, bounds: [0.0, 120.0]}     # single numbers, a line each
      # person: {dtype: int64, role: privacy_id}        # whom a record is about: see `unit` below
      # kind: {dtype: category, keys: [a, b]}           # a label: see `select` below
    ingest: refuse                        # or enforce: clamp to the bounds, drop NaN
    # ledger: {file: records.ledger, limit: {epsilon: 3.0, delta: 1.0e-5}}
privacy:
  unit: {add_remove: 1, of: row}          # or {replace: 1}; of: a column with `role: privacy_id`
  # unit: {add_remove: 1, of: person}     # hides a whole person; needs bound_contributions below
  measure: zcdp                           # pure | zcdp | approx_zcdp | approx
  budget: {epsilon: ???, delta: 1.0e-6}   # delta well below one over the number of people
                                          # approx_zcdp: reserve: {mechanisms: 5.0e-7} of delta
flow:
  sketch:
    from: records
    steps:
      # - bound_contributions: {by: person, max_rows: 2, seed: 3}   # a person keeps at most 2 records
      - select: {features: x}
      # - select: {features: [x, age], label: kind}     # instead: several columns, and a label
      - quantize: {bits: 12}
      - race_sketch:
          repetitions: 400
          buckets: 256
          family: {p_stable_l2: {width: "${width}"}}
          seed: ???
  noisy:
    from: sketch
    release: {noise: gaussian, scale: solve, spend: 100%}
outputs:
  density:
    from: noisy
    post: [density: {estimator: mean}]
    save: out/density.npz                 # ask it later: opendp-sim answer out/density.npz --query ...
  # One question after another: `release: {mechanism: {ind_knn: ...}}`, and an output that says
  # `serve: session`, with `public_queries: {npz: ...}`; see `opendp-sim explain session`.
"""
