"""CUDA C++ in `make bench`: what does not compile or cannot be captured, our peers, the best of cublasLt."""

import contextlib
import ctypes
import subprocess

import pytest
import torch

from grader.codegen import nvcc
from grader.measure.bench import native as bench_native
from grader.measure.bench.native import Broken, fastest, load
from grader.measure.bench.rounds import CudaClock

NVCC = nvcc.compiler()
SEVEN = 'extern "C" int seven(void* stream) { return 7; }\n'


@pytest.fixture
def hopper(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))


class Timed:
    """Calls by number, and the microseconds that each takes, one after the other."""

    def __init__(self, *times):
        self.left, self.order = [list(reversed(one)) for one in times], []
        self.calls = [lambda number=number: number for number in range(len(times))]

    def time_us(self, call):
        number = call()
        self.order.append(number)
        if not self.left[number]:
            raise RuntimeError("cublasLt returned error 7")
        return self.left[number].pop()


def test_the_fastest_call_is_that_of_the_shortest_median():
    timed = Timed([9.0] + 15 * [5.0], [1.0] * 8 + 8 * [9.0], [9.0] + 8 * [4.0] + 7 * [30.0])
    assert fastest(timed.calls, timed.time_us) == 2
    assert timed.order[:9] == [0, 1, 2, 0, 1, 2, 2, 1, 0]


def test_a_call_that_fails_is_left_out():
    timed = Timed([], 16 * [5.0])
    assert fastest(timed.calls, timed.time_us) == 1
    with pytest.raises(RuntimeError, match="none of cublasLt's 2 algorithms"):
        fastest(timed.calls[:1] * 2, timed.time_us)


@pytest.mark.parametrize("ends", [True, False])
def test_an_error_under_capture_is_told_and_the_stream_is_as_before(monkeypatch, ends):
    streams = []

    @contextlib.contextmanager
    def graph(_):
        try:
            yield
        finally:
            streams.append("captured")
            if not ends:
                raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    def work():
        raise RuntimeError("reduce_sum returned 900")

    for name, value in {
        "CUDAGraph": object, "graph": graph, "synchronize": lambda: None, "current_stream": lambda: "usual",
        "set_stream": streams.append,
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, value)
    with pytest.raises(RuntimeError, match="reduce_sum returned 900"):
        CudaClock.graph(None, work)
    if not ends:
        with pytest.raises(RuntimeError, match="previous error during capture"):
            CudaClock.graph(None, lambda: None)
    assert streams[:2] == ["captured", "usual"]


class Parts:
    """Stands for both parts of peers.cu: notes what they are called with."""

    def __init__(self, code=0):
        self.code, self.got = code, []

    def cub_sum_bytes(self, n, need):
        ctypes.cast(need, ctypes.POINTER(ctypes.c_size_t))[0] = 64
        return 0 if n.value else 1

    def _note(self, *arguments):
        self.got = [getattr(one, "value", one) for one in arguments]
        return self.code

    cub_sum = product_run = _note


@pytest.fixture
def parts(monkeypatch):
    made = Parts()
    monkeypatch.setattr(bench_native, "library", lambda _: made)
    monkeypatch.setattr(bench_native, "_stream", lambda: ctypes.c_void_p(77))
    return made


def test_cub_gets_addresses_its_workspace_and_the_stream(parts):
    s = {"x": torch.ones(1000), "out": torch.zeros(1)}
    call = bench_native.cub_sum(s)
    assert call() == (s["out"],)
    x, out, n, workspace, need, stream = parts.got
    assert (x, out, n, need, stream) == (s["x"].data_ptr(), s["out"].data_ptr(), 1000, 64, 77)
    assert workspace not in (x, out, None)
    parts.code = 700
    with pytest.raises(RuntimeError, match="CUB returned error 700"):
        call()


def test_a_product_runs_by_the_algorithm_that_is_named(parts):
    a, b, out = (torch.ones(4, 4) for _ in range(3))
    found = bench_native.Product(ctypes.c_void_p(5), torch.empty(8), count=8)
    assert found.call(3, a, b, out)() == (out,)
    addresses = [one.data_ptr() for one in (a, b, out, found.workspace)]
    assert parts.got == [5, 3, *addresses, bench_native.WORKSPACE_BYTES, 77]


def test_cublaslt_is_the_one_that_torch_has_loaded(monkeypatch, tmp_path):
    maps = "7f00-7f01 r-xp 00000000 00:01 42    /opt/a b/libcublasLt.so.13\n7f02-7f03 rw-p 0000 00:00 0\n"
    monkeypatch.setattr(bench_native.Path, "read_text", lambda *_: maps)
    assert bench_native.cublaslt() == "/opt/a b/libcublasLt.so.13"
    maps = ""
    wheel = tmp_path / "cu13" / "lib"
    wheel.mkdir(parents=True)
    (wheel / "libcublasLt.so.13").touch()
    monkeypatch.setattr(bench_native, "_of_wheels", lambda name: iter(tmp_path.glob(f"cu13/{name}")))
    assert bench_native.cublaslt() == str(wheel / "libcublasLt.so.13")


@pytest.mark.usefixtures("hopper")
def test_a_machine_without_nvcc_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(nvcc, "compiler", lambda: None)
    with pytest.raises(ImportError, match="nvcc was not found"):
        bench_native.library("sum")
    with pytest.raises(nvcc.BuildError, match="nvcc was not found"):
        load(tmp_path / "sum.cu").reduce_sum()


@pytest.mark.skipif(NVCC is None, reason="no nvcc")
@pytest.mark.usefixtures("hopper")
class TestCompiler:
    @pytest.mark.slow
    def test_two_files_of_one_name_are_two_libraries(self, tmp_path):
        found = []
        for folder, number in (("a", 7), ("b", 8)):
            file = tmp_path / folder / "same.cu"
            file.parent.mkdir()
            file.write_text(SEVEN.replace("7", str(number)))
            found.append(load(file)._library.seven(None))
        assert found == [7, 8]

    def test_a_file_that_does_not_compile_raises_what_the_compiler_said_when_it_is_called(self, tmp_path):
        file = tmp_path / "sum.cu"
        file.write_text("\nint f() { return offs; }\n")
        module = load(file)
        assert isinstance(module, Broken)
        with pytest.raises(nvcc.BuildError, match=r'^line 2: identifier "offs" is undefined'):
            module.reduce_sum(1, sizes=(1,), out=2)

    @pytest.mark.slow
    def test_the_sum_of_peers_compiles_once_and_says_that_there_is_no_gpu(self, tmp_path, monkeypatch):
        monkeypatch.setattr(bench_native, "CACHE", tmp_path)
        bench_native.library.cache_clear()
        library, need = bench_native.library("sum"), ctypes.c_size_t()
        (built,) = tmp_path.iterdir()
        assert built.name.startswith("sum-sm_90a-")
        asked = library.cub_sum_bytes(ctypes.c_longlong(1000), ctypes.byref(need))
        assert (asked == 0) == torch.cuda.is_available()
        bench_native.library.cache_clear()
        monkeypatch.setattr(bench_native, "build", lambda *_: pytest.fail("it lies there already"))
        assert bench_native.library("sum").cub_sum

    def test_the_product_of_peers_compiles_where_there_is_a_cublaslt(self, tmp_path):
        target, failed = tmp_path / "product.so", ""
        try:
            bench_native.build("product", target, "sm_90a", NVCC)
        except ImportError as error:
            failed = str(error)
        if failed:
            assert "cublasLt.h: No such file" in failed
            pytest.skip(failed)
        symbols = subprocess.run(["nm", "-D", target], capture_output=True, text=True, check=True).stdout
        assert all(f" T {name}\n" in symbols for name in ("product_open", "product_run"))
