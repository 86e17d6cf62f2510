"""The explorer in a real browser: it answers by clicks and by keys, and every reader can use it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from pathlib import Path

import pytest

from opendp_sim.dsl import apply, plan_file
from tests._browser import CHROMIUM, Browser
from tests.serve._folder import made
from tests.serve.conftest import served_house

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs a browser")
SHOTS = os.environ.get("SERVE_SHOTS")
"""A folder for pictures in four sizes."""
VALUE = "document.querySelector('#value').textContent"
STILL = "document.querySelector('#found').getAttribute('aria-busy') === 'false'"
AXE = """axe.run(document).then(found => found.violations.map(
    v => `${v.id}: ${v.nodes.map(n => n.html.slice(0, 90)).slice(0, 3).join(' ')}`))"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture
def page(browser, house):
    browser.open(f"http://{house.host}/health/live")  # a page of the same origin that asks nothing
    browser.ask("sessionStorage.clear()")
    browser.open(f"http://{house.host}/")
    yield browser
    browser.open("about:blank")  # nothing is asked of a server that ends


def token(house, role="analyst"):
    return house.roles[role]["authorization"].removeprefix("Bearer ")


def opened(page, house):
    page.ask(
        f"document.getElementById('token').value = {json.dumps(token(house))};"
        "document.querySelector('#door button').click()"
    )
    page.wait(f"!document.getElementById('found').hidden && {STILL}")


def reached(page, selector, most=40):
    """Press Tab until the focus is there."""
    for _ in range(most):
        if page.ask(f"document.activeElement.matches({selector!r})"):
            return True
        page.press("Tab")
    return False


def test_an_analyst_asks_with_the_keyboard_alone(page, house):
    page.ask("document.body.focus()")
    assert reached(page, "#token")
    page.ask(f"document.activeElement.value = {json.dumps(token(house))}")  # pasted
    page.press("Enter")
    page.wait(f"!document.getElementById('found').hidden && {STILL}")
    assert page.ask("document.activeElement.id") == "release"
    before = page.ask(VALUE)
    assert before.startswith("density ")
    assert reached(page, "#c0")
    page.press("ArrowRight")
    page.wait(f"{VALUE} !== {json.dumps(before)} && {STILL}")
    assert page.ask("document.querySelector('#c0').value > 5")
    assert page.complaints == [], "\n".join(page.complaints)[:3000]
    assert all(url.startswith(f"http://{house.host}/") for url in page.requests)
    assert page.ask("document.cookie") == ""


@pytest.mark.long
def test_a_place_has_its_answer_its_curve_and_its_command(page, house):
    opened(page, house)
    told = page.ask("document.getElementById('curve').getAttribute('aria-label')")
    assert told.startswith("density along a: from ")
    assert page.ask("document.querySelectorAll('#numbers tbody tr').length") == 41
    assert page.ask("document.getElementById('claim').textContent") != ""
    before = page.ask(VALUE)
    page.ask(
        "(() => { const i = document.getElementById('c0'); i.value = 1; i.dispatchEvent(new Event('input')) })()"
    )
    page.wait(f"{VALUE} !== {json.dumps(before)} && {STILL}")
    answer = house.post("/v1/releases/places/density", {"queries": {"a": [1.0], "b": [0.0]}})
    density = answer.json()["columns"]["density"][0]
    assert page.ask(VALUE) == f"density {density:.4g}"
    command = page.ask("document.getElementById('curl').textContent")
    found = subprocess.run(
        ["sh", "-c", command],
        env=os.environ | {"TOKEN": token(house)},
        capture_output=True,
        check=True,
    )
    assert json.loads(found.stdout) == answer.json()
    assert "modes" in page.ask("document.getElementById('others').textContent")  # it needs a seed


@pytest.mark.long
def test_a_wrong_token_is_refused_and_another_can_be_typed(page, house):
    page.ask(
        "document.getElementById('token').value = 'no';document.querySelector('#door button').click()"
    )
    page.wait("!document.getElementById('fault').hidden")
    assert page.ask("document.getElementById('fault').textContent").startswith("token: ")
    opened(page, house)
    assert page.ask("document.getElementById('fault').hidden")


@pytest.mark.long
def test_every_size_is_for_every_reader(page, house):
    """axe finds nothing in light and dark, narrow and wide, and nothing scrolls sideways."""
    looked(page, "door")
    opened(page, house)
    page.ask("document.querySelector('details').open = true")
    looked(page, "answer")
    page.ask("document.querySelector('details').open = false")
    looked(page, "closed")
    assert page.complaints == [], "\n".join(page.complaints)[:3000]


def looked(page, name):
    found = importlib.util.find_spec("axe_core_python")
    axe = None if found is None else Path(found.origin).with_name("axe.min.js")
    for width in (1280, 400):
        for dark in (False, True):
            page.look(width, dark=dark)
            assert page.ask("document.documentElement.scrollWidth") <= width, (name, width)
            if axe is not None:
                page.ask(axe.read_text(encoding="utf-8") + ";0")
                assert page.ask(AXE) == [], (name, width, dark)
            if SHOTS:
                page.shot(Path(SHOTS) / f"{name}-{width}-{'dark' if dark else 'light'}.png")
    page.look(1280)


@pytest.mark.long
def test_names_that_are_markup_or_a_command_stay_text(browser, tmp_path):
    """A column's name is text in the page, and one word for the shell that gets the command."""
    bad = "<img src=x onerror=alert(1)>'$(touch broken)"
    folder = made(tmp_path, run=())
    spec, data = folder / "places.yaml", folder / "places.csv"
    data.write_text(data.read_text().replace("a,b\n", f"{bad},b\n", 1))
    text = spec.read_text().replace("{a: {dtype", '{"%s": {dtype' % bad)  # noqa: UP031
    spec.write_text(text.replace("[a, b]", f'["{bad}", b]'))
    apply(plan_file(spec))
    with served_house(folder) as house:
        browser.open(f"http://{house.host}/")
        browser.ask("sessionStorage.clear()")
        browser.open(f"http://{house.host}/")
        opened(browser, house)
        assert browser.ask("document.querySelector('#columns label').textContent") == bad
        assert browser.ask("document.querySelectorAll('img').length") == 0
        command = browser.ask("document.getElementById('curl').textContent")
        found = subprocess.run(
            ["sh", "-c", command],
            env=os.environ | {"TOKEN": token(house)},
            capture_output=True,
            check=True,
            cwd=tmp_path,
        )
        assert bad in json.loads(found.stdout)["columns"]
        assert not (tmp_path / "broken").exists()
        assert browser.complaints == []
        browser.open("about:blank")
