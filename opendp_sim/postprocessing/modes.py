"""Find a density's local maxima from several public starts (``modes.md``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Arrays, KernelSums
from opendp_sim.core.claims import Post
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.randomness import public_generator
from opendp_sim.core.shared_parameters import Seed
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.released import AnswerColumns
from opendp_sim.postprocessing._impl.asked import check_queries, grid_behind, kernel_sums
from opendp_sim.postprocessing._impl.control_variate import PublicPoints, with_public

COLUMNS = ("mode", "height", "noise_error", "sketch_error", "starts", "label")


@register
class Modes(Mechanism):
    r"""Climb a released density from several starts.

    Reports the distinct summits, highest first.

    Space
        Input: a release of a sketch that offers ``kernel_sums``, and, if wanted, public starting
        points of shape (q, d) in data units; without them the starts are spread over the box.
        Output: columns over the m modes found: ``mode`` (m, d), in data units (after a projection,
        in its own); ``height``, ``noise_error`` and ``sketch_error`` (m,), kernel sums with the
        errors that ``density`` states there; ``starts`` (m,), how many starts ended there; ``label``
        (m,), the class (0 without ``per_label``).

    Stability
        Not a transformation.

    Privacy
        Post-processing of a release and public starts: no further loss.

    Raises
        ParameterError (OS101): a parameter is outside its range. SpaceError (OS201): not a release.
        ReleaseError (OS702): no kernel sums. DataError (OS607): starts of another width.

    Source
        [own] Lemma 1 in ``modes.md``.

    Example
        >>> Modes(seed=3).spec()["starts"]
        32
    """

    key: ClassVar[str] = "modes"
    in_short: ClassVar[str] = "Find the points where the records are densest."
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "queries"
    asks_for = ("kernel_sums",)

    seed: Seed
    starts: Annotated[
        int,
        param(
            "Starting points, the first the middle of the box, the rest uniform in it.", symbol="m",
            unit="points", default=32, ge=1, le=4096, hint="more for more columns or more modes.",
        ),
    ] = 32  # fmt: skip
    rounds: Annotated[
        int,
        param(
            "Most moves of a point; the step starts at an eighth of the box and halves.", symbol="h",
            unit="moves", default=200, ge=1, le=10**5, hint="200 is ample up to ten columns.",
        ),
    ] = 200  # fmt: skip
    separation: Annotated[
        float,
        param(
            "Summits nearer than this share of the box are one.", symbol="q", unit="share",
            default=0.05, gt=0, le=1, hint="about the bandwidth over the range of the data.",
        ),
    ] = 0.05  # fmt: skip

    public: PublicPoints = "auto"

    def bind(self, domain: Domain, metric: Metric) -> Post:
        """Bind to a release that offers kernel sums."""
        del metric
        sums, deviation = kernel_sums(self.key, domain)
        noise = deviation * sums.noise_factor()
        box, to_data = _box(self.key, domain), points_of(self.key, domain)

        def climb(released: Arrays, queries: Any = None) -> dict[str, NDArray[Any]]:
            queries = None if queries is None else check_queries(domain, queries)
            points = np.zeros((0, box.shape[1])) if queries is None else queries
            queries = queries if len(points) else None
            read = with_public(self.public, self.key, domain, sums, deviation, points)
            found = self._climb(read, released, queries, box)
            errors = {
                "noise_error": np.full(len(found["height"]), noise),
                "sketch_error": _sketch_error(read, released, found, noise),
            }
            found["mode"] = to_data(found["mode"])
            return found | errors

        return Post(
            climb,
            takes="release",
            output=AnswerColumns(COLUMNS, places=("mode",)),
            expected={"noise_error": noise},
            of_a_record=1.0,
            unit="records",
            asks=False,
        )

    def _climb(
        self, sums: KernelSums, released: Arrays, queries: Any, box: NDArray[np.float64]
    ) -> dict[str, NDArray[Any]]:
        starts = self._spread(box) if queries is None else getattr(queries, "values", queries)
        points = np.asarray(starts, dtype=np.float64)
        tables = []
        for label in range(len(sums.labels) if sums.labels else 1):
            ends, heights = self._ascend(sums, released, label, points, box)
            tables.append(self._distinct(ends, heights, box, label))
        merged = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
        order = np.argsort(-merged["height"], kind="stable")
        return {name: column[order] for name, column in merged.items()}

    def _spread(self, box: NDArray[np.float64]) -> NDArray[np.float64]:
        shares = public_generator(self.seed, self.key).random((self.starts, box.shape[1]))
        shares[0] = 0.5
        spread: NDArray[np.float64] = np.rint(box[0] + shares * (box[1] - box[0]))
        return spread

    def _ascend(
        self,
        sums: KernelSums,
        released: Arrays,
        label: int,
        points: NDArray[np.float64],
        box: NDArray[np.float64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Move points to better neighbours, or halve their steps."""
        count, width = points.shape
        points, step = points.copy(), np.full(count, 0.125)
        moves = np.concatenate([np.eye(width), -np.eye(width)])

        def heights(at: NDArray[np.float64]) -> NDArray[np.float64]:
            values: NDArray[np.float64] = sums.estimate(released, at).groups[0, label]
            return values

        best = heights(points)
        for _ in range(self.rounds):
            live = np.flatnonzero((step[:, None] * (box[1] - box[0]) >= 1.0).any(axis=1))
            if not live.size:
                break
            # Down to one grid step: an extent of 1 to 2 steps is taken as one.
            reach = np.trunc(moves * (box[1] - box[0]) * step[live, None, None])
            around = np.clip(points[live, None, :] + reach, box[0], box[1])
            found = heights(around.reshape(-1, width)).reshape(len(live), -1)
            which = found.argmax(axis=1)
            top = found[np.arange(len(live)), which]
            up = top > best[live]
            points[live[up]] = around[np.arange(len(live)), which][up]
            best[live[up]] = top[up]
            step[live[~up]] /= 2.0
        return points, best

    def _distinct(
        self,
        ends: NDArray[np.float64],
        heights: NDArray[np.float64],
        box: NDArray[np.float64],
        label: int,
    ) -> dict[str, NDArray[Any]]:
        """Merge ends within ``separation`` of a higher one."""
        shares = ends / np.maximum(box[1] - box[0], 1.0)
        kept: list[int] = []
        members: list[int] = []
        for index in np.argsort(-heights, kind="stable"):
            gaps = [float(np.sqrt(np.square(shares[index] - shares[k]).sum())) for k in kept]
            if gaps and min(gaps) < self.separation:
                members[int(np.argmin(gaps))] += 1
            else:
                kept.append(int(index))
                members.append(1)
        return {
            "mode": ends[kept],
            "height": heights[kept],
            "starts": np.array(members, dtype=np.int64),
            "label": np.full(len(kept), label, dtype=np.int64),
        }


def _sketch_error(
    sums: KernelSums, released: Arrays, found: dict[str, NDArray[Any]], noise: float
) -> NDArray[np.float64]:
    """Return each mode's scatter beyond the noise."""
    at = sums.estimate(released, found["mode"])
    variance = at.variance[found["label"], np.arange(len(found["label"]))] / at.repetitions
    error: NDArray[np.float64] = np.sqrt(np.maximum(variance - at.noise_share * noise**2, 0.0))
    return error


def points_of(key: str, domain: Domain) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Return the map from grid steps to data units."""
    return grid_behind(key, domain).to_data


def _box(key: str, domain: Domain) -> NDArray[np.float64]:
    """Bounds of the sketch's input in steps, shape (2, d)."""
    rows = grid_behind(key, domain)
    ends = (np.array(v, dtype=np.float64) for v in (rows.lower, rows.upper))
    return np.array([np.broadcast_to(end, (rows.width,)) for end in ends])
