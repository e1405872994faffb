"""CUDA C++ files: headers from a list, one fixed command, and every file of the capstone compiles."""

import ctypes
import json
import shutil
import subprocess
import types

import pytest
import torch

from grader.codegen import kernel_facts, nvcc, ptxas
from grader.course import catalog, skeleton
from grader.course.todos import open_errors
from grader.screen import includes
from grader.system import gpu
from grader.tests.helpers.commands import grade, python
from grader.tests.helpers.course import ROOT
from grader.tests.helpers.results_json import items_of, read_results
from grader.worker.launch_audit import _is_one_of

# The oldest with bf16 in its tensor cores, the one of the worked example, and the newest that nvcc knows.
ARCHS = ("sm_80", "sm_90a", "sm_121")
SOLVED = ROOT / "solutions" / "gpu-programming" / "cuda-kernels"
FILES = sorted(path for path in SOLVED.glob("*/*.cu") if path.parent.name != "wrong")
WRONG = [
    path for path in sorted(SOLVED.glob("wrong/*.cu")) if not list(includes.unwanted(path.read_text("utf-8")))
]
EVERYDAY = {"reduction/05_deterministic", "wrong/sum_without_a_barrier"}  # compiled by `make test`
NVCC = nvcc.compiler()
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
    "another name for the lines": ('int x;\n#line 1 "stdint.h"\n# 1 "stddef.h" 1', [2, 3]),
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
    assert [line for line, _ in includes.unwanted(source, given=("hopper.cuh",))] == lines


@pytest.mark.skipif(NVCC is None, reason="no nvcc")
class TestCompiler:
    def test_a_library_comes_with_what_each_kernel_uses(self, tmp_path):
        file, library = tmp_path / "add.cu", tmp_path / "add.so"
        file.write_text(ADD)
        kernels = nvcc.build(file, library, ("sm_80", "sm_90a"), NVCC)
        assert [(one.name, one.spill_bytes) for one in kernels] == [("add_kernel", 0)] * 2
        assert [one.arch for one in kernels] == ["sm_80", "sm_90a"]
        read = kernel_facts.read_native(library, 90)
        assert [one.name for one in read] == ["add_kernel"] * 2
        assert all(one.registers > 4 and one.spill_bytes == 0 for one in read)
        assert sorted(one.shared_bytes for one in read) == [256, 1280]  # from sm_90 on 1 KB is the system's
        assert ctypes.CDLL(str(library)).seven() == 7

    def test_what_spills_is_seen(self, tmp_path):
        file = tmp_path / "spill.cu"
        loads = "".join(f"float v{i} = x[t + {i} * n];\n" for i in range(96))
        sums = "".join(f"x[t + {i} * n] = v{i} * v{(7 * i + 3) % 96};\n" for i in range(96))
        head = (
            "__global__ void __launch_bounds__(1024, 2) k(volatile float* x, int n) { int t = threadIdx.x;\n"
        )
        file.write_text(head + loads + sums + "}\n")
        library = tmp_path / "spill.so"
        (kernel,) = nvcc.build(file, library, ("sm_90a",), NVCC)
        assert kernel.spill_bytes > 0
        (read,) = kernel_facts.read_native(library, 90)
        assert read.registers <= 32
        assert read.spill_bytes > 0

    def test_kernels_without_a_namespace_of_a_name_are_told_apart(self, tmp_path):
        file = tmp_path / "hidden.cu"
        file.write_text(
            "namespace { __global__ void hidden_kernel(float* x) { *x = 1; } }\n"
            "static __global__ void own_kernel(float* x) { *x = 2; }\n"
            'extern "C" int f(float* x) { hidden_kernel<<<1, 1>>>(x); own_kernel<<<1, 1>>>(x); return 0; }\n'
        )
        kernels = nvcc.build(file, tmp_path / "hidden.so", ("sm_90a",), NVCC)
        own = [one.name for one in kernels]
        assert _is_one_of("(anonymous namespace)::hidden_kernel(float*)", own)
        assert _is_one_of("own_kernel(float*)", own)
        assert not _is_one_of("(anonymous namespace)::another_kernel(float*)", own)

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
        with pytest.raises(nvcc.BuildError) as failed:
            nvcc.build(file, tmp_path / "wrong.so", ("sm_90a",), NVCC)
        assert failed.value.line == line
        assert words in failed.value.text


HOST = """#include <cuda_runtime.h>

extern "C" int scale(const float* x, float* out, long long n, int times, cudaStream_t stream) {
    if (stream != (cudaStream_t)77 || n < 0) return cudaErrorInvalidValue;
    for (long long i = 0; i < n; ++i) out[i] = times * x[i];
    return cudaSuccess;
}
"""


@pytest.mark.skipif(NVCC is None, reason="no nvcc")
def test_a_function_gets_pointers_then_sizes_then_the_stream(tmp_path, monkeypatch):
    file = tmp_path / "scale.cu"
    file.write_text(HOST)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: types.SimpleNamespace(cuda_stream=77))
    library = nvcc.load(file, tmp_path, "sm_90a", runs=True)
    x, out = torch.arange(5.0), torch.zeros(5)
    library.scale(x, sizes=(5, 3), out=out)
    assert out.tolist() == [0.0, 3.0, 6.0, 9.0, 12.0]
    with pytest.raises(RuntimeError, match="scale returned 1"):
        library.scale(x, sizes=(-1, 3), out=out)
    with pytest.raises(AttributeError):
        library.another(x)
    file.write_text("what lies there already is not compiled again")
    nvcc.load(file, tmp_path, "sm_90a", runs=True).scale(x, sizes=(5, 1), out=out)
    assert out.tolist() == x.tolist()


@pytest.mark.parametrize(
    ("name", "mine"),
    [
        ("add_kernel(float const*, float*, int)", True),
        ("void ns::tile_kernel<128, 64>(CUtensorMap)", True),
        ("plain_kernel", True),
        ("_Z10add_kernelPKfPfi", True),
        ("(anonymous namespace)::hidden_kernel(float*)", True),
        ("void cutlass::Kernel2<cutlass_80_tensorop>(Params)", False),
        ("nvjet_sm90_tst_128x256", False),
        ("kernel(float*)", False),
        ("", False),
    ],
)
def test_a_kernel_is_known_by_its_name_whoever_tells_it(name, mine):
    own = ["add_kernel", "ns::tile_kernel", "plain_kernel", "_GLOBAL__N__28af_4_a_cu_37::hidden_kernel"]
    assert _is_one_of(name, own) is mine


@pytest.mark.parametrize(
    ("mangled", "plain"),
    [
        ("_Z10add_kernelPKfPfi", "add_kernel"),
        ("_ZN2ns11tile_kernelILi128ELi64EEEv14CUtensorMap_st", "ns::tile_kernel"),
        ("_Z9add_tilesI6float4Lb1EEvPKT_", "add_tiles"),
        ("plain_kernel", "plain_kernel"),
        ("_Z", "_Z"),
    ],
)
def test_a_kernel_is_shown_by_its_plain_name(mangled, plain):
    assert ptxas.plain_name(mangled) == plain


# -- the capstone's own files

(ENTRY,) = (entry for entry in catalog.capstone() if entry.folder.name == "cuda-kernels")
EXERCISES = {one.name: one for one in ENTRY.lab.exercises}


def nightly_but_for(names, files):
    """A parameter for each file; those that are not named are compiled at night."""
    found = {f"{file.parent.name}/{file.stem}": file for file in files}
    assert found.keys() & names, "none of the files is compiled every day"
    return [
        pytest.param(file, id=name, marks=[] if name in names else [pytest.mark.nightly])
        for name, file in found.items()
    ]


def test_there_are_files_to_compile():
    assert len(FILES) >= 20
    assert {f"{file.parent.name}/{file.stem}" for file in FILES + WRONG} >= EVERYDAY


@pytest.mark.skipif(NVCC is None, reason="no nvcc")
@pytest.mark.parametrize("file", nightly_but_for(EVERYDAY, FILES))
def test_every_file_compiles_for_old_and_new_gpus_and_spills_nothing(file, tmp_path):
    kernels = nvcc.build(file, tmp_path / "built.so", ARCHS, NVCC)
    assert {one.arch for one in kernels} == set(ARCHS)
    assert [one for one in kernels if one.spill_bytes] == []


def test_there_are_wrong_answers_to_compile():
    assert len(WRONG) >= 10


@pytest.mark.skipif(NVCC is None, reason="no nvcc")
@pytest.mark.parametrize("file", nightly_but_for(EVERYDAY, WRONG))
def test_every_wrong_answer_that_is_let_in_compiles(file, tmp_path):
    assert nvcc.build(file, tmp_path / "built.so", ("sm_90a",), NVCC)


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_every_file_includes_what_is_permitted(file):
    given = [path.name for path in SOLVED.rglob("*.cuh")]
    assert list(includes.unwanted(file.read_text("utf-8"), [*given, *(f"../{name}" for name in given)])) == []


def test_what_students_get_is_rendered_from_the_solutions():
    kept = {path.relative_to(SOLVED): path for path in SOLVED.rglob("*.cu*")}
    texts = {name: skeleton.render_native(path.read_text("utf-8")) for name, path in kept.items()}
    handed_out = {
        ROOT / "gpu-programming" / "cuda-kernels" / name: text for name, text in texts.items() if text
    }
    asked = {ENTRY.folder / one.file for one in EXERCISES.values()}
    assert set(handed_out) == asked | set(ENTRY.given)
    assert all(path.read_text("utf-8") == text for path, text in handed_out.items())


@pytest.mark.parametrize("name", EXERCISES)
def test_an_untouched_file_has_its_tasks_and_does_not_compile(name, tmp_path):
    file = ENTRY.submission(ROOT / "labs", EXERCISES[name])
    todos = open_errors(file.read_text("utf-8"))
    assert [todo.number for todo in todos] == list(range(1, len(todos) + 1))
    assert todos
    if NVCC:
        with pytest.raises(nvcc.BuildError, match="TODO 1: "):
            nvcc.build(file, tmp_path / "built.so", ("sm_90a",), NVCC)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("// BEGIN TODO 1: a (about 1 line)\nint x;\n", "without its END"),
        ("// END TODO 1\n", "without its BEGIN"),
        ("// BEGIN TODO 2: a (about 1 line)\nint x;\n// END TODO 2\n", "number them from 1 without gaps"),
        ("// BEGIN TODO 1: a\nint x;\n// END TODO 1\n", "without"),
        ("// BEGIN TODO 1: a (about 1 line)\nint x;\n// END TODO 2\n", "without"),
        ("// BEGIN TODO 1: a (about 1 line)\n// why\n// END TODO 1\n", "without"),
    ],
)
def test_marks_that_do_not_pair_are_refused(source, words):
    with pytest.raises(ValueError, match=words):
        skeleton.render_native(source)


def capstone(*arguments, folder, keyword="cuda-kernels"):
    done = grade("--lab", "capstone", "-k", keyword, *arguments, "--results", folder / "results")
    (lab,) = read_results(folder / "results")["labs"]
    return done, {item["id"]: item for item in items_of(lab)}


@pytest.mark.slow
@pytest.mark.skipif(NVCC is None, reason="no nvcc")
def test_without_a_gpu_the_solution_is_compiled_and_nothing_counts_as_failed(tmp_path):
    done, items = capstone("--from", "solutions", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    compiled = {name: item for name, item in items.items() if "/codegen/" in name}
    assert {item["verdict"] for item in compiled.values()} == {"PASS"}
    assert len(compiled) == len(EXERCISES)
    assert {item["verdict"] for name, item in items.items() if name not in compiled} == {"NOT_GRADED"}
    (kernels, *_) = (item["kernels"] for item in compiled.values())
    assert max(width for kernel in kernels for width in kernel["load_widths_bytes"]) == 16


def test_untouched_files_are_not_started(tmp_path):
    done, items = capstone(folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {item["verdict"] for item in items.values()} == {"NOT_STARTED"}
    assert "TODO 1" in done.stdout
    told = python("-m", "grader", "todo", "--lab", "capstone")
    assert "02_vectorised.cu" in told.stdout


MISTAKES = {
    "error": (
        "    return cudaErrorInvalidValue",
        "    return cudaErrorInvalidValu",
        "COMPILE_ERROR",
        "undefined",
    ),
    "header": ("#include <cstdint>", "#include <iostream>", "POLICY", "iostream is not on the list"),
    "cuBLAS": ("#include <cstdint>", "#include <cublas_v2.h>", "POLICY", "cublas_v2.h is not on the list"),
}


@pytest.mark.slow
@pytest.mark.skipif(NVCC is None, reason="no nvcc")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_file_that_is_refused_or_does_not_compile_says_where(mistake, tmp_path):
    old, new, verdict, words = MISTAKES[mistake]
    exercise = EXERCISES["vector_add"]
    text = (ROOT / ENTRY.submission(ROOT / "solutions", exercise)).read_text("utf-8")
    file = ENTRY.submission(tmp_path / "tree", exercise)
    file.parent.mkdir(parents=True)
    line = next(number for number, code in enumerate(text.split("\n"), start=1) if old.strip() in code)
    file.write_text(text.replace(old.strip(), new.strip(), 1))
    keyword = "vector_add and codegen"
    _, items = capstone("--from", tmp_path / "tree", folder=tmp_path, keyword=keyword)
    (item,) = items.values()
    assert item["verdict"] == verdict
    assert words in item["where"]
    assert f"line {line}" in item["where"] or item["frames"][0]["line"] == line


SIZES = {
    "vector_add": ("4099", "1048581"),
    "reduction": ("4099", "1048581"),
    "matmul": ("256x384x520", "1000x264x1000"),
}


@pytest.mark.slow
def test_without_a_gpu_a_program_says_so_and_has_measured_nothing(tmp_path):
    if gpu.find()[0] or not NVCC:
        pytest.skip("there is a GPU, or no nvcc")
    program = tmp_path / "program"
    subprocess.run([NVCC, "-std=c++17", FILES[0].name, "-o", program], cwd=FILES[0].parent, check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "No GPU" in done.stderr


# A CUDA runtime on the CPU: kernels do nothing, so a result that nobody wrote stays NaN and every sum is 0.
RUNTIME = """#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

float now_ms;

extern "C" {
cudaError_t cudaMalloc(void** p, size_t n) { return *p = std::malloc(n), cudaSuccess; }
cudaError_t cudaFree(void* p) { return std::free(p), cudaSuccess; }
cudaError_t cudaMemsetAsync(void* p, int byte, size_t n, cudaStream_t) {
    return std::memset(p, byte, n), cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind, cudaStream_t) {
    return std::memmove(to, from, n), cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) { return *free = *total = 1ull << 40, cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* gpu, int) { return *gpu = {}, cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t* event) { return *event = cudaEvent_t(new float), cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
    return *reinterpret_cast<float*>(event) = now_ms, cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
    return *ms = *reinterpret_cast<float*>(to) - *reinterpret_cast<float*>(from), cudaSuccess;
}
}
"""
SLOW = """#include <cstdlib>
#include <cuda_runtime.h>

extern float now_ms;

extern "C" int reduce_sum(const float*, float* out, long long, cudaStream_t) {
    now_ms += std::atof(std::getenv("CALL_MS"));
    *out = 0.0f;
    return cudaSuccess;
}

#include "program.cuh"
PROGRAM_REDUCTION(reduce_sum)
"""


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """A program whose one kernel takes CALL_MS of its environment."""
    folder = tmp_path_factory.mktemp("slow")
    for name, text in (("runtime.cpp", RUNTIME), ("slow.cu", SLOW)):
        (folder / name).write_text(text)
    shutil.copyfile(SOLVED / "program.cuh", folder / "program.cuh")
    # The functions above come first, and all others from the runtime itself.
    command = [NVCC, "-std=c++17", "-Xlinker=-zmuldefs", "slow.cu", "runtime.cpp", "-o", "program"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "program"


@pytest.mark.slow
@pytest.mark.skipif(NVCC is None, reason="no nvcc")
@pytest.mark.parametrize("call_ms", [0.05, 50.0, 500.0])
def test_a_program_checks_only_what_it_has_called_however_long_a_call_takes(slow, call_ms):
    done = subprocess.run(
        [slow, "100003"], env={"CALL_MS": str(call_ms)}, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = map(json.loads, done.stdout.splitlines())
    assert line["right"] is True
    assert line["median_us"] == pytest.approx(1e3 * call_ms, rel=1e-2)


@pytest.mark.gpu
@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_every_step_is_right_as_a_program_on_a_gpu(file, tmp_path):
    arch = nvcc.arch_name(*torch.cuda.get_device_capability())
    program = tmp_path / "program"
    command = [NVCC, "-std=c++17", "-O3", f"-arch={arch}", file.name, "-o", program]
    subprocess.run(command, cwd=file.parent, check=True)
    sizes = SIZES[file.parent.name]
    done = subprocess.run([program, *sizes], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == len(sizes)
    assert all(line["right"] for line in lines)


@pytest.mark.gpu(command=True)
@pytest.mark.whole_gpu
def test_the_capstone_is_right_on_a_gpu(tmp_path):
    keyword = "cuda-kernels and correctness"
    done, items = capstone("--from", "solutions", "--tier", "gpu", folder=tmp_path, keyword=keyword)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {item["verdict"] for item in items.values()} == {"PASS"}


def test_placeholders_are_read_from_their_error_lines():
    text = '#error "TODO 1: the tail"\nint x;\n  #error "TODO 12: one partial for each block"\n// TODO 3\n'
    found = [(todo.number, todo.text, todo.line) for todo in open_errors(text)]
    assert found == [(1, "the tail", 1), (12, "one partial for each block", 3)]
