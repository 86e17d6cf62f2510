"""Datasets and outputs as Python text that makes them again."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np

_NAMES = {
    "np": "import numpy as np",
    "pd": "import pandas as pd",
    "pl": "import polars as pl",
    "datetime": "import datetime",
    "decimal": "import decimal",
    "fractions": "import fractions",
    "json": "import json",
    "pickle": "import pickle",
    "encoding": "from opendp_sim.audit.outputs import encoding",
}
_EXACT = (bool, int, str, bytes, type(None))


def literal(value: Any) -> str:
    """Return an expression that evaluates to this value after ``imports_of``."""
    if isinstance(value, _EXACT) and type(value) in _EXACT:
        return repr(value)
    if isinstance(value, float) and type(value) is float:
        return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
    if type(value) in (list, tuple, set, frozenset):
        return _of_parts(value)
    if type(value) is dict:
        told = (f"{literal(key)}: {literal(part)}" for key, part in value.items())
        return "{" + ", ".join(told) + "}"
    return _of_package(value) or _as_written(value)


def _of_parts(value: Any) -> str:
    inner = ", ".join(map(literal, value))
    if type(value) is list:
        return f"[{inner}]"
    if type(value) is tuple:
        return f"({inner}{',' if len(value) == 1 else ''})"
    return f"{type(value).__name__}([{inner}])"


def _of_package(value: Any) -> str:
    """Return an expression of a number, array, frame or date."""
    kind, home = type(value).__name__, type(value).__module__.split(".")[0]
    if isinstance(value, np.generic) and value.dtype.names is None and value.dtype.kind in "iufb":
        return f"np.{value.dtype.name}({literal(value.item())})"
    if type(value) is np.ndarray and value.dtype.kind in "iufbU":
        flat = literal(value.ravel().tolist())
        shape = "" if value.ndim == 1 else f".reshape({value.shape})"
        return f"np.array({flat}, dtype={value.dtype.str!r}){shape}"
    if home == "pandas" and kind == "DataFrame":
        return f"pd.DataFrame({literal(value.to_dict(orient='list'))})"
    if home == "polars" and kind == "DataFrame":
        return f"pl.DataFrame({literal(value.to_dict(as_series=False))})"
    if home in ("decimal", "fractions"):
        return f"{home}.{value!r}"
    if home == "opendp_sim" and kind == "Raised":
        return f"encoding.{value!r}"
    return repr(value) if home == "datetime" else ""


def _as_written(value: Any) -> str:
    """Return a value's text if it evaluates to it, else bytes."""
    if isinstance(value, Mapping):
        return literal(dict(value))
    try:
        return f"pickle.loads({pickle.dumps(value)!r})"
    except Exception:  # noqa: BLE001 - a value of a local class, for one
        return repr(value)


def imports_of(*texts: str) -> str:
    """Return the imports of expressions on one line, or nothing."""
    needed = [line for name, line in _NAMES.items() if any(f"{name}." in text for text in texts)]
    return "; ".join(needed)
