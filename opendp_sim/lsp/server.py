"""Run the language server over stdio (extra ``lsp``)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from opendp_sim import __version__
from opendp_sim.core.errors import DataError
from opendp_sim.dsl.reading import CheckedText, Finding, read_spec
from opendp_sim.lsp.cursor import utf16
from opendp_sim.lsp.language import choices, hover, lens

_QUIET = 0.2
"""Seconds without a key before the text is checked."""


def serve_stdio() -> None:
    """Answer an editor on standard streams until it ends.

    Raises:
        DataError (OS606): pygls is not installed.
        OSError: nobody reads what it answers any more.
    """
    try:
        servers, types = import_module("pygls.server"), import_module("lsprotocol.types")
    except ImportError:
        raise DataError(
            "OS606", "lsp", expected="the package pygls", got="it is not installed",
            hint='pip install "opendp_sim[lsp]".',
        ) from None  # fmt: skip
    server = servers.LanguageServer("opendp-sim", __version__)
    _Editor(server, types).register()
    streams = _Streams()
    server.start_io(streams, streams)
    if streams.failed is not None:
        raise streams.failed


class _Streams:
    """Standard input and output, which both end where output takes no more.

    pygls answers a failed write with a message about it, whose write fails, for ever.
    """

    def __init__(self) -> None:
        self._reader, self._writer = sys.stdin.buffer, sys.stdout.buffer
        self.failed: OSError | None = None

    @property
    def closed(self) -> bool:
        """Whether no further message is read."""
        return self._reader.closed or self.failed is not None

    def readline(self) -> bytes:
        """Read one line."""
        return self._reader.readline()

    def read(self, size: int) -> bytes:
        """Read the body of a message."""
        return self._reader.read(size)

    def write(self, data: bytes) -> None:
        """Write, or end both."""
        try:
            self._writer.write(data)
            self._writer.flush()
        except OSError as error:
            self.failed = error

    def flush(self) -> None:
        """Do nothing; each message is flushed."""

    def close(self) -> None:
        """Leave both open until the process ends."""


def _plain(method: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def answer(params: Any) -> Any:
        return method(params)

    return answer


class _Editor:
    """Documents by address, and what is told about them."""

    def __init__(self, server: Any, types: Any) -> None:
        self.server, self.types = server, types
        self.seen: dict[str, tuple[int, CheckedText]] = {}

    def register(self) -> None:
        """Register the server's functions."""
        types = self.types
        options = types.CompletionOptions(trigger_characters=[" ", "{", "-"])
        for name, answer, *more in (
            (types.TEXT_DOCUMENT_DID_OPEN, self._opened),
            (types.TEXT_DOCUMENT_DID_CLOSE, self._closed),
            (types.TEXT_DOCUMENT_HOVER, self._hover),
            (types.TEXT_DOCUMENT_COMPLETION, self._completion, options),
            (types.TEXT_DOCUMENT_CODE_LENS, self._lens),
        ):
            self.server.feature(name, *more)(_plain(answer))

        async def changed(params: Any) -> None:
            await self._changed(params)

        self.server.feature(types.TEXT_DOCUMENT_DID_CHANGE)(changed)

    # --- the text ---------------------------------------------------------------------------------

    def _opened(self, params: Any) -> None:
        self._tell(params.text_document.uri)

    async def _changed(self, params: Any) -> None:
        uri, version = params.text_document.uri, params.text_document.version
        await asyncio.sleep(_QUIET)
        if self.server.workspace.get_text_document(uri).version == version:
            self._tell(uri)

    def _closed(self, params: Any) -> None:
        self.seen.pop(params.text_document.uri, None)
        self.server.publish_diagnostics(params.text_document.uri, [])

    def _read(self, uri: str) -> CheckedText:
        """Return the document as it is now, checked once a version."""
        document = self.server.workspace.get_text_document(uri)
        known = self.seen.get(uri)
        if known is not None and known[0] == document.version:
            return known[1]
        path = Path(unquote(urlparse(uri).path) or "spec.yaml")
        found = read_spec(document.source, path.name, str(path.parent))
        self.seen[uri] = document.version, found
        return found

    def _tell(self, uri: str) -> None:
        seen = self._read(uri)
        told = [self._diagnostic(seen, finding) for finding in seen.findings]
        self.server.publish_diagnostics(uri, told)

    def _diagnostic(self, seen: CheckedText, finding: Finding) -> Any:
        lines, span = seen.document.lines, finding.span
        text = lines[span.line - 1] if span.line <= len(lines) else ""
        start, end = (utf16(text, c) for c in (span.column - 1, span.column - 1 + span.length))
        place = self._range(span.line - 1, start, max(end, start + 1))
        return self.types.Diagnostic(
            range=place,
            message=finding.text,
            code=finding.code,
            source="opendp-sim",
            severity=self.types.DiagnosticSeverity.Error,
        )

    def _range(self, line: int, start: int, end: int) -> Any:
        position = self.types.Position
        return self.types.Range(start=position(line, start), end=position(line, end))

    # --- questions --------------------------------------------------------------------------------

    def _place(self, params: Any) -> tuple[CheckedText, int, int]:
        seen, at = self._read(params.text_document.uri), params.position
        lines = seen.document.lines
        text = lines[at.line] if at.line < len(lines) else ""
        return seen, at.line, utf16(text, at.character, back=True)

    def _hover(self, params: Any) -> Any:
        page = hover(*self._place(params))
        if page is None:
            return None
        kind = self.types.MarkupKind.Markdown
        return self.types.Hover(contents=self.types.MarkupContent(kind=kind, value=page))

    def _completion(self, params: Any) -> Any:
        item = self.types.CompletionItem
        return [
            item(label=choice.word, documentation=choice.about, insert_text=choice.written)
            for choice in choices(*self._place(params))
        ]

    def _lens(self, params: Any) -> Any:
        told = lens(self._read(params.text_document.uri))
        if told is None:
            return []
        line, text = told
        command = self.types.Command(title=text, command="")
        return [self.types.CodeLens(range=self._range(line, 0, 1), command=command)]
