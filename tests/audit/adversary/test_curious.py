"""A mapping that notes which keys it is asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opendp_sim.audit.adversary.query_search import VALUES, AttributeMapping, kind_of_key


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("eps", "c"),
        ("epsilon_spent", "c"),
        ("lo", "l"),
        ("Maximum", "h"),
        ("a", "l"),
        ("age", "n"),
        (3, "n"),
    ],
)
def test_the_name_of_a_key_says_what_it_holds(key: object, kind: str) -> None:
    assert kind_of_key(key) == kind


def test_what_is_asked_for_is_there_whatever_way_it_is_asked_for() -> None:
    asked = AttributeMapping()
    assert asked["eps"] == VALUES["c"][0]
    assert asked.get("low", 7) == asked.low
    assert asked.pop("high") == VALUES["h"][0]
    assert "where" in asked
    assert list(asked) == ["eps", "low", "high", "where"]
    with pytest.raises(AttributeError):
        asked.__secret__  # noqa: B018


def _as_long_as_parts(asked: AttributeMapping) -> None:
    number = 0
    while f"part{number}" in asked:
        number += 1


def _until_none_is_left(asked: AttributeMapping) -> None:
    while "part" in asked:
        asked.pop("part")


@pytest.mark.parametrize("loop", [_as_long_as_parts, _until_none_is_left])
def test_a_loop_that_goes_on_as_long_as_a_key_is_there_ends(
    loop: Callable[[AttributeMapping], None],
) -> None:
    with pytest.raises(LookupError):
        loop(AttributeMapping())
