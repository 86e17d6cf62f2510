"""What an audit of a module leaves out is said, with the name to ask for."""

from __future__ import annotations

import sys
import types

from opendp_sim.audit.module_objects import left_out, makers


def test_a_function_that_is_not_named_like_a_factory_is_said() -> None:
    module = types.ModuleType("tests_left_out")
    exec(  # noqa: S102 - functions of a module that is made here
        "def count_half(): return 1\ndef _hidden(): return 1\ndef with_size(n): return n\n"
        "def make_count(): return 1\n",
        vars(module),
    )
    sys.modules[module.__name__] = module
    try:
        assert [name for name, _ in makers(module.__name__)] == ["make_count"]
        ((name, why),) = left_out(module.__name__)
    finally:
        del sys.modules[module.__name__]
    assert name == "count_half"
    assert "`tests_left_out:count_half`" in why
