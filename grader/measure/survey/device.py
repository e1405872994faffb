"""Buffers, launches and clocks of the GPU; the only module of the survey that needs CUDA."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from grader.measure.bench.rounds import CudaClock
from grader.measure.survey.kernels import BLOCK, copy_kernel, empty_kernel, read_kernel
from grader.measure.survey.measure import Work
from grader.measure.survey.products import SEED, Product, product
from grader.measure.survey.record import Attributes
from grader.system.gpu import ClockReader

PROGRAMS = 4  # for each multiprocessor, of 256 threads each: on every GPU they are all resident at once
BLOCK_BYTES = 4 * BLOCK


class CudaDevice:
    """CUDA's current device."""

    def __init__(self, attributes: Attributes):
        self.capability, self.l2_bytes = attributes.capability, attributes.l2_bytes
        self._programs = PROGRAMS * attributes.multiprocessors
        self._clock = CudaClock()
        self.time_us, self.graph = self._clock.time_us, self._clock.graph
        self.clock_reader = ClockReader
        self.synchronize = torch.cuda.synchronize
        self._partial = torch.zeros(self._programs, dtype=torch.int32, device="cuda")
        self._source = self._target = None

    def free_bytes(self) -> int:
        """Return the bytes of free memory, after PyTorch's caching allocator has released its own."""
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info()[0]

    def hold(self, largest: int) -> None:
        """Allocate buffers for working sets up to `largest` bytes: random int32, and the target of a copy."""
        generator = torch.Generator("cuda").manual_seed(SEED)
        self._source = torch.empty(largest // 4, dtype=torch.int32, device="cuda").random_(
            generator=generator
        )
        self._target = torch.zeros(largest // 8, dtype=torch.int32, device="cuda")

    def give_back(self) -> None:
        """Free the buffers."""
        self._source = self._target = None
        torch.cuda.empty_cache()

    def reader(self, size: int) -> Work:
        """Return work that reads `size` bytes; the sum shows whether all of them were read."""
        x, n_blocks = self._source[: size // 4], size // BLOCK_BYTES
        total = int(x.sum())

        def launch(passes: int) -> None:
            read_kernel[(self._programs,)](
                x, self._partial, n_blocks, passes * n_blocks, BLOCK=BLOCK, num_warps=8, num_stages=1
            )

        def mistake(passes: int) -> str:
            missing = (int(self._partial.sum()) - passes * total) % 2**32
            return "the sum is wrong: not every number was read" if missing else ""

        return Work(launch, mistake)

    def copier(self, size: int) -> Work:
        """Return work that copies half of `size` bytes into the other half."""
        x, y, mistake = self._halves(size)
        n_blocks = size // 2 // BLOCK_BYTES

        def launch(passes: int) -> None:
            copy_kernel[(self._programs,)](
                x, y, n_blocks, passes * n_blocks, BLOCK=BLOCK, num_warps=8, num_stages=1
            )

        return Work(launch, mistake)

    def library_copier(self, size: int) -> Work:
        """Return the same work with PyTorch's copy_, one call for each pass."""
        x, y, mistake = self._halves(size)

        def launch(passes: int) -> None:
            for _ in range(passes):
                y.copy_(x)

        return Work(launch, mistake)

    def _halves(self, size: int):
        x, y = self._source[: size // 8], self._target[: size // 8]
        y.zero_()
        return x, y, lambda _passes: "" if torch.equal(x, y) else "the copy differs from its source"

    def product(self, dtype: str, side: int) -> Product:
        """Return a square matrix product of PyTorch."""
        return product(dtype, side, "cuda")

    def empty(self) -> Callable[[], None]:
        """Return a function that launches an empty kernel."""
        return lambda: empty_kernel[(1,)](self._partial, num_warps=1)

    def host_us(self, work: Callable[[], None]) -> float:
        """Return the microseconds until `work` returns, by the clock of the host."""
        start = time.perf_counter_ns()
        work()
        return (time.perf_counter_ns() - start) / 1e3
