"""Read facts from the PTX and SASS that the compiler generated for a student's kernels."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import stat
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from grader.codegen.launch_probe import SHARED_LIMIT
from grader.codegen.ptx import TENSOR_CORE, multiplies_in_a_loop
from grader.codegen.ptxas import plain_name
from grader.results.kernel_facts import KernelFacts
from grader.system.processes import NICENESS, run_tool
from grader.system.text import one_line

IN_SASS = {"HGMMA": "wgmma.mma_async", "UTCHMMA": "tcgen05.mma", "HMMA": "mma.sync"}
ASYNC_COPY = re.compile(r"\b(cp\.async\.bulk\.tensor|cp\.async\.c[ag])")
LOAD = re.compile(r"\b(?:LDG|LDGSTS)\.E((?:\.[A-Z0-9_]+)*)")
STORE = re.compile(r"\bSTG\.E((?:\.[A-Z0-9_]+)*)")
LOCAL = re.compile(r"\b(?:STL|LDL)\b")
WIDTH = {"256": 32, "128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "warmup")
MAX_FILE = 16 * 1024 * 1024  # largest PTX or cubin in bytes; a worker wrote it
TOOL_LIMIT_S = 60.0  # to list one cubin


class WorkerFileError(RuntimeError):
    """A file of the compiler is missing or invalid, which means that the worker changed it."""


class CompiledKernel(KernelFacts):
    """The facts of one compiled kernel with its listings; a kernel in CUDA C++ has no PTX."""

    ptx: str = ""
    sass: str = ""
    identity: str = ""  # of the kernel's source, as a verified run reports it; "" for CUDA C++
    multiplies_in_a_loop: bool = True  # where it has tensor-core instructions; not looked at in CUDA C++

    @property
    def facts(self) -> KernelFacts:
        """Return the facts without listings, as records store them."""
        return KernelFacts(**{name: getattr(self, name) for name in KernelFacts.model_fields})


def config_of(constants: Mapping[str, object], num_warps: int, num_stages: int) -> str:
    """Format a config: `128x256x64, 8 warps, 3 stages`, or the constants; "" for CUDA C++."""
    if not num_warps:
        return ""
    tile = [constants[key] for key in ("BLOCK_M", "BLOCK_N", "BLOCK_K") if key in constants]
    shown = (
        "x".join(map(str, tile))
        if len(tile) == 3
        else ", ".join(f"{k}={v}" for k, v in constants.items() if k not in LAUNCH_OPTIONS)
    )
    return f"{shown}, {num_warps} warps, {num_stages} stages".lstrip(", ")


def read_kernels(folder: Path, arch: int) -> list[CompiledKernel]:
    """Read the facts of every kernel that the offline worker left in `folder`.

    Raises RuntimeError if a disassembler fails, WorkerFileError if a file is not as the compiler writes it.
    """
    # Side by side, because each waits for two runs of the disassembler.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        return [*threads.map(lambda path: _checked(path, arch), sorted(folder.glob("kernel-*.json")))]


def read_native(library: Path, arch: int) -> list[CompiledKernel]:
    """Read the facts of the CUDA C++ kernels in a shared library that a worker built; errors as above."""
    with tempfile.NamedTemporaryFile(suffix=".so") as copy:
        copy.write(_bytes_of(library))
        copy.flush()
        usage = _tool("cuobjdump", "--dump-resource-usage", Path(copy.name))
        sass = _tool("cuobjdump", "--dump-sass", Path(copy.name))
    listings = dict(
        re.findall(r"^\s*Function : (\S+)\n(.*?)(?=^\s*Function : |\Z)", sass, re.MULTILINE | re.DOTALL)
    )
    kernels = []
    for name, facts in re.findall(r"^\s*Function (\S+):\s*\n(.*)$", usage, re.MULTILINE):
        used = {key: int(value) for key, value in re.findall(r"\b([A-Z]+):(\d+)", facts)}
        listing = listings.get(name, "")
        kernels.append(
            CompiledKernel(
                name=one_line(plain_name(name)),
                constants={},
                num_warps=0,
                num_stages=0,
                shared_bytes=used.get("SHARED", 0),
                shared_limit_bytes=SHARED_LIMIT.get(arch, 99) * 1024,
                registers=used.get("REG", 0),
                spill_bytes=used.get("STACK", 0) if LOCAL.search(listing) else 0,
                tensor_core=next((words for part, words in IN_SASS.items() if part in listing), ""),
                async_copies=len(re.findall(r"\b(?:LDGSTS|UTMALDG)\b", listing)),
                load_widths_bytes=load_widths(listing),
                config="",
                sass=listing,
            )
        )
    return kernels


def _checked(path: Path, arch: int) -> CompiledKernel:
    try:
        return _read(path, arch)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WorkerFileError(f"{path.name}: {type(error).__name__}") from None


def _read(path: Path, arch: int) -> CompiledKernel:
    claimed = json.loads(_bytes_of(path))
    ptx = _bytes_of(path.with_suffix(".ptx")).decode(errors="replace")
    with tempfile.NamedTemporaryFile(
        suffix=".cubin"
    ) as cubin:  # a copy, because the worker could still change its own file
        cubin.write(_bytes_of(path.with_suffix(".cubin")))
        cubin.flush()
        usage = _tool("cuobjdump", "--dump-resource-usage", Path(cubin.name))
        sass = _tool("cuobjdump", "--dump-sass", Path(cubin.name))
    registers = re.search(r"\bREG:(\d+)", usage)
    stack = re.search(r"\bSTACK:(\d+)", usage)
    if not registers or not stack:
        raise RuntimeError("the resource usage printed by cuobjdump has an unknown format")
    tensor_core = TENSOR_CORE.search(ptx)
    constants = {
        # The worker wrote the values, so only a number or one line of text is shown.
        one_line(str(key)): value if _is_number(value) else one_line(str(value))
        for key, value in claimed["constants"].items()
    }
    num_warps, num_stages = int(claimed["num_warps"]), int(claimed["num_stages"])
    return CompiledKernel(
        name=one_line(str(claimed["name"])),
        constants=constants,
        num_warps=num_warps,
        num_stages=num_stages,
        shared_bytes=int(claimed["shared_bytes"]),
        shared_limit_bytes=SHARED_LIMIT.get(arch, 99) * 1024,
        registers=int(registers[1]),
        # In these kernels ptxas uses the stack only for spills: Triton never takes the address of a local.
        spill_bytes=int(stack[1]) if LOCAL.search(sass) else 0,
        tensor_core=tensor_core[1] if tensor_core else "",
        async_copies=len(ASYNC_COPY.findall(ptx)),
        load_widths_bytes=load_widths(sass),
        config=config_of(constants, num_warps, num_stages),
        ptx=ptx,
        sass=sass,
        identity=one_line(str(claimed["identity"])),
        multiplies_in_a_loop=multiplies_in_a_loop(ptx),
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def load_widths(sass: str) -> tuple[int, ...]:
    """Return the bytes per thread of the global loads in a SASS listing, widest first."""
    return _widths(LOAD, sass)


def store_widths(sass: str) -> tuple[int, ...]:
    """Return the bytes per thread of the global stores in a SASS listing, widest first."""
    return _widths(STORE, sass)


def _widths(instruction: re.Pattern[str], sass: str) -> tuple[int, ...]:
    """Return the widths of matching instructions; 4 bytes without a suffix."""
    widths = {
        next((WIDTH[part] for part in match[1].split(".") if part in WIDTH), 4)
        for match in instruction.finditer(sass)
    }
    return tuple(sorted(widths, reverse=True))


def _bytes_of(path: Path) -> bytes:
    """Read a file that a worker wrote; WorkerFileError for a link, a pipe or a file that is too large."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise WorkerFileError(f"{path.name}: {error.strerror}") from None
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_FILE:
        os.close(descriptor)
        raise WorkerFileError(f"{path.name} is not a regular file of at most {MAX_FILE >> 20} MiB")
    with os.fdopen(descriptor, "rb") as file:
        return file.read(MAX_FILE)


def _tool(name: str, flag: str, cubin: Path) -> str:
    package = importlib.util.find_spec("triton")
    if package is None or package.origin is None:
        raise RuntimeError("triton is not installed; its cuobjdump is needed")
    tool = Path(package.origin).parent / "backends" / "nvidia" / "bin" / name
    # The cases, which run meanwhile, go first. `nice` sets it, because this process has threads.
    done = run_tool(["nice", "-n", str(NICENESS), tool, flag, cubin], TOOL_LIMIT_S)
    if done.code:
        raise RuntimeError(f"{name} {flag} failed: {done.complaint[:200]}")
    return done.text
