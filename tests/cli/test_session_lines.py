"""Whatever comes in as a line, a session answers one line, and never with a code OS9xx."""

from __future__ import annotations

import io
import json
import random
import time

import numpy as np

from opendp_sim.cli.session import _converse
from opendp_sim.dsl.plan import plan_file
from opendp_sim.dsl.serve import serve
from tests._edits import edited, scratched
from tests.cli.test_session_cli import PEOPLE

LINES = (
    {"query": [0.5, 0.5]},
    {"query": {"x": [0.5, 0.4]}, "id": "second"},
    {"queries": [[0.5, 0.5], [-0.5, 0.2]]},
    {"insert": [{"x": [0.1, 0.2], "kind": "a", "who": "p700"}]},
    {"relabel": [{"x": [0.1, 0.2], "kind": "b", "who": "p700"}]},
    {"delete": ["p700"]},
    {"reference": [[0.1, 0.2], [0.3, 0.4]]},
)


def timed(lines, took):
    """Yield lines, and note how long each took to be answered."""
    for line in lines:
        start = time.process_time()
        yield line
        took.append(time.process_time() - start)


def campaign(folder, seeds, took):
    """Send edited lines; return the codes that came back."""
    rng = np.random.default_rng(1)
    np.savez(
        folder / "people.npz",
        x=rng.uniform(-1, 1, (60, 2)),
        kind=np.array(["a", "b"])[rng.integers(0, 2, 60)],
        who=np.array([f"p{i // 2}" for i in range(60)]),
    )
    (folder / "people.yaml").write_text(PEOPLE)
    lines = []
    for seed in seeds:
        pick = random.Random(f"line {seed}")  # noqa: S311 - which edit
        line = pick.choice(LINES)
        raw = (
            json.dumps(edited(pick, line)).encode()
            if seed % 2
            else scratched(pick, json.dumps(line).encode())
        )
        text = raw.replace(b"\n", b" ").replace(b"\r", b" ").decode(errors="surrogateescape")
        if text.strip():
            lines.append(text + "\n")
    out = io.StringIO()
    with serve(plan_file(folder / "people.yaml")) as served:
        _converse(served, timed(lines, took), out, updates=True)
        answers = [json.loads(line) for line in out.getvalue().splitlines()]
        assert len(answers) == len(lines)
        codes = [answer.get("error", {}).get("code", "fine") for answer in answers]
        served.ask([[0.5, 0.5]])
    return codes


def test_an_edited_line_gets_one_coded_answer(tmp_path):
    took = []
    codes = campaign(tmp_path, range(150), took)
    assert max(took) < 5
    assert not [code for code in codes if code.startswith(("OS9", "OS407", "OS406"))]
    assert codes.count("fine") >= 10
    assert "OS607" in codes
