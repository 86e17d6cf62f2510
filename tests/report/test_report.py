"""The report: one page, without scripts, that fetches nothing and believes no text."""

from __future__ import annotations

import inspect
import json
import math
import re
import shlex
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

import opendp_sim as sim
from opendp_sim.accounting.budget import Limit, MeasureName
from opendp_sim.accounting.budget_warnings import large_delta
from opendp_sim.accounting.composition import Charge
from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.accounting.measures.attackers import attacker_of
from opendp_sim.cli import app
from opendp_sim.cli._audit_spec import spec_claims
from opendp_sim.core.errors import AuditError
from opendp_sim.core.mechanism import REGISTRY
from opendp_sim.dsl.plan.errors import whole_of
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.report.answer import _bars, _items
from opendp_sim.report.audit import read_audits
from opendp_sim.report.charts import _lines, burn_chart, round_ticks
from opendp_sim.report.facts import Facts, promise_ending
from opendp_sim.report.figures import Figure
from opendp_sim.report.flows import Flow, FlowBox
from opendp_sim.report.ledger import _DRAWN, _UNITS, _protected, ledger_facts
from opendp_sim.report.page import page_of, render
from opendp_sim.report.tiles import Tile
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
        "nothing was spent",
        "one record",
        "no ledger",
        "race_sketch",
        "gaussian",
        "only 1 in 100",
        "One record is one row of `digits`",
        "whoever has several is protected less",
        "2.72 times as likely",
        "nobody counts repeated releases: runs add up",
        "Is a row a person? The program does not say",
        "There is no ledger, so nobody counts repeated releases: after a second run like this",
        "2 such runs on the same data",
        "a person with 10 rows",
        "2.5% by the draws of the sketch",
        "Recipients",
        "at most 54.8 times in 100, from this run alone",
        "this is all that this run costs",
        "(L2 norm)",
        "Its typical size (deviation): 88.2.",
        "passing it on weakens nothing",
        "with one row in the data, anything that is released, and anything that is done because of it",
        "a lead is safe from 17.6 records on",
        "protection strong (by such guesses: strong up to 60, moderate up to 75, weak up to 90, very weak above)",
        "absent records that are accused",
        "changes by at most 1 row",
        "Nobody has more than one row in `digits`",
        "guesses right at most 59.4 times in 100",
        "Sign here",
        "Decision: may it be run, and how often",
        "In the folder of these files",
        "How wrong answers will be",
        "2 of 3 answers within 6.5 records if there are 100 records",
        "noise 4.43 whatever their number",
        "3.7% by the projection",
        "noise of `densities`, in records",
        "What the author was warned of",
        "jl_projection: in front",
        "What is not promised",
        "Which data, and what is handed out",
        "pixels (64 numbers in [0, 16])",
        "Reviewed by",
        "proved and audited",
        "opendp-sim plan",
    ):
        assert said in text
    assert page.count("<svg") == 2


def test_a_certificate_is_verified_before_it_gets_a_page(applied):
    folder, done = applied
    path = next(iter(done.certificates.values()))
    text = " ".join(sound(page_of(path)).text)
    assert "sha256" in text
    assert "statements agree" in text
    assert "Decision: may this file be handed out, and to whom" in text
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


def test_a_ledger_s_page_lists_what_was_spent(applied):
    folder, _ = applied
    text = " ".join(sound(page_of(next(folder.glob("*.ledger")))).text)
    assert "11% spent" in text
    assert "charge" in text
    assert "Where the budget went" in text


def test_the_page_of_a_replaced_record_speaks_of_what_it_says(tmp_path):
    page = " ".join(sound(page_of(SPECS / "teacher-votes.yaml")).text)
    for said in (
        "with what one row said",
        "2,990 times as likely as with anything else in its place",
        "said the second, and are named",
        "a set leading by under 32 votes is held back in most runs",
        "for each of 10 questions at most 3 of 4 labels, or no answer; the votes are not handed out",
        "if no other teacher learnt from records of the same person",
        "(one that is replaced goes out, and another comes in)",
        "the first of two things that are possible",
        "what is protected is what it says",
    ):
        assert said in page
    for said in ("present", "absent", "without them", "are in the data.", "e+03"):
        assert said not in page
    page = " ".join(sound(page_of(SPECS / "digit-density.yaml")).text)
    assert "with one row in the data" in page
    assert "absent records that are accused" in page
    assert "what is protected is what it says" not in page


def test_a_page_says_how_errors_add_up_and_why_epsilon_does_not_decide():
    """A reader summed 4.43, 3.7, 2.5 and .18 to 10.8, where the root of the squares is 6.5."""
    text = {
        stem: " ".join(sound(page_of(SPECS / f"{stem}.yaml")).text)
        for stem in ("digit-density", "digit-means", "bright-pixels")
    }
    sums = whole_of(plan_file(SPECS / "digit-density.yaml").outputs["densities"], 4.43)
    assert sums.at(100) == pytest.approx(math.hypot(4.43, 3.7, 2.5) + 0.18, abs=0.05)
    squares = (
        "Noise, the draws of the sketch and the projection have nothing to do with one another"
    )
    assert squares in text["digit-density"]
    assert (
        "rounding to the grid may change can all point one way, so it is added to that root"
        in (text["digit-density"])
    )
    assert "squares are summed" not in text["digit-means"]
    assert "so it is added to the noise in full" in text["digit-means"]
    assert "the records of one class, not of the whole file" in text["digit-means"]
    assert "They alone would allow 73.2 in 100." in text["digit-density"]
    assert "is the most that epsilon and delta allow" in text["bright-pixels"]


def test_a_unit_of_a_column_has_its_name_and_may_be_no_person():
    """One `image` was called one person, and its column one that names the person."""
    text = " ".join(sound(page_of(SPECS / "bright-pixels.yaml")).text)
    for said in (
        "What is protected is one `image`: all rows of `digits` with the same `image`",
        "Is one `image` one person? The program does not say",
        'Where this page says "person" it means one `image`.',
        "one `image` all rows of it added or removed",
        "image (names who is protected)",
        "Why so far down for 4 names",
        "each missing one counts as an item with 0 votes",
    ):
        assert said in text
    assert "One person is here" not in text
    assert "these bounds" not in text  # it declares none


def test_a_long_label_over_a_picture_is_in_two_lines():
    said = "noise of `distances`, in squared units of the columns, for means of 100 records"
    assert " ".join(_lines(said)) == said
    assert len(_lines(said)) == 2
    assert _lines("records") == ["records"]
    assert max(map(len, _lines("word " * 60))) <= 54
    assert _lines("") == [""]


def test_a_ledger_s_page_tells_entries_that_are_no_runs_and_keeps_headlines_short(tmp_path):
    with Ledger.open(tmp_path / "l.ledger", TERMS) as ledger:
        paid = ledger.reserve(Charge("zcdp", (0.02,)), {"name": "paid"})
        ledger.settle(paid, "charge", {})
    facts = ledger_facts(tmp_path / "l.ledger")
    (left,) = (tile for tile in facts.tiles if tile.big.endswith("% left"))
    assert left.small.startswith("of the limit, for later runs on the same data: room for one more")
    assert max(len(tile.big) for tile in facts.tiles) <= 40
    (run,) = (tile for tile in facts.tiles if tile.big == "one run")
    assert "in 2 entries" in run.small
    assert "besides the runs: 1 `reserve` (a loss set aside before its run" in run.small


def test_a_ledger_s_page_shows_each_run_once_with_its_loss_in_words(tmp_path):
    with Ledger.open(tmp_path / "l.ledger", TERMS) as ledger:
        paid = ledger.reserve(Charge("zcdp", (0.02,)), {"name": "paid"})
        ledger.settle(paid, "charge", {})
        ledger.settle(
            ledger.reserve(Charge("zcdp", (0.03,)), {"name": "refused"}),
            "refusal",
            {"code": "OS605"},
        )
        ledger.reserve(Charge("zcdp", (0.04,)), {"name": "open"})
    rows = re.findall(r"<tr><th scope=\"row\">(.*?)</tr>", page_of(tmp_path / "l.ledger"))
    assert [re.sub("<.*?>", "|", row) for row in rows] == [
        "2||charge paid||rho 0.02|",
        "5||reserve open||rho 0.04|",
    ]


def test_two_equal_runs_are_two_equal_parts_of_a_limit_in_mu(tmp_path):
    """Squares of mu add up: a limit that two runs fill is half spent after one, not 29%."""
    terms = replace(TERMS, measure="gdp", limit=Limit(mu=0.35))
    run = Charge("gdp", (0.35**2 / 4 * 0.98,))
    with Ledger.open(tmp_path / "l.ledger", terms) as ledger:
        for at, share in enumerate((0.49, 0.98), 1):
            paid = ledger.reserve(run, {"name": f"run {at}"})
            ledger.settle(paid, "charge", {})
            assert ledger.total().share == pytest.approx(share, rel=1e-6)
    text = " ".join(sound(page_of(tmp_path / "l.ledger")).text)
    assert "98% spent" in text
    assert "the squares add up, not the numbers themselves" in text
    assert "Every run that was made with this ledger" in text
    right = attacker_of("gdp", (2 * run.loss[0],)).right
    assert f"after all these runs a 50:50 guess is right at most {right} times in 100" in text


def test_the_page_of_a_second_run_says_what_both_come_to(tmp_path):
    write_small(tmp_path)
    said = []
    for _ in range(2):
        done = sim.apply(tmp_path / "small.yaml")
        page = page_of(next(iter(done.certificates.values())))
        said.append(" ".join(sound(page).text))
    (loss,) = done.plan.total
    alone, both = (attacker_of(done.plan.privacy.measure, (n * loss,)).right for n in (1, 2))
    assert float(alone) < float(both)
    assert f"at most {alone} times in 100, from this run alone; tossing" in said[0]
    assert "from all runs" not in said[0]
    told = f"{alone} times in 100, from this run alone, and at most {both} from all runs in its ledger up to this one"
    assert told in said[1]
    words = [attacker_of(done.plan.privacy.measure, (n * loss,)).strength for n in (1, 2)]
    assert f"calls the protection {words[0]} (by such guesses" in said[0]
    verdict = f"after all these runs {words[1]} (this run alone: {words[0]}; by such guesses"
    assert f"calls the protection {verdict}" in said[1]


def test_the_verdict_of_a_run_is_that_of_all_runs_of_its_ledger():
    own, together = attacker_of("gdp", (0.03,)), attacker_of("gdp", (0.3,))
    assert (own.strength, together.strength) == ("strong", "moderate")
    assert promise_ending(own).startswith("strong (by such guesses: strong up to 60")
    assert promise_ending(own, together).startswith(
        "after all these runs moderate (this run alone: strong; by"
    )
    worst = attacker_of("gdp", (30.0,))
    assert promise_ending(own, worst).startswith("after all these runs very weak (this")


def test_what_no_ledger_was_there_to_say_is_not_said_to_be_in_it(applied, tmp_path):
    _, done = applied
    path = next(iter(done.certificates.values()))
    text = " ".join(sound(page_of(path)).text)
    assert "in the ledger" in text
    assert "stated, not checked" not in text
    shutil.copytree(path.parent, tmp_path / "alone")
    text = " ".join(sound(page_of(tmp_path / "alone" / path.name)).text)
    assert "stated, not checked" in text
    assert "in the ledger" not in text
    assert "this run cost rho 0.0243" in text
    assert "all runs of the ledger up to it together rho 0.0243" in text


def test_an_audit_s_page_says_what_was_looked_at(tmp_path):
    text = " ".join(sound(page_of(audit_file(tmp_path / "audit.json"))).text)
    for said in (
        "not refuted",
        "That is no proof",
        "24 pairs",
        "no noiseless part",
        "opendp-sim audit",
    ):
        assert said in text
    text = " ".join(sound(page_of(audit_file(tmp_path / "bad.json", refuted=True))).text)
    for said in ("The claim is wrong", "1 refuted and 0 priced, of 1 audited", "[1, 2]", "1.25"):
        assert said in text
    priced = audit_file(tmp_path / "priced.json", priced=True)
    text = " ".join(sound(page_of(priced)).text)
    for said in ("A person has to look at it", "0 refuted and 1 priced", "[1, 2]", "epsilon 0.5"):
        assert said in text
    other = json.loads(priced.read_text())
    other["verdict"] = "not refuted"
    priced.write_text(json.dumps(other))
    with pytest.raises(AuditError, match="OS501"):
        read_audits(priced)


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
    assert re.findall(r"<pre>(.*?)</pre>", page) == [
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
    (command,) = re.findall(r"<pre>(opendp-sim audit .*?)</pre>", page_of(tmp_path / "a.json"))
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
        if told:
            assert 'class="warn"><b>delta = 0.1</b>' in page
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


def test_a_certificate_s_page_shows_one_answer(applied):
    _, done = applied
    pages = [page_of(path) for path in done.certificates.values()]
    shown = [page for page in pages if "One answered question" in page]
    assert shown
    for page in shown:
        assert 'aria-label="One answered question"' in page
        assert "no further privacy" in " ".join(sound(page).text)
    assert "One answered question" not in page_of(SPECS / "digit-density.yaml")


def test_an_answer_is_drawn_from_its_own_columns():
    row = {
        "density:a": "2.0",
        "density:b": "1.0",
        "lower:a": "1.5",
        "upper:a": "2.5",
        "lower:b": "0.5",
        "upper:b": "1.5",
    }
    figure = _bars([row], 0.95)
    assert figure.picture.count("<rect") == 2
    assert "In 95 of 100 cases the answer without noise lies on the line" in figure.caption
    assert "density, in records" in _bars([row], 0.95, "records").picture
    assert "probability, from 0 to 1" in _bars([{"probability": "0.5"}], 0.0, "records").picture
    assert _bars([{"coefficient": "1"}]) is None
    assert _bars([{"distance": "nan"}]) is None
    assert _items([1.5]) is None
    assert _items(["x", "y"]).picture.count("<li>") == 2


def test_hostile_text_is_text_wherever_a_page_prints_one():
    """Every field of the facts, in one page: a script's tag, a closing style, an entity, a control character."""
    evil = HOSTILE + '</style>"&amp;\u202e'
    facts = Facts(evil, evil, evil, evil, evil)
    facts.tiles = [Tile(evil, evil, warn=True)]
    facts.flows = [Flow(evil, (FlowBox("work", evil, evil, evil),)), Flow(evil, ())]
    facts.figures = [Figure(evil, _bars([{f"density:{evil}": "1"}]).picture, evil), _items([evil])]
    facts.not_promised = facts.believe = [evil]
    facts.wrong, facts.warnings = [(evil, evil)], [evil]
    facts.evidence = [dict.fromkeys(("key", "tier", "laws", "twins", "audits"), evil)]
    facts.charges, facts.details = [(evil, evil, evil)], [(evil, evil)]
    facts.handed = facts.checks = [(evil, evil)]
    facts.wear, facts.about, facts.blank = [(evil, evil)], [(evil, evil)], [evil]
    page = render(facts)
    sound(page)
    assert page.count("</style>") == 1
    assert "\u202e" not in page
    assert page.count("&lt;script&gt;") >= 20


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


@pytest.mark.parametrize("key", sorted(REGISTRY))
def test_what_a_step_does_is_told_in_plain_words(key):
    told = REGISTRY[key].in_short or (inspect.getdoc(REGISTRY[key]) or "").partition("\n\n")[0]
    assert not re.search(r"[_^=|≤∑`\\]", told), told
    assert told.endswith(".")
    assert len(told) <= 110


@pytest.mark.parametrize(
    ("low", "high"), [(0, 4.43), (0, 1), (-3.2, 17), (0, 1e-9), (0, 7.3e11), (0, 99.9)]
)
def test_ticks_are_round_and_hold_both_ends(low, high):
    ticks = round_ticks(low, high)
    assert 4 <= len(ticks) <= 9
    assert ticks[0] <= low
    assert ticks[-1] >= high * (1 - 1e-12)
    assert all(float(f"{tick:.3g}") == pytest.approx(tick) for tick in ticks)


def test_a_burn_down_climbs_where_a_run_was_counted():
    page = burn_chart([0.0, 0.25, 0.25, 1.2])
    assert page.count("<path") == 2
    assert "the limit" in page
    assert ">120%<" in page or ">125%<" in page


def test_a_long_ledger_is_drawn_in_part_and_told_in_whole(tmp_path):
    with Ledger.open(tmp_path / "l.ledger", TERMS) as ledger:
        for run in range(_DRAWN + 2):
            paid = ledger.reserve(Charge("zcdp", (1e-5,)), {"name": f"run {run}"})
            ledger.settle(paid, "charge", {})
    facts = ledger_facts(tmp_path / "l.ledger")
    assert len(facts.charges) == _DRAWN + 2
    assert f"The first {_DRAWN} of {_DRAWN + 2} runs" in facts.figures[0].caption
    assert not any(tile.warn for tile in facts.tiles)


def test_a_ledger_s_page_says_in_words_what_is_spent_and_for_whom(tmp_path):
    assert set(_UNITS) == set(get_args(MeasureName))
    assert all(text.startswith("What is spent is") for text in _UNITS.values())
    with Ledger.open(tmp_path / "a.ledger", TERMS):
        pass
    facts = ledger_facts(tmp_path / "a.ledger")
    assert _UNITS[TERMS.measure] in facts.promise
    assert (
        _protected("add_remove 1 of row") == "one record added or removed (`add_remove 1 of row`)"
    )
    assert _protected("replace 1 of name").startswith("one person (column `name`) replaced")
    assert _protected("something else") == "something else"
    assert dict(facts.details)["unit"] == _protected(str(TERMS.unit))
