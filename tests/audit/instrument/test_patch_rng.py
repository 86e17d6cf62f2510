"""A fork that is made while another thread audits has no tape, and no lock that nobody will let go of."""

from __future__ import annotations

import os
import random
import secrets
import signal
import threading

import numpy as np
import pytest

from opendp_sim.audit.instrument.patch_rng import tapped
from opendp_sim.audit.instrument.tape import Tape

SOURCES = (
    (os, "urandom"),
    (secrets, "token_bytes"),
    (random, "random"),
    (np.random, "default_rng"),
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_beside_an_audit_draws_its_own_noise_and_can_audit():
    """It waited for ever at its own first audit; what it drew before came from the tape."""
    real = [getattr(place, name) for place, name in SOURCES]
    inside, go_on = threading.Event(), threading.Event()

    def audit():
        with tapped(Tape(None, np.random.Generator(np.random.PCG64(0))), []):
            inside.set()
            assert go_on.wait(60)

    thread = threading.Thread(target=audit)
    thread.start()
    assert inside.wait(60)
    assert os.urandom is not real[0]
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(120)
            own = [getattr(place, name) for place, name in SOURCES] == real
            with tapped(Tape(None, np.random.Generator(np.random.PCG64(0))), []):
                taped = os.urandom is not real[0]
            code = 0 if own and taped and os.urandom is real[0] else 2
        finally:
            os._exit(code)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert os.urandom is not real[0]  # the parent's audit goes on
    go_on.set()
    thread.join()
    assert ended == 0
    assert [getattr(place, name) for place, name in SOURCES] == real
