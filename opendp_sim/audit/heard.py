"""What is heard of a queryable: the numbers and texts of an answer, whatever it is made of."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from opendp_sim.audit.curious import Asked
from opendp_sim.audit.driver import REFUSED, SILENT
from opendp_sim.core import dp

__all__ = ["heard_of", "is_answer"]

_CELLS, _PARTS, _LONGEST = 16, 400, 200
"""Numbers and texts of one answer that are kept, parts of it that are looked at, letters of a text."""


def is_answer(heard: tuple[Any, ...]) -> bool:
    """Say whether a number was heard."""
    return any(isinstance(cell, float) and cell > REFUSED for cell in heard)


def heard_of(queryable: Any, question: Any) -> tuple[Any, ...]:
    """Return the numbers and texts of an answer."""
    try:
        answer = queryable(Asked(question) if type(question) is Asked else question)
    except dp.OpenDPException:
        return (REFUSED,)
    except (TypeError, ValueError, AttributeError):  # no answer that OpenDP hands on
        return (REFUSED,)
    try:
        return tuple(itertools.islice(_cells(answer, itertools.count()), _CELLS))
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - objects of the user's that cannot be read, or hold themselves
        name = type.__dict__["__name__"].__get__(type(answer))  # a metaclass may have its own
        return (str(name),)


def _cells(answer: Any, parts: Iterator[int]) -> Iterator[Any]:
    """Yield numbers and texts of an answer of at most some hundred parts, for there may be no end."""
    if next(parts) > _PARTS:
        raise ValueError
    if answer is None:
        yield SILENT
    elif isinstance(answer, (bool, int, float, np.integer, np.floating, np.bool_)):
        yield float(answer)
    elif isinstance(answer, (list, tuple, np.ndarray)):
        for part in answer:
            yield from _cells(part, parts)
    elif isinstance(answer, Mapping):
        for _, part in sorted(itertools.islice(answer.items(), _PARTS), key=repr):
            yield from _cells(part, parts)
    else:
        yield _shortened(str(answer))


def _shortened(text: str) -> str:
    """Return a text that is another one for another text, and not much longer than a line."""
    if len(text) <= _LONGEST:
        return text
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{text[:_LONGEST]}... {digest}"
