"""Whether a calculation may stand alone: nothing that a run meets draws beside its tape, or keeps state.

Equal tapes that gave equal outputs do not show a coin of one in a thousand, and a claim may rest on it.
So before a calculated verdict stands without draws, all that the function can meet is followed and must
be of known kinds (``purity.py``), runs must leave it as it was, and the functions in C that they
call are read off the interpreter besides: those of a module that may draw speak against it.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.tape import TapeEndError
from opendp_sim.audit.trace.context import Tracer
from opendp_sim.audit.trace.purity import World, roots_of

_QUIET = {
    "_bisect",
    "_collections",
    "_csv",
    "_decimal",
    "_functools",
    "_heapq",
    "_json",
    "_operator",
    "_pickle",
    "_signal",
    "_sre",
    "_statistics",
    "_string",
    "_struct",
    "_thread",
    "_weakref",
    "array",
    "binascii",
    "builtins",
    "cmath",
    "collections",
    "copy",
    "decimal",
    "fractions",
    "functools",
    "itertools",
    "math",
    "numpy",
    "operator",
    "re",
    "statistics",
    "string",
    "struct",
    "types",
    "typing",
    "unicodedata",
    "zlib",
    "_abc",
    "abc",
    "_hashlib",
    "_blake2",
    "_md5",
    "_sha1",
    "_sha2",
    "_sha3",
    "_queue",
    "_sha256",
    "_sha512",
    "_contextvars",
    "scipy",
    "sys",
}
"""Modules in C that draw nothing."""
_NOISY = ("numpy.random", "scipy.stats", "scipy.linalg.interpolative")
_OURS = "/opendp_sim/audit/", "/opendp/"
_MAKER = "/opendp_sim/audit/instrument/rng_proxies.py"
_TAPES = 6


def stands_alone(tracer: Tracer, pair: Pair) -> bool:
    """Say whether no run on either side can meet what may draw beside the tape."""
    world = World()
    outer = tracer.tape.outer
    if outer is not None and getattr(tracer.subject.run, "raw", tracer.subject.run) is not outer:
        return False  # a driver asks it, and what that meets is not followed
    roots = [tracer.function] if outer is None else roots_of(outer)
    roots = roots if tracer.apart is None else tracer.apart
    if not world.take([*roots, pair.left, pair.right]):
        return False
    before, known = world.state(), set[str]()
    for data in (pair.left, pair.right):
        for _ in range(_TAPES):
            met = _called(tracer, data)
            if met is None or known & met:  # met once may be a finalizer's, of anything
                return False
            known |= met
    return world.state() == before


def _called(tracer: Tracer, data: Any) -> set[str] | None:
    """Return the modules that may draw of the functions in C that a forced run calls."""
    met: set[str] = set()

    def look(frame: Any, event: str, called: Any) -> None:
        if event != "c_call":
            return
        name = _module(called)
        if not _quiet(name) and not _ours(frame):
            met.add(name)

    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()  # what is collected meanwhile has finalizers, which are no part of the run
    try:
        _, draws = tracer.tape.run(tracer.function, data, "record")
        if not World().take([draw.value for draw in draws]):
            return None
        sys.setprofile(look)
        tracer.tape.run(tracer.function, data, "force", [draw.value for draw in draws])
    except TapeEndError:
        return None
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
    return met


def _ours(frame: Any) -> bool:
    """Say whether the call is the tape's or OpenDP's own, or makes a generator that is on the tape."""
    file = _file(frame)
    if any(part in file for part in _OURS):
        return True
    while frame is not None:
        if _file(frame).endswith(_MAKER):
            return True
        frame = frame.f_back
    return False


def _file(frame: Any) -> str:
    return str(frame.f_code.co_filename).replace("\\", "/")


def _module(called: Any) -> str:
    name = getattr(called, "__module__", None)
    return name if isinstance(name, str) else type(getattr(called, "__self__", None)).__module__


def _quiet(name: str) -> bool:
    return name.split(".", maxsplit=1)[0] in _QUIET and not name.startswith(_NOISY)
