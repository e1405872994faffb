"""`make inspect`: what it shows of kernels that are compiled for a GPU which is not there."""

import dataclasses
import io
import re

import click
import pytest
from rich.console import Console

from grader.codegen import nvcc
from grader.codegen.kernel_facts import CompiledKernel
from grader.course import catalog
from grader.student.inspect import MAX_WARPS, inspect_lab, remarks, resident_warps
from grader.tests.helpers.course import ROOT

FACTS = CompiledKernel(
    name="k", constants={"BLOCK": 64}, num_warps=4, num_stages=3, shared_bytes=0, spill_bytes=0,
    shared_limit_bytes=227 * 1024, registers=32, tensor_core="", async_copies=0, load_widths_bytes=(16,),
    config="BLOCK=64, 4 warps, 3 stages", sass="STG.E.128 [R2]",
)  # fmt: skip


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=300, soft_wrap=True)


def printed(console: Console) -> str:
    return console.file.getvalue()


def lab3(*names: str) -> catalog.Entry:
    """Lab 3 with only these exercises."""
    (entry,) = [entry for entry in catalog.find() if entry.number == 3]
    chosen = tuple(exercise for exercise in entry.lab.exercises if exercise.name in names)
    return dataclasses.replace(entry, lab=dataclasses.replace(entry.lab, exercises=chosen))


@pytest.mark.parametrize(
    ("arch", "instruction"), [(90, "wgmma.mma_async"), pytest.param(80, "mma.sync", marks=pytest.mark.slow)]
)
def test_inspect_writes_every_config_and_names_its_tensor_cores(arch, instruction, tmp_path, console):
    inspect_lab(lab3("matmul"), ROOT / "solutions", arch, tmp_path, console)
    text = printed(console)
    files = sorted((tmp_path / "lab3_autotuned_matmul").iterdir())
    solution = (ROOT / "solutions/lab3_autotuned_matmul/autotuned_matmul.py").read_text()
    # Of the second kernel: what inspect looks at has strides that a descriptor takes.
    configs = re.search(r"DESCRIBED = \[(.*)\]", solution)[1].count("_config(")
    stems = [f"matmul-{number}" for number in range(1, configs + 1)]
    assert [file.name for file in files] == [f"{stem}.{kind}" for stem in stems for kind in ("ptx", "sass")]
    for file in files:
        assert f"sm_{arch}" in file.read_text().splitlines()[0]
    for stem in stems:
        assert re.search(rf"(?m)^ +{stem} .* {re.escape(instruction)}$", text)
    line = int(re.search(r"(?m)^ +mma +line (\d+)", text)[1])
    assert instruction in files[0].read_text().splitlines()[line - 1]
    assert "TRITON_PRINT_AUTOTUNING=1 make grade LAB=3" in text


def capstone(folder: str, *names: str) -> catalog.Entry:
    """A folder of the capstone with only these exercises."""
    (entry,) = [entry for entry in catalog.capstone() if entry.folder.name == folder]
    chosen = tuple(exercise for exercise in entry.lab.exercises if exercise.name in names)
    assert len(chosen) == len(names)
    return dataclasses.replace(entry, lab=dataclasses.replace(entry.lab, exercises=chosen))


@pytest.mark.slow
@pytest.mark.skipif(nvcc.compiler() is None, reason="no nvcc")
def test_inspect_of_cuda_files_shows_their_sass_and_nothing_of_triton(tmp_path, console):
    inspect_lab(capstone("cuda-kernels", "vector_add"), ROOT / "solutions", 90, tmp_path, console)
    text = printed(console)
    files = sorted((tmp_path / "cuda-kernels").iterdir())
    assert [file.name for file in files] == ["vector_add-1.sass", "vector_add-2.sass"]
    assert "LDG.E.128" in files[1].read_text()
    assert re.search(r"(?m)^ +vector_add-2 +\d+ +64 of 64 ", text)
    assert "how to read" not in text
    assert "AUTOTUNING" not in text


@pytest.mark.nightly
def test_inspect_asks_for_tensor_cores_only_of_a_file_that_multiplies_matrices(tmp_path, console):
    inspect_lab(capstone("triton-kernels", "swiglu", "attention"), ROOT / "solutions", 90, tmp_path, console)
    first, second = printed(console).split("capstone  attention")
    assert "no tensor cores" not in first
    assert "wgmma" in second
    assert "make grade LAB=capstone, on a GPU" in second


def test_inspect_of_an_untouched_skeleton_says_not_started_and_writes_nothing(tmp_path, console):
    inspect_lab(lab3("matmul"), ROOT / "labs", 90, tmp_path, console)
    assert re.search(r"NOT STARTED  matmul\n.*autotuned_matmul.py:\d+  TODO 1: ", printed(console))
    assert not list(tmp_path.iterdir())


def test_inspect_of_a_file_that_does_not_compile_names_the_line(tmp_path, console):
    file = tmp_path / "lab3_autotuned_matmul" / "autotuned_matmul.py"
    file.parent.mkdir()
    file.write_text("import triton\n\ndef matmul(a, b, *, out=None)\n")
    inspect_lab(lab3("matmul"), tmp_path, 90, tmp_path / "out", console)
    assert "COMPILE ERROR" in printed(console)
    assert "autotuned_matmul.py:3" in printed(console)


def test_inspect_refuses_an_unknown_gpu_and_lists_the_known_ones(tmp_path, console):
    with pytest.raises(click.UsageError, match=r"sm_70: choose one of sm_75, .*sm_90, sm_100, sm_120"):
        inspect_lab(lab3("matmul"), ROOT / "solutions", 70, tmp_path, console)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "nothing stands out"),
        ({"spill_bytes": 64}, "registers spill"),
        ({"shared_bytes": 240 * 1024}, "too much shared memory"),
        ({"load_widths_bytes": (2,)}, "loads are 2 bytes wide at most"),
        ({"sass": "STG.E [R2]"}, "stores are 4 bytes wide at most"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_stands_out_is_said_in_one_line(change, words, tmp_path):
    (line,) = remarks([FACTS.model_copy(update=change)], [tmp_path / "k-1.ptx"], 90, has_dot=False)
    assert words in line


def test_a_matrix_product_without_tensor_cores_or_async_copies_stands_out(tmp_path):
    lines = remarks([FACTS], [tmp_path / "k-1.ptx"], 90, has_dot=True)
    assert [line.split(":")[1].split(",")[0].strip() for line in lines] == [
        "no tensor cores",
        "no async copies",
    ]


@pytest.mark.parametrize(("registers", "warps"), [(32, 64), (63, 32), (128, 16), (195, 8), (255, 8)])
def test_registers_limit_the_warps_of_a_multiprocessor(registers, warps):
    assert resident_warps(FACTS.model_copy(update={"registers": registers}), 90) == warps
    assert MAX_WARPS[90] == 64
