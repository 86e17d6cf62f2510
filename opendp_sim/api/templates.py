"""Write template specs with holes, as ``init --recipe`` does."""

from __future__ import annotations

import csv
import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from opendp_sim.accounting.budget import number_text
from opendp_sim.api.recommend import Candidate, recommend
from opendp_sim.core.errors import SimError
from opendp_sim.core.system.regular_files import decode_text, regular
from opendp_sim.domains.cell import real
from opendp_sim.dsl.plan.kernel_choice import grid_bits, with_moments
from opendp_sim.dsl.types.error_terms import few_digits
from opendp_sim.io.csv_files import decompressed
from opendp_sim.io.file_spec import FileOptions, kind_by_bytes, kind_by_name
from opendp_sim.io.sql import tables_of

RECIPES = {
    "blank": "every section of a spec, with comments",
    "density": "how dense are records around a place: answered by `density`, `outliers`, `modes`",
    "classes": "which class is a place like: answered by `classify`, `density`",
    "means": "which class's mean is nearest: answered by `nearest_class`, `distance`",
    "regression": "the last column from the others, by a line: answered by `regress`",
    "top": "which items do most people have: a list in a JSON file",
    "session": "the nearest neighbours' label, asked one question after another: `opendp-sim session`",
    "audit": "a release to be attacked on made-up records: `opendp-sim audit` opens no data",
    "dashboard": "a map, counts and means of one table, in one run and at one charge",
}
"""A recipe's name to what its release is for."""


@dataclass(frozen=True)
class _Recipe:
    """The parts of a spec that differ by recipe.

    Attributes:
        flow: the stages; <FIRST> stands for the steps that all of them begin with.
        outputs: the outputs.
        then: commands after `apply`.
        measure: of the privacy.
        label: whether a column names the class.
        item: whether the table is of items alone.
    """

    flow: str
    outputs: str = "  release: {from: noisy, save: out/release.npz}\n"
    then: str = ""
    measure: str = "gdp"
    label: bool = False
    item: bool = False


def _released(step: str, note: str = "", why: str = "<WHY>") -> str:
    """Return the stage of one sketch with noise."""
    comment = f"   # {note}" if note else ""
    return f"""\
  noisy:
    from: records
{why}\
    steps:
<FIRST>      - {step}{comment}
    release: {{noise: gaussian, spend: 100%}}
"""


def _asked(post: str, file: str = "release") -> str:
    return f"opendp-sim answer out/{file}.npz --queries places.csv --post {post}"


_FORMS = {
    "density": _Recipe(_released("<SKETCH>"), then=_asked("density")),
    "classes": _Recipe(_released("<SKETCH>"), then=_asked("classify"), label=True),
    "means": _Recipe(
        _released("moments_sketch: {per_label: true}", "any number of columns"),
        then=_asked("nearest_class"),
        label=True,
    ),
    "regression": _Recipe(
        """\
  rows:
    from: records
    steps:
<FIRST>  noisy:
    from: rows
<WHY>\
    release:
      mechanism: {linear_regression: {}}   # the last of the features is predicted
      spend: 100%
""",
        then=_asked("regress"),
    ),
    "top": _Recipe(
        """\
  votes:
    from: records
    steps:
      - vote_counts: {item: <ITEM>}       # of one person each item counts once
  noisy:
    from: votes
<WHY>\
    release: {mechanism: {<SKETCH>}, spend: 100%}
""",
        "  release: {from: noisy, save: out/release.json}\n",
        measure="approx",
        item=True,
    ),
    "session": _Recipe(
        """\
  rows:
    from: records
    steps:
<FIRST>  noisy:
    from: rows
    release:
      mechanism: {ind_knn: {queries: 500, size: <SIZE>}}   # size: about how many records, publicly known
      spend: 100%
""",
        """\
  release:
    from: noisy
    serve: session
    store: out/release.session
    queries: {csv: places.csv}          # public places like those that will be asked
""",
        then='opendp-sim session FILE   (a line {"query": [0.5, 0.5]} asks, in the order of `select`)',
        label=True,
    ),
    "audit": _Recipe(
        _released(
            "moments_sketch: {per_label: true}", "or the steps that you have doubts about", why=""
        ),
        then="opendp-sim audit FILE   (before `apply`: it opens no data, and draws records of its own)",
        label=True,
    ),
    "dashboard": _Recipe(
        """\
  rows:
    from: records
    steps:
<FIRST>  noisy_map:
    from: rows
<WHY>\
    steps:
      - <SKETCH>
    release: {noise: gaussian, spend: 50%}
  noisy_means:
    from: rows
    steps:
      - moments_sketch: {per_label: true}
    release: {noise: gaussian, spend: 25%}
  noisy_counts:
    from: records
    steps:
      - vote_counts: {item: <LABEL>}
    release: {noise: gaussian, spend: 25%}
""",
        """\
  map: {from: noisy_map, save: out/map.npz}
  means: {from: noisy_means, save: out/means.npz}
  kinds: {from: noisy_counts, save: out/kinds.npz}
""",
        then=f"""{_asked("density", "map")}
#       {_asked("nearest_class", "means")}
#       opendp-sim answer out/kinds.npz --post counts""",
        label=True,
    ),
}
_SPEC = """\
spec: opendp_sim/2
name: ???
data:
  records:
    source: {<SOURCE>}
    columns:                            # <NAMED>
<COLUMNS>\
    ingest: enforce                     # clamp to the bounds, drop what is missing
    ledger: {file: records.ledger, limit: {epsilon: 3.0, delta: 1.0e-5}}
privacy:
  unit: {add_remove: 1, of: <UNIT>}   # <UNITNOTE>
  measure: <MEASURE>
  budget: {epsilon: <EPSILON>, delta: 1.0e-6}
flow:
<FLOW>\
outputs:
<OUTPUTS>\
# first, the data's curator: opendp-sim doctor FILE --private-look -o MENDED (it needs no bounds)
# other mechanisms by predicted error: <RECOMMEND>
# then: opendp-sim check FILE; opendp-sim plan FILE; opendp-sim ledger new FILE, once;
#       opendp-sim apply FILE
#       <THEN>
"""
_FIRST = """\
      - select: {<SELECT>}
      - rescale: {}                     # each column in its own range: bandwidths are in ranges
      - quantize: {bits: <BITS>}
"""
_PERSONS = (
    "      - bound_contributions: {max_rows: ???}   # the most rows of one person that count\n"
)

# --------------------------------------------------------------------------------------------------
# A header's names: public, so what they suggest is.

_CLASS = ("label", "class", "kind", "category", "species", "type", "genre", "diagnosis", "group")
_TARGET = ("target", "y", "price", "cost", "outcome", "response")
_ITEM = ("item", "product", "page", "url", "word", "query", "app", "song", "movie", "sku", "tag")
_PERSON = ("user", "person", "visitor", "customer", "patient", "client", "worker", "member")
_NO_NUMBER = (
    *("date", "time", "timestamp", "datetime", "day", "id", "name", "address", "city", "country"),
    *("comment", "text", "email", "phone", "note", "url", "is", "has"),
)
"""Words of names of columns that hold no numbers to compute with."""
_SIMPLE = re.compile(r"(?!(?:true|false|null|yes|no|on|off|y|n)$)[A-Za-z_]\w*", re.IGNORECASE)
_NUMBERED = re.compile(r"(.+)_(\d+)")
_OF_VECTOR = re.compile(r"(.+)\[(\d+)\]")
_VECTOR = 4
"""Numbered columns from which they are one vector."""
_LINE = 2**16
"""Characters of a header line."""


@dataclass(frozen=True)
class _Roles:
    """What a header's names suggest about columns."""

    features: tuple[str, ...]
    person: str | None
    label: str | None
    item: str | None
    target: str | None
    others: tuple[str, ...] = ()

    @classmethod
    def of(cls, names: Sequence[str]) -> _Roles:
        """Return the roles that names suggest; each name has one."""
        left = list(names)

        def taken(words: Sequence[str]) -> str | None:
            found = next((n for n in left if _words(n) & set(words)), None)
            if found is not None:
                left.remove(found)
            return found

        person, item, label = taken(_PERSON), taken(_ITEM), taken(_CLASS)
        target = taken(_TARGET)
        others = tuple(n for n in left if _words(n) & set(_NO_NUMBER))
        features = _folded([n for n in left if n not in others]) + ([target] if target else [])
        return cls(tuple(features), person, label, item, target, others)


def _folded(names: list[str]) -> list[str]:
    """Return names with ``x_0`` to ``x_{d-1}`` as one vector, ``x[d]``."""
    numbered = [found for name in names if (found := _NUMBERED.fullmatch(name))]
    sizes = Counter(found[1] for found in numbered)
    whole = {
        stem: size
        for stem, size in sizes.items()
        if size >= _VECTOR and all(f"{stem}_{at}" in names for at in range(size))
    }
    told = []
    for name in names:
        found = _NUMBERED.fullmatch(name)
        told.append(f"{found[1]}[{whole[found[1]]}]" if found and found[1] in whole else name)
    return list(dict.fromkeys(told))


def _words(name: str) -> set[str]:
    """Return a name's words in lower case, also without a plural s."""
    parts = {w.lower() for w in re.findall(r"[a-z]+|[A-Z]+(?![a-z])|[A-Z][a-z]+", name)}
    return parts | {word.removesuffix("s") for word in parts if len(word) > 3}


def guess_recipe(names: Sequence[str]) -> tuple[str, str]:
    """Return the recipe that a (public) header's names suggest, and why."""
    roles = _Roles.of(names)
    if roles.item is not None and (roles.person is not None or not roles.features):
        return "top", f"its header names items, `{roles.item}`"
    if roles.target is not None and len(roles.features) > 1:
        return "regression", f"its header names `{roles.target}` among other numbers"
    if roles.label is not None and roles.features:
        few = len(roles.features) <= 3
        return ("classes" if few else "means"), f"its header names classes, `{roles.label}`"
    return "density", "its header names numbers" if names else "nothing is known of its header"


@dataclass(frozen=True)
class Header:
    """Hold the public form of a file for a template.

    Attributes:
        kind: of the source.
        names: of its columns; none where a first line may be a record.
        options: of the source, beside its file.
        tables: of a database with several, one of which has to be chosen.
        unsure: whether its first line may be names or a record, which has to be stated.
    """

    kind: str = "csv"
    names: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    tables: tuple[str, ...] = ()
    unsure: bool = False


FirstLine = Literal["names", "record"]
"""What the first line of a text file holds, as whoever has the file states it."""


def file_header(file: Path, first: FirstLine | None = None) -> Header:
    """Return the public form of a file, folder or pattern.

    It is that of ``io/ingest.md``, "Form". A spec is public, and the first line of a text file could be a
    record: lines of JSON have no names, and of a table the names are returned where ``first`` states
    them, or where they are unlike what stands below them. A few lines are looked at for that: some name
    has only numbers or dates below it, and none stands in its own column again. Of all else nothing is
    returned but ``unsure``.
    """
    file = _first_of(file)
    kind = kind_by_name(file) or kind_by_bytes(file) or _ENDINGS.get(file.suffix.lower(), "csv")
    if kind in ("parquet", "arrow"):
        return Header(kind, _stored_names(file, kind))
    if kind == "sql":
        tables: dict[str, list[str]] = {}
        with suppress(SimError):  # told where the file is opened
            tables = tables_of(file)
        if len(tables) == 1:
            ((name, columns),) = tables.items()
            return Header(kind, tuple(columns), {"table": name})
        return Header(kind, (), {"table": "???"}, tuple(tables))
    return _text_header(file, first) if kind == "csv" else Header(kind)


def _first_of(file: Path) -> Path:
    """Return a folder's or a pattern's first file, or the path."""
    with suppress(OSError, ValueError):
        inside = file.rglob("*") if file.is_dir() else file.parent.glob(file.name)
        found = sorted(path for path in inside if kind_by_name(path) and path.is_file())
        return found[0] if found and not file.is_file() else file
    return file


_ENDINGS = dict.fromkeys((".duckdb", ".sqlite", ".sqlite3", ".db"), "sql") | {".json": "jsonl"}
"""Kinds of files of which folders are not read."""


_ROWS = 64
"""Lines below the first that are looked at."""
_COUNTED = re.compile(r"[\s\d.,:/+\-'%()eETZ]*\d[\s\d.,:/+\-'%()eETZ]*")
"""Numbers, dates and times, in any notation."""
_NO_VALUE = frozenset(
    {
        "",
        "-",
        ".",
        "?",
        "na",
        "n/a",
        "nan",
        "nil",
        "null",
        "none",
        "missing",
        "unknown",
        "true",
        "false",
    }
)
"""Cells that stand in a column of numbers without being names."""


def _text_header(file: Path, first: FirstLine | None) -> Header:
    try:
        with regular(file).open("rb") as opened, decompressed(FileOptions(file, {}), opened) as raw:
            lines = [raw.readline(_LINE).removeprefix(b"\xef\xbb\xbf") for _ in range(_ROWS)]
    except (OSError, ValueError, EOFError, SimError):
        return Header()
    del lines[: lines[0].lower().startswith((b"sep=", b'"sep='))]
    line = (decode_text(lines[0]) or "").splitlines()[:1]
    delimiter = max(",;\t|", key="".join(line).count)
    options = {"delimiter": delimiter} if delimiter != "," else {}
    header, *rows = _cells("".join(line), delimiter), *_table(lines[1:], delimiter)
    names = [cell for cell in header if cell]
    if len(names) < 2 or len(set(names)) < len(names):
        return Header()
    if first == "record":
        return Header("csv", (), options | {"header": "???"})
    numbers = any(abs(real(name)) < float("inf") for name in names)
    json_like = "".join(line).lstrip().startswith(("{", "["))
    if first is None and (numbers or json_like or not _is_apart(header, rows)):
        return Header("csv", (), options, unsure=not json_like)
    return Header("csv", tuple(names), options)


def _table(lines: Sequence[bytes], delimiter: str) -> Iterator[list[str]]:
    """Yield the cells of lines, as far as they can be read."""
    for line in (decode_text(b"".join(lines)) or "").splitlines():
        yield _cells(line, delimiter)


def _cells(line: str, delimiter: str) -> list[str]:
    with suppress(csv.Error):
        return [
            cell.strip() for cell in next(csv.reader([line], delimiter=delimiter, strict=True), [])
        ]
    return []


def _is_apart(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Return whether a first line is unlike the lines below it.

    It is where at least two columns hold numbers, and each of these has a name above it. One
    column is not enough: a record may lack its number.
    """
    named = []
    for at, name in enumerate(header):
        below = [row[at] for row in rows if len(row) == len(header)]
        if name and name in below:
            return False
        given = [cell for cell in below if cell.lower() not in _NO_VALUE]
        if given and all(map(_COUNTED.fullmatch, given)):
            named.append(name.lower() not in _NO_VALUE and not _COUNTED.fullmatch(name))
    return len(named) > 1 and all(named)


def _stored_names(file: Path, kind: str) -> tuple[str, ...]:
    """Return the column names in a file's schema."""
    with suppress(Exception):  # told where the file is opened
        from pyarrow import dataset  # noqa: PLC0415 - an extra

        form = "parquet" if kind == "parquet" else "ipc"
        return tuple(map(str, dataset.dataset(regular(file), format=form).schema.names))
    return ()


# --------------------------------------------------------------------------------------------------


def recipe_text(
    recipe: str,
    data: str | None,
    blank: str,
    header: Header | None = None,
    *,
    size: int | None = None,
    epsilon: float = 1.0,
) -> str:
    """Return a recipe's spec, its ``data`` a hole without a file.

    The mechanism and its numbers are those of the least predicted error (``sim.recommend``).

    Args:
        recipe: one of ``RECIPES``.
        data: the file of the records.
        blank: the template of ``blank``.
        header: what is publicly known of the file.
        size: about how many records, from public knowledge; ``SUPPOSED`` where it is left out.
        epsilon: of one run.
    """
    header = header or Header(kind_by_name(data or "") or "csv")
    names = header.names
    if recipe == "blank":
        return blank
    form, roles = _FORMS[recipe], _Roles.of(names)
    person = roles.person or ("person" if form.item and not names else None)
    person = person and _quoted(person)
    label, item = _quoted(roles.label or "kind"), _quoted(roles.item or "item")
    others = list(roles.others)
    shown = [_typed(name) for name in roles.features or ("a", "b")]
    if not form.label and roles.label:
        others.append(roles.label)
    if not form.item and roles.item:
        others.append(roles.item)
    lines = []
    if person:
        lines.append(f"{person}: {{dtype: str, role: privacy_id}}   # whom a record is about")
    if form.item:
        lines.append(f"{item}: {{dtype: str}}   # or keys, where every item is publicly known")
        others += [name for name, _ in shown] if roles.features else []
        if roles.label:
            others.append(roles.label)
    else:
        told = [f"{_quoted(name)}: {{dtype: {dtype}, bounds: [???, ???]}}" for name, dtype in shown]
        told[0] += "   # from public knowledge, never from the data"
        lines += told
    if form.label:
        lines.append(
            f"{label}: {{dtype: category, keys: [???, ???]}}   # every class that could occur"
            + "; the header names no class: write its column's name, here and in `select`"
            * bool(names and not roles.label)
        )
    lines += [f"# {_quoted(name)}: ???   # left out: no number by its name" for name in others]
    features = ", ".join(_quoted(name) for name, _ in shown)
    steps = {
        "SELECT": f"features: [{features}]" + f", label: {label}" * form.label,
        "BITS": str(grid_bits(sum(_width(dtype) for _, dtype in shown))),
        "ITEM": item,
        "LABEL": label,
    }
    steps["FIRST"] = _PERSONS * bool(person) + _put(_FIRST, steps)
    width = sum(_width(dtype) for _, dtype in shown)
    steps["SIZE"] = "???" if size is None else str(size)
    if "<WHY>" in form.flow:
        question = _ASKED.get(recipe, recipe)
        of = 1 if form.item else width
        steps["SKETCH"], why = _chosen(question, of, size or SUPPOSED, epsilon)
        why += " (each person has one row)" if person and not form.item else ""
        why += " (at the whole budget; here it has half)" if recipe == "dashboard" else ""
        steps["WHY"] = _why(why, supposed=size is None and recipe != "regression")
    return _put(
        _SPEC,
        {
            "SOURCE": _source(data, header),
            "NAMED": "from the file's header: remove those that are not used, here and in `select`"
            if names
            else "call them what your columns are called",
            "COLUMNS": "".join(f"      {line}\n" for line in lines),
            "UNIT": person or "row",
            "UNITNOTE": "the person: with and without all of their rows"
            if person
            else "or a column of role privacy_id: `opendp-sim explain unit`",
            "MEASURE": form.measure,
            "EPSILON": repr(float(epsilon)),
            "FLOW": _put(form.flow, steps),
            "OUTPUTS": form.outputs,
            "RECOMMEND": _recommended(recipe, width, size, epsilon),
            "THEN": form.then or "the file out/release.json is the answer",
        },
    )


_ASKED = {"dashboard": "density", "audit": "means"}
"""Questions of recipes that have another name."""


SUPPOSED = 10_000
"""Records that a recipe's numbers are chosen for where no size is stated."""
_NEAR = 0.07
"""The bandwidth of a template's densities, in ranges."""
_MOST = 2**13
"""Frequencies and their like that a template takes at most: more were not measured, and take time."""


@cache
def _chosen(question: str, width: int, size: int, epsilon: float) -> tuple[str, str]:
    """Return the step of the least predicted error, and why."""
    near = _NEAR if question in ("density", "classes") else None
    found = recommend(question, width, size=size, bandwidth=near, most=_MOST, epsilon=epsilon)
    if not found.candidates:
        return "", "no plan knows its error; it has less than the others where measured"
    best = found.best
    others = {one.mechanism: one for one in reversed(found.candidates)}
    beside = [
        f"{one.mechanism} {_error(one)}" for one in found.candidates if one in others.values()
    ]
    beside = [told for told in beside if not told.startswith(best.mechanism)]
    told = f"95% of answers within {_error(best)}, {best.reason}"
    if question == "top":
        told, beside = best.reason, [f"by {one}" for one in beside]
    than = f"; {', '.join(beside)}" if beside else ""
    step, grown = best.step, ""
    if (
        question == "density"
        and "fourier_sketch" in step
        and with_moments("auto", width, pure=False)
    ):
        step = {"fourier_sketch": {**step["fourier_sketch"], "moments": True}}
        grown = "; less with points grown from `moments`"
    given = f"with about {size:,} rows at epsilon {number_text(epsilon)}"
    return _inline(step), f"{given} {told}{than}{grown}"


def _error(one: Candidate) -> str:
    """Return a candidate's error; columns have their own ranges here."""
    return (
        f"{few_digits(one.error or 0.0)} {one.unit.replace('units of the columns', 'of a range')}"
    )


def _why(told: str, *, supposed: bool) -> str:
    """Return comments of a stage that say why its mechanism is taken."""
    more = "; `init --size` states how many there are" if supposed else ""
    lines = textwrap.wrap(f"by `recommend`: {told}{more}", 100, break_on_hyphens=False)
    return "".join(f"    # {line}\n" for line in lines)


def _inline(step: Mapping[str, Any]) -> str:
    """Return a step in one line of YAML."""
    ((key, words),) = step.items()
    return f"{key}: {_flow(words)}"


def _flow(value: Any) -> str:
    if not isinstance(value, Mapping):
        return json.dumps(value)
    return f"{{{', '.join(f'{name}: {_flow(one)}' for name, one in value.items())}}}"


def _recommended(recipe: str, width: int, size: int | None, epsilon: float) -> str:
    """Return the command that ranks a recipe's mechanisms."""
    columns = "" if recipe == "top" else f" --columns {width}"
    budget = "" if epsilon == 1.0 else f" --epsilon {number_text(epsilon)}"
    asked = _ASKED.get(recipe, recipe)
    return f"opendp-sim recommend {asked}{columns} --size {size or 'HOW_MANY'}{budget}"


def _put(text: str, parts: Mapping[str, str]) -> str:
    """Return a text with its marks ``<NAME>`` replaced, once."""
    return re.sub(r"<([A-Z]+)>", lambda found: parts[found[1]], text)


def _typed(name: str) -> tuple[str, str]:
    """Return a feature's name and dtype."""
    found = _OF_VECTOR.fullmatch(name)
    return (found[1], f'"array[f64, {found[2]}]"') if found else (name, "float64")


def _width(dtype: str) -> int:
    """Return the numbers of a dtype that ``_typed`` gives."""
    return int(dtype.rpartition(", ")[2][:-2]) if ", " in dtype else 1


def _quoted(name: str) -> str:
    return name if _SIMPLE.fullmatch(name) else json.dumps(name)


def _source(data: str | None, header: Header) -> str:
    """Return a source's kind and place."""
    place = data or "???"
    options = "".join(
        f", {name}: {value if value == '???' else json.dumps(value)}"
        for name, value in header.options.items()
    )
    return f"{header.kind}: {{file: {place}{options}}}" if options else f"{header.kind}: {place}"
