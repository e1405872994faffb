"""`make doctor`: what it finds out about a machine, and how it says that."""

import io
import platform
import re

import pynvml
import pytest
import torch
from rich.console import Console

from grader.course import catalog
from grader.student import doctor, gpu_check
from grader.system import gpu

NO_DRIVER = "no NVIDIA driver on this machine"
OLD_GPU = gpu.Gpu("Old", "470.1", "", 70, 2**34, 9e11, 1e14, 1500)


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=300, soft_wrap=True)


@pytest.fixture
def without_gpu(monkeypatch):
    monkeypatch.setattr(gpu, "find", lambda: (None, NO_DRIVER))


def printed(console: Console) -> str:
    return console.file.getvalue()


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.usefixtures("without_gpu")
def test_doctor_names_a_broken_interpreter_and_its_fix(console, monkeypatch):
    error = "No module named numpy"
    break_it = f"import os\nif os.environ.get('TRITON_INTERPRET'):\n    raise TypeError({error!r})\n"
    monkeypatch.setattr(doctor, "KNOWN_GOOD", break_it + doctor.KNOWN_GOOD)
    assert not doctor.examine(console)
    text = printed(console)
    assert re.search(rf"(?m)^  cpu +BROKEN .*TypeError: {error}\n +.*make setup", text)
    assert re.search(r"(?m)^  codegen +ok ", text)
    assert "once everything marked BROKEN is fixed" in text


@pytest.mark.usefixtures("without_gpu")
def test_doctor_tells_of_a_version_that_is_too_old(console, monkeypatch):
    here = doctor.machine(None, "").model_copy(update={"torch": "2.10.0"})
    monkeypatch.setattr(doctor, "machine", lambda *_: here)
    monkeypatch.setattr(doctor, "_tiers", lambda *_: iter(()))
    assert doctor.examine(console)
    assert re.search(r"(?m)^  torch +note +2.10.0, 2.11 or newer", printed(console))


@pytest.mark.slow
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
    assert row[2].startswith("driver 470.1 supports CUDA up to 12.4, this torch needs 13.0")


def test_wsl2_without_a_driver_is_sent_to_windows(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(platform, "release", lambda: "5.15.90.1-microsoft-standard-WSL2")
    assert "Windows" in gpu_check.why_none(NO_DRIVER)[2]


def test_a_gpu_hidden_by_the_environment_is_called_so(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert gpu_check.why_none("Invalid Argument")[2].startswith("CUDA_VISIBLE_DEVICES='-1' matches no GPU")
