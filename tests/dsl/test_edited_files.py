"""Edited, cut and foreign files of every format end in a coded refusal (tests/bench has the campaign)."""

from __future__ import annotations

import random

import pytest

from tests._edits import Files, fault_of


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Files(tmp_path_factory.mktemp("files"))


@pytest.mark.parametrize("kind", ["spec", "certificate", "certificate, bytes", "plan", "release", "release, bytes",
                                  "ledger", "ledger, bytes", "store", "store, bytes"])  # fmt: skip
def test_an_edit_ends_in_a_code(files, kind):
    name, edit, read = files.kinds()[kind]
    refused = 0
    for seed in range(12):
        edit(random.Random(f"{kind} {seed}"))  # noqa: S311 - which edit
        refused += fault_of(read) is not None
        files.restore(name)
    assert refused >= 3
    assert fault_of(read) is None  # the genuine file passes
