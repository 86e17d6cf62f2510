"""Findings as text with the source line and a caret, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from opendp_sim.core.shown import shown
from opendp_sim.dsl.diagnostic import Diagnostic, pretty
from opendp_sim.dsl.document import Document, Span

__all__ = ["as_json", "as_text"]


def as_text(findings: Iterable[Diagnostic], document: Document | None) -> str:
    """Render findings one after another, an empty line between two."""
    return "\n\n".join(_one(finding, document) for finding in findings)


def as_json(findings: Iterable[Diagnostic], document: Document | None) -> list[dict[str, Any]]:
    """Render findings as plain data: stable names, lines and columns from 1."""
    out = []
    for found in findings:
        entry: dict[str, Any] = {
            "code": found.code,
            "title": found.title,
            "path": pretty(found.path),
            "label": found.label,
            "help": found.help,
        }
        if document is not None and document.lines:
            entry |= _place(document, document.locate(found.path, found.part))
        entry["causes"] = [
            {"path": pretty(cause.path), "label": cause.label}
            | (_place(document, document.locate(cause.path, cause.part)) if document else {})
            for cause in found.causes
        ]
        out.append(entry)
    return out


def _place(document: Document, span: Span) -> dict[str, Any]:
    return {"file": document.name, "line": span.line, "column": span.column, "length": span.length}


def _one(found: Diagnostic, document: Document | None) -> str:
    head, tip = f"error[{found.code}]: {shown(found.title)}", shown(found.help)
    if document is None or not document.lines:
        place = shown(document.name if document is not None else pretty(found.path))
        return f"{head}\n  --> {place}\n   = {shown(found.label)}\n   = help: {tip}"
    main = document.locate(found.path, found.part)
    marks = [(main, "^", found.label)]
    marks += [(document.locate(c.path, c.part), "-", c.label) for c in found.causes]
    marks.sort(key=lambda mark: (mark[0].line, mark[0].column))
    wide = len(str(marks[-1][0].line))
    gutter = " " * (wide + 1)
    body = [head, f"{' ' * wide}--> {shown(document.name)}:{main.line}:{main.column}", f"{gutter}|"]
    previous = 0
    for span, sign, label in marks:
        text = document.lines[span.line - 1] if span.line <= len(document.lines) else ""
        if span.line != previous:
            if previous and span.line > previous + 1:
                body.append("...")
            body.append(f"{span.line:>{wide}} | {shown(text)}")
            previous = span.line
        start, end = span.column - 1, span.column - 1 + span.length
        before = len(shown(text[:start].ljust(start)))
        under = len(shown(text[start:end].ljust(span.length)))
        body.append(f"{gutter}| {' ' * before}{sign * under} {shown(label)}")
    body.append(f"{gutter}= help: {tip}")
    return "\n".join(body)
