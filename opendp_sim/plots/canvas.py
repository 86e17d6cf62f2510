"""Share axes, colours, text and files of pictures."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self

from opendp_sim.accounting.atomic_files import replacing
from opendp_sim.core.errors import DataError
from opendp_sim.core.system.escape_text import escape

COLORS = ("#0072b2", "#d55e00", "#56b4e9", "#000000", "#cc79a7", "#e69f00", "#009e73")
"""Of Okabe and Ito; the first five stay furthest apart for every kind of colour blindness."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""A marker for each colour: print without colour shows them too."""
_KINDS = ("svg", "png", "pdf")
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "opendp_sim",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "font.size": 10.0,
    "hatch.linewidth": 0.6,
}


def needs_plot(name: str) -> Any:
    """Import a module of matplotlib, or say which extra has it (OS606)."""
    try:
        return import_module(name)
    except ImportError:
        raise DataError(
            "OS606", "plot", expected="the package matplotlib", got="it is not installed",
            hint='pip install "opendp_sim[plot]".',
        ) from None  # fmt: skip


def label(text: object) -> str:
    """Return text for a picture, without control characters or formulas."""
    return escape(str(text)[:60]).replace("$", r"\$")


class Display(ABC):
    """Hold a picture's data; ``plot`` draws it, setting ``ax_`` and ``figure_``."""

    size: ClassVar[tuple[float, float]] = (5.2, 3.6)
    """Width and height in inches."""
    ax_: Any
    figure_: Any

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on a new figure, and return the display."""
        with needs_plot("matplotlib").rc_context(_STYLE):
            if ax is None:
                figure = needs_plot("matplotlib.figure").Figure(self.size, layout="constrained")
                ax = figure.add_subplot()
            self.ax_, self.figure_ = ax, ax.figure
            self._draw(ax)
        return self

    @abstractmethod
    def _draw(self, ax: Any) -> None:
        """Draw on axes that exist."""

    def save(self, path: str | Path, *, dpi: int = 150) -> None:
        """Write the picture as .svg, .png or .pdf, atomically and without date."""
        kind = Path(path).suffix.removeprefix(".")
        if kind not in _KINDS:
            raise DataError(
                "OS609", str(path), expected=f"a file ending in .{', .'.join(_KINDS)}", got=f".{kind}",
                hint="vector pictures are .svg and .pdf.",
            )  # fmt: skip
        made = self._bytes(kind, dpi)
        with replacing(Path(path)) as stream:
            stream.write(made)

    def _bytes(self, kind: str, dpi: int) -> bytes:
        if not hasattr(self, "figure_"):
            self.plot()
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
        stream = io.BytesIO()
        with needs_plot("matplotlib").rc_context(_STYLE):
            self.figure_.savefig(stream, format=kind, dpi=dpi, metadata=metadata)
        return stream.getvalue()

    def _repr_svg_(self) -> str:
        return self._bytes("svg", 100).decode("utf-8")
