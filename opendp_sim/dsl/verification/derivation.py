"""Derive a certificate's numbers, one line each.

A person with a calculator can repeat it. Each line names a number, says the formula with its numbers
put in, and gives the value of that formula computed here in plain floats, beside the certified one.
``accounting/certificate/certificate.md`` has the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path as File
from typing import Any

from opendp_sim.accounting.certificate.certificate import read_certificate, statement_digest
from opendp_sim.accounting.measures.gaussian import delta_bounds, mu_squared_of_pure
from opendp_sim.accounting.measures.second_opinion import gdp_to_epsilon, zcdp_to_epsilon
from opendp_sim.core.errors import ReleaseError

_TOLERANCE = 1e-9


def derivation(path: str | File) -> list[str]:
    """Return the derivation of every number of a certificate, line by line.

    Raises:
        ReleaseError (OS701): no certificate, or a certified number is not what its formula gives.
    """
    record, plain = read_certificate(path)
    try:
        lines = list(_lines(record.plan, plain, str(path)))
    except (KeyError, TypeError, IndexError, AttributeError, ValueError, ArithmeticError):
        lines = []
    if not lines:
        raise _wrong(str(path), "plan", "no plan as `apply` writes it")
    return lines


def _lines(plan: dict[str, Any], plain: dict[str, Any], path: str) -> Iterator[str]:
    privacy = plan["privacy"]
    if privacy is None:
        yield "all data is public: nothing is lost, and there is nothing to derive"
        return
    unit = privacy["unit"]
    count = unit.get("add_remove", unit.get("replace"))
    twice = "replace" in unit
    yield f"distance   d = {'2 x ' if twice else ''}{count} = {privacy['d_in']}   (replacing one is 2)"
    for name, release in sorted(plan["releases"].items()):
        yield from _release(name, release, privacy, path)
    losses = [r["loss"] for r in plan["releases"].values() if r["loss"]]
    for place, total in enumerate(plan["total"]):
        parts = [loss[place] for loss in losses]
        _agree(path, f"plan.total[{place}]", math.fsum(parts), total)
        yield f"total      {' + '.join(map(repr, parts))} = {total!r}"
    if plan["claim"] is not None:
        yield from _claim(plan, path)
    yield from _charge(plain)


def _release(
    name: str, release: dict[str, Any], privacy: dict[str, Any], path: str
) -> Iterator[str]:
    if release["mechanism"] == "none":
        yield f"{name}: public, no loss"
        return
    ((key, params),) = release["mechanism"].items()
    distance = float(privacy["d_in"])
    for step, after in release["maps"]:
        times = after / distance if distance else math.nan
        yield f"{name}: after {step}: {distance!r} x {times!r} = {after!r}   (lemma in {step}.md)"
        distance = float(after)
    scale, own = params.get("scale"), release["own"]
    value = _noise_loss(own["measure"], distance, scale) if release["norm"] and scale else None
    if value is not None:
        formula = (
            f"({distance!r} / {scale!r})^2 / 2"
            if "concentrated" in own["measure"]
            else f"{distance!r} / {scale!r}"
        )
        _agree(path, f"plan.releases.{name}.own.loss", value, own["loss"][0])
        yield f"{name}: {key}: {formula} = {own['loss'][0]!r}   ({own['measure']})"
    else:
        yield (
            f"{name}: {key}: the map of its lemma in {key}.md at distance {distance!r} with "
            f"{params} = {own['loss']!r}   ({own['measure']})"
        )
    if list(own["loss"]) != list(release["loss"]):
        yield from _cast(name, own, release["loss"], privacy, path)


def _noise_loss(measure: str, distance: float, scale: float) -> float | None:
    if measure == "max_divergence":
        return distance / scale
    return (distance / scale) ** 2 / 2 if measure == "zero_concentrated_divergence" else None


def _cast(
    name: str, own: dict[str, Any], loss: list[float], privacy: dict[str, Any], path: str
) -> Iterator[str]:
    have, first, want = own["measure"], own["loss"][0], privacy["measure"]
    if have == "max_divergence" and "zcdp" in want:
        _agree(path, f"plan.releases.{name}.loss", first**2 / 2, loss[0])
        yield f"{name}: as {want}: {first!r}^2 / 2 = {loss[0]!r}"
        return
    if have == "max_divergence" and want == "gdp":
        half = float(mu_squared_of_pure(Fraction(first)) / 2)
        _agree(path, f"plan.releases.{name}.loss", half, loss[0])
        yield f"{name}: as gdp: mu^2 / 2 = {loss[0]!r} with Q(mu / 2) = 1 / (1 + e^{first!r})"
        return
    yield f"{name}: as {want}, by OpenDP's cast from {have}: {loss!r}"


def _claim(plan: dict[str, Any], path: str) -> Iterator[str]:
    epsilon, delta = plan["claim"]
    rho, at = plan["total"][0], plan["conversion_delta"]
    if plan["gaussian"] is not None:
        yield from _gaussian(plan, path)
        return
    value = zcdp_to_epsilon(rho, at)
    # OpenDP looks at fewer orders for tiny numbers, which is safe: it may say more.
    if value > epsilon * (1 + _TOLERANCE) + 1e-12:
        raise _wrong(path, "plan.claim", "an epsilon below the formula's")
    yield (
        f"epsilon    least over a > 1 of a x {rho!r} + log((a - 1) / a) - (log({at!r}) + log(a)) / "
        f"(a - 1) = {epsilon!r}   (computed here: {value!r})"
    )
    own = plan["total"][1] if len(plan["total"]) > 1 else 0.0
    yield f"delta      {own!r} + {at!r} = {delta!r}"


def _gaussian(plan: dict[str, Any], path: str) -> Iterator[str]:
    """Derive the Gaussian curve at the certified epsilon."""
    epsilon, delta = plan["claim"]
    square = Fraction(plan["gaussian"]["mu_squared"])
    if square != 2 * Fraction(plan["total"][0]):
        raise _wrong(path, "plan.gaussian.mu_squared", "another number than twice the total")
    if delta_bounds(square, Fraction(epsilon))[1] > Fraction(delta):
        raise _wrong(path, "plan.claim", "an epsilon at which the curve is above delta")
    value = gdp_to_epsilon(float(square), delta)
    yield f"mu^2       2 x {plan['total'][0]!r} = {square}   (mu = {math.sqrt(square)!r})"
    yield (
        f"epsilon    least with Q(epsilon / mu - mu / 2) - e^epsilon Q(epsilon / mu + mu / 2) <= "
        f"{delta!r}: {epsilon!r}   (computed here: {value!r})"
    )
    yield f"delta      {delta!r}"


def _charge(plain: dict[str, Any]) -> Iterator[str]:
    stated = statement_digest(plain)
    yield f"statement  sha256 of the canonical JSON without `charge`, `signature` = {stated}"
    yield f"file       sha256 of {plain['file']['name']} = {plain['file']['sha256']}"
    if plain["charge"] is not None:
        charge = plain["charge"]
        yield f"entry {charge['entry']}    sha256 of previous + newline + body = {charge['hash']}"


def _agree(path: str, what: str, ours: float, theirs: float) -> None:
    if not abs(ours - theirs) <= _TOLERANCE * abs(theirs) + 1e-300:
        raise _wrong(path, what, "another value than its formula gives")


def _wrong(path: str, what: str, got: str) -> ReleaseError:
    return ReleaseError(
        "OS701", path, expected="numbers that follow from each other", got=f"{got}, at {what}",
        hint="run `opendp-sim verify` without --explain; the certificate was changed.",
    )  # fmt: skip
