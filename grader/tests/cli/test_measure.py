"""The commands that measure: without a GPU each says what it needs, and writes nothing."""

import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from grader.cli.main import main
from grader.measure.survey import command
from grader.system import gpu
from grader.tests.helpers.commands import python
from grader.tests.helpers.course import ROOT
from grader.tests.measure.capstone_tree import complete_capstone

COMMANDS = {
    "survey": [],
    "log": ["--step", "half the bytes, so half the time"],
    "bench": ["--lab", "capstone"],
    "sanitize": [],
}


@pytest.fixture
def tree(tmp_path):
    return complete_capstone(tmp_path / "tree")


@pytest.mark.skipif(gpu.find()[0] is not None, reason="there is a GPU")
@pytest.mark.parametrize("name", COMMANDS)
def test_without_a_gpu_a_command_says_what_it_needs_and_writes_nothing(tmp_path, name):
    for folder in ("gpu-programming", "labs"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = python("-m", "grader", name, *COMMANDS[name], root=tmp_path, PYTHONPATH=str(ROOT))
    assert done.returncode == 3, done.stderr
    assert "GPU" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_check_log_names_what_is_wrong_and_is_content_with_what_is_right(tree):
    def check():
        return python("-m", "grader", "check-log", "--from", str(tree))

    assert check().returncode == 0, check().stdout
    assert "cuda_matmul 5" in check().stdout
    page = tree / "gpu-programming" / "KERNEL_LOG.md"
    page.write_text(page.read_text("utf-8").replace("90.2", "80.2", 1), "utf-8")
    done = check()
    assert done.returncode == 1
    assert "80.2" in done.stdout


@pytest.mark.slow
def test_a_survey_is_drawn_again_without_a_gpu(tree):
    folder = tree / "gpu-programming" / "hardware-survey"
    for name in ("bandwidth.svg", "matmul.svg", "roofline.svg"):
        (folder / name).unlink()
    done = python("-m", "grader", "survey", "--redraw", "--from", str(tree))
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path.name for path in folder.glob("*.svg")) == [
        "bandwidth.svg",
        "matmul.svg",
        "roofline.svg",
    ]


@pytest.mark.parametrize("words", ['half the "bytes", so half the time', "it's `slow`; rm -rf x"])
def test_make_hands_a_prediction_on_as_it_was_typed(words):
    command = ["make", "-s", "log", f"STEP={words}", "SETUP=true", "RUN=printf '%s|'"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split("|")[:4] == ["grader", "log", "--step", words]


def test_a_survey_records_its_command_without_a_folder_of_this_machine(monkeypatch):
    told = []
    monkeypatch.setattr(command, "survey", lambda *arguments: told.append(arguments[3]) or 0)
    words = ["survey", "--from", "/some/where/solutions", "--redraw"]
    monkeypatch.setattr(sys, "argv", ["grader", *words])
    CliRunner().invoke(main, words)
    assert told == ["python -m grader survey --from solutions --redraw"]
