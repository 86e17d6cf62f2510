"""The programs that answer for the proofs, compiled from the committed OCaml where it can be had."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proofs.comparisons import Driver

EXTRACTED = Path(__file__).parents[2] / "proofs" / "extracted"


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    if (
        shutil.which("ocamlfind") is None
        or subprocess.run(
            ["ocamlfind", "query", "zarith"], capture_output=True, timeout=60, check=False
        ).returncode
    ):
        pytest.skip(
            "no OCaml with zarith: apt-get install ocaml-nox ocaml-findlib libzarith-ocaml-dev"
        )
    folder = tmp_path_factory.mktemp("extracted")
    for source in EXTRACTED.glob("*.ml"):
        shutil.copy(source, folder)
    made = []
    for name in ("sketches", "ledger"):
        subprocess.run(
            [
                "ocamlfind",
                "ocamlopt",
                "-w",
                "-a",
                "-package",
                "zarith",
                "-linkpkg",
                f"{name}.ml",
                f"drive_{name}.ml",
                "-o",
                name,
            ],
            cwd=folder,
            capture_output=True,
            timeout=120,
            check=True,
        )
        made.append(folder / name)
    return made


@pytest.fixture
def drivers(programs: list[Path]) -> Iterator[list[Driver]]:
    started = [Driver(program) for program in programs]
    yield started
    for driver in started:
        driver.close()
