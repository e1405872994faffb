"""Launches of CUDA C++ without a GPU: what a GPU would refuse is found, and everything else is accepted."""

import pytest
import torch

from grader.codegen import launch_probe, nvcc
from grader.system.processes import run_tool
from grader.tests.helpers.commands import python
from grader.tests.helpers.course import ROOT

SOLVED = sorted((ROOT / "solutions/gpu-programming/cuda-kernels").glob("*/[0-9]*.cu"))
needs_nvcc = pytest.mark.skipif(nvcc.compiler() is None, reason="needs nvcc")
SOURCE = """#include <cuda_runtime.h>
__global__ void twice(float* x, int n) {
    __shared__ float tile[SHARED];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = 2.0f * tile[n % SHARED];
}
__global__ void large(float* x) {
    extern __shared__ float tile[];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[0];
}
LINKAGE int scale(float* x, float* out, long long n, cudaStream_t stream) {
    LAUNCH
    return cudaGetLastError();
}
"""


def called(folder, launch, shared="64", linkage='extern "C"', n=5):
    """Load a file with this launch, and call its function."""
    file = folder / "scale.cu"
    text = SOURCE.replace("LAUNCH", launch).replace("SHARED", shared).replace("LINKAGE", linkage)
    file.write_text(text)
    library = nvcc.load(file, folder, "sm_90a", runs=False, checked=True)
    x = torch.zeros(4)
    library.scale(x, sizes=(n,), out=x)


@needs_nvcc
@pytest.mark.parametrize(
    "launch",
    [
        "twice<<<7, dim3(32, 32), 0, stream>>>(x, 1);",
        "twice<<<dim3(1 << 30, 65535), 1024, 47 * 1024, stream>>>(x, 1);",
        "if (n > 0) twice<<<(int)n, 256, 0, stream>>>(x, 1);",
        "cudaFuncSetAttribute(large, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10);\n"
        "    large<<<1, 256, 200 << 10, stream>>>(x);",
        "int sms = 0;\n    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);\n"
        "    large<<<sms, 256, 1024, stream>>>(x);",
        "float* scratch = nullptr;\n    if (cudaMallocAsync(&scratch, 4 * n, stream)) return 1;\n"
        "    twice<<<1, 32, 0, stream>>>(scratch, 1);\n    cudaFreeAsync(scratch, stream);",
    ],
)  # fmt: skip
def test_what_a_gpu_accepts_is_accepted(tmp_path, launch):
    called(tmp_path, launch)


@needs_nvcc
@pytest.mark.parametrize(
    ("launch", "shared", "words"),
    [
        ("twice<<<1, dim3(64, 64), 0, stream>>>(x, 1);", "64", "4,096 threads"),
        ("twice<<<1, 0, 0, stream>>>(x, 1);", "64", "0 threads"),
        ("twice<<<1, dim3(1, 1, 128), 0, stream>>>(x, 1);", "64", "128 threads"),
        ("twice<<<(int)n - 5, 64, 0, stream>>>(x, 1);", "64", "0 blocks"),
        ("twice<<<dim3(1, 65536), 64, 0, stream>>>(x, 1);", "64", "65,536 blocks"),
        ("twice<<<1, 64, 0, stream>>>(x, 1);", "20000", "80,000 bytes"),
        ("large<<<1, 64, 64 << 10, stream>>>(x);", "64", "cudaFuncSetAttribute"),
        ("cudaFuncSetAttribute(large, cudaFuncAttributeMaxDynamicSharedMemorySize, 300 << 10);\n"
         "    large<<<1, 64, 300 << 10, stream>>>(x);", "64", "307,200 bytes"),
    ],
)  # fmt: skip
def test_what_a_gpu_refuses_is_an_error_at_its_line(tmp_path, launch, shared, words):
    with pytest.raises(nvcc.BuildError, match=words) as refused:
        called(tmp_path, launch, shared)
    text = (tmp_path / "scale.cu").read_text().splitlines()
    assert "<<<" in text[refused.value.line - 1]


@needs_nvcc
def test_a_function_of_cpp_is_not_the_one_that_is_called(tmp_path):
    with pytest.raises(AttributeError):
        called(tmp_path, "twice<<<1, 64, 0, stream>>>(x, 1);", linkage="")


@needs_nvcc
def test_a_function_that_a_file_does_not_have_is_no_function(tmp_path):
    (tmp_path / "a.cu").write_text('extern "C" int other() { return 0; }\n')
    library = nvcc.load(tmp_path / "a.cu", tmp_path, "sm_90a", runs=False, checked=True)
    assert getattr(library, "scale", None) is None


@pytest.mark.slow
@needs_nvcc
@pytest.mark.parametrize("file", SOLVED, ids=lambda file: file.stem)
def test_every_step_of_the_course_is_linked_with_the_stub(tmp_path, file):
    folder = tmp_path / "code" / file.parent.name
    folder.mkdir(parents=True)
    for one in (*file.parent.glob("*.cu*"), *file.parent.parent.glob("*.cuh")):
        to = folder if one.parent == file.parent else folder.parent
        (to / one.name).write_text(one.read_text())
    nvcc.load(folder / file.name, tmp_path, "sm_90a", runs=False, checked=True)
    assert nvcc.probe_of(nvcc.library(file, tmp_path, "sm_90a")).is_file()


def test_the_line_of_a_launch_is_found_and_not_that_of_the_kernel():
    text = "__global__ void k(int n) {\n    int x;\n}\nvoid f() {\n    k<int>\n        <<<1, 1>>>(2);\n}\n"
    assert launch_probe.launch_line(text, "space::k") == 6
    assert launch_probe.launch_line(text, "other") == 0
    assert launch_probe.launch_line(text, "") == 0


@needs_nvcc
def test_launches_are_looked_at_where_the_process_has_a_cuda_runtime(tmp_path):
    # PyTorch for GPUs loads CUDA's runtime for the whole process, before the file.
    (tmp_path / "runtime.c").write_text("int cudaLaunchKernel() { return 304; }\n")
    runtime = tmp_path / "runtime.so"
    assert run_tool(["cc", "-shared", "-fPIC", str(tmp_path / "runtime.c"), "-o", str(runtime)], 60).code == 0
    text = SOURCE.replace("LAUNCH", "twice<<<1, 4096, 0, stream>>>(x, 1);").replace("SHARED", "64")
    (tmp_path / "scale.cu").write_text(text.replace("LINKAGE", 'extern "C"'))
    done = python(
        "-c",
        "import ctypes, sys, torch; from pathlib import Path; from grader.codegen import nvcc\n"
        "folder = Path(sys.argv[1]); ctypes.CDLL(str(folder / 'runtime.so'), mode=ctypes.RTLD_GLOBAL)\n"
        "library = nvcc.load(folder / 'scale.cu', folder, 'sm_90a', runs=False, checked=True)\n"
        "x = torch.zeros(4); library.scale(x, sizes=(5,), out=x)",
        str(tmp_path),
    )
    assert "a block of 4,096 threads" in done.stderr
