"""Choose the device of a run, prove it, and clear it."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Lock

from opendp_sim.core.device.device import Device
from opendp_sim.core.device.proof import prove
from opendp_sim.core.errors import ParameterError

_IN_USE: ContextVar[Device | None] = ContextVar("device", default=None)
_FOUND: dict[int, Device] = {}
_LOCK = Lock()


def device_in_use() -> Device | None:
    """Return the device of this context; None for the CPU."""
    return _IN_USE.get()


@contextmanager
def using_device(device: str | Device | None) -> Iterator[Device | None]:
    """Use a device for sums inside, with the same bits.

    Its memory is overwritten at the end, but for what is still in use. It holds for the calling thread
    and for the workers that sum up for it.

    Args:
        device: ``cuda``, ``cuda:1``, ..., or an object of a backend; ``cpu`` for none; None for what is
            in use outside.

    Raises:
        ParameterError (OS101): another word. (OS104): there is no such device, or its package is missing.
        DeviceError (OS904): it gave other bits than the CPU.
    """
    if device is None:
        yield _IN_USE.get()
        return
    found = device_named(device)
    before = _IN_USE.set(found)
    try:
        yield found
    finally:
        _IN_USE.reset(before)
        if found is not None:
            with suppress(Exception):  # of a card that failed; the run's own end matters more
                found.clear()


def device_named(device: str | Device | None) -> Device | None:
    """Return a device that was proved, or None for the CPU.

    The words are those of ``using_device``.
    """
    if device is None or (isinstance(device, str) and device == "cpu"):
        return None
    with _LOCK:
        found = device if isinstance(device, Device) else _card(device)
        if not found.proved:
            prove(found)
        return found


def _card(name: object) -> Device:
    """Return a card by its name, found once a process."""
    kind, _, place = name.partition(":") if isinstance(name, str) else ("", "", "")
    if kind != "cuda" or not (place or "0").isdecimal() or len(place) > 3:
        raise ParameterError(
            "OS101", "device", expected="cpu, cuda, or cuda: and a number, such as cuda:1",
            got=name if isinstance(name, str) else type(name).__name__,
            hint="leave it out for the CPU: any device gives the same bits.",
        )  # fmt: skip
    number = int(place or "0")
    if number not in _FOUND:
        try:
            from opendp_sim.core.device.cuda import CudaDevice  # noqa: PLC0415 - for its users

            _FOUND[number] = CudaDevice(number)
        except ModuleNotFoundError:
            problem, hint = "no CuPy", 'pip install "opendp_sim[gpu]", or leave `device` out.'
        except Exception as error:  # noqa: BLE001 - of CUDA, about the machine alone
            problem = f"CuPy that finds none ({type(error).__name__})"
            hint = "see `nvidia-smi`; or leave `device` out."
        else:
            return _FOUND[number]
        raise ParameterError(
            "OS104", "device", expected=f"an NVIDIA card number {number}", got=problem, hint=hint
        )
    return _FOUND[number]


@atexit.register
def _clear_all() -> None:
    """Overwrite the devices' memory at the end of the process."""
    for device in _FOUND.values():
        with suppress(Exception):
            device.clear()
