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
from notebooks import run_all

project = "opendp_sim"
author = "The opendp_sim contributors"
extensions = ["myst_nb", "formulas"]
html_math_renderer = "mathml"  # of formulas.py
html_theme = "furo"
html_title = "opendp_sim"
html_copy_source = False
html_show_copyright = False
html_extra_path = ["generated/extra"]
exclude_patterns = ["generated/extra", "_build", "changelog.d"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = (
    "cache"  # of this build alone: notebooks.py runs all of them first, side by side
)
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True
suppress_warnings = ["myst.header"]  # lemmas start where their file does
os.environ["OPENDP_SIM_ROOT"] = str(HERE.parent)

generate(HERE / "generated")

# Removed when this process ends, so no build sees what an earlier one left.
_made = tempfile.TemporaryDirectory(prefix="opendp-sim-notebooks-")
nb_execution_cache_path = _made.name


def setup(app: Any) -> None:
    """Run the notebooks before any page is read, and read and write pages with all processors."""
    app.connect("builder-inited", lambda app: run_all(HERE, Path(_made.name), app.config))
    if app.parallel < 2:
        app.parallel = os.cpu_count() or 1
