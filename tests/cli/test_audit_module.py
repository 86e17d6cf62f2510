"""`opendp-sim audit` of a module: what was left out and why, and nothing that hides the rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from opendp_sim.audit import Effort, audit as real
from opendp_sim.audit.findings import Evidence, LayerResult
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.report.repro_script import is_object
from opendp_sim.cli import audit as command
from opendp_sim.cli._audit_module import PrintCounter, listening, source_place
from opendp_sim.report.audit import read_audits
from tests._cli import run

SHORT = replace(
    Effort.of("quick"), seconds=0.2, trace_seconds=0.2, stability_seconds=0.1, total=0.4
)
SOURCE = """
import opendp.prelude as dp

print("imported")
SPACE = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()

class Helper:
    pass

HELD = dp.t.make_count(*SPACE)

def make_good():
    return HELD

def make_tail(threshold):
    return HELD

def make_number():
    return 7

def make_fails():
    raise RuntimeError("password=1")

def make_infinite():
    return dp.m.make_user_measurement(*SPACE, dp.max_divergence(), len, lambda d: float("inf"))

def _printed(rows):
    print(rows)
    return len(rows)

def make_printing():
    return dp.m.make_user_measurement(*SPACE, dp.max_divergence(), _printed, lambda d: 1.0 * d)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "mixed_of_tests.py").write_text(SOURCE, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "src"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "mixed_of_tests", raising=False)
    short = lambda obj, d_in, _budget, **more: real(obj, d_in, SHORT, **more)  # noqa: E731
    monkeypatch.setattr(command, "audit", short)
    return tmp_path


def test_a_module_says_what_it_left_out_and_counts_at_the_end(folder):
    done = run("audit", "mixed_of_tests")
    assert done.exit_code == 1, done.output
    for said in (
        "left out: Helper: a class",
        "left out: make_tail: needs `threshold`",
        "left out: make_number: returned int, which is no OpenDP object",
        "left out: make_fails: could not be made: RuntimeError at mixed_of_tests.py:",
        "left out: make_infinite: OS501 audit.d_in",
        "3 audited: 1 refuted (mixed_of_tests:make_printing), 2 not refuted; 5 left out",
        "risk of a false alarm at most 0.00075 over all of them, 0.00025 each",
    ):
        assert said in done.stdout, done.stdout
    assert "password" not in done.output
    assert "imported" not in done.stdout


def test_what_the_code_prints_is_in_no_report(folder, capfd):
    done = run("audit", "mixed_of_tests", "--format", "json")
    (folder / "a.json").write_text(done.stdout)
    found = read_audits(folder / "a.json")
    assert {one.name for one in found.left_out} >= {"make_tail", "make_fails"}
    sarif = run("audit", "mixed_of_tests:make_printing", "--format", "sarif")
    (result,) = json.loads(sarif.stdout)["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "src/mixed_of_tests.py"
    assert place["region"]["startLine"] == SOURCE.split("\n").index("def make_printing():") + 1
    heard = PrintCounter()
    capfd.readouterr()
    with listening(heard):
        print("one\ntwo")
        sys.stderr.writelines(["three\n"])
        os.write(1, b"four")  # as a library or a child does
        subprocess.run(["echo", "five"], check=True)
    heard.flush()
    assert heard.lines == 3
    print("six", flush=True)
    assert capfd.readouterr().out == "six\n"
    assert not heard.isatty()


def test_what_releases_nothing_is_not_passed(folder, monkeypatch):
    layer = LayerResult(
        "L0 structure", "not refuted", facts={"raised": "ZeroDivisionError: by zero"}
    )
    empty = lambda *given, **more: replace(real(*given, SHORT, **more), layers=(layer,))  # noqa: E731
    monkeypatch.setattr(command, "audit", lambda obj, d, _budget, **more: empty(obj, d, **more))
    done = run("audit", "mixed_of_tests:HELD")
    assert done.exit_code == 2, done.output
    assert "not refuted, but nothing was released (" in done.stdout


def test_a_price_has_an_exit_code_of_its_own(folder, monkeypatch):
    """A script that stops at a refutation has to tell it from what a person must look at."""
    price = Evidence("loss", "too much", "1", "2", Pair([1], [], 1))
    layer = LayerResult("LT trace", "not refuted", facts={"priced": price})
    short = command.audit
    monkeypatch.setattr(
        command, "audit", lambda *args, **more: replace(short(*args, **more), layers=(layer,))
    )
    done = run("audit", "mixed_of_tests:HELD")
    assert done.exit_code == 6, done.output
    assert "priced by LT trace: too much" in done.output
    assert json.loads(run("audit", "mixed_of_tests:HELD", "--json").stdout)["verdict"] == "priced"


def test_an_error_in_one_audit_is_said_and_the_others_go_on(folder, monkeypatch):
    def upset(obj, d_in, _budget, **more):
        if more["origin"].endswith("make_printing"):
            return [10**400 + 0.5]
        return real(obj, d_in, SHORT, **more)

    monkeypatch.setattr(command, "audit", upset)
    done = run("audit", "mixed_of_tests")
    assert done.exit_code == 2, done.output
    assert (
        "left out: make_printing: an error in the audit: OverflowError at test_audit_module"
        in done.stdout
    )
    assert "2 audited: 0 refuted, 2 not refuted; 6 left out" in done.stdout


def test_a_module_that_opendp_refuses_is_shown_at_its_own_line(folder):
    text = "import opendp.prelude as dp\n\n\nBAD = dp.m.make_laplace(\n    dp.atom_domain(T=bool), dp.absolute_distance(T=int), 1.0)\n"
    (folder / "src" / "bad_of_tests.py").write_text(text, "utf-8")
    assert "at bad_of_tests.py:4" in run("audit", "bad_of_tests").output


def test_a_file_of_sarif_is_written_where_nothing_can_be_audited(folder):
    for target in ("nope", "nope.yaml", "mixed_of_tests:make_fails"):
        done = run("audit", target, "--format", "sarif")
        assert done.exit_code == 2, done.output
        assert json.loads(done.stdout)["runs"][0]["results"] == []


def test_two_formats_are_refused(folder):
    done = run("audit", "mixed_of_tests:make_good", "--format", "sarif", "--json")
    assert done.exit_code == 2, done.output
    assert json.loads(done.stdout)["errors"][0]["code"] == "OS501"


def test_a_held_object_is_no_factory_in_lines_that_are_printed(folder):
    assert run("audit", "mixed_of_tests:HELD").exit_code == 0
    assert is_object("mixed_of_tests:HELD")
    assert not is_object("mixed_of_tests:make_good")
    assert not is_object("nothing")
    assert "audit(HELD, d_in=1" in run("audit", "mixed_of_tests:HELD").stdout
    assert (
        source_place("mixed_of_tests:HELD")[1]
        == SOURCE.split("\n").index("HELD = dp.t.make_count(*SPACE)") + 1
    )
    assert source_place("no_such_module:x") == ("no_such_module.py", 1)


def test_a_factory_with_arguments_is_told_which(folder):
    told = run("audit", "mixed_of_tests:make_tail")
    assert told.exit_code == 2
    assert "needs threshold" in told.output
