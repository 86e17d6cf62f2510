"""Benchmarks import, figures have all their fields and cite commits that exist, the page is theirs."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from benchmarks import _results, audit_gallery, speed_lines
from opendp_sim.core.mechanism import REGISTRY

BENCH = Path(__file__).parents[1] / "benchmarks"


def test_every_benchmark_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """As scripts do, which find the others beside them; they run nothing but where they are the main one."""
    monkeypatch.syspath_prepend(str(BENCH))
    names = [path.stem for path in sorted(BENCH.glob("*.py"))]
    assert len(names) > 40
    failed = []
    for name in names:
        try:
            importlib.import_module(f"benchmarks.{name}")
        except Exception as error:  # noqa: BLE001 - all of them are told at once
            failed.append(f"{name}: {error}")
    assert not failed


def test_a_figure_has_its_value_base_commit_and_machine() -> None:
    found = _results.figures()
    assert len(found) > 50
    for name, figure in found.items():
        assert tuple(figure) == _results.FIELDS, name
        assert set(figure["about"]) <= set(REGISTRY), name
        empty = [
            field
            for field in ("what", "value", "base", "commit", "date", "machine")
            if not figure[field]
        ]
        assert not empty, name
        assert all("|" not in str(figure[field]) for field in ("what", "value", "base")), name


def test_the_page_is_made_of_the_figures() -> None:
    """`python -m benchmarks` writes it."""
    assert _results.PAGE.read_text("utf-8") == _results.page()
    assert _results.page().count("\n") <= 200


def test_every_line_of_the_speed_page_is_at_its_aim_or_has_a_reason() -> None:
    """`python -m benchmarks` writes the page."""
    text = speed_lines.page()
    assert speed_lines.PAGE.read_text("utf-8") == text
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][
        2:
    ]
    assert [row[0] for row in rows] == list(speed_lines.ABOUT)
    assert all(len(row) == 5 and all(row) for row in rows)
    assert all(row[4] == "at its aim" or float(row[2]) > float(row[3]) for row in rows)


@pytest.mark.parametrize(
    ("found", "fails"),
    [([2.5], False), ([2.7, 2.7, 2.7], True), ([2.7, 2.7, 2.5], False), ([9.0, 9.0, 9.0], True)],
)
def test_a_line_that_is_slower_three_times_fails_the_nightly_check(
    found: list[float],
    fails: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ratios = iter(found)
    monkeypatch.setattr(speed_lines, "lines", lambda _: {"a line": (int, int, 1.0)})
    monkeypatch.setattr(speed_lines, "recorded", lambda: {"a line": 2.0})
    monkeypatch.setattr(speed_lines, "turns", lambda *_: next(ratios))
    monkeypatch.setattr("sys.argv", ["speed_lines", "--check"])
    assert speed_lines.main() == fails
    assert ("slower than recorded: a line" in capsys.readouterr().out) == fails
    assert next(ratios, None) is None  # each was looked at


def test_the_page_of_famous_mistakes_is_made_of_its_figure() -> None:
    """`python benchmarks/audit_gallery.py --page` writes it."""
    assert audit_gallery.PAGE.read_text("utf-8") == audit_gallery.page()
    head, *rows = _results.figures()["audit/gallery"]["value"][0]
    assert head[3] == "verdict"
    assert sum(row[3] == "refuted" for row in rows) >= 20
    assert [row[2] for row in rows if "](http" not in row[1]] == []


def test_commits_that_are_cited_exist() -> None:
    assert len(_results.cited()) > 50
    assert _results.missing(_results.cited()) == []


def test_a_commit_that_does_not_exist_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    one = ("here", "0123456789abcdef0123")
    history = _results._git("rev-parse", "--is-shallow-repository").strip() == "false"
    assert _results.missing([one]) == ([one] if history else [])
    monkeypatch.setattr(_results, "_git", lambda *_, given="": "")
    assert _results.missing([one]) == []


def test_a_run_replaces_its_figure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_results, "RESULTS", tmp_path)
    text = (
        "words\n\n" + _results.table(["what", "ours"], [["build", 0.25], ["query", 2.0]]) + "\nend"
    )
    _results.write_figure("room/one", text, "python x.py --write")
    (figure,) = _results.figures(tmp_path).values()
    assert tuple(figure) == _results.FIELDS
    assert figure["value"] == [[["what", "ours"], ["build", "0.25"], ["query", "2"]]]
    assert _results.shown(figure["value"]) == "what build; ours 0.25"
