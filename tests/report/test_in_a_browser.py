"""Every page in a real browser: no complaint, no request, no sideways scroll, nothing in a reader's way.

One browser for all of them. Where ``REPORT_SHOTS`` names a folder, pictures of all pages are kept there, else of one spec
and one certificate in the test's own folder. They are called ``NAME-WIDTH.png``: NAME is the spec (``digit-density``) or
the file that a page is of (``density.csv.certificate.json``, ``points.ledger``, ``sound.json``), WIDTH is 400 or 1280.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import opendp_sim as sim
from opendp_sim.report.page import page_of
from tests._browser import CHROMIUM, Browser
from tests._small import write_small
from tests._tiers import tiered
from tests.report.audits import audit_file

SHOTS = "REPORT_SHOTS" in os.environ
_OPEN = "document.querySelectorAll('details').forEach(part => part.open = true)"
SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*.yaml"))
KINDS = {"digit-density", "digits-session", "flights-delays", "teacher-votes"}
"""Queries, a service, a page of distances, and a selection: the specs of every run."""
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs a browser")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """A page of a certificate, a ledger, and of audits, beside those of specs."""
    folder = tmp_path_factory.mktemp("others")
    write_small(folder)
    done = sim.apply(folder / "small.yaml")
    certificates = {
        path.suffixes[0]: path for path in done.certificates.values()
    }  # one of each kind
    sources = [
        *certificates.values(),
        *folder.glob("*.ledger"),
        audit_file(folder / "sound.json"),
        audit_file(folder / "refuted.json", refuted=True),
    ]
    return {path.name: page_of(path) for path in sources} | recipes(folder)


def recipes(folder):
    """A map of a density, a list of items, and the classes of means."""
    rng = np.random.default_rng(3)
    table = {"x": rng.beta(3, 9, 2000), "y": rng.beta(5, 5, 2000), "k": list("ab") * 1000}
    table |= {"item": [f"i{n % 9}" for n in range(2000)], "user": [f"u{n}" for n in range(2000)]}
    square = {"x": (0, 1), "y": (0, 1)}
    made = {
        "density": sim.density(square, bandwidth=0.1, epsilon=2.0, delta=1e-6),
        "means": sim.means(square, label="k", keys=["a", "b"], epsilon=2.0, delta=1e-6),
        "top": sim.top("item", k=5, unit="user", epsilon=2.0, delta=1e-6),
    }
    pages = {}
    for name, fit in made.items():
        (folder / name).mkdir()
        fit.apply(table, into=folder / name)
        pages[name] = page_of(next((folder / name).glob("*.certificate.json")))
    return pages


def looked_at(browser, page, name, folder, *, shots=False):
    path = folder / f"{name}.html"
    path.write_text(page, encoding="utf-8")
    browser.open(path, 400)
    found = []
    for width, dark in ((400, False), (1280, False), (1280, True)):
        browser.look(width, dark=dark)
        found += [(name, width, dark, fault) for fault in browser.faults()]
        if shots and not dark:
            kept = Path(os.environ.get("REPORT_SHOTS") or folder)
            kept.mkdir(parents=True, exist_ok=True)
            browser.shot(kept / f"{name}-{width}.png")
            assert (kept / f"{name}-{width}.png").stat().st_size > 20_000
    browser.ask(_OPEN)
    for width in (400, 1280):
        browser.look(width)
        found += [(name, width, "opened", fault) for fault in browser.faults()]
    return found + browser.complaints + browser.requests


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "spec", tiered(SPECS, lambda path: path.stem in KINDS), ids=lambda path: path.stem
)
def test_the_page_of_every_spec(browser, spec, tmp_path):
    whole = spec.stem == "digit-density"
    assert looked_at(browser, page_of(spec), spec.stem, tmp_path, shots=SHOTS or whole) == []


def test_the_pages_of_certificates_ledgers_and_audits(browser, others, tmp_path):
    assert len(others) >= 4
    for at, (name, page) in enumerate(others.items()):
        assert looked_at(browser, page, name, tmp_path, shots=SHOTS or not at) == []


def test_it_prints_on_a_few_pages(browser, others, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(next(iter(others.values())), encoding="utf-8")
    browser.open(path, media="print")
    assert browser.faults() == []
    browser.look(1280)
    browser.printed(tmp_path / "page.pdf")
    assert 1 <= (tmp_path / "page.pdf").read_bytes().count(b"/Type /Page\n") <= 5


BROKEN = """<!doctype html><html><head><title></title></head><body><main><h1>a</h1><h3></h3>
<p style="color:#aaa">pale</p><svg viewBox="0 0 9 9"></svg><table><tr><td>1</td></tr></table>
<div style="width:2000px">wide</div></main><script>console.error("x")</script><img src="no.png"></body></html>"""


def test_the_look_sees_what_is_wrong(browser, tmp_path):
    """A check that cannot fail is none: a page with every fault has every fault."""
    path = tmp_path / "broken.html"
    path.write_text(BROKEN)
    browser.open(path, 400)
    said = " | ".join(browser.faults())
    for fault in (
        "no language",
        "no title",
        "skips a level",
        "empty heading",
        "contrast",
        "picture without a name",
        "table without heads",
        "sideways scroll",
    ):
        assert fault in said
    assert any('"x"' in text for text in browser.complaints)
    assert any(url.endswith("no.png") for url in browser.requests)


_AXE = "axe.run().then(r => r.violations.map(v => v.id + ': ' + v.nodes[0].html))"


def axe_faults(browser, axe, name, page, folder):
    """What axe-core says of a page, narrow and dark as well as wide and light; it is no part of the page."""
    path = folder / f"{name}.html"
    path.write_text(page, encoding="utf-8")
    found = []
    for width, dark in ((400, True), (1280, False)):
        browser.open(path, width, dark=dark)
        browser.ask(_OPEN)
        browser.ask(f"{axe};0")
        found += [(name, width, fault) for fault in browser.ask(_AXE)]
    return found


@pytest.fixture
def axe():
    """An independent checker, as the package axe-core-python holds it: for tests alone, never shipped."""
    found = importlib.util.find_spec("axe_core_python")
    if found is None:
        pytest.skip("needs the extra `dev`")
    return (Path(found.origin).parent / "axe.min.js").read_text(encoding="utf-8")


def test_axe_finds_nothing_on_a_page_and_something_where_it_is_broken(
    browser, others, axe, tmp_path
):
    name, page = next(iter(others.items()))
    assert axe_faults(browser, axe, name, page, tmp_path) == []
    assert axe_faults(browser, axe, "broken", BROKEN, tmp_path) != []


@pytest.mark.long
def test_axe_finds_nothing_on_a_page_of_each_kind(browser, others, axe, tmp_path):
    for name, page in ({"digit-density": page_of(SPECS[2])} | others).items():
        assert axe_faults(browser, axe, name, page, tmp_path) == []


@pytest.mark.deep
def test_the_newest_axe_finds_nothing_on_any_page(browser, others, tmp_path):
    """The pages of all specs too, and axe-core from npm."""
    if shutil.which("npm") is None:
        pytest.skip("needs npm")
    subprocess.run(["npm", "pack", "axe-core@4"], cwd=tmp_path, check=True, capture_output=True)
    subprocess.run(
        ["tar", "xzf", next(tmp_path.glob("axe-core-*.tgz")).name], cwd=tmp_path, check=True
    )
    axe = (tmp_path / "package" / "axe.min.js").read_text(encoding="utf-8")
    for name, page in ({spec.stem: page_of(spec) for spec in SPECS} | others).items():
        assert axe_faults(browser, axe, name, page, tmp_path) == []
