"""Check a built site without a network: ``python docs/links.py build/site``.

Every relative link must lead to a file, and its fragment to a place in it. Nothing may be fetched from
elsewhere while a page is read; links that a reader may follow to other sites are counted, not opened.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What a page can be linked at, what it links to, and what it makes a browser fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag is, leads to or loads."""
        found = {name: value for name, value in attrs if value}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and "href" in found and found.get("rel") != "canonical":
            self.fetched.append(found["href"])
        elif "src" in found:
            self.fetched.append(found["src"])


def broken(site: Path) -> list[str]:
    """Return every fault, one sentence each."""
    pages = {path.resolve(): Page(path.read_text("utf-8")) for path in site.rglob("*.html")}
    faults = [] if pages else [f"{site}: no page"]
    for path, page in pages.items():
        here = path.relative_to(site.resolve())
        faults += [f"{here}: fetches {url}" for url in page.fetched if _elsewhere(url)]
        for url in [*page.links, *page.fetched]:
            if _elsewhere(url) or url.startswith("data:"):
                continue
            parts = urlsplit(url)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                faults.append(f"{here}: no file {url}")
            elif (
                parts.fragment
                and target in pages
                and unquote(parts.fragment) not in pages[target].ids
            ):
                faults.append(f"{here}: no place {url}")
    return faults


def _elsewhere(url: str) -> bool:
    return url.startswith("//") or urlsplit(url).scheme in {"http", "https", "mailto"}


if __name__ == "__main__":
    found = broken(Path(sys.argv[1]))
    print(
        "\n".join(found)
        or "every link leads somewhere, and no page fetches anything from elsewhere"
    )
    sys.exit(bool(found))
