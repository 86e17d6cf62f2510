"""Every symbol and word of the field that a plan, a report or a refusal prints: what it stands for.

``explain`` serves them. Parameters of mechanisms have their symbols in the catalogue, and a page lists
whose they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from opendp_sim.accounting.measures.attackers import WORDS
from opendp_sim.core.about import describe
from opendp_sim.core.mechanism import Mechanism

_NONE = "no unit"
SYMBOLS: dict[str, tuple[str, str]] = {
    "epsilon": (
        _NONE,
        (
            "The privacy loss: whatever is released is at most e^epsilon times as likely with one "
            "protected unit as without it, apart from delta."
        ),
    ),
    "delta": (
        "probability",
        (
            "What is added to the limit that epsilon sets; it should be far below one over the number of "
            "people."
        ),
    ),
    "mu": (
        _NONE,
        (
            "The privacy loss of Gaussian DP (GDP): to tell whether one protected unit is in the data is "
            "at least as hard as to tell a normal variable of mean 0 from one of mean mu, both of "
            "variance 1; over several runs the squares of mu add up."
        ),
    ),
    "rho": (
        _NONE,
        (
            "The privacy loss of zero-concentrated DP (zCDP): it bounds the Renyi divergence of every "
            "order alpha by alpha times rho; over several runs rho adds up."
        ),
    ),
    "alpha": (
        _NONE,
        "The order of a Renyi divergence, which zCDP bounds; also a false-positive rate of a test.",
    ),
    "beta": (
        "probability",
        "The chance that a statement fails, as that of a false alarm of `audit`.",
    ),
    "sigma": (
        "the unit of what noise is added to",
        "The scale of Gaussian noise: about its standard deviation.",
    ),
    "s": (
        "the unit of what noise is added to",
        "The scale of noise: larger is more private and less accurate.",
    ),
    "k": ("items", "How many items, neighbours or classes are wanted."),
    "n": ("records", "The number of records, which is private under `add_remove`."),
    "d_in": (
        "records or persons",
        (
            "How far apart two data sets are that must not be told apart: the protected unit, as OpenDP "
            "counts it."
        ),
    ),
    "d_out": (
        "the measure's own",
        "What such two data sets may differ by after the release: the loss.",
    ),
    "l1": ("the unit of the numbers", "A norm: all changes added up without their signs."),
    "l2": ("the unit of the numbers", "A norm: the root of the sum of all squared changes."),
    "linf": ("the unit of the numbers", "A norm: the largest of all changes."),
    "sensitivity": (
        "the unit of the numbers",
        "The most that one record can change what noise is added to, in a norm.",
    ),
    "stability": (
        "rows for each row",
        "How many rows one row more or less may become behind a step.",
    ),
    "sha256": (_NONE, "A hash of 256 bits: two files with the same one are the same file."),
}
"""A symbol or word: its unit, and one plain sentence."""
for _most, _word in WORDS:
    SYMBOLS[_word] = (
        "right guesses in 100",
        (
            f"A verdict on a claim: a spy at 50:50 guesses right up to so often in 100 "
            f"({', '.join(f'{word} up to {most}' for most, word in WORDS)})."
        ),
    )
_GREEK = {
    "ε": "epsilon",
    "δ": "delta",
    "μ": "mu",
    "ρ": "rho",
    "α": "alpha",
    "β": "beta",
    "σ": "sigma",
    "eps": "epsilon",
    "τ": "tau",
    "π": "pi",
    "κ": "kappa",
    "l∞": "linf",
    "L1": "l1",
    "L2": "l2",
    "L∞": "linf",
}
_LISTED = 12
"""Parameters that a page of a symbol names."""


def symbol_of(word: str, registry: Mapping[str, type[Mechanism]]) -> str | None:
    """Return the symbol that is meant, also as a Greek letter; None for what is none."""
    for said in (_GREEK.get(word, word), word.lower()):
        if said in SYMBOLS or any(_parameters(said, registry)):
            return said
    return None


def page_of_a_symbol(symbol: str, registry: Mapping[str, type[Mechanism]]) -> str:
    """Return the page of a symbol: its unit, what it says, and which parameters are written so."""
    lines = [f"{symbol} (a symbol or word of plans, reports and proofs)", ""]
    if symbol in SYMBOLS:
        unit, said = SYMBOLS[symbol]
        lines += [f"    in {unit}", f"    {said}"]
    found = list(_parameters(symbol, registry))
    if found:
        more = f", and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        lines += [f"    In proofs it stands for {', '.join(found[:_LISTED])}{more}."]
    return "\n".join(lines)


def _parameters(symbol: str, registry: Mapping[str, type[Mechanism]]) -> Iterator[str]:
    """Yield the parameters that a proof writes with this symbol: `name` of `mechanism`."""
    known = {symbol, *(greek for greek, plain in _GREEK.items() if plain == symbol)}
    for key, cls in sorted(registry.items()):
        for name, about in describe(cls).items():
            if known & set(about.symbol.split(",")) and about.symbol != "-":
                yield f"`{name}` of `{key}`"
