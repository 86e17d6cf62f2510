"""Draw densities and classes over columns, from a release alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from opendp_sim.accounting.release.release import Release
from opendp_sim.plots.canvas import COLORS, Display, label, needs_plot
from opendp_sim.report.maps import SURE, Grid, of_one_class, query_grid, undrawable


class DensityDisplay(Display):
    """Draw a density's slice or map.

    A slice has its interval; cells below the noise are hatched.

    Attributes:
        columns: one or two names.
        x: (n,) places in the first column. y: (m,) in the second; None for a slice.
        density, lower, upper, noise: (n,) or (m, n): answers, interval, deviation of the noise.
        confidence: of the interval.
        held: the values at which the other columns are held: what is drawn is a cut there.
        log: whether equal steps of colour are equal factors.
        equal: whether a unit is as long in both directions, as on a map in kilometres.
    """

    def __init__(
        self,
        columns: tuple[str, ...],
        x: Grid,
        y: Grid | None,
        answers: Mapping[str, Grid],
        confidence: float,
        held: Mapping[str, float] | None = None,
        *,
        log: bool = False,
        equal: bool = False,
    ) -> None:
        self.log, self.equal = log, equal
        self.columns, self.x, self.y, self.confidence = columns, x, y, confidence
        self.held = dict(held or {})
        shape = (len(x),) if y is None else (len(y), len(x))
        self.density, self.lower, self.upper, self.noise = (
            answers[name].reshape(shape) for name in ("density", "lower", "upper", "noise_error")
        )

    @classmethod
    def from_release(
        cls,
        release: Release,
        x: str,
        y: str | None = None,
        *,
        at: Mapping[str, float] | None = None,
        label: str | int | None = None,
        points: int = 60,
        confidence: float = 0.95,
        log: bool = False,
        equal: bool = False,
    ) -> Self:
        """Ask a release for its density along one column, or over two.

        Args:
            release: one that answers ``density``.
            x: the first column, drawn between its public bounds.
            y: the second column; None for a slice.
            at: where the other columns are held; default the middle of their bounds.
            label: the class, where the release has several; default the sum of all.
            points: a side of the grid.
            confidence: of the interval.
            log: colours of a map in equal factors.
            equal: a map's two columns in one unit of length.

        Raises:
            ParameterError (OS101, OS102): no such numeric column or class.
        """
        xs, ys, asked, held = query_grid(release, x, y, at or {}, points)
        found = release.ask("density", asked, confidence=confidence)
        keys = ("density", "lower", "upper", "noise_error")
        answers = {key: found[key].reshape(len(found[key]), -1) for key in keys}
        each = of_one_class(answers, found.labels, label)
        names = (x,) if y is None else (x, y)
        return cls(names, xs, ys, each, confidence, held, log=log, equal=equal)

    def _draw(self, ax: Any) -> None:
        ax.set_xlabel(label(self.columns[0]))
        _tell_cut(ax, self.held)
        if self.y is None:
            said = f"{self.confidence:.0%} interval"
            ax.fill_between(
                self.x, self.lower, self.upper, color=COLORS[2], alpha=0.35, linewidth=0, label=said
            )
            ax.plot(self.x, self.density, color=COLORS[0], label="private answer")
            ax.axhline(0.0, color="black", linewidth=0.6)
            ax.set_ylabel("density (records near)")
            ax.legend(frameon=False, fontsize=8)
            return
        ax.set_ylabel(label(self.columns[1]))
        lost = self.density < SURE * self.noise
        shown = np.ma.masked_array(self.density, lost)
        some = self.log and shown.count() > 0 and float(shown.min()) > 0.0
        scale = needs_plot("matplotlib.colors").LogNorm() if some else None
        mesh = ax.pcolormesh(
            self.x, self.y, shown, cmap="cividis", shading="nearest", rasterized=True, norm=scale
        )
        if self.equal:
            ax.set_aspect("equal")
        _hatch(ax, self.x, self.y, lost)
        noise = float(np.median(self.noise))
        said = (
            "density (records near)\nhatched: within the noise;\n"
            f"colours nearer than {SURE * noise:.3g} may be equal"
        )
        bar = ax.figure.colorbar(mesh, ax=ax, label=said)
        bar.ax.set_title(f"noise\n\u00b1{noise:.3g}", fontsize=8)


class ClassMapDisplay(Display):
    """Draw a release's classes over two columns.

    Pale where noise decides between the first two.

    Attributes:
        columns: two names. x, y: (n,), (m,) places. labels: the classes.
        winner: (m, n) numbers of classes. sure: (m, n), whether the margin exceeds the noise.
        held: the values at which the other columns are held.
    """

    def __init__(
        self,
        columns: tuple[str, str],
        x: Grid,
        y: Grid,
        labels: tuple[str | int, ...],
        winner: NDArray[np.int64],
        sure: NDArray[np.bool_],
        held: Mapping[str, float] | None = None,
    ) -> None:
        self.columns, self.x, self.y, self.labels = columns, x, y, labels
        self.held = dict(held or {})
        self.winner, self.sure = winner.reshape(len(y), len(x)), sure.reshape(len(y), len(x))

    @classmethod
    def from_release(
        cls,
        release: Release,
        x: str,
        y: str,
        *,
        at: Mapping[str, float] | None = None,
        points: int = 60,
    ) -> Self:
        """Ask a release for its classes over two columns.

        A release of means or of a density.

        Raises:
            ParameterError (OS101, OS102): no such numeric column, or no classes.
        """
        xs, ys, asked, held = query_grid(release, x, y, at or {}, points)
        assert ys is not None  # noqa: S101 - two columns were asked for
        if "nearest_class" in release.ops:
            found = release.ask("nearest_class", asked)
            sure = found["margin"] >= SURE * found["margin_deviation"]
        else:
            dense = release.ask("density", asked)
            found = dense.ask("classify", rule="map")
            values = np.sort(dense["density"], axis=1)
            noise = math.sqrt(2.0) * dense["noise_error"].max(axis=1)
            sure = values[:, -1] - values[:, -2:][:, 0] >= SURE * noise
        if found.labels is None:
            raise undrawable("release", "a release with classes", "one without")
        return cls((x, y), xs, ys, tuple(found.labels), found["label"], sure, held)

    def _draw(self, ax: Any) -> None:
        colors = needs_plot("matplotlib.colors")
        count = len(self.labels)
        told = [COLORS[i % len(COLORS)] for i in range(count)]
        ax.pcolormesh(
            self.x,
            self.y,
            self.winner,
            cmap=colors.ListedColormap(told),
            vmin=-0.5,
            vmax=count - 0.5,
            shading="nearest",
            rasterized=True,
            alpha=np.where(self.sure, 0.9, 0.3),
        )
        _hatch(ax, self.x, self.y, ~self.sure)
        patches = needs_plot("matplotlib.patches")
        names = [
            patches.Patch(color=color, label=label(name))
            for color, name in zip(told, self.labels, strict=True)
        ]
        ax.legend(
            handles=names,
            fontsize=8,
            loc="upper left",
            bbox_to_anchor=(1.0, 1.0),
            frameon=False,
            title="class (hatched: unsure)",
            title_fontsize=8,
        )
        ax.set(xlabel=label(self.columns[0]), ylabel=label(self.columns[1]))
        _tell_cut(ax, self.held)


def _tell_cut(ax: Any, held: Mapping[str, float]) -> None:
    """Title a picture with the hidden columns' values."""
    if held:
        told = ", ".join(f"{label(name)} = {value:.6g}" for name, value in held.items())
        ax.set_title(f"cut at {told}", fontsize=9)


def _hatch(ax: Any, x: Grid, y: Grid, where: NDArray[np.bool_]) -> None:
    if where.any():
        marked = np.where(where, 1.0, 0.0)
        ax.contourf(x, y, marked, levels=[0.5, 1.5], colors="none", hatches=["////"])
