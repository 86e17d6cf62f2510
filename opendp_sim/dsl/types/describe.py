"""Types as plain JSON, for the plan and ``types``; a memory estimate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.lazy_matrices import Drawn
from opendp_sim.core.arithmetic.rounding import float_up, sqrt_up
from opendp_sim.core.claims import Stable
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.frame import frame_text
from opendp_sim.domains.metrics import VectorNorm
from opendp_sim.domains.records import Column, Records
from opendp_sim.domains.rows import GridRows, RealRows
from opendp_sim.domains.sketch import Sketch
from opendp_sim.dsl.grammar.program import DataEntry
from opendp_sim.dsl.types.records import Typed
from opendp_sim.io.blocks import block_rows, piece_rows, rows_at_once, rows_to_join, widest


def stage_plain(typed: Typed) -> dict[str, Any]:
    """Return the type of a stage as plain JSON."""
    sensitivity = typed.sensitivity
    return {
        "from": typed.decl.source,
        "source": typed.entry.name,
        "public": typed.entry.public,
        "own_steps": len(typed.decl.steps),
        "steps": [
            {
                "step": stage.mechanism.key,
                "type": domain_text(stage.claim.output),
                "expected": {k: float(v) for k, v in stage.claim.expected.items()},
                **({"advice": list(stage.claim.advice)} if stage.claim.advice else {}),
            }
            for stage in typed.stages
            if isinstance(stage.claim, Stable)
        ],
        "type": domain_text(typed.domain),
        "metric": metric_text(typed.metric),
        "stability": typed.stability,
        "faces": None  # the word of the first certificates, which are read again
        if sensitivity is None
        else {
            "l1": float_up(sensitivity.l1),
            "l2": sqrt_up(sensitivity.l2_squared),
            "linf": float_up(sensitivity.linf),
            "monotone": sensitivity.monotone,
        },
        "numerics": typed.numerics,
        "evidence": typed.evidence,
        "released": typed.release is not None,
    }


def domain_text(domain: Domain) -> str:
    """Say a domain in one line."""
    if isinstance(domain, Records):
        # By name: a program's hash does not depend on the order of its columns, nor may its text.
        columns = sorted(domain.columns, key=lambda column: column.name)
        return "records{" + ", ".join(f"{c.name}: {c.dtype}" for c in columns) + "}"
    if isinstance(domain, GridRows):
        return (
            f"grid rows{{{domain.width} columns of {_span(domain.lower, domain.upper)} steps of "
            f"{domain.unit:.6g}{_extras(domain)}}}"
        )
    if isinstance(domain, RealRows):
        bounds = f" in {_span(domain.lower, domain.upper)}" if domain.lower else ""
        norm = f", {domain.norm[0]} <= {domain.norm[1]:g}" if domain.norm else ""
        return f"real rows{{{domain.width} columns{bounds}{norm}{_extras(domain)}}}"
    if isinstance(domain, Sketch):
        blocks = ", ".join(
            f"{b.name} {'x'.join(map(str, b.shape))}" + (f" /{b.weight}" if b.weight != 1 else "")
            for b in domain.blocks
        )
        return f"sketch{{{blocks}; {domain.size:,} cells}}"
    shown = ", ".join(f"{f.name}={getattr(domain, f.name)!r}" for f in fields(domain))  # type: ignore[arg-type]
    return f"{type(domain).__name__}{{{shown[:160]}}}"


def keys_text(column: Column) -> str:
    """Return the number and kind of keys; another kind is no key."""
    text = [isinstance(key, str) for key in column.keys]
    kind = "texts" if all(text) else "texts and whole numbers" if any(text) else "whole numbers"
    return f"{len(text)} keys ({kind})"


def dropped(entry: DataEntry) -> str:
    """Return when ``ingest: enforce`` drops a record."""
    said = []
    for column in entry.records.columns:
        kind = column.numpy_dtype.kind
        if column.keys:
            said.append(f"{column.name} is not one of its {keys_text(column)}")
        else:
            what = "no text" if kind == "O" else "no whole number" if kind in "iu" else "not finite"
            said.append(f"{column.name} is {what if not column.is_vector else what + ' anywhere'}")
    return "where " + ", or ".join(said)


def _extras(rows: GridRows | RealRows) -> str:
    labels = f", {len(rows.labels)} labels" if rows.labels else ""
    return labels + (", with persons" if rows.ids else "") + frame_text(rows.frame)


def _span(lower: tuple[Any, ...], upper: tuple[Any, ...]) -> str:
    return f"[{min(lower):,g}, {max(upper):,g}]"


def metric_text(metric: Metric) -> str:
    """Say a metric in one line."""
    by = getattr(metric, "identifier_column", None)
    if by is not None:
        return f"distance by {by}"
    if isinstance(metric, VectorNorm):
        bound = "" if metric.touched is None else f", {metric.touched} cells a step at most"
        signs = ", monotone" if metric.monotone else ", in users" if metric.steps else ""
        return f"{metric.norm} distance{signs}{bound}"
    return {"Symmetric": "symmetric distance"}.get(type(metric).__name__, type(metric).__name__)


def _bytes_of(matrices: Sequence[NDArray[np.generic]]) -> int:
    if isinstance(matrices, Drawn):
        return matrices.nbytes
    return sum(matrix.nbytes for matrix in matrices)


# As measured (``tests/dsl/test_peak_memory.py``), over the process before it opened data.

_RUN = 8 * 2**20
"""What a run loads beside data: the ledger, the certificate, BLAS's threads."""
_LIBRARY = 34 * 2**20
"""What pyarrow takes as soon as it is loaded; Parquet and texts load more of it."""
_READERS = {
    "csv": _LIBRARY,
    "arrow": _LIBRARY + 12 * 2**20,
    "parquet": _LIBRARY + 12 * 2**20,
    "sql": _LIBRARY + 60 * 2**20,
}
"""What reading a file takes beside its blocks."""
_TEXTS = 34 * 2**20
"""pandas, which pyarrow loads, where it is installed, to make Python's texts."""
ROW_GROUP, _A_COLUMN = 2**24, 2**14
"""Bytes of a row group, and for each of its columns, that any reader of ``.parquet`` may hold."""
_TWO_READERS, _TWO_THREADS = 16, 10
"""Blocks of two threads: each with a reader of its own, as over ``.parquet``, or with one for both."""
_A_READER, _A_THREAD = 8, 5
"""Blocks of each further one."""
_PIECES = 3
"""Pieces of a file that a reader holds: as it unpacks them, as it stores them, and as columns."""


def memory_of(types: Iterable[Typed]) -> int:
    """Estimate a run's peak memory on two cores, in bytes.

    The public matrices, and the larger of two: while data is read, two vectors of cells for each
    released sketch (one a thread), ten copies of one block of the widest stage (sixteen where two
    threads read), what its readers take, and all rows of a public ``size`` where a mechanism needs
    them together; afterwards three vectors of cells (the sum, the noise, the file). A row group of a
    ``.parquet`` file that is larger than ``ROW_GROUP`` may take up to its own size more, a reader.
    """
    cells, matrices, block, held, reader = 0, 0, 0, 0, 0
    for typed in types:
        reader = max(reader, _reader(typed))
        for stage in typed.stages:
            claim = stage.claim
            if isinstance(claim, Stable):
                matrices = max(matrices, _bytes_of(claim.matrices))
        block = max(block, (_TWO_READERS if _cut(typed) else _TWO_THREADS) * _block(typed))
        if typed.release is not None and typed.is_sketch:
            cells += int(getattr(typed.domain, "size", 0))
        elif typed.release is not None:
            size = dict(typed.release.params).get("size") or 0
            held = max(held, 2 * int(size) * bytes_a_record(typed))
    return _RUN + matrices + max(3 * 8 * cells, 2 * 8 * cells + block + held + reader)


def memory_a_core(types: Iterable[Typed]) -> int:
    """Estimate a further thread's memory, its blocks and a sketch, in bytes."""
    found = list(types)
    cells = [8 * int(getattr(t.domain, "size", 0)) for t in found if t.is_sketch]
    blocks = [
        _A_READER * _block(t) + _pages(t) + _pieces(t) if _cut(t) else _A_THREAD * _block(t)
        for t in found
    ]
    return max(blocks, default=0) + max(cells, default=0)


def _cut(typed: Typed) -> bool:
    """Return whether each thread reads for itself."""
    return typed.entry.source.kind == "parquet"


def _pages(typed: Typed) -> int:
    """Return the bytes of a row group that one reader holds."""
    return ROW_GROUP + _A_COLUMN * sum(c.width for c in typed.entry.records.columns)


def _pieces(typed: Typed) -> int:
    """Return the bytes of a reader's pieces of a file."""
    records = typed.entry.records
    return _PIECES * 8 * piece_rows(records) * sum(c.width for c in records.columns)


def _reader(typed: Typed) -> int:
    """Return the bytes of a source's readers beside its blocks."""
    kind = typed.entry.source.kind
    found = _READERS.get(kind, 0) + (_pieces(typed) if kind in _READERS else 0)
    found += _pages(typed) * 2 + _pieces(typed) if _cut(typed) else 0
    texts = any(c.dtype == "str" or c.keys for c in typed.entry.records.columns)
    return found + (_TEXTS if texts and kind in ("parquet", "arrow") else 0)


def _block(typed: Typed) -> int:
    """Return the bytes of a block of the widest stage."""
    rows = max(block_rows(typed.entry.records), rows_to_join(typed.stages))
    rows = min(rows, rows_at_once(typed.stages))
    return 8 * rows * widest(typed.stages)[0]


def bytes_a_record(typed: Typed) -> int:
    """Return what a record of these rows takes, in bytes."""
    return 8 * int(getattr(typed.domain, "width", 0))
