"""Where functions keep values: cells, defaults, globals that they name, attributes of modules."""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

from opendp_sim.audit.kept_slots import Slot, cell_slot, defaults_slot, entry_slot
from opendp_sim.audit.kept_state import is_users
from opendp_sim.audit.libraries import harmless, is_library, reads_of
from opendp_sim.audit.public_sources import state_of
from opendp_sim.audit.public_values import Public, flat
from opendp_sim.audit.reachable import names_of

__all__ = ["BOUND", "HANDFUL", "Places"]

_HEAP, HANDFUL = 1 << 9, 4
BOUND = types.BuiltinFunctionType, types.MethodWrapperType


class Places:
    """Where values stand: what they are is for ``Followed``."""

    def __init__(self, functions: Iterable[types.FunctionType]) -> None:
        functions = list(functions)
        self.unknown = ""
        self.slots: list[Slot] = []
        self.seeded: list[Slot] = []
        self.loose: list[Callable[[], Any]] = []
        """States of generators that go on."""
        self.seen: dict[int, Any] = {}
        self._public = Public(functions)
        self._places: set[tuple[int, str]] = set()
        self._kinds: set[Any] = set()
        self._names: dict[str, None] = {}
        self._stored: dict[str, None] = {}
        self._modules: dict[int, types.ModuleType] = {}
        self._mixed = 0
        try:
            self._each(functions)
            self._attributes_of_modules()
        except Exception as error:  # noqa: BLE001 - whatever a user's class does when it is read
            self.unknown = self.unknown or f"it cannot be read ({type(error).__name__})"

    def _leave(self, why: str) -> None:
        self.unknown = self.unknown or why

    def _each(self, values: Iterable[Any]) -> None:
        for value in values:
            if self.unknown:
                return
            self._value(value)

    def _value(self, value: Any) -> None:
        """Follow a value."""
        raise NotImplementedError

    def _function(self, value: types.FunctionType) -> None:
        scope, code = value.__globals__, value.__code__
        self._each(vars(value).values())
        cells = value.__closure__ or ()
        for cell in cells:
            self._cell(cell)
        if harmless(scope.get("__name__")):
            return
        self._again(code, [part for cell in cells for part in cell_slot(cell).before])
        self._value(vars(value))
        self.slots.append(defaults_slot(value))
        self._each((value.__defaults__, value.__kwdefaults__))
        reads = reads_of(code)
        if reads.beyond:
            self._leave(f"code that uses `{reads.beyond}`")
        self._stored.update(dict.fromkeys(reads.stored))
        names = names_of(code)
        self._names.update(dict.fromkeys(names))
        for name in dict.fromkeys((*names, *reads.stored)):
            if name in scope or name in reads.stored:
                self._entry(scope, name)
            else:
                self._value(vars(builtins).get(name))
        for level, name in reads.imported:
            if level or not (name in sys.modules or harmless(name)):
                self._leave("a module that is not imported yet")
            self._value(sys.modules.get(name))
            self._value(sys.modules.get(name.split(".", maxsplit=1)[0]))

    def _entry(self, scope: dict[str, Any], name: str) -> None:
        if (id(scope), name) in self._places or self.unknown:
            return
        self._places.add((id(scope), name))
        self.slots.append(entry_slot(scope, name))
        self._each(self.slots[-1].before)

    def _cell(self, cell: types.CellType) -> None:
        if id(cell) not in self.seen:
            self.seen[id(cell)] = cell
            self.slots.append(cell_slot(cell))
            self._each(self.slots[-1].before)

    def _attributes_of_modules(self) -> None:
        """Follow what modules keep under names that the functions use, until nothing is new."""
        done = -1
        while done != len(self._places) and not self.unknown:
            done = len(self._places)
            for module in list(self._modules.values()):
                for name in list(self._names):
                    self._of_module(module, name)

    def _of_module(self, module: types.ModuleType, name: str) -> None:
        kept = vars(module)
        if (id(kept), name) in self._places or self.unknown:
            return
        if not harmless(module.__name__):
            if not is_library(module):
                self._public.take_module(module)
            if name in ("getattr", "setattr", "vars", "__dict__", "attrgetter"):
                self._leave("a module that is read by words")
            if name in kept or name in self._stored:
                self._entry(kept, name)
            return
        value = kept.get(name)
        if name in self._stored and (value is None or isinstance(value, (int, float, str))):
            self._entry(kept, name)  # a value that somebody put there
        self._places.add((id(kept), name))
        users = type(value).__flags__ & _HEAP and is_users(type(value))
        owner = getattr(value, "__self__", None) if type(value) in BOUND else None
        function = type(value) is types.FunctionType and not harmless(value.__module__)
        held = owner is not None and type(owner) is not types.ModuleType and state_of(owner) is None
        if users or function or held or type(value) is types.ModuleType:
            self._value(value)

    def _again(self, kind: Any, values: list[Any]) -> None:
        """Note what a further instance, or function, of one kind keeps."""
        if kind in self._kinds:
            self._mixed += sum(v is not None for v in flat(values))
            if self._mixed > 2 * HANDFUL:
                self._leave("many values of one kind")
        self._kinds.add(kind)
