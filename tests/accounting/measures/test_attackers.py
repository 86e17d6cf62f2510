"""What a claim means for an attacker: against the definitions, other libraries, and attained bounds."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from scipy import special

from opendp_sim.accounting.measures.attackers import RATES, VERY_WEAK, Attacker
from opendp_sim.dsl.grammar.pages import CHOOSING


@pytest.mark.parametrize("mu", [0.0, 1e-6, 0.01, 0.2367, 1.0, 5.0, 40.0, 1e4])
def test_gaussian_power_is_the_trade_off_function_rounded_up(mu):
    attacker = Attacker("gdp", (mu**2 / 2,))
    for rate in RATES:
        true = special.ndtr(special.ndtri(rate) + math.sqrt(2 * attacker.loss[0]))
        assert attacker.power(rate) >= true * (1 - 1e-14)
        assert attacker.power(rate) == pytest.approx(true, rel=1e-11)
    assert attacker.advantage == pytest.approx(
        math.erf(mu / 2 / math.sqrt(2)), rel=1e-12, abs=1e-12
    )


def test_riskcal_agrees():
    library = pytest.importorskip("riskcal")
    for mu in (0.01, 0.5, 1.0, 4.0):
        attacker = Attacker("gdp", (mu**2 / 2,))
        assert attacker.advantage == pytest.approx(
            library.analysis.get_advantage_from_gdp(mu), rel=1e-9
        )
        for rate in (1e-3, 0.01, 0.1, 0.5):
            beta = library.analysis.get_beta_from_gdp(mu, rate)
            assert attacker.power(rate) == pytest.approx(1 - beta, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 30.0])
def test_randomised_response_attains_the_pure_bound(epsilon):
    attacker = Attacker("pure", (epsilon,))
    v = special.expit(-epsilon)  # both errors of the best guess
    assert attacker.power(min(0.4999, v)) >= 1 - v - 1e-9
    assert attacker.advantage == pytest.approx(math.tanh(epsilon / 2), rel=1e-9)
    grid = np.linspace(1e-4, 0.9999, 2001)
    found = max(attacker.power(r) - r for r in grid)
    assert found <= attacker.advantage + 1e-9
    with_delta = Attacker("approx", (epsilon, 0.01))
    assert all(with_delta.power(r) >= attacker.power(r) for r in RATES)


@pytest.mark.parametrize("mu", [0.05, 0.2367, 1.0, 3.0])
def test_zcdp_allows_more_than_the_gaussian_that_has_it(mu):
    gaussian, zcdp = Attacker("gdp", (mu**2 / 2,)), Attacker("zcdp", (mu**2 / 2,))
    approximate = Attacker("approx_zcdp", (mu**2 / 2, 1e-6))
    for rate in RATES:
        assert gaussian.power(rate) < zcdp.power(rate) < approximate.power(rate) or zcdp.power(
            rate
        ) == pytest.approx(1.0)
    assert gaussian.advantage < zcdp.advantage < approximate.advantage
    assert zcdp.advantage <= min(1.0, mu / 2) * (1 + 1e-6)  # Pinsker


def test_the_symmetric_pair_is_the_best_one():
    """Lemma A2: no other rate beats the advantage at (1 - v) / 2."""
    zcdp = Attacker("zcdp", (0.1,))
    found = [zcdp.power(r) - r for r in np.linspace(0.01, 0.99, 99)]
    assert max(found) <= zcdp.advantage + 1e-9
    assert zcdp.power((1 - zcdp.advantage) / 2) == pytest.approx((1 + zcdp.advantage) / 2, abs=1e-8)


def test_no_claim_is_no_bound():
    for measure in ("gdp", "zcdp", "pure"):
        assert Attacker(measure, (math.inf,)).advantage == 1.0
        assert Attacker(measure, (math.inf,)).power(0.01) == 1.0
        assert Attacker(measure, (0.0,)).power(0.01) == pytest.approx(0.01)
        assert Attacker(measure, (1e6,)).power(0.01) == pytest.approx(1.0)


def test_what_is_found_is_rounded_up():
    for mu in np.geomspace(0.01, 8, 30):
        attacker = Attacker("gdp", (mu**2 / 2,))
        shown = float(attacker.found(0.01))
        assert 100 * attacker.power(0.01) <= shown * (1 + 1e-9)
        assert shown <= 100 * attacker.power(0.01) * 1.01
    assert Attacker("gdp", (0.0,)).found(0.01) == "1"


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 3.0, 8.0, 12.0, 800.0])
@pytest.mark.parametrize("measure", ["pure", "approx", "gdp", "zcdp"])
def test_a_guess_at_even_odds_is_told_rounded_up(measure, epsilon):
    """The best guess of randomised response is right as often as is said: the words are not below it."""
    attacker = Attacker(measure, (epsilon, 1e-6) if measure == "approx" else (epsilon,))
    true = 50 * (1 + attacker.advantage)
    assert true * (1 - 1e-11) <= float(attacker.right) <= min(100.0, true + 0.1)
    if measure == "pure":
        assert true == pytest.approx(100 * special.expit(epsilon), rel=1e-9)
    if epsilon == 0 and measure != "approx":
        assert attacker.right == "50"


def test_the_words_of_epsilon_are_those_of_the_scale():
    """`explain epsilon` states the largest epsilon of each word under pure DP."""
    for epsilon, word in ((0.4, "strong"), (1.09, "moderate"), (2.19, "weak"), (2.2, VERY_WEAK)):
        assert Attacker("pure", (epsilon,)).strength == word
        assert word in CHOOSING["epsilon"]
    told = re.findall(r"\d\.\d+", CHOOSING["epsilon"].partition("very weak")[2])
    assert told[:3] == ["0.4", "1.09", "2.19"]


def test_a_word_for_the_strength_follows_the_guess():
    words = [Attacker("pure", (epsilon,)).strength for epsilon in (0.0, 0.4, 1.0, 2.0, 4.0)]
    assert words == ["strong", "strong", "moderate", "weak", "very weak"]
