"""The scripts of the reports to OpenDP show what the pages say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGES = Path(__file__).resolve().parents[2] / "opendp_sim/audit/upstream"


@pytest.mark.parametrize("name", ["metric_bounded", "squared_deviations", "b_ary_tree"])
def test_what_a_script_sees_is_more_than_the_claim(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (PAGES / f"{name}.md").read_text("utf-8")
    script = page.split("```python\n")[1].split("```")[0]
    exec(script, {})  # noqa: S102 - the script is the report
    told = capsys.readouterr().out
    claims = [float(v) for v in re.findall(r"claimed (\S+)", told)]
    seen = [float(v) for v in re.findall(r"seen (\S+)", told)]
    assert len(claims) == len(seen) >= 1
    assert all(a < b for a, b in zip(claims, seen, strict=True))


def test_every_page_is_in_the_table_and_stands_in_it_once() -> None:
    table = (PAGES / "README.md").read_text("utf-8")
    pages = sorted(p.name for p in PAGES.glob("*.md") if p.name != "README.md")
    assert sorted(re.findall(r"\]\((\w+\.md)\)", table)) == pages
