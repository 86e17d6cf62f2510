"""Kill a session at a random moment, reopen it, compare what left with what was charged."""

from __future__ import annotations

import os
import random
import select
import signal
import struct
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from opendp_sim.accounting.session.session import Session
from opendp_sim.accounting.session.store import SessionStore
from opendp_sim.core.pipeline import bind_steps
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.measurements.knn._impl.privacy_filter import UNITS
from opendp_sim.measurements.knn.ind_knn import IndKnn

GRID = GridRows(width=4, labels=(0, 1), unit=0.01, lower=(-100,), upper=(100,))
RECORDS = 300
_ANSWER = struct.Struct("<q2d")


def stages():
    setting = IndKnn(rho=0.5, queries=400, size=RECORDS, threshold=0.3, centre=False)
    return bind_steps(GRID, Symmetric(), [setting])


def data():
    rng = np.random.default_rng(11)
    values = np.rint(rng.normal(0, 40, (RECORDS, 4))).clip(-100, 100)
    return Rows(values, rng.integers(0, 2, RECORDS))


def opened(path: Path) -> Session:
    return Session(stages(), lambda: [data()], path)


@dataclass
class Round:
    answers: list[tuple[int, float, float]]
    """What left the process."""


def _serve(path: Path, out: int) -> None:
    """Answer one query after another; each answer leaves in one write."""
    queries = np.random.default_rng(os.getpid())
    with opened(path) as session:
        while True:
            answer = session.ask(np.rint(queries.normal(0, 40, (1, 4))))
            os.write(out, _ANSWER.pack(int(answer.counts[0]), *answer.votes[0]))


def one_round(path: Path, patience: tuple[float, float]) -> Round:
    """Start a process that answers, kill it, return what it said.

    ``patience``: how long to wait for its first answer, and how long after that.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            _serve(path, write)
        finally:
            os._exit(1)
    os.close(write)
    select.select([read], [], [], patience[0])  # until the first answer, or not so long
    time.sleep(patience[1])
    os.kill(child, signal.SIGKILL)
    said = b""
    while chunk := os.read(read, 65536):
        said += chunk
    os.close(read)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the process ended by itself"
    return Round(list(_ANSWER.iter_unpack(said[: len(said) // _ANSWER.size * _ANSWER.size])))


def check(path: Path, said: list[tuple[int, float, float]]) -> int:
    """Assert that all that was said is in the store, charged; return how many were charged in all."""
    session = opened(path)
    store: SessionStore = session._store
    kept = [
        (int(count), *map(float, votes))
        for kind, payload in store.entries()
        if kind == "answers"
        for count, votes in zip(payload["counts"], payload["votes"], strict=True)
    ]
    missing = [answer for answer in said if answer not in set(kept)]
    assert not missing, "an answer left without its charge"
    purses = store.purses()
    purses = session._service._purses.snapshot() if purses is None else purses
    assert np.array_equal(session._service._purses.snapshot(), purses)
    assert ((purses >= 0) & (purses <= UNITS)).all()
    session.close()
    return len(kept)


def kills(path: Path, rounds: int, seed: int) -> tuple[int, int]:
    """Return how many answers left and how many were charged over ``rounds`` kills."""
    pick, said = random.Random(seed), []  # noqa: S311 - when to kill
    charged = 0
    before = np.full(RECORDS, UNITS)
    for _ in range(rounds):
        early = pick.random() < 0.2  # during the opening, or before the first answer
        patience = (pick.uniform(0.0, 0.1), 0.0) if early else (5.0, pick.uniform(0.0, 0.05))
        said += one_round(path, patience).answers
        charged = check(path, said)
        with opened(path) as session:
            now = session._service._purses.snapshot()
        assert (now <= before).all(), "a purse was refilled"
        before = now
    assert charged >= len(said)
    return len(said), charged
