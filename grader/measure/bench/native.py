"""CUDA C++ in `make bench`: files of kernels, and the peers in peers.cu, which is ours and not screened."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from grader.codegen import nvcc as native
from grader.judge import statistics
from grader.measure.bench.peers import Call, Peer, Tensors
from grader.system.processes import run_tool

SOURCE = Path(__file__).with_name("peers.cu")
CACHE = Path("results", "peers")  # below the current folder, as everything that a run writes
FLAGS = ("-std=c++17", "-O3", "-shared", "-Xcompiler=-fPIC")
LIMIT_S = 300.0
WANTED = 8  # algorithms from cublasLt's heuristics
WORKSPACE_BYTES = 32 * 2**20  # NVIDIA's advice for Hopper
ROUNDS = 15
FLUSH_BYTES = 2**28  # larger than any L2 cache


class Broken:
    """Stand-in for a file that does not compile: each of its functions raises the compiler's error."""

    def __init__(self, line: int, text: str):
        self._said = (line, text)

    def __getattr__(self, name: str) -> Callable:
        def call(*_, **__):
            raise native.BuildError(*self._said)  # a new one: the traceback of a raised error keeps tensors

        return call


def load(file: Path) -> native.Library | Broken:
    """Compile a CUDA C++ file for this GPU and load it as a module."""
    arch = native.arch_name(*torch.cuda.get_device_capability())
    with tempfile.TemporaryDirectory() as folder:  # a loaded library no longer needs its file
        try:
            return native.load(file, Path(folder), arch, runs=True)
        except native.BuildError as error:
            return Broken(error.line, error.text)
        except OSError as error:
            return Broken(0, f"it compiles but does not load: {error}")


def build(part: str, target: Path, arch: str, nvcc: Path) -> None:
    """Compile one part of peers.cu; ImportError if this machine lacks what it includes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(f".{os.getpid()}")
    # Searched last, so that no header of a wheel hides one that came with nvcc.
    more = [f"-Xcompiler=-idirafter,{folder}" for folder in _of_wheels("include")]
    code = f"-gencode=arch={arch.replace('sm', 'compute')},code={arch}"
    command = [str(nvcc), *FLAGS, f"-DPART_{part.upper()}", code, *more, str(SOURCE), "-o", str(unfinished)]
    done = run_tool(command, LIMIT_S)
    if done.code:
        lines = [line for line in done.said.splitlines() if line.strip()]
        words = next((line for line in lines if "error" in line), lines[0] if lines else "no output")
        raise ImportError(f"peers.cu does not compile here: {words.strip()}")
    unfinished.replace(target)


@functools.cache
def library(part: str) -> ctypes.CDLL:
    """Load one part of peers.cu, compiled on first use; ImportError if this machine lacks what it needs."""
    nvcc = native.compiler()
    if nvcc is None:
        raise ImportError("nvcc was not found")
    arch = native.arch_name(*torch.cuda.get_device_capability())
    digest = hashlib.sha256(SOURCE.read_bytes() + str(nvcc).encode()).hexdigest()[:12]
    target = CACHE.absolute() / f"{part}-{arch}-{digest}.so"
    if not target.is_file():
        build(part, target, arch, nvcc)
    try:
        if part == "product":
            # Not linked, so that its symbols come from the same library that torch.mm calls.
            ctypes.CDLL(cublaslt(), mode=ctypes.RTLD_GLOBAL)
        return ctypes.CDLL(str(target))
    except OSError as error:
        raise ImportError(str(error)) from None


def cublaslt() -> str:
    """Return the path of cublasLt: the one torch has loaded, else a wheel's, else what the loader finds."""
    mapped = (line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text("utf-8").splitlines())
    loaded = (words[5] for words in mapped if len(words) == 6 and "/libcublasLt.so" in words[5])
    in_wheels = (str(path) for folder in _of_wheels("lib") for path in sorted(folder.glob("libcublasLt.so*")))
    return next(loaded, None) or next(in_wheels, None) or "libcublasLt.so"


def _of_wheels(name: str) -> Iterator[Path]:
    """Yield folders of this name in NVIDIA's wheels: one for CUDA 13, one for each library before that."""
    found = importlib.util.find_spec("nvidia")
    for folder in found.submodule_search_locations or () if found else ():
        yield from sorted(Path(folder).glob(f"cu[0-9]*/{name}"), reverse=True)
        yield from Path(folder).glob(f"cublas/{name}")


def _stream() -> ctypes.c_void_p:
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def _at(tensor: torch.Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def _must(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"{what} returned error {code}")


def cub_sum(s: Tensors) -> Call:
    """Prepare CUB's sum, with its workspace allocated."""
    sums, x, out, need = library("sum"), s["x"], s["out"], ctypes.c_size_t()
    n = ctypes.c_longlong(x.numel())
    _must(sums.cub_sum_bytes(n, ctypes.byref(need)), "CUB")
    workspace = torch.empty(max(1, need.value), dtype=torch.uint8, device=x.device)
    kept = (workspace, x, out)  # alive as long as the call
    arguments = (_at(x), _at(out), n, _at(workspace), need)

    def call():
        _must(sums.cub_sum(*arguments, _stream()), "CUB")
        return kept[2:]

    return call


@dataclass(frozen=True)
class Product:
    """A product of cublasLt for one size, and the number of its fastest algorithm."""

    opened: ctypes.c_void_p
    workspace: torch.Tensor
    count: int
    best: int = 0

    def call(self, number: int, a, b, out) -> Call:
        """Return a call that computes a @ b.T by one algorithm."""
        run, size = library("product").product_run, ctypes.c_size_t(WORKSPACE_BYTES)
        arguments = (self.opened, number, _at(a), _at(b), _at(out), _at(self.workspace), size)

        def call():
            _must(run(*arguments, _stream()), "cublasLt")
            return (out,)

        return call


@functools.cache
def product(m: int, n: int, k: int) -> Product:
    """Prepare a product of this size, and time its algorithms beside each other on random matrices."""
    opened, count, device = ctypes.c_void_p(), ctypes.c_int(), "cuda"
    sides, limits = map(ctypes.c_longlong, (m, n, k)), (ctypes.c_size_t(WORKSPACE_BYTES), WANTED)
    _must(
        library("product").product_open(*sides, *limits, ctypes.byref(opened), ctypes.byref(count)),
        "cublasLt",
    )
    workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
    found = Product(opened, workspace, count.value)
    a, b = (torch.randn(rows, k, device=device).bfloat16() for rows in (m, n))
    out = torch.empty(m, n, dtype=torch.bfloat16, device=device)
    calls = [found.call(number, a, b, out) for number in range(found.count)]
    return replace(found, best=fastest(calls, _cold_clock()))


def fastest(calls: Sequence[Call], time_us: Callable[[Call], float]) -> int:
    """Time the calls in turn; return the number of the one with the shortest median, skip failing ones."""
    times = {}
    for number, call in enumerate(calls):
        with contextlib.suppress(RuntimeError):
            time_us(call)
            times[number] = []
    if not times:
        raise RuntimeError(f"none of cublasLt's {len(calls)} algorithms runs")
    for turn in range(ROUNDS):
        for number in list(times) if turn % 2 == 0 else reversed(times):
            times[number].append(time_us(calls[number]))
    return min(times, key=lambda number: statistics.median(times[number]))


def _cold_clock() -> Callable[[Call], float]:
    """Return a clock for one call in microseconds, with a flushed L2; the flush also hides the launch."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def time_us(call):
        flush.zero_()
        start.record()
        call()
        end.record()
        end.synchronize()
        return 1e3 * start.elapsed_time(end)

    return time_us


def _best_of_all(s: Tensors) -> Call:
    found = product(s["a"].shape[0], s["b"].shape[0], s["a"].shape[1])
    return found.call(found.best, s["a"], s["b"], s["out"])


def _chosen(size: Mapping[str, int]) -> dict[str, str]:
    found = product(size["m"], size["n"], size["k"])
    return {"algorithm": f"{found.best + 1} of {found.count}"}


CUB = Peer("CUB", cub_sum)
CUBLASLT = Peer(f"cublasLt best of {WANTED}", _best_of_all, _chosen)
