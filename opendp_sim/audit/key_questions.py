"""Default questions for queryables that take a key: OpenDP's ALP projection, and others like it."""

from __future__ import annotations

import math
from typing import Any

from opendp_sim.audit.driver import Driver
from opendp_sim.audit.neighbours import Pair
from opendp_sim.core import dp

__all__ = ["of_keys", "of_own"]

_MOST = 8
_KEYS: dict[str, tuple[Any, ...]] = {"String": ("", "a", "b", "c", "0", "1"), "bool": (False, True)}
_OWN: tuple[Any, ...] = (1, "a", 0.5, True)
_AGAIN = 24
_NUMBERS = (0, 1, 2, 3, 7, 10)
_REFUSED = -1e9


def of_keys(queryable: Any) -> Driver | None:
    """Return a driver that asks a few public keys; ``None`` when the queryable takes something else."""
    kind = str(getattr(queryable, "query_type", ""))
    keys = _KEYS.get(kind)
    if keys is None and kind[:1] in ("i", "u") and kind[1:2].isdigit():
        keys = _NUMBERS
    if keys is None or not math.isfinite(_answer(queryable, keys[0])):
        return None
    asked = keys[:_MOST]

    def drive(asking: Any) -> Any:
        return tuple(_answer(asking, key) for key in asked)

    return Driver(drive, f"the keys {', '.join(map(repr, asked))}, each once")


def of_own(queryable: Any, pairs: tuple[Pair, ...]) -> Driver | None:
    """Return a driver that asks one question again and again, of a queryable that takes anything.

    Few enough for many conversations, and many enough that answers without end are far over a claim.
    """
    key = next((k for k in _OWN if math.isfinite(_answer(queryable, k))), None)
    if key is None:
        return None

    def drive(asking: Any) -> Any:
        heard = [_answer(asking, key) for _ in range(_AGAIN)]
        return (sum(heard), *heard)

    return Driver(drive, f"the key {key!r}, {_AGAIN} times", pairs)


def _answer(queryable: Any, key: Any) -> float:
    """Return the answer as a number; a refusal counts as an answer, an answer of another type as NaN."""
    try:
        return float(queryable(key))
    except dp.OpenDPException:
        return _REFUSED
    except (TypeError, ValueError):
        return math.nan
