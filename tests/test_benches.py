"""Every benchmark can be imported: its names, and what it takes from the package, are still there."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "benchmarks"


def test_every_benchmark_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """As scripts do, which find the others beside them; they run nothing but where they are the main one."""
    monkeypatch.syspath_prepend(str(BENCH))
    names = [path.stem for path in sorted(BENCH.glob("*.py"))]
    assert len(names) > 60
    failed = []
    for name in names:
        try:
            importlib.import_module(f"benchmarks.{name}")
        except Exception as error:  # noqa: BLE001 - all of them are told at once
            failed.append(f"{name}: {error}")
    assert not failed
