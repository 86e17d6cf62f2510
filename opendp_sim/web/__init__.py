"""Guard and run the HTTP applications of both doors."""

from __future__ import annotations

from importlib import import_module

from opendp_sim.core.errors import DataError

__all__ = ["require_web"]


def require_web() -> None:
    """Refuse to go on without the extra ``studio`` (OS606).

    Nothing of it is imported before; the modules of this package import it when they are imported.
    """
    for name in ("starlette", "uvicorn"):
        try:
            import_module(name)
        except ImportError:
            raise DataError(
                "OS606", "web", expected=f"the package {name}", got="it is not installed",
                hint='pip install "opendp_sim[studio]".',
            ) from None  # fmt: skip
