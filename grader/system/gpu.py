"""GPU facts from NVML: model, peak rates, and current clocks."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, TypeVar

if TYPE_CHECKING:
    import pynvml

T = TypeVar("T")
# Dense FLOP per clock and multiprocessor with 16-bit inputs, from NVIDIA's architecture white papers: an
# upper bound.
FLOP_PER_CLOCK = {
    70: 1024,
    75: 1024,
    80: 2048,
    86: 1024,
    87: 1024,
    89: 1024,
    90: 4096,
    100: 8192,
    103: 8192,
    120: 1024,
}
# Clock reasons that slow a block for causes outside the code; a software power cap is normal for a matrix
# product.
DISTURBING = {"hw slowdown": 0x8, "sw thermal": 0x20, "hw thermal": 0x40, "hw power brake": 0x80}
OTHER_REASONS = {
    "idle": 0x1,
    "application clocks": 0x2,
    "sw power cap": 0x4,
    "sync boost": 0x10,
    "display": 0x100,
}


@dataclass(frozen=True)
class Gpu:
    """One GPU: identity, compute capability, theoretical bandwidth and dense 16-bit peak rate."""

    __pydantic_config__: ClassVar = {"extra": "forbid", "allow_inf_nan": False}  # records contain it

    name: str
    driver: str
    uuid_hash: str
    capability: int  # 90 for compute capability 9.0
    memory_bytes: int
    bandwidth: float  # bytes/s
    peak_flops: float  # FLOP/s
    max_sm_mhz: int
    mig: bool = False


@dataclass
class Clocks:
    """Samples taken between blocks: SM clock, power, temperature, and active clock reasons."""

    sm_mhz: list[int] = field(default_factory=list)
    watts: list[float] = field(default_factory=list)
    celsius: list[int] = field(default_factory=list)
    reasons: set[str] = field(default_factory=set)


def handle() -> pynvml.c_nvmlDevice_t:
    """Return NVML's handle of the GPU that CUDA will use. Raises NVMLError if there is none."""
    import pynvml

    pynvml.nvmlInit()
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip() or "none"
    if chosen.isdigit():
        return pynvml.nvmlDeviceGetHandleByIndex(int(chosen))
    return pynvml.nvmlDeviceGetHandleByUUID(chosen)


def find() -> tuple[Gpu | None, str]:
    """Return the GPU that CUDA will use and "", or None and a reason for students. Imports no torch."""
    try:
        import pynvml

        device = handle()
    except Exception as error:  # any NVML error means that there is no GPU to grade on
        text = str(error)
        return None, "no NVIDIA driver on this machine" if "Library" in text or "Driver Not" in text else text

    def ask(question: Callable[..., T], otherwise: T, *arguments: object) -> T:
        # A virtual GPU or a MIG slice does not answer every question.
        try:
            return question(*arguments)
        except pynvml.NVMLError:
            return otherwise

    major, minor = ask(pynvml.nvmlDeviceGetCudaComputeCapability, (0, 0), device)
    if not major:
        return None, "NVML does not report the compute capability of this GPU"
    sm_mhz = ask(pynvml.nvmlDeviceGetMaxClockInfo, 0, device, pynvml.NVML_CLOCK_SM)
    memory_mhz = ask(pynvml.nvmlDeviceGetMaxClockInfo, 0, device, pynvml.NVML_CLOCK_MEM)
    cores = ask(pynvml.nvmlDeviceGetNumGpuCores, 0, device)
    bus = ask(pynvml.nvmlDeviceGetMemoryBusWidth, 0, device)
    mig = bool(ask(pynvml.nvmlDeviceGetMigMode, (0, 0), device)[0])
    memory = ask(pynvml.nvmlDeviceGetMemoryInfo, None, device)
    uuid = _text(ask(pynvml.nvmlDeviceGetUUID, "unknown", device))
    capability = 10 * major + minor
    multiprocessors = cores // (64 if capability in (70, 72, 75, 80) else 128)
    gpu = Gpu(
        name=_text(ask(pynvml.nvmlDeviceGetName, "NVIDIA GPU", device)),
        driver=_text(ask(pynvml.nvmlSystemGetDriverVersion, "unknown")),
        uuid_hash=hashlib.sha256(uuid.encode()).hexdigest()[:16],
        capability=capability,
        memory_bytes=memory.total if memory else 0,
        bandwidth=2.0 * memory_mhz * 1e6 * bus / 8,  # two transfers per clock
        peak_flops=FLOP_PER_CLOCK.get(capability, 0) * multiprocessors * sm_mhz * 1e6,
        max_sm_mhz=sm_mhz,
        mig=mig,
    )
    return gpu, ""


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


class ClockReader:
    """Reads clocks and clock reasons from NVML; `missing` says what could not be read."""

    def __init__(self) -> None:
        self.samples = Clocks()
        self.missing = ""
        try:
            self._device = handle()
        except Exception as error:  # a machine without NVML can still be timed, with less evidence
            self._device, self.missing = None, str(error)

    def sample(self) -> list[str]:
        """Record one sample; return the clock reasons in DISTURBING that are active now."""
        if self._device is None:
            return []
        import pynvml

        read = {
            "clock": lambda: self.samples.sm_mhz.append(
                pynvml.nvmlDeviceGetClockInfo(self._device, pynvml.NVML_CLOCK_SM)
            ),
            "power": lambda: self.samples.watts.append(pynvml.nvmlDeviceGetPowerUsage(self._device) / 1000),
            "temperature": lambda: self.samples.celsius.append(
                pynvml.nvmlDeviceGetTemperature(self._device, pynvml.NVML_TEMPERATURE_GPU)
            ),
        }
        active = 0
        try:  # first, because clock reasons decide whether a block counts
            active = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._device)
        except pynvml.NVMLError as error:
            self.missing = f"clock reasons: {error}"
        for name, act in read.items():
            try:
                act()
            except pynvml.NVMLError as error:
                self.missing = self.missing or f"{name}: {error}"
        self.samples.reasons |= {name for name, bit in (OTHER_REASONS | DISTURBING).items() if active & bit}
        return [name for name, bit in DISTURBING.items() if active & bit]
