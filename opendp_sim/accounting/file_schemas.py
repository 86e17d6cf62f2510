"""Read foreign files with one strict model a format.

A ledger, a certificate, a plan document, a run's list and a release's header can be edited, cut, or
made by somebody else. Each is read through a frozen pydantic model that knows every field and its
type and takes nothing else, so that code behind it never meets a value that it did not expect. JSON
that names a member twice is refused: two readers could take two different values from it.
"""

from __future__ import annotations

import json
import math
import re
from codecs import BOM_UTF8
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, ValidationError

from opendp_sim.core.errors import SimError


class Strict(BaseModel):
    """Validate a record of a file format, without coercion or unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _known_time(text: str) -> str:
    if datetime.fromisoformat(text).isoformat() != text:
        raise ValueError("another spelling of a time")
    return text


def time_now() -> str:
    """Return this second in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _no_folder(name: str) -> str:
    if name in ("", ".", "..") or re.search(r"[/\\\x00]", name):
        raise ValueError("a name without a folder")
    return name


def _a_path(name: str) -> str:
    if not name or "\x00" in name:
        raise ValueError("a path")
    return name


Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""A sha256 in hexadecimal."""
FileName = Annotated[str, AfterValidator(_no_folder)]
"""The name of a file beside another one."""
PathText = Annotated[str, AfterValidator(_a_path)]
"""A path from the folder of the file that names it."""
Time = Annotated[str, AfterValidator(_known_time)]
"""A moment in ISO 8601."""
Plain = dict[str, Any]
"""A part that is compared as a whole with what is derived again."""

_HOLDERS, _ITEMS = 2**18, 2**21


def is_heavy(text: bytes) -> bool:
    """Return whether JSON has more entries than any file of ours."""
    holders = text.count(b"{") + text.count(b"[")
    return holders > _HOLDERS or text.count(b",") > _ITEMS


M = TypeVar("M", bound=BaseModel)


def read_strictly(model: type[M], text: str | bytes, refusal: Callable[[str], SimError]) -> M:
    """Return the record of format ``model`` that ``text`` (JSON) holds.

    ``refusal`` gets ``another value at`` the first field that does not fit.
    """
    return read_both(model, text, refusal)[0]


def read_both(
    model: type[M], text: str | bytes, refusal: Callable[[str], SimError]
) -> tuple[M, Any]:
    """Return the record in a JSON ``text``, and its plain values.

    ``refusal``: as for ``read_strictly``.
    """
    if isinstance(text, bytes):
        text = text.removeprefix(BOM_UTF8)  # editors of some systems write one
    try:
        return model.model_validate_json(text), plain_json(text)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part)[:40] for part in first["loc"][:4])
        came = f"another value at {where}" if where else "a text that is no JSON"
    except (ValueError, RecursionError) as error:
        came = why_not(error)
    raise refusal(came)


class _OddError(ValueError):
    """Refuse JSON that some readers accept, with the reason as message."""


def why_not(error: ValueError | RecursionError) -> str:
    """Return why JSON was refused, in words that quote none of it."""
    if isinstance(error, UnicodeError):
        return "a text that is not UTF-8"
    return str(error) if isinstance(error, _OddError) else "a text that is no JSON"


def loose_json(text: str | bytes, *, finite: bool = False) -> Any:
    """Read JSON of any writer as plain values, numbers in every spelling.

    ``finite`` refuses NaN, infinities and numbers beyond a float's range, which JSON does not have.

    Raises:
        ValueError: it is no JSON, or an object in it names a member twice. RecursionError: too deep.
    """
    if not finite:
        return json.loads(text, object_pairs_hook=_once)
    return json.loads(text, object_pairs_hook=_once, parse_float=_finite, parse_constant=_finite)


def _finite(token: str) -> float:
    if not math.isfinite(value := float(token)):
        raise _OddError("a number that is not finite")
    return value


def plain_json(text: str | bytes) -> Any:
    """Read JSON with canonical spelling, which is signed, as plain values.

    Raises:
        ValueError: it is no JSON, an object in it names a member twice, or a number is spelled as
            Python does not write it (``1e-6``). RecursionError: too deep.
    """
    return json.loads(
        text,
        object_pairs_hook=_once,
        parse_float=lambda token: _canonical_number(float(token), token),
        parse_int=lambda token: _canonical_number(int(token), token),
    )


def _canonical_number(value: float, token: str) -> float:
    if repr(value) != token:
        raise _OddError(
            "a number in another spelling than it was written in, such as 1e-6 for 1e-06"
        )
    return value


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) != len(members):
        raise _OddError("an object that names a member twice")
    return found
