"""Files that somebody else wrote, full of text that steers: every command shows it, none obeys it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from html.parser import HTMLParser

import opendp.prelude as dp
import pytest
from typer.testing import CliRunner

from opendp_sim.cli import app
from opendp_sim.core.system.escape_text import escape
from tests import _edits
from tests.cli.test_shown import EVIL

LONG = "n" * 20_000
MARKUP = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><marquee>',
    "&lt;",
    "]]>",
    "{{7*7}}",
)
ODD = (*EVIL, *MARKUP, LONG, {"\x1b[2J": "\x1b[2J", "<marquee>": MARKUP[0]}, ["\u202e", MARKUP[1]])
COMMANDS = {
    "certificate": (
        ["verify", "{cert}"],
        ["verify", "--explain", "{cert}"],
        ["report", "{cert}", "-o", "{page}"],
    ),
    "plan": (["report", "{plan}", "-o", "{page}"], ["apply", "{plan}"]),
    "release": (["answer", "{npz}", "--post", "density", "--queries", "{queries}"],),
    "ledger": (
        ["ledger", "show", "{ledger}"],
        ["ledger", "show", "--json", "{ledger}"],
        ["ledger", "verify", "{ledger}"],
        ["report", "{ledger}", "-o", "{page}"],
    ),
    "spec": (["check", "{spec}"], ["check", "--json", "{spec}"], ["plan", "{spec}"]),
}


class Tags(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.seen.update(f"@{name}" for name, _ in attrs if name.startswith("on"))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_edits.Files]:
    dp.enable_features("contrib")
    with pytest.MonkeyPatch.context() as patched:
        made = _edits.Files(tmp_path_factory.mktemp("hostile"))
        patched.setattr(_edits, "ODD", ODD)
        yield made


def campaign(files: _edits.Files, kind: str, seeds: range) -> dict[str, int]:
    """Edit a file, run what reads it, and compare what is said with what may be said."""
    places = {
        "cert": files.out / "release.npz.certificate.json",
        "plan": files.folder / "p.plan",
        "npz": files.out / "release.npz",
        "ledger": files.folder / "points.ledger",
        "queries": files.folder / "queries.npz",
        "spec": files.spec,
        "page": files.folder / "page.html",
    }
    ends: dict[str, int] = {}
    for seed in seeds:
        pick = random.Random(f"{kind} {seed} hostile")  # noqa: S311 - which edit
        if kind == "spec":
            name = "small.yaml"
            text = files.spec.read_text(encoding="utf-8")
            word = pick.choice(["points", "release", "density", "rows", "small", "noisy"])
            odd = pick.choice([*EVIL, *MARKUP, LONG])
            files.spec.write_text(text.replace(word, json.dumps(odd), pick.choice((1, 2, 99))))
        else:
            name, edit, _ = files.kinds()[kind]
            edit(pick)
        for command in COMMANDS[kind]:
            done = CliRunner().invoke(app, [part.format(**places) for part in command])
            said = done.stdout + done.stderr
            ends[f"{command[0]} {done.exit_code}"] = (
                ends.get(f"{command[0]} {done.exit_code}", 0) + 1
            )
            assert done.exit_code in (0, 1, 3, 4, 5), (command, seed, said[-400:], done.exception)
            assert said == escape(said, "\n\t"), (command, seed)
            if "--json" in command and done.exit_code == 0:
                json.loads(done.stdout)
            if places["page"].exists():
                found = Tags(places["page"].read_text(encoding="utf-8")).seen
                places["page"].unlink()
                assert not found & {"script", "img", "marquee"}, (command, seed, found)
                assert not any(each.startswith("@") for each in found), (command, seed, found)
        files.restore(name)
        files.restore("points.ledger")
    return ends


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", list(COMMANDS))
def test_no_command_obeys_the_text_of_a_file(files: _edits.Files, kind: str) -> None:
    assert sum(campaign(files, kind, range(2)).values()) >= 2
