"""How files of other people are read: one strict model for each format, and one refusal.

A ledger, a certificate, a plan document, a run's list and a release's header can be edited, cut, or
made by somebody else. Each is read through a frozen pydantic model that knows every field and its
type and takes nothing else, so that code behind it never meets a value that it did not expect. JSON
that names a member twice is refused: two readers could take two different values from it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, ValidationError

from opendp_sim.core.errors import SimError


class Strict(BaseModel):
    """A record of a file format: no coercion, no unknown field, no change."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _known_time(text: str) -> str:
    if datetime.fromisoformat(text).isoformat() != text:
        raise ValueError("another spelling of a time")
    return text


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
    """Say whether JSON has more lists, maps or entries than any file of ours: parsed, each takes many
    times its bytes.
    """
    holders = text.count(b"{") + text.count(b"[")
    return holders > _HOLDERS or text.count(b",") > _ITEMS


M = TypeVar("M", bound=BaseModel)


def read_strictly(model: type[M], text: str | bytes, refusal: Callable[[str], SimError]) -> M:
    """Return the record that ``text`` (JSON) holds.

    Args:
        model: the format.
        text: what was found.
        refusal: makes the refusal from the name of the first field that does not fit.
    """
    return read_both(model, text, refusal)[0]


def read_both(
    model: type[M], text: str | bytes, refusal: Callable[[str], SimError]
) -> tuple[M, Any]:
    """Return the record that ``text`` (JSON) holds, and the same as plain values.

    Args:
        model: the format.
        text: what was found.
        refusal: makes the refusal from the name of the first field that does not fit.
    """
    where = "the file"
    try:
        return model.model_validate_json(text), plain_json(text)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part)[:40] for part in first["loc"][:4]) or where
    except (ValueError, RecursionError):
        pass
    raise refusal(where)


def plain_json(text: str | bytes) -> Any:
    """Return what JSON of somebody else holds, as plain values.

    Raises:
        ValueError: it is no JSON, an object in it names a member twice, or a number is spelled as
            Python does not write it (a digest is of the spelling). RecursionError: too deep.
    """
    return json.loads(
        text,
        object_pairs_hook=_once,
        parse_float=lambda token: _spelled(float(token), token),
        parse_int=lambda token: _spelled(int(token), token),
    )


def _spelled(value: float, token: str) -> float:
    if repr(value) != token:
        raise ValueError("a number in another spelling")
    return value


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) != len(members):
        raise ValueError("a member that is named twice")
    return found
