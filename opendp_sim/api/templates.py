"""Write template specs with holes.

``opendp-sim init --recipe density``; a person fills the holes.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path

from opendp_sim.core.system.regular_files import decode_text, regular
from opendp_sim.domains.cell import real

RECIPES = {
    "blank": "every section of a spec, with comments",
    "density": "how dense are records around a place: answered by `density`, `outliers`, `modes`",
    "classes": "which class is a place like: answered by `classify`, `density`",
    "means": "which class's mean is nearest: answered by `nearest_class`, `distance`",
    "regression": "the last column from the others, by a line: answered by `regress`",
}
"""A recipe's name to what its release is for."""
_STEPS = {
    "density": (
        "gauss_transform_sketch: {bandwidth: 0.1}",
        "up to three columns; else fourier_sketch",
    ),
    "classes": ("gauss_transform_sketch: {bandwidth: 0.1, per_label: true}", "up to three columns"),
    "means": ("moments_sketch: {per_label: true}", "any number of columns"),
    "regression": ("second_moments: {}", "the last of the features is predicted"),
}
_POST = {
    "density": "density",
    "classes": "classify",
    "means": "nearest_class",
    "regression": "regress",
}
_KIND = """\
      KIND: {dtype: category, keys: [???, ???]}   # every class that could occur
"""
_SPEC = """\
spec: opendp_sim/1
name: ???
data:
  records:
    source: {SOURCE}
    columns:                            # NAMED
COLUMNS\
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
# first, the data's curator: opendp-sim doctor FILE --private-look -o MENDED (it needs no bounds)
# then: opendp-sim check FILE; opendp-sim plan FILE; opendp-sim apply FILE
#       opendp-sim answer out/release.npz --queries places.csv --post POST
"""


_SIMPLE = re.compile(r"(?!(?:true|false|null)$)[A-Za-z_]\w*")
_CLASS = ("label", "class", "kind", "category", "target", "species", "type", "y")
"""Headers that a column of classes usually has."""
_LINE = 2**16
"""Characters of a header line."""


def file_header(file: Path) -> tuple[list[str], str]:
    """Return a text file's first names, and their delimiter.

    No names where it could be a record: it holds a number. A header is public: ``io/ingest.md``, "Form".
    """
    try:
        with regular(file).open("rb") as opened:
            text = decode_text(opened.readline(_LINE).removeprefix(b"\xef\xbb\xbf"))
    except (OSError, ValueError):
        return [], ","
    line = (text or "").splitlines()[:1]
    delimiter = max(",;\t|", key="".join(line).count)
    try:
        cells = next(csv.reader(line, delimiter=delimiter, strict=True), [])
    except csv.Error:
        return [], ","
    names = [cell.strip() for cell in cells if cell.strip()]
    numbers = any(abs(real(name)) < float("inf") for name in names)
    good = len(names) > 1 and len(set(names)) == len(names) and not numbers
    return (names, delimiter) if good else ([], ",")


def recipe_text(
    recipe: str, data: str | None, blank: str, names: Sequence[str] = (), delimiter: str = ","
) -> str:
    """Return the spec of a recipe.

    Args:
        recipe: one of ``RECIPES``.
        data: the file that the records are in (.csv, .parquet, .npz); None for a hole.
        blank: the template of ``blank``.
        names: of the file's header, from which the columns are called.
        delimiter: between the cells of the file.
    """
    if recipe == "blank":
        return blank
    kind = Path(data or "").suffix.removeprefix(".")
    sketch, note = _STEPS[recipe]
    kind = kind if kind in ("parquet", "npz") else "csv"
    place = data or "???"
    if delimiter != ",":
        place = f"{{file: {place}, delimiter: {json.dumps(delimiter)}}}"
    classes = recipe in ("classes", "means")
    label = next((name for name in names if name.lower() in _CLASS), "kind")
    shown = [name for name in names if not classes or name != label] or ["a", "b"]
    features = [name if _SIMPLE.fullmatch(name) else json.dumps(name) for name in shown]
    label = label if _SIMPLE.fullmatch(label) else json.dumps(label)
    lines = [f"      {name}: {{dtype: float64, bounds: [???, ???]}}" for name in features]
    lines[0] += "   # from public knowledge, never from the data"
    selected = f"features: [{', '.join(features)}]" + f", label: {label}" * classes
    told = {
        "SOURCE": f"{kind}: {place}",
        "NAMED": "from the file's header: remove those that are not used, here and in `select`"
        if names
        else "call a and b what your columns are called",
        "COLUMNS": "\n".join(lines) + "\n" + (_KIND.replace("KIND", label) if classes else ""),
        "SELECT": selected,
        "SKETCH": sketch,
        "NOTE": note,
        "POST": _POST[recipe],
    }
    return re.sub("|".join(told), lambda found: told[found[0]], _SPEC)
