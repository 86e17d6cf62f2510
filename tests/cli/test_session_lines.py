"""Whatever comes in as a line, a session answers one line, and never with a code OS9xx."""

from __future__ import annotations

import io
import json
import os
import random
import sys
import time

import numpy as np
import pytest
import typer

from opendp_sim._entry import _open_streams
from opendp_sim.cli.session import _converse, _lines, _read, session_command
from opendp_sim.core.errors import SpecError
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.dsl.run.session import serve
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


def write_people(folder):
    rng = np.random.default_rng(1)
    np.savez(
        folder / "people.npz",
        x=rng.uniform(-1, 1, (60, 2)),
        kind=np.array(["a", "b"])[rng.integers(0, 2, 60)],
        who=np.array([f"p{i // 2}" for i in range(60)]),
    )
    (folder / "people.yaml").write_text(PEOPLE)


def campaign(folder, seeds, took):
    """Send edited lines; return the codes that came back."""
    write_people(folder)
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


class Endless:
    """A line without an end, of which at most some megabytes are asked for."""

    def __init__(self, whole):
        self.left, self.asked = whole, 0

    def readline(self, most=-1):
        assert 0 < most < 2**21
        self.asked = max(self.asked, most)
        took = min(most, self.left)
        self.left -= took
        return "[" * took


def test_a_long_line_is_refused_before_it_is_read_and_charges_nothing(tmp_path):
    """A line of 360 kB with 60,000 questions had no answer after 40 s."""
    write_people(tmp_path)
    many = json.dumps({"queries": [[3, 3]] * 60_000})
    blanks = json.dumps({"query": [0.5, 0.5], "id": " " * 2**20})
    lines = [many, blanks, json.dumps({"reference": [[3, 3]] * 4097}), json.dumps(LINES[0])]
    out = io.StringIO()
    with serve(plan_file(tmp_path / "people.yaml")) as served:
        stream = _lines(io.StringIO("\n".join(lines)))
        _converse(served, stream, out, updates=True)
        *refused, good = (json.loads(line) for line in out.getvalue().splitlines())
        assert [answer["error"]["code"] for answer in refused] == ["OS304"] * 3
        assert [answer["error"]["got"] for answer in refused] == ["60,000", "a longer one", "4,097"]
        assert good["votes"]
        assert served.session.answered == 1


def test_the_rest_of_a_long_line_is_passed_over_in_pieces():
    stream = Endless(50_000_000)
    (first,) = _lines(stream)
    assert len(first) == stream.asked == 2**20 + 2


@pytest.mark.parametrize(("stream", "code"), [("stdin", 1), ("stdout", 4)])
def test_a_closed_stream_is_refused_before_anything_is_opened(tmp_path, monkeypatch, stream, code):
    """The ledger was charged, and then came OS903."""
    write_people(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(sys, stream, None)
        with pytest.raises(typer.Exit) as ended:
            session_command(tmp_path / "people.yaml")
    assert ended.value.exit_code == code
    assert not (tmp_path / "ledger.jsonl").exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_no_file_of_a_run_takes_the_number_of_a_closed_stream(tmp_path):
    """What a library prints on standard output would be written into the ledger."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for number in (0, 2):
                os.close(number)
            _open_streams()
            made = os.open(tmp_path / "ledger", os.O_CREAT | os.O_RDWR)
            code = 0 if made > 2 and os.path.sameopenfile(0, 2) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    ("line", "got"),
    [
        ('{"query": [.5, 0.5]}', "a line that is no JSON"),
        ('{"query": [0.5, 0.5,]}', "a line that is no JSON"),
        ('{"query": [0x1, 05]}', "a line that is no JSON"),
        ('{"query": [0.5, 0.5], "id": 1, "id": 2}', "an object that names a member twice"),
        ('{"delete": ["\udce9"]}', "a line that is not UTF-8"),
        (
            '{"query": [0.5, 0.5], "id": 1e400}',
            'another value, or an "id" that JSON cannot send back',
        ),
    ],
)
def test_other_lines_are_refused_by_their_fault(tmp_path, line, got):
    with pytest.raises(SpecError) as refused:
        _read(line)
    assert refused.value.got == got
