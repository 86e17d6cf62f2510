"""Declare the ``about`` section, on which no number depends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from opendp_sim.dsl.grammar.section import Section, word

FORM = ("owner", "author", "purpose", "recipients", "date", "expires")
"""What a page asks for: printed where the spec says it, and said to be missing where it does not."""


def _text(about: str) -> Any:
    return word(about, None, min_length=1, max_length=500)


class Provenance(Section):
    """Name the data's owner, the author, the purpose and the recipients.

    Free text for people: it is printed on the report and stands in certificates, and nothing is computed
    from it. A page of `opendp-sim report` names each that is left out.
    """

    template: ClassVar[str] = """\
# about:                                  # printed on the report, for whoever signs it
#   owner: ???                            # who answers for the data
#   purpose: ???                          # what the results are for
#   expires: ???                          # also title, author, recipients, date
"""
    title: str | None = _text("What the page is called.")
    owner: str | None = _text("Who answers for the data.")
    author: str | None = _text("Who wrote this program.")
    purpose: str | None = _text("What the results are for.")
    recipients: str | None = _text("Who gets the results.")
    date: str | None = _text("When this was written, as text.")
    expires: str | None = _text("Until when the results may be used, as text.")
    bounds: str | None = _text("Who states the bounds of the columns, and where they are public.")

    def said(self) -> Iterator[tuple[str, str]]:
        """Yield the given words with their texts, in a page's order."""
        for name in ("title", *FORM, "bounds"):
            text = getattr(self, name)
            if text is not None:
                yield name, text
