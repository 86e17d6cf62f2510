"""Default questions for queryables that take a key: OpenDP's ALP projection, and others like it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from opendp_sim.audit.driver import REFUSED, SILENT, Driver
from opendp_sim.audit.neighbours import Pair
from opendp_sim.audit.question_shapes import of_bare
from opendp_sim.core import dp

__all__ = ["of_keys", "of_own"]

_MOST = 8
_KEYS: dict[str, tuple[Any, ...]] = {"String": ("", "a", "b", "c", "0", "1"), "bool": (False, True)}
_OWN: tuple[Any, ...] = (1, "a", 0.5, True)
_AGAIN = 24
_TWICE, _TIMES = 2, 6
"""Keys that are asked again, and how often: what is remembered may be answered without noise, and what
was paid once may be answered with new noise for nothing."""
_NUMBERS = (0, 1, 2, 3, 7, 10)
_AMOUNTS = (0, 0.5, 3, 1, 2, 7, 10)
"""Of a queryable that takes anything: a number may be a key, or what a question may cost. A small cost
and then a large one is what a filter lets through that looks whether something is left."""
_ANYTHING = "ExtrinsicObject"


def of_keys(
    queryable: Any,
    member: Callable[[Any], bool] = lambda _: False,
    distance: Any = 1,
    *,
    anything: bool = False,
) -> Driver | None:
    """Return a driver that asks a few public keys; ``None`` when the queryable takes something else.

    Args:
        queryable: a release.
        member: whether a dataset is in the domain; records that are keys themselves are what differs.
        distance: how many records differ.
        anything: whether a queryable whose queries have no declared type is asked numbers or texts.
    """
    kind = str(getattr(queryable, "query_type", ""))
    keys = _KEYS.get(kind)
    if keys is None and kind[:1] in ("i", "u") and kind[1:2].isdigit():
        keys = _NUMBERS
    if anything and kind == _ANYTHING:  # the answer tells what it takes
        keys = next((some for some in (_AMOUNTS, _KEYS["String"]) if _takes(queryable, some)), None)
    if keys is None or not math.isfinite(_answer(queryable, keys[0])):
        return None
    asked, again = keys[:_MOST], keys[:_TWICE]

    def drive(asking: Any) -> Any:
        return tuple(_answer(asking, key) for key in (*asked, *again * _TIMES))

    once, twice = (", ".join(map(repr, some)) for some in (asked, again))
    some = distance if isinstance(distance, int) and distance <= _MOST else 0
    near = [Pair([], [key] * some, distance) for key in again]
    pairs = tuple(p for p in near if some and member(p.left) and member(p.right))
    told = f"the keys {once}, each once, and then {twice} again, {_TIMES} times"
    others = of_bare(asked[1], pairs) if kind == _ANYTHING else ()
    return Driver(drive, told, pairs, others=others)


def of_own(queryable: Any, pairs: tuple[Pair, ...]) -> Driver | None:
    """Return a driver that asks one question again and again, of a queryable that takes anything.

    Few enough for many conversations, and many enough that answers without end are far over a claim.
    """
    key = next((k for k in _OWN if _answer(queryable, k) > REFUSED), None)
    if key is None:
        return None

    def drive(asking: Any) -> Any:
        heard = [_answer(asking, key) for _ in range(_AGAIN)]
        return (sum(heard), *heard)

    return Driver(drive, f"the key {key!r}, {_AGAIN} times", pairs, others=of_bare(key, pairs))


def _takes(queryable: Any, keys: tuple[Any, ...]) -> bool:
    """Say whether a queryable answers some key with a number; each is asked once."""
    answers = [_answer(queryable, key) for key in keys[1:3]]
    return any(math.isfinite(answer) and answer > REFUSED for answer in answers)


def _answer(queryable: Any, key: Any) -> float:
    """Return the answer as a number; a refusal and none count as answers, another type as NaN."""
    try:
        answer = queryable(key)
        return SILENT if answer is None else float(answer)
    except dp.OpenDPException:
        return REFUSED
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - no number, one beyond the floats, or an object of the user's
        return math.nan
