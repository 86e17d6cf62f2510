"""The report: one page, without scripts, that fetches nothing and believes no text."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from typer.testing import CliRunner

import opendp_sim as sim
from opendp_sim.accounting.budget import Limit, MeasureName
from opendp_sim.accounting.budget_warnings import large_delta
from opendp_sim.accounting.claim_text import short_number
from opendp_sim.accounting.composition import Charge
from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.accounting.measures.attackers import attacker_of
from opendp_sim.cli import app
from opendp_sim.cli._audit_spec import spec_claims
from opendp_sim.report.answer import _bars, _items
from opendp_sim.report.audit import read_audits
from opendp_sim.report.charts import heat_map, share_bar
from opendp_sim.report.facts import Card, Facts, Judgement, Part, Tile
from opendp_sim.report.flows import FlowBox
from opendp_sim.report.ledger import _SHOWN, _UNITS, _protected, ledger_facts
from opendp_sim.report.page import page_of, render
from tests._small import write_small
from tests.accounting.ledger.test_ledger import TERMS
from tests.report.audits import audit_file, report

SPECS = Path(__file__).parents[2] / "specs"
HOSTILE = "<script>alert(1)</script>\x1b[2J"


class Reader(HTMLParser):
    """Collect tags, what they refer to, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.refers: list[str] = []
        self.text: list[str] = []
        self.shown: list[str] = []
        self._inside: list[str] = []
        self.feed(page)

    def handle_endtag(self, tag):
        if tag in self._inside:
            self._inside.remove(tag)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag in ("details", "summary", "style", "title"):
            self._inside.append(tag)
        self.refers += [
            v
            for k, v in attrs
            if k in ("src", "href", "srcset", "action", "data") or k.startswith("on")
        ]

    def handle_data(self, data):
        self.text.append(data)
        if not self._inside or "summary" in self._inside:
            self.shown.append(data)

    @property
    def words(self):
        """How many words are seen before anything is opened."""
        return len(re.findall(r"[^\W_][\w.,'%-]*", " ".join(self.shown)))


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


def test_a_spec_s_page_says_verdict_tiles_and_the_rest_folded():
    page = page_of(SPECS / "digit-density.yaml")
    read = sound(page)
    first, text = " ".join(read.shown), " ".join(read.text)
    for said in (
        "nothing is spent",
        "54.8 are right; a coin is right 50 times",
        "Formally: (1, 1e-06)-DP",
        "with 2 rows 59.4, with 10 rows 88.2 of 100 guesses are right",
        "±14 rows",
        "Not counted",
        "1,024,010 noisy numbers",
        "Not promised",
    ):
        assert said in first, said
    for word in ("Owner", "Purpose", "Author", "Recipients", "Spec dated", "Expires"):
        assert f'<dt>{word}</dt><dd class="missing">not stated</dd>' in page
    for said in (
        "2.72 times as likely",
        "5.3% by the draws of the sketch",
        "the chosen class is safe when it leads by 18 rows or more",
        "with 1 of 100, at most 1.84",
        "guesses right at most 59.4 times in 100",
        "changes by at most 1 row",
        "Its typical size (deviation): 88.2.",
        "opendp-sim plan",
    ):
        assert said in text, said
        assert said not in first
    assert page.count("<svg") == 2
    assert page.count("<details>") == 4


@pytest.mark.few(5)
@pytest.mark.parametrize("spec", sorted(SPECS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_page_has_at_most_450_words_before_anything_is_opened(spec):
    page = page_of(spec)
    assert sound(page).words <= 450
    tiles = re.findall(r'<div class="card[^>]*><h2>.*?<p>(.*?)</p></div>', page)
    assert len(tiles) == 4
    assert max(len(re.sub("<.*?>", "", tile).split()) for tile in tiles) <= 27
    text = re.sub(r"<(style|pre)>.*?</\1>", "", page, flags=re.DOTALL)
    assert "`" not in text


def test_a_certificate_is_verified_before_it_gets_a_page(applied):
    folder, done = applied
    path = next(iter(done.certificates.values()))
    text = " ".join(sound(page_of(path)).text)
    assert "sha256" in text
    assert "statements agree" in text
    assert "may be handed out" in text
    assert sound(page_of(path)).words <= 450
    other = folder / "forged.certificate.json"
    other.write_text(path.read_text().replace('"epsilon": 1', '"epsilon": 2', 1))
    shutil.copy(path, folder / "kept.json")
    with pytest.raises((sim.SimError, sim.Refused)):
        page_of(other)
    result = CliRunner().invoke(app, ["report", str(other), "-o", str(folder / "no.html")])
    assert result.exit_code in (1, 5)
    assert not (folder / "no.html").exists()


@pytest.mark.long
def test_a_certificate_s_tiles_are_those_of_its_own_output(tmp_path):
    """The page of chosen classes told the error of the densities beside them."""
    done = sim.apply(SPECS / "digit-density.yaml", into=tmp_path)
    page = page_of(done.certificates["answers"])
    assert "<strong>18 rows</strong><p>answers: the chosen class is safe when it leads" in page
    page = page_of(done.certificates["densities"])
    assert "<strong>±14 rows</strong><p>densities: 95% of answers within" in page


def test_a_ledger_that_cannot_be_read_is_a_warning(tmp_path):
    spec = write_small(tmp_path)
    (tmp_path / "points.ledger").write_text("no ledger")
    assert '<div class="card warn"><h2>If it is repeated</h2><strong>Ledger unreadable' in page_of(
        spec
    )


def test_the_page_of_a_replaced_record_speaks_of_what_it_says(tmp_path):
    page = " ".join(sound(page_of(SPECS / "teacher-votes.yaml")).text)
    for said in (
        "with the values of one row",
        "2,990 times as likely as with any others in their place",
        "guesses which of two things one given row says",
        "leads under 32 votes mostly unanswered",
        "for each of 10 questions at most 3 of 4 labels, or no answer; the votes are not handed out",
        "if no other teacher learnt from records of the same person",
        "(one that is replaced goes out, and another comes in)",
        "its values are protected",
    ):
        assert said in page, said
    for said in ("without them", "is in the data. Of 100", "e+03"):
        assert said not in page
    page = " ".join(sound(page_of(SPECS / "digit-density.yaml")).text)
    assert "with one row in the data" in page
    assert "its values are protected" not in page


def charged(path, *runs, terms=TERMS):
    """Write a ledger: a loss, or the loss of a refused run, or of one that did not end."""
    with Ledger.open(path, terms) as ledger:
        for at, (loss, ends) in enumerate(runs):
            paid = ledger.reserve(Charge(terms.measure, (loss,)), {"name": f"run {at}"})
            if ends:
                ledger.settle(paid, ends, {"code": "OS605"} if ends == "refusal" else {})
    return path


def rows_of(page):
    rows = re.findall(r"<tr><th scope=\"row\">(.*?)</tr>", page)
    return [[re.sub("<.*?>", "", cell) for cell in re.split("</t[hd]>", row)][:-1] for row in rows]


def test_a_ledger_s_page_shows_each_run_once_with_time_loss_and_sum(tmp_path):
    path = charged(
        tmp_path / "l.ledger", (0.02, "charge"), (0.03, "refusal"), (0.04, ""), (0.02, "charge")
    )
    rows = rows_of(page_of(path))
    assert [row[1] for row in rows] == ["run 0", "run 2 (not ended)", "run 3"]
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d", row[0]) for row in rows)
    with Ledger.open(path) as ledger:
        assert rows[-1][3] == short_number(ledger.total().epsilon)
    own = [float(row[2]) for row in rows]
    sums = [float(row[3]) for row in rows]
    assert own[0] == sums[0] < sums[1] < sums[2] < sum(own)  # squares add up
    left = int(re.search(r"(\d+)% is left", page_of(path)).group(1))
    assert sum(int(row[4].removesuffix("%")) for row in rows) + left == 100


def test_two_equal_runs_are_two_equal_parts_of_a_limit_in_mu(tmp_path):
    """Squares of mu add up: a limit that two runs fill is half spent after one, not 29%."""
    terms = replace(TERMS, measure="gdp", limit=Limit(mu=0.35))
    loss = 0.35**2 / 4 * 0.98
    path = charged(tmp_path / "l.ledger", (loss, "charge"), (loss, "charge"), terms=terms)
    page = page_of(path)
    text = " ".join(sound(page).text)
    assert "98% of the limit" in text
    assert [row[4] for row in rows_of(page)] == ["49%", "49%"]
    assert "The squares of mu (mu^2) add up over runs" in text
    assert f"at most {attacker_of('gdp', (2 * loss,)).right} are right" in text


@pytest.mark.long
def test_the_page_of_a_second_run_says_what_both_come_to(tmp_path):
    write_small(tmp_path)
    said = []
    for _ in range(2):
        done = sim.apply(tmp_path / "small.yaml")
        page = page_of(next(iter(done.certificates.values())))
        said.append(" ".join(sound(page).text))
    (loss,) = done.plan.total
    alone, both = (attacker_of(done.plan.privacy.measure, (n * loss,)) for n in (1, 2))
    assert float(alone.right) < float(both.right)
    assert f"at most {alone.right} are right" in said[0]
    assert "Privacy of one run" in said[0]
    assert f"at most {both.right} are right" in said[1]
    assert "Privacy of this run and all before it" in said[1]
    assert f"This run alone: {alone.strength}, {alone.right} of 100." in said[1]


def test_what_no_ledger_was_there_to_say_is_not_said_to_be_in_it(applied, tmp_path):
    _, done = applied
    path = next(iter(done.certificates.values()))
    text = " ".join(sound(page_of(path)).text)
    assert "more runs fit" in text
    assert "Stated, not checked" not in text
    shutil.copytree(path.parent, tmp_path / "alone")
    text = " ".join(sound(page_of(tmp_path / "alone" / path.name)).text)
    assert "Stated, not checked" in text
    assert "more runs fit" not in text
    assert "runs together spent rho 0.0243" in text


def test_an_audit_s_page_names_the_claim_and_prints_nothing_that_is_no_python(
    tmp_path, monkeypatch
):
    """It printed `audit(specs/a.yaml#noisy (before the noise), ...)`, in files of older versions too."""
    monkeypatch.chdir(SPECS.parent)
    path, name = tmp_path / "a.json", "specs/digit-means.yaml#noisy"
    one = json.loads(audit_file(path).read_text())["audits"][0]
    del one["claim"]  # an older file has none
    promised = "(1, 1e-06)-DP [mu 0.236705] for one record added or removed"
    assert spec_claims(Path("specs/digit-means.yaml"), 2) == {}
    assert spec_claims(Path("specs/digit-means.yaml"))[name] == promised
    parts = [
        one
        | {"subject": f"{name} (before the noise)", "replay": f"audit({name} (before), d_in=1)"},
        one | {"subject": name, "claim": promised},
    ]
    path.write_text(json.dumps({"verdict": "not refuted", "audits": parts}))
    page = page_of(path)
    assert page.count("the claim that was tested") == 2
    assert promised in page
    assert "audit(" not in page
    assert "the noise is fresh each time, so other numbers come out" in page
    assert re.findall(r"<pre>(.*?)\n</pre>", page) == [
        "opendp-sim audit specs/digit-means.yaml --seed 0 --budget quick --beta 0.002"
    ]
    made = replace(report(), origin=f"{name} (before the noise)", beta=5e-4, shares=2)
    assert made.search == "opendp-sim audit specs/digit-means.yaml --seed 0 --budget quick"


def test_an_audit_s_page_names_one_command_that_repeats_its_finding(tmp_path, monkeypatch):
    """Of a spec: the same objects are audited with the same seed, distance and risk."""

    def audited(_subject, d_in, budget, *, seed, beta, origin, **_):
        return replace(report(text=origin), subject=origin, d_in=d_in, seed=seed, beta=beta)

    monkeypatch.setattr("opendp_sim.cli.audit.audit", audited)
    target = SPECS / "digit-means.yaml"
    told = CliRunner().invoke(
        app, ["audit", str(target), "--seed", "3", "--d-in", "2", "--beta", "0.01", "--json"]
    )
    (tmp_path / "a.json").write_text(told.stdout)
    (command,) = re.findall(r"<pre>(opendp-sim audit .*?)\n</pre>", page_of(tmp_path / "a.json"))
    again = CliRunner().invoke(app, [*shlex.split(command)[1:], "--json"])
    one, two = json.loads(told.stdout), json.loads(again.stdout)
    assert one["verdict"] == two["verdict"]
    for first, second in zip(one["audits"], two["audits"], strict=True):
        for word in ("subject", "seed", "beta", "budget", "d_in", "verdict"):
            assert first[word] == second[word]


def test_of_several_audits_the_page_s_command_is_that_of_the_refuted_one(tmp_path):
    path = audit_file(tmp_path / "a.json", refuted=True)
    held = json.loads(path.read_text())
    sound_one = json.loads(audit_file(tmp_path / "b.json").read_text())["audits"][0]
    bad = held["audits"][0] | {"subject": "m:bad", "d_in": 2, "beta": 5e-4}
    path.write_text(json.dumps(held | {"audits": [sound_one | {"subject": "m:good"}, bad]}))
    said = "opendp-sim audit m:bad --d-in 2 --seed 0 --budget quick --beta 0.0005"
    assert said in page_of(path)


def test_a_large_delta_is_a_warning_of_plan_and_page(tmp_path):
    spec = write_small(tmp_path)
    for text, told in ((".1", "once in 10 runs"), ("1.0e-6", "")):
        budget = f"{{epsilon: 1.0, delta: {text}}}"
        spec.write_text(re.sub(r"budget: \{.*?\}", f"budget: {budget}", spec.read_text()))
        page, lines = page_of(spec), repr(sim.plan(spec))
        for where in (page, lines):
            assert ("is too large" in where) == bool(told)
            assert told in where
    assert large_delta(2e-3, 400) is None
    assert large_delta(1e-3) is None
    assert "expects 5,000" in large_delta(5e-4, 5000)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"verdict": "not refuted", "audits"', '"verdict": "refuted", "audits"'),
        ('"status": "not refuted"', '"status": "refuted"'),
        ('"seed": 0', '"seed": "0"'),
        ('"seed": 0', '"seed": 0, "more": 1'),
        ('"layers": [', '"layers": [], "x": ['),
    ],
)
def test_an_audit_that_contradicts_itself_gives_no_page(tmp_path, old, new):
    path = audit_file(tmp_path / "audit.json")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(sim.SimError, match="OS501"):
        page_of(path)
    with pytest.raises(sim.SimError, match="OS501"):
        read_audits(path)


@pytest.mark.few(1)
@pytest.mark.parametrize("columns", [{"x": (0, 1)}, {"x": (0, 1), "<y>": (0, 9), "z": (0, 1)}])
def test_a_density_s_page_shows_a_curve_or_a_map_with_some_places(tmp_path, columns):
    rng = np.random.default_rng(5)
    table = {name: rng.beta(4, 9, 3000) * high for name, (_, high) in columns.items()}
    sim.density(columns, bandwidth=0.2, epsilon=2.0, delta=1e-6).apply(table, into=tmp_path)
    page = page_of(next(tmp_path.glob("*.certificate.json")))
    read = sound(page)
    map_ = len(columns) > 1
    assert f'aria-label="A {"map" if map_ else "curve"} of what was released"' in page
    rows = rows_of(page.partition("Not promised")[0])
    assert len(rows) == 4
    assert rows[0][0].startswith("x ")
    assert all(" ± " in row[1] for row in rows)
    assert ("z = 0.5" in " ".join(read.shown)) is map_
    assert read.words <= 450
    assert 'class="hatch"' in page or not map_


def test_an_answer_is_drawn_from_its_own_columns():
    row = {
        "density:a": "2.0",
        "density:b": "1.0",
        "lower:a": "1.5",
        "upper:a": "2.5",
        "lower:b": "0.5",
        "upper:b": "1.5",
    }
    part = _bars([row], confidence=0.95)
    assert part.body.count("<rect") == 2
    assert "In 95% of runs the exact answer lies on the line" in part.note
    assert "density, in records" in _bars([row], unit="records").body
    assert "probability, from 0 to 1" in _bars([{"probability": "0.5"}], unit="records").body
    assert _bars([{"coefficient": "1"}]) is None
    assert _bars([{"distance": "nan"}]) is None


def test_a_selection_is_shown_as_a_list_with_its_ranks_and_counts():
    (part,) = _items(["x", "y"])
    assert (part.kind, part.body) == ("names", [("", "x"), ("", "y")])
    assert "The order means nothing" in part.note
    (part,) = _items(["x"], ranked=True)
    assert part.body == [("1", "x")]
    (part,) = _items({"rank": [1, 2], "item": ["x", "y"], "count": [12.5, 3]})
    assert part.body == [("1", "x (12.5)"), ("2", "y (3)")]
    assert "Counts are noisy" in part.note
    (part,) = _items({"rank": [1], "item": [HOSTILE]})
    assert "was not released" in part.note
    (part,) = _items([])
    assert part.note.startswith("No item was selected")
    (part,) = _items(7)
    assert part.body == [("released number", "7")]
    (part,) = _items([["a", "b"], []])
    assert part.body == [("1", '["a", "b"]'), ("2", "[]")]
    (part,) = _items([str(n) for n in range(30)])
    assert len(part.body) == 20
    assert "20 of the 30 that are released" in part.note


def test_hostile_text_is_text_wherever_a_page_prints_one():
    """Every field of the facts, in one page: a script's tag, a closing style, an entity, a control character."""
    evil = HOSTILE + '</style>"&amp;\u202e`x`'
    pictures = [
        _bars([{f"density:{evil}": "1"}]).body,
        heat_map([[1.0]], [[True]], ((evil, 0, 1), (evil, 0, 1))),
        share_bar([(evil[:3], 0.9)], evil[:3]),
    ]
    parts = [Part("picture", picture, evil, evil) for picture in pictures]
    parts += [Part(kind, [evil], evil, evil) for kind in ("text", "list", "order", "code")]
    parts += [Part(kind, [(evil, evil)], evil, evil) for kind in ("names", "pairs")]
    parts.append(Part("table", [(evil, evil)], evil, evil, (evil, evil)))
    parts.append(Part("flow", [FlowBox("work", evil, evil, evil)], evil, evil))
    facts = Facts(evil, evil, evil, [(evil, evil)], Judgement(evil, evil, evil, evil))
    facts.warnings, facts.tiles = parts, [Tile(evil, evil, evil, warn=True)]
    facts.cards = facts.folds = [Card(evil, parts, evil)]
    facts.choices = (evil,)
    page = render(facts)
    sound(page)
    assert page.count("</style>") == 1
    assert "\u202e" not in page
    assert page.count("&lt;script&gt;") >= 60


@pytest.mark.parametrize("refuted", [False, True])
def test_a_hostile_audit_is_text(tmp_path, refuted):
    page = page_of(audit_file(tmp_path / "audit.json", refuted=refuted, text=HOSTILE))
    sound(page)
    assert page.count("&lt;script&gt;") >= 4


def test_hostile_names_of_a_spec_are_text_or_refused(tmp_path):
    for old, new in (
        ("name: small", 'name: "<script>alert(1)</script>"'),
        ("x:", '"<script>":'),
        ("kind:", '"<b>":'),
    ):
        spec = write_small(tmp_path)
        text = spec.read_text()
        if old not in text:
            continue
        spec.write_text(text.replace(old, new))
        try:
            page = page_of(spec)
        except sim.Refused:
            continue  # such a name is refused before any page
        sound(page)


def test_a_bar_of_shares_never_leaves_its_frame():
    page = share_bar([("run 1", 0.6), ("run 2", 0.7)], "0% left")
    ends = [
        float(x) + float(w) for x, w in re.findall(r'x="([\d.]+)" y="2" width="([\d.]+)"', page)
    ]
    assert max(ends) <= 700
    assert "run 1" in page


def test_a_map_hatches_what_noise_decides():
    page = heat_map(
        [[0.0, 9.0], [1.0, 2.0]], [[False, True], [False, True]], (("x", 0, 1), ("y", 0, 1))
    )
    assert page.count("L") - page.count("a L") >= 2
    hatched = re.search(r'class="hatch" d="(.*?)"', page).group(1)
    assert hatched.count("M") == 2
    assert sum(d.count("M") for d in re.findall(r'class="cell".*?d="(.*?)"', page)) == 2


def test_a_long_ledger_is_shown_in_part_and_told_in_whole(tmp_path):
    path = charged(tmp_path / "l.ledger", *[(1e-5, "charge")] * (_SHOWN + 9))
    facts = ledger_facts(path)
    bar, table = facts.cards[0].parts
    assert len(table.body) == _SHOWN
    assert f"The last {_SHOWN} of {_SHOWN + 9} runs" in table.note
    assert len(facts.folds[0].parts[1].body) == 9
    assert not any(tile.warn for tile in facts.tiles)
    assert "run 17" in bar.body or "left" in bar.body
    assert sound(render(facts)).words <= 450


def test_a_ledger_s_page_says_in_words_what_is_spent_and_for_whom(tmp_path):
    assert set(_UNITS) == set(get_args(MeasureName))
    assert all(text.startswith("What is spent is") for text in _UNITS.values())
    with Ledger.open(tmp_path / "a.ledger", TERMS):
        pass
    facts = ledger_facts(tmp_path / "a.ledger")
    assert _UNITS[TERMS.measure] in facts.folds[0].parts[0].body
    assert (
        _protected("add_remove 1 of row") == "one record added or removed (`add_remove 1 of row`)"
    )
    assert _protected("replace 1 of name").startswith("all rows of one `name` replaced")
    assert _protected("something else") == "something else"
    assert dict(facts.folds[-1].parts[1].body)["unit"] == _protected(str(TERMS.unit))


def test_a_mean_without_classes_has_a_page(tmp_path):
    """A release lists the question about classes, which one of a single mean refuses (OS204)."""
    fit = sim.means({"x": (0, 1)})
    fit.apply({"x": np.linspace(0, 1, 50)}, into=tmp_path)
    page = page_of(tmp_path / "release.npz.certificate.json")
    assert "nearest" not in page.partition("<h2>")[0]
