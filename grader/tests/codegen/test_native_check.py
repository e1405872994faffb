"""Native code is judged by what the compiler made of it: opened files, assembler, undefined symbols."""

import subprocess

import pytest

from grader.codegen import native_check, nvcc
from grader.tests.helpers.course import ROOT

CHEATS = ROOT / "grader" / "tests" / "cheats"
SOLVED = sorted((ROOT / "solutions/gpu-programming/cuda-kernels").glob("*/[0-9]*.cu"))
FATBIN = '#APP\n\t.section .nv_fatbin, "a"\n.align 8\nfatbinData:\n.quad 0x1,0x1\n.text\n\n#NO_APP\n'


def test_only_the_compilers_own_assembler_is_permitted():
    assert list(native_check.host_assembler(FATBIN)) == []
    own = f'{FATBIN}\tmovl %eax, %edx\n#APP\n# 7 "a.cu" 1\n\t.incbin "/etc/passwd"\n# 0 "" 2\n#NO_APP\n'
    assert list(native_check.host_assembler(own)) == ['.incbin "/etc/passwd"']


@pytest.mark.parametrize(
    "name",
    ["dlopen", "dlsym", "PyRun_SimpleString", "system", "fopen", "open", "read", "mmap", "mprotect",
     "syscall", "fork", "socket", "cublasGemmEx", "cublasCreate_v2",
     "cudnnCreate", "cudaLibraryLoadFromFile", "getenv",
     "pthread_create", "at_sum", "_ZN2at4mmEv", "_ZNSt13basic_filebufIcE4openEPKc", "_ZNSt6thread4joinEv",
     "cudaMalloc", "cudaDeviceSynchronize", "cudaStreamCreate", "cudaMemsetAsync_ptsz",
     "cudaWhatIsNewNextYear", "__cudaRegisterManagedVar", "cuLaunchKernel", "cudaGraphLaunch",
     "__libc_dlopen_mode", "cuModuleLoad", "_dl_sym", "posix_memalign_or_dlopen"],
)  # fmt: skip
def test_a_symbol_that_reaches_other_code_is_refused(name):
    assert native_check.strange_symbols(f"                 U {name}\n") == [name]


@pytest.mark.parametrize(
    "name",
    ["cudaLaunchKernel", "__cudaRegisterFunction", "cudaGetDriverEntryPointByVersion", "memcpy", "expf",
     "sqrt", "atexit", "__cxa_guard_acquire", "_ZSt20__throw_length_errorPKc", "_Znwm", "_ZdlPvm", "printf",
     "_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail", "cudaFuncSetAttribute",
     "cudaMallocAsync", "cudaGetDeviceProperties_v2", "cudaLaunchKernelExC", "llround", "memcpy@GLIBC_2.14"],
)  # fmt: skip
def test_what_host_code_of_a_kernel_needs_is_permitted(name):
    assert native_check.strange_symbols(f"                 U {name}\n") == []


def test_a_line_directive_hides_no_file(tmp_path):
    """GCC writes a marker for each file that it opens, whatever the text says of itself."""
    (tmp_path / "hidden.h").write_text("int hidden;\n")
    (tmp_path / "own").mkdir()
    source = tmp_path / "own" / "a.cpp"
    source.write_text(
        '#line 1 "/usr/include/stdint.h"\n# 1 "/usr/include/stddef.h" 1\n#inc\\ \nlude "../hidden.h"\n'
    )
    subprocess.run(
        ["g++", "-E", "a.cpp", "-o", str(tmp_path / "a.ii")],
        cwd=source.parent,
        check=True,
        capture_output=True,
    )
    found = native_check.opened([tmp_path / "a.ii"], source.parent)
    permitted = {"/usr/include/stdint.h", "/usr/include/stddef.h"}
    strange = native_check.strange_files(found, permitted, source.parent)
    assert str((tmp_path / "hidden.h").resolve()) in strange


def test_the_file_itself_and_what_lies_beside_it_are_permitted(tmp_path):
    (tmp_path / "a.ii").write_text('# 1 "a.cu"\n# 1 "<built-in>"\n# 1 "beside.cuh" 1\n# 2 "a.cu" 2\n')
    found = native_check.opened([tmp_path / "a.ii"], tmp_path)
    assert len(found) == 2
    assert native_check.strange_files(found, (), tmp_path) == []


@pytest.mark.slow
@pytest.mark.skipif(nvcc.compiler() is None, reason="nvcc is not here")
class TestWithTheCompiler:
    """What nvcc keeps has the form that the check expects."""

    @pytest.mark.parametrize(
        ("name", "words"),
        [("c01_continued_behind_a_blank", "list of headers"), ("c02_no_header_needed", "Py.* is not a call")],
    )
    def test_a_trick_is_refused(self, tmp_path, name, words):
        file = tmp_path / "source" / "a.cu"
        file.parent.mkdir()
        file.write_bytes((CHEATS / f"{name}.cu").read_bytes())
        with pytest.raises(nvcc.NotPermittedError, match=words):
            nvcc.load(file, tmp_path, "sm_90a", runs=False, checked=True)

    @pytest.mark.parametrize(
        "asm", ['asm(".incbin \\"/etc/passwd\\"");', 'int f(int a) { asm("nop"); return a; }']
    )
    def test_assembler_of_the_host_is_refused(self, tmp_path, asm):
        file = tmp_path / "source" / "a.cu"
        file.parent.mkdir()
        file.write_text(f'{asm}\n__global__ void k(float* x) {{ asm volatile("bar.sync 0;"); *x = 0; }}\n')
        with pytest.raises(nvcc.NotPermittedError, match="assembler"):
            nvcc.load(file, tmp_path, "sm_90a", runs=False, checked=True)

    @pytest.mark.nightly
    @pytest.mark.parametrize("file", SOLVED, ids=lambda file: f"{file.parent.name}/{file.stem}")
    def test_an_honest_file_is_let_through(self, tmp_path, file):
        folder = tmp_path / "source"
        folder.mkdir()
        for one in (file, *file.parent.glob("*.cuh")):
            (folder / one.name).write_bytes(one.read_bytes())
        assert nvcc.load(folder / file.name, tmp_path, "sm_90a", runs=False, checked=True).kernels
