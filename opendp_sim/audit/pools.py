"""Noise drawn ahead: many values of a law at once, for runs that take them one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from opendp_sim.audit.laws import Law
from opendp_sim.audit.noise_tables import NoiseTable
from opendp_sim.core import dp

__all__ = ["Pools"]

_BULK = 4096


@dataclass
class Pools:
    """Noise drawn ahead: by numpy (``scout``), by a table or OpenDP's vector constructor (``bulk``)."""

    rng: np.random.Generator
    pools: dict[Any, list[Any]] = field(default_factory=dict)
    makers: dict[Any, Any] = field(default_factory=dict)
    sizes: dict[Any, int] = field(default_factory=dict)
    tables: dict[Any, NoiseTable] = field(default_factory=dict)

    def whole(self, law: Law, count: int, *, bulk: bool) -> list[Any]:
        """Return whole noise values of a law."""
        pool = self.pool(law, bulk=bulk)
        if len(pool) < count:
            self.fill(law, count, bulk=bulk)
        out = pool[-count:] if count else []
        del pool[len(pool) - count :]
        return out

    def pool(self, law: Law, *, bulk: bool) -> list[Any]:
        """Return what is left of whole noise that was drawn ahead; it stays the same list."""
        return self.pools.setdefault((law.family, law.scale, bulk), [])

    def fill(self, law: Law, count: int, *, bulk: bool) -> None:
        """Draw more than so many values ahead."""
        many = count + (_BULK if bulk else 5 * _BULK)
        new = self._bulk(law, many) if bulk else law.scout(many, self.rng)
        self.pool(law, bulk=bulk).extend(new)

    def _bulk(self, law: Law, many: int) -> list[Any]:
        if not NoiseTable.fits(law):
            return list(self._maker(law)([0] * many))
        key = law.family, law.scale
        if key not in self.tables:
            self.tables[key] = NoiseTable(law)
        return self.tables[key].draw(many)

    def at(self, law: Law, argument: float) -> float:
        """Return float noise at an argument, drawn by OpenDP's vector constructor there."""
        key = law.family, law.scale, argument
        pool = self.pools.setdefault(key, [])
        if not pool:
            many = self.sizes[key] = min(2 * self.sizes.get(key, 8), 2000)
            pool.extend(self._maker(law)([argument] * many))
        return float(pool.pop())

    def _maker(self, law: Law) -> Any:
        key, carrier = (law.family, law.scale, law.carrier), law.carrier
        if key not in self.makers:
            atom = dp.atom_domain(T=carrier) if law.whole else dp.atom_domain(T=carrier, nan=False)
            domain = dp.vector_domain(atom)
            if law.family == "laplace":
                self.makers[key] = dp.m.make_laplace(domain, dp.l1_distance(T=carrier), law.scale)
            else:
                metric = dp.l2_distance(T="f64" if law.whole else carrier)
                self.makers[key] = dp.m.make_gaussian(domain, metric, law.scale)
        return self.makers[key]
