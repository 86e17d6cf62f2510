"""The documentation site: pages written by hand, pages made from the code, tutorials that run."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from generate import generate
from mechanism_pages import figures
from notebooks import run_all
from python_pages import keep

project = "opendp_sim"
author = "the opendp_sim developers"
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "myst_nb",
    "formulas",
]
html_math_renderer = "mathml"  # of formulas.py
html_theme = "furo"
html_title = "opendp_sim"
html_copy_source = False
html_show_copyright = False
html_extra_path = ["generated/extra"]
html_static_path = ["static"]
html_css_files = ["site.css"]
exclude_patterns = ["generated/extra", "_build", "changelog.d", "generated/gallery/*.ipynb"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "substitution"]
myst_heading_anchors = 3
myst_substitutions = {"figures": figures()}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 70
nb_execution_mode = (
    "cache"  # of this build alone: notebooks.py runs all of them first, side by side
)
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True
suppress_warnings = [
    "myst.header",  # lemmas start where their file does
    "ref.python",  # two classes of one name in two packages, and aliases of both
]
if os.environ.get(
    "OPENDP_SIM_INTERSPHINX"
):  # inventories are fetched: only where there is a network
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "numpy": ("https://numpy.org/doc/stable", None),
        "opendp": ("https://docs.opendp.org/en/stable", None),
        "python": ("https://docs.python.org/3", None),
        "sklearn": ("https://scikit-learn.org/stable", None),
    }
sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "generated/gallery",
    "download_all_examples": False,
    "write_computation_times": False,
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "only_warn_on_example_error": False,
}
os.environ["OPENDP_SIM_ROOT"] = str(HERE.parent)

generate(HERE / "generated")

# Removed when this process ends, so no build sees what an earlier one left.
_made = tempfile.TemporaryDirectory(prefix="opendp-sim-notebooks-")
nb_execution_cache_path = _made.name


_READABLE = (
    ('<p class="caption" role="heading">', '<p class="caption" role="heading" aria-level="2">'),
    ("<pre>", '<pre tabindex="0">'),
    ('<table class="', '<table tabindex="0" class="'),
    ('<div class="math">', '<div tabindex="0" class="math">'),
    ('<dl>\n<dd><em class="sig-param">', '<dl role="list">\n<dd><em class="sig-param">'),
    ('<dd><em class="sig-param">', '<dd role="listitem"><em class="sig-param">'),
)
"""What axe-core finds in pages of Sphinx, and what stands instead: captions without a level, boxes that
scroll and cannot be reached by keys, and lists of parameters without terms."""


def make_readable(app: Any, error: Exception | None) -> None:
    """Replace what assistive technology cannot read in every page."""
    for page in (
        Path(app.outdir).rglob("*.html") if error is None and app.builder.name == "html" else ()
    ):
        text = made = page.read_text("utf-8")
        for old, new in _READABLE:
            made = made.replace(old, new)
        if made != text:
            page.write_text(made, "utf-8")


def setup(app: Any) -> None:
    """Run the notebooks before any page is read, and read and write pages with all processors."""
    app.connect("autodoc-skip-member", keep)
    app.connect("build-finished", make_readable)
    app.connect("builder-inited", lambda app: run_all(HERE, Path(_made.name), app.config))
    if app.parallel < 2:
        app.parallel = os.cpu_count() or 1
