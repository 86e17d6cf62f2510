"""Run every notebook of the site at once, as many side by side as there are processors.

What they print goes into the cache of this build, where myst-nb looks for it. A notebook that fails is in
no cache: myst-nb runs it again when it reads its page, and stops the build with its error.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_cache.executors.utils import single_nb_execution
from myst_nb.core.read import is_myst_markdown_notebook, read_myst_markdown_notebook

__all__ = ["notebooks", "run_all"]


def notebooks(docs: Path) -> list[Path]:
    """Return the pages with cells, the longest source first: none of them is started last."""
    found = [
        page
        for page in docs.rglob("*.md")
        if not {"generated", "_build"} & set(page.relative_to(docs).parts)
        and is_myst_markdown_notebook(page.read_text("utf-8"))
    ]
    return sorted(found, key=lambda page: -page.stat().st_size)


def run_all(docs: Path, into: Path, config: Any) -> None:
    """Run all notebooks and keep their outputs under ``into``, unless the build runs none."""
    if config.nb_execution_mode != "cache":
        return
    pages = notebooks(docs)
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # each waits for a kernel, which is a process
        done = list(pool.map(lambda page: _run(page, config.nb_execution_timeout), pages))
    cache = get_cache(str(into))
    for page, notebook, seconds in done:
        if notebook is not None:
            bundle = CacheBundleIn(notebook, str(page), data={"execution_seconds": seconds})
            cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


def _run(page: Path, timeout: float) -> tuple[Path, Any, float | None]:
    notebook = read_myst_markdown_notebook(page.read_text("utf-8"))
    result = single_nb_execution(
        notebook, cwd=str(page.parent), timeout=timeout, allow_errors=False, meta_override=True
    )
    return page, None if result.err is not None else notebook, result.time
