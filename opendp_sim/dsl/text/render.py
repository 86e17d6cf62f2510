"""Render findings as JSON and as text with a caret."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from opendp_sim.core.system.escape_text import cut, escape
from opendp_sim.dsl.text.diagnostic import Diagnostic, pretty
from opendp_sim.dsl.text.yaml_document import Document, Span

_MOST, _TEXT, _BEFORE, _AFTER = 100, 600, 60, 100
"""Findings that are printed; characters of a text; and of a line before and after the place on it."""


def as_text(findings: Iterable[Diagnostic], document: Document | None) -> str:
    """Render findings one after another, an empty line between two."""
    found = list(findings)
    told = [_one(finding, document) for finding in found[:_MOST]]
    return "\n\n".join(told + [f"... and {len(found) - _MOST:,} more."] * (len(found) > _MOST))


def as_json(findings: Iterable[Diagnostic], document: Document | None) -> list[dict[str, Any]]:
    """Render findings as plain data with stable names."""
    out = []
    for found in findings:
        entry: dict[str, Any] = {
            "code": found.code,
            "title": cut(found.title, _TEXT),
            "path": cut(pretty(found.path), _TEXT),
            "label": cut(found.label, _TEXT),
            "help": cut(found.help, _TEXT),
        }
        if document is not None and (document.lines or document.spans):
            entry |= _place(document, document.locate(found.path, found.part))
        entry["causes"] = [
            {"path": cut(pretty(cause.path), _TEXT), "label": cut(cause.label, _TEXT)}
            | (_place(document, document.locate(cause.path, cause.part)) if document else {})
            for cause in found.causes
        ]
        out.append(entry)
    return out


def _place(document: Document, span: Span) -> dict[str, Any]:
    return {"file": document.name, "line": span.line, "column": span.column, "length": span.length}


def _one(found: Diagnostic, document: Document | None) -> str:
    head, tip = f"error[{found.code}]: {_text(found.title)}", _text(found.help)
    if document is None or not document.lines:
        place = escape(document.name if document is not None else pretty(found.path))
        if document is not None and document.spans:  # of a text that is not quoted
            span = document.locate(found.path, found.part)
            place += f":{span.line}:{span.column}"
        return f"{head}\n  --> {place}\n   = {_text(found.label)}\n   = help: {tip}"
    main = document.locate(found.path, found.part)
    marks = [(main, "^", found.label)]
    marks += [(document.locate(c.path, c.part), "-", c.label) for c in found.causes]
    marks.sort(key=lambda mark: (mark[0].line, mark[0].column))
    wide = len(str(marks[-1][0].line))
    gutter = " " * (wide + 1)
    body = [
        head,
        f"{' ' * wide}--> {escape(document.name)}:{main.line}:{main.column}",
        f"{gutter}|",
    ]
    previous, shift, text = 0, 0, ""
    for span, sign, label in marks:
        near = span.line == previous and span.column <= shift + len(text)
        if previous and span.line > previous + 1:
            body.append("...")
        if not near:
            shift, text = _excerpt(document, span)
            body.append(f"{span.line:>{wide}} | {escape(text)}")
        previous = span.line
        start = span.column - 1 - shift
        end = min(start + span.length, max(len(text), start + 1))
        before = len(escape(text[:start].ljust(start)))
        under = len(escape(text[start:end].ljust(end - start)))
        body.append(f"{gutter}| {' ' * before}{sign * under} {_text(label)}")
    body.append(f"{gutter}= help: {tip}")
    return "\n".join(body)


def _text(text: str) -> str:
    return escape(cut(text, _TEXT))


def _excerpt(document: Document, span: Span) -> tuple[int, str]:
    """Return an excerpt around a place, and its offset."""
    whole = document.lines[span.line - 1] if span.line <= len(document.lines) else ""
    if len(whole) <= _BEFORE + _AFTER:
        return 0, whole
    start = max(span.column - 1 - _BEFORE, 0)
    return start, whole[start : span.column - 1 + _AFTER]
