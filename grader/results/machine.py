"""The machine of a run: GPU, driver and versions; and the date."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform

from grader.results.base import Model
from grader.system.gpu import Gpu

FP_FUSION = True  # the same with every version of Triton, whose own default changes


class Machine(Model):
    """GPU, driver and versions; without a GPU, the reason why there is none."""

    gpu: Gpu | None
    gpu_missing: str = ""
    platform: str
    python: str
    torch: str
    triton: str
    numpy: str
    fp_fusion: bool | None = None  # whether kernels fuse a product with a sum; None in older records

    @property
    def gpu_name(self) -> str:
        """The name of the GPU, or `no GPU`."""
        return self.gpu.name if self.gpu else "no GPU"

    @property
    def words(self) -> str:
        """GPU, driver and versions, for the line below a table."""
        gpu = f"{self.gpu.name}, driver {self.gpu.driver}" if self.gpu else "no GPU"
        return f"{gpu}, torch {self.torch}, triton {self.triton}"


def machine(gpu: Gpu | None, missing: str) -> Machine:
    """Describe this machine, without importing torch or triton."""

    def version(package: str) -> str:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return "missing"

    return Machine(
        gpu=gpu,
        gpu_missing=missing,
        platform=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        torch=version("torch"),
        triton=version("triton"),
        numpy=version("numpy"),
        fp_fusion=FP_FUSION,
    )


def now() -> str:
    """Return the date of a record: UTC, ISO 8601, to the second."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
