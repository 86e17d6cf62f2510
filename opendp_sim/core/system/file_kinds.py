"""Identify a file named in place of another kind.

Says what can be done with it. Only the path, the first bytes and names of members and keys are looked
at: a file that is named by mistake may be private, and no message quotes any of it.
"""

from __future__ import annotations

import re
import shlex
import zipfile
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from opendp_sim.core.system.regular_files import decode_text, is_odd

_HEAD, _DOCUMENT = 4096, 2**20
"""Bytes that are looked at; and further ones of JSON."""
_ENTRIES = 1000
"""Files of a folder that are compared with a name that is not there."""
_TABLES = {
    ".csv": "CSV",
    ".tsv": "TSV",
    ".jsonl": "JSON lines",
    ".ndjson": "JSON lines",
    ".parquet": "Parquet",
    ".arrow": "Arrow",
    ".feather": "Arrow",
    ".npy": "NumPy",
    ".npz": "NumPy",
}
_CERTIFICATE = ".certificate.json"
_SPEC = re.compile(r"^[\"']?spec[\"']?\s*:\s*[\"']?opendp_sim/", re.MULTILINE)
_FORMAT = re.compile(r'"format"\s*:\s*"opendp_sim/(certificate|plan)/')
_AUDIT = re.compile(r'\A\s*\{\s*"audits"\s*:')


@dataclass(frozen=True)
class FileKind:
    """What is at a path.

    Attributes:
        name: one word for it.
        said: what it is, as a message says it.
        then: what can be done with it, in a sentence; empty where there is nothing.
    """

    name: str
    said: str
    then: str = ""

    def instead_of(self, wanted: str) -> str:
        """Return the words for this kind of file instead of ``wanted``."""
        if self.name != wanted:
            return self.said
        return f"{self.said}, but damaged, or changed by another program (line ends, encoding)"


def kind_of_file(path: str | Path) -> FileKind:
    """Return the kind of file at a path, without quoting it."""
    file = Path(path)
    try:
        if is_odd(file):
            return FileKind("odd", "a pipe or a device, which cannot be read twice")
        if file.is_dir():
            return FileKind("folder", "a folder", "name a file in it")
        with file.open("rb") as stream:
            head = stream.read(_HEAD)
            if head.lstrip().startswith(b"{"):  # what it is for stands somewhere in it
                head += stream.read(_DOCUMENT)
    except FileNotFoundError:
        return FileKind("missing", "no such file", _near(file))
    except (OSError, ValueError):
        return FileKind("unreadable", "a file that cannot be read", "look at its permissions")
    if not head:
        return FileKind("empty", "an empty file", "write it again, or name another one")
    return _of_bytes(file, head)


def _of_bytes(file: Path, head: bytes) -> FileKind:
    if head.startswith(b"SQLite format 3"):
        return _database(file)
    if head.startswith(b"PK"):
        return _archive(file)
    if file.suffix in _TABLES:
        return _table(file)
    cut = 4 if len(head) >= _HEAD else 1  # a character may have been cut
    texts = (decode_text(head[: len(head) - off]) for off in range(cut))
    text = next((text for text in texts if text is not None), None)
    if text is None:
        return FileKind("bytes", "a file of another kind, which is no text")
    found = _FORMAT.search(text)
    if found is not None or file.name.endswith(_CERTIFICATE):
        return _document(file, "certificate" if found is None else found[1])
    if _AUDIT.match(text):
        return FileKind(
            "audit",
            "the result of an audit",
            f"`opendp-sim report {_typed(file)}` makes a page of it",
        )
    if _SPEC.search(text):
        return FileKind("spec", "a spec", f"`opendp-sim plan {_typed(file)}` says what it would do")
    if file.suffix == ".json":
        return FileKind("json", "a JSON file", _beside(file))
    return FileKind("text", "a text of another kind")


def _document(file: Path, name: str) -> FileKind:
    if name == "plan":
        return FileKind(
            "plan", "a plan, as `plan -o` writes it", f"`opendp-sim apply {_typed(file)}` runs it"
        )
    then = (
        f"`opendp-sim verify {_typed(file)}` checks it, and `opendp-sim report {_typed(file)}` makes a "
        "page of it"
    )
    return FileKind("certificate", "a certificate", then)


def _database(file: Path) -> FileKind:
    if file.suffix == ".ledger":
        return FileKind("ledger", "a ledger", f"`opendp-sim ledger show {_typed(file)}` prints it")
    if file.suffix == ".session":
        then = f"`opendp-sim report {_typed(file)}` makes a page of it"
        return FileKind("store", "a session's store", then)
    return FileKind("database", "a database")


def _archive(file: Path) -> FileKind:
    """Distinguish a release, which has a header, from other archives."""
    try:
        with zipfile.ZipFile(file) as archive:
            released = "header.json" in archive.namelist()
    except (
        OSError,
        ValueError,
        zipfile.BadZipFile,
        NotImplementedError,
    ):  # the last: a later format
        return FileKind("archive", "a damaged archive", "copy it again from where it was made")
    if released:
        then = f"`opendp-sim answer {_typed(file)} --post ...` asks it a question"
        more = _beside(file)
        return FileKind("release", "a saved release", f"{then}; {more}" if more else then)
    return _table(file)


def _table(file: Path) -> FileKind:
    """Return the kind of a table of records or answers."""
    kind = _TABLES.get(file.suffix)
    said = "an archive of another kind" if kind is None else f"a table of values ({kind})"
    belongs = "" if kind is None else "a table of records is named inside a spec, under `source`"
    return FileKind("table", said, _beside(file) or belongs)


def _beside(file: Path) -> str:
    """Say what its certificate is for, where there is one."""
    certificate = file.with_name(f"{file.name}{_CERTIFICATE}")
    if not certificate.is_file():
        return ""
    return f"`opendp-sim report {_typed(certificate)}` makes a page about it"


def _typed(file: Path) -> str:
    return shlex.quote(str(file))


def _near(file: Path) -> str:
    """Return a file of the same folder with a similar name."""
    from difflib import get_close_matches  # noqa: PLC0415 - for a mistake only

    if not file.parent.is_dir():
        return "its folder is not there either"
    try:
        names = [entry.name for entry in islice(file.parent.iterdir(), _ENTRIES)]
    except OSError:
        return ""
    near = get_close_matches(file.name, names, n=1, cutoff=0.75)
    return f"`{file.with_name(near[0])}` is there" if near else ""
