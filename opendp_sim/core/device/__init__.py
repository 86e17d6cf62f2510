"""Compute exact sums on a device, with the CPU's bits."""

from opendp_sim.core.device.choose import device_in_use, device_named, using_device
from opendp_sim.core.device.device import Cells, Device, DeviceError

__all__ = ["Cells", "Device", "DeviceError", "device_in_use", "device_named", "using_device"]
