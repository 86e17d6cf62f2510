"""BLAS may raise floating-point flags for padding that nobody reads: no product of ours asks them."""

from __future__ import annotations

import ast
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import opendp_sim
from opendp_sim.core.arithmetic import linear, matrix_product, row_products
from opendp_sim.core.arithmetic.grid import PhaseProjection
from opendp_sim.measurements.linear._impl import whitening

HOUSE = Path(opendp_sim.__file__).parent
FLAGGED = {"matmul", "vecdot", "matvec", "vecmat"}
"""The ufuncs of numpy that call BLAS and look at the flags; ``dot`` does not look."""


def flagged_products(path: Path) -> list[int]:
    text = path.read_text("utf-8")
    if not re.search(r"\S[ \t]*@|@ |" + "|".join(FLAGGED), text):
        return []
    return sorted(
        node.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(getattr(node, "op", None), ast.MatMult)
        or (isinstance(node, ast.Attribute) and node.attr in FLAGGED)
    )


def test_no_other_file_calls_a_product_that_asks_the_flags():
    own = Path(matrix_product.__file__)
    found = {str(path): flagged_products(path) for path in HOUSE.rglob("*.py") if path != own}
    assert not {path: lines for path, lines in found.items() if lines}
    assert len(flagged_products(own)) == 2


def test_the_scan_sees_what_it_looks_for(tmp_path):
    (tmp_path / "x.py").write_text(
        "a = b @ c\na @= b\nnp.matmul(a, b)\nnp.vecdot(a, b)\na.dot(b)\n"
    )
    assert flagged_products(tmp_path / "x.py") == [1, 2, 3, 4]


@pytest.fixture
def flagging(monkeypatch):
    """Kernels that flag an invalid operation, as some do that work on uninitialised padding."""
    calls = []

    def noisy(kernel):
        def called(*given, **named):
            calls.append(kernel)
            np.subtract(np.array(np.inf), np.array(np.inf))
            return kernel(*given, **named)

        return called

    for name in ("matmul", "vecdot"):
        monkeypatch.setattr(np, name, noisy(getattr(np, name)))
    return calls


def grid_ids(rows):
    projection = PhaseProjection.fit(0.3 * np.eye(3), np.zeros(3), 7, "test")
    return [projection.ids(rows), projection.phases(rows), projection.far_ids(9 * rows)]


@pytest.mark.parametrize(
    "work",
    [
        lambda rows: row_products.exact_products(rows, rows),
        row_products.squared_norms,
        lambda rows: linear.integer_gram(rows, 7),
        lambda rows: linear.table_product(rows.astype(np.int64), rows.astype(np.int64).T),
        lambda rows: linear.public_product(rows, rows.T),
        lambda rows: whitening.whitened(rows.astype(np.float32), np.eye(3, dtype=np.int64)),
        grid_ids,
    ],
)
def test_a_flag_of_the_kernel_is_no_warning(flagging, work):
    rows = np.array([[7.0, 1.0, -1.0], [2.0, 3.0, 0.0]])
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        found = work(rows)
    assert flagging
    assert all(np.isfinite(part).all() for part in np.array(found)[None])
