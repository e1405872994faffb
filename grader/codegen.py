"""Read what the compiler made of a student's launches: PTX and SASS as facts, facts as verdicts."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from grader import native
from grader.diagnose import cause_of
from grader.outcome import Outcome, one_line
from grader.spec import Lab, Verdict

# Bytes of shared memory that one block may use, from the CUDA programming guide's table of compute
# capabilities.
SHARED_LIMIT = {
    75: 64,
    80: 163,
    86: 99,
    87: 163,
    89: 99,
    90: 227,
    100: 227,
    103: 227,
    110: 227,
    120: 99,
    121: 99,
}
TENSOR_CORE = re.compile(r"\b(wgmma\.mma_async|mma\.sync|tcgen05\.mma)\b")
IN_SASS = {"HGMMA": "wgmma.mma_async", "UTCHMMA": "tcgen05.mma", "HMMA": "mma.sync"}
ASYNC_COPY = re.compile(r"\b(cp\.async\.bulk\.tensor|cp\.async\.c[ag])")
LOAD = re.compile(r"\b(?:LDG|LDGSTS)\.E((?:\.[A-Z0-9_]+)*)")
STORE = re.compile(r"\bSTG\.E((?:\.[A-Z0-9_]+)*)")
LOCAL = re.compile(r"\b(?:STL|LDL)\b")
WIDTH = {"256": 32, "128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "warmup")
MAX_FILE = 16 * 1024 * 1024  # bytes of PTX or cubin read; a worker wrote them


class WorkerFileError(RuntimeError):
    """What should be a file of the compiler is something else."""


@dataclass(frozen=True)
class KernelFacts:
    """One compiled kernel: sizes in bytes, counts of instructions in the text, not of executions."""

    name: str
    constants: dict
    num_warps: int
    num_stages: int
    shared_bytes: int
    shared_limit: int
    registers: int
    spill_bytes: int
    tensor_core: str  # instruction family, "" where there is none
    async_copies: int
    load_widths: tuple[int, ...]  # bytes, widest first, of the global loads in the text
    ptx: str = ""
    sass: str = ""

    @property
    def config(self) -> str:
        """`128x256x64, 8 warps, 3 stages` where the names allow it, else the constants; "" of CUDA C++."""
        if not self.num_warps:
            return ""
        tile = [self.constants[key] for key in ("BLOCK_M", "BLOCK_N", "BLOCK_K") if key in self.constants]
        shown = (
            "x".join(map(str, tile))
            if len(tile) == 3
            else ", ".join(f"{k}={v}" for k, v in self.constants.items() if k not in LAUNCH_OPTIONS)
        )
        return f"{shown}, {self.num_warps} warps, {self.num_stages} stages".lstrip(", ")


def read_kernels(folder: Path, arch: int) -> list[KernelFacts]:
    """Facts of every kernel the offline worker left in `folder`.

    RuntimeError where a disassembler fails, WorkerFileError where a file is none that the compiler wrote.
    """
    kernels = []
    for path in sorted(folder.glob("kernel-*.json")):
        try:
            kernels.append(_read(path, arch))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise WorkerFileError(f"{path.name}: {type(error).__name__}") from None
    return kernels


def read_native(library: Path, arch: int) -> list[KernelFacts]:
    """The same of the kernels of CUDA C++ in a shared library that a worker built."""
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
            KernelFacts(
                name=one_line(native.plain_name(name)),
                constants={},
                num_warps=0,
                num_stages=0,
                shared_bytes=used.get("SHARED", 0),
                shared_limit=SHARED_LIMIT.get(arch, 99) * 1024,
                registers=used.get("REG", 0),
                spill_bytes=used.get("STACK", 0) if LOCAL.search(listing) else 0,
                tensor_core=next((words for part, words in IN_SASS.items() if part in listing), ""),
                async_copies=len(re.findall(r"\b(?:LDGSTS|UTMALDG)\b", listing)),
                load_widths=load_widths(listing),
                sass=listing,
            )
        )
    return kernels


def _read(path: Path, arch: int) -> KernelFacts:
    claimed = json.loads(_bytes_of(path))
    ptx = _bytes_of(path.with_suffix(".ptx")).decode(errors="replace")
    with tempfile.NamedTemporaryFile(
        suffix=".cubin"
    ) as cubin:  # the worker could change its own under our hands
        cubin.write(_bytes_of(path.with_suffix(".cubin")))
        cubin.flush()
        usage = _tool("cuobjdump", "--dump-resource-usage", Path(cubin.name))
        sass = _tool("cuobjdump", "--dump-sass", Path(cubin.name))
    registers = re.search(r"\bREG:(\d+)", usage)
    stack = re.search(r"\bSTACK:(\d+)", usage)
    if not registers or not stack:
        raise RuntimeError("cuobjdump prints no resource usage that this grader can read")
    tensor_core = TENSOR_CORE.search(ptx)
    return KernelFacts(
        # Whatever the worker wrote there is shown: one line of text, or a number.
        name=one_line(str(claimed["name"])),
        constants={
            one_line(str(key)): value if isinstance(value, (int, float)) else one_line(str(value))
            for key, value in claimed["constants"].items()
        },
        num_warps=int(claimed["num_warps"]),
        num_stages=int(claimed["num_stages"]),
        shared_bytes=int(claimed["shared_bytes"]),
        shared_limit=SHARED_LIMIT.get(arch, 99) * 1024,
        registers=int(registers[1]),
        # ptxas reserves stack for spills alone in these kernels: nothing in Triton takes an address of a
        # local.
        spill_bytes=int(stack[1]) if LOCAL.search(sass) else 0,
        tensor_core=tensor_core[1] if tensor_core else "",
        async_copies=len(ASYNC_COPY.findall(ptx)),
        load_widths=load_widths(sass),
        ptx=ptx,
        sass=sass,
    )


def load_widths(sass: str) -> tuple[int, ...]:
    """Bytes per thread of the global loads in a SASS listing, widest first."""
    return _widths(LOAD, sass)


def store_widths(sass: str) -> tuple[int, ...]:
    """The same of the global stores."""
    return _widths(STORE, sass)


def _widths(instruction: re.Pattern, sass: str) -> tuple[int, ...]:
    """Widths of the instructions found; 4 bytes where no suffix says otherwise."""
    widths = {
        next((WIDTH[part] for part in match[1].split(".") if part in WIDTH), 4)
        for match in instruction.finditer(sass)
    }
    return tuple(sorted(widths, reverse=True))


def _bytes_of(path: Path) -> bytes:
    """A file that a worker wrote: no link, no pipe, and of a sane size."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise WorkerFileError(f"{path.name}: {error.strerror}") from None
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_FILE:
        os.close(descriptor)
        raise WorkerFileError(f"{path.name} is no file of a sane size")
    with os.fdopen(descriptor, "rb") as file:
        return file.read(MAX_FILE)


def _tool(name: str, flag: str, cubin: Path) -> str:
    package = importlib.util.find_spec("triton").submodule_search_locations[0]
    tool = Path(package) / "backends" / "nvidia" / "bin" / name
    done = subprocess.run([tool, flag, cubin], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} {flag} failed: {done.stderr.strip()[:200]}")
    return done.stdout


def check(name: str, kernels: list[KernelFacts]) -> tuple[bool, str]:
    """Whether a named check holds for every kernel, and one line that says what was found."""
    if not kernels:
        return False, "the call launched no Triton kernel"
    bad, words = CHECKS[name](kernels)
    return not bad, words if not bad else f"{words}: {bad[0].config}"


SIGNS = {"tensor cores": "no tensor cores", "no spills": "spills", "shared memory": "shared memory"}


def outcome(lab: Lab, name: str, passed: bool, words: str, kernels: list[KernelFacts]) -> Outcome:
    """A check's result with the facts behind it; PTX and SASS stay out, `make inspect` shows them."""
    facts = [
        {**{k: v for k, v in vars(kernel).items() if k not in ("ptx", "sass")}, "config": kernel.config}
        for kernel in kernels
    ]
    found = None if passed else cause_of(lab, SIGNS.get(name, "slow"))
    return Outcome(
        Verdict.PASS if passed else Verdict.WRONG,
        share=float(passed),
        where=words,
        cause=found.cause if found else "",
        hint=found.hint if found else None,
        figures={"kernels": facts},
    )


def _tensor_cores(kernels):
    bad = [k for k in kernels if not k.tensor_core]
    found = sorted({k.tensor_core for k in kernels if k.tensor_core})
    return (
        bad,
        f"{len(kernels) - len(bad)} of {len(kernels)} configs use {' and '.join(found) or 'tensor cores'}",
    )


def _no_spills(kernels):
    bad = sorted((k for k in kernels if k.spill_bytes), key=lambda k: -k.spill_bytes)
    if bad:
        return (
            bad,
            f"{len(bad)} of {len(kernels)} configs spill, the worst {bad[0].spill_bytes} bytes a thread",
        )
    return bad, f"no spills, at most {max(k.registers for k in kernels)} registers a thread"


def _wide_loads(kernels):
    bad = [k for k in kernels if k.load_widths and k.load_widths[0] < 16]
    return (
        bad,
        f"widest global load {min((k.load_widths or (16,))[0] for k in kernels)} bytes a thread, 16 is best",
    )


def _shared_memory(kernels):
    bad = [k for k in kernels if k.shared_bytes > k.shared_limit]
    most = max(k.shared_bytes for k in kernels)
    return bad, f"at most {most / 1024:.0f} of {kernels[0].shared_limit / 1024:.0f} KB of shared memory"


CHECKS = {
    "tensor cores": _tensor_cores,
    "no spills": _no_spills,
    "wide loads": _wide_loads,
    "shared memory": _shared_memory,
}
