"""Report a program's findings.

The place, the reason, and the correction. A place is a path into the program (``("flow", "sketch",
"steps", 0)``), so that a program written in Python is diagnosed by the same code; only a YAML document
turns a path into a line and a column.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice
from typing import Any, Literal, NoReturn

from opendp_sim.core.errors import CATALOGUE, SimError, SpecError, came
from opendp_sim.core.system.escape_text import escape

Path = tuple[str | int, ...]
KeyOrValue = Literal["key", "value"]
FORMER: dict[str | int, tuple[str, ...]] = {}
"""Former names of words; the grammar declares them, and a document may still be written in them."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Point to a second place that explains the first."""

    path: Path
    label: str
    part: KeyOrValue = "key"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """Hold one finding.

    ``title`` is the fault, ``label`` the found value, ``help`` the correction.
    """

    code: str
    title: str
    path: Path
    label: str
    help: str
    part: KeyOrValue = "value"
    causes: tuple[Cause, ...] = ()

    def __post_init__(self) -> None:
        """Require a known code and advice for every finding."""
        if self.code not in CATALOGUE or not self.help:
            raise RuntimeError(f"a diagnostic needs a catalogued code and a help: {self.code}")


class Refused(SpecError):  # noqa: N818 - reads as what happened
    """A program that cannot mean anything; carries every independent finding."""

    def __init__(self, findings: Iterable[Diagnostic], document: object = None) -> None:
        self.findings = tuple(findings)
        self.document = document
        first = self.findings[0]
        SimError.__init__(
            self,
            first.code,
            pretty(first.path),
            expected=first.title,
            got=first.label.removeprefix("got "),
            hint=first.help,
        )
        said = (
            f"{first.code} {pretty(first.path)}: {first.title}; {first.label}. Hint: {first.help}"
        )
        self.args = (escape(said),)  # a title is a sentence, not what was expected

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep the findings, without the document that they are about."""
        return type(self), (self.findings,)

    family = "OS"


_MOST = 1000
"""Findings that are told at once: the help of each takes time, and nobody reads more."""


class Notes:
    """Collects findings; a place is reported once, by the first that objects.

    Attributes:
        findings: what is reported.
        objections: how often anything was objected to, reported or not. Whether a part is sound is told
            by this number: a second objection to one place, or one too many, is no finding.
        moved: the first words of paths, with those under which they are written.
    """

    def __init__(self) -> None:
        self.findings: list[Diagnostic] = []
        self.objections = 0
        self.moved: dict[Path, Path] = {}
        self._seen: set[tuple[Path, KeyOrValue]] = set()

    def error(
        self,
        code: str,
        title: str,
        path: Path,
        *,
        label: str,
        help: str,  # noqa: A002 - the printed word
        part: KeyOrValue = "value",
        causes: tuple[Cause, ...] = (),
    ) -> None:
        """Add a finding, unless the same place was already objected to."""
        self.objections += 1
        path = self._written(path)
        causes = tuple(replace(cause, path=self._written(cause.path)) for cause in causes)
        if (path, part) in self._seen or len(self._seen) > _MOST:
            return
        self._seen.add((path, part))
        if len(self._seen) > _MOST:
            title, label = f"more than {_MOST} findings", "here is one more"
            help, part, causes = "mend those above first; the others follow.", "value", ()  # noqa: A001
        self.findings.append(Diagnostic(code, title, path, label, help, part, causes))

    def _written(self, path: Path) -> Path:
        """Return the path under which a part is written."""
        return (*self.moved.get(path[:2], path[:2]), *path[2:])

    def from_error(self, error: SimError, path: Path, part: KeyOrValue = "value") -> None:
        """Add an error of another room as a finding at ``path``."""
        got = came(error.got)
        self.error(
            error.code,
            f"`{error.where}` expects {error.expected}",
            path,
            label=f"got {got}",
            help=error.hint,
            part=part,
        )

    def unknown(
        self, word: object, known: Iterable[str], path: Path, what: str, home: str = ""
    ) -> None:
        """Report an unknown key with its place or nearest name."""
        if len(self._seen) > _MOST:
            self.objections += 1
            return  # before the nearest word is looked for
        known = sorted(known)
        listed = ", ".join(f"`{name}`" for name in known[:16]) or "nothing"
        self.error(
            "OS303",
            f"unknown {what} `{word}`",
            path,
            part="key",
            label="not known here",
            help=home or suggest(str(word), known) or f"use one of {listed}",
        )

    def raise_if_any(self, document: object = None) -> None:
        """Raise ``Refused`` when there is anything to report."""
        if self.findings:
            self.refuse(document)

    def refuse(self, document: object = None) -> NoReturn:
        """Raise the findings in the order of the document."""
        order = getattr(document, "order", None)
        found = sorted(self.findings, key=order) if order else self.findings
        raise Refused(found, document)


def suggest(word: str, known: Iterable[str]) -> str:
    """Return ``did you mean `x`?`` or an empty text."""
    near = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else ""


_STRANGE = 100
"""Unknown words that are compared with a missing one: each comparison takes time."""


def misspelt(word: str, strange: Iterable[str]) -> bool:
    """Return whether an early unknown word resembles an expected one."""
    return any(suggest(str(other), [word]) for other in islice(strange, _STRANGE))


def pretty(path: Path) -> str:
    """Render a path."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text or "spec"
