"""Price a program, then release it, for a host in another environment.

Run by the Python of opendp_sim's environment. Lines of JSON go in and come out (`README.md`)::

    {"do": "price", "program": {...}} -> {"epsilon": 1.0, "delta": 0.0, "digest": "..."}
    {"do": "release", "digest": "...", "rows": {column: [...]}} -> {"answers": {question: {...}}}
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any

import numpy as np

import opendp_sim as sim

FIELDS = {"columns", "contributions", "measure", "budget", "steps", "release", "ask"}


def program_of(given: Mapping[str, Any], ledger: Mapping[str, Any] | None) -> str:
    """Return the spec of a request, which names no file of its own."""
    strange = set(given) ^ FIELDS
    if strange:
        raise ValueError(f"a program has the fields {', '.join(sorted(FIELDS))}")
    rows = {"source": {"memory": "rows"}, "columns": given["columns"], "ingest": "enforce"}
    if ledger is not None:
        rows["ledger"] = dict(ledger)
    unit = {"add_remove": given["contributions"], "of": "row"}
    stage = {"from": "rows", "steps": given["steps"], "release": given["release"]}
    spec = {
        "spec": "opendp_sim/2",
        "name": "hosted",
        "data": {"rows": rows},
        "privacy": {"unit": unit, "measure": given["measure"], "budget": given["budget"]},
        "flow": {"noisy": stage},
        "outputs": {"released": {"from": "noisy", "save": "released.npz"}},
    }
    return json.dumps(spec)


class Worker:
    """Hold one priced program at a time; release it once."""

    def __init__(self, ledger: Mapping[str, Any] | None = None) -> None:
        self.ledger = ledger
        self.priced: tuple[str, Any, Mapping[str, Any]] | None = None

    def answer(self, line: str) -> dict[str, Any]:
        """Return the reply to a line; a refusal has no word of the rows."""
        released = False
        try:
            asked = json.loads(line)
            released = asked["do"] == "release"
            return self.release(asked) if released else self.price(asked["program"])
        except sim.SimError as error:
            return {"refused": error.code if released else str(error)}
        except Exception as error:  # noqa: BLE001 - a host is told of the type alone
            return {"refused": type(error).__name__}

    def price(self, program: Mapping[str, Any]) -> dict[str, Any]:
        """Plan a program; no row has come yet."""
        self.priced = None
        text = program_of(program, self.ledger)
        plan = sim.plan(json.loads(text))
        claim = plan.total if plan.program.privacy.measure in ("pure", "approx") else plan.claim
        if claim is None:
            raise ValueError("rho and mu are no epsilon: a budget needs `epsilon` and `delta`")
        epsilon, delta = (*claim, 0.0)[:2]
        digest = hashlib.sha256(text.encode()).hexdigest()
        self.priced = digest, plan, program["ask"]
        return {"epsilon": epsilon, "delta": delta, "digest": digest}

    def release(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Release the priced program over the rows, and answer its questions."""
        if self.priced is None or asked["digest"] != self.priced[0]:
            raise ValueError("nothing of this digest was priced")
        (_, plan, questions), self.priced = self.priced, None
        with tempfile.TemporaryDirectory() as folder:
            rows = {name: np.asarray(column) for name, column in asked["rows"].items()}
            done = sim.apply(plan, {"rows": rows}, into=folder)
            release = sim.load(done.files["released"])
            tables = {
                name: release.ask(name, **parameters) for name, parameters in questions.items()
            }
        return {"answers": {name: _plain(table) for name, table in tables.items()}}


def _plain(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: np.asarray(column).tolist() for name, column in dict(table).items()}


def main() -> None:
    """Answer line after line until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--ledger",
        type=json.loads,
        help='charged too, as {"file": PATH, "limit": {"epsilon": 2.0}}',
    )
    worker, out = Worker(parser.parse_args().ledger), sys.stdout
    with redirect_stdout(sys.stderr):
        for line in sys.stdin:
            print(json.dumps(worker.answer(line)), file=out, flush=True)


if __name__ == "__main__":
    main()
