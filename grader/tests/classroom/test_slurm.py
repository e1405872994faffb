"""A real Slurm, started for these tests by `make test-slurm`: jobs run, and a class is graded through it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grader.tests.classroom.slurm_cluster import MISSING, main, missing
from grader.tests.classroom.slurm_files import PARTITION
from grader.tests.helpers.commands import python
from grader.tests.helpers.course import ROOT

LAB = "lab1_elementwise_add"
FILE = "elementwise_add.py"
SUBMISSIONS = {
    "ada": f"solutions/{LAB}/{FILE}",
    "bob": f"solutions/{LAB}/wrong/store_without_mask.py",
    "cid": f"grader/course/skeletons/labs/{LAB}/{FILE}",
}
SITE = f"""\
workers_per_node = 2
address = "127.0.0.1"

[slurm]
partition = "{PARTITION}"
cores_per_node = 2
walltime = "00:10:00"
"""


def on_a_cluster(test):
    return pytest.mark.slurm(pytest.mark.usefixtures("cluster")(test))


def test_a_machine_without_slurm_is_told_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr("grader.tests.classroom.slurm_cluster.PATH", "")
    assert main(["true"]) == MISSING
    said = capsys.readouterr().err.strip()
    assert "apt-get install slurm-wlm munge" in said
    assert "\n" not in said


@pytest.fixture
def cluster():
    if missing() or "SLURM_CONF" not in os.environ:
        pytest.fail("no cluster here: make test-slurm starts one")


@on_a_cluster
def test_a_job_runs_and_its_exit_code_comes_back(tmp_path):
    script = "#!/bin/sh\necho from a job; exit 7\n"
    (tmp_path / "job.sh").write_text(script)
    done = subprocess.run(
        ["sbatch", "--wait", f"--output={tmp_path}/job.txt", tmp_path / "job.sh"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 7, done.stderr
    assert (tmp_path / "job.txt").read_text() == "from a job\n"


@on_a_cluster
def test_a_student_grades_on_a_compute_node(tmp_path):
    command = f"srun -n1 {sys.executable} -B -m grader grade --lab 1 --tier cpu --from solutions --results"
    done = subprocess.run(
        [*command.split(), tmp_path], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "results.json").read_text("utf-8"))["points"] > 40


@on_a_cluster
def test_the_batch_script_grades_on_a_disk_of_the_node_and_leaves_nothing_there(tmp_path):
    told = (
        'grade:\n\t@echo "$(LAB) in $$TMPDIR $$GRADER_SCRATCH"; touch $$TMPDIR/part\nreport:\n\t@echo page\n'
    )
    (tmp_path / "Makefile").write_text(told)
    script = ROOT / "grader" / "classroom" / "ci" / "grade.sbatch"
    done = subprocess.run(["sbatch", "--wait", script, "LAB=2"], cwd=tmp_path, check=False, timeout=60)
    (output,) = tmp_path.glob("slurm-*.txt")
    words = output.read_text().split()
    assert done.returncode == 0, words
    assert (words[0], words[2] == words[3], words[4]) == ("2", True, "page")
    assert "grade-" in words[2]
    assert not Path(words[2]).exists()


@on_a_cluster
def test_a_class_is_graded_through_slurm(tmp_path):
    for name, path in SUBMISSIONS.items():
        folder = tmp_path / "in" / name / "labs" / LAB
        folder.mkdir(parents=True)
        shutil.copyfile(ROOT / path, folder / FILE)
    (tmp_path / "slurm.toml").write_text(SITE)
    out = tmp_path / "out"
    done = python(
        "-m", "grader", "class", tmp_path / "in", "--lab", "1", "--tier", "cpu", "--out", out,
        "--site", tmp_path / "slurm.toml", "--no-self-test", "--blind", "0",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    points = {}
    for name in SUBMISSIONS:
        unit = out / "students" / name / LAB
        assert json.loads((unit / "task.json").read_text())["state"] == "GRADED"
        points[name] = json.loads((unit / "results.json").read_text())["points"]
    assert points["ada"] > points["bob"] > points["cid"] == 0
    told = subprocess.run(["squeue", "--noheader"], capture_output=True, text=True, check=False)
    assert told.stdout.strip() == ""
