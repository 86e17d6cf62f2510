"""Log charges and openings of private data through Python's ``logging``.

The logger is ``opendp_sim``, the level INFO. What is logged follows from public facts alone: names of a
spec, a ledger's place, stated losses, numbers of entries and of public queries. No record, no count of
records, no text of a refusal and no path of private data is logged, so neighbouring datasets leave the
same lines (``tests/accounting/test_event_log.py``).
"""

from __future__ import annotations

import logging
from contextlib import suppress

from opendp_sim.core.system.escape_text import escape

_LOG = logging.getLogger("opendp_sim")
_LONGEST = 500
"""Characters of a name in a line."""


def log_event(line: str, *public: object) -> None:
    """Log one line of public facts (INFO), names escaped; errors are ignored."""
    with suppress(Exception):
        _LOG.info(line, *(escape(str(one)[:_LONGEST]) for one in public))
