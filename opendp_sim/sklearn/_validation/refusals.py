"""Refuse an estimator's input with a code and hint.

Never a value; as exceptions that scikit-learn expects. A caller of scikit-learn catches ``ValueError``
(``TypeError`` for the kind of a table), so what an estimator refuses is both. ``SimError`` itself is
none: pydantic would catch it while a record is read, and reword it. ``BudgetError`` is none either: an
exhausted budget is no wrong value of a parameter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from opendp_sim.core.errors import DataError, ParameterError, ReleaseError
from opendp_sim.dsl.text.diagnostic import Refused

_INNER = re.compile(r" \(column \w+\)$")
"""The column of the plan inside, whose name no caller of an estimator has seen."""


class EstimatorRefused(ParameterError, ValueError):  # noqa: N818 - reads as what happened
    """A parameter of an estimator is missing or impossible; nothing was charged."""


class PlanRefused(Refused, ValueError):  # noqa: N818 - reads as what happened
    """What the parameters ask for together cannot be planned; nothing was charged."""


class InputRefused(DataError, ValueError):  # noqa: N818 - reads as what happened
    """Refuse a table of wrong shape or dtype, without quoting it."""


class InputTypeRefused(DataError, TypeError):  # noqa: N818 - reads as what happened
    """A table is of a kind that estimators do not take."""


class RowsRefused(ReleaseError, ValueError):  # noqa: N818 - reads as what happened
    """Refuse private rows that were passed as public, charging nothing."""


def _of_table(error: DataError) -> InputRefused:
    """Return a refusal in the caller's words."""
    inner = error.code == "OS607" and _INNER.search(error.expected) is not None
    return InputRefused(
        error.code, "X" if (error.code, error.where) == ("OS607", "queries") else error.where,
        expected=_INNER.sub("", error.expected) if inner else error.expected, got=error.got,
        hint="pass the columns of the fit, in the same order." if inner else error.hint,
    )  # fmt: skip


@contextmanager
def as_refusals() -> Iterator[None]:
    """Convert refusals of data to scikit-learn's exceptions."""
    refused: InputRefused | RowsRefused | None = None
    try:
        yield
    except (InputRefused, InputTypeRefused):
        raise
    except ReleaseError as error:
        if error.code != "OS704":
            raise
        refused = RowsRefused(
            error.code, error.where, expected=error.expected, got=error.got, hint=error.hint
        )
    except DataError as error:
        refused = _of_table(error)
    if refused is not None:
        raise refused  # outside the handler: it keeps no context whose frames hold data
