"""The language: a spec, or a Python program, to a typed plan, to OpenDP, to released answers.

``plan_file(path)`` checks and plans a spec without opening data; ``apply(plan)`` runs it;
``program(name)`` writes one in Python; ``verify(certificate)`` derives its numbers again.
Its modules are imported when a name of theirs is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opendp_sim.dsl.applied import Applied
    from opendp_sim.dsl.builder import Builder, program
    from opendp_sim.dsl.diagnostic import Diagnostic, Refused
    from opendp_sim.dsl.execute import apply
    from opendp_sim.dsl.ir import Program
    from opendp_sim.dsl.plan import Plan, plan_file, plan_of
    from opendp_sim.dsl.plan_document import load_plan, save_plan
    from opendp_sim.dsl.reader import draft_of, draft_of_file
    from opendp_sim.dsl.verification import verify

__all__ = [
    "Applied",
    "Builder",
    "Diagnostic",
    "Plan",
    "Program",
    "Refused",
    "apply",
    "draft_of",
    "draft_of_file",
    "load_plan",
    "plan_file",
    "plan_of",
    "program",
    "save_plan",
    "verify",
]

_WHERE = {
    "Applied": "applied",
    "Builder": "builder",
    "Diagnostic": "diagnostic",
    "Plan": "plan",
    "Program": "ir",
    "Refused": "diagnostic",
    "apply": "execute",
    "draft_of": "reader",
    "draft_of_file": "reader",
    "load_plan": "plan_document",
    "plan_file": "plan",
    "plan_of": "plan",
    "program": "builder",
    "save_plan": "plan_document",
    "verify": "verification",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"opendp_sim.dsl has no {name!r}; it offers {', '.join(__all__)}")
    globals()[name] = getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    return globals()[name]
