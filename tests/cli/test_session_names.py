"""Names in session lines go through the door of files: without blanks, never empty, of the declared kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opendp_sim.core.errors import DataError
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.dsl.run.session import Served, serve
from tests.cli.test_session_cli import PEOPLE

HERE = {"x": [0.1, 0.2], "kind": "a"}


def opened(folder: Path, dtype: str, names: Any, **ingest: Any) -> Served:
    np.savez(
        folder / "people.npz",
        x=np.tile([[0.1, 0.2]], (len(names), 1)),
        kind=np.array(["a", "b"])[np.arange(len(names)) % 2],
        who=np.array(names),
    )
    spec = PEOPLE.replace("who: {dtype: str", f"who: {{dtype: {dtype}")
    spec = spec.replace(
        "    ledger: {file: ledger.jsonl, limit: {rho: 1.0}}\n", "    ingest: enforce\n"
    )
    (folder / "people.yaml").write_text(spec)
    return serve(plan_file(folder / "people.yaml"))


def purses(served: Served) -> int:
    return len(served.session._service._purses.snapshot())


def alive(served: Served) -> int:
    return int(served.session._service._pool.alive.sum())


@pytest.mark.parametrize("name", ["", "  ", None, 5, ["p1"], True])
def test_nobody_is_no_person(tmp_path: Path, name: Any) -> None:
    with opened(tmp_path, "str", ["p1", "p2"]) as served:
        for what, value in (("insert", [HERE | {"who": name}]), ("delete", [name])):
            with pytest.raises(DataError, match="OS607"):
                served.update(what, value)
        assert (purses(served), alive(served)) == (2, 2)


@pytest.mark.parametrize(
    ("dtype", "names", "good", "foreign"),
    [("str", ["p1", "p2"], "p9", 5), ("int64", [1, 2], 9, "5")],
)
@pytest.mark.parametrize("met", [True, False])
def test_the_declaration_says_which_ids_are_refused(
    tmp_path: Path, dtype: str, names: list[Any], good: Any, foreign: Any, met: bool
) -> None:
    """Before, an id of the other kind was refused once anybody had been met, and taken until then."""
    kept = names if met else np.array(names)[:0]
    with opened(tmp_path, dtype, kept) as served:
        served.session.delete([good])
        served.session.delete(np.array([good]))
        with pytest.raises(DataError, match="OS607"):
            served.session.delete([foreign])
