"""The house in numbers: files, lines, long files, lines kept from the formatter, circles, tests, start-up.

``--beside REV`` measures an older state of this repository in the same run.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks._results import parser, table, write_section
from tests.test_circles import needed

ROOT = Path(__file__).parents[1]
SPEC = "tests/golden/small.yaml"
RUN = "import sys; sys.argv[1:] = {}; from opendp_sim.cli import main; main()"
STARTS = {
    "`import opendp_sim`, CPU seconds": "import opendp_sim",
    "`opendp-sim --help`": RUN.format(["--help"]),
    "`opendp-sim check`": RUN.format(["check", SPEC]),
    "`opendp-sim plan`": RUN.format(["plan", SPEC]),
}


def sources(root: Path, folder: str) -> list[Path]:
    """Return the Python files of a folder."""
    return sorted((root / folder).rglob("*.py"))


def undocumented(root: Path) -> int:
    """Count public modules, classes and functions of the package that have no docstring."""
    count = 0
    for file in sources(root, "opendp_sim"):
        if file.name.startswith("_") and file.name != "__init__.py":
            continue
        tree = ast.parse(file.read_text("utf-8"))
        nodes = [tree, *(n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef))]
        public = [n for n in nodes if not getattr(n, "name", "x").startswith("_")]
        count += sum(ast.get_docstring(node) is None for node in public)
    return count


def named(root: Path) -> dict[str, Path]:
    """Return the modules of the package by their dotted names."""
    files = (f for f in sources(root, "opendp_sim") if f.name != "__init__.py")
    return {".".join(f.relative_to(root).with_suffix("").parts): f for f in files}


def in_circles(root: Path) -> int:
    """Count modules that need themselves through others, at the time of a call too."""
    known = named(root)
    needs = {
        name: {each for each in needed(ast.parse(file.read_text("utf-8"))) if each in known}
        - {name}
        for name, file in known.items()
    }
    for name in known:  # Warshall: what is reached through one more module
        for other in known:
            if name in needs[other]:
                needs[other] |= needs[name]
    return sum(name in reached for name, reached in needs.items())


def untested(root: Path) -> int:
    """Count modules that no test imports by name and that have no test file of their own name."""
    tests = list(sources(root, "tests"))
    imported = {name for file in tests for name in needed(ast.parse(file.read_text("utf-8")))}
    own = {file.stem.removeprefix("test_") for file in tests}
    return sum(
        name not in imported and name.rpartition(".")[2].strip("_") not in own
        for name in named(root)
    )


def cpu_seconds(root: Path, code: str, runs: int) -> float:
    """Return the least CPU seconds of a fresh interpreter over several runs, with compiled modules."""
    found = []
    for _ in range(runs):
        before = os.times()
        env = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": ""}
        subprocess.run(
            [sys.executable, "-c", code], cwd=root, env=env, capture_output=True, check=False
        )
        after = os.times()
        found.append(sum(after[2:4]) - sum(before[2:4]))
    return min(found)


def facts(root: Path, runs: int) -> Iterator[tuple[str, object]]:
    """Yield each name and figure of the table."""
    ours, tests = sources(root, "opendp_sim"), sources(root, "tests")
    lengths = [len(file.read_text("utf-8").splitlines()) for file in ours]
    yield "files of the package", len(ours)
    yield "lines of the package", sum(lengths)
    yield "lines a file, mean", sum(lengths) / len(lengths)
    yield "files above 250 lines", sum(length > 250 for length in lengths)
    yield "files above 300 lines", sum(length > 300 for length in lengths)
    marks = sum(file.read_text("utf-8").count("# fmt: " + "skip") for file in (*ours, *tests))
    yield "lines kept from the formatter", marks
    yield "the same in 1,000 lines of the package", 1000 * marks / sum(lengths)
    yield "public names without a docstring", undocumented(root)
    yield "modules in import circles", in_circles(root)
    yield "modules that no test imports or is named after", untested(root)
    for name, code in STARTS.items():
        yield name, cpu_seconds(root, code, runs)


def main() -> None:
    """Print the table; with ``--write``, put it into RESULTS.md."""
    options = parser(__doc__ or "")
    options.add_argument("--beside", metavar="REV", help="an older revision, measured too")
    options.add_argument("--runs", type=int, default=5, help="runs of each start; the least counts")
    given = options.parse_args()
    now = dict(facts(ROOT, given.runs))
    head, rows = ["", "now"], [[name, value] for name, value in now.items()]
    if given.beside:
        with tempfile.TemporaryDirectory() as folder:
            older = Path(folder) / "older"
            subprocess.run(
                ["git", "worktree", "add", "--detach", older, given.beside], cwd=ROOT, check=True
            )
            try:
                then = dict(facts(older, given.runs))
            finally:
                subprocess.run(
                    ["git", "worktree", "remove", "--force", older], cwd=ROOT, check=True
                )
        head, rows = ["", given.beside, "now"], [[n, then.get(n, ""), v] for n, v in now.items()]
    text = table(head, rows)
    print(text)
    if given.write:
        beside = f" --beside {given.beside}" if given.beside else ""
        write_section("house", text, f"python -m benchmarks.house{beside}")


if __name__ == "__main__":
    main()
