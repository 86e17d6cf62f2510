"""The language: a spec, or a Python program, to a typed plan, to OpenDP, to released answers.

``plan_file(path)`` checks and plans a spec without opening data; ``apply(plan)`` runs it;
``program(name)`` writes one in Python; ``verify(certificate)`` derives its numbers again.
"""

from __future__ import annotations

from opendp_sim.dsl.builder import Builder, program
from opendp_sim.dsl.certify import verify
from opendp_sim.dsl.diagnostic import Diagnostic, Refused
from opendp_sim.dsl.execute import Applied, apply
from opendp_sim.dsl.ir import Program
from opendp_sim.dsl.plan import Plan, plan_file, plan_of
from opendp_sim.dsl.plan_document import load_plan, save_plan
from opendp_sim.dsl.reader import draft_of, draft_of_file

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
