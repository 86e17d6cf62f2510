"""The page for users of other libraries: its blocks run, and the names that it gives are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import opendp_sim
from opendp_sim import sklearn as face

PAGE = (Path(opendp_sim.__file__).parent / "api" / "coming_from.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=["opendp", "diffprivlib", "tumult"])
def test_a_block_runs_in_an_empty_folder(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(block, {"__name__": "page"})  # noqa: S102 - the page's own text
    assert capsys.readouterr().out


def test_estimators_that_the_page_names_exist():
    for name in re.findall(r"`(DP\w+)`", PAGE):
        assert hasattr(face, name), name
