"""CUDA C++ files: headers from a list, one fixed command, and every file of the capstone compiles."""

import ctypes
import re

import pytest
from conftest import ROOT

from grader import native

# The oldest with bf16 in its tensor cores, the one of the worked example, and the newest that nvcc knows.
ARCHS = ("sm_80", "sm_90a", "sm_121")
FILES = sorted((ROOT / "solutions" / "gpu-programming" / "cuda-kernels").glob("*/*.cu"))
NVCC = native.compiler()
ADD = """#include <cuda_runtime.h>

__global__ void add_kernel(float* x) {
    __shared__ float kept[64];
    kept[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = kept[63 - threadIdx.x];
}

extern "C" int seven() { return 7; }
"""

INCLUDES = {
    "on the list": ('#include <cuda_bf16.h>\n#include "mma.h"', []),
    "given": ('#include "hopper.cuh"', []),
    "of the system": ("int x;\n#include <iostream>", [2]),
    "a path": ('#include "/etc/passwd"', [1]),
    "below the folder": ('#include "../secret.h"', [1]),
    "by a macro": ("#define H <iostream>\n#include H", [2]),
    "over two lines": ("#incl\\\nude <iostream>", [1]),
    "behind a line that goes on": ("int a; \\\n\\\n\n#include <iostream>", [4]),
    "in a comment": ("/* \n#include <iostream>\n*/ // #include <iostream>", []),
    "behind a comment": ("/* a\nb */ #include <iostream>", [2]),
    "in a string": ('const char* s = "\\"#include <iostream>";', []),
    "in a raw string": ('const char* s = R"x(\n#include <iostream>\n)" )x";', []),
    "behind a raw string": ('const char* s = R"x(\n)x";\n#include <iostream>', [3]),
    "by digraph": ("%:include <iostream>", [1]),
    "next": ("#include_next <cuda.h>", [1]),
    "embedded": ('const char s[] = {\n#embed "/etc/passwd"\n};', [2]),
}


@pytest.mark.parametrize(("source", "lines"), INCLUDES.values(), ids=INCLUDES)
def test_a_file_includes_what_is_on_the_list(source, lines):
    assert [line for line, _ in native.unwanted(source, given=("hopper.cuh",))] == lines


@pytest.mark.skipif(NVCC is None, reason="no nvcc")
class TestCompiler:
    def test_a_library_comes_with_what_each_kernel_uses(self, tmp_path):
        file, library = tmp_path / "add.cu", tmp_path / "add.so"
        file.write_text(ADD)
        kernels = native.build(file, library, ("sm_80", "sm_90a"), NVCC)
        assert [(re.sub(r"\W", "", one.name), one.arch) for one in kernels] == [
            ("_Z10add_kernelPf", "sm_80"), ("_Z10add_kernelPf", "sm_90a"),
        ]  # fmt: skip
        assert all(one.registers > 4 and one.shared_bytes == 256 and one.spill_bytes == 0 for one in kernels)
        assert ctypes.CDLL(str(library)).seven() == 7

    def test_what_spills_is_seen(self, tmp_path):
        file = tmp_path / "spill.cu"
        loads = "".join(f"float v{i} = x[t + {i} * n];\n" for i in range(96))
        sums = "".join(f"x[t + {i} * n] = v{i} * v{(7 * i + 3) % 96};\n" for i in range(96))
        head = (
            "__global__ void __launch_bounds__(1024, 2) k(volatile float* x, int n) { int t = threadIdx.x;\n"
        )
        file.write_text(head + loads + sums + "}\n")
        (kernel,) = native.build(file, tmp_path / "spill.so", ("sm_90a",), NVCC)
        assert kernel.registers <= 32
        assert kernel.spill_bytes > 0

    @pytest.mark.parametrize(
        ("text", "line", "words"),
        [
            ("\nint f( { return 1; }\n", 2, "exp"),
            ('\n\n#error "TODO 1: one sum for each thread"\n', 3, "TODO 1"),
            ("__global__ void k() { int x = y; }\n", 1, '"y" is undefined'),
        ],
    )
    def test_an_error_has_the_line_and_the_words_of_the_compiler(self, tmp_path, text, line, words):
        file = tmp_path / "wrong.cu"
        file.write_text(text)
        with pytest.raises(native.BuildError) as failed:
            native.build(file, tmp_path / "wrong.so", ("sm_90a",), NVCC)
        assert failed.value.line == line
        assert words in failed.value.text


def test_placeholders_are_read_from_their_error_lines():
    text = '#error "TODO 1: the tail"\nint x;\n  #error "TODO 12: one partial for each block"\n// TODO 3\n'
    assert native.placeholders(text) == [(1, "the tail"), (12, "one partial for each block")]
