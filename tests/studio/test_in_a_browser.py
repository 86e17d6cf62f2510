"""The studio in a real browser: clicks, keys, two sides of one spec, and what a reader meets."""

from __future__ import annotations

import importlib.util
import os
import time
from pathlib import Path

import pytest

from tests._browser import CHROMIUM, Browser
from tests.studio.conftest import Visitor, serving, write_table

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs a browser")
SHOTS = os.environ.get("STUDIO_SHOTS")
"""A folder for pictures of every screen in four sizes."""
SIZES = [(width, dark) for width in (1280, 400) for dark in (False, True)]
AXE = """axe.run(document).then(found => found.violations.map(
    v => `${v.id}: ${v.nodes.map(n => n.html.slice(0, 90)).slice(0, 3).join(' ')}`))"""
FILL = """((all) => {
  document.querySelector('[name=unit][value=row]').click();
  const item = name => [...document.querySelectorAll('#cols li')].find(l => l.dataset.name === name);
  for (const [name, low, high] of all) {
    item(name).querySelector('input').click();
    const ends = item(name).querySelectorAll('[inputmode]');
    [low, high].forEach((value, at) => {
      ends[at].value = value; ends[at].dispatchEvent(new Event('input', {bubbles: true})); });
  }
})([['x', '0', '1'], ['y', '0', '10']])"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture
def page(browser, tmp_path):
    with serving(write_table(tmp_path / "trips.csv")) as visitor:
        browser.open(visitor.server.address)
        browser.wait("document.querySelector('#cols li')")
        browser.server = visitor.server
        yield browser
        browser.open("about:blank")  # nothing is asked of a server that ends


def typed(page, old, new):
    page.ask(
        f"""(() => {{ const text = document.querySelector('#yaml');
        text.value = text.value.replace({old!r}, {new!r}); text.dispatchEvent(new Event('input')) }})()"""
    )


def filled(page):
    page.ask(FILL)
    page.wait("document.querySelector('#spend').textContent === 'Spend ε 1'")


def spent(page):
    page.ask("document.querySelector('#spend').click()")
    page.ask("document.querySelector('#sureyes').click()")
    page.wait("(document.querySelector('#answer')?.textContent ?? '…') !== '…'")


def reached(page, selector, most=80):
    """Press Tab until the focus is there."""
    for _ in range(most):
        page.press("Tab")
        if page.ask(f"document.activeElement.matches({selector!r})"):
            return True
    return False


def looked(page, name, top="body", sizes=SIZES):
    """Every size of a screen: no sideways scrolling, axe 0, and a picture where asked for."""
    found = importlib.util.find_spec("axe_core_python")
    axe = None if found is None else Path(found.origin).with_name("axe.min.js")
    for width, dark in sizes:
        page.look(width, dark=dark)
        page.ask(f"document.querySelector({top!r}).scrollIntoView()")
        page.wait("!document.querySelector('[aria-busy=true]')")
        assert page.ask("document.documentElement.scrollWidth") <= width, (name, width)
        if axe is not None:
            page.ask(axe.read_text(encoding="utf-8") + ";0")
            assert page.ask(AXE) == [], (name, width, dark)
        if SHOTS:
            time.sleep(0.25)
            file = Path(SHOTS) / f"{name}-{width}-{'dark' if dark else 'light'}.png"
            page.view(file)
    page.look(1280)


def test_a_curator_spends_with_the_keyboard_alone(page):
    assert page.ask("location.href") == f"http://{page.server.host}/"  # no token in the address
    assert page.ask("document.querySelector('#door').textContent") == "Data closed"
    assert reached(page, "[name=unit]")
    page.press(" ")
    assert reached(page, "[data-name=x] input[type=checkbox]")
    page.press(" ")
    for text in ("0", "1"):
        for key in text:
            page.press(key)
        page.press("Tab")
    page.wait("document.querySelector('#spend').textContent === 'Spend ε 1'")
    assert reached(page, "#eps")
    page.press("ArrowRight")
    page.wait("document.querySelector('#spend').textContent === 'Spend ε 1.1'")
    assert reached(page, "#spend")
    page.press("Enter")
    assert page.ask("document.querySelector('#sure').open")
    assert page.ask("document.activeElement.value") == "no"
    page.press("Escape")
    assert not page.ask("document.querySelector('#sure').open")
    assert page.ask("document.querySelector('#door').textContent") == "Data closed"
    page.ask("document.querySelector('#spend').focus()")
    page.press("Enter")
    assert reached(page, "#sureyes")
    page.press("Enter")
    page.wait("(document.querySelector('#answer')?.textContent ?? '…') !== '…'")
    assert page.ask("document.querySelector('#door').textContent") == "Data closed"
    page.open(f"http://{page.server.host}/")  # a reload shows the run, and the spec, again
    page.wait("(document.querySelector('#answer')?.textContent ?? '…') !== '…'")
    page.wait("document.querySelector('#spend').textContent === 'Spend ε 1.1'")
    assert page.ask("document.querySelector('[data-name=x] [inputmode]').value") == "0"
    foreign = [url for url in page.requests if not url.startswith(f"http://{page.server.host}/")]
    assert not foreign
    assert not page.complaints
    assert page.ask("document.cookie") == ""


@pytest.mark.long
def test_form_and_text_follow_each_other(page):
    filled(page)
    looked(page, "plan", sizes=SIZES[3:])
    typed(page, "epsilon: 1.0,", "epsilon: 2.0,")
    page.wait("document.querySelector('#epsout').textContent === '2'")
    page.wait("document.querySelector('#spend').textContent === 'Spend ε 2'")
    typed(page, "seed: 0", "seed: 5")
    page.wait("!document.querySelector('#custom').hidden")
    typed(page, "quantize", "quantise")
    page.wait("document.querySelectorAll('#findings li').length === 1")
    assert page.ask("document.querySelector('#spend').disabled")
    page.ask("document.querySelector('#findings button').click()")
    assert page.ask("getSelection().toString() || document.activeElement.id") in (
        "yaml",
        "quantise",
    )
    page.ask("document.querySelector('#back').click()")
    page.wait("document.querySelector('#spend').textContent === 'Spend ε 2'")


@pytest.mark.long
def test_names_that_are_markup_stay_text(browser, tmp_path):
    header = '<img src=x onerror=alert(1)>,"a ""b"": {c}",no,"</script><b>"'
    with serving(write_table(tmp_path / "<b>odd.csv", header)) as visitor:
        browser.open(visitor.server.address)
        browser.wait("document.querySelector('#cols li')")
        names = ["<img src=x onerror=alert(1)>", 'a "b": {c}']
        browser.ask(
            FILL.replace("[['x', '0', '1'], ['y', '0', '10']]", f"{[[n, '0', '9'] for n in names]}")
        )
        browser.wait("document.querySelector('#spend').textContent === 'Spend ε 1'")
        spent(browser)
        assert (
            browser.ask("document.querySelectorAll('img, b:not(header b):not(#epsout)').length")
            == 0
        )
        assert browser.ask("document.title") == "<b>odd.csv - studio"
        assert not browser.complaints
        browser.open("about:blank")  # nothing is asked of a server that ends


def chosen(page, **fields):
    """Choose or write values in fields, by their ids."""
    for name, value in fields.items():
        page.ask(
            f"(() => {{ const e = document.querySelector('#{name}'); e.value = {value!r};"
            "e.dispatchEvent(new Event('input', {bubbles: true})) })()"
        )


@pytest.mark.long
def test_classes_means_and_items_by_clicking(page):
    filled(page)
    for question in ("classes", "means", "predict"):
        page.ask(f"document.querySelector('[name=question][value={question}]').click()")
        chosen(page, label="kind", keys="a, b")
        page.wait(f"document.querySelector('#yaml').value.includes('name: trips-{question}')")
        page.wait("document.querySelector('#spend').textContent === 'Spend ε 1'")
        assert page.ask("document.querySelector('#custom').hidden")
    spent(page)
    assert page.ask("document.querySelector('#answer').textContent") in ("a", "b")
    assert page.ask("document.querySelectorAll('#each tbody tr').length") == 2
    assert not page.complaints


@pytest.mark.long
def test_quantiles_and_a_regression_by_clicking(page):
    filled(page)
    chosen(page, stated="the data sheet")
    page.wait("document.querySelector('#panel').textContent.includes('the data sheet')")
    page.ask("document.querySelector('[name=question][value=regression]').click()")
    assert page.ask("!document.querySelector('#targets').hidden")
    chosen(page, target="x")
    page.wait("document.querySelector('#yaml').value.includes('linear_regression')")
    page.wait("document.querySelector('#spend').textContent === 'Spend ε 1'")
    page.ask("document.querySelector('[name=question][value=quantiles]').click()")
    page.wait("document.querySelector('#yaml').value.includes('distance_tree')")
    page.wait("document.querySelector('#spend').textContent === 'Spend ε 1'")
    assert page.ask("document.querySelector('#custom').hidden")
    spent(page)
    assert page.ask("document.querySelector('#answer').textContent") == "50%"
    assert page.ask("document.querySelectorAll('#each tbody tr').length") == 2
    assert page.ask("document.querySelectorAll('#result .parts tbody tr').length") == 10
    looked(page, "quantiles", "#result", SIZES[3:])
    assert not page.complaints


@pytest.mark.long
def test_a_first_line_of_texts_is_asked_about(browser, tmp_path):
    (tmp_path / "t.csv").write_text("Ann,Paris,nurse\nBo,Rome,cook\n", encoding="utf-8")
    for answer, shown in (("record", False), ("names", True)):
        with serving(tmp_path / "t.csv") as visitor:
            browser.open(visitor.server.address)
            browser.wait("!document.querySelector('#named').hidden")
            assert "Paris" not in browser.ask("document.body.textContent")
            looked(browser, "first-line", sizes=SIZES[:1] + SIZES[3:])
            browser.ask(f"document.querySelector('[name=first][value={answer}]').click()")
            browser.wait(
                f"document.querySelector('#namesbox').hidden === {str(shown).lower()}"
                f" && !!document.querySelector('#cols li') === {str(shown).lower()}"
            )
            assert ("Paris" in browser.ask("document.body.textContent")) is shown
            if not shown:
                chosen(browser, names="who, where, job")
                browser.wait("document.querySelectorAll('#cols li').length === 3")
            assert not browser.complaints
            browser.open("about:blank")  # nothing is asked of a server that ends


@pytest.mark.long
def test_a_session_by_clicking(page):
    """Nothing is asked by moving a slider: each answer costs."""
    filled(page)
    page.ask("document.querySelector('[name=question][value=session]').click()")
    chosen(page, label="kind", keys="a, b", size="60", asked="10")
    page.wait("document.querySelector('#yaml').value.includes('queries: 10')")
    page.wait("document.querySelector('#spend').textContent === 'Spend ε 1'")
    page.ask("document.querySelector('#spend').click()")
    page.ask("document.querySelector('#sureyes').click()")
    page.wait("document.querySelector('#result h2')?.textContent === 'A session is open'")
    assert page.ask("document.querySelector('#door').textContent") == "Session open"
    slider = "(() => { const e = document.querySelector('#ask input'); e.value = e.max;"
    page.ask(slider + "e.dispatchEvent(new Event('input', {bubbles: true})) })()")
    assert page.ask("document.querySelector('#answer').textContent") == "…"
    for number in (1, 2):
        page.ask("document.querySelector('#once').click()")
        page.wait(f"document.querySelector('#small').textContent.startsWith('{number} answered')")
    looked(page, "session", "#result")
    page.ask("document.querySelector('#end').click()")
    page.wait("document.querySelector('#door').textContent === 'Data closed'")
    assert page.ask("document.querySelector('#once').disabled")
    assert not page.complaints


@pytest.mark.long
def test_two_plans_stand_side_by_side(page):
    filled(page)
    page.ask("document.querySelector('#keep').click()")
    typed(page, "epsilon: 1.0,", "epsilon: 2.0,")
    page.wait("document.querySelector('#spend').textContent === 'Spend ε 2'")
    costs = "[...document.querySelectorAll('#both tr')][2].textContent"
    assert "epsilon 1" in page.ask(costs)
    assert "epsilon 2" in page.ask(costs)
    page.ask("document.querySelector('[name=question][value=means]').click()")
    page.wait("document.querySelector('#both').textContent.includes('Totals: x, y')")
    looked(page, "compare", "#compare")
    page.ask("document.querySelector('#return').click()")
    page.wait("document.querySelector('#spend').textContent === 'Spend ε 1'")
    assert page.ask("document.querySelector('[value=density]').checked")
    assert not page.complaints


@pytest.mark.long
def test_items_by_person_by_clicking(page):
    page.ask("document.querySelector('[name=question][value=top]').click()")
    page.ask("document.querySelector('[name=unit][value=person]').click()")
    assert page.ask("document.querySelector('#columns').hidden")
    chosen(page, who="who", item="kind", most="1", limitdelta="0.00001")
    page.wait("document.querySelector('#yaml').value.includes('delta: 1e-05')")  # the last of all
    page.wait("document.querySelector('#spend').textContent === 'Spend ε 1'")
    assert "of: who" in page.ask("document.querySelector('#yaml').value")
    page.ask("document.querySelector('#spend').click()")
    page.ask("document.querySelector('#sureyes').click()")
    page.wait("document.querySelector('#result h2')?.textContent === 'Released'")
    page.ask("document.querySelector('[name=question][value=density]').click()")  # another measure
    filled_columns = FILL.replace("document.querySelector('[name=unit][value=row]').click();", "")
    page.ask(filled_columns)
    page.wait("document.querySelector('#panel').textContent.includes('Cannot be used')")
    assert page.ask("document.querySelector('#spend').disabled")
    assert not page.complaints


@pytest.mark.long
def test_a_large_spend_asks_for_the_name(page):
    filled(page)
    typed(page, "epsilon: 1.0,", "epsilon: 3.0,")
    page.wait("document.querySelector('#spend').textContent === 'Spend ε 3'")
    page.ask("document.querySelector('#spend').click()")
    assert page.ask("document.querySelector('#sureyes').disabled")
    page.ask(
        "(() => { const t = document.querySelector('#typed'); t.value = 'trips.csv';"
        "t.dispatchEvent(new Event('input')) })()"
    )
    assert not page.ask("document.querySelector('#sureyes').disabled")


@pytest.mark.long
def test_the_newest_wish_is_shown(page):
    filled(page)
    page.ask("performance.clearMeasures()")
    for at in range(40):
        page.ask(
            f"(() => {{ const e = document.querySelector('#eps'); e.value = {40 + at};"
            "e.dispatchEvent(new Event('input', {bubbles: true})) })()"
        )
    wanted = page.ask("document.querySelector('#epsout').textContent")
    page.wait(f"document.querySelector('#spend').textContent === 'Spend ε {wanted}'")
    assert 2 <= page.ask("performance.getEntriesByName('plan').length") <= 41


@pytest.mark.long
def test_a_page_out_of_the_browsers_memory_is_asked_anew(page):
    """Back and forward show no open confirmation, and no ledger of before."""
    filled(page)
    page.ask("document.querySelector('#spend').click()")
    assert page.ask("document.querySelector('#sure').open")
    page.ask("dispatchEvent(new PageTransitionEvent('pagehide', {persisted: true}))")
    assert not page.ask("document.querySelector('#sure').open")
    assert page.ask("document.querySelector('#sure').returnValue") == "no"
    left = page.ask("document.querySelector('#s3').textContent")
    with Visitor(page.server) as other:  # another tab
        assert other.spend(other.planned(epsilon=2)).status_code == 200
    page.loaded("dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")
    page.wait("document.querySelector('#result h2')?.textContent === 'Released'")
    page.wait("document.querySelector('#s3').textContent.endsWith('%')")
    assert page.ask("document.querySelector('#s3').textContent") != left
    assert not page.complaints


@pytest.mark.long
def test_a_page_whose_studio_is_gone_says_so(browser, tmp_path):
    with serving(write_table(tmp_path / "trips.csv")) as visitor:
        browser.open(visitor.server.address)
        browser.wait("document.querySelector('#cols li')")
        filled(browser)
    browser.ask("document.querySelector('#eps').dispatchEvent(new Event('input'))")
    browser.wait("document.querySelector('#panel').textContent.includes('does not answer')")
    assert browser.ask("document.querySelector('#spend').textContent") == "No answer"
    assert browser.ask("document.querySelector('#spend').disabled")
    assert browser.ask("document.querySelector('#s3').textContent") == "–"
    browser.open("about:blank")


@pytest.mark.long
def test_a_page_without_the_key_says_so(browser, page):
    browser.open(f"http://{page.server.host}/")  # this tab remembers it
    browser.ask("sessionStorage.clear()")
    browser.open(f"http://{page.server.host}/")
    browser.wait("document.body.textContent.includes('This page has no key')")


@pytest.mark.long
def test_every_screen_is_for_every_reader(page):
    """axe finds nothing in light and dark, narrow and wide; pictures have their numbers beside them."""
    looked(page, "start")
    filled(page)
    looked(page, "plan")
    page.ask("document.querySelector('#spend').click()")
    looked(page, "confirm")
    page.ask("document.querySelector('#sure').close('no')")
    spent(page)
    looked(page, "result", "#result")
    assert page.ask("document.querySelectorAll('#result table tbody tr').length") > 2
    looked(page, "history", "#history")
    page.ask("document.querySelector('#look').click()")
    looked(page, "open")
    page.ask("document.querySelector('#openyes').click()")
    page.wait("!document.querySelector('#looked').hidden")
    assert page.ask("document.querySelector('#door').textContent") == "Data open"
    looked(page, "look", "#private")
    page.ask("document.querySelector('#look').click()")
    assert page.ask("document.querySelector('#door').textContent") == "Data closed"
    typed(page, "quantize", "quantise")
    page.wait("document.querySelectorAll('#findings li').length === 1")
    looked(page, "mistake", "[aria-labelledby=spech]")
    assert not page.complaints
