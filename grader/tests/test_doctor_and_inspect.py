"""`make doctor` and `make inspect`: what they find out on a machine without a GPU, and how they say it."""

import dataclasses
import io
import platform
import re

import click
import pynvml
import pytest
import torch
from conftest import ROOT
from rich.console import Console

from grader import catalog, doctor, gpu, gpu_check, native
from grader.codegen import KernelFacts
from grader.inspection import MAX_WARPS, inspect_lab, remarks, resident_warps

NO_DRIVER = "no NVIDIA driver on this machine"
OLD_GPU = gpu.Gpu("Old", "470.1", "", 70, 2**34, 9e11, 1e14, 1500)
FACTS = KernelFacts("k", {"BLOCK": 64}, 4, 3, 0, 227 * 1024, 32, 0, "", 0, (16,), sass="STG.E.128 [R2]")


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=300, soft_wrap=True)


@pytest.fixture
def without_gpu(monkeypatch):
    monkeypatch.setattr(gpu, "find", lambda: (None, NO_DRIVER))


def printed(console: Console) -> str:
    return console.file.getvalue()


@pytest.mark.usefixtures("without_gpu")
def test_doctor_is_healthy_here_and_says_what_a_gpu_would_add(console):
    assert doctor.examine(console)
    text = printed(console)
    assert "BROKEN" not in text
    assert NO_DRIVER in text
    for tier in ("cpu", "codegen"):
        assert re.search(rf"(?m)^  {tier} +ok ", text)
    for entry in catalog.find():
        (line,) = re.findall(rf"(?m)^  lab {entry.number} .*", text)
        here, total, speed = map(
            float, re.search(r"([\d.]+) of ([\d.]+) points; .*, ([\d.]+) speed \(needs", line).groups()
        )
        assert total == pytest.approx(entry.lab.points)
        assert speed == pytest.approx(sum(e.speed.points for e in entry.lab.exercises if e.speed))
        assert 0 < here < total - speed


@pytest.mark.usefixtures("without_gpu")
def test_doctor_names_a_broken_interpreter_and_its_fix(console, monkeypatch):
    error = "only 0-dimensional arrays can be converted to Python scalars"
    break_it = f"import os\nif os.environ.get('TRITON_INTERPRET'):\n    raise TypeError({error!r})\n"
    monkeypatch.setattr(doctor, "KNOWN_GOOD", break_it + doctor.KNOWN_GOOD)
    assert not doctor.examine(console)
    text = printed(console)
    assert re.search(rf"(?m)^  cpu +BROKEN .*TypeError: {error}\n +.*numpy<2.4", text)
    assert re.search(r"(?m)^  codegen +ok ", text)
    assert "once what is BROKEN is repaired" in text


@pytest.mark.usefixtures("without_gpu")
def test_doctor_tells_of_a_numpy_that_breaks_triton_3_6_0(console, monkeypatch):
    here = doctor.machine(None, "").model_copy(
        update={"triton": "3.6.0", "numpy": "2.4.1", "torch": "2.10.0"}
    )
    monkeypatch.setattr(doctor, "machine", lambda *_: here)
    monkeypatch.setattr(doctor, "_tiers", lambda *_: iter(()))
    assert doctor.examine(console)
    assert re.search(r"(?m)^  numpy +note .*numpy 2.4 or newer: use 'numpy<2.4'", printed(console))
    assert re.search(r"(?m)^  torch +note +2.10.0, 2.11 or newer", printed(console))


def test_a_gpu_that_torch_cannot_use_is_broken_although_the_cpu_tier_works(console, monkeypatch):
    monkeypatch.setattr(gpu, "find", lambda: (OLD_GPU, ""))
    monkeypatch.setattr(torch.version, "cuda", None)
    assert not doctor.examine(console)
    text = printed(console)
    assert "a build without CUDA" in text
    assert re.search(r"(?m)^  cpu +ok ", text)
    assert re.search(r"(?m)^  gpu +BROKEN +see above", text)


def test_a_driver_older_than_torch_is_named_with_both_versions(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(pynvml, "nvmlSystemGetCudaDriverVersion", lambda: 12040)
    (row,) = [row for row in gpu_check.look_at(OLD_GPU) if row[0] == "torch"]
    assert row[1] == "BROKEN"
    assert row[2].startswith("driver 470.1 ends at CUDA 12.4, this torch needs 13.0")


def test_wsl2_without_a_driver_is_sent_to_windows(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(platform, "release", lambda: "5.15.90.1-microsoft-standard-WSL2")
    assert "Windows" in gpu_check.why_none(NO_DRIVER)[2]


def test_a_gpu_hidden_by_the_environment_is_called_so(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert gpu_check.why_none("Invalid Argument")[2].startswith("CUDA_VISIBLE_DEVICES='-1' names no GPU")


def lab3(*names: str) -> catalog.Entry:
    """Lab 3 with only these exercises."""
    (entry,) = [entry for entry in catalog.find() if entry.number == 3]
    chosen = tuple(exercise for exercise in entry.lab.exercises if exercise.name in names)
    return dataclasses.replace(entry, lab=dataclasses.replace(entry.lab, exercises=chosen))


@pytest.mark.parametrize(("arch", "instruction"), [(90, "wgmma.mma_async"), (80, "mma.sync")])
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


@pytest.mark.skipif(native.compiler() is None, reason="no nvcc")
def test_inspect_of_cuda_files_shows_their_sass_and_nothing_of_triton(tmp_path, console):
    inspect_lab(capstone("cuda-kernels", "vector_add"), ROOT / "solutions", 90, tmp_path, console)
    text = printed(console)
    files = sorted((tmp_path / "cuda-kernels").iterdir())
    assert [file.name for file in files] == ["vector_add-1.sass", "vector_add-2.sass"]
    assert "LDG.E.128" in files[1].read_text()
    assert re.search(r"(?m)^ +vector_add-2 +\d+ +64 of 64 ", text)
    assert "how to read" not in text
    assert "AUTOTUNING" not in text


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
        ({"load_widths": (2,)}, "loads are 2 bytes wide at most"),
        ({"sass": "STG.E [R2]"}, "stores are 4 bytes wide at most"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_stands_out_is_said_in_one_line(change, words, tmp_path):
    (line,) = remarks([dataclasses.replace(FACTS, **change)], [tmp_path / "k-1.ptx"], 90, has_dot=False)
    assert words in line


def test_a_matrix_product_without_tensor_cores_or_async_copies_stands_out(tmp_path):
    lines = remarks([FACTS], [tmp_path / "k-1.ptx"], 90, has_dot=True)
    assert [line.split(":")[1].split(",")[0].strip() for line in lines] == [
        "no tensor cores",
        "no async copies",
    ]


@pytest.mark.parametrize(("registers", "warps"), [(32, 64), (63, 32), (128, 16), (195, 8), (255, 8)])
def test_registers_limit_the_warps_of_a_multiprocessor(registers, warps):
    assert resident_warps(dataclasses.replace(FACTS, registers=registers), 90) == warps
    assert MAX_WARPS[90] == 64
