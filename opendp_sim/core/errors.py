"""Define every error with a stable code and advice.

An error never contains data. The families are the hundreds: 1 parameter, 2 space, 3 spec, 4 budget, 5
audit, 6 data and files, 7 release, 9 internal. A code is never reused. ``CATALOGUE`` is what
``opendp-sim explain`` prints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NoReturn, Self

from opendp_sim.core.system.escape_text import escape

CATALOGUE: dict[str, str] = {
    "OS101": "A mechanism parameter is missing, unknown, of the wrong type or outside its range.",
    "OS102": "Two parameters of one mechanism do not go together.",
    "OS103": "Public matrices, a sketch or records in a file need more memory than the machine has.",
    "OS104": "A device for sums is not there, or its package is not installed.",
    "OS201": "A mechanism was bound to a domain that its proof does not cover.",
    "OS202": "A mechanism was bound to a metric that its proof does not cover.",
    "OS203": "Exact arithmetic cannot be guaranteed: a bound of the type reaches 2**51.",
    "OS204": "A stage needs a property that the type does not carry (norm bound, labels, bounds).",
    "OS205": "The distance map would overflow at this input distance.",
    "OS206": "No finite loss holds at this input distance: records that come and go move cells "
    "both ways, which is infinitely far in OpenDP's monotone distance.",
    "OS301": "A stage is less stable than its `expect` claims.",
    "OS302": "The spec is not valid YAML 1.2, or uses a feature that specs refuse.",
    "OS303": "An unknown word: step, argument, column, stage, parameter or key.",
    "OS304": "A value has the wrong type or shape.",
    "OS305": "A required entry is missing.",
    "OS306": "A stage's input has the wrong type for its step.",
    "OS307": "A stage has no `release:` (its chain ends without noise), or an output names something "
    "that was not released.",
    "OS308": "A `${name}` cannot be resolved, or its value is outside the declared range.",
    "OS309": "A plan does not match the spec, the versions or the ledger it was made for.",
    "OS310": "A hole (`???`) of a template was not filled in.",
    "OS401": "The stated budget cannot be met, or is not a budget.",
    "OS402": "The ledger's limit, of loss or of refused runs, would be passed; nothing was charged.",
    "OS403": "The ledger is missing, locked by another process, or its hash chain is broken.",
    "OS404": "A mechanism's privacy map has no finite bound at this input distance.",
    "OS405": "A privacy loss is undefined in the measure that was asked for.",
    "OS406": "An interactive release has ended: its queries are used up, or a failure ended it; or its "
    "process was interrupted and the store has to be opened again.",
    "OS407": "A session's store is locked, damaged, another's, an older copy, or cannot be written; a "
    "ledger that was charged is gone, or an older copy; or a service was copied, or asked from a fork.",
    "OS408": "A key was used for another question; nothing was charged.",
    "OS409": "The ledger is not as it was when the run was confirmed; nothing was charged.",
    "OS501": "The audit cannot run on this object.",
    "OS502": "The audit refuted a claim.",
    "OS503": "An optional accountant or tester is not installed.",
    "OS601": "A file is missing, unreadable, or of another kind than stated.",
    "OS602": "A column is missing, or has the wrong width or dtype.",
    "OS603": "A column holds NaN or infinities.",
    "OS604": "A column holds a label outside its public keys.",
    "OS605": "A column leaves its declared bounds.",
    "OS606": "An optional package needed for this source is not installed.",
    "OS607": "A query has the wrong shape, width or dtype.",
    "OS608": "The source holds no record.",
    "OS609": "An output cannot be written where it should go; the text says whether it was charged.",
    "OS610": "The source holds 2**31 records or more, for which sums could leave int64.",
    "OS611": "An engine cannot run this plan: a mechanism needs all rows in one place, the data is in "
    "memory, or the engine is unknown or not installed. No record was read.",
    "OS701": "A release file is truncated, tampered with, foreign, or of another version.",
    "OS702": "A release does not hold what this question needs.",
    "OS703": "A public matrix re-drawn from its seed has another hash than the release states.",
    "OS704": "Post-processing named something that is neither released nor public.",
    "OS901": "Two independent computations of one bound disagree; nothing ran.",
    "OS902": "A private function failed; it is charged in full and its message is withheld.",
    "OS903": "A mechanism broke the rules of the house (a bug here, or in a plugin).",
    "OS904": "A device gave other bits than the CPU, or failed; nothing that it counted was used.",
}


class Given(str):
    """Mark a text as a user's value, which is shown in quotes."""

    __slots__ = ()


_OF_ARRAYS = ("__array__", "__arrow_c_array__", "__arrow_c_stream__", "__dataframe__")


def array_like(value: object) -> bool:
    """Return whether a value is an array, a column or a table."""
    kind = type(value)
    return hasattr(kind, "__len__") and any(hasattr(kind, name) for name in _OF_ARRAYS)


def came(got: object) -> str:
    """Return the words for a refused value, a description unchanged."""
    return got if isinstance(got, str) and not isinstance(got, Given) else repr_text(got)


def repr_text(value: object, most: int | None = None) -> str:
    """Return the repr, cut to ``most`` letters, of long integers too.

    Python refuses to write an integer of more than 4,300 digits. An array, a column or a table may be
    private data: it is named by its type alone.
    """
    if array_like(value):
        return type(value).__name__[:most]
    try:
        return repr(value)[:most]
    except ValueError:
        return f"{type(value).__name__} with too many digits to print"


def scalar_text(value: object, most: int) -> str:
    """Return the repr of one value, and the type's name of several."""
    several = hasattr(type(value), "__len__") and not isinstance(value, str | bytes)
    return type(value).__name__[:most] if several else repr_text(value, most)


class SimError(Exception):
    """Base of all opendp_sim errors.

    The message has one shape everywhere: code, place, what was expected, what came, hint.
    ``got`` describes a public thing (a parameter, a type); it never holds a value from the data.
    Not a ``ValueError``: pydantic would catch it inside ``model_validate`` and reword it.

    ``results`` holds, by output, what a run released and paid for where its files could not be written
    (OS609), or where another output failed, so that a program in Python does not lose it.
    """

    family: ClassVar[str] = "OS"
    results: Mapping[str, Any] | None = None

    def __init__(self, code: str, where: str, *, expected: str, got: object, hint: str) -> None:
        if code not in CATALOGUE or not code.startswith(self.family) or not hint:
            raise RuntimeError(f"{type(self).__name__} needs a catalogued code and a hint: {code}")
        self.code, self.where, self.expected, self.got, self.hint = code, where, expected, got, hint
        super().__init__(
            escape(f"{code} {where}: expected {expected}; got {came(got)}. Hint: {hint}")
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep only the message's parts when a worker's error is pickled."""
        return _again, (type(self), self.code, self.where, self.expected, came(self.got), self.hint)

    def restated(self, **parts: Any) -> Self:
        """Return the same refusal with other parts, such as its hint."""
        named = {name: getattr(self, name) for name in ("code", "where", "expected", "got", "hint")}
        named |= parts
        return type(self)(named.pop("code"), named.pop("where"), **named)

    def alone(self) -> NoReturn:
        """Raise without the current exception, which could contain a record.

        ``from None`` only hides that exception: it stays reachable as the context.
        """
        try:
            raise self
        finally:
            self.__cause__ = self.__context__ = None


class refusing:  # noqa: N801 - reads as a statement
    """Raise a refusal in place of an error, without keeping it.

    Args:
        refusal: makes it from the error.
        kinds: the errors; others pass.
    """

    def __init__(self, refusal: Callable[[Any], SimError], *kinds: type[BaseException]) -> None:
        self._refusal, self._kinds = refusal, kinds

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Refuse where an error of these kinds came."""
        if isinstance(error, self._kinds):
            found = self._refusal(error)
            del kind, error, trace  # a refusal's traceback keeps what this frame holds
            found.alone()


def _again(
    cls: type[SimError], code: str, where: str, expected: str, got: str, hint: str
) -> SimError:
    """Return the error again from its parts, whatever its class takes."""
    made = cls.__new__(cls)
    SimError.__init__(made, code, where, expected=expected, got=got, hint=hint)
    return made


class ParameterError(SimError):
    """A mechanism parameter is outside its declaration."""

    family = "OS1"
    inside: tuple[int | str, ...] = ()
    """Where inside the parameter, if it is a list or a mapping."""


class SpaceError(SimError):
    """Refuse a domain or metric without a proof."""

    family = "OS2"


class SpecError(SimError):
    """A spec, or a plan made from one, cannot mean anything."""

    family = "OS3"


class BudgetError(SimError):
    """A loss cannot be met, afforded or recorded."""

    family = "OS4"


class AuditError(SimError):
    """An audit cannot run, or refuted a claim."""

    family = "OS5"


class DataError(SimError):
    """Refuse data or a query outside its domain by the column's name."""

    family = "OS6"
    unread: bool = False
    """Whether no record can have been looked at; said where the data is opened, never guessed later."""


class ReleaseError(SimError):
    """A release file cannot be trusted, or does not answer this question."""

    family = "OS7"


class InternalError(SimError):
    """The house contradicted itself; nothing may run."""

    family = "OS9"
