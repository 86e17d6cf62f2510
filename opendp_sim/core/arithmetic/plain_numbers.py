"""Convert numbers of numpy to Python's, exactly, for all parameters."""

from __future__ import annotations

from typing import Any

import numpy as np


def python_value(value: Any) -> Any:
    """Convert numpy's scalars and arrays to Python's equal values.

    In lists and tuples too. A float of fewer bits becomes the double of equal value:
    ``np.float32(0.1)`` is 0.10000000149011612. Arrays become lists of their shape. What has no equal
    in Python (a longer float that no double equals, a masked array, a date) stays, and is refused
    where it is used.

    Example:
        >>> import numpy as np
        >>> python_value((np.int64(3), np.array([0.5, np.float32(1)]), [np.array(True)]))
        (3, [0.5, 1.0], [True])
    """
    if isinstance(value, list | tuple):
        return type(value)(map(python_value, value)) if type(value) in (list, tuple) else value
    if isinstance(value, np.ma.MaskedArray) or not isinstance(value, np.generic | np.ndarray):
        return value
    array = np.asarray(value)
    if array.dtype.kind == "O":
        return python_value(array.tolist())
    if array.dtype == np.longdouble and array.dtype.itemsize > 8:
        double = array.astype(np.float64)
        # As text, since what takes floats takes any object that can be rounded to one.
        return double.tolist() if np.array_equal(double, array, equal_nan=True) else repr(value)
    return array.tolist() if array.dtype.kind in "biufU" else value
