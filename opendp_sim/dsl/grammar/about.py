"""Declare the ``about`` section, on which no number depends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from opendp_sim.dsl.grammar.section import Section, word

FORM = ("owner", "author", "purpose", "recipients", "date", "expires")
"""What a page asks for: printed where the spec says it, and said to be missing where it does not."""
_LONGEST = 500


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
    title: str | None = word("What the page is called.", None, min_length=1, max_length=_LONGEST)
    owner: str | None = word("Who answers for the data.", None, min_length=1, max_length=_LONGEST)
    author: str | None = word("Who wrote this program.", None, min_length=1, max_length=_LONGEST)
    purpose: str | None = word("What the results are for.", None, min_length=1, max_length=_LONGEST)
    recipients: str | None = word("Who gets the results.", None, min_length=1, max_length=_LONGEST)
    date: str | None = word(
        "When this was written, as text.", None, min_length=1, max_length=_LONGEST
    )
    expires: str | None = word(
        "Until when the results may be used, as text.", None, min_length=1, max_length=_LONGEST
    )

    bounds: str | None = word(
        "Who states the bounds of the columns, and where they are public.",
        None,
        min_length=1,
        max_length=_LONGEST,
    )

    def said(self) -> Iterator[tuple[str, str]]:
        """Yield the given words with their texts, in a page's order."""
        for name in ("title", *FORM, "bounds"):
            text = getattr(self, name)
            if text is not None:
                yield name, text
