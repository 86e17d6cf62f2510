"""The file of a release: a zip of .npy members and a JSON header, without pickle.

The digests find damage and careless edits. They are no signature: whoever can rewrite the file can
rewrite them.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.accounting.atomic_files import replacing
from opendp_sim.accounting.release_header import Header
from opendp_sim.accounting.strict_models import is_heavy, read_both
from opendp_sim.core.errors import ReleaseError, SimError
from opendp_sim.core.file_kinds import kind_of_file
from opendp_sim.core.memory import machine_memory
from opendp_sim.core.npy import array_of, header_of
from opendp_sim.core.randomness import fingerprint
from opendp_sim.core.regular import regular

__all__ = ["describe", "foreign", "read", "write"]

_HEADER, _DIGEST = "header.json", "header.sha256"
_LONGEST_HEADER = 2**26
_LARGE, _DENSEST = 2**28, 500
"""Above so many bytes a release is not packed more densely than this: noise does not compress."""


def write(
    path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> Path:
    """Write a release to ``path`` atomically."""
    target = Path(path)
    text = json.dumps(header, sort_keys=True).encode()
    with replacing(target) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in ((_HEADER, text), (_DIGEST, hashlib.sha256(text).hexdigest())):
            # Without the clock of its writing: how long a run took depends on the number of records.
            about = zipfile.ZipInfo(name)
            about.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(about, content)
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
    return target


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read header and arrays, refusing a truncated, tampered or foreign file (OS701)."""
    try:
        with zipfile.ZipFile(regular(path)) as archive:
            _check_sizes(archive, Path(path).stat().st_size)
            raw = archive.read(_HEADER)
            if is_heavy(raw):
                raise foreign()
            if hashlib.sha256(raw).hexdigest() != archive.read(_DIGEST).decode():
                raise foreign()
            _, header = read_both(Header, raw, lambda _: foreign())
            arrays = {}
            for name, about in header["arrays"].items():
                with archive.open(f"{name}.npy") as member:
                    _check_header(member, about, archive.getinfo(f"{name}.npy").file_size)
                with archive.open(f"{name}.npy") as member:
                    arrays[name] = array_of(member)
                if describe(arrays[name]) != about:
                    raise foreign()
    except ReleaseError:
        raise foreign(path) from None
    except SimError:
        raise
    except Exception:  # noqa: BLE001 - a damaged archive fails in many ways
        raise foreign(path) from None
    return header, arrays


def _check_sizes(archive: zipfile.ZipFile, packed: int) -> None:
    """Refuse, before anything is inflated, members that no release has: too long, or nothing but air.

    ``zipfile`` reads no more of a member than its directory says.
    """
    members = {each.filename: each.file_size for each in archive.infolist()}
    if len(members) != len(archive.infolist()):
        raise foreign()
    if members[_HEADER] > _LONGEST_HEADER or members[_DIGEST] > 2 * hashlib.sha256().digest_size:
        raise foreign()
    whole = sum(members.values())
    if whole > machine_memory() // 2 or (whole > _LARGE and whole > _DENSEST * packed):
        raise foreign()


def _check_header(member: IO[bytes], about: Mapping[str, Any], size: int) -> None:
    """Refuse an array whose own header is not what the release's header says of it, or of objects."""
    _, shape, _, dtype = header_of(member)
    plain = dtype.kind in "biuf" and [list(shape), dtype.str] == [about["shape"], about["dtype"]]
    if not plain or member.tell() + dtype.itemsize * math.prod(shape) != size:
        raise foreign()


def foreign(path: str | os.PathLike[str] | None = None) -> ReleaseError:
    """Return the refusal of what is no release: of a file, it says what that is instead."""
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


def describe(array: NDArray[Any]) -> dict[str, Any]:
    """Return what a header says of an array."""
    return {"sha256": fingerprint([array]), "shape": list(array.shape), "dtype": array.dtype.str}
