"""Write template specs with holes.

``opendp-sim init --recipe density``; a person fills the holes.
"""

from __future__ import annotations

from pathlib import Path

RECIPES = {
    "blank": "every section of a spec, with comments",
    "density": "how dense are records around a place: answered by `density`, `outliers`, `modes`",
    "classes": "which class is a place like: answered by `classify`, `density`",
    "means": "which class's mean is nearest: answered by `nearest_class`, `distance`",
}
"""A recipe's name to what its release is for."""
_STEPS = {
    "density": (
        "gauss_transform_sketch: {bandwidth: 0.1}",
        "up to three columns; else fourier_sketch",
    ),
    "classes": ("gauss_transform_sketch: {bandwidth: 0.1, per_label: true}", "up to three columns"),
    "means": ("moments_sketch: {per_label: true}", "any number of columns"),
}
_POST = {"density": "density", "classes": "classify", "means": "nearest_class"}
_KIND = """\
      kind: {dtype: category, keys: [???, ???]}   # every class that could occur
"""
_SPEC = """\
spec: opendp_sim/1
name: ???
data:
  records:
    source: {SOURCE}
    columns:                            # call a and b what your columns are called
      a: {dtype: float64, bounds: [???, ???]}   # from public knowledge, never from the data
      b: {dtype: float64, bounds: [???, ???]}
KIND\
    ingest: enforce                     # clamp to the bounds, drop what is missing
    ledger: {file: records.ledger, limit: {epsilon: 3.0, delta: 1.0e-5}}
privacy:
  unit: {add_remove: 1, of: row}        # or a column of role privacy_id: `opendp-sim explain unit`
  measure: gdp
  budget: {epsilon: 1.0, delta: 1.0e-6}
flow:
  noisy:
    from: records
    steps:
      - select: {SELECT}
      - rescale: {}                     # each column in its own range: bandwidths are in ranges
      - quantize: {bits: 12}
      - SKETCH   # NOTE
    release: {noise: gaussian, spend: 100%}
outputs:
  release: {from: noisy, save: out/release.npz}
# then: opendp-sim check FILE; opendp-sim plan FILE; opendp-sim apply FILE
#       opendp-sim answer out/release.npz --queries places.csv --post POST
"""


def recipe_text(recipe: str, data: str | None, blank: str) -> str:
    """Return the spec of a recipe.

    Args:
        recipe: one of ``RECIPES``.
        data: the file that the records are in (.csv, .parquet, .npz); None for a hole.
        blank: the template of ``blank``.
    """
    if recipe == "blank":
        return blank
    kind = Path(data or "").suffix.removeprefix(".")
    sketch, note = _STEPS[recipe]
    classes = recipe != "density"
    told = {
        "SOURCE": f"{kind if kind in ('parquet', 'npz') else 'csv'}: {data or '???'}",
        "KIND": _KIND if classes else "",
        "SELECT": "features: [a, b], label: kind" if classes else "features: [a, b]",
        "SKETCH": sketch,
        "NOTE": note,
        "POST": _POST[recipe],
    }
    text = _SPEC
    for word, value in told.items():
        text = text.replace(word, value)
    return text
