"""The report: one page, without scripts, that fetches nothing and believes no text."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

import opendp_sim as sim
from opendp_sim.cli import app
from opendp_sim.report.page import page_of
from tests._small import write_small

SPECS = Path(__file__).parents[2] / "specs"
HOSTILE = "<script>alert(1)</script>\x1b[2J"


class Reader(HTMLParser):
    """Collect tags, what they refer to, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.refers: list[str] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.refers += [
            v
            for k, v in attrs
            if k in ("src", "href", "srcset", "action", "data") or k.startswith("on")
        ]

    def handle_data(self, data):
        self.text.append(data)


def sound(page: str) -> Reader:
    read = Reader(page)
    assert not {"script", "link", "img", "iframe", "object", "form", "base"} & set(read.tags)
    assert read.refers == []
    assert "default-src 'none'" in page
    assert "@import" not in page
    assert "url(" not in page
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", page)
    return read


@pytest.fixture(scope="module")
def applied(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    write_small(folder)
    return folder, sim.apply(folder / "small.yaml")


def test_a_spec_s_page_says_promise_flow_attacker_and_cost(tmp_path):
    page = page_of(SPECS / "digit-density.yaml")
    text = " ".join(sound(page).text)
    for said in (
        "nothing was spent", "one record", "no ledger", "race_sketch", "gaussian", "accuses 1 in 100",
        "What is not promised", "Reviewed by", "proved and audited", "opendp-sim plan",
    ):  # fmt: skip
        assert said in text
    assert page.count("<svg") == 2


def test_a_certificate_is_verified_before_it_gets_a_page(applied):
    folder, done = applied
    path = next(iter(done.certificates.values()))
    text = " ".join(sound(page_of(path)).text)
    assert "sha256" in text
    assert "statements agree" in text
    other = folder / "forged.certificate.json"
    other.write_text(path.read_text().replace('"epsilon": 1', '"epsilon": 2', 1))
    shutil.copy(path, folder / "kept.json")
    with pytest.raises((sim.SimError, sim.Refused)):
        page_of(other)
    result = CliRunner().invoke(app, ["report", str(other), "-o", str(folder / "no.html")])
    assert result.exit_code in (1, 5)
    assert not (folder / "no.html").exists()


def test_the_command_writes_a_page_and_names_it(tmp_path):
    target = tmp_path / "page.html"
    result = CliRunner().invoke(
        app, ["report", str(SPECS / "teacher-votes.yaml"), "-o", str(target)]
    )
    assert result.exit_code == 0, result.output
    assert str(target.name) in result.output
    sound(target.read_text(encoding="utf-8"))


def test_a_ledger_s_page_lists_what_was_spent(tmp_path):
    write_small(tmp_path)
    sim.apply(tmp_path / "small.yaml")
    text = " ".join(sound(page_of(next(tmp_path.glob("*.ledger")))).text)
    assert "spent so far" in text
    assert "charge" in text


def test_hostile_names_are_text(tmp_path):
    write_small(tmp_path)
    spec = (tmp_path / "small.yaml").read_text()
    name = re.search(r"^name: (.*)$", spec, re.MULTILINE).group(1)
    shown = HOSTILE.replace("\x1b", "\\e")
    (tmp_path / "small.yaml").write_text(spec.replace(f"name: {name}", f'name: "{shown}"', 1))
    try:
        page = page_of(tmp_path / "small.yaml")
    except sim.Refused:
        return  # such a name is refused before any page
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    sound(page)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a browser")
@pytest.mark.parametrize("width", [400, 1280])
def test_a_browser_shows_it_without_complaint(tmp_path, width):
    """No console message, no request, and a picture of the page as an artefact."""
    page = tmp_path / "page.html"
    page.write_text(page_of(SPECS / "digit-fourier.yaml"), encoding="utf-8")
    shot = tmp_path / f"page-{width}.png"
    done = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
         "--hide-scrollbars", f"--window-size={width},2400", f"--screenshot={shot}", page.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr
    assert shot.stat().st_size > 20_000
