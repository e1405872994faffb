"""CUDA C++ files: find nvcc, compile a file with one fixed command, and load it.

No flag, library or include path comes from the file or its folder. The worker's confinement limits what
native code can do when it runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

from grader.codegen import cpp_tokens, launch_probe, native_check, ptxas, stream_order
from grader.codegen.ptxas import Kernel
from grader.course.native_headers import HEADERS
from grader.system.processes import LimitError, run_tool

PROGRAM_FLAGS = ("-std=c++17", "-O3", "-lineinfo")
FLAGS = (*PROGRAM_FLAGS, "-shared", "-Xcompiler", "-fPIC", "-Xptxas", "-v", "-DNO_PROGRAM")
LIMIT_S = 120.0
# An error line of the CUDA compiler, or of the host's preprocessor.
_ERROR = re.compile(r"(?:\((\d+)\): |:(\d+):\d+: )(?:catastrophic |fatal )?error(?: #[\w-]+)?: (.+)")
_TOOL_ERROR = re.compile(r"[\w/.+-]+ (?:fatal|error) *:|[\w/.+-]*ld[\w.-]*: ")


class BuildError(RuntimeError):
    """The file does not compile; `line` is its line, or 0 if unknown, `text` the compiler's message."""

    def __init__(self, line: int, text: str):
        super().__init__(f"line {line}: {text}" if line else text)
        self.line, self.text = line, text


class NotPermittedError(RuntimeError):
    """The file compiles, and does what a submission may not; `line` is its line, or 0 if unknown."""

    def __init__(self, text: str, line: int = 0):
        super().__init__(text)
        self.line = line


def compiler() -> Path | None:
    """Find nvcc on the PATH, in a CUDA toolkit, or in NVIDIA's Python wheels; None if there is none."""
    on_path = shutil.which("nvcc")
    if on_path:
        return Path(on_path)
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if home and Path(home, "bin", "nvcc").is_file():
            return Path(home, "bin", "nvcc")
    wheels = importlib.util.find_spec("nvidia")
    for folder in wheels.submodule_search_locations or () if wheels else ():
        for path in sorted(Path(folder).glob("cu*/bin/nvcc"), reverse=True):
            return path
    return None


def build(file: Path, target: Path, archs: Sequence[str], nvcc: Path) -> list[Kernel]:
    """Compile `file` to a shared library for these architectures, such as "sm_90a"; return its kernels.

    Raises BuildError if it does not compile within LIMIT_S seconds.
    """
    code = [f"-gencode=arch={arch.replace('sm', 'compute')},code={arch}" for arch in archs]
    return list(
        ptxas.kernels(_compile([str(nvcc), *FLAGS, *code, file.name, "-o", str(target)], file.parent))
    )


def build_checked(file: Path, target: Path, arch: str, nvcc: Path) -> list[Kernel]:
    """Compile a submission like `build`, in two steps, and check what the compiler made of it in between.

    Beside `target` it leaves a library of the same host code for launches without a GPU (see launch_probe).

    Raises NotPermittedError for a file that the preprocessor opened and that no permitted header includes,
    for assembler in host code, for an undefined symbol that host code does not need, and for work on another
    stream than the given one; otherwise like `build`.
    """
    code = f"-gencode=arch={arch.replace('sm', 'compute')},code={arch}"
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        kept = Path(scratch)
        part = kept / "part.o"
        keep = ("--keep", "--keep-dir", scratch, "-Xcompiler", "-save-temps=obj")
        flags = [flag for flag in FLAGS if flag != "-shared"]
        said = _compile([str(nvcc), *flags, *keep, code, "-c", file.name, "-o", str(part)], file.parent)
        permitted = _permitted_files(kept, code, nvcc)
        host = [*kept.glob("*.cpp4.ii")]
        preprocessed = [*kept.glob("*.cpp1.ii"), *host]
        assembly = [path.read_text("utf-8", "replace") for path in kept.glob("part*.s")]
        if not host or not assembly:
            raise BuildError(0, "the compiler kept none of the files by which the host code is checked")
        found = native_check.opened(preprocessed, file.parent)
        for path in native_check.strange_files(found, permitted, file.parent):
            raise NotPermittedError(f"{os.path.basename(path)} is not on the list of headers")
        for text in assembly:
            for line in native_check.host_assembler(text):
                raise NotPermittedError(f"host code has no assembler: {line[:80]}")
        strange = native_check.strange_symbols(run_tool(["nm", "-u", str(part)], LIMIT_S).said)
        headers = [path.read_text("utf-8", "replace") for path in kept.glob("headers-*.ii")]
        for part_of_host in host:
            own = cpp_tokens.own_text(part_of_host.read_text("utf-8", "replace"), file.parent, headers)
            for one in stream_order.findings(own, strange, file.name):
                raise NotPermittedError(str(one), 0 if one.file else one.line)
        _compile([str(nvcc), "-shared", code, str(part), "-o", str(target)], file.parent)
        launch_probe.link(part, probe_of(target), nvcc)
    return list(ptxas.kernels(said))


def _permitted_files(scratch: Path, code: str, nvcc: Path) -> set[str]:
    """Return the files that the permitted headers are made of, in host code and in device code."""
    file = scratch / "headers.cu"
    file.write_text("".join(f"#include <{name}>\n" for name in sorted(HEADERS)))
    files: set[str] = set()
    # Alone, -E reads the headers as for device code.
    for number, flags in enumerate(((*PROGRAM_FLAGS, "-U__CUDA_ARCH__"), PROGRAM_FLAGS)):
        out = scratch / f"headers-{number}.ii"
        _compile([str(nvcc), *flags, code, "-E", file.name, "-o", str(out)], scratch)
        files |= native_check.opened([out], scratch)
    return files


def build_program(file: Path, target: Path, arch: str, nvcc: Path) -> None:
    """Compile `file` to an executable program, with its main function; BuildError as for `build`."""
    _compile([str(nvcc), *PROGRAM_FLAGS, f"-arch={arch}", file.name, "-o", str(target)], file.parent)


def _compile(command: Sequence[str], folder: Path) -> str:
    """Run the compiler in a folder; return its output."""
    try:
        done = run_tool(command, LIMIT_S, cwd=folder)
    except LimitError:
        raise BuildError(0, f"the compiler was stopped at its time limit of {LIMIT_S:.0f} s") from None
    said = done.said
    if done.code:
        found = _ERROR.search(said)
        if found:
            raise BuildError(int(found[1] or found[2]), found[3])
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        of_a_tool = [line for line in lines if _TOOL_ERROR.match(line)]  # ptxas and the linker name no line
        raise BuildError(0, next(iter([*of_a_tool, *lines]), "no message"))
    return said


def arch_name(major: int, minor: int) -> str:
    """Return sm_80, or sm_90a: from Hopper on, the "a" enables architecture-specific features."""
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


class Library:
    """A compiled file as a module: its C functions can be called with tensors, like Python functions.

    Without a GPU nothing of them runs but host code, whose launches are looked at.
    """

    def __init__(self, file: Path, path: Path, kernels: Sequence[Kernel], arch: str, runs: bool):
        self.kernels = [kernel.name for kernel in kernels]
        self._file, self._path = file, path
        self._library = ctypes.CDLL(str(path))
        self._probed: launch_probe.Probed | None = None
        if not runs and probe_of(path).is_file():
            with contextlib.suppress(OSError):  # it calls something of CUDA that only a GPU has
                limit = launch_probe.SHARED_LIMIT.get(int(arch[3:].rstrip("a")), 99) * 1024
                self._probed = launch_probe.Probed(probe_of(path), kernels, limit)
        self._runs = runs

    def __getattr__(self, name: str) -> Callable[..., None]:
        function = getattr(self._library, name)
        if not self._runs:
            return self._without_a_gpu(name)
        function.restype = ctypes.c_int

        def call(*inputs: torch.Tensor, sizes: Sequence[int], **outputs: torch.Tensor) -> None:
            import torch

            pointers = [ctypes.c_void_p(one.data_ptr()) for one in (*inputs, *outputs.values())]
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            code = function(*pointers, *map(ctypes.c_longlong, sizes), stream)
            if code:
                raise RuntimeError(f"{name} returned {code}{_error_words(code)}")

        return call

    def _without_a_gpu(self, name: str) -> Callable[..., None]:
        """Return a function that makes no launch, and raises BuildError for one that a GPU would refuse."""
        function = self._probed.function(name) if self._probed else None

        def call(*inputs: torch.Tensor, sizes: Sequence[int], **outputs: torch.Tensor) -> None:
            try:
                if function:
                    function(*inputs, sizes=sizes, **outputs)
            except launch_probe.LaunchError as refused:
                text = self._file.read_text("utf-8", "replace")
                raise BuildError(launch_probe.launch_line(text, refused.kernel), str(refused)) from None

        return call


def _error_words(code: int) -> str:
    """Return CUDA's description of an error code; "" without CUDA."""
    import torch

    if not torch.cuda.is_available():
        return ""
    runtime = torch.cuda.cudart()
    return f": {runtime.cudaGetErrorString(runtime.cudaError(code))}"


def library(file: Path, folder: Path, arch: str) -> Path:
    """Return the path of a file's compiled library in `folder`."""
    return folder / f"{file.stem}-{arch}.so"


def probe_of(library: Path) -> Path:
    """Return the path of the library whose launches are looked at, beside the one for a GPU."""
    return library.with_name(f"{library.name}.probe")


def load(file: Path, folder: Path, arch: str, runs: bool, checked: bool = False) -> Library:
    """Load a file, compiled into `folder` unless it is there already.

    Unless it `runs`, calls look at its launches only, and of a file that is not `checked` not even at those.

    Raises BuildError if the file does not compile, or if nvcc is not found; if it is to be `checked`, also
    NotPermittedError.
    """
    nvcc = compiler()
    if nvcc is None:
        raise BuildError(0, "nvcc was not found: install a CUDA toolkit, or the wheel nvidia-cuda-nvcc")
    target = library(file, folder, arch)
    names = target.with_suffix(".json")
    if not names.is_file():
        part = target.with_suffix(f".{os.getpid()}")
        kernels = build_checked(file, part, arch, nvcc) if checked else build(file, part, (arch,), nvcc)
        if probe_of(part).is_file():
            probe_of(part).replace(probe_of(target))
        part.replace(target)
        names.write_text(json.dumps([asdict(kernel) for kernel in kernels]))
    return Library(file, target, [Kernel(**kernel) for kernel in json.loads(names.read_text())], arch, runs)
