#!/usr/bin/env python3
"""Compile the proofs from a clean state and refuse what is not proved; needs Coq and Python alone."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXTRACTED = HERE / "extracted"
# What tests/proofs compares with the code: imports, how nat is stored, the functions of a file.
EXTRACTIONS = {
    "sketches": (
        "top_k executable selection_draws sketch_claims bounded_sketches",
        "ExtrOcamlNatInt ExtrOcamlZBigInt",
        (
            "fewest_steps race_cells tree_cells threshold_cells moment_cells products kthb topb "
            "kept_rows utilities penalty_of absent settled blocks_claim products_claim after_chain "
            "fourier_claim gauss_claim moments_claim"
        ),
    ),
    "ledger": (
        "ledger executable",
        "ExtrOcamlNatBigInt",
        "purse_after exec init spent store_exec store_start charges",
    ),
}
# Of Coq's own theory of real numbers; only the file of real orders may rest on them.
OF_THE_REALS = {
    "ClassicalDedekindReals.sig_not_dec",
    "ClassicalDedekindReals.sig_forall_dec",
    "FunctionalExtensionality.functional_extensionality_dep",
    "Classical_Prop.classic",
}
MAY_REST_ON = {"real_orders": OF_THE_REALS}
CLOSED = "Closed under the global context"
REFUSED = re.compile(
    r"\b(Admitted|admit|Axioms?|Parameters?|Conjecture|bypass_check|Unset Guard Checking)\b"
)
STATED = re.compile(r"^(?:Theorem|Corollary|Example)\s+(\w+)", re.MULTILINE)
NEEDED = re.compile(r"^From Proofs Require Import ([\w ]+)\.", re.MULTILINE)


def theorems(source: Path) -> list[str]:
    """List the names that a file states as Theorem, Corollary or Example."""
    return STATED.findall(re.sub(r"\(\*.*?\*\)", "", source.read_text(), flags=re.DOTALL))


def in_order(sources: list[Path]) -> list[Path]:
    """Sort files so that each stands behind those that it imports."""
    needs = {
        s: {n for line in NEEDED.findall(s.read_text()) for n in line.split()} for s in sources
    }
    done: list[Path] = []
    while len(done) < len(sources):
        have = {s.stem for s in done}
        ready = [s for s in sources if s not in done and needs[s] <= have]
        if not ready:
            raise SystemExit(f"imports that are missing or go in circles: {set(needs) - set(done)}")
        done.append(ready[0])
    return done


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, and end with its output where it fails."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=900, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done


def compiled(folder: Path, source: Path, names: list[str]) -> set[str]:
    """Compile a copy of a file that asks for its theorems' axioms, and return them."""
    asked = [f"Print Assumptions {name}." for name in names]
    (folder / source.name).write_text("\n".join([source.read_text(), *asked, ""]))
    said = run(folder, "coqc", "-q", "-Q", ".", "Proofs", source.name).stdout
    if said.count(CLOSED) + said.count("Axioms:") != len(names):
        raise SystemExit(f"{source.name}: not every theorem has an answer:\n{said}")
    return axioms(said)


def axioms(said: str) -> set[str]:
    """Return the names that an answer to Print Assumptions begins its lines with."""
    lines = said.replace(CLOSED, "").splitlines()
    return {line.split()[0] for line in lines if line[:1].strip() and line != "Axioms:"}


def extract(folder: Path, *, write: bool) -> None:
    """Extract the functions that run again, and compare them with the committed OCaml or write it."""
    for name, (imports, numbers, functions) in EXTRACTIONS.items():
        (folder / f"extract_{name}.v").write_text(
            f"From Proofs Require Import {imports}.\n"
            f"Require Extraction ExtrOcamlBasic {numbers}.\nExtraction Language OCaml.\n"
            f'Extraction "{name}.ml" {functions}.\n'
        )
        run(folder, "coqc", "-q", "-Q", ".", "Proofs", f"extract_{name}.v")
        made, kept = (folder / f"{name}.ml").read_text(), EXTRACTED / f"{name}.ml"
        if write:
            kept.write_text(made)
        elif kept.read_text() != made:
            raise SystemExit(f"{kept} is not what the proofs give: python3 proofs/check.py --write")


def main() -> None:
    """Compile every file in a new folder, then ask Coq and its checker what the theorems rest on."""
    sources = in_order(sorted(HERE.glob("*.v")))
    for source in sources:
        found = REFUSED.search(re.sub(r"\(\*.*?\*\)", "", source.read_text(), flags=re.DOTALL))
        if found:
            raise SystemExit(f"{source.name} has the word {found.group()}")
    with tempfile.TemporaryDirectory() as name:
        folder, count = Path(name), 0
        for source in sources:
            names = theorems(source)
            extra = compiled(folder, source, names) - MAY_REST_ON.get(source.stem, set())
            if extra:
                raise SystemExit(f"{source.name} rests on {sorted(extra)}")
            print(f"{source.name}: {len(names)} theorems", flush=True)
            count += len(names)
        extract(folder, write="--write" in sys.argv)
        checked = [f"Proofs.{s.stem}" for s in sources if s.stem not in MAY_REST_ON]
        done = run(folder, "coqchk", "-silent", "-o", "-Q", ".", "Proofs", *checked)
        said = done.stdout + done.stderr
        if not re.search(r"\* Axioms:\s*<none>", said):
            raise SystemExit(f"coqchk finds axioms:\n{said}")
    print(f"{count} theorems in {len(sources)} files; coqchk: no axiom in {len(checked)} of them")


if __name__ == "__main__":
    sys.exit(main())
