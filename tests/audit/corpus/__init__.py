"""Programs of strangers, broken and sound, which were hidden from the auditor's authors while sets were judged.

A set is frozen as it was written. ``arguments.toml`` has the neighbours that show each broken program to
break its claim, and the argument why its sound version keeps it.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from tests.audit.opaque.kit import Pair

__all__ = ["programs"]


@cache
def programs() -> tuple[Pair, ...]:
    """Return all programs, set by set, in the form of the opaque pairs."""
    from tests.audit.corpus import set1, set2, set3, set4, set5, set6

    said = tomllib.loads(Path(__file__).with_name("arguments.toml").read_text("utf-8"))
    found = []
    for number, part in enumerate((set1, set2, set3, set4, set5, set6), 1):
        for name, magnitude, bad, good, d_in, options in part.T:
            shown = said[name].get("violation") or repr(part.PAIRS[name])
            make = {True: bad, False: good}.__getitem__
            found.append(
                Pair(
                    name,
                    f"set {number}",
                    lambda broken, make=make: make(broken)(),
                    d_in,
                    f"{magnitude}: {shown}",
                    said[name]["sound"],
                    options,
                )
            )
    return tuple(found)
