"""Locate a cursor in an incomplete spec, by layout alone."""

from __future__ import annotations

import re
from dataclasses import dataclass

from opendp_sim.dsl.text.diagnostic import Path

_KEY = re.compile(
    r"""^(?P<key>"[^"]*"|'[^']*'|[^\s"'#:\[\]{},&*!|>%@`-][^:#\[\]{},]*?)\s*:(?:\s|$)"""
)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Cursor:
    """A place to write at.

    Attributes:
        path: keys and numbers of items above it.
        value: whether what is written there is a value: the key is the last of ``path``.
        begun: what stands of the word already.
    """

    path: Path
    value: bool
    begun: str


@dataclass
class _Level:
    indent: int
    key: str | None = None
    item: int | None = None


def cursor_at(lines: list[str], line: int, column: int) -> Cursor:
    """Return where the cursor stands, line and column counted from 0."""
    stack: list[_Level] = []
    for text in lines[:line]:
        _block(stack, text)
    before = lines[line][:column] if line < len(lines) else ""
    rest = _block(stack, before, last=True)
    path: list[str | int] = []
    for level in stack:
        path += [level.item] if level.item is not None else []
        path += [level.key] if level.key is not None else []
    return _inside(
        path, rest, at_value=bool(stack) and stack[-1].key is not None and rest is not None
    )


def _block(stack: list[_Level], text: str, *, last: bool = False) -> str | None:
    """Parse one line, returning the text behind its key."""
    body = text.lstrip(" ")
    if not last and (not body or body.startswith("#")):
        return None
    indent = len(text) - len(body)
    while body.startswith("- ") or body == "-":
        while stack and (stack[-1].indent > indent):
            stack.pop()
        if stack and stack[-1].indent == indent and stack[-1].item is not None:
            stack[-1].item += 1
            stack[-1].key = None
        else:
            stack.append(_Level(indent, item=0))
        stripped = body[1:].lstrip(" ")
        indent += len(body) - len(stripped)
        body = stripped
    while stack and stack[-1].indent >= indent:
        if stack[-1].item is not None and stack[-1].indent < indent:
            break
        stack.pop()
    found = _KEY.match(body)
    if found is None:
        return (
            body if body[:1] in ("{", "[") else None if _WORD.fullmatch(body) or not body else body
        )
    stack.append(_Level(indent, key=found["key"].strip("\"'")))
    return body[found.end("key") + 1 :]


def _inside(path: list[str | int], rest: str | None, *, at_value: bool) -> Cursor:
    """Parse brackets on the line."""
    text = rest or ""
    levels: list[tuple[str, list[str | int]]] = []
    here, key, word = list(path), at_value, ""
    for character in text:
        if character in "{[":
            levels.append((character, here))
            here, key, word = ([*here, 0] if character == "[" else list(here)), character == "[", ""
        elif character in "}]" and levels:
            _, here = levels.pop()
            key, word = False, ""
        elif character == "," and levels:
            kind, outer = levels[-1]
            last = here[len(outer)] if kind == "[" else 0
            here = [*outer, int(last) + 1] if kind == "[" else list(outer)
            key, word = kind == "[", ""
        elif character == ":" and levels and word.strip():
            here, key, word = [*here, word.strip().strip("\"'")], True, ""
        else:
            word += character
    begun = word.strip() if rest is not None else ""
    return Cursor(tuple(here), key, begun)


def word_at(text: str, column: int) -> str:
    """Return the word at a column, or an empty text."""
    for found in _WORD.finditer(text):
        if found.start() <= column <= found.end():
            return found[0]
    return ""


def utf16(text: str, column: int, *, back: bool = False) -> int:
    """Convert a column from characters to UTF-16 units, or ``back``."""
    if not back:
        return len(text[:column].encode("utf-16-le")) // 2
    return len(text.encode("utf-16-le")[: 2 * column].decode("utf-16-le", "ignore"))
