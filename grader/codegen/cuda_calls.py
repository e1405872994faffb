"""The CUDA calls that a host function of a CUDA C++ file may make, and what to write instead of others.

The grader may put a gate into the stream before it calls the function, write the inputs afterwards, and then
open the gate. A function that waits for the GPU would wait for ever, and work on another stream would not
wait for the gate. The page of the CUDA kernels prints these lists.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Calls that queue work, by the position of the argument that must be the function's stream.
STREAM_AT = {
    "cudaMallocAsync": 2,
    "cudaMallocFromPoolAsync": 3,
    "cudaFreeAsync": 1,
    "cudaMemsetAsync": 3,
    "cudaMemset2DAsync": 5,
    "cudaMemset3DAsync": 3,
    "cudaMemcpyAsync": 4,
    "cudaMemcpy2DAsync": 7,
    "cudaMemcpyToSymbolAsync": 5,
    "cudaMemcpyFromSymbolAsync": 5,
    "cudaLaunchKernel": 5,
    "cudaLaunchCooperativeKernel": 5,
    "cudaStreamIsCapturing": 0,
    "cudaStreamGetId": 0,
    "cudaStreamGetFlags": 0,
    "cudaStreamGetPriority": 0,
    "cudaStreamGetDevice": 0,
}
# Of these calls, the position of the direction, which must be ON_DEVICE: a copy from or to pageable memory of
# the host waits for the stream.
DIRECTION_AT = {
    "cudaMemcpyAsync": 3,
    "cudaMemcpy2DAsync": 6,
    "cudaMemcpyToSymbolAsync": 4,
    "cudaMemcpyFromSymbolAsync": 4,
}
ON_DEVICE = "cudaMemcpyDeviceToDevice"
# Calls whose stream stands in a cudaLaunchConfig_t.
CONFIGURED = ("cudaLaunchKernelEx", "cudaLaunchKernelExC")
# Calls that return a driver function by its name; only these names, which describe memory to TMA.
BY_NAME = ("cudaGetDriverEntryPoint", "cudaGetDriverEntryPointByVersion")
DRIVER_NAMES = ("cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col", "cuTensorMapEncodeIm2colWide")
# Calls that answer a question or set an attribute, and queue nothing.
SETTINGS = (
    "cudaGetLastError", "cudaPeekAtLastError", "cudaGetErrorString", "cudaGetErrorName", "cudaGetDevice",
    "cudaGetDeviceCount", "cudaGetDeviceProperties", "cudaDeviceGetAttribute", "cudaDeviceGetLimit",
    "cudaFuncSetAttribute", "cudaFuncGetAttributes", "cudaFuncSetCacheConfig", "cudaPointerGetAttributes",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor", "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
    "cudaOccupancyAvailableDynamicSMemPerBlock", "cudaOccupancyMaxActiveClusters",
    "cudaOccupancyMaxPotentialBlockSize", "cudaOccupancyMaxPotentialClusterSize",
    "cudaGetSymbolAddress", "cudaGetSymbolSize",
    "cudaDeviceGetDefaultMemPool", "cudaDeviceGetMemPool", "cudaMemPoolGetAttribute",
    "cudaMemPoolSetAttribute", "cudaRuntimeGetVersion", "cudaDriverGetVersion",
)  # fmt: skip
# What the compiler itself writes into host code for kernels and variables of the device.
EMITTED = (
    "__cudaRegisterFatBinary", "__cudaRegisterFatBinaryEnd", "__cudaUnregisterFatBinary",
    "__cudaRegisterFunction", "__cudaRegisterVar", "__cudaInitModule", "__cudaGetKernel",
    "__cudaLaunchKernel", "__cudaPushCallConfiguration", "__cudaPopCallConfiguration",
)  # fmt: skip
PERMITTED = frozenset((*STREAM_AT, *CONFIGURED, *BY_NAME, *SETTINGS, *DRIVER_NAMES, *EMITTED))


@dataclass(frozen=True)
class Group:
    """Calls that are refused for one reason."""

    names: str  # a pattern
    shown: tuple[str, ...]  # the names in the table for students
    does: str  # that is not permitted; follows the name
    instead: str


_NOTHING = "leave it out: work on one stream runs in order, and the grader waits at the end"
GROUPS = (
    Group(
        r"cudaMemcpy\w*Peer\w*|cudaSetDevice\w*|cudaSetValidDevices|cudaInitDevice|cudaDevice(Set|Enable|Disable)\w*"
        r"|cudaLaunchCooperativeKernelMultiDevice|cudaDeviceReset",
        ("cudaSetDevice", "cudaMemcpyPeerAsync"),
        "chooses or changes the GPU",
        "leave it out: the grader has chosen the GPU",
    ),
    Group(
        r"cuda(Malloc(Pitch|3D|Array|3DArray|MipmappedArray)?|Free(Array|MipmappedArray)?)"
        r"|cudaMemPool(Create|Destroy|TrimTo)|cuMem(Alloc|Free)\w*",
        ("cudaMalloc", "cudaFree"),
        "waits for the GPU",
        "take scratch memory with cudaMallocAsync(&pointer, bytes, stream) and return it with "
        "cudaFreeAsync(pointer, stream)",
    ),
    Group(
        r"cuda(MallocHost|FreeHost|Host\w+|MallocManaged|MemPrefetch\w*|MemAdvise\w*|MemRange\w*"
        r"|MemDiscard\w*)|__cuda(RegisterManagedVar|InitManagedRuntime|RegisterHostVar)",
        ("cudaMallocHost", "cudaHostAlloc", "cudaMallocManaged"),
        "makes memory that host and GPU share",
        "keep the data on the GPU, in memory from cudaMallocAsync(&pointer, bytes, stream)",
    ),
    Group(
        r"cuda(Device|Stream|Event|Thread)Synchronize|cu(Ctx|Stream|Event)Synchronize",
        ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize"),
        "waits for the GPU",
        _NOTHING,
    ),
    Group(
        r"cuda(StreamQuery|EventQuery|EventElapsedTime)",
        ("cudaStreamQuery", "cudaEventQuery"),
        "asks whether the GPU is done",
        _NOTHING,
    ),
    Group(
        r"cudaMem(cpy|set)\w*(?<!Async)",
        ("cudaMemcpy", "cudaMemset", "cudaMemcpyToSymbol"),
        "waits for the GPU",
        f"use cudaMemcpyAsync(to, from, bytes, {ON_DEVICE}, stream) or cudaMemsetAsync(to, byte, bytes, "
        "stream)",
    ),
    Group(
        r"cudaGraph\w*|cudaStream(Begin|End|Update)Capture\w*|cudaStreamGetCaptureInfo\w*"
        r"|cudaStreamBeginCaptureToGraph|cudaThreadExchangeStreamCaptureMode|cudaUserObject\w*",
        ("cudaStreamBeginCapture", "cudaGraphLaunch"),
        "belongs to a graph",
        "launch each kernel on the function's stream",
    ),
    Group(
        r"cudaLaunchHostFunc\w*|cudaStreamAddCallback",
        ("cudaLaunchHostFunc", "cudaStreamAddCallback"),
        "makes the GPU wait for host code",
        "do this work in a kernel",
    ),
    Group(
        r"cudaStream\w+|cudaEvent\w+|cudaExecution\w+|cudaGreenCtx\w+|cuStream\w+",
        ("cudaStreamCreate", "cudaEventRecord", "cudaStreamWaitEvent"),
        "is for work on several streams",
        "launch everything on the function's stream, where it runs in order",
    ),
    Group(
        r"cuda(Library|Module|Kernel|Ipc|Import|External|GetExportTable)\w*"
        r"|cu(Module|Library|Link|GetProcAddress|Launch)\w*",
        ("cudaLibraryLoadData", "cudaIpcOpenMemHandle"),
        "brings in code or memory from elsewhere",
        "write the kernel in this file, and launch it by its name",
    ),
)
UNKNOWN = Group(
    r"\w+",
    (),
    "is not a call that host code may make",
    "the calls that it may make are in the table of cuda-kernels/README.md; a host function checks sizes, "
    "takes scratch memory and launches kernels",
)


def is_permitted(symbol: str) -> bool:
    """Return whether a symbol is a CUDA function on the lists; a version as in `_v2` does not count."""
    return re.sub(r"_v\d+$", "", symbol) in PERMITTED


def group_of(symbol: str) -> Group:
    """Return why this function is refused, and what to write instead."""
    return next((group for group in GROUPS if re.fullmatch(group.names, symbol)), UNKNOWN)


def as_markdown() -> str:
    """The table for students: what is permitted, and what to write instead of what is not."""
    queue = [name for name in STREAM_AT if not name.startswith("cudaStream")]
    asked = [name for name in STREAM_AT if name.startswith("cudaStream")]
    rows = [
        ("`kernel<<<grid, block, bytes, stream>>>(...)`", "yes; all four launch arguments"),
        (_code(queue), f"yes, on `stream`; copies only `{ON_DEVICE}`"),
        (_code(CONFIGURED), "yes; set `config.stream = stream`"),
        (_code((*SETTINGS, *asked)), "yes"),
        (_code(BY_NAME), f"yes, for {_code(DRIVER_NAMES)}"),
        *((f"{_code(group.shown)} and similar", f"no: it {group.does}; {group.instead}") for group in GROUPS),
        ("any other", f"no: it {UNKNOWN.does}"),
    ]
    return "\n".join(["| call | permitted? |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows)]) + "\n"


def _code(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
