"""Draw a plan as a tree from data to answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from opendp_sim.accounting.composition import loss_text
from opendp_sim.core.arithmetic.rounding import up_text
from opendp_sim.core.mechanism import Mechanism
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.plan.release_plan import ReleasePlan

_COLUMN = 28


@dataclass
class _Node:
    """A stage, what is said of it, and what comes after it."""

    name: str
    said: str
    mark: str = "─"
    record: Mechanism | None = None
    after: list[_Node] = field(default_factory=list)

    def then(self, node: _Node) -> _Node:
        """Return the same stage if it follows already, else add it."""
        for known in self.after:
            if (known.name, known.said, known.record) == (node.name, node.said, node.record):
                return known
        self.after.append(node)
        return node


def tree(plan: Plan) -> Iterator[str]:
    """Yield one line a stage, with the protected unit's largest change."""
    roots = _Node("", "")
    for name, release in plan.releases.items():
        _grow(roots, plan, name, release)
    for root in roots.after:
        yield _line(root.name, root.said)
        yield from _below(root, "")


def _grow(roots: _Node, plan: Plan, name: str, release: ReleasePlan) -> None:
    bounds = dict(release.maps)
    at = roots.then(_Node(release.typed.entry.name, ""))
    for stage in release.typed.stages:
        key = stage.mechanism.key
        said = f"changes by at most {_bound(bounds[key])}" if key in bounds else ""
        at = at.then(_Node(key, said, record=stage.mechanism))
    if release.record is not None and plan.privacy is not None:
        cost = loss_text(plan.privacy.measure, tuple(release.loss))
        at.after.append(_Node(release.record.key, f"noise; costs {cost}", "═"))
        at = at.after[-1]  # two releases are two, however alike
    answered = [o.decl.name for o in plan.outputs.values() if o.stage.name == name]
    at.after += [_Node(found, "costs nothing more") for found in answered or [name]]


def _below(node: _Node, margin: str) -> Iterator[str]:
    """Yield the lines below a node."""
    for at, after in enumerate(node.after):
        goes_on = len(node.after) == 1 and len(after.after) == 1  # the next stage is in this column
        ends = at == len(node.after) - 1 and not goes_on
        yield _line(f"{margin}{'└' if ends else '├'}{after.mark} {after.name}", after.said)
        yield from _below(after, margin if goes_on else margin + ("   " if ends else "│  "))


def _bound(value: float) -> str:
    """Return three digits that are not below the bound."""
    text = up_text(value, 3)
    return f"{float(text):,.0f}" if 1000 <= value < 1e12 else text


def _line(name: str, said: str) -> str:
    return f"{name:<{_COLUMN}} {said}".rstrip()
