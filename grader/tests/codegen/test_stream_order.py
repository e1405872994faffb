"""A host function that waits for the GPU, or works elsewhere than on its stream, is refused with its line."""

import re

import pytest

from grader.codegen import cpp_tokens, cuda_calls, native_check, nvcc, stream_order
from grader.tests.helpers.course import ROOT

SPECIMENS = sorted((ROOT / "grader/tests/codegen/stream_order").glob("*.cu"))
HEAD = "void f(float* p, int n, cudaStream_t stream) {\n"


def found(body, head=HEAD, refused=()):
    """The findings for a function with this body; the body begins in line 2."""
    lines = tuple(f"{head}{body}\n}}".split("\n"))
    places = tuple(("a.cu", number) for number in range(1, len(lines) + 1))
    return stream_order.findings(cpp_tokens.Text(lines, places, None), refused, "a.cu")


PASSES = {
    "a launch": "k<<<n, 1, 0, stream>>>(p);",
    "template arguments": "k<1, a<b<2>>><<<dim3(n, 1), max(1, 2), h(3), stream>>>(p);",
    "wrapped names": "(k<2>)<<<1, 1, 0, stream>>>(p); (f)(p, n, stream);",
    "nested template closers": "g<a<b<c>>>(p); k<<<1, 1, 0, stream>>>(p);",
    "an alias": "cudaStream_t s = stream;\nconst cudaStream_t t{s};\nk<<<1, 1, 0, t>>>(p);",
    "a lambda by reference": "auto go = [&, n](int b) { k<<<b, 1, 0, stream>>>(p); };\ngo(1);",
    "a lambda that names it": "auto go = [p, stream] { k<<<1, 1, 0, stream>>>(p); };",
    "a comparison and a cast to void": "if (stream == nullptr) return;\n(void)stream;",
    "scratch": "cudaMallocAsync(&p, n * sizeof(float), stream);\ncudaFreeAsync(p, stream);",
    "a pool": "cudaMallocAsync(&p, n, pool, stream);",
    "memset and copy": "cudaMemsetAsync(p, 0, 4, stream);\n"
    "cudaMemcpyAsync(p, p, 4, cudaMemcpyDeviceToDevice, stream);",
    "its own helper": "f(p, g<1, 2>(n), stream);",
    "a config": "cudaLaunchConfig_t c = {};\nc.gridDim = 3;\nc.stream = stream;\n"
    "cudaLaunchKernelEx(&c, k, p);",
    "a config by position": "cudaLaunchConfig_t c{dim3(1), dim3(2), 0, stream, nullptr, 0};\n"
    "cudaLaunchKernelEx(&c, k<int, 2>, p);",
    "a config by name": "cudaLaunchConfig_t c = {.gridDim = 1, .stream = stream};\n"
    "cudaLaunchKernelEx(&c, k, p);",
    "clusters that fit": "cudaLaunchConfig_t c = {};\nc.stream = stream;\n"
    "cudaOccupancyMaxActiveClusters(&n, k, &c);\ncudaLaunchKernelEx(&c, k, p);",
    "a config that is cleared first": "cudaLaunchConfig_t c;\nc = {};\nc.stream = stream;\n"
    "for (int i = 0; i < n; ++i) { cudaLaunchKernelEx(&c, k, p); }",
    "an overload without a stream": "return g(n);\n}\nint g(int n) { return 1; }\n"
    "void g(float* p, cudaStream_t s) { if (g(2)) k<<<1, 1, 0, s>>>(p);",
    "an operator in a template argument": "f<(3 > 2)>(p, n, stream);",
    "strings": 'g("cudaMalloc k<<<1, 1>>>(p)"); g(R"x(k<<<1>>>()x");',
    "device assembler": 'asm volatile("bar.sync 0;"); asm("mov.u32 %0, %1;" : "=r"(n) : "r"(n));',
    "tensor maps": 'cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &p, 12000, flags, &found);',
    "a digit separator": "n = 1'000'000; k<<<n, 1, 0, stream>>>(p);",
    "an asked stream": "cudaStreamIsCapturing(stream, &status);\ncudaStreamGetId(stream, &id);",
}
REFUSED = {
    "three launch arguments": ("k<<<1, 1, 0>>>(p);", "k<<<...>>> is not on the stream"),
    "a null stream": ("k<<<1, 1, 0, nullptr>>>(p);", "is not on the stream"),
    "a choice of streams": ("k<<<1, 1, 0, n ? stream : 0>>>(p);", "."),
    "a comma operator": ("k<<<1, 1, 0, (stream, nullptr)>>>(p);", "."),
    "a cast": ("k<<<1, 1, 0, (cudaStream_t)1>>>(p);", "."),
    "a number of that name": ("int stream = 4;\nk<<<1, 1, stream>>>(p);", "."),
    "digraphs": ("k<<<1, 1, 0, nullptr>>>(p); int a<:2:>;", "is not on the stream"),
    "an uninitialised stream": ("cudaStream_t s;\nk<<<1, 1, 0, s>>>(p);", "makes another stream"),
    "a null alias": ("cudaStream_t s = 0;", "makes another stream"),
    "an alias of itself": ("cudaStream_t s = s;\nk<<<1, 1, 0, s>>>(p);", "makes another stream"),
    "a static alias": ("static cudaStream_t s = stream;", "makes another stream"),
    "auto": ("auto s = stream;\nk<<<1, 1, 0, s>>>(p);", "`stream` is used for something else"),
    "an assignment": ("stream = 0;\nk<<<1, 1, 0, stream>>>(p);", "`stream` is used"),
    "its address": ("change(&stream);", "`stream` is used"),
    "a function that is not its own": ("change(stream);", "`stream` is used"),
    "an init capture": ("[stream = nullptr] { k<<<1, 1, 0, stream>>>(p); }();", "`stream` is used"),
    "a reference": ("auto g = [](cudaStream_t& s) { s = 0; };", "."),
    "a lambda with a stream": ("auto g = [](cudaStream_t s) { k<<<1, 1, 0, s>>>(0); };\ng(0);", "a lambda"),
    "a helper with a null stream": ("f(p, n, 0);", "f is not given"),
    "a method with a null stream": (
        "struct S { void go(float* p, cudaStream_t s) {} } o;\no.go(p, nullptr);", "go is not given",
    ),
    "a helper by another name": ("auto g = f;\ng(p, n, 0);", "f is not given"),
    "a pack": ("f(a...);", "f is not given"),
    "a member": ("struct S { cudaStream_t s; };", "makes another stream"),
    "another type name": ("using S = cudaStream_t;", "makes another stream"),
    "a default argument": ("void g(cudaStream_t s = 0);", "."),
    "another memset": ("cudaMemsetAsync(p, 0, 4);", "cudaMemsetAsync is not on the stream"),
    "a pointer to a call": ("auto set = cudaMemsetAsync;", "gets another name"),
    "a copy to the host": ("cudaMemcpyAsync(p, p, 4, cudaMemcpyDefault, stream);", "waits"),
    "a symbol's default": ("cudaMemcpyToSymbolAsync(a, p, 4, 0, cudaMemcpyHostToDevice, stream);", "waits"),
    "a config without a stream": (
        "cudaLaunchConfig_t c{};\ncudaLaunchKernelEx(&c, k, p);", "not on the stream",
    ),
    "a stream too late": (
        "cudaLaunchConfig_t c{};\ncudaLaunchKernelEx(&c, k, p);\nc.stream = stream;", "not on the stream",
    ),
    "a config that is cleared": (
        "cudaLaunchConfig_t c{};\nc.stream = stream;\nc = {};\ncudaLaunchKernelEx(&c, k, p);",
        "may change its stream",
    ),
    "a config that is cleared later": (
        "cudaLaunchConfig_t c{};\nc.stream = stream;\nfor (;;) {\ncudaLaunchKernelEx(&c, k, p);\nc = {};\n}",
        "may change its stream",
    ),
    "a stream that is set sometimes": (
        "cudaLaunchConfig_t c{};\nif (n) c.stream = stream;\ncudaLaunchKernelEx(&c, k, p);",
        "not on the stream",
    ),
    "a stream that is set in a branch": (
        "cudaLaunchConfig_t c{};\nif (n) {\nc.stream = stream;\n}\ncudaLaunchKernelEx(&c, k, p);",
        "not on the stream",
    ),
    "the config of another function": (
        "cudaLaunchConfig_t c{};\nc.stream = stream;\n}\nvoid g() {\ncudaLaunchConfig_t c{};\n"
        "cudaLaunchKernelEx(&c, k, p);", "not on the stream",
    ),
    "the config of a block": (
        "cudaLaunchConfig_t c{};\n{ cudaLaunchConfig_t c{};\nc.stream = stream; }\n"
        "cudaLaunchKernelEx(&c, k, p);", "not on the stream",
    ),
    "an overload that takes as many": (
        "g(p, 0);\n}\nint g(int* p, int n) { return 1; }\n"
        "void g(float* p, cudaStream_t s) { k<<<1, 1, 0, s>>>(p);", "g is not given",
    ),
    "a config elsewhere": ("cudaLaunchConfig_t c{};\nc.stream = stream;\nchange(&c);", "may change"),
    "a config's null stream": ("cudaLaunchConfig_t c{};\nc.stream = 0;", "may change its stream"),
    "a config by reference": ("void g(const cudaLaunchConfig_t& c);", "not a variable"),
    "a made config": ("auto c = make();\ncudaLaunchKernelEx(&c, k, p);", "not on the stream"),
    "a driver function": ('cudaGetDriverEntryPoint("cuCtxSynchronize", &p, 0, 0);', "finds driver functions"),
    "a driver function in parts": (
        'cudaGetDriverEntryPoint("cuTensorMapEncodeTiled" + n, &p, 0, 0);', "finds driver functions",
    ),
    "the compiler's own launch": ("__cudaPushCallConfiguration(1, 1);", "is not for host code"),
    "an asm label": ('int go() __asm__("cudaLaunchKernel");', "another name"),
    "a driver's stream": ("CUstream s;", "is not for host code"),
}  # fmt: skip


@pytest.mark.parametrize("body", PASSES.values(), ids=PASSES)
def test_work_on_the_given_stream_is_let_through(body):
    assert [str(one) for one in found(body)] == []


@pytest.mark.parametrize(("body", "words"), REFUSED.values(), ids=REFUSED)
def test_work_that_may_be_elsewhere_is_refused(body, words):
    assert any(re.search(re.escape(words) if words != "." else ".", str(one)) for one in found(body))


def test_what_stands_between_arguments_does_not_hide_a_missing_stream():
    """A number of a stream's name could be the third of three arguments, behind a comma of a template."""
    assert found("k<<<1, g<1, 2>(n), stream>>>(p);", "int stream;\nvoid f(float* p, int n) {\n")


def test_a_message_gives_the_call_its_line_and_what_to_write():
    (one,) = found("n = 1;\ncudaMalloc(&p, 4);", refused=["cudaMalloc"])
    assert str(one) == (
        "cudaMalloc waits for the GPU, line 3: take scratch memory with cudaMallocAsync(&pointer, bytes, "
        "stream) and return it with cudaFreeAsync(pointer, stream)"
    )


def test_the_parameters_own_name_is_in_the_advice():
    (one,) = found("k<<<1, 1>>>(p);", "void f(float* p, cudaStream_t queue) {\n")
    assert "shared_bytes, queue>>>" in one.instead


@pytest.mark.parametrize("name", [name for group in cuda_calls.GROUPS for name in group.shown])
def test_each_call_of_the_table_is_refused_by_its_own_group(name):
    assert native_check.strange_symbols(f" U {name}\n") == [name]
    assert name in cuda_calls.group_of(name).shown


def test_nothing_that_is_permitted_is_in_a_group_that_waits():
    waiting = ("waits for the GPU", "asks whether the GPU is done")
    assert not [name for name in cuda_calls.PERMITTED if cuda_calls.group_of(name).does in waiting]


def test_text_that_claims_to_be_of_a_header_is_seen(tmp_path):
    text = '# 1 "a.cu"\nint x;\n# 1 "/usr/include/h.h" 1\nint known;\nk<<<1, 1>>>();\n# 9 "a.cu" 2\nint y;\n'
    own = cpp_tokens.own_text(text, tmp_path, ["int known;\n"])
    assert own.lines == ("int x;", "int y;", "")
    assert own.foreign == ("a.cu", 2)
    assert "#line" in str(stream_order.findings(own, (), "a.cu")[0])


def built(tmp_path, file):
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / file.name).write_bytes(file.read_bytes())
    return nvcc.load(folder / file.name, tmp_path, "sm_90a", runs=False, checked=True)


@pytest.mark.nightly
@pytest.mark.skipif(nvcc.compiler() is None, reason="nvcc is not here")
@pytest.mark.parametrize("file", SPECIMENS, ids=lambda file: file.stem)
def test_specimen_gets_what_its_first_line_says(tmp_path, file):
    lines = file.read_text().splitlines()
    if lines[0].startswith("// ALLOWED"):
        assert built(tmp_path, file).kernels
        return
    assert lines[0].startswith("// REFUSED")
    with pytest.raises(nvcc.NotPermittedError) as refused:
        built(tmp_path, file)
    assert refused.value.line in [number for number, line in enumerate(lines, 1) if line.endswith("// HERE")]
    assert f"line {refused.value.line}: " in str(refused.value)


@pytest.mark.nightly
@pytest.mark.skipif(nvcc.compiler() is None, reason="nvcc is not here")
def test_every_header_of_the_list_may_be_included_alone(tmp_path):
    """Some headers include other files for host code than for device code."""
    for header in sorted(nvcc.HEADERS):
        file = tmp_path / f"{header.replace('.', '_')}.cu"
        file.write_text(f"#include <{header}>\n__global__ void k(float* x) {{ *x = 0; }}\n")
        (tmp_path / header).mkdir()
        built(tmp_path / header, file)
