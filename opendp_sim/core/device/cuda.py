"""Offer a device's operations by CuPy on an NVIDIA card (extra ``gpu``).

Products are cuBLAS's, elementwise functions CuPy's, and the two counting loops kernels that NVRTC
compiles. Nothing of it is assumed to be exact: ``proof.py`` compares it with the CPU before first use.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cached_property
from importlib import import_module
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.device.device import Cells, Device, OnDevice, device_error

_ROOM, _SHARE = 2**31, 8
"""Bytes of products at a time: 2 GiB, or an eighth of what is free."""
_THREADS = 256
_SHARED = 48 * 1024
"""Bytes of a block's own counters that every card offers."""
_SLICES = 64
"""Blocks that share a repetition, at most."""
_ROWS = 8192
"""Rows that a block counts, at least."""

OPTIONS = ("--std=c++14", "--fmad=false")
KERNELS = r"""
typedef unsigned long long u64;
#define MAGIC 6755399441055744.0 /* 1.5 * 2**52 */

/* Two roundings, never fused: the first sum is exact, the second rounds to the nearest integer. */
__device__ __forceinline__ u64 floor_of(double phase, double offset, double magic, u64 mask)
{
    return (u64)__double_as_longlong(__dadd_rn(__dadd_rn(phase, offset), magic)) & mask;
}

extern "C" __global__ void count_cells(
    const double* phases, const double* offsets, long long n, int joined, u64 mask,
    const long long* base, const u64* factors, const u64* addends, u64 buckets,
    const long long* labels, long long classes, long long width, int own, u64* out, u64* outside)
{
    extern __shared__ unsigned int counters[];
    const long long r = blockIdx.x, cells = classes * width;
    if (own) {
        for (long long i = threadIdx.x; i < cells; i += blockDim.x) counters[i] = 0;
        __syncthreads();
    }
    u64 foreign = 0;
    const long long stride = (long long)gridDim.y * blockDim.x;
    for (long long i = (long long)blockIdx.y * blockDim.x + threadIdx.x; i < n; i += stride) {
        u64 place = 0, mixed = 0;
        for (int j = 0; j < joined; j++) {
            const long long c = r * joined + j;
            const u64 id = floor_of(phases[c * n + i], offsets[c], MAGIC, mask);
            if (base) place |= (u64)((long long)id >= base[c]) << j;
            else if (buckets) mixed += (id & 0xffffffffULL) * factors[c];
            else place = id;
        }
        if (buckets) {
            if (base) mixed = (place & 0xffffffffULL) * factors[r];
            place = ((mixed + addends[r]) >> 32) * buckets >> 32;
        }
        const u64 label = labels ? (u64)labels[i] : 0;
        if (place < (u64)width && label < (u64)classes) {
            const long long at = (long long)label * width + (long long)place;
            if (own) atomicAdd(&counters[at], 1u);
            else atomicAdd(&out[r * cells + at], 1ULL);
        } else foreign++;
    }
    if (foreign) atomicAdd(outside, foreign);
    if (own) {
        __syncthreads();
        for (long long i = threadIdx.x; i < cells; i += blockDim.x)
            if (counters[i]) atomicAdd(&out[r * cells + i], (u64)counters[i]);
    }
}

extern "C" __global__ void add_pairs(
    const double* phases, const double* offsets, const double* magics, long long n, u64 mask,
    const longlong2* table, u64* out)
{
    __shared__ u64 sums[2];
    if (threadIdx.x < 2) sums[threadIdx.x] = 0;
    __syncthreads();
    const long long c = blockIdx.x, stride = (long long)gridDim.y * blockDim.x;
    u64 first = 0, second = 0; /* modulo 2**64, as two's complement adds */
    for (long long i = (long long)blockIdx.y * blockDim.x + threadIdx.x; i < n; i += stride) {
        const longlong2 pair = table[floor_of(phases[c * n + i], offsets[c], magics[c], mask)];
        first += (u64)pair.x;
        second += (u64)pair.y;
    }
    atomicAdd(&sums[0], first);
    atomicAdd(&sums[1], second);
    __syncthreads();
    if (threadIdx.x < 2) atomicAdd(&out[2 * c + threadIdx.x], sums[threadIdx.x]);
}
"""
"""CUDA C++ of the two loops. ``count_cells`` keeps counters in shared memory where they fit."""


class CudaDevice(Device):
    """Compute on one NVIDIA card, by CUDA's ``number`` of it.

    Raises:
        Exception: CuPy is not installed, or finds no card.
    """

    def __init__(self, number: int = 0) -> None:
        super().__init__()
        self._cupy = self.xp = import_module("cupy")
        self._cuda, self._runtime = self._cupy.cuda, self._cupy.cuda.runtime
        self._cublas = import_module("cupy_backends.cuda.libs.cublas")
        self._number, self._process = number, os.getpid()
        self._pool = self._cuda.MemoryPool(_overwritten(self._cupy))
        self._pinned = self._cuda.PinnedMemoryPool()
        self._inside: list[ExitStack] = []
        with self._cuda.Device(number):
            free, _ = self._runtime.memGetInfo()
            found = self._runtime.getDeviceProperties(number)["name"]
        self.name = f"cuda:{number} {found.decode() if isinstance(found, bytes) else found}"
        self.room = min(_ROOM, free // _SHARE)

    # --- use --------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Let this thread in with the device's memory pool, except forks (OS904)."""
        if os.getpid() != self._process:
            raise device_error("a call from a fork, in which CUDA does not run")
        super().__enter__()
        with ExitStack() as stack:
            stack.callback(super().__exit__, None, None, None)
            stack.enter_context(self._cuda.Device(self._number))
            stack.enter_context(self._cuda.using_allocator(self._pool.malloc))
            self._inside.append(stack.pop_all())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let the next thread in, or raise MemoryError of the card."""
        self._inside.pop().close()
        failed = isinstance(error, self._runtime.CUDARuntimeError | self._cublas.CUBLASError)
        full = failed and any(word in str(error) for word in _FULL)
        del error, kind, trace
        if full:
            raise MemoryError from None

    def staged(self, array: NDArray[Any]) -> NDArray[Any]:
        """Copy an array to pinned memory of the host.

        Threads copy side by side, and one at a time is on the card.
        """
        if array.nbytes < _STAGED or os.getpid() != self._process:
            return array
        try:
            with self._cuda.Device(self._number):
                held = self._pinned.malloc(array.nbytes)
        except self._runtime.CUDARuntimeError:  # the host has no more of it
            return array
        out: NDArray[Any] = np.frombuffer(held, array.dtype, array.size).reshape(array.shape)
        np.copyto(out, array)
        return out

    def put(self, array: NDArray[Any]) -> OnDevice:
        """Copy an array, without the pinned buffers of CuPy's own pool.

        The copy is over when it returns: pinned memory is another block's as soon as it is let go.
        """
        source = np.ascontiguousarray(array)
        out = self._cupy.empty(source.shape, dtype=source.dtype)
        if source.size:
            out.set(source)
            self._cuda.get_current_stream().synchronize()
        return out

    def get(self, values: OnDevice) -> NDArray[Any]:
        """Copy an array back, after all that was asked of the card."""
        out: NDArray[Any] = np.empty(values.shape, dtype=values.dtype)
        if out.size:
            self._cupy.ascontiguousarray(values).get(out=out)
        return out

    def clear(self) -> None:
        """Overwrite free memory with zeros, and give it back."""
        if os.getpid() == self._process:
            with self:
                self._pool.free_all_blocks()
                self._pinned.free_all_blocks()

    # --- products ---------------------------------------------------------------------------------

    def products(self, left: OnDevice, right: OnDevice) -> OnDevice:
        """Return all inner products of rows, by cuBLAS."""
        if left.dtype != np.float16:
            return self._cupy.dot(left, right.T)
        out = self._cupy.zeros((len(left), len(right)), dtype=np.float32)
        if out.size and left.shape[1]:
            self._half_products(
                self._cupy.ascontiguousarray(left), self._cupy.ascontiguousarray(right), out
            )
        return out

    def _half_products(self, left: OnDevice, right: OnDevice, out: OnDevice) -> None:
        """Multiply float16 rows with float32 sums, which CuPy's product does not."""
        (m, d), n = left.shape, len(right)
        one, zero = np.array(1.0, np.float32), np.array(0.0, np.float32)
        half, single = self._runtime.CUDA_R_16F, self._runtime.CUDA_R_32F
        kind = self._cublas.CUBLAS_COMPUTE_32F, self._cublas.CUBLAS_GEMM_DEFAULT
        turned, plain = self._cublas.CUBLAS_OP_T, self._cublas.CUBLAS_OP_N
        handle = self._cuda.device.get_cublas_handle()
        # BLAS counts by columns: what is (m, n) by rows here is (n, m) there.
        sides = (right.data.ptr, half, d, left.data.ptr, half, d)
        ends = (zero.ctypes.data, out.data.ptr, single, n)
        self._cublas.gemmEx(handle, turned, plain, n, m, d, one.ctypes.data, *sides, *ends, *kind)

    # --- counting ---------------------------------------------------------------------------------

    @cached_property
    def _kernels(self) -> Any:
        return self._cupy.RawModule(code=KERNELS, options=OPTIONS)

    def _launch(self, name: str, columns: int, rows: int, shared: int, *args: Any) -> None:
        slices = max(1, min(_SLICES, rows // _ROWS))
        kernel: Callable[..., None] = self._kernels.get_function(name)
        kernel((columns, slices), (_THREADS,), args, shared_mem=shared)

    def add_counts(
        self,
        phases: OnDevice,
        offsets: OnDevice,
        cells: Cells,
        labels: OnDevice | None,
        out: OnDevice,
    ) -> int:
        """Count by a kernel, in shared memory where the counters fit."""
        nothing = np.uint64(0)
        base = nothing if cells.base is None else self.put(cells.base)
        factors, addends, buckets = nothing, nothing, 0
        if cells.rehash is not None:
            factors, addends = self.put(cells.rehash.multipliers), self.put(cells.rehash.addends)
            buckets = cells.rehash.buckets
        outside, rows = self._cupy.zeros(1, dtype=np.uint64), phases.shape[1]
        classes, width = out.shape[1:]
        own = 4 * classes * width <= _SHARED
        self._launch(
            "count_cells",
            cells.repetitions,
            rows,
            4 * classes * width if own else 0,
            phases,
            offsets,
            np.int64(rows),
            np.int32(cells.joined),
            np.uint64(cells.modulus - 1),
            base,
            factors,
            addends,
            np.uint64(buckets),
            nothing if labels is None else labels,
            np.int64(classes),
            np.int64(width),
            np.int32(own),
            out,
            outside,
        )
        return int(self.get(outside)[0])

    def add_pairs(
        self, phases: OnDevice, offsets: OnDevice, starts: OnDevice, table: OnDevice, out: OnDevice
    ) -> None:
        """Sum pairs by a kernel."""
        magics = starts.astype(np.float64) + 1.5 * 2.0**52  # integers below 2**53: exact
        rows = phases.shape[1]
        self._launch(
            "add_pairs",
            len(phases),
            rows,
            0,
            phases,
            offsets,
            magics,
            np.int64(rows),
            np.uint64(len(table) - 1),
            table,
            out,
        )


_STAGED = 2**18
"""Bytes from which an array goes through pinned memory."""
_FULL = ("cudaErrorMemoryAllocation", "ALLOC_FAILED", "NOT_INITIALIZED")
"""What CUDA and cuBLAS call a card without room."""


def _overwritten(cupy: Any) -> Callable[[int], Any]:
    """Return an allocator whose memory is zeroed before it is given back."""

    class Overwritten(cupy.cuda.Memory):  # type: ignore[misc]
        def __del__(self) -> None:
            if self.ptr:
                with suppress(
                    Exception
                ):  # at the interpreter's end CUDA may be gone, and all of it
                    cupy.cuda.runtime.memset(self.ptr, 0, self.size)

    return lambda size: cupy.cuda.MemoryPointer(Overwritten(size), 0)
