"""Save named arrays and a public header in one file.

Without pickle. The header holds everything that a question needs on another machine: the source's
declaration, the steps with their seeds, the noise, the privacy claim, versions, and the sha256 of
every array and of every public matrix. Loading re-draws the matrices from their seeds and compares.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fractions import Fraction
from functools import cache, cached_property, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator

from opendp_sim.accounting.atomic_files import replacing
from opendp_sim.accounting.claim_text import Statement, claim_sentence, claim_statements, html_card
from opendp_sim.accounting.file_schemas import Digest, Plain, Strict, is_heavy, read_both
from opendp_sim.accounting.release.answers import Answers
from opendp_sim.accounting.release.continual import joined_claim, stream_of
from opendp_sim.accounting.release.query import answers_of, questions_of
from opendp_sim.accounting.release.questions import Questions
from opendp_sim.core.bridge import construction, links, measure_of, resolved
from opendp_sim.core.claims import Noise, Private, Stable, Stage
from opendp_sim.core.errors import ParameterError, ReleaseError, SimError
from opendp_sim.core.mechanism import REGISTRY, Mechanism, lookup
from opendp_sim.core.memory import machine_memory
from opendp_sim.core.pipeline import bind_steps, on_queries
from opendp_sim.core.randomness import fingerprint
from opendp_sim.core.serialization import BoundNote, CastNote
from opendp_sim.core.space import Domain, Metric
from opendp_sim.core.system.file_kinds import kind_of_file
from opendp_sim.core.system.npy import array_of, header_of
from opendp_sim.core.system.regular_files import regular
from opendp_sim.domains.metrics import unit_of_distance
from opendp_sim.domains.released import NamedArrays, Released
from opendp_sim.domains.serialize import from_json, to_json
from opendp_sim.domains.sketch import IntVector, Sketch

# --------------------------------------------------------------------------------------------------
# The header of a release, as a file holds it: every field and its type, and nothing else.


def _can_be_stated(privacy: Plain) -> Plain:
    """Return a claim that sentences can be made of, or refuse it."""
    try:
        for holder in privacy.get("holders", ()):
            stream_of(_Holder.model_validate(holder).privacy)
        stream_of(privacy)
        if not claim_statements(privacy) or not privacy.get("holders", True):
            raise ValueError
    except Exception:  # noqa: BLE001 - an edited claim fails in many ways
        raise ValueError("a claim as this package writes it") from None
    return privacy


class _Array(Strict):
    sha256: Digest
    shape: list[int]
    dtype: str


class _Noise(Strict):
    family: str
    scale: str
    weights: list[list[int]]
    sampler: str
    step: str = "1"


class _Holder(Strict):
    privacy: Plain
    noise: _Noise | None
    arrays: dict[str, Digest]


class ReleaseHeader(Strict):
    """Hold a release's public facts, read by strict records."""

    format: Literal["opendp_sim/release/1"]
    versions: dict[str, str]
    source: Plain
    metric: Plain
    steps: list[dict[str, Plain]]
    noise: _Noise | None
    privacy: Annotated[Plain, AfterValidator(_can_be_stated)]
    matrices: list[str]
    arrays: dict[str, _Array]


# --------------------------------------------------------------------------------------------------
# The file of a release: a zip of .npy members and a JSON header, without pickle.
#
# The digests find damage and careless edits. They are no signature: whoever can rewrite the file can
# rewrite them.

_HEADER, _DIGEST = "header.json", "header.sha256"
_LONGEST_HEADER = 2**26
_LARGE, _DENSEST = 2**28, 500
"""Above so many bytes a release is not packed more densely than this: noise does not compress."""


def write_file(
    path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> Path:
    """Write a release to ``path`` atomically."""
    with replacing(Path(path)) as stream:
        write_archive(stream, header, arrays)
    return Path(path)


def write_archive(
    stream: IO[bytes], header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write a release's members into an open file.

    Packed fast: of noise the densest packing saves 3 to 5 % more, in seven times the time.
    """
    text = json.dumps(header, sort_keys=True).encode()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in ((_HEADER, text), (_DIGEST, hashlib.sha256(text).hexdigest())):
            # Without the clock of its writing: how long a run took depends on the number of records.
            about = zipfile.ZipInfo(name)
            about.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(about, content)
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def read_file(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read header and arrays, refusing a truncated, tampered or foreign file (OS701)."""
    try:
        with zipfile.ZipFile(regular(path)) as archive:
            _check_sizes(archive, Path(path).stat().st_size)
            raw = archive.read(_HEADER)
            if is_heavy(raw):
                raise foreign()
            if hashlib.sha256(raw).hexdigest() != archive.read(_DIGEST).decode():
                raise foreign()
            _, header = read_both(ReleaseHeader, raw, lambda _: foreign())
            arrays = {}
            for name, about in header["arrays"].items():
                with archive.open(f"{name}.npy") as member:
                    _check_header(member, about, archive.getinfo(f"{name}.npy").file_size)
                with archive.open(f"{name}.npy") as member:
                    arrays[name] = array_of(member)
                if array_header(arrays[name]) != about:
                    raise foreign()
    except ReleaseError:
        raise foreign(path) from None
    except SimError:
        raise
    except Exception:  # noqa: BLE001 - a damaged archive fails in many ways
        raise foreign(path) from None
    return header, arrays


def _check_sizes(archive: zipfile.ZipFile, packed: int) -> None:
    """Refuse members of oversized or empty directory entries before inflating them."""
    members = {each.filename: each.file_size for each in archive.infolist()}
    if len(members) != len(archive.infolist()):
        raise foreign()
    if members[_HEADER] > _LONGEST_HEADER or members[_DIGEST] > 2 * hashlib.sha256().digest_size:
        raise foreign()
    whole = sum(members.values())
    if whole > machine_memory() // 2 or (whole > _LARGE and whole > _DENSEST * packed):
        raise foreign()


def _check_header(member: IO[bytes], about: Mapping[str, Any], size: int) -> None:
    """Refuse arrays that differ from the release's header."""
    _, shape, _, dtype = header_of(member)
    plain = dtype.kind in "biuf" and [list(shape), dtype.str] == [about["shape"], about["dtype"]]
    if not plain or member.tell() + dtype.itemsize * math.prod(shape) != size:
        raise foreign()


def foreign(path: str | os.PathLike[str] | None = None) -> ReleaseError:
    """Return the refusal of a file of another kind than a release."""
    got, where = "a truncated, changed or foreign file", "release"
    hint = (
        "name the .npz of an output without `post`; if it is that, copy it again from its source."
    )
    if path is not None:
        found, where = kind_of_file(Path(path)), os.fspath(path)
        if found.name not in ("release", "archive", "bytes"):
            got, then = found.said, f"; {found.then}" if found.then else ""
            hint = (
                f"name the .npz that `opendp-sim apply` wrote for an output without `post`{then}."
            )
    return ReleaseError(
        "OS701", where, expected="a release file as this package wrote it", got=got, hint=hint
    )


def array_header(array: NDArray[Any]) -> dict[str, Any]:
    """Return what a header says of an array."""
    return {"sha256": fingerprint([array]), "shape": list(array.shape), "dtype": array.dtype.str}


# --------------------------------------------------------------------------------------------------

RELEASE_FORMAT = "opendp_sim/release/1"


def library_versions() -> dict[str, str]:
    """Return the versions that a release depends on."""
    return {name: _version(name) for name in ("opendp_sim", "opendp", "numpy", "scipy")}


@cache
def _version(name: str) -> str:
    """Return the installed version of a package; reading it takes milliseconds."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


@dataclass(frozen=True)
class Release(Questions):
    """Hold a release's arrays by block name, and its header."""

    header: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]

    @classmethod
    def of_sketch(
        cls,
        stages: Sequence[Stage],
        flat: NDArray[np.int64],
        noise: Noise | None,
        privacy: Mapping[str, Any],
    ) -> Release:
        """Make the release of a noisy sketch.

        It reads the integers of a chain of ``then_`` functions: the release can be asked and saved. What
        it claims is what its caller states; only ``apply`` writes a certificate.

        Args:
            stages: row maps and, last, the sketch, bound to the source; or a mechanism of its own
                whose release can be asked.
            flat: the released cells, int64, shape (size,), as the chain returned them.
            noise: the law that was added; None for data that was public to begin with, and for a
                mechanism that adds its own.
            privacy: the claim, as plain JSON.

        Raises:
            ReleaseError (OS702): the last step is neither a sketch nor a mechanism that can be asked.

        Example:
            >>> import numpy as np, opendp.prelude as dp
            >>> from opendp.extras.numpy import array2_domain
            >>> import opendp_sim.prelude as sim
            >>> from opendp_sim import Release
            >>> from opendp_sim.core.claims import Noise
            >>> from opendp_sim.core.constructors import adopt_domain, adopt_metric
            >>> from opendp_sim.core.mechanism import lookup
            >>> from opendp_sim.core.pipeline import bind_steps
            >>> dp.enable_features("contrib")
            >>> space = array2_domain(num_columns=1, nan=False, T=float), dp.symmetric_distance()
            >>> grid, sketch = {"bits": 8, "bounds": (0.0, 1.0)}, {"bandwidth": 0.3, "order": 3}
            >>> measure = (space >> sim.then_quantize(**grid)
            ...     >> sim.then_gauss_transform_sketch(**sketch) >> dp.m.then_laplace(scale=0.01))
            >>> cells = np.array(measure(np.array([[0.5], [0.5]])))
            >>> steps = [lookup("quantize")(**grid), lookup("gauss_transform_sketch")(**sketch)]
            >>> stages = bind_steps(adopt_domain(space[0]), adopt_metric(space[1]), steps)
            >>> claim = {"measure": "pure", "epsilon": measure.map(1)}
            >>> release = Release.of_sketch(stages, cells, Noise("discrete_laplace", 0.01), claim)
            >>> release.density([[0.5]])["density"].round(1).tolist()
            [2.0]
        """
        made = _made_by(stages[-1])
        if made is None:
            raise ReleaseError(
                "OS702", "release", expected="a pipeline that ends in a sketch, or in a mechanism whose "
                "release can be asked", got="another one", hint="add a sketch step before the noise.",
            )  # fmt: skip
        arrays = made.split(np.ascontiguousarray(flat))
        header = {
            "format": RELEASE_FORMAT,
            "versions": library_versions(),
            "source": to_json(stages[0].domain),
            "metric": to_json(stages[0].metric),
            "steps": _steps(stages),
            "noise": None if noise is None else _noise_to_json(noise),
            "privacy": dict(privacy),
            "matrices": [fingerprint(_matrices(stage)) for stage in stages],
            "arrays": {name: array_header(array) for name, array in arrays.items()},
        }
        return cls(header, arrays)

    # --- reading it -----------------------------------------------------------------------------

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Return the pipeline, bound and drawn again from the header."""
        try:
            domain: Domain = from_json(self.header["source"])
            metric: Metric = from_json(self.header["metric"])
            mechanisms = [_mechanism(step) for step in self.header["steps"]]
            stages = bind_steps(domain, metric, mechanisms)
        except SimError:
            raise
        except Exception:  # noqa: BLE001 - an edited header fails in many ways
            raise foreign() from None
        if [fingerprint(_matrices(stage)) for stage in stages] != self.header["matrices"]:
            raise ReleaseError(
                "OS703", "release", expected="the public matrices that the release was made with",
                got="other ones", hint="install the numpy version named in the header's `versions`.",
            )  # fmt: skip
        return stages

    @cached_property
    def released(self) -> Released:
        """The descriptor that query mechanisms bind to."""
        if not self.stages:
            raise foreign()
        claim, noise = self.stages[-1].claim, self.header["noise"]
        made = _made_by(self.stages[-1])
        if made is None or not isinstance(claim, Stable | Private):
            raise foreign()
        if {name: array.shape for name, array in self.arrays.items()} != made.shapes:
            raise foreign()
        return Released(
            sketch=made,
            capabilities=claim.capabilities,
            noise=_noise_or_none(noise),
            queries=self.stages[-1].domain,
        )

    def queries(self, queries: Any) -> Any:
        """Send public queries through the release's own row maps."""
        return on_queries(self.stages, queries)

    # --- asking it ------------------------------------------------------------------------------

    @property
    def ops(self) -> tuple[str, ...]:
        """The questions that this release answers."""
        return questions_of(self)

    def ask(self, question: str, queries: Any = None, **parameters: Any) -> Answers:
        """Answer public queries from this release alone.

        No data is opened and nothing is spent.

        Args:
            question: a query mechanism, one of ``ops``: ``density``, ``distance``, ``classify``, ...
            queries: an array of shape (q, d) in data units (of one column also (q,)), a data frame, or
                a dict of columns; None for questions without queries, such as ``modes``.
            **parameters: the question's own parameters, as ``opendp-sim explain`` lists them.

        Returns:
            the answers as a table; ``answers.ask(...)`` computes further questions from them.

        Raises:
            ParameterError (OS101): an unknown question or parameter. ReleaseError (OS702): this release
                does not hold what the question needs. DataError (OS602, OS607): queries of another shape.
        """
        return answers_of(self, question, queries, parameters)

    def __getattr__(self, name: str) -> Any:
        """Return a question as a method, as in ``release.density(queries)``."""
        if name in REGISTRY and REGISTRY[name].room == "queries":
            return partial(self.ask, name)
        near = get_close_matches(name, [k for k, c in REGISTRY.items() if c.room == "queries"], n=1)
        meant = f"; did you mean {near[0]!r}?" if near and not name.startswith("_") else ""
        raise AttributeError(f"a release has no {name!r}{meant}; it answers the questions in `ops`")

    def __dir__(self) -> list[str]:
        """Return the attributes, questions included."""
        return [*super().__dir__(), *self.ops]

    def __getstate__(self) -> dict[str, Any]:
        """Keep header and arrays when pickled."""
        return {"header": self.header, "arrays": self.arrays}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take header and arrays back."""
        self.__dict__.update(state)

    @property
    def claim(self) -> str:
        """The privacy claim that the header states, in words."""
        return claim_sentence(self.header["privacy"])

    def __repr__(self) -> str:
        """Return the steps, the claim and the questions."""
        steps = " -> ".join(key for step in self.header["steps"] for key in step)
        return f"Release({steps}; {self.claim}; answers {', '.join(self.ops)})"

    def _repr_html_(self) -> str:
        """Return the same for a notebook; every text is escaped."""
        steps = " -> ".join(key for step in self.header["steps"] for key in step)
        asked = Statement("asks", "", f"{', '.join(self.ops)}, as often as you like")
        return html_card(f"release of {steps}", [*claim_statements(self.header["privacy"]), asked])

    # --- several holders --------------------------------------------------------------------------

    def __add__(self, other: object) -> Release:
        """Add another holder's release of the same public sketch.

        The result answers as one release of all holders' records would, cell by cell
        ``A + noise_A + B + noise_B``. Nobody sees another holder's records, and nothing more is spent:
        each holder's claim stays its own (``release.md``, Lemma 1), and the errors count both noises
        (Lemma 2). Releases of other periods of one stream add up under its one claim (``continual.md``).

        Args:
            other: a release with the same columns, bounds, steps and seeds; a sum of releases also.

        Returns:
            the sum, which can be asked, saved and added to. Its ``claim`` names each holder's.

        Raises:
            ReleaseError (OS702): the sketches differ, one of them is no sum over records, or a release
                is in both sums already (its noise would count twice), or a period of a stream.

        Example:
            >>> import tempfile
            >>> import numpy as np
            >>> import opendp_sim as sim
            >>> plan = sim.density({"x": (0, 1)}, bandwidth=0.1, epsilon=100.0)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     one, other = (
            ...         plan.apply({"x": np.full(n, 0.5)}, into=f"{folder}/{n}") for n in (600, 400)
            ...     )
            >>> both = one + other
            >>> both.density([0.5])["density"].round(-2).tolist()
            [1000.0]
            >>> len(both.header["privacy"]["holders"])
            2
        """
        return sum_of(self, other) if isinstance(other, Release) else NotImplemented

    def __radd__(self, other: object) -> Release:
        """Begin ``sum(releases)``, which adds to 0."""
        return self if type(other) is int and other == 0 else NotImplemented

    # --- the file -------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write .npy members and a JSON header to ``path`` atomically."""
        return write_file(path, self.header, self.arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Release:
        """Read a release, refusing a truncated, tampered or foreign file (OS701).

        The digests find damage and careless edits. They are no signature: whoever can rewrite the
        file can rewrite them.
        """
        return cls(*read_file(path))


def sum_of(first: Release, second: Release) -> Release:
    """Return the sum of two holders' releases (``release.md``)."""
    stage = first.stages[-1]
    if not isinstance(stage.claim, Stable) or stage.claim.accumulate is None:
        raise _not_added("releases of a sum over records", stage.mechanism.key)
    for part in ("source", "metric", "steps", "matrices"):
        one, other = (
            json.dumps(_steps(of.stages) if part == "steps" else of.header[part], sort_keys=True)
            for of in (first, second)
        )
        if one != other:  # as files have them: a fresh header holds tuples
            raise _not_added(f"releases with the same {part}", "two that differ in it")
    holders = _together([*_holders(first), *_holders(second)])
    second.released  # noqa: B018 - refuses arrays that its header does not describe
    arrays = {name: _added(one, second.arrays[name]) for name, one in first.arrays.items()}
    noise = noise_of_sum(first.released.noise, second.released.noise)
    header = {
        **first.header,
        "noise": None if noise is None else _noise_to_json(noise),
        "privacy": {"holders": holders} if len(holders) > 1 else holders[0]["privacy"],
        "arrays": {name: array_header(array) for name, array in arrays.items()},
    }
    return Release(header, arrays)


def _together(holders: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return holders, with nodes of one stream as one holder."""
    found: list[dict[str, Any]] = []
    for one in holders:
        for place, other in enumerate(found):
            privacy = joined_claim(other["privacy"], one["privacy"])
            if privacy is not None:
                noise = noise_of_sum(*(_noise_or_none(each["noise"]) for each in (other, one)))
                law = None if noise is None else _noise_to_json(noise)
                found[place] = {**other, "privacy": privacy, "noise": law}
                break
            if one["noise"] is not None and one["arrays"] == other["arrays"]:
                raise _not_added("releases that were made apart", "the same one twice")
        else:
            found.append(one)
    return found


def _noise_or_none(value: Mapping[str, Any] | None) -> Noise | None:
    return None if value is None else _noise_from_json(value)


def _not_added(expected: str, got: str) -> ReleaseError:
    return ReleaseError(
        "OS702", "release", expected=expected, got=got,
        hint="give every holder one spec, with the same columns, bounds, sizes and seeds.",
    )  # fmt: skip


def _holders(release: Release) -> list[dict[str, Any]]:
    """Return each holder's claim, and what tells its release from others."""
    header = release.header
    arrays = {name: about["sha256"] for name, about in header["arrays"].items()}
    own = {"privacy": header["privacy"], "noise": header["noise"], "arrays": arrays}
    return list(header["privacy"].get("holders", [own]))


def _added(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.int64]:
    """Add whole cells, or refuse a sum beyond int64."""
    if one.dtype.kind != "i" or other.dtype.kind != "i":
        raise foreign()
    farthest = sum(max(abs(int(a.min(initial=0))), int(a.max(initial=0))) for a in (one, other))
    if farthest >= 2**63:
        raise _not_added("sums of cells below 2**63", "a larger one")
    return np.add(one, other, dtype=np.int64)


def noise_of_sum(one: Noise | None, other: Noise | None) -> Noise | None:
    """Return a law for the sum of two independent noises (Lemma 2)."""
    if one is None or other is None:
        return one or other
    if one.weights != other.weights:
        raise _not_added("noise with the same weights", "two that differ")
    variance = one.deviation**2 + other.deviation**2
    laplace = "discrete_laplace" in (one.family, other.family)
    scale = math.sqrt((variance + 1 / 6) / 2 if laplace else variance)
    family: Literal["discrete_laplace", "discrete_gaussian"]
    family = "discrete_laplace" if laplace else "discrete_gaussian"
    return replace(one, family=family, scale=scale, step=one.step + other.step)


def _made_by(stage: Stage) -> Sketch | NamedArrays | None:
    """Return the arrays of a stage's release, or None."""
    claim = stage.claim
    if isinstance(claim, Stable) and isinstance(claim.output, Sketch):
        return claim.output
    if isinstance(claim, Private) and claim.capabilities and isinstance(claim.output, NamedArrays):
        return claim.output
    return None


def _matrices(stage: Stage) -> Sequence[NDArray[np.generic]]:
    return stage.claim.matrices if isinstance(stage.claim, Stable) else ()


def _steps(stages: Sequence[Stage]) -> list[dict[str, Any]]:
    """Return mechanisms with all their parameters.

    Those that an older file lacks are at their defaults.
    """
    return [{stage.mechanism.key: stage.mechanism.spec()} for stage in stages]


def _mechanism(step: Mapping[str, Any]) -> Mechanism:
    ((key, params),) = step.items()
    return lookup(key).from_spec(params)


def _noise_to_json(noise: Noise) -> dict[str, Any]:
    return {
        "family": noise.family,
        "scale": noise.scale.hex(),
        "weights": [list(run) for run in noise.weights],
        "sampler": noise.sampler,
        "step": str(noise.step),
    }


def _noise_from_json(value: Mapping[str, Any]) -> Noise:
    try:
        weights = tuple((int(cells), int(weight)) for cells, weight in value["weights"])
        step = Fraction(value.get("step", 1))
        return Noise(
            value["family"], float.fromhex(value["scale"]), weights, value["sampler"], step
        )
    except (TypeError, ValueError, ArithmeticError):
        raise foreign() from None


# --------------------------------------------------------------------------------------------------
# What a chain of OpenDP's returned, read as a release.

_MEASURES = {
    "max_divergence": "pure",
    "zero_concentrated_divergence": "zcdp",
    "approx_max_divergence": "approx",
    "approx_zero_concentrated_divergence": "approx_zcdp",
}
_NATIVE: Mapping[str, Literal["discrete_laplace", "discrete_gaussian"]] = {
    "make_laplace": "discrete_laplace",
    "make_gaussian": "discrete_gaussian",
}


def read(measurement: Any, raw: Any, d_in: int | None = None) -> Release:
    """Read what a measurement returned as a release that can be asked.

    Args:
        measurement: what was released: a chain of row maps, one sketch and one noise, of ours or
            OpenDP's, or of a mechanism that can be asked; or the ``Query`` of ``dp.Context`` that was
            released. Conversions of its measure may stand around it.
        raw: what it returned, cells of shape (size,). Nothing else is read: no data, no budget.
        d_in: the distance at which the claim is stated; a query's own by default, else 1.

    Returns:
        the release, whose claim is ``measurement.map(d_in)``. It can be asked and saved; the claim holds
        if ``raw`` is this measurement's, which nobody can see from the cells.

    Raises:
        ReleaseError (OS702): another measurement, or cells of another number or type.

    Example:
        >>> import numpy as np, opendp.prelude as dp
        >>> from opendp.extras.numpy import array2_domain
        >>> import opendp_sim.prelude as sim
        >>> dp.enable_features("contrib")
        >>> space = array2_domain(num_columns=1, nan=False, T=float), dp.symmetric_distance()
        >>> measure = (space >> sim.then_quantize(bits=8, bounds=(0.0, 1.0))
        ...     >> sim.then_gauss_transform_sketch(bandwidth=0.3, order=3)
        ...     >> dp.m.then_laplace(scale=0.01))
        >>> release = sim.read(measure, measure(np.array([[0.5], [0.5]])))
        >>> release.density([[0.5]])["density"].round(1).tolist()
        [2.0]
    """
    measurement, asked = resolved(measurement, None)
    d_in = (1 if asked is None else asked) if d_in is None else d_in
    if isinstance(d_in, int | float) and not d_in >= 1:
        raise ParameterError(
            "OS101", "d_in", expected="a distance of at least 1", got=d_in,
            hint="state the claim for neighbours that differ.",
        )  # fmt: skip
    stages, noise = _chain_of(measurement)
    made = _made_by(stages[-1]) if stages else None
    if made is None or (noise is None and isinstance(made, Sketch)):
        raise _no_chain()
    given = np.asarray(raw)
    size = sum(math.prod(shape) for shape in made.shapes.values())
    fits = given.shape == (size,) and given.dtype.kind in "iuf"
    with np.errstate(invalid="ignore"):
        cells = given.astype(np.int64) if fits else np.zeros(0, np.int64)
    if not fits or not np.array_equal(cells, given):  # one form, so that a release is known again
        raise ReleaseError(
            "OS702", "read", expected=f"the {size:,} whole numbers that the measurement returned",
            got="another value", hint="call the measurement once, and give what it returned.",
        )  # fmt: skip
    return Release.of_sketch(stages, cells, noise, _claim_of(measurement, d_in))


def _chain_of(measurement: Any) -> tuple[list[Stage], Noise | None]:
    """Return the stages and the noise of a chain, or refuse it."""
    stages: list[Stage] = []
    noise: Noise | None = None
    for part in links(measurement):
        if isinstance(part, CastNote):
            continue
        if noise is not None:
            raise _no_chain()
        if isinstance(part, BoundNote):
            claim = part.mechanism.bind(part.domain, part.metric)
            if isinstance(claim, Private) and not claim.capabilities:
                noise = claim.noise if isinstance(claim.output, Sketch | IntVector) else None
                if noise is None:
                    raise _no_chain()
            else:
                stages.append(Stage(part.mechanism, part.domain, part.metric, claim))
            continue
        name, told = construction(part)
        if name in _NATIVE and told.get("k") is None:
            noise = Noise(_NATIVE[name], float(told["scale"]))
        elif stages:
            raise _no_chain()  # OpenDP's own steps before ours are no concern of a query
    return stages, noise


def _no_chain() -> ReleaseError:
    return ReleaseError(
        "OS702", "read", expected="a chain of row maps, one sketch and one noise, or a mechanism "
        "whose release can be asked", got="another measurement",
        hint="read each release of a composition by its own measurement.",
    )  # fmt: skip


def _claim_of(measurement: Any, d_in: Any) -> dict[str, Any]:
    """Return a measurement's claim at a distance for a header."""
    measure, loss = _MEASURES.get(measure_of(measurement)), measurement.map(d_in)
    if measure is None:
        return {}
    total = list(loss) if isinstance(loss, tuple) else [loss]
    claim = {"claim": [*total, 0.0][:2]} if measure in ("pure", "approx") else {}
    unit = unit_of_distance(measurement.input_metric, d_in)
    return {"measure": measure, "total": total, **claim, **({} if unit is None else {"unit": unit})}
