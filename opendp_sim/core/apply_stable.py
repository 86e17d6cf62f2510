"""Apply a stable claim, of any form, to a whole dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opendp_sim.core.arithmetic.countable import need_countable, records_in
from opendp_sim.core.claims import Stable
from opendp_sim.core.errors import InternalError


def whole_function(claim: Stable) -> Callable[[Any], Any]:
    """Return the claim's function on a whole dataset held in memory."""
    if claim.accumulate is not None:
        size, accumulate = claim.output.size, claim.accumulate  # type: ignore[attr-defined]

        def total(data: Any) -> Any:
            need_countable(records_in(data))
            out = np.zeros(size, dtype=np.int64)
            accumulate(data, out)
            return out

        return total
    if claim.fold is not None:
        fold = claim.fold
        return lambda data: fold(lambda: [data])
    if claim.survey is not None:
        survey = claim.survey
        return lambda data: survey([data])(data)
    if claim.function is None:
        raise InternalError(
            "OS903", "claim", expected="a function, accumulate, fold or survey", got="none of them",
            hint="report this as a bug of the mechanism.",
        )  # fmt: skip
    return claim.function
