"""Scalars of YAML 1.2's core schema: what a plain word of a spec means.

``yes``, ``no``, ``on``, ``off`` are words, ``012`` is twelve and ``1e-6`` is a number, as YAML 1.2
says and YAML 1.1 did not.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["plain_scalar"]

_NULL = {"", "~", "null", "Null", "NULL"}
_TRUE, _FALSE = {"true", "True", "TRUE"}, {"false", "False", "FALSE"}
_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL, _HEX = re.compile(r"0o[0-7]+"), re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"([-+]?)\.(inf|Inf|INF)")
_NAN = {".nan", ".NaN", ".NAN"}
_LONGEST = 400
"""Digits of a number: longer ones are words, so that nothing is slow to read."""


def plain_scalar(text: str) -> Any:
    """Return the value of an unquoted scalar: None, bool, int, float or the text itself."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if len(text) <= _LONGEST:
        number = _number(text)
        if number is not None:
            return number
    return text


def _number(text: str) -> int | float | None:
    if _INT.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text):
        return int(text, 0)
    if _HEX.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    if found := _INFINITE.fullmatch(text):
        return float(f"{found[1]}inf")
    return float("nan") if text in _NAN else None
