"""Read a spec, type, plan and run it through OpenDP.

A spec, or a Python program. ``plan_file(path)`` checks and plans a spec without opening data;
``apply(plan)`` runs it; ``program(name)`` writes one in Python; ``verify(certificate)`` derives its
numbers again. Its modules are imported when a name of theirs is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opendp_sim.core.system.lazy_import import door

if TYPE_CHECKING:
    from opendp_sim.dsl.builder import Builder, program
    from opendp_sim.dsl.grammar.program import Program
    from opendp_sim.dsl.grammar.reader import draft_of, draft_of_file
    from opendp_sim.dsl.plan.document import load_plan, save_plan
    from opendp_sim.dsl.plan.plan import Plan, plan_file, plan_of
    from opendp_sim.dsl.run.execute import apply
    from opendp_sim.dsl.run.records import Applied
    from opendp_sim.dsl.text.diagnostic import Diagnostic, Refused
    from opendp_sim.dsl.verification.verify import verify

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

__getattr__ = door(
    __name__,
    {
        "builder": "Builder program",
        "grammar.program": "Program",
        "grammar.reader": "draft_of draft_of_file",
        "plan.document": "load_plan save_plan",
        "plan.plan": "Plan plan_file plan_of",
        "run.execute": "apply",
        "run.records": "Applied",
        "text.diagnostic": "Diagnostic Refused",
        "verification.verify": "verify",
    },
)
