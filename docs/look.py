"""Look at a built site in a real browser: ``python docs/look.py build/site [--all]``.

Every page, narrow (400 px) and dark as well as wide and light: axe-core has no complaint, nothing is
wider than the screen, and a link leads back to the first page. Of a folder with many pages its three
largest are looked at, or all. Needs Chromium and ``axe-core-python``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests._browser import CHROMIUM, Browser

SEEN = ((400, True), (1280, False))
ALONE = {"report.html"}
"""Pages that stand by themselves: a report is sent to somebody who has no site."""
RUN = """axe.run({iframes: false, runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}).then((found) =>
  found.violations.map((one) => [one.id, one.nodes.length, one.nodes[0].html.slice(0, 160)]))"""
WIDE = """(() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const clipped = (node) => {
    for (let up = node.parentElement; up; up = up.parentElement)
      if (getComputedStyle(up).overflowX !== "visible") return true;
    return false;
  };
  return [...document.querySelectorAll("main *, article *")]
    .filter((node) => node.getBoundingClientRect().right > width + 1 && !clipped(node))
    .slice(0, 3).map((node) => node.outerHTML.slice(0, 160));
})()"""
BACK = """[...document.querySelectorAll("a[href]")].map((a) => a.href.split("#")[0])"""


def axe() -> str:
    """Return axe-core's program, as ``axe-core-python`` holds it."""
    found = find_spec("axe_core_python")
    if found is None or found.origin is None:
        raise SystemExit("pip install axe-core-python")
    return Path(found.origin).with_name("axe.min.js").read_text("utf-8")


def chosen(site: Path, *, every: bool) -> list[Path]:
    """Return the pages that are looked at."""
    pages = [path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]
    folders = {path.parent for path in pages}
    several = {folder: [p for p in pages if p.parent == folder] for folder in folders}
    largest = {p for each in several.values() for p in sorted(each, key=_size)[-3:]}
    written = {site, site / "tutorials", site / "generated"}
    return [path for path in pages if every or path in largest or path.parent in written]


def _size(path: Path) -> int:
    return path.stat().st_size


def faults(page: Browser, path: Path, site: Path, program: str) -> list[str]:
    """Return what is wrong with a page, one sentence each."""
    out, first = [], (site / "index.html").as_uri()
    page.open(path, *SEEN[0][:1], dark=SEEN[0][1])
    page.ask(program + ";0")
    for width, dark in SEEN:
        page.look(width, dark=dark)
        page.ask("new Promise((done) => setTimeout(done, 400))")  # colours change gradually
        how = f"{width} px, {'dark' if dark else 'light'}"
        out += [f"{how}: axe {json.dumps(one)}" for one in page.ask(RUN)]  # type: ignore[attr-defined]
        out += [f"{how}: too wide: {one}" for one in page.ask(WIDE)]  # type: ignore[attr-defined]
    if path.name not in ALONE and first not in page.ask(BACK):  # type: ignore[operator]
        out.append("no link to the first page")
    return [f"{path.relative_to(site)}: {one}" for one in out]


def main(site: Path) -> int:
    """Print every fault; return whether there is one."""
    if CHROMIUM is None:
        print("no browser: pages are not opened")
        return 0
    site, program = site.resolve(), axe()
    pages = chosen(site, every="--all" in sys.argv)
    found: list[str] = []
    with tempfile.TemporaryDirectory() as folder, Browser(Path(folder)) as page:
        for path in pages:
            new = faults(page, path, site, program)
            found += new
            if new:
                print("\n".join(new), flush=True)
    print(f"{len(pages)} pages, narrow and dark, wide and light: {len(found)} faults")
    return int(bool(found) or not pages)


if __name__ == "__main__":
    os.environ.setdefault("NO_PROXY", "*")
    sys.exit(main(Path(sys.argv[1])))
